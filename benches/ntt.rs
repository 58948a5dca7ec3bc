//! Transforms of the evaluation domain, beside bellperson's.

use bellperson::domain::EvaluationDomain;
use blstrs::Scalar;
use criterion::{criterion_group, criterion_main, BatchSize, BenchmarkId, Criterion, Throughput};
use cuzk::groth16::domain::{intt, quotient};
use ec_gpu_gen::threadpool::Worker;
use ff::Field;
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;

const SIZES_LOG2: [u32; 2] = [15, 18];

fn random_scalars(n: usize) -> Vec<Scalar> {
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    (0..n).map(|_| Scalar::random(&mut rng)).collect()
}

fn bench_intt(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("ntt/inverse");
    let worker = Worker::new();
    for log2 in SIZES_LOG2 {
        let values = random_scalars(1 << log2);
        let size = format!("2^{log2}");
        group.throughput(Throughput::Elements(1 << log2)).sample_size(10);
        group.bench_function(BenchmarkId::new(&size, "cuzk"), |bencher| {
            bencher.iter_batched_ref(|| values.clone(), |values| intt(values), BatchSize::LargeInput);
        });
        group.bench_function(BenchmarkId::new(&size, "bellperson"), |bencher| {
            let setup = || EvaluationDomain::from_coeffs(values.clone()).expect("a power of two fits");
            bencher.iter_batched_ref(
                setup,
                |domain| domain.ifft(&worker, &mut None).expect("on the CPU"),
                BatchSize::LargeInput,
            );
        });
    }
    group.finish();
}

/// What bellperson's prover does between row values and coefficients of the quotient.
fn bellperson_quotient(worker: &Worker, values: [Vec<Scalar>; 3]) -> Vec<Scalar> {
    let domain = |values| EvaluationDomain::from_coeffs(values).expect("a power of two fits");
    let [mut a, mut b, mut c] = values.map(domain);
    let (kernel, on_cpu) = (&mut None, "on the CPU");
    EvaluationDomain::ifft_many(&mut [&mut a, &mut b, &mut c], worker, kernel).expect(on_cpu);
    EvaluationDomain::coset_fft_many(&mut [&mut a, &mut b, &mut c], worker, kernel).expect(on_cpu);
    a.mul_assign(worker, &b);
    a.sub_assign(worker, &c);
    a.divide_by_z_on_coset(worker);
    a.icoset_fft(worker, kernel).expect(on_cpu);
    a.into_coeffs()
}

fn bench_quotient(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("quotient");
    let worker = Worker::new();
    for log2 in SIZES_LOG2 {
        let a = random_scalars(1 << log2);
        let c: Vec<Scalar> = a.iter().map(Field::square).collect();
        let size = format!("2^{log2}");
        group.throughput(Throughput::Elements(1 << log2)).sample_size(10);
        group.bench_function(BenchmarkId::new(&size, "cuzk"), |bencher| {
            let setup = || [a.clone(), a.clone()];
            let write_c = |rows: &mut [Scalar]| rows.copy_from_slice(&c);
            bencher.iter_batched(setup, |[a, b]| quotient(a, b, log2, write_c), BatchSize::LargeInput);
        });
        group.bench_function(BenchmarkId::new(&size, "bellperson"), |bencher| {
            let setup = || [a.clone(), a.clone(), c.clone()];
            bencher.iter_batched(setup, |rows| bellperson_quotient(&worker, rows), BatchSize::LargeInput);
        });
    }
    group.finish();
}

criterion_group!(benches, bench_intt, bench_quotient);
criterion_main!(benches);
