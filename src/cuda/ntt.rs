//! Floor 3 for `kernels/ntt.cu`: twiddle tables and transforms over the scalar field, on the device and in place.
//!
//! How a transform is cut into passes is [`crate::policy::ntt_plan`]'s. All values are in Montgomery form.

use std::ffi::CStr;

use blst::blst_fr;

use super::{
    Arguments, Context, CudaError, DeviceBuffer, DeviceData, Function, LaunchShape, Module, Reservation,
    Stream,
};
use crate::policy::ntt_plan::{self, NttPlan, Order, Pass, Step, Vector};

/// Threads per block of the elementwise kernels.
pub(super) const ELEMENT_THREADS: u32 = 256;
/// `ntt_twiddles` makes so many entries per block.
const TWIDDLES_PER_BLOCK: u32 = 2048;

/// The kernels of `ntt.cu`, `quotient.cu` and `lagrange.cu` in a context.
pub struct NttKernels {
    passes: PassKernels,
    twiddles: Function,
    pub(super) quotient: super::quotient::QuotientKernels,
    pub(super) lagrange: super::lagrange::LagrangeKernels,
}

struct PassKernels {
    to_bit_reversed: Function,
    to_bit_reversed_far: Function,
    from_bit_reversed: Function,
    from_bit_reversed_far: Function,
    tiny: Function,
}

/// The twiddle tables of transforms of `2^domain_log2` values, and the stream on which those run.
pub struct NttDomain {
    pub(super) plan: NttPlan,
    pub(super) low: DeviceBuffer<blst_fr>,
    pub(super) high: DeviceBuffer<blst_fr>,
    pub(super) stream: Stream,
}

impl NttDomain {
    pub fn domain_log2(&self) -> u32 {
        self.plan.domain_log2
    }

    /// Values of a transform.
    pub fn len(&self) -> usize {
        1 << self.plan.domain_log2
    }

    /// No domain is.
    pub fn is_empty(&self) -> bool {
        false
    }

    pub(super) fn require(&self, what: &'static str, has: usize) -> Result<(), CudaError> {
        if has == self.len() {
            return Ok(());
        }
        Err(CudaError::Shape { what, needs: self.len(), has })
    }
}

/// What one pass kernel is, for reports.
pub struct PassKernelInfo {
    pub name: &'static str,
    pub num_registers: u32,
    pub local_bytes: u32,
    pub blocks_per_multiprocessor: u32,
}

impl NttKernels {
    /// Loads the kernels. Blocks.
    ///
    /// # Errors
    /// [`CudaError::NoKernels`], or the driver's failure.
    pub fn load(context: &Context) -> Result<Self, CudaError> {
        let module = Module::load(context, "ntt")?;
        let tiled = |name| tiled_function(&module, name);
        let passes = PassKernels {
            to_bit_reversed: tiled(c"ntt_to_bit_reversed")?,
            to_bit_reversed_far: tiled(c"ntt_to_bit_reversed_far")?,
            from_bit_reversed: tiled(c"ntt_from_bit_reversed")?,
            from_bit_reversed_far: tiled(c"ntt_from_bit_reversed_far")?,
            tiny: module.function(c"ntt_tiny")?,
        };
        let quotient = super::quotient::QuotientKernels::load(context)?;
        let lagrange = super::lagrange::LagrangeKernels::load(context)?;
        Ok(Self { passes, twiddles: module.function(c"ntt_twiddles")?, quotient, lagrange })
    }

    /// Tables for transforms of `2^domain_log2` values, [`ntt_plan::domain_table_bytes`] of them, made on the device
    /// in the stream's order. Transforms run on this stream. Does not wait.
    ///
    /// # Errors
    /// [`CudaError::Shape`] above [`ntt_plan::MAX_DOMAIN_LOG2`], [`CudaError::OverReservation`], or the driver's
    /// failure.
    pub fn domain(
        &self,
        stream: &Stream,
        reservation: &Reservation,
        domain_log2: u32,
    ) -> Result<NttDomain, CudaError> {
        if domain_log2 > ntt_plan::MAX_DOMAIN_LOG2 {
            return Err(CudaError::Shape {
                what: "log2 of a transform's length",
                needs: ntt_plan::MAX_DOMAIN_LOG2 as usize,
                has: domain_log2 as usize,
            });
        }
        self.domain_of(stream, reservation, NttPlan::of(domain_log2))
    }

    /// [`domain`](Self::domain) with another plan, for measurements and tests.
    ///
    /// # Errors
    /// [`CudaError::OverReservation`], or the driver's failure.
    pub fn domain_of(
        &self,
        stream: &Stream,
        reservation: &Reservation,
        plan: NttPlan,
    ) -> Result<NttDomain, CudaError> {
        let table = |entries_log2: u32, shift: u32| {
            let table = DeviceBuffer::new(reservation, stream, 1 << entries_log2)?;
            let blocks = (1u32 << entries_log2).div_ceil(TWIDDLES_PER_BLOCK);
            let shape = LaunchShape { blocks, threads_per_block: ELEMENT_THREADS, shared_bytes: 0 };
            let arguments = Arguments::new().buffer(&table).u32(entries_log2).u32(shift);
            // SAFETY: the kernel's three arguments; it writes 2^entries_log2 entries, the table's length.
            unsafe { self.twiddles.launch(stream, shape, arguments) }?;
            Ok(table)
        };
        let low = table(plan.table.low_log2, 0)?;
        let high = table(plan.table.high_log2, plan.table.low_log2)?;
        Ok(NttDomain { plan, low, high, stream: stream.clone() })
    }

    /// `X_k = Σ_j x_j ω^jk` in place, `values: [n]` in natural order, the result in bit-reversed order. Does not wait.
    ///
    /// # Errors
    /// [`CudaError::Shape`] unless there are `n` values; otherwise the driver's failure.
    pub fn to_bit_reversed(
        &self,
        domain: &NttDomain,
        values: &mut DeviceBuffer<blst_fr>,
    ) -> Result<(), CudaError> {
        self.transform(domain, values, Order::ToBitReversed)
    }

    /// `X_k = Σ_j x_j ω^jk` in place, `values: [n]` in bit-reversed order, the result in natural order. With its
    /// elements 1 to n - 1 read backwards and divided by `n` this undoes [`to_bit_reversed`](Self::to_bit_reversed).
    /// Does not wait.
    ///
    /// # Errors
    /// [`CudaError::Shape`] unless there are `n` values; otherwise the driver's failure.
    pub fn from_bit_reversed(
        &self,
        domain: &NttDomain,
        values: &mut DeviceBuffer<blst_fr>,
    ) -> Result<(), CudaError> {
        self.transform(domain, values, Order::FromBitReversed)
    }

    fn transform(
        &self,
        domain: &NttDomain,
        values: &mut DeviceBuffer<blst_fr>,
        order: Order,
    ) -> Result<(), CudaError> {
        domain.require("values of a transform", values.len())?;
        let in_order = ordered_after(&domain.stream, &[values])?;
        for step in ntt_plan::transform_steps(Vector::A, order, &domain.plan) {
            match step {
                Step::Pass(_, order, pass) => self.pass(domain, values, order, pass)?,
                _ => self.tiny(domain, values, order)?,
            }
        }
        in_order.release(&[values])
    }

    pub(super) fn pass(
        &self,
        domain: &NttDomain,
        values: &DeviceBuffer<blst_fr>,
        order: Order,
        pass: Pass,
    ) -> Result<(), CudaError> {
        let kernels = &self.passes;
        let kernel = match (order, domain.plan.table.is_far(pass)) {
            (Order::ToBitReversed, false) => &kernels.to_bit_reversed,
            (Order::ToBitReversed, true) => &kernels.to_bit_reversed_far,
            (Order::FromBitReversed, false) => &kernels.from_bit_reversed,
            (Order::FromBitReversed, true) => &kernels.from_bit_reversed_far,
        };
        let tile_log2 = domain.plan.tile_log2;
        let arguments = Arguments::new().buffer(values).buffer(&domain.low).buffer(&domain.high);
        let arguments = arguments.u32(domain.plan.table.low_log2).u32(domain.plan.domain_log2);
        let arguments = arguments.u32(pass.first_level).u32(pass.num_levels).u32(tile_log2);
        // SAFETY: the kernel's arguments; `values` has n elements (checked by the callers), the tables the lengths of
        // the plan, and the plan's passes keep to the kernel's limits (tested there).
        unsafe { kernel.launch(&domain.stream, tile_shape(domain.plan.domain_log2, tile_log2), arguments) }
    }

    pub(super) fn tiny(
        &self,
        domain: &NttDomain,
        values: &DeviceBuffer<blst_fr>,
        order: Order,
    ) -> Result<(), CudaError> {
        let shape = LaunchShape { blocks: 1, threads_per_block: 32, shared_bytes: 0 };
        let arguments = Arguments::new().buffer(values).buffer(&domain.low).u32(domain.plan.domain_log2);
        let arguments = arguments.u32((order == Order::ToBitReversed).into());
        // SAFETY: the kernel's arguments; `values` has n elements and the table n/2.
        unsafe { self.passes.tiny.launch(&domain.stream, shape, arguments) }
    }

    /// Registers, spills and occupancy of the pass kernels.
    ///
    /// # Errors
    /// The driver's failure.
    pub fn pass_kernels(&self) -> Result<Vec<PassKernelInfo>, CudaError> {
        let kernels = &self.passes;
        let mut named = vec![
            ("ntt_to_bit_reversed", &kernels.to_bit_reversed),
            ("ntt_to_bit_reversed_far", &kernels.to_bit_reversed_far),
            ("ntt_from_bit_reversed", &kernels.from_bit_reversed),
            ("ntt_from_bit_reversed_far", &kernels.from_bit_reversed_far),
        ];
        named.extend(self.quotient.pass_functions());
        named.extend(self.lagrange.pass_functions());
        let tile = tile_shape(ntt_plan::MAX_TILE_LOG2, ntt_plan::MAX_TILE_LOG2);
        let info = |(name, function): (&'static str, &Function)| {
            Ok(PassKernelInfo {
                name,
                num_registers: function.num_registers()?,
                local_bytes: function.local_bytes()?,
                blocks_per_multiprocessor: function
                    .blocks_per_multiprocessor(tile.threads_per_block, tile.shared_bytes)?,
            })
        };
        named.into_iter().map(info).collect()
    }
}

/// A pass kernel, allowed to use a whole tile's shared memory.
pub(super) fn tiled_function(module: &Module, name: &CStr) -> Result<Function, CudaError> {
    let function = module.function(name)?;
    function.allow_shared_bytes(tile_shape(ntt_plan::MAX_TILE_LOG2, ntt_plan::MAX_TILE_LOG2).shared_bytes)?;
    Ok(function)
}

/// One block per tile; a tile's elements are 32 bytes each.
pub(super) fn tile_shape(domain_log2: u32, tile_log2: u32) -> LaunchShape {
    LaunchShape {
        blocks: 1 << (domain_log2 - tile_log2),
        threads_per_block: 1 << (tile_log2 - ntt_plan::THREAD_ELEMENTS_LOG2),
        shared_bytes: 32 << tile_log2,
    }
}

/// The stream to which buffers of other streams have been lent.
pub(super) struct Borrowed<'s> {
    stream: &'s Stream,
}

/// Makes `stream` wait for the streams of `buffers`, where they are others.
pub(super) fn ordered_after<'s, T: DeviceData>(
    stream: &'s Stream,
    buffers: &[&DeviceBuffer<T>],
) -> Result<Borrowed<'s>, CudaError> {
    for buffer in buffers.iter().filter(|buffer| buffer.stream().raw() != stream.raw()) {
        stream.wait_for(&buffer.stream().record()?)?;
    }
    Ok(Borrowed { stream })
}

impl Borrowed<'_> {
    /// Makes the buffers' streams wait for this one, so that they are read and freed after it.
    pub(super) fn release<T: DeviceData>(self, buffers: &[&DeviceBuffer<T>]) -> Result<(), CudaError> {
        for buffer in buffers.iter().filter(|buffer| buffer.stream().raw() != self.stream.raw()) {
            buffer.stream().wait_for(&self.stream.record()?)?;
        }
        Ok(())
    }
}
