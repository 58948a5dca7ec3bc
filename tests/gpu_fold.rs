//! Folding keys on the first GPU against the host. Needs a GPU and kernels: a missing one fails, it does not skip.
//! `CUZK_GPU_LARGE=1` adds the sizes that take minutes of the host.

#[path = "common/synthetic.rs"]
mod synthetic;

use std::path::Path;
use std::time::Instant;

use blst::blst_p1_affine;
use blstrs::{G1Projective, Scalar};
use cuzk::cuda::CudaTransform;
use cuzk::error::FoldError;
use cuzk::groth16::fold::{Fold, HostTransform, PointTransform, Watch, Weights};
use cuzk::groth16::generate::{fold_from_secrets, generate_srs};
use cuzk::groth16::R1csShape;
use ff::PrimeField;
use group::{Curve, Group};
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use synthetic::{Synthetic, Values};

fn affine(point: &G1Projective) -> blst_p1_affine {
    *point.to_affine().as_ref()
}

fn check(device: &mut CudaTransform, points: &[blst_p1_affine], what: &str) {
    for weights in [Weights::None, Weights::Indices] {
        let expected = HostTransform.run(points, weights, Watch::NONE).unwrap();
        let result = device.run(points, weights, Watch::NONE).unwrap();
        assert!(result == expected, "{what}, {} points, {weights:?}", points.len());
    }
}

#[test]
fn transforms_of_points_equal_the_hosts() {
    let mut device = CudaTransform::open().expect("this test needs a GPU");
    let mut rng = ChaCha20Rng::seed_from_u64(5);
    for log2 in 0..=12u32 {
        let random: Vec<_> = (1..1 << log2).map(|_| affine(&G1Projective::random(&mut rng))).collect();
        check(&mut device, &random, "random");
    }
    let (log2, n) = (6u32, 64usize);
    let (identity, generator) = (blst_p1_affine::default(), G1Projective::generator());
    let omega = (log2..Scalar::S).fold(Scalar::ROOT_OF_UNITY, |root, _| ff::Field::square(&root));
    check(&mut device, &vec![identity; n - 1], "no point");
    check(&mut device, &vec![affine(&generator); n - 1], "equal points");
    for power in [1u64, 3, 32] {
        let point = |i: u64| affine(&(generator * ff::Field::pow_vartime(&omega, [i * power])));
        check(&mut device, &(0..n as u64 - 1).map(point).collect::<Vec<_>>(), "powers of a root");
    }
}

#[test]
fn a_fold_made_on_the_device_is_the_keys() {
    let mut device = CudaTransform::open().expect("this test needs a GPU");
    let large = std::env::var("CUZK_GPU_LARGE").is_ok_and(|value| value == "1");
    let sizes: &[usize] =
        if large { &[1, 2, 3, 100, 5000, 60_000, 1_000_000] } else { &[1, 2, 3, 100, 5000] };
    for &num_constraints in sizes {
        let rng = || ChaCha20Rng::seed_from_u64(num_constraints as u64);
        let shape = R1csShape::record(Synthetic::new(num_constraints, Values::Bits)).unwrap();
        let srs = generate_srs(&shape, &mut rng()).unwrap();
        let begun = Instant::now();
        let fold = Fold::build(&srs, &shape, &mut device, Watch::NONE).unwrap();
        println!("2^{}: folded in {:.2?}", shape.domain_log2(), begun.elapsed());
        assert!(fold == fold_from_secrets(&shape, &mut rng()).unwrap(), "{num_constraints} constraints");
        fold.check(&srs, &shape, Path::new("fold"), Watch::NONE).unwrap();
    }
}

#[test]
fn a_transform_stops_when_nobody_wants_it_any_more() {
    let mut device = CudaTransform::open().expect("this test needs a GPU");
    let points = vec![affine(&G1Projective::generator()); 255];
    let seen = std::sync::atomic::AtomicU64::new(0);
    let progress = |done, _| seen.store(done, std::sync::atomic::Ordering::Relaxed);
    let is_stopped = || seen.load(std::sync::atomic::Ordering::Relaxed) == 3;
    let watch = Watch { progress: &progress, is_stopped: &is_stopped };
    let result = device.run(&points, Weights::None, watch);
    assert!(matches!(result, Err(FoldError::Stopped)), "{:?}", result.map(|points| points.len()));
    let result = device.run(&points[1..], Weights::None, Watch::NONE);
    assert!(matches!(result, Err(FoldError::Device(_))), "254 points are no power of two less one");
}
