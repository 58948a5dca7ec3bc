//! The kernels of `fold.cu`, run thread by thread, against the host's transform of points.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use blst::{blst_fp, blst_p1_affine};
use blstrs::{G1Projective, Scalar};
use cuzk::groth16::fold::{HostTransform, PointTransform, Watch, Weights};
use cuzk::policy::ntt_plan::TableShape;
use ff::Field;
use group::{Curve, Group};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::harness;

static HARNESS: LazyLock<PathBuf> = LazyLock::new(|| harness::build("fold_harness"));

fn affine(point: &G1Projective) -> blst_p1_affine {
    *point.to_affine().as_ref()
}

/// One transform; `falling`: the order of the threads.
fn run(falling: bool, table: TableShape, points: &[blst_p1_affine], weights: Weights) -> Vec<blst_p1_affine> {
    let log2 = table.low_log2 + table.high_log2;
    let weighted = u32::from(weights == Weights::Indices);
    let numbers = [log2, table.low_log2, weighted, 24];
    let mut child = Command::new(&*HARNESS)
        .arg(if falling { "falling" } else { "rising" })
        .args(numbers.map(|number| number.to_string()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let limbs = points.iter().flat_map(|point| point.x.l.into_iter().chain(point.y.l));
    let bytes: Vec<u8> = limbs.flat_map(u64::to_le_bytes).collect();
    // It reads all of its input before it writes, so this cannot deadlock.
    child.stdin.take().unwrap().write_all(&bytes).unwrap();
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "2^{log2}, {weights:?}: {}\n{errors}", output.status);
    let limbs: Vec<u64> =
        output.stdout.chunks_exact(8).map(|limb| u64::from_le_bytes(limb.try_into().unwrap())).collect();
    let coordinate = |limbs: &[u64]| blst_fp { l: limbs.try_into().unwrap() };
    let point = |limbs: &[u64]| blst_p1_affine { x: coordinate(&limbs[..6]), y: coordinate(&limbs[6..]) };
    limbs.chunks_exact(12).map(point).collect()
}

fn check(log2: u32, points: &[blst_p1_affine], what: &str) {
    let whole = TableShape { low_log2: log2.saturating_sub(1), high_log2: log2.min(1) };
    let split = TableShape { low_log2: log2 / 2, high_log2: log2 - log2 / 2 };
    for (weights, falling, table) in [(Weights::None, false, whole), (Weights::Indices, true, split)] {
        let expected = HostTransform.run(points, weights, Watch::NONE).unwrap();
        let result = run(falling, table, points, weights);
        assert!(result == expected, "{what}, 2^{log2}, {weights:?}");
    }
}

#[test]
fn transforms_of_points_equal_the_hosts() {
    let mut rng = ChaCha8Rng::seed_from_u64(17);
    for log2 in 0..=7u32 {
        let random: Vec<_> = (1..1 << log2).map(|_| affine(&G1Projective::random(&mut rng))).collect();
        check(log2, &random, "random points");
    }
}

/// Sums that meet equal, opposite and no points: all points the same, all the identity, one alone, powers of a root.
#[test]
fn transforms_of_exceptional_points_equal_the_hosts() {
    let (log2, n) = (4u32, 16usize);
    let generator = G1Projective::generator();
    let identity = blst_p1_affine::default();
    let omega = (log2..32).fold(<Scalar as ff::PrimeField>::ROOT_OF_UNITY, |root, _| root.square());
    check(log2, &vec![identity; n - 1], "no point");
    check(log2, &vec![affine(&generator); n - 1], "equal points");
    for index in [0, 1, n / 2, n - 2] {
        let mut points = vec![identity; n - 1];
        points[index] = affine(&generator);
        check(log2, &points, "one point");
    }
    for power in [1u64, 3, 8] {
        let point = |i: usize| affine(&(generator * omega.pow_vartime([i as u64 * power])));
        check(log2, &(0..n - 1).map(point).collect::<Vec<_>>(), "powers of a root");
    }
}
