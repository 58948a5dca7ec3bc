//! Floor 3 for `kernels/selftest.cu`: the device's arithmetic on given cases, and its rates.
//!
//! Nothing here knows right answers; `tests/gpu_selftest.rs` and `benches/gpu_field.rs` compare with the CPU.

use std::ffi::CString;

use super::{
    Arguments, Context, CudaError, DeviceBuffer, Function, LaunchShape, Module, Priority, Reservation, Stream,
};

/// An operation of `kernels/math/selftest_ops.cuh` with the sizes of its structs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    pub name: &'static str,
    pub case_bytes: usize,
    pub result_bytes: usize,
}

const fn operation(name: &'static str, case_bytes: usize, result_bytes: usize) -> Operation {
    Operation { name, case_bytes, result_bytes }
}

/// Every operation. Fp has 48 bytes, Fr 32, Fp2 96; affine points two coordinates, XYZZ four.
pub const OPERATIONS: [Operation; 28] = [
    operation("fp_add", 96, 48),
    operation("fp_sub", 96, 48),
    operation("fp_mul", 96, 48),
    operation("fp_sqr", 48, 48),
    operation("fp_dot", 192, 48),
    operation("fp_canonical", 48, 48),
    operation("fp_inverse", 48, 48),
    operation("fr_add", 64, 32),
    operation("fr_sub", 64, 32),
    operation("fr_mul", 64, 32),
    operation("fr_reduce", 32, 32),
    operation("fr_inverse", 32, 32),
    operation("fr_add_2r", 64, 32),
    operation("fr_sub_2r", 64, 32),
    operation("fr_mul_2r", 64, 32),
    operation("fp2_mul", 192, 96),
    operation("fp2_sqr", 96, 96),
    operation("fp2_inverse", 96, 96),
    operation("g1_add_affine", 288, 192),
    operation("g1_add", 384, 192),
    operation("g1_double", 192, 192),
    operation("g1_to_affine", 192, 96),
    operation("g1_affine_pair", 192, 96),
    operation("g2_add_affine", 576, 384),
    operation("g2_add", 768, 384),
    operation("g2_double", 384, 384),
    operation("g2_to_affine", 384, 192),
    operation("g2_affine_pair", 384, 192),
];

/// A chain of dependent operations per thread: `x` and `y` start as two neighbouring seeds and take 2 `steps`
/// operations; the result is x + y. The formulas are above the kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chain {
    /// x = x y, y = y x.
    FpMul,
    /// x = x², y = y².
    FpSqr,
    /// x = x y + y y, y = y x + x x, one reduction each.
    FpDot,
    /// x = x y, y = y x.
    FrMul,
}

impl Chain {
    pub const ALL: [Self; 4] = [Self::FpMul, Self::FpSqr, Self::FpDot, Self::FrMul];

    fn kernel(self) -> &'static str {
        match self {
            Self::FpMul => "rate_fp_mul",
            Self::FpSqr => "rate_fp_sqr",
            Self::FpDot => "rate_fp_dot",
            Self::FrMul => "rate_fr_mul",
        }
    }

    pub fn element_bytes(self) -> usize {
        if self == Self::FrMul {
            32
        } else {
            48
        }
    }
}

/// What a timed kernel gave: device time of every run, and the last run's results.
pub struct Timed {
    pub milliseconds: Vec<f32>,
    pub results: Vec<u8>,
    pub num_registers: u32,
    pub local_bytes: u32,
    pub blocks_per_multiprocessor: u32,
}

const SELFTEST_THREADS: u32 = 64;
/// Threads per block of the chains and of the table kernel; seeds come in multiples of it.
pub const CHAIN_THREADS: usize = 256;
/// Threads per block of the gathered sums.
pub const GATHER_THREADS: usize = 128;
const G1_AFFINE_BYTES: usize = 96;
const G1_XYZZ_BYTES: usize = 192;

/// The self-test kernels in a context.
pub struct SelfTest {
    module: Module,
    stream: Stream,
    reservation: Reservation,
}

impl SelfTest {
    /// Loads the kernels; allocations are charged to `reservation`.
    ///
    /// # Errors
    /// [`CudaError::NoKernels`], or the driver's failure.
    pub fn new(context: &Context, reservation: &Reservation) -> Result<Self, CudaError> {
        Ok(Self {
            module: Module::load(context, "selftest")?,
            stream: Stream::new(context, Priority::Normal)?,
            reservation: reservation.clone(),
        })
    }

    fn function(&self, name: &str) -> Result<Function, CudaError> {
        self.module.function(&CString::new(name).expect("kernel names have no NUL"))
    }

    /// Runs an operation on all `cases` (whole structs, one after the other; at most 2^32 - 1) and returns the
    /// results likewise. Waits.
    ///
    /// # Errors
    /// [`CudaError::Shape`] if `cases` is no whole number of structs; otherwise the driver's failure.
    pub fn run(&self, operation: Operation, cases: &[u8]) -> Result<Vec<u8>, CudaError> {
        let num_cases = whole("bytes of cases", cases.len(), operation.case_bytes)?;
        let function = self.function(&format!("selftest_{}", operation.name))?;
        let d_cases = DeviceBuffer::from_slice(&self.reservation, &self.stream, cases)?;
        let d_results: DeviceBuffer<u8> =
            DeviceBuffer::new(&self.reservation, &self.stream, num_cases as usize * operation.result_bytes)?;
        d_results.fill_bytes(0xa5)?;
        let shape = LaunchShape::for_elements(num_cases, SELFTEST_THREADS);
        let arguments = Arguments::new().buffer(&d_cases).buffer(&d_results).u32(num_cases);
        // SAFETY: the kernel's three arguments; both buffers hold `num_cases` structs of the sizes in OPERATIONS,
        // which the host build of the same structs is tested to have; all on one stream.
        unsafe { function.launch(&self.stream, shape, arguments) }?;
        d_results.read()
    }

    /// Enqueues a write to an address that is not mapped: the context is lost when the device gets there. For tests
    /// of what comes after.
    ///
    /// # Errors
    /// The driver's failure to launch.
    pub fn provoke_fault(&self) -> Result<(), CudaError> {
        let function = self.function("selftest_fault")?;
        let shape = LaunchShape { blocks: 1, threads_per_block: 1, shared_bytes: 0 };
        // SAFETY: the kernel's one argument. That the write is illegal is the point: the driver contains it by ending
        // this context, and no other memory is touched.
        unsafe { function.launch(&self.stream, shape, Arguments::new().u64(16)) }
    }

    /// Times a chain kernel `repeats` times after one warm-up. `seeds` has one element more than there are
    /// threads, a multiple of [`CHAIN_THREADS`].
    ///
    /// # Errors
    /// [`CudaError::Shape`] for another number of seeds; otherwise the driver's failure.
    pub fn time_chain(
        &self,
        chain: Chain,
        seeds: &[u8],
        steps: u32,
        repeats: usize,
    ) -> Result<Timed, CudaError> {
        let num_seeds = whole("bytes of seeds", seeds.len(), chain.element_bytes())? as usize;
        let num_threads = num_seeds.saturating_sub(1);
        whole("threads", num_threads, CHAIN_THREADS)?;
        let function = self.function(chain.kernel())?;
        let d_seeds = DeviceBuffer::from_slice(&self.reservation, &self.stream, seeds)?;
        let result_bytes = num_threads * chain.element_bytes();
        let mut d_results = DeviceBuffer::new(&self.reservation, &self.stream, result_bytes)?;
        let shape = LaunchShape::for_elements(num_threads as u32, CHAIN_THREADS as u32);
        let launch = |d_results: &DeviceBuffer<u8>| {
            let arguments = Arguments::new().buffer(&d_seeds).buffer(d_results).u32(steps);
            // SAFETY: the kernel's arguments; one seed more than threads and one result per thread, and the grid
            // has exactly that many threads.
            unsafe { function.launch(&self.stream, shape, arguments) }
        };
        self.time(&function, shape, &mut d_results, repeats, launch)
    }

    /// Times sums of `steps` randomly gathered points per thread, `repeats` times after one warm-up. The table
    /// of 2^`table_log2` points repeats `points` (96-byte affine structs); results are XYZZ structs.
    /// Thread t's k-th index and the table's i-th entry: [`gathered_point`].
    ///
    /// # Errors
    /// [`CudaError::Shape`] for a number of threads that is no multiple of [`GATHER_THREADS`], or for half
    /// structs; otherwise the driver's failure.
    pub fn time_gathered_sums(
        &self,
        points: &[u8],
        table_log2: u32,
        num_threads: usize,
        steps: u32,
        repeats: usize,
    ) -> Result<Timed, CudaError> {
        let num_points = whole("bytes of points", points.len(), G1_AFFINE_BYTES)?;
        whole("threads", num_threads, GATHER_THREADS)?;
        let table_entries = 1u32 << table_log2.clamp(8, 30);
        let d_points = DeviceBuffer::from_slice(&self.reservation, &self.stream, points)?;
        let d_table: DeviceBuffer<u8> =
            DeviceBuffer::new(&self.reservation, &self.stream, table_entries as usize * G1_AFFINE_BYTES)?;
        let fill = self.function("rate_fill_table")?;
        let arguments = Arguments::new().buffer(&d_points).u32(num_points).u32(SPREAD);
        let arguments = arguments.buffer(&d_table).u32(table_entries);
        let shape = LaunchShape::for_elements(table_entries, CHAIN_THREADS as u32);
        // SAFETY: the kernel's arguments; it reads below `num_points` and writes below `table_entries`.
        unsafe { fill.launch(&self.stream, shape, arguments) }?;

        let function = self.function("rate_g1_add_affine")?;
        let mut d_results = DeviceBuffer::new(&self.reservation, &self.stream, num_threads * G1_XYZZ_BYTES)?;
        let shape = LaunchShape::for_elements(num_threads as u32, GATHER_THREADS as u32);
        let launch = |d_results: &DeviceBuffer<u8>| {
            let table_log2 = table_entries.trailing_zeros();
            let arguments = Arguments::new().buffer(&d_table).u32(table_log2).buffer(d_results).u32(steps);
            // SAFETY: the kernel's arguments; indices are below 2^table_log2, the table's length, and there is
            // one result for each thread of the grid.
            unsafe { function.launch(&self.stream, shape, arguments) }
        };
        self.time(&function, shape, &mut d_results, repeats, launch)
    }

    fn time(
        &self,
        function: &Function,
        shape: LaunchShape,
        d_results: &mut DeviceBuffer<u8>,
        repeats: usize,
        launch: impl Fn(&DeviceBuffer<u8>) -> Result<(), CudaError>,
    ) -> Result<Timed, CudaError> {
        launch(d_results)?;
        let mut milliseconds = Vec::with_capacity(repeats);
        for _ in 0..repeats {
            d_results.fill_bytes(0xa5)?;
            let start = self.stream.record()?;
            launch(d_results)?;
            let end = self.stream.record()?;
            end.wait()?;
            milliseconds.push(end.elapsed_ms(&start)?);
        }
        Ok(Timed {
            milliseconds,
            results: d_results.read()?,
            num_registers: function.num_registers()?,
            local_bytes: function.local_bytes()?,
            blocks_per_multiprocessor: function
                .blocks_per_multiprocessor(shape.threads_per_block, shape.shared_bytes)?,
        })
    }
}

/// An odd multiplier without pattern (2^32 over the golden ratio).
const SPREAD: u32 = 2654435769;

/// Which of `num_points` points thread `thread` of the gathered sums adds as its `step`-th; the kernels' own
/// index arithmetic, for whoever recomputes a sum.
pub fn gathered_point(thread: u32, step: u32, table_log2: u32, num_points: u32) -> u32 {
    let mut state = thread.wrapping_mul(2654435761).wrapping_add(12345);
    for _ in 0..=step {
        state = state.wrapping_mul(1664525).wrapping_add(1013904223);
    }
    let entry = state >> (32 - table_log2);
    (entry.wrapping_mul(SPREAD) >> 8) % num_points
}

fn whole(what: &'static str, has: usize, unit: usize) -> Result<u32, CudaError> {
    if has == 0 || !has.is_multiple_of(unit) {
        return Err(CudaError::Shape { what, needs: unit, has });
    }
    u32::try_from(has / unit).map_err(|_| CudaError::Shape {
        what,
        needs: u32::MAX as usize,
        has: has / unit,
    })
}
