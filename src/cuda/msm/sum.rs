//! A sum under way: its memory and its launches.

use std::marker::PhantomData;
use std::ops::Range;
use std::rc::Rc;

use super::affine::{Items, Points};
use super::{CurvePoint, GroupKernels, Kernels, Marks, Scalars, WindowSums};
use crate::cuda::{
    Arguments, CudaError, DeviceBuffer, DeviceSlice, Event, LaunchShape, PinnedBuffer, Reservation, Stream,
};
use crate::policy::msm_plan::{Group, MsmPlan, ACCUMULATE_THREADS, MERGE_THREADS};

/// `SORT_THREADS` of `kernels/msm_sort.cu`.
pub(super) const SORT_THREADS: u32 = 256;
/// `REDUCE_THREADS` of `kernels/math/msm_reduce.cuh`.
const REDUCE_THREADS: u32 = 64;

/// All device memory of a sum. Sums and groups are raw bytes of the kernels' structs.
pub(super) struct Buffers {
    buckets: DeviceBuffer<u8>,
    /// First counts, then offsets.
    pub(super) offsets: DeviceBuffer<u32>,
    pub(super) tile_sums: DeviceBuffer<u32>,
    digits: DeviceBuffer<u32>,
    ranks: DeviceBuffer<u32>,
    entries: DeviceBuffer<u32>,
    /// For each affine level the offsets of its runs.
    pub(super) halved_offsets: DeviceBuffer<u32>,
    /// Points of the first, third, … affine level, of some windows; and of the others.
    pub(super) odd_level: DeviceBuffer<u8>,
    pub(super) even_level: DeviceBuffer<u8>,
    keys: DeviceBuffer<u32>,
    slots: DeviceBuffer<u8>,
    groups: DeviceBuffer<u8>,
    joined: DeviceBuffer<u8>,
    window_sums: DeviceBuffer<u8>,
}

impl Buffers {
    fn new(stream: &Stream, reservation: &Reservation, plan: &MsmPlan) -> Result<Self, CudaError> {
        let bytes = |count: u64, size: u64| DeviceBuffer::new(reservation, stream, (count * size) as usize);
        let words = |count: u64| DeviceBuffer::new(reservation, stream, count as usize);
        let (sum_bytes, max_terms) = (plan.group.sum_bytes(), plan.max_terms());
        let mut buckets: DeviceBuffer<u8> = bytes(plan.total_buckets(), sum_bytes)?;
        buckets.fill_bytes(0)?;
        Ok(Self {
            buckets,
            offsets: words(plan.total_buckets() + 1)?,
            tile_sums: words(plan.num_tiles())?,
            digits: words(max_terms)?,
            ranks: words(max_terms)?,
            entries: words(max_terms)?,
            halved_offsets: words(u64::from(plan.affine_levels) * (plan.total_buckets() + 1))?,
            odd_level: bytes(plan.max_halved(1), plan.group.point_bytes())?,
            even_level: bytes(plan.max_halved(2), plan.group.point_bytes())?,
            keys: words(plan.max_slots())?,
            slots: bytes(plan.max_slots(), sum_bytes)?,
            groups: bytes(plan.num_groups(), 2 * sum_bytes)?,
            joined: bytes(plan.num_joined_groups(), 2 * sum_bytes)?,
            window_sums: bytes(plan.num_windows().into(), plan.group.window_sum_bytes())?,
        })
    }
}

/// A sum under way: its buckets live on the device until [`finish`](Self::finish).
pub struct MsmSum<P: CurvePoint> {
    pub(super) kernels: Rc<Kernels>,
    pub(super) stream: Stream,
    pub(super) plan: MsmPlan,
    pub(super) buffers: Buffers,
    result: PinnedBuffer<u8>,
    /// All buckets are identities.
    is_fresh: bool,
    marks: Option<Marks>,
    _points: PhantomData<P>,
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
        stream: &Stream,
        reservation: &Reservation,
        plan: &MsmPlan,
    ) -> Result<Self, CudaError> {
        let buffers = Buffers::new(stream, reservation, plan)?;
        let result = kernels.results.borrow_mut().take(buffers.window_sums.len())?;
        Ok(Self {
            kernels,
            stream: stream.clone(),
            plan: *plan,
            buffers,
            result,
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
        self.rank(num_points)?;
        self.mark("rank")?;
        self.scan()?;
        self.mark("scan")?;
        self.scatter(num_points)?;
        self.mark("scatter")?;
        self.halve_offsets()?;
        for windows in self.plan.window_ranges() {
            self.add_windows(&windows, num_points, points)?;
        }
        self.is_fresh = false;
        Ok(())
    }

    fn num_digits(&self, num_points: u32) -> u32 {
        let num_digits = u64::from(num_points) * u64::from(self.plan.num_windows());
        u32::try_from(num_digits).expect("a possible plan has fewer than 2^32 terms")
    }

    fn write_digits(&self, num_points: u32, scalars: Scalars<'_>) -> Result<(), CudaError> {
        let (plan, buffers, kernel) = (&self.plan, &self.buffers, &self.kernels.sort.digits);
        let arguments = Arguments::new().slice(scalars.values).u64(scalars.values.len() as u64);
        let arguments = match scalars.index {
            Some(index) => arguments.slice(index),
            None => arguments.u64(0),
        };
        let arguments = arguments
            .u32(num_points)
            .u32(plan.num_windows())
            .u32(plan.num_wide())
            .u32(plan.narrow_bits())
            .buffer(&buffers.digits);
        let blocks = num_points.div_ceil(SORT_THREADS);
        // SAFETY: the kernel's arguments. It reads `num_points` indices, or none, and values below their number,
        // which it checks; it writes `num_points` digits for each window, within `chunk_points` for each.
        unsafe { kernel.launch(&self.stream, shape(blocks.into(), SORT_THREADS), arguments) }
    }

    fn rank(&mut self, num_points: u32) -> Result<(), CudaError> {
        self.buffers.offsets.fill_bytes(0)?;
        let (buffers, kernel) = (&self.buffers, &self.kernels.sort.rank);
        let num_digits = self.num_digits(num_points);
        let arguments = Arguments::new().buffer(&buffers.digits).u32(num_digits);
        let arguments = arguments.buffer(&buffers.offsets).buffer(&buffers.ranks);
        let blocks = u64::from(num_digits).div_ceil(SORT_THREADS.into());
        // SAFETY: the kernel's arguments. `num_digits` digits were written, ranks are as long; digits name buckets
        // below `total_buckets`, which the offsets hold counts for.
        unsafe { kernel.launch(&self.stream, shape(blocks, SORT_THREADS), arguments) }
    }

    /// Counts to offsets.
    fn scan(&self) -> Result<(), CudaError> {
        let (stream, buffers, kernels) = (&self.stream, &self.buffers, &self.kernels.sort);
        let num_counts = buffers.offsets.len() as u32;
        let num_tiles = self.plan.num_tiles();
        let arguments = Arguments::new().buffer(&buffers.offsets).u32(num_counts).buffer(&buffers.tile_sums);
        // SAFETY: the kernel's arguments; as many tiles as the plan has sums for.
        unsafe { kernels.scan_tiles.launch(stream, shape(num_tiles, SORT_THREADS), arguments) }?;
        let arguments = Arguments::new().buffer(&buffers.tile_sums).u32(num_tiles as u32);
        // SAFETY: as above; one block.
        unsafe { kernels.scan_sums.launch(stream, shape(1, SORT_THREADS), arguments) }?;
        let arguments = Arguments::new().buffer(&buffers.offsets).u32(num_counts).buffer(&buffers.tile_sums);
        // SAFETY: as above.
        unsafe { kernels.scan_apply.launch(stream, shape(num_tiles, SORT_THREADS), arguments) }
    }

    fn scatter(&self, num_points: u32) -> Result<(), CudaError> {
        let (buffers, kernel) = (&self.buffers, &self.kernels.sort.scatter);
        let blocks_per_window = num_points.div_ceil(SORT_THREADS);
        let arguments = Arguments::new().buffer(&buffers.digits).buffer(&buffers.ranks).u32(num_points);
        let arguments = arguments.u32(blocks_per_window).buffer(&buffers.offsets).buffer(&buffers.entries);
        let blocks = u64::from(blocks_per_window) * u64::from(self.plan.num_windows());
        // SAFETY: the kernel's arguments. A term's place is below the number of terms, at most one for each digit,
        // which the entries have room for.
        unsafe { kernel.launch(&self.stream, shape(blocks, SORT_THREADS), arguments) }
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
            points: Points::Referred { points, entries: buffers.entries.all() },
            offsets: buffers.offsets.part(first_bucket as usize, num_buckets + 1)?,
            max_items: u64::from(num_points) * u64::from(windows.end - windows.start),
        };
        let items = self.halve_runs(windows, num_points, terms)?;
        let affine_end = self.end_of_stage()?;
        let sum_bytes = plan.group.sum_bytes();
        let buckets =
            buffers.buckets.part((first_bucket * sum_bytes) as usize, num_buckets * sum_bytes as usize)?;
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

    /// Enqueues what is left: the buckets to one point per window, and those to pinned memory. The device memory is
    /// freed in the stream's order.
    ///
    /// # Errors
    /// The driver's failure.
    pub fn finish(mut self) -> Result<WindowSums<P>, CudaError> {
        self.group_buckets()?;
        self.mark("group")?;
        self.join_groups()?;
        self.mark("join")?;
        let pending = self.buffers.window_sums.read_pinned(self.result)?;
        Ok(WindowSums::new(self.kernels, self.plan, pending, self.marks))
    }

    fn group_buckets(&self) -> Result<(), CudaError> {
        let (plan, buffers, kernels) = (&self.plan, &self.buffers, self.group_kernels());
        let num_groups = plan.num_groups();
        let arguments = Arguments::new().buffer(&buffers.buckets).u32(plan.group_log2());
        let arguments = arguments.u32(num_groups as u32).buffer(&buffers.groups);
        // SAFETY: the kernel's arguments; groups and buckets are as many as the plan says.
        unsafe { kernels.group.launch(&self.stream, reduce_shape(num_groups), arguments) }
    }

    fn join_groups(&self) -> Result<(), CudaError> {
        let (plan, buffers, kernels) = (&self.plan, &self.buffers, self.group_kernels());
        let (mut num_groups, mut buckets_log2) = (plan.num_groups(), plan.group_log2());
        let (mut from, mut to) = (&buffers.groups, &buffers.joined);
        for join_log2 in plan.joins() {
            num_groups >>= join_log2;
            let arguments = Arguments::new().buffer(from).u32(join_log2).u32(buckets_log2);
            let arguments = arguments.u32(num_groups as u32).buffer(to);
            // SAFETY: the kernel's arguments. `from` holds the groups of the step before; `to` has room for those
            // of the first join, and each join leaves fewer.
            unsafe { kernels.join.launch(&self.stream, reduce_shape(num_groups), arguments) }?;
            buckets_log2 += join_log2;
            (from, to) = (to, from);
        }
        let arguments = Arguments::new().buffer(from).u32(plan.num_windows()).u32(plan.num_wide());
        let arguments = arguments.u32(buckets_log2).buffer(&buffers.window_sums);
        let shape = reduce_shape(plan.num_windows().into());
        // SAFETY: the kernel's arguments. The groups left are those of the windows, two for each wide one.
        unsafe { kernels.finish.launch(&self.stream, shape, arguments) }
    }
}
