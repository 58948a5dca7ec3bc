//! Affine additions before accumulation: launches of `msm_halve_*` and `msm_*_pairs` (`kernels/math/msm_affine.cuh`).

use std::ops::Range;

use super::sort::SORT_THREADS;
use super::sum::{shape, MsmSum};
use super::CurvePoint;
use crate::cuda::{Arguments, CudaError, DeviceSlice};
use crate::policy::msm_plan::PAIR_THREADS;

/// What is accumulated, or halved: items by bucket, for neighbouring windows.
#[derive(Clone, Copy)]
pub(super) struct Items<'b, P: CurvePoint> {
    pub points: Points<'b, P>,
    /// Where the buckets' items begin, and the end of all.
    pub offsets: DeviceSlice<'b, u32>,
    pub max_items: u64,
}

/// What items are.
#[derive(Clone, Copy)]
pub(super) enum Points<'b, P: CurvePoint> {
    /// The sorted terms: references to these points.
    Referred { points: DeviceSlice<'b, P>, entries: DeviceSlice<'b, u32> },
    /// Points in the items' order, as raw bytes. Between affine levels they lie in rows (`kernels/math/msm_affine.cuh`),
    /// after the last one behind each other.
    InOrder(DeviceSlice<'b, u8>),
}

impl<P: CurvePoint> Items<'_, P> {
    pub fn num_buckets(&self) -> u32 {
        self.offsets.len() as u32 - 1
    }

    /// The first arguments of the kernels that take items: points, entries, offsets.
    pub fn arguments(&self) -> Arguments {
        let arguments = match self.points {
            Points::Referred { points, entries } => Arguments::new().slice(points).slice(entries),
            Points::InOrder(points) => Arguments::new().slice(points).u64(0),
        };
        arguments.slice(self.offsets)
    }
}

impl<P: CurvePoint> MsmSum<P> {
    /// Where the runs of each level begin, of all windows: from the offsets of the sorted terms.
    pub(super) fn halve_offsets(&self) -> Result<(), CudaError> {
        let (stream, buffers, kernels) = (&self.stream, &self.buffers, &self.kernels.sort);
        let length = buffers.offsets.len();
        let num_tiles = self.plan.num_tiles();
        let mut offsets = buffers.offsets.all();
        for level in 0..self.plan.affine_levels as usize {
            let halved = buffers.halved_offsets.part(level * length, length)?;
            let arguments = Arguments::new().slice(offsets).u32(length as u32).buffer(&buffers.tile_sums);
            // SAFETY: the kernel's arguments; as many tiles as the plan has sums for.
            unsafe { kernels.halve_tiles.launch(stream, shape(num_tiles, SORT_THREADS), arguments) }?;
            let arguments = Arguments::new().buffer(&buffers.tile_sums).u32(num_tiles as u32);
            // SAFETY: as above; one block.
            unsafe { kernels.scan_sums.launch(stream, shape(1, SORT_THREADS), arguments) }?;
            let arguments = Arguments::new().slice(offsets).u32(length as u32);
            let arguments = arguments.buffer(&buffers.tile_sums).slice(halved);
            // SAFETY: as above; `halved` is as long as `offsets`, and another array.
            unsafe { kernels.halve_apply.launch(stream, shape(num_tiles, SORT_THREADS), arguments) }?;
            offsets = halved;
        }
        Ok(())
    }

    /// The items of these windows after all levels. Later ranges write over them.
    pub(super) fn halve_runs<'b>(
        &'b self,
        windows: &Range<u32>,
        num_points: u32,
        terms: Items<'b, P>,
    ) -> Result<Items<'b, P>, CudaError> {
        let (plan, buffers) = (&self.plan, &self.buffers);
        let first_bucket = plan.first_bucket(windows.start) as usize;
        let mut items = terms;
        for level in 1..=plan.affine_levels {
            let start = (level as usize - 1) * buffers.offsets.len() + first_bucket;
            let sums = if level % 2 == 1 { buffers.odd_level.all() } else { buffers.even_level.all() };
            let halved = Items {
                points: Points::InOrder(sums),
                offsets: buffers.halved_offsets.part(start, items.offsets.len())?,
                max_items: plan.halved(windows, num_points.into(), level),
            };
            self.add_pairs(&items, &halved, level == plan.affine_levels, sums)?;
            items = halved;
        }
        Ok(items)
    }

    fn add_pairs(
        &self,
        items: &Items<'_, P>,
        halved: &Items<'_, P>,
        last: bool,
        sums: DeviceSlice<'_, u8>,
    ) -> Result<(), CudaError> {
        let kernels = self.group_kernels();
        let blocks = self.plan.pair_blocks(halved.max_items, kernels.resident_pair_blocks);
        let arguments = items.arguments().slice(halved.offsets).u32(items.num_buckets());
        let arguments = arguments.u32(last.into()).slice(sums);
        // SAFETY: the kernel's arguments. There are at most `max_items` results, which the blocks suffice for and the
        // level's points have room for, in whole steps of a warp: the plan has the most of all ranges and levels. The
        // items are the terms, whose references are below the number of points, or lie in the other level's points.
        unsafe { kernels.pairs.launch(&self.stream, shape(blocks, PAIR_THREADS), arguments) }
    }
}
