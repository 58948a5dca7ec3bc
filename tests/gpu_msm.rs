//! Multi-exponentiation on a GPU against the CPU's and against known logarithms, and how long it takes. Needs a GPU
//! and kernels: a missing one fails, it does not skip.
//!
//! `CUZK_GPU_LARGE=1` adds the large timings (2^24 and 2^26 points: 16 GB of host memory, 30 GB of device memory).
//! `cargo test --release --features cuda --test gpu_msm -- --nocapture` prints the table.

#[path = "common/msm_cases.rs"]
mod msm_cases;

use blst::{blst_fr, blst_p1_affine, blst_p2_affine};
use blstrs::{G1Projective, G2Projective, Scalar};
use cuzk::cuda::msm::{CurvePoint, MsmKernels, Scalars};
use cuzk::cuda::{devices, Context, DeviceBuffer, Priority, Reservation, Stream};
use cuzk::groth16::msm::{msm_g1, msm_g2};
use cuzk::policy::msm_plan::{best_window_bits, Group, MsmPlan};
use ff::Field;
use msm_cases::{
    base_kinds, bases, bit_heavy, expected, raw_scalars, scalar_kinds, scalar_of_log, Curve12381,
};
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use rayon::prelude::*;

trait GpuCurve: Curve12381 {
    type Point: CurvePoint<Projective = Self>;
    fn points(raw: &[Self::Raw]) -> &[Self::Point];
    fn on_cpu(points: &[Self::Raw], scalars: &[Scalar]) -> Self;
}

impl GpuCurve for G1Projective {
    type Point = blst_p1_affine;

    fn points(raw: &[blst_p1_affine]) -> &[blst_p1_affine] {
        raw
    }

    fn on_cpu(points: &[blst_p1_affine], scalars: &[Scalar]) -> Self {
        msm_g1(points, scalars)
    }
}

impl GpuCurve for G2Projective {
    type Point = blst_p2_affine;

    fn points(raw: &[blst_p2_affine]) -> &[blst_p2_affine] {
        raw
    }

    fn on_cpu(points: &[blst_p2_affine], scalars: &[Scalar]) -> Self {
        msm_g2(points, scalars)
    }
}

struct Gpu {
    stream: Stream,
    kernels: MsmKernels,
    context: Context,
}

impl Gpu {
    fn first() -> Self {
        let devices = devices().expect("this test needs a CUDA driver");
        let context = Context::new(devices.first().expect("this test needs a GPU")).unwrap();
        let kernels = MsmKernels::load(&context).unwrap();
        Self { stream: Stream::new(&context, Priority::Normal).unwrap(), kernels, context }
    }

    fn upload<T: cuzk::cuda::DeviceData>(&self, elements: &[T]) -> DeviceBuffer<T> {
        let reservation = Reservation::new(&self.context, u64::MAX);
        DeviceBuffer::from_slice(&reservation, &self.stream, elements).unwrap()
    }

    /// The sum in chunks as planned; checks that it allocates what is planned.
    fn sum<G: GpuCurve>(
        &self,
        plan: &MsmPlan,
        points: &DeviceBuffer<G::Point>,
        values: &DeviceBuffer<blst_fr>,
        index: Option<&DeviceBuffer<u32>>,
    ) -> G {
        let reservation = Reservation::new(&self.context, plan.bytes());
        let mut sum = self.kernels.begin::<G::Point>(&self.stream, &reservation, plan).unwrap();
        let mut start = 0;
        while start < points.len() {
            let length = (points.len() - start).min(plan.chunk_points as usize);
            let scalars = match index {
                Some(index) => {
                    Scalars { values: values.all(), index: Some(index.part(start, length).unwrap()) }
                }
                None => Scalars { values: values.part(start, length).unwrap(), index: None },
            };
            sum.add(points.part(start, length).unwrap(), scalars).unwrap();
            start += length;
        }
        let sums = sum.finish().unwrap();
        assert_eq!(reservation.used_bytes(), 0, "everything was freed");
        assert_eq!(reservation.peak_bytes(), plan.bytes(), "planned is what is used: {plan:?}");
        sums.total().unwrap()
    }

    fn check<G: GpuCurve>(&self, plan: &MsmPlan, logs: &[i64], scalars: &[Scalar], what: &str) {
        let points = self.upload(G::points(&bases::<G>(logs)));
        let values = self.upload(&raw_scalars(scalars));
        let sum: G = self.sum(plan, &points, &values, None);
        assert_eq!(sum, expected::<G>(logs, scalars), "{} points, {what}, {plan:?}", logs.len());
    }
}

fn plan(group: Group, chunk_points: usize, window_bits: u32) -> MsmPlan {
    MsmPlan::new(group, chunk_points as u64, window_bits)
}

fn check_kinds<G: GpuCurve>(sizes: &[usize]) {
    let gpu = Gpu::first();
    for &n in sizes {
        for (bases_kind, logs) in base_kinds(n) {
            for (kind, scalars) in scalar_kinds(n) {
                let plan = plan(G::Point::GROUP, n, best_window_bits(G::Point::GROUP, n as u64).max(8));
                for affine_levels in [0, 3] {
                    let plan = MsmPlan { affine_levels, ..plan };
                    gpu.check::<G>(&plan, &logs, &scalars, &format!("{bases_kind}, {kind}"));
                }
            }
        }
    }
}

#[test]
fn any_bases_and_scalars_in_g1() {
    check_kinds::<G1Projective>(&[0, 1, 2, 31, 32, 33, 255, 1023, 1024, 1025, 2503]);
}

#[test]
fn any_bases_and_scalars_in_g2() {
    check_kinds::<G2Projective>(&[0, 1, 2, 31, 32, 33, 255, 1025]);
}

#[test]
fn every_window_width() {
    let gpu = Gpu::first();
    let logs: Vec<i64> = (0..500).map(|i| i * 3 - 700).collect();
    let uniform = &scalar_kinds(500)[0].1;
    let edges: Vec<Scalar> = msm_cases::edge_scalars().into_iter().step_by(3).take(500).collect();
    for window_bits in 4..=22 {
        gpu.check::<G1Projective>(&plan(Group::G1, 500, window_bits), &logs, uniform, "uniform");
        gpu.check::<G1Projective>(&plan(Group::G1, 500, window_bits), &logs[..edges.len()], &edges, "edges");
        if window_bits % 5 == 0 {
            gpu.check::<G2Projective>(&plan(Group::G2, 500, window_bits), &logs, uniform, "uniform");
        }
    }
}

#[test]
fn chunks_and_an_index_make_no_difference() {
    let gpu = Gpu::first();
    let n = 5000;
    let logs: Vec<i64> = (1..=n as i64).collect();
    let points = gpu.upload(&bases::<G1Projective>(&logs));
    let points_g2 = gpu.upload(&bases::<G2Projective>(&logs));
    for (kind, scalars) in scalar_kinds(n) {
        let values = gpu.upload(&raw_scalars(&scalars));
        let index: Vec<u32> = (0..n as u32).map(|i| i * 7 % 4999).collect();
        let selected: Vec<Scalar> = index.iter().map(|&at| scalars[at as usize]).collect();
        let index = gpu.upload(&index);
        for chunk in [700, 4096, 5000] {
            let in_g1 = plan(Group::G1, chunk, 11);
            let sum: G1Projective = gpu.sum(&in_g1, &points, &values, None);
            assert_eq!(sum, expected(&logs, &scalars), "{kind} in chunks of {chunk}");
            let sum: G1Projective = gpu.sum(&in_g1, &points, &values, Some(&index));
            assert_eq!(sum, expected(&logs, &selected), "{kind} by index in chunks of {chunk}");
            let sum: G2Projective = gpu.sum(&plan(Group::G2, chunk, 11), &points_g2, &values, Some(&index));
            assert_eq!(sum, expected(&logs, &selected), "{kind} in G2 by index in chunks of {chunk}");
        }
    }
}

fn check_against_cpu<G: GpuCurve>(logs2: &[u32]) {
    let gpu = Gpu::first();
    let mut rng = ChaCha8Rng::seed_from_u64(17);
    for &log2 in logs2 {
        let n = 1usize << log2;
        let logs: Vec<i64> = (0..n as i64).map(|i| i % 10_000).collect();
        let raw = bases::<G>(&logs);
        let points = gpu.upload(G::points(&raw));
        let uniform: Vec<Scalar> = (0..n).map(|_| Scalar::random(&mut rng)).collect();
        let bits: Vec<Scalar> = (0..n).map(|_| bit_heavy(&mut rng)).collect();
        for (kind, scalars) in [("uniform", uniform), ("bit-heavy", bits)] {
            let on_cpu = G::on_cpu(&raw, &scalars);
            assert_eq!(on_cpu, expected(&logs, &scalars));
            let values = gpu.upload(&raw_scalars(&scalars));
            let whole = plan(G::Point::GROUP, n, best_window_bits(G::Point::GROUP, n as u64));
            assert_eq!(gpu.sum::<G>(&whole, &points, &values, None), on_cpu, "{kind} 2^{log2}");
            for affine_levels in [0, 1, 4] {
                let chunked = MsmPlan { chunk_points: n as u64 / 3, affine_levels, ..whole };
                let sum: G = gpu.sum(&chunked, &points, &values, None);
                assert_eq!(sum, on_cpu, "{kind} 2^{log2}, {chunked:?}");
            }
        }
    }
}

#[test]
fn large_sums_equal_the_cpus_in_g1() {
    check_against_cpu::<G1Projective>(&[16, 18, 20]);
}

#[test]
fn large_sums_equal_the_cpus_in_g2() {
    check_against_cpu::<G2Projective>(&[16, 18]);
}

/// Distinct points of the timings; more would only make the known sum slower to know.
const NUM_LOGS: usize = 1 << 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Uniform,
    NinetyPercentBits,
    AllEqual,
}

/// Scalars in Montgomery form, about uniform: any residue below 2^254 is one.
fn random_scalars(n: usize, kind: Kind) -> Vec<blst_fr> {
    let one: blst_fr = Scalar::ONE.into();
    let uniform = |rng: &mut ChaCha8Rng| {
        let mut l = [0; 4].map(|_: u64| rng.next_u64());
        l[3] >>= 2;
        blst_fr { l }
    };
    let chunk = |(number, scalars): (usize, &mut [blst_fr])| {
        let mut rng = ChaCha8Rng::seed_from_u64(number as u64);
        let equal = uniform(&mut ChaCha8Rng::seed_from_u64(99));
        for scalar in scalars {
            *scalar = match (kind, rng.next_u32() % 20) {
                (Kind::AllEqual, _) => equal,
                (Kind::NinetyPercentBits, 0..9) => blst_fr { l: [0; 4] },
                (Kind::NinetyPercentBits, 9..18) => one,
                _ => uniform(&mut rng),
            };
        }
    };
    let mut scalars = vec![blst_fr { l: [0; 4] }; n];
    scalars.par_chunks_mut(1 << 14).enumerate().for_each(chunk);
    scalars
}

/// Σ s_i k_i for the logs 1, 2, …, NUM_LOGS over and over.
fn known_log(scalars: &[blst_fr]) -> Scalar {
    let period = |scalars: &[blst_fr]| -> Scalar {
        let terms = scalars.iter().enumerate();
        terms.map(|(i, raw)| Scalar::from(*raw) * scalar_of_log(i as i64 + 1)).sum()
    };
    scalars.par_chunks(NUM_LOGS).map(period).sum()
}

fn time<G: GpuCurve>(gpu: &Gpu, logs2: &[u32]) {
    let logs: Vec<i64> = (1..=NUM_LOGS as i64).collect();
    let table = bases::<G>(&logs);
    for &log2 in logs2 {
        let n = 1usize << log2;
        let raw: Vec<G::Raw> = table.iter().copied().cycle().take(n).collect();
        let points = gpu.upload(G::points(&raw));
        drop(raw);
        for kind in [Kind::Uniform, Kind::NinetyPercentBits, Kind::AllEqual] {
            let scalars = random_scalars(n, kind);
            let expected = G::generator() * known_log(&scalars);
            let values = gpu.upload(&scalars);
            let best = best_window_bits(G::Point::GROUP, n as u64);
            for window_bits in [best - 2, best, best + 2] {
                let plan = plan(G::Point::GROUP, n, window_bits);
                let best = plan.affine_levels;
                let mut levels = vec![0, best.saturating_sub(1), best, best + 1];
                levels.dedup();
                for affine_levels in levels {
                    let plan = MsmPlan { affine_levels, ..plan };
                    time_plan::<G>(gpu, &plan, kind, &points, &values, expected);
                }
                if kind != Kind::Uniform {
                    break;
                }
            }
        }
    }
}

fn time_plan<G: GpuCurve>(
    gpu: &Gpu,
    plan: &MsmPlan,
    kind: Kind,
    points: &DeviceBuffer<G::Point>,
    values: &DeviceBuffer<blst_fr>,
    expected: G,
) {
    let reservation = Reservation::new(&gpu.context, plan.bytes());
    let mut best_ms = f32::MAX;
    let mut stages: Vec<(&str, f32)> = Vec::new();
    for _ in 0..4 {
        let mut sum = gpu.kernels.begin::<G::Point>(&gpu.stream, &reservation, plan).unwrap();
        sum.take_times().unwrap();
        sum.add(points.all(), Scalars { values: values.all(), index: None }).unwrap();
        let sums = sum.finish().unwrap();
        gpu.stream.synchronize().unwrap();
        assert!(sums.is_done().unwrap());
        let times = sums.stage_times_ms().unwrap();
        assert_eq!(sums.total().unwrap(), expected, "{kind:?}, {plan:?}");
        let total_ms: f32 = times.iter().map(|(_, ms)| ms).sum();
        if total_ms < best_ms {
            (best_ms, stages) = (total_ms, times);
        }
    }
    let stages: Vec<String> = stages.iter().map(|(stage, ms)| format!("{stage} {ms:.2}")).collect();
    let windows = plan.num_windows();
    println!(
        "{:?} 2^{} {kind:?}: {best_ms:.2} ms, {windows} windows of {} bits, {} affine levels, {:.2} GB: {}",
        plan.group,
        plan.chunk_points.ilog2(),
        plan.width(0),
        plan.affine_levels,
        plan.bytes() as f64 / 1e9,
        stages.join(", ")
    );
}

#[test]
fn timings() {
    let gpu = Gpu::first();
    let is_large = std::env::var("CUZK_GPU_LARGE").is_ok_and(|value| value == "1");
    time::<G1Projective>(&gpu, if is_large { &[17, 19, 20, 22, 24, 26] } else { &[17, 20, 22] });
    time::<G2Projective>(&gpu, if is_large { &[17, 20, 22, 24] } else { &[17, 20] });
}
