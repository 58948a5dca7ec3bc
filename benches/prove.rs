//! Whole proofs, beside bellperson's prover on the same circuit, parameters, r and s.
//!
//! Both sides begin with the same circuit, whose synthesis replays a recorded witness and its rows, and end with the
//! proof. Ours makes the witness alone and takes the rows from the shape, which is recorded once and kept; bellperson
//! makes rows and witness anew for every proof. Not counted on either side: making the witness from vanilla proofs, and
//! reading the parameters (bellperson reads them again for every proof in production, we keep them).
//!
//! The Filecoin circuits need their parameter files in the folder named by `FIL_PROOFS_PARAMETER_CACHE` (or its
//! default); `cuzk params generate` makes them. `CUZK_BENCH_CIRCUITS`, as in `window-2k,winning-2k`, names those to run:
//! a missing file is an error then. Without it all are run whose files are there.
//!
//! After each pair one line says how much memory the proofs took above the set-up. It is of all that ran in this
//! process, so name one side (`-- --test prove/porep-2k/cuzk`) to have its own. `CUZK_BENCH_STAGES=1` prints the same of
//! each step of our proof, before the pair.

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
use cuzk::groth16::prover::{
    check_witness, divide, evaluate, prove, sum_a, sum_b_g1, sum_b_g2, sum_h, sum_l,
};
use cuzk::groth16::{Assignment, Blinding, PackedWitness, R1csShape, Srs};
use cuzk::ids::PartitionIndex;
use cuzk::telemetry::process::{peak_resident_bytes, resident_bytes};
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

/// `[matrix][entry]`.
type Rows = [Vec<Entry>; 3];

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
            let [a, b, c] = rest.each_mut().map(|entries| next_row(entries, row));
            // Made only for a prover that asks for them, as a circuit's own are.
            let sum = |entries| combination(entries, &variables);
            cs.enforce(|| "", |_| sum(a), |_| sum(b), |_| sum(c));
        }
        Ok(())
    }
}

/// A non-zero entry of a matrix: row, column, coefficient.
type Entry = (usize, usize, Scalar);

fn next_row<'a>(entries: &mut &'a [Entry], row: usize) -> &'a [Entry] {
    let len = entries.iter().take_while(|(of_row, ..)| *of_row == row).count();
    let (this, rest) = entries.split_at(len);
    *entries = rest;
    this
}

fn combination(entries: &[Entry], variables: &[Variable]) -> LinearCombination<Scalar> {
    let add = |sum, (_, column, coefficient): &Entry| sum + (*coefficient, variables[*column]);
    entries.iter().fold(LinearCombination::zero(), add)
}

/// Whole proofs by both sides.
fn bench_circuit<C: Circuit<Scalar> + Clone + Send>(
    criterion: &mut Criterion,
    name: &str,
    circuit: C,
    shape: &R1csShape,
    public_inputs: &[Scalar],
    params: &Parameters<Bls12>,
) {
    let srs = to_srs(params);
    let blinding = Blinding::random(&mut ChaCha20Rng::seed_from_u64(4));
    let ours = || {
        let witness = PackedWitness::synthesize(circuit.clone(), shape).expect("a whole witness");
        check_witness(shape, &witness, public_inputs).expect("satisfied");
        prove(&srs, shape, &witness, &blinding).expect("its own key")
    };
    let theirs = || {
        create_proof_batch(vec![circuit.clone()], params, vec![blinding.r], vec![blinding.s])
            .expect("its own key")
    };
    if std::env::var_os("CUZK_BENCH_STAGES").is_some() {
        print_memory_by_step(name, circuit.clone(), shape, &srs);
    }
    let mut group = criterion.benchmark_group(format!("prove/{name}"));
    group.throughput(Throughput::Elements(shape.num_constraints() as u64)).sample_size(10);
    let set_up_bytes = forget_peak_rss();
    group.bench_function("cuzk", |bencher| bencher.iter(ours));
    group.bench_function("bellperson", |bencher| bencher.iter(theirs));
    group.finish();
    if let (Some(before), Some(peak)) = (set_up_bytes, peak_resident_bytes()) {
        eprintln!("prove/{name}: {} MiB above the set-up's {} MiB", (peak - before) >> 20, before >> 20);
    }
}

/// Runs the steps of our proof one after another, and prints the most memory that each took above the set-up.
fn print_memory_by_step<C: Circuit<Scalar>>(name: &str, circuit: C, shape: &R1csShape, srs: &Srs) {
    let Some(set_up_bytes) = forget_peak_rss() else { return };
    let print = |step: &str| {
        let (peak, now) = (peak_resident_bytes().unwrap_or(0), forget_peak_rss().unwrap_or(0));
        let [peak, now] = [peak, now].map(|bytes| (bytes as i64 - set_up_bytes as i64) >> 20);
        eprintln!("prove/{name}: {step}: {peak} MiB at the most, {now} MiB after it");
    };
    let witness = PackedWitness::synthesize(circuit, shape).expect("a whole witness");
    print("witness");
    shape.check_satisfied(&witness).expect("satisfied");
    print("check");
    let [a, b] = evaluate(shape, &witness).expect("of this shape");
    print("rows of A and B");
    let quotient = divide(shape, &witness, srs.basis, a, b).expect("of this shape");
    print("quotient");
    sum_h(srs, quotient);
    print("sum of H");
    sum_l(srs, shape, &witness);
    print("sum of L");
    sum_a(srs, shape, &witness);
    print("sum of A");
    sum_b_g1(srs, shape, &witness);
    print("sum of B in G1");
    sum_b_g2(srs, shape, &witness);
    print("sum of B in G2");
}

/// Makes the peak of this process's memory what it takes now, and says how much that is; `None` where the system cannot.
fn forget_peak_rss() -> Option<u64> {
    // Linux, `Documentation/filesystems/proc.rst`: 5 resets the peak.
    std::fs::write("/proc/self/clear_refs", "5").ok()?;
    resident_bytes()
}

fn bench_synthetic(criterion: &mut Criterion) {
    let circuit = Synthetic { input_every: 500, ..Synthetic::new((1 << 12) - 100, Values::Bits) };
    let mut rng = ChaCha20Rng::seed_from_u64(3);
    let params = generate_random_parameters::<Bls12, _, _>(circuit.clone(), &mut rng).expect("satisfied");
    let shape = R1csShape::record(circuit.clone()).expect("small");
    let witness = PackedWitness::synthesize(circuit.clone(), &shape).expect("complete");
    bench_circuit(criterion, "synthetic/2^12", circuit, &shape, &witness.inputs[1..], &params);
}

fn params_dir() -> PathBuf {
    std::env::var_os("FIL_PROOFS_PARAMETER_CACHE")
        .map_or_else(|| "/var/tmp/filecoin-proof-parameters".into(), PathBuf::from)
}

/// Name and recorded job, whose first partition is proved.
const FILECOIN: [(&str, &str); 4] = [
    ("window-2k", "window-2k/full-partition"),
    ("winning-2k", "winning-2k/sector-1"),
    ("snap-2k", "snap-2k/sector-1"),
    ("porep-2k", "porep-2k/sector-1"),
];

/// Those that the environment names, and whether it does: then their parameters must be there.
fn chosen() -> (Vec<(&'static str, &'static str)>, bool) {
    let Ok(named) = std::env::var("CUZK_BENCH_CIRCUITS") else { return (FILECOIN.to_vec(), false) };
    let find = |name: &str| {
        let found = FILECOIN.into_iter().find(|(known, _)| *known == name);
        found.unwrap_or_else(|| panic!("CUZK_BENCH_CIRCUITS: no circuit {name:?} here: {FILECOIN:?}"))
    };
    (named.split(',').map(find).collect(), true)
}

fn bench_filecoin(criterion: &mut Criterion) {
    let (circuits, are_named) = chosen();
    for (name, job) in circuits {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/filecoin").join(job);
        let manifest = Manifest::read(&dir.join("manifest.json")).expect("recorded");
        let path = params_dir().join(manifest.circuit_spec().expect("recorded").params_file());
        match File::open(&path) {
            Ok(file) => bench_recorded(criterion, name, &manifest, &dir, file),
            Err(error) if are_named => panic!("prove/{name}: {}: {error}", path.display()),
            Err(_) => eprintln!("prove/{name}: left out, there is no {}", path.display()),
        }
    }
}

fn bench_recorded(criterion: &mut Criterion, name: &str, manifest: &Manifest, dir: &Path, params: File) {
    let params = Parameters::<Bls12>::read(BufReader::with_capacity(1 << 20, params), false)
        .expect("a parameter file");
    let request = manifest.request(0, dir).expect("recorded");
    let workload = request.decode(&params_dir()).expect("recorded");
    let shape = workload.record_shape().expect("blank circuit");
    let witness = workload.synthesize(PartitionIndex(0), &shape).expect("recorded");
    let assignment = witness.unpack(shape.classes());
    let rows = rows_of(&shape);
    let circuit = Replay { shape: &shape, assignment: &assignment, rows: &rows };
    let public_inputs = workload.public_inputs(PartitionIndex(0)).expect("recorded");
    bench_circuit(criterion, name, circuit, &shape, &public_inputs, &params);
}

criterion_group!(benches, bench_synthetic, bench_filecoin);
criterion_main!(benches);
