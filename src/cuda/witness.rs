//! Floor 3 for `kernels/witness.cu`: how many values of a witness are not bits.

use blst::blst_fr;

use super::memory::Pending;
use super::{
    Arguments, Context, CudaError, DeviceBuffer, DeviceSlice, Function, LaunchShape, Module, PinnedBuffer,
    Reservation, Stream,
};

const THREADS: u32 = 256;
/// Enough to keep the memory of any device busy; each thread takes several values.
const MAX_BLOCKS: u32 = 4096;

/// Counts on one stream, one at a time. Its four bytes of device memory are its own for good.
pub struct DenseCounter {
    count_dense: Function,
    counter: DeviceBuffer<u32>,
    stream: Stream,
    reply: Option<PinnedBuffer<u32>>,
}

/// A count that is on its way.
pub struct DenseCount {
    reply: Pending<u32>,
}

impl DenseCounter {
    /// # Errors
    /// [`CudaError::NoKernels`], or the driver's failure.
    pub fn new(stream: &Stream) -> Result<Self, CudaError> {
        let context: &Context = stream.context();
        let module = Module::load(context, "witness")?;
        Ok(Self {
            count_dense: module.function(c"witness_count_dense")?,
            counter: DeviceBuffer::new(&Reservation::new(context, size_of::<u32>() as u64), stream, 1)?,
            stream: stream.clone(),
            reply: None,
        })
    }

    /// Enqueues counting the values (Montgomery form) that are neither 0 nor 1.
    ///
    /// # Errors
    /// The driver's failure.
    pub fn count(&mut self, values: DeviceSlice<'_, blst_fr>) -> Result<DenseCount, CudaError> {
        self.counter.fill_bytes(0)?;
        let num_values = values.len() as u64;
        let blocks = num_values.div_ceil(THREADS.into()).clamp(1, MAX_BLOCKS.into()) as u32;
        let shape = LaunchShape { blocks, threads_per_block: THREADS, shared_bytes: 0 };
        let arguments = Arguments::new().slice(values).u64(num_values).buffer(&self.counter);
        // SAFETY: the kernel's three arguments; `values` has that many elements, the counter one; all on one stream
        // or ordered before it.
        unsafe { self.count_dense.launch(&self.stream, shape, arguments) }?;
        let reply = match self.reply.take() {
            Some(reply) => reply,
            None => PinnedBuffer::new(self.stream.context(), 1)?,
        };
        Ok(DenseCount { reply: self.counter.read_pinned(reply)? })
    }

    /// The count; waits for the device unless [`DenseCount::is_done`].
    ///
    /// # Errors
    /// The first failure of the stream's work.
    pub fn take(&mut self, count: DenseCount) -> Result<u32, CudaError> {
        let reply = count.reply.wait()?;
        let value = reply[0];
        self.reply = Some(reply);
        Ok(value)
    }
}

impl DenseCount {
    /// # Errors
    /// The first failure of the stream's work.
    pub fn is_done(&self) -> Result<bool, CudaError> {
        self.reply.is_done()
    }
}
