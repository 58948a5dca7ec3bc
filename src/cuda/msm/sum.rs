//! A sum under way: its memory and its launches.

use std::marker::PhantomData;
use std::ops::Range;
use std::rc::Rc;

use super::affine::{Items, Points};
use super::{CurvePoint, GroupKernels, Kernels, Marks, Scalars, WindowSums};
use crate::cuda::{Arguments, CudaError, DeviceBuffer, DeviceSlice, Event, LaunchShape, Reservation, Stream};
use crate::policy::msm_plan::{Group, MsmPlan, ACCUMULATE_THREADS, MERGE_THREADS, RECORD_BYTES};

/// `REDUCE_THREADS` of `kernels/math/msm_reduce.cuh`.
const REDUCE_THREADS: u32 = 64;
/// `MAX_PARTS` there.
const MAX_PARTS: u32 = 32;

/// Device memory that is of use within a chunk, or at the end: sums of one plan in one stream may have it in common. Sums are
/// raw bytes of the kernels' structs. [`MsmPlan::scratch_bytes`].
pub(super) struct Buffers {
    /// Where the buckets' entries begin, and the end of all.
    pub(super) offsets: DeviceBuffer<u32>,
    /// Where the partitions' records begin, and the end of all.
    pub(super) partitions: DeviceBuffer<u32>,
    pub(super) tile_sums: DeviceBuffer<u32>,
    /// First the digits, then the sorted entries.
    pub(super) digits: DeviceBuffer<u32>,
    pub(super) records: DeviceBuffer<u8>,
    /// For each affine level the offsets of its runs.
    pub(super) halved_offsets: DeviceBuffer<u32>,
    /// Points of the first, third, … affine level, of some windows; and of the others.
    pub(super) odd_level: DeviceBuffer<u8>,
    pub(super) even_level: DeviceBuffer<u8>,
    keys: DeviceBuffer<u32>,
    slots: DeviceBuffer<u8>,
    parts: DeviceBuffer<u8>,
    joined_parts: DeviceBuffer<u8>,
}

impl Buffers {
    fn new(stream: &Stream, reservation: &Reservation, plan: &MsmPlan) -> Result<Self, CudaError> {
        let bytes = |count: u64, size: u64| DeviceBuffer::new(reservation, stream, (count * size) as usize);
        let words = |count: u64| DeviceBuffer::new(reservation, stream, count as usize);
        let (sum_bytes, max_terms) = (plan.group.sum_bytes(), plan.max_terms());
        Ok(Self {
            offsets: words(plan.total_buckets() + 1)?,
            partitions: words(plan.num_partitions() + 1)?,
            tile_sums: words(plan.num_tiles())?,
            digits: words(max_terms)?,
            records: bytes(max_terms, RECORD_BYTES)?,
            halved_offsets: words(u64::from(plan.affine_levels) * (plan.total_buckets() + 1))?,
            odd_level: bytes(plan.max_halved(1), plan.group.point_bytes())?,
            even_level: bytes(plan.max_halved(2), plan.group.point_bytes())?,
            keys: words(plan.max_slots())?,
            slots: bytes(plan.max_slots(), sum_bytes)?,
            parts: bytes(plan.part_arrays()[0], sum_bytes)?,
            joined_parts: bytes(plan.part_arrays()[1], sum_bytes)?,
        })
    }
}

/// Memory that several sums of one plan use in turns. Clones are the same memory.
#[derive(Clone)]
pub struct MsmScratch {
    buffers: Rc<Buffers>,
    stream: Stream,
    plan: MsmPlan,
}

impl MsmScratch {
    pub(super) fn new(stream: &Stream, reservation: &Reservation, plan: &MsmPlan) -> Result<Self, CudaError> {
        let buffers = Rc::new(Buffers::new(stream, reservation, plan)?);
        Ok(Self { buffers, stream: stream.clone(), plan: *plan })
    }

    pub(super) fn plan(&self) -> &MsmPlan {
        &self.plan
    }
}

/// A sum under way: its buckets live on the device until [`finish`](Self::finish). What one of several sums with memory in
/// common enqueues is whole when it returns: every call leaves behind nothing in that memory that a later one reads.
pub struct MsmSum<P: CurvePoint> {
    pub(super) kernels: Rc<Kernels>,
    pub(super) stream: Stream,
    pub(super) plan: MsmPlan,
    /// Of [`MsmPlan::kept_bytes`], with the window sums.
    buckets: DeviceBuffer<u8>,
    window_sums: DeviceBuffer<u8>,
    /// Its own, or in common with others.
    pub(super) buffers: Rc<Buffers>,
    /// All buckets are identities.
    is_fresh: bool,
    marks: Option<Marks>,
    _points: PhantomData<P>,
}

/// Launches, fills and copies with which [`MsmSum::add`] adds a chunk, at most. The driver queues so many of them and no more.
pub fn launches_per_chunk(plan: &MsmPlan) -> u64 {
    // The digits; then for partitions and for buckets a fill, the sizes, three steps of their sums, and the terms.
    let sort = 1 + 2 * 6;
    let levels = u64::from(plan.affine_levels);
    let merges = plan.slot_lists(plan.accumulate_blocks(plan.max_terms(), u64::MAX)).len() as u64;
    sort + 3 * levels + plan.window_ranges().len() as u64 * (levels + 1 + merges)
}

/// Those with which [`MsmSum::finish`] ends a sum.
pub fn launches_at_end(plan: &MsmPlan) -> u64 {
    u64::from(plan.join_levels()) + 3
}

pub(super) fn shape(blocks: u64, threads_per_block: u32) -> LaunchShape {
    let blocks = u32::try_from(blocks).expect("a possible plan has fewer than 2^31 blocks");
    LaunchShape { blocks, threads_per_block, shared_bytes: 0 }
}

fn reduce_shape(threads: u64) -> LaunchShape {
    shape(threads.div_ceil(REDUCE_THREADS.into()), REDUCE_THREADS)
}

impl<P: CurvePoint> MsmSum<P> {
    pub(super) fn new(
        kernels: Rc<Kernels>,
        reservation: &Reservation,
        scratch: MsmScratch,
    ) -> Result<Self, CudaError> {
        let MsmScratch { buffers, stream, plan } = scratch;
        let bytes = |count: u64, size: u64| DeviceBuffer::new(reservation, &stream, (count * size) as usize);
        let buckets: DeviceBuffer<u8> = bytes(plan.total_buckets(), plan.group.sum_bytes())?;
        buckets.fill_bytes(0)?;
        let window_sums = bytes(plan.num_windows().into(), plan.group.window_sum_bytes())?;
        Ok(Self {
            kernels,
            stream,
            plan,
            buckets,
            window_sums,
            buffers,
            is_fresh: true,
            marks: None,
            _points: PhantomData,
        })
    }

    /// From now on takes the time of each stage, for [`WindowSums::stage_times_ms`].
    ///
    /// # Errors
    /// The driver's failure.
    pub fn take_times(&mut self) -> Result<(), CudaError> {
        self.marks = Some(vec![("begin", self.stream.record()?)]);
        Ok(())
    }

    /// The time, if times are taken.
    fn end_of_stage(&self) -> Result<Option<Event>, CudaError> {
        self.marks.as_ref().map(|_| self.stream.record()).transpose()
    }

    fn push_mark(&mut self, stage: &'static str, end: Option<Event>) {
        if let (Some(marks), Some(end)) = (&mut self.marks, end) {
            marks.push((stage, end));
        }
    }

    fn mark(&mut self, stage: &'static str) -> Result<(), CudaError> {
        let end = self.end_of_stage()?;
        self.push_mark(stage, end);
        Ok(())
    }

    pub(super) fn group_kernels(&self) -> &GroupKernels {
        match P::GROUP {
            Group::G1 => &self.kernels.g1,
            Group::G2 => &self.kernels.g2,
        }
    }

    /// Adds points times scalars: up to the plan's `chunk_points` of them, none is fine. Only enqueues. Slices of
    /// other streams' buffers must be ordered by events: written before this, and freed or rewritten after it.
    ///
    /// # Errors
    /// [`CudaError::Shape`] unless there are as many scalars as points and no more than planned; the driver's
    /// failure.
    pub fn add(&mut self, points: DeviceSlice<'_, P>, scalars: Scalars<'_>) -> Result<(), CudaError> {
        let num_points = points.len();
        if scalars.len() != num_points {
            let has = scalars.len();
            return Err(CudaError::Shape { what: "a scalar for each point", needs: num_points, has });
        }
        if num_points as u64 > self.plan.chunk_points {
            let needs = self.plan.chunk_points as usize;
            return Err(CudaError::Shape { what: "points of a chunk at most", needs, has: num_points });
        }
        if num_points == 0 {
            return Ok(());
        }
        let num_points = num_points as u32;
        self.write_digits(num_points, scalars)?;
        self.mark("digits")?;
        self.partition(num_points)?;
        self.mark("partition")?;
        self.scatter(num_points)?;
        self.mark("scatter")?;
        self.halve_offsets()?;
        for windows in self.plan.window_ranges() {
            self.add_windows(&windows, num_points, points)?;
        }
        self.is_fresh = false;
        Ok(())
    }

    /// The sorted terms of these windows to their buckets.
    fn add_windows(
        &mut self,
        windows: &Range<u32>,
        num_points: u32,
        points: DeviceSlice<'_, P>,
    ) -> Result<(), CudaError> {
        let (plan, buffers) = (&self.plan, &self.buffers);
        let first_bucket = plan.first_bucket(windows.start);
        let num_buckets = (plan.first_bucket(windows.end) - first_bucket) as usize;
        let terms = Items {
            points: Points::Referred { points, entries: buffers.digits.all() },
            offsets: buffers.offsets.part(first_bucket as usize, num_buckets + 1)?,
            max_items: u64::from(num_points) * u64::from(windows.end - windows.start),
        };
        let items = self.halve_runs(windows, num_points, terms)?;
        let affine_end = self.end_of_stage()?;
        let sum_bytes = plan.group.sum_bytes();
        let buckets =
            self.buckets.part((first_bucket * sum_bytes) as usize, num_buckets * sum_bytes as usize)?;
        let blocks = self.accumulate(&items, buckets)?;
        let accumulate_end = self.end_of_stage()?;
        self.merge_all(blocks, buckets)?;
        self.push_mark("affine", affine_end);
        self.push_mark("accumulate", accumulate_end);
        self.mark("merge")
    }

    /// Returns how many blocks took part, and so how many slots there are.
    fn accumulate(&self, items: &Items<'_, P>, buckets: DeviceSlice<'_, u8>) -> Result<u64, CudaError> {
        let (buffers, kernels) = (&self.buffers, self.group_kernels());
        let blocks = self.plan.accumulate_blocks(items.max_items, kernels.resident_blocks);
        let arguments = items
            .arguments()
            .u32(items.num_buckets())
            .u32(self.is_fresh.into())
            .slice(buckets)
            .buffer(&buffers.keys)
            .buffer(&buffers.slots);
        // SAFETY: the kernel's arguments. References are below the number of points, or the points lie in the items'
        // order; offsets and buckets are as long as the number of buckets asks; there are two slots for each segment
        // of so many blocks.
        unsafe { kernels.accumulate.launch(&self.stream, shape(blocks, ACCUMULATE_THREADS), arguments) }?;
        Ok(blocks)
    }

    fn merge_all(&self, accumulate_blocks: u64, buckets: DeviceSlice<'_, u8>) -> Result<(), CudaError> {
        let mut start = 0;
        for num_slots in self.plan.slot_lists(accumulate_blocks) {
            self.merge(start, num_slots as usize, buckets)?;
            start += num_slots as usize;
        }
        Ok(())
    }

    /// Merges the slots from `start` on into the list that follows them.
    fn merge(&self, start: usize, num_slots: usize, buckets: DeviceSlice<'_, u8>) -> Result<(), CudaError> {
        let (buffers, kernels) = (&self.buffers, self.group_kernels());
        let blocks = num_slots.div_ceil(MERGE_THREADS as usize);
        let sum_bytes = self.plan.group.sum_bytes() as usize;
        let (next, num_next) = (start + num_slots, 2 * blocks);
        let arguments = Arguments::new()
            .slice(buffers.keys.part(start, num_slots)?)
            .slice(buffers.slots.part(start * sum_bytes, num_slots * sum_bytes)?)
            .u32(num_slots as u32)
            .slice(buffers.keys.part(next, num_next)?)
            .slice(buffers.slots.part(next * sum_bytes, num_next * sum_bytes)?)
            .slice(buckets);
        // SAFETY: the kernel's arguments. The list and the two slots for each block that follow it were just
        // checked to be within the buffers; keys name buckets.
        unsafe { kernels.merge.launch(&self.stream, shape(blocks as u64, MERGE_THREADS as u32), arguments) }
    }

    /// Enqueues what is left: the buckets to one point per window, and those to pinned memory, which is made, and that
    /// blocks, where no earlier sum left any. The device memory is freed in the stream's order, what others have in common
    /// with the last of them.
    ///
    /// # Errors
    /// The driver's failure.
    pub fn finish(mut self) -> Result<WindowSums<P>, CudaError> {
        self.group_buckets()?;
        self.mark("group")?;
        self.join_groups()?;
        self.mark("join")?;
        let result = self.kernels.results.borrow_mut().take(self.window_sums.len())?;
        let pending = self.window_sums.read_pinned(result)?;
        Ok(WindowSums::new(self.kernels, self.plan, pending, self.marks))
    }

    fn group_buckets(&self) -> Result<(), CudaError> {
        let (plan, buffers, kernels) = (&self.plan, &self.buffers, self.group_kernels());
        let num_groups = plan.num_groups();
        let arguments = Arguments::new().buffer(&self.buckets).u32(plan.group_log2());
        let arguments = arguments.u32(num_groups as u32).buffer(&buffers.parts);
        // SAFETY: the kernel's arguments; buckets, and two parts for each group, are as many as the plan says.
        unsafe { kernels.group.launch(&self.stream, reduce_shape(num_groups), arguments) }
    }

    fn join_groups(&self) -> Result<(), CudaError> {
        let (plan, buffers, kernels) = (&self.plan, &self.buffers, self.group_kernels());
        let (mut from, mut to) = (&buffers.parts, &buffers.joined_parts);
        for level in 0..plan.join_levels() {
            let num_nodes = plan.num_groups() >> (level + 1);
            let arguments = Arguments::new().buffer(from).u32(level).u32(num_nodes as u32).buffer(to);
            let shape = reduce_shape(plan.num_parts(level + 1));
            // SAFETY: the kernel's arguments. `from` holds the parts of the level before; `to` has room for this one's.
            unsafe { kernels.join.launch(&self.stream, shape, arguments) }?;
            (from, to) = (to, from);
        }
        let arguments = Arguments::new().buffer(from).u32(plan.join_levels()).u32(plan.num_windows());
        let arguments = arguments.u32(plan.num_wide()).u32(plan.group_log2()).buffer(&self.window_sums);
        let shape = shape(plan.num_windows().into(), MAX_PARTS);
        // SAFETY: the kernel's arguments. The nodes left are those of the windows, two for each wide one.
        unsafe { kernels.finish.launch(&self.stream, shape, arguments) }
    }
}

#[cfg(test)]
mod tests {
    use crate::policy::msm_plan::MIN_WINDOW_BITS;

    use super::*;

    #[test]
    fn a_chunk_is_added_by_few_launches() {
        for group in [Group::G1, Group::G2] {
            for (points_log2, window_bits) in [(0, MIN_WINDOW_BITS), (10, 10), (20, 16), (24, 20), (26, 23)] {
                let plan = MsmPlan::new(group, 1 << points_log2, window_bits);
                let windows = u64::from(plan.num_windows());
                assert!((15..=18).contains(&launches_per_chunk(&plan.without_affine())), "{plan:?}");
                assert!(launches_per_chunk(&plan) <= 13 + 18 + 11 * windows, "{plan:?}");
                assert!((3..=24).contains(&launches_at_end(&plan)), "{plan:?}");
            }
        }
    }
}
