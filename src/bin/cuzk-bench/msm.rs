//! Sums of points times scalars, in G1 and G2, for scalars without pattern and for those of a witness.

use std::error::Error;

use blst::{blst_fr, blst_p1_affine, blst_p2_affine};
use blstrs::Scalar;
use cuzk::cuda::msm::{CurvePoint, MsmKernels, Scalars};
use cuzk::cuda::{CudaError, DeviceBuffer, DeviceSlice, Priority, Stream, SyntheticKernels, SyntheticSource};
use cuzk::policy::msm_plan::{best_window_bits, Group, MsmPlan, MAX_WINDOW_BITS, MIN_WINDOW_BITS};
use ff::Field;
use group::Group as _;
use rayon::prelude::*;

use crate::check::expect_equal;
use crate::kernels::Bench;
use crate::report::{Row, Work};

const POINTS: SyntheticSource = SyntheticSource { seed: 0x0070_6f69_6e74, bits_of_1024: 0 };
const UNIFORM: SyntheticSource = SyntheticSource { seed: 0x756e_6966, bits_of_1024: 0 };
/// Nine of ten scalars are 0 or 1, as in the circuits of PoRep and SnapDeals.
const BITS: SyntheticSource = SyntheticSource { seed: 0x6269_7473, bits_of_1024: 922 };

/// Wide multiplications of adding a point to a bucket: kernels/math/ec.cuh; three base field products for one in G2.
const WIDE_ADD_G1: f64 = 2658.0;
const WIDE_ADD_G2: f64 = 7032.0;

pub fn measure_g1(bench: &Bench) -> Result<Vec<Row>, Box<dyn Error>> {
    let sizes: &[u32] = if bench.is_quick { &[10, 14] } else { &[20, 22, 24, 26] };
    let make = |synthetic: &SyntheticKernels, stream: &Stream, count| {
        synthetic.g1_points(&bench.reservation(), stream, POINTS, count)
    };
    measure::<blst_p1_affine>(bench, "msm g1", sizes, WIDE_ADD_G1, make)
}

pub fn measure_g2(bench: &Bench) -> Result<Vec<Row>, Box<dyn Error>> {
    let sizes: &[u32] = if bench.is_quick { &[10, 12] } else { &[20, 22, 24] };
    let make = |synthetic: &SyntheticKernels, stream: &Stream, count| {
        synthetic.g2_points(&bench.reservation(), stream, POINTS, count)
    };
    measure::<blst_p2_affine>(bench, "msm g2", sizes, WIDE_ADD_G2, make)
}

/// What other plans would give in G1, beside the one that is used: wider and narrower windows, more and fewer affine
/// levels.
pub fn measure_plans(bench: &Bench) -> Result<Vec<Row>, Box<dyn Error>> {
    let sizes: &[u32] = if bench.is_quick { &[12] } else { &[22, 24, 27] };
    let (kernels, synthetic) = (MsmKernels::load(&bench.context)?, SyntheticKernels::load(&bench.context)?);
    let stream = Stream::new(&bench.context, Priority::Normal)?;
    let largest = 1usize << sizes.iter().max().expect("there are sizes");
    let points = synthetic.g1_points(&bench.reservation(), &stream, POINTS, largest)?;
    let scalars = synthetic.scalars(&bench.reservation(), &stream, UNIFORM, largest)?;
    // Many plans, whose times differ by more than those of one plan do.
    let repeats = bench.repeats.min(3);
    let msm =
        Msm { bench, kernels: &kernels, stream: &stream, source: UNIFORM, wide_add: WIDE_ADD_G1, repeats };
    let mut rows = Vec::new();
    for &log2 in sizes {
        for plan in other_plans(&best_plan(Group::G1, log2)) {
            let name = format!("msm g1, {} windows, {} levels", plan.num_windows(), plan.affine_levels);
            rows.push(msm.measure(&name, &plan, points.part(0, 1 << log2)?, scalars.part(0, 1 << log2)?)?);
        }
    }
    Ok(rows)
}

fn best_plan(group: Group, log2: u32) -> MsmPlan {
    let window_bits = best_window_bits(group, 1 << log2);
    MsmPlan::new(group, MsmPlan::max_chunk_points(window_bits).min(1 << log2), window_bits)
}

/// The plan itself comes first.
fn other_plans(plan: &MsmPlan) -> Vec<MsmPlan> {
    let mut plans = vec![*plan];
    for num_windows in [plan.num_windows(), plan.num_windows() - 1, plan.num_windows() + 1] {
        let widths = MIN_WINDOW_BITS..=MAX_WINDOW_BITS;
        let with_bits = |window_bits| MsmPlan { window_bits, ..*plan };
        let Some(other) = widths.map(with_bits).find(|other| other.num_windows() == num_windows) else {
            continue;
        };
        let levels = [
            plan.affine_levels,
            plan.affine_levels + 1,
            plan.affine_levels + 2,
            plan.affine_levels.saturating_sub(1),
        ];
        plans.extend(levels.map(|affine_levels| MsmPlan { affine_levels, ..other }));
    }
    let mut different: Vec<MsmPlan> = Vec::new();
    for plan in plans.into_iter().filter(MsmPlan::is_possible) {
        let is_same = |other: &MsmPlan| {
            (other.num_windows(), other.affine_levels) == (plan.num_windows(), plan.affine_levels)
        };
        if !different.iter().any(is_same) {
            different.push(plan);
        }
    }
    different
}

/// All sizes are the beginnings of one vector of points.
fn measure<P: CurvePoint>(
    bench: &Bench,
    name: &str,
    sizes: &[u32],
    wide_add: f64,
    make: impl FnOnce(&SyntheticKernels, &Stream, usize) -> Result<DeviceBuffer<P>, CudaError>,
) -> Result<Vec<Row>, Box<dyn Error>>
where
    P::Projective: group::Group<Scalar = Scalar>,
{
    let kernels = MsmKernels::load(&bench.context)?;
    let synthetic = SyntheticKernels::load(&bench.context)?;
    let stream = Stream::new(&bench.context, Priority::Normal)?;
    let largest = 1usize << sizes.iter().max().expect("there are sizes");
    let points = make(&synthetic, &stream, largest)?;
    let mut rows = Vec::new();
    for (kind, source) in [("uniform", UNIFORM), ("90 % bits", BITS)] {
        let scalars = synthetic.scalars(&bench.reservation(), &stream, source, largest)?;
        for &log2 in sizes {
            let repeats = bench.repeats;
            let msm = Msm { bench, kernels: &kernels, stream: &stream, source, wide_add, repeats };
            let (points, scalars) = (points.part(0, 1 << log2)?, scalars.part(0, 1 << log2)?);
            rows.push(msm.measure(
                &format!("{name}, {kind}"),
                &best_plan(P::GROUP, log2),
                points,
                scalars,
            )?);
        }
    }
    Ok(rows)
}

struct Msm<'b> {
    bench: &'b Bench,
    kernels: &'b MsmKernels,
    stream: &'b Stream,
    source: SyntheticSource,
    wide_add: f64,
    repeats: usize,
}

impl Msm<'_> {
    fn measure<P: CurvePoint>(
        &self,
        name: &str,
        plan: &MsmPlan,
        points: DeviceSlice<'_, P>,
        scalars: DeviceSlice<'_, blst_fr>,
    ) -> Result<Row, Box<dyn Error>>
    where
        P::Projective: group::Group<Scalar = Scalar>,
    {
        let (num_points, chunk_points) = (points.len() as u64, plan.chunk_points);
        let size = format!("2^{}", num_points.ilog2());
        let reservation = self.bench.reservation();
        let mut times = Vec::new();
        for repeat in 0..=self.repeats {
            let mut window_sums = None;
            let milliseconds = self.bench.time(self.stream, || {
                let mut sum = self.kernels.begin::<P>(self.stream, &reservation, plan)?;
                for start in (0..num_points).step_by(chunk_points as usize) {
                    let length = chunk_points.min(num_points - start) as usize;
                    let values = scalars.part(start as usize, length)?;
                    sum.add(points.part(start as usize, length)?, Scalars { values, index: None })?;
                }
                window_sums = Some(sum.finish()?);
                Ok(())
            })?;
            let total = window_sums.expect("set when it succeeded").total()?;
            if repeat == 0 {
                let expected = P::Projective::generator() * self.logarithm(num_points as usize);
                expect_equal(&format!("{name} of {size}"), &total, &expected)?;
            } else {
                times.push(milliseconds);
            }
        }
        // One addition for each non-zero digit, and two full ones for each bucket, which are dearer.
        let num_dense = num_points as f64 * (1.0 - f64::from(self.source.bits_of_1024) / 1024.0);
        let num_ones = (num_points as f64 - num_dense) / 2.0;
        let additions = num_dense * f64::from(plan.num_windows()) + num_ones;
        let full = 2.0 * plan.total_buckets() as f64 * FULL_OVER_MIXED;
        let work = Work { operations: additions + full, unit: "add", wide_each: self.wide_add };
        let row = Row::new(name, size, &times, &work, self.bench.wide_per_second);
        Ok(row.peak_vram_bytes(reservation.peak_bytes()))
    }

    /// What the sum is, as a multiple of the generator.
    fn logarithm(&self, num_points: usize) -> Scalar {
        let source = self.source;
        let term = |index| source.scalar(index) * Scalar::from(POINTS.logarithm(index));
        (0..num_points).into_par_iter().map(term).reduce(|| Scalar::ZERO, |left, right| left + right)
    }
}

/// A full addition's multiplications over those of adding a point.
const FULL_OVER_MIXED: f64 = 3834.0 / 2658.0;
