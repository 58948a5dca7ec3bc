//! The terms of a chunk sorted by bucket: launches of `kernels/msm_sort.cu`.

use super::sum::{shape, MsmSum};
use super::{CurvePoint, Scalars};
use crate::cuda::{Arguments, CudaError, DeviceSlice};
use crate::policy::msm_plan::SCAN_TILE;

/// `SORT_THREADS` of `kernels/math/msm_scan.cuh`.
pub(super) const SORT_THREADS: u32 = 256;
/// `TILE_THREADS` and `TILE` of `kernels/msm_sort.cu`: terms that a block sorts.
const TILE_THREADS: u32 = 1024;
const TILE: u32 = 16 * TILE_THREADS;

impl<P: CurvePoint> MsmSum<P> {
    fn num_digits(&self, num_points: u32) -> u32 {
        let num_digits = u64::from(num_points) * u64::from(self.plan.num_windows());
        u32::try_from(num_digits).expect("a possible plan has fewer than 2^32 terms")
    }

    pub(super) fn write_digits(&self, num_points: u32, scalars: Scalars<'_>) -> Result<(), CudaError> {
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

    /// Digits to records.
    pub(super) fn partition(&mut self, num_points: u32) -> Result<(), CudaError> {
        self.buffers.partitions.fill_bytes(0)?;
        let (plan, buffers, kernels) = (&self.plan, &self.buffers, &self.kernels.sort);
        let num_partitions = plan.num_partitions() as usize;
        let beginnings = buffers.partitions.part(1, num_partitions)?;
        let shape = shape(u64::from(num_points.div_ceil(TILE)) * u64::from(plan.num_windows()), TILE_THREADS);
        let arguments = || {
            let arguments = Arguments::new().buffer(&buffers.digits).u32(num_points);
            let windows = arguments.u32(plan.num_windows()).u32(plan.num_wide()).u32(plan.narrow_bits());
            windows.slice(beginnings)
        };
        // SAFETY: the kernel's arguments. So many digits were written for each window; they name buckets below
        // `total_buckets`, whose partitions are as many as there are counts for.
        unsafe { kernels.partition_sizes.launch(&self.stream, shape, arguments()) }?;
        self.sum_up(beginnings)?;
        let arguments = arguments().buffer(&buffers.records);
        // SAFETY: as above. There are as many records as terms, at most one for each digit.
        unsafe { kernels.partition.launch(&self.stream, shape, arguments) }
    }

    /// Records to entries, and where each bucket's begin. The entries take the place of the digits.
    pub(super) fn scatter(&mut self, num_points: u32) -> Result<(), CudaError> {
        self.buffers.offsets.fill_bytes(0)?;
        let (buffers, kernels) = (&self.buffers, &self.kernels.sort);
        let beginnings = buffers.offsets.part(1, buffers.offsets.len() - 1)?;
        let shape = shape(self.num_digits(num_points).div_ceil(TILE).into(), TILE_THREADS);
        let arguments = || {
            let arguments = Arguments::new().buffer(&buffers.records).buffer(&buffers.partitions);
            arguments.u32(self.plan.num_partitions() as u32).slice(beginnings)
        };
        // SAFETY: the kernel's arguments. Partitions begin where records were written for them, whose buckets are
        // below `total_buckets`; blocks enough for a record for each digit.
        unsafe { kernels.bucket_sizes.launch(&self.stream, shape, arguments()) }?;
        self.sum_up(beginnings)?;
        let arguments = arguments().buffer(&buffers.digits);
        // SAFETY: as above. An entry's place is below the number of records, which is at most that of digits.
        unsafe { kernels.scatter.launch(&self.stream, shape, arguments) }
    }

    /// Counts to the sums of all before, in place; no more of them than buckets.
    fn sum_up(&self, counts: DeviceSlice<'_, u32>) -> Result<(), CudaError> {
        let (stream, buffers, kernels) = (&self.stream, &self.buffers, &self.kernels.sort);
        let num_tiles = (counts.len() as u64).div_ceil(SCAN_TILE);
        let arguments = || Arguments::new().slice(counts).u32(counts.len() as u32).buffer(&buffers.tile_sums);
        // SAFETY: the kernel's arguments; no more tiles than the plan has sums for.
        unsafe { kernels.scan_tiles.launch(stream, shape(num_tiles, SORT_THREADS), arguments()) }?;
        let sums = Arguments::new().buffer(&buffers.tile_sums).u32(num_tiles as u32);
        // SAFETY: as above; one block.
        unsafe { kernels.scan_sums.launch(stream, shape(1, SORT_THREADS), sums) }?;
        // SAFETY: as above.
        unsafe { kernels.scan_apply.launch(stream, shape(num_tiles, SORT_THREADS), arguments()) }
    }
}
