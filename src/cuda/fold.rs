//! Floor 3 for `kernels/fold.cu`: transforms of points on the device, for folding keys.

use blst::blst_p1_affine;

use super::lagrange::with_montgomery_twice;
use super::{
    devices, Arguments, Context, CudaError, DeviceBuffer, Function, LaunchShape, Module, NttDomain,
    NttKernels, Priority, Reservation, Stream,
};
use crate::error::FoldError;
use crate::groth16::fold::{index_weight, PointTransform, Watch, Weights};
use crate::policy::ntt_plan::{domain_table_bytes, MAX_DOMAIN_LOG2};

/// Extended coordinates, 192 B.
type Xyzz = [u64; 24];

const FOLD_THREADS: u32 = 128;
/// Points copied and converted at a time: 192 MiB.
const CHUNK_POINTS: usize = 1 << 21;
/// Butterflies of one launch: a third of a second on an H200, so that a signal is heeded and other work gets its turn.
const LAUNCH_BUTTERFLIES: u32 = 1 << 22;

/// A device that transforms points. It blocks its thread: this is done once for a key, by a command of its own.
///
/// Memory: 192 B for each point, and half a gigabyte.
pub struct CudaTransform {
    context: Context,
    stream: Stream,
    ntt: NttKernels,
    load: Function,
    level: Function,
    store: Function,
}

impl CudaTransform {
    /// On the first device that is visible.
    ///
    /// # Errors
    /// [`CudaError::NoKernels`], the want of a driver or a device, or the driver's failure.
    pub fn open() -> Result<Self, CudaError> {
        let first = devices()?.into_iter().next();
        let first = first.ok_or_else(|| CudaError::Host("no CUDA device is visible".to_owned()))?;
        Self::new(&Context::new(&first)?)
    }

    /// In a context.
    ///
    /// # Errors
    /// [`CudaError::NoKernels`], or the driver's failure.
    pub fn new(context: &Context) -> Result<Self, CudaError> {
        let module = Module::load(context, "fold")?;
        Ok(Self {
            context: context.clone(),
            stream: Stream::new(context, Priority::Normal)?,
            ntt: NttKernels::load(context)?,
            load: module.function(c"fold_load")?,
            level: module.function(c"fold_level")?,
            store: module.function(c"fold_store")?,
        })
    }

    fn transform(
        &self,
        points: &[blst_p1_affine],
        weights: Weights,
        watch: Watch<'_>,
    ) -> Result<Vec<blst_p1_affine>, FoldError> {
        let n = points.len() + 1;
        let log2 = n.trailing_zeros();
        if !n.is_power_of_two() || log2 > MAX_DOMAIN_LOG2 {
            let what =
                format!("a transform of {n} points: powers of two up to 2^{MAX_DOMAIN_LOG2} are possible");
            return Err(FoldError::Device(what));
        }
        let bytes = (size_of::<Xyzz>() * n + size_of::<blst_p1_affine>() * CHUNK_POINTS.min(n)) as u64;
        let reservation = Reservation::new(&self.context, bytes + domain_table_bytes(log2));
        let total = num_steps(log2);
        let domain = self.ntt.domain(&self.stream, &reservation, log2)?;
        let values = DeviceBuffer::<Xyzz>::new(&reservation, &self.stream, n)?;
        self.load_all(&reservation, &values, points, weights, watch)?;
        (watch.progress)(1, total);
        for level in 0..log2 {
            self.run_level(&domain, &values, level, watch)?;
            (watch.progress)(2 + u64::from(level), total);
        }
        self.store_all(&reservation, &values, log2, watch)
    }

    fn load_all(
        &self,
        reservation: &Reservation,
        values: &DeviceBuffer<Xyzz>,
        points: &[blst_p1_affine],
        weights: Weights,
        watch: Watch<'_>,
    ) -> Result<(), FoldError> {
        let n = values.len();
        let log2 = n.trailing_zeros();
        for first in (0..n).step_by(CHUNK_POINTS) {
            check(watch)?;
            let count = CHUNK_POINTS.min(n - first);
            let chunk = &points[first..points.len().min(first + count)];
            // A buffer has an element at least: of the single value of the smallest domain there is no point.
            let none = [blst_p1_affine::default()];
            let buffer = DeviceBuffer::from_slice(
                reservation,
                &self.stream,
                if chunk.is_empty() { &none } else { chunk },
            )?;
            let arguments = Arguments::new().buffer(&buffer).u32(chunk.len() as u32).buffer(values);
            let arguments = arguments.u32(first as u32).u32(count as u32);
            let arguments = arguments.u32((weights == Weights::Indices).into());
            let arguments = with_montgomery_twice(arguments, index_weight(log2));
            let shape = LaunchShape::for_elements(count as u32, FOLD_THREADS);
            // SAFETY: the kernel's arguments; it reads the points of the buffer and writes `count` values from `first`
            // on, which are within the n of `values`. The buffer is freed in the stream's order.
            unsafe { self.load.launch(&self.stream, shape, arguments) }?;
            self.stream.synchronize()?;
        }
        Ok(())
    }

    fn run_level(
        &self,
        domain: &NttDomain,
        values: &DeviceBuffer<Xyzz>,
        level: u32,
        watch: Watch<'_>,
    ) -> Result<(), FoldError> {
        let half_log2 = domain.plan.domain_log2 - 1 - level;
        let num_butterflies = (values.len() / 2) as u32;
        for first in (0..num_butterflies).step_by(LAUNCH_BUTTERFLIES as usize) {
            check(watch)?;
            let count = LAUNCH_BUTTERFLIES.min(num_butterflies - first);
            let arguments = Arguments::new().buffer(values).buffer(&domain.low).buffer(&domain.high);
            let arguments = arguments.u32(domain.plan.table.low_log2).u32(half_log2).u32(first).u32(count);
            let shape = LaunchShape::for_elements(count, FOLD_THREADS);
            // SAFETY: the kernel's arguments; butterflies below n/2 touch values below n, each two of its own, and the
            // tables have the lengths of the plan.
            unsafe { self.level.launch(&self.stream, shape, arguments) }?;
            self.stream.synchronize()?;
        }
        Ok(())
    }

    fn store_all(
        &self,
        reservation: &Reservation,
        values: &DeviceBuffer<Xyzz>,
        log2: u32,
        watch: Watch<'_>,
    ) -> Result<Vec<blst_p1_affine>, FoldError> {
        let n = values.len();
        let mut results = Vec::with_capacity(n);
        for first in (0..n).step_by(CHUNK_POINTS) {
            check(watch)?;
            let count = CHUNK_POINTS.min(n - first);
            let out = DeviceBuffer::<blst_p1_affine>::new(reservation, &self.stream, count)?;
            let arguments = Arguments::new().buffer(values).u32(log2).buffer(&out);
            let arguments = arguments.u32(first as u32).u32(count as u32);
            let shape = LaunchShape::for_elements(count as u32, FOLD_THREADS);
            // SAFETY: the kernel's arguments; it reads any of the n values and writes the `count` points of `out`.
            unsafe { self.store.launch(&self.stream, shape, arguments) }?;
            results.extend(out.read()?);
        }
        Ok(results)
    }
}

impl PointTransform for CudaTransform {
    fn num_steps(&self, domain_log2: u32) -> u64 {
        num_steps(domain_log2)
    }

    fn run(
        &mut self,
        points: &[blst_p1_affine],
        weights: Weights,
        watch: Watch<'_>,
    ) -> Result<Vec<blst_p1_affine>, FoldError> {
        self.transform(points, weights, watch)
    }
}

fn num_steps(domain_log2: u32) -> u64 {
    u64::from(domain_log2) + 1
}

fn check(watch: Watch<'_>) -> Result<(), FoldError> {
    if (watch.is_stopped)() {
        return Err(FoldError::Stopped);
    }
    Ok(())
}

impl From<CudaError> for FoldError {
    fn from(error: CudaError) -> Self {
        Self::Device(error.to_string())
    }
}
