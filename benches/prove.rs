//! Whole proofs, beside bellperson's prover on the same witness and parameters.

#[path = "../tests/common/bellperson_srs.rs"]
mod bellperson_srs;
#[path = "../tests/common/synthetic.rs"]
mod synthetic;

use bellperson::groth16::{create_proof_batch, generate_random_parameters};
use blstrs::Bls12;
use criterion::{criterion_group, criterion_main, Criterion, Throughput};
use cuzk::groth16::prover::{check_witness, prove};
use cuzk::groth16::{Assignment, Blinding, R1csShape};
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;

use bellperson_srs::to_srs;
use synthetic::{Synthetic, Values};

/// From circuit to proof: synthesis and the check of every constraint included.
fn bench_synthetic(criterion: &mut Criterion) {
    let circuit = Synthetic { input_every: 500, ..Synthetic::new((1 << 12) - 100, Values::Bits) };
    let mut rng = ChaCha20Rng::seed_from_u64(3);
    let params = generate_random_parameters::<Bls12, _, _>(circuit.clone(), &mut rng).expect("satisfied");
    let srs = to_srs(&params);
    let shape = R1csShape::record(circuit.clone()).expect("small");
    let blinding = Blinding::random(&mut rng);

    let mut group = criterion.benchmark_group("prove/synthetic/2^12");
    group.throughput(Throughput::Elements(circuit.num_constraints as u64)).sample_size(10);
    group.bench_function("cuzk", |bencher| {
        bencher.iter(|| {
            let assignment = Assignment::synthesize(circuit.clone(), shape.num_inputs(), shape.num_aux())
                .expect("complete");
            let evaluations =
                check_witness(&shape, &assignment, &assignment.input_assignment[1..]).expect("satisfied");
            prove(&srs, &shape, &assignment, evaluations, &blinding).expect("its own parameters")
        });
    });
    group.bench_function("bellperson", |bencher| {
        bencher.iter(|| {
            create_proof_batch(vec![circuit.clone()], &params, vec![blinding.r], vec![blinding.s])
                .expect("its own parameters")
        });
    });
    group.finish();
}

criterion_group!(benches, bench_synthetic);
criterion_main!(benches);
