//! Floor 3 for `kernels/msm_sort.cu`, `msm_g1.cu` and `msm_g2.cu`: sums of points times scalars, in G1 and G2.
//!
//! ```text
//! begin    buckets, all identities
//! add      scalars -> digits -> sorted terms -> affine levels -> buckets        any number of times, a chunk each
//! finish   buckets -> one point per window -> pinned memory
//! total    Horner over the windows, on the host
//! ```
//!
//! Nothing waits but [`WindowSums::total`]. No launch depends on what the scalars are, and neither, beyond the number of
//! non-zero digits, does the time: the work is shared out by terms, not by buckets. Sizes are those of
//! [`MsmPlan`], which is what a plan of a whole proof counts with.

mod affine;
mod points;
mod sort;
mod sum;

use std::cell::RefCell;
use std::marker::PhantomData;
use std::rc::Rc;

use blst::blst_fr;
use group::Group as _;

use super::{
    Context, CudaError, DeviceSlice, Event, Function, Module, Pending, PinnedPool, Reservation, Stream,
};
use crate::policy::msm_plan::{MsmPlan, ACCUMULATE_THREADS, PAIR_THREADS};
pub use points::CurvePoint;
pub use sum::{launches_at_end, launches_per_chunk, MsmScratch, MsmSum};

/// Pinned memory kept for results: about 18 KiB each.
const IDLE_RESULT_BYTES: usize = 1 << 20;

/// Names of stages, each with the event at its end; the first is the beginning.
type Marks = Vec<(&'static str, Event)>;

/// The scalars of a chunk.
#[derive(Clone, Copy)]
pub struct Scalars<'b> {
    /// Montgomery form, below r.
    pub values: DeviceSlice<'b, blst_fr>,
    /// Scalar k is `values[index[k]]`; an index beyond the values counts as a zero. Without it, `values[k]`.
    pub index: Option<DeviceSlice<'b, u32>>,
}

impl Scalars<'_> {
    fn len(&self) -> usize {
        self.index.map_or(self.values.len(), |index| index.len())
    }
}

struct SortKernels {
    digits: Function,
    partition_sizes: Function,
    partition: Function,
    bucket_sizes: Function,
    scatter: Function,
    scan_tiles: Function,
    scan_sums: Function,
    scan_apply: Function,
    halve_tiles: Function,
    halve_apply: Function,
}

struct GroupKernels {
    pairs: Function,
    accumulate: Function,
    merge: Function,
    group: Function,
    join: Function,
    finish: Function,
    /// Blocks of `pairs` and of `accumulate` that the device runs at a time.
    resident_pair_blocks: u64,
    resident_blocks: u64,
}

struct Kernels {
    sort: SortKernels,
    g1: GroupKernels,
    g2: GroupKernels,
    results: RefCell<PinnedPool>,
}

/// Blocks of a kernel that the device runs at a time.
fn resident_blocks(context: &Context, kernel: &Function, threads_per_block: u32) -> Result<u64, CudaError> {
    let per_multiprocessor = kernel.blocks_per_multiprocessor(threads_per_block, 0)?;
    Ok(u64::from(context.device().num_multiprocessors) * u64::from(per_multiprocessor.max(1)))
}

/// The kernels of multi-exponentiation in a context. Clones share them.
#[derive(Clone)]
pub struct MsmKernels {
    kernels: Rc<Kernels>,
}

impl MsmKernels {
    /// Loads the kernels. Blocks.
    ///
    /// # Errors
    /// [`CudaError::NoKernels`], or the driver's failure.
    pub fn load(context: &Context) -> Result<Self, CudaError> {
        let sort = Module::load(context, "msm_sort")?;
        let (g1, g2) = (Module::load(context, "msm_g1")?, Module::load(context, "msm_g2")?);
        let kernels = Kernels {
            sort: SortKernels {
                digits: sort.function(c"msm_digits")?,
                partition_sizes: sort.function(c"msm_partition_sizes")?,
                partition: sort.function(c"msm_partition")?,
                bucket_sizes: sort.function(c"msm_bucket_sizes")?,
                scatter: sort.function(c"msm_scatter")?,
                scan_tiles: sort.function(c"msm_scan_tiles")?,
                scan_sums: sort.function(c"msm_scan_sums")?,
                scan_apply: sort.function(c"msm_scan_apply")?,
                halve_tiles: sort.function(c"msm_halve_tiles")?,
                halve_apply: sort.function(c"msm_halve_apply")?,
            },
            g1: GroupKernels {
                resident_pair_blocks: resident_blocks(context, &g1.function(c"msm_g1_pairs")?, PAIR_THREADS)?,
                resident_blocks: resident_blocks(
                    context,
                    &g1.function(c"msm_g1_accumulate")?,
                    ACCUMULATE_THREADS,
                )?,
                pairs: g1.function(c"msm_g1_pairs")?,
                accumulate: g1.function(c"msm_g1_accumulate")?,
                merge: g1.function(c"msm_g1_merge")?,
                group: g1.function(c"msm_g1_group")?,
                join: g1.function(c"msm_g1_join")?,
                finish: g1.function(c"msm_g1_finish")?,
            },
            g2: GroupKernels {
                resident_pair_blocks: resident_blocks(context, &g2.function(c"msm_g2_pairs")?, PAIR_THREADS)?,
                resident_blocks: resident_blocks(
                    context,
                    &g2.function(c"msm_g2_accumulate")?,
                    ACCUMULATE_THREADS,
                )?,
                pairs: g2.function(c"msm_g2_pairs")?,
                accumulate: g2.function(c"msm_g2_accumulate")?,
                merge: g2.function(c"msm_g2_merge")?,
                group: g2.function(c"msm_g2_group")?,
                join: g2.function(c"msm_g2_join")?,
                finish: g2.function(c"msm_g2_finish")?,
            },
            results: RefCell::new(PinnedPool::new(context, IDLE_RESULT_BYTES)),
        };
        Ok(Self { kernels: Rc::new(kernels) })
    }

    /// Starts a sum of points of the plan's group: allocates all that it needs, [`MsmPlan::bytes`], in the stream's
    /// order.
    ///
    /// # Errors
    /// [`CudaError::Shape`] for another group than the plan's or a plan that is not
    /// [possible](MsmPlan::is_possible); [`CudaError::OverReservation`]; the driver's failure.
    pub fn begin<P: CurvePoint>(
        &self,
        stream: &Stream,
        reservation: &Reservation,
        plan: &MsmPlan,
    ) -> Result<MsmSum<P>, CudaError> {
        self.begin_with(reservation, self.scratch(stream, reservation, plan)?)
    }

    /// Memory that several sums of this plan may use in turns, in this stream: [`MsmPlan::scratch_bytes`].
    ///
    /// # Errors
    /// As [`Self::begin`].
    pub fn scratch(
        &self,
        stream: &Stream,
        reservation: &Reservation,
        plan: &MsmPlan,
    ) -> Result<MsmScratch, CudaError> {
        if !plan.is_possible() {
            return Err(impossible(plan));
        }
        MsmScratch::new(stream, reservation, plan)
    }

    /// As [`Self::begin`], by the plan and in the stream of `scratch`; allocates [`MsmPlan::kept_bytes`].
    ///
    /// # Errors
    /// As [`Self::begin`].
    pub fn begin_with<P: CurvePoint>(
        &self,
        reservation: &Reservation,
        scratch: MsmScratch,
    ) -> Result<MsmSum<P>, CudaError> {
        if scratch.plan().group != P::GROUP {
            return Err(impossible(scratch.plan()));
        }
        MsmSum::new(self.kernels.clone(), reservation, scratch)
    }
}

fn impossible(plan: &MsmPlan) -> CudaError {
    let needs = MsmPlan::max_chunk_points(plan.window_bits.max(1)) as usize;
    let has = plan.chunk_points as usize;
    CudaError::Shape { what: "a plan of the points' group that can be run", needs, has }
}

/// A finished sum on its way to the host.
#[must_use = "dropping it waits for the device"]
pub struct WindowSums<P: CurvePoint> {
    kernels: Rc<Kernels>,
    plan: MsmPlan,
    /// `None` once it is read.
    pending: Option<Pending<u8>>,
    marks: Option<Marks>,
    _points: PhantomData<P>,
}

impl<P: CurvePoint> WindowSums<P> {
    fn new(kernels: Rc<Kernels>, plan: MsmPlan, pending: Pending<u8>, marks: Option<Marks>) -> Self {
        Self { kernels, plan, pending: Some(pending), marks, _points: PhantomData }
    }

    /// Stages with their device time, summed over chunks and windows, in order, if [`MsmSum::take_times`] asked for it; empty otherwise. Only once
    /// the sum is done.
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_READY` before that.
    pub fn stage_times_ms(&self) -> Result<Vec<(&'static str, f32)>, CudaError> {
        let marks = self.marks.as_deref().unwrap_or_default();
        let mut times: Vec<(&'static str, f32)> = Vec::new();
        for pair in marks.windows(2) {
            let (stage, ms) = (pair[1].0, pair[1].1.elapsed_ms(&pair[0].1)?);
            match times.iter_mut().find(|time| time.0 == stage) {
                Some(time) => time.1 += ms,
                None => times.push((stage, ms)),
            }
        }
        Ok(times)
    }

    /// Whether [`total`](Self::total) would not wait.
    ///
    /// # Errors
    /// The first failure of the stream's work.
    pub fn is_done(&self) -> Result<bool, CudaError> {
        self.pending.as_ref().map_or(Ok(true), Pending::is_done)
    }

    /// The sum. Waits for the device if it is not done; then 255 doublings on the host.
    ///
    /// # Errors
    /// The first failure of the stream's work.
    pub fn total(mut self) -> Result<P::Projective, CudaError> {
        let pending = self.pending.take().expect("taken only here and in drop");
        let window_sums = pending.wait()?;
        let limbs: Vec<u64> = window_sums
            .chunks_exact(8)
            .map(|limb| u64::from_le_bytes(limb.try_into().expect("chunks of eight bytes")))
            .collect();
        self.kernels.results.borrow_mut().give_back(window_sums);
        let limbs_per_window = self.plan.group.window_sum_bytes() as usize / 8;
        let windows = limbs.chunks_exact(limbs_per_window).enumerate();
        Ok(windows.rev().fold(P::Projective::identity(), |sum, (index, window_sum)| {
            let width = self.plan.width(index as u32);
            (0..width).fold(sum, |sum, _| sum.double()) + P::from_jacobian(window_sum)
        }))
    }
}

impl<P: CurvePoint> Drop for WindowSums<P> {
    /// Keeps the pinned memory of a sum that nobody wants any more: freeing it would wait for all of the device's work.
    fn drop(&mut self) {
        let Some(pending) = self.pending.take() else { return };
        if let Ok(result) = pending.wait() {
            self.kernels.results.borrow_mut().give_back(result);
        }
    }
}
