//! Multi-exponentiation in both groups, on uniform and on bit-heavy scalars, beside blst's Pippenger and
//! bellperson's.

use std::sync::Arc;

use blst::{blst_p1_affine, blst_p2_affine, MultiPoint};
use blstrs::{G1Affine, G1Projective, G2Affine, G2Projective, Scalar};
use criterion::measurement::WallTime;
use criterion::{criterion_group, criterion_main, BenchmarkGroup, Criterion, Throughput};
use cuzk::groth16::msm::{msm_g1, msm_g2};
use ec_gpu_gen::multiexp_cpu::{multiexp_cpu, FullDensity};
use ec_gpu_gen::threadpool::Worker;
use ff::{Field, PrimeField};
use group::{Curve, Group};
use rand_chacha::ChaCha20Rng;
use rand_core::{RngCore, SeedableRng};

const SIZES_LOG2: [u32; 2] = [12, 16];

/// Half zeros, two fifths ones, a tenth general: the mix of a circuit of hash functions.
fn bit_heavy(rng: &mut ChaCha20Rng) -> Scalar {
    match rng.next_u32() % 10 {
        0..5 => Scalar::ZERO,
        5..9 => Scalar::ONE,
        _ => Scalar::random(rng),
    }
}

fn scalar_mixes(n: usize) -> [(&'static str, Vec<Scalar>); 2] {
    let mut rng = ChaCha20Rng::seed_from_u64(2);
    [
        ("uniform", (0..n).map(|_| Scalar::random(&mut rng)).collect()),
        ("bits", (0..n).map(|_| bit_heavy(&mut rng)).collect()),
    ]
}

/// `n` multiples of the generator.
fn multiples<G: Group + Curve>(n: usize) -> Vec<G::AffineRepr> {
    let generator = G::generator();
    std::iter::successors(Some(generator), |point| Some(*point + generator))
        .take(n)
        .map(|point| point.to_affine())
        .collect()
}

fn canonical_bytes(scalars: &[Scalar]) -> Vec<u8> {
    scalars.iter().flat_map(Scalar::to_bytes_le).collect()
}

fn start<'a>(criterion: &'a mut Criterion, name: &str, n: usize) -> BenchmarkGroup<'a, WallTime> {
    let mut group = criterion.benchmark_group(name);
    group.throughput(Throughput::Elements(n as u64)).sample_size(10);
    group
}

/// The same of each group: the libraries have types of their own for each, and no trait over both.
macro_rules! bench_of_group {
    ($bench:ident, $name:literal, $affine:ty, $projective:ty, $blst_affine:ty, $msm:ident) => {
        fn $bench(criterion: &mut Criterion) {
            let worker = Worker::new();
            for log2 in SIZES_LOG2 {
                let points: Arc<Vec<$affine>> = Arc::new(multiples::<$projective>(1 << log2));
                let bases: Vec<$blst_affine> = points.iter().map(|point| *point.as_ref()).collect();
                for (mix, scalars) in scalar_mixes(1 << log2) {
                    let bytes = canonical_bytes(&scalars);
                    let exponents = Arc::new(scalars.iter().map(PrimeField::to_repr).collect::<Vec<_>>());
                    let mut group = start(criterion, &format!("msm/{}/2^{log2}/{mix}", $name), 1 << log2);
                    group.bench_function("cuzk", |bencher| bencher.iter(|| $msm(&bases, &scalars)));
                    group.bench_function("blst", |bencher| bencher.iter(|| bases.mult(&bytes, 255)));
                    group.bench_function("bellperson", |bencher| {
                        bencher.iter(|| {
                            let bases = (points.clone(), 0);
                            multiexp_cpu::<_, _, $affine, _>(&worker, bases, FullDensity, exponents.clone())
                                .wait()
                        });
                    });
                    group.finish();
                }
            }
        }
    };
}

bench_of_group!(bench_g1, "g1", G1Affine, G1Projective, blst_p1_affine, msm_g1);
bench_of_group!(bench_g2, "g2", G2Affine, G2Projective, blst_p2_affine, msm_g2);

criterion_group!(benches, bench_g1, bench_g2);
criterion_main!(benches);
