//! Whole proofs, beside bellperson's prover on the same witness and parameters.
//!
//! The Filecoin circuits need their parameter files in the folder named by `FIL_PROOFS_PARAMETER_CACHE` (or its
//! default); those that are missing are left out. `cuzk params generate` makes them.

#[path = "../tests/common/bellperson_srs.rs"]
mod bellperson_srs;
#[path = "../tests/common/synthetic.rs"]
mod synthetic;

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use bellpepper_core::{Circuit, ConstraintSystem, LinearCombination, SynthesisError, Variable};
use bellperson::groth16::{create_proof_batch, generate_random_parameters, Parameters};
use blstrs::{Bls12, Scalar};
use criterion::{criterion_group, criterion_main, Criterion, Throughput};
use cuzk::circuits::manifest::Manifest;
use cuzk::groth16::prover::{check_witness, prove};
use cuzk::groth16::{Assignment, Blinding, PackedWitness, R1csShape};
use cuzk::ids::PartitionIndex;
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;

use bellperson_srs::to_srs;
use synthetic::{Synthetic, Values};

/// A recorded job, and the constraint rows and witness of its first partition as a circuit.
#[derive(Clone, Copy)]
struct Replay<'a> {
    shape: &'a R1csShape,
    assignment: &'a Assignment,
    rows: &'a Rows,
}

/// `[matrix][entry]`: row, column, coefficient.
type Rows = [Vec<(usize, usize, Scalar)>; 3];

fn rows_of(shape: &R1csShape) -> Rows {
    [0, 1, 2].map(|matrix| {
        let mut entries = Vec::new();
        shape.for_each_entry(matrix, &mut |row, column, coefficient| {
            if row < shape.num_constraints() {
                entries.push((row, column, *coefficient));
            }
        });
        entries
    })
}

impl Circuit<Scalar> for Replay<'_> {
    fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
        let mut variables = vec![CS::one()];
        for value in &self.assignment.input_assignment[1..] {
            variables.push(cs.alloc_input(|| "", || Ok(*value))?);
        }
        for value in &self.assignment.aux_assignment {
            variables.push(cs.alloc(|| "", || Ok(*value))?);
        }
        let mut rest = self.rows.each_ref().map(Vec::as_slice);
        for row in 0..self.shape.num_constraints() {
            let [a, b, c] = rest.each_mut().map(|entries| next_row(entries, row, &variables));
            cs.enforce(|| "", |_| a, |_| b, |_| c);
        }
        Ok(())
    }
}

fn next_row(
    entries: &mut &[(usize, usize, Scalar)],
    row: usize,
    variables: &[Variable],
) -> LinearCombination<Scalar> {
    let len = entries.iter().take_while(|(of_row, ..)| *of_row == row).count();
    let (this, rest) = entries.split_at(len);
    *entries = rest;
    let add =
        |sum, (_, column, coefficient): &(usize, usize, Scalar)| sum + (*coefficient, variables[*column]);
    this.iter().fold(LinearCombination::zero(), add)
}

/// Row values and proof: what comes after the witness.
fn bench_circuit<C: Circuit<Scalar> + Clone + Send>(
    criterion: &mut Criterion,
    name: &str,
    circuit: C,
    shape: &R1csShape,
    witness: &PackedWitness,
    params: &Parameters<Bls12>,
) {
    let srs = to_srs(params);
    let blinding = Blinding::random(&mut ChaCha20Rng::seed_from_u64(4));
    let ours = || {
        check_witness(shape, witness, &witness.inputs[1..]).expect("satisfied");
        prove(&srs, shape, witness, &blinding).expect("its own key")
    };
    let theirs = || {
        create_proof_batch(vec![circuit.clone()], params, vec![blinding.r], vec![blinding.s])
            .expect("its own key")
    };
    let mut group = criterion.benchmark_group(format!("prove/{name}"));
    group.throughput(Throughput::Elements(shape.num_constraints() as u64)).sample_size(10);
    group.bench_function("cuzk", |bencher| bencher.iter(ours));
    group.bench_function("bellperson", |bencher| bencher.iter(theirs));
    group.finish();
}

fn bench_synthetic(criterion: &mut Criterion) {
    let circuit = Synthetic { input_every: 500, ..Synthetic::new((1 << 12) - 100, Values::Bits) };
    let mut rng = ChaCha20Rng::seed_from_u64(3);
    let params = generate_random_parameters::<Bls12, _, _>(circuit.clone(), &mut rng).expect("satisfied");
    let shape = R1csShape::record(circuit.clone()).expect("small");
    let witness = PackedWitness::synthesize(circuit.clone(), &shape).expect("complete");
    bench_circuit(criterion, "synthetic/2^12", circuit, &shape, &witness, &params);
}

fn params_dir() -> PathBuf {
    std::env::var_os("FIL_PROOFS_PARAMETER_CACHE")
        .map_or_else(|| "/var/tmp/filecoin-proof-parameters".into(), PathBuf::from)
}

fn bench_filecoin(criterion: &mut Criterion) {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/filecoin");
    for (name, job) in [
        ("window-2k", "window-2k/full-partition"),
        ("winning-2k", "winning-2k/sector-1"),
        ("snap-2k", "snap-2k/sector-1"),
        ("porep-2k", "porep-2k/sector-1"),
    ] {
        let dir = data.join(job);
        let manifest = Manifest::read(&dir.join("manifest.json")).expect("recorded");
        let spec = manifest.circuit_spec().expect("recorded");
        let Ok(file) = File::open(params_dir().join(spec.params_file())) else {
            eprintln!("prove/{name}: left out, no {} in {}", spec.params_file(), params_dir().display());
            continue;
        };
        let params = Parameters::<Bls12>::read(BufReader::with_capacity(1 << 20, file), false)
            .expect("a parameter file");
        let request = manifest.request(0, &dir).expect("recorded");
        let workload = request.decode(&params_dir()).expect("recorded");
        let shape = workload.record_shape().expect("blank circuit");
        let witness = workload.synthesize(PartitionIndex(0), &shape).expect("recorded");
        let assignment = witness.unpack(shape.classes());
        let rows = rows_of(&shape);
        let circuit = Replay { shape: &shape, assignment: &assignment, rows: &rows };
        bench_circuit(criterion, name, circuit, &shape, &witness, &params);
    }
}

criterion_group!(benches, bench_synthetic, bench_filecoin);
criterion_main!(benches);
