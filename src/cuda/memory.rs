//! Device memory charged to reservations, and pinned host memory.

use std::cell::Cell;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::rc::Rc;
use std::{fmt, mem, slice};

use blst::{blst_fr, blst_p1_affine, blst_p2_affine};

use super::error::CudaCode;
use super::{sys, Context, CudaError, Event, Stream};

/// Types that may be copied to and from a device as they lie in memory.
///
/// # Safety
/// Every bit pattern is a value, there is no padding, and there are no references.
pub unsafe trait DeviceData: Copy + 'static {}

// SAFETY: integers have no invalid patterns and no padding.
unsafe impl DeviceData for u8 {}
// SAFETY: as above.
unsafe impl DeviceData for u32 {}
// SAFETY: as above.
unsafe impl DeviceData for u64 {}
// SAFETY: arrays of such types have no padding either.
unsafe impl<T: DeviceData, const N: usize> DeviceData for [T; N] {}
// SAFETY: `blst_p1_affine` is two arrays of six u64.
unsafe impl DeviceData for blst_p1_affine {}
// SAFETY: `blst_p2_affine` is four arrays of six u64.
unsafe impl DeviceData for blst_p2_affine {}
// SAFETY: `blst_fr` is an array of four u64, in Montgomery form.
unsafe impl DeviceData for blst_fr {}

/// Device bytes that a plan has been granted. Allocations are charged to it and refused beyond it; its peak is
/// what the plan is compared with. Clones share the account.
#[derive(Clone)]
pub struct Reservation {
    account: Rc<Account>,
}

struct Account {
    limit_bytes: u64,
    used_bytes: Cell<u64>,
    peak_bytes: Cell<u64>,
    context: Context,
}

impl Reservation {
    pub fn new(context: &Context, limit_bytes: u64) -> Self {
        let zero = || Cell::new(0);
        let account =
            Account { limit_bytes, used_bytes: zero(), peak_bytes: zero(), context: context.clone() };
        Self { account: Rc::new(account) }
    }

    pub fn used_bytes(&self) -> u64 {
        self.account.used_bytes.get()
    }

    /// The most that was ever in use.
    pub fn peak_bytes(&self) -> u64 {
        self.account.peak_bytes.get()
    }

    fn charge(&self, asked_bytes: u64) -> Result<(), CudaError> {
        let account = &self.account;
        let left_bytes = account.limit_bytes - account.used_bytes.get();
        if asked_bytes > left_bytes {
            let device = account.context.device().id.clone();
            return Err(CudaError::OverReservation { asked_bytes, left_bytes, device });
        }
        let used_bytes = account.used_bytes.get() + asked_bytes;
        account.used_bytes.set(used_bytes);
        account.peak_bytes.set(account.peak_bytes.get().max(used_bytes));
        Ok(())
    }

    fn refund(&self, bytes: u64) {
        let used_bytes = self.account.used_bytes.get();
        self.account.used_bytes.set(used_bytes.checked_sub(bytes).expect("a refund was charged before"));
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reservation({} of {} B)", self.used_bytes(), self.account.limit_bytes)
    }
}

/// `length` elements in device memory, allocated and freed in its stream's order.
///
/// Work of other streams may use it only between events that order it after the allocation and before the free;
/// the launchers see to that.
pub struct DeviceBuffer<T: DeviceData> {
    pointer: sys::CUdeviceptr,
    length: usize,
    stream: Stream,
    reservation: Reservation,
    _elements: PhantomData<T>,
}

impl<T: DeviceData> DeviceBuffer<T> {
    /// Uninitialised memory: 4 to 12 µs once the pool is warm. `length` may be 0.
    ///
    /// # Errors
    /// [`CudaError::OverReservation`], [`CudaError::Allocation`], or another failure of the driver.
    pub fn new(reservation: &Reservation, stream: &Stream, length: usize) -> Result<Self, CudaError> {
        let bytes = length.checked_mul(mem::size_of::<T>()).expect("no device has 2^64 bytes");
        reservation.charge(bytes as u64)?;
        let mut buffer = Self {
            pointer: 0,
            length,
            stream: stream.clone(),
            reservation: reservation.clone(),
            _elements: PhantomData,
        };
        if bytes > 0 {
            stream.context().bind()?;
            // SAFETY: valid for one write; stream and pool are alive. On failure the pointer stays 0: nothing to free.
            let code = unsafe {
                let pool = stream.context().pool();
                sys::cuMemAllocFromPoolAsync(&mut buffer.pointer, bytes, pool, stream.raw())
            };
            if code == CudaCode::OUT_OF_MEMORY {
                let device = stream.context().device().id.clone();
                return Err(CudaError::Allocation { asked_bytes: bytes as u64, device });
            }
            stream.context().check("cuMemAllocFromPoolAsync", code)?;
        }
        Ok(buffer)
    }

    /// A buffer with a copy of `elements`. Waits for the copy.
    ///
    /// # Errors
    /// As [`new`](Self::new) and [`write`](Self::write).
    pub fn from_slice(reservation: &Reservation, stream: &Stream, elements: &[T]) -> Result<Self, CudaError> {
        let mut buffer = Self::new(reservation, stream, elements.len())?;
        buffer.write(elements)?;
        Ok(buffer)
    }

    pub fn len(&self) -> usize {
        self.length
    }

    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub fn size_bytes(&self) -> usize {
        self.length * mem::size_of::<T>()
    }

    pub(super) fn pointer(&self) -> sys::CUdeviceptr {
        self.pointer
    }

    /// All elements, for a launch.
    pub fn all(&self) -> DeviceSlice<'_, T> {
        DeviceSlice { buffer: self, start: 0, length: self.length }
    }

    /// Elements `start..start + length`, for a launch.
    ///
    /// # Errors
    /// [`CudaError::Shape`] if there are not so many.
    pub fn part(&self, start: usize, length: usize) -> Result<DeviceSlice<'_, T>, CudaError> {
        match start.checked_add(length) {
            Some(end) if end <= self.length => Ok(DeviceSlice { buffer: self, start, length }),
            end => Err(CudaError::Shape {
                what: "elements of a device buffer",
                needs: end.unwrap_or(usize::MAX),
                has: self.length,
            }),
        }
    }

    /// The stream in whose order it was allocated and will be freed.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    fn require(&self, what: &'static str, has: usize) -> Result<(), CudaError> {
        if has == self.length {
            return Ok(());
        }
        Err(CudaError::Shape { what, needs: self.length, has })
    }

    /// Sets every byte, in stream order, as a launch would that writes it. Does not wait.
    ///
    /// # Errors
    /// The driver's failure.
    pub fn fill_bytes(&self, value: u8) -> Result<(), CudaError> {
        if self.is_empty() {
            return Ok(());
        }
        self.stream.context().bind()?;
        // SAFETY: the range is this buffer's own allocation, freed in the same stream's order. Device memory is never
        // borrowed by the host, so that what else refers to it is work of a stream, before or after this.
        let code = unsafe { sys::cuMemsetD8Async(self.pointer, value, self.size_bytes(), self.stream.raw()) };
        self.stream.context().check("cuMemsetD8Async", code)
    }

    /// Copies all elements of another buffer of this one's stream to the front of this one, in the stream's order. Does not
    /// wait.
    ///
    /// # Errors
    /// [`CudaError::Shape`] if there is no room for them; otherwise the driver's failure.
    ///
    /// # Panics
    /// If the buffers are of different streams.
    pub fn copy_to_front(&self, from: &DeviceBuffer<T>) -> Result<(), CudaError> {
        assert_eq!(self.stream.raw(), from.stream.raw(), "one stream orders both buffers' work");
        if from.length > self.length {
            return Err(CudaError::Shape {
                what: "room for another buffer's elements",
                needs: from.length,
                has: self.length,
            });
        }
        if from.is_empty() {
            return Ok(());
        }
        self.stream.context().bind()?;
        // SAFETY: both ranges have this many bytes and are different allocations, made and freed in this stream's order.
        let code = unsafe {
            let bytes = from.size_bytes();
            sys::cuMemcpyDtoDAsync_v2(self.pointer, from.pointer, bytes, self.stream.raw())
        };
        self.stream.context().check("cuMemcpyDtoDAsync", code)
    }

    /// Copies all elements to the device, from any host memory (about 8 GB/s), and waits for it.
    ///
    /// # Errors
    /// [`CudaError::Shape`] unless the lengths are equal; otherwise the driver's failure.
    pub fn write(&mut self, elements: &[T]) -> Result<(), CudaError> {
        self.require("elements to write", elements.len())?;
        if self.is_empty() {
            return Ok(());
        }
        self.stream.context().bind()?;
        // SAFETY: both ranges have this many bytes; the borrow of `elements` outlives the copy, which
        // `synchronize` ends.
        let code = unsafe {
            let bytes = self.size_bytes();
            sys::cuMemcpyHtoDAsync_v2(self.pointer, elements.as_ptr().cast(), bytes, self.stream.raw())
        };
        self.stream.context().check("cuMemcpyHtoDAsync", code)?;
        self.stream.synchronize()
    }

    /// Copies all elements from the device and waits for it.
    ///
    /// # Errors
    /// The driver's failure, or that of earlier work in the stream.
    pub fn read(&self) -> Result<Vec<T>, CudaError> {
        let mut elements: Vec<T> = Vec::with_capacity(self.length);
        if self.is_empty() {
            return Ok(elements);
        }
        self.stream.context().bind()?;
        // SAFETY: the vector's capacity is `length` elements; it outlives the copy, which `synchronize` ends
        // even when it fails, since it returns only after the stream is done or the context is lost.
        let code = unsafe {
            let to = elements.as_mut_ptr().cast();
            sys::cuMemcpyDtoHAsync_v2(to, self.pointer, self.size_bytes(), self.stream.raw())
        };
        self.stream.context().check("cuMemcpyDtoHAsync", code)?;
        self.stream.synchronize()?;
        // SAFETY: all elements were written, and every bit pattern is a `T`.
        unsafe { elements.set_len(self.length) };
        Ok(elements)
    }

    /// Starts copying all elements into pinned memory.
    ///
    /// # Errors
    /// [`CudaError::Shape`] unless the lengths are equal; otherwise the driver's failure.
    pub fn read_pinned(&self, mut to: PinnedBuffer<T>) -> Result<Pending<T>, CudaError> {
        self.require("pinned elements to read into", to.len())?;
        if !self.is_empty() {
            self.stream.context().bind()?;
            // SAFETY: both ranges have this many bytes; `Pending` keeps the host memory until the copy is done.
            let code = unsafe {
                let to = to.as_mut_ptr().cast();
                sys::cuMemcpyDtoHAsync_v2(to, self.pointer, self.size_bytes(), self.stream.raw())
            };
            self.stream.context().check("cuMemcpyDtoHAsync", code)?;
        }
        Pending::new(to, &self.stream)
    }
}

/// Device memory that bytes can be copied into, whatever its elements are.
pub trait CopyTarget {
    fn size_bytes(&self) -> usize;

    #[doc(hidden)]
    fn address(&self) -> DeviceAddress;
}

/// Where a buffer lies; of use to this module alone.
#[derive(Clone, Copy)]
pub struct DeviceAddress(sys::CUdeviceptr);

impl DeviceAddress {
    pub(super) fn at(self, offset_bytes: usize) -> sys::CUdeviceptr {
        self.0 + offset_bytes as sys::CUdeviceptr
    }
}

impl<T: DeviceData> CopyTarget for DeviceBuffer<T> {
    fn size_bytes(&self) -> usize {
        DeviceBuffer::size_bytes(self)
    }

    fn address(&self) -> DeviceAddress {
        DeviceAddress(self.pointer)
    }
}

/// Consecutive elements of a [`DeviceBuffer`]. As an argument it is a pointer to its first.
#[derive(Clone, Copy)]
pub struct DeviceSlice<'b, T: DeviceData> {
    buffer: &'b DeviceBuffer<T>,
    start: usize,
    length: usize,
}

impl<T: DeviceData> DeviceSlice<'_, T> {
    pub fn len(&self) -> usize {
        self.length
    }

    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Null if the buffer is empty.
    pub(super) fn pointer(&self) -> sys::CUdeviceptr {
        self.buffer.pointer + (self.start * mem::size_of::<T>()) as sys::CUdeviceptr
    }

    /// Elements `start..start + length` of these.
    ///
    /// # Errors
    /// [`CudaError::Shape`] if there are not so many.
    pub fn part(&self, start: usize, length: usize) -> Result<Self, CudaError> {
        match start.checked_add(length) {
            Some(end) if end <= self.length => Ok(Self { start: self.start + start, length, ..*self }),
            end => Err(CudaError::Shape {
                what: "elements of a device slice",
                needs: end.unwrap_or(usize::MAX),
                has: self.length,
            }),
        }
    }
}

impl<T: DeviceData> Drop for DeviceBuffer<T> {
    fn drop(&mut self) {
        self.reservation.refund(self.size_bytes() as u64);
        if self.pointer == 0 || self.stream.context().bind().is_err() {
            return;
        }
        // SAFETY: allocated by `new` in this stream, freed once, after all work given to the stream so far.
        let code = unsafe { sys::cuMemFreeAsync(self.pointer, self.stream.raw()) };
        if code != 0 {
            tracing::warn!(device = %self.stream.context().device().id, code, "device memory could not be freed");
        }
    }
}

impl<T: DeviceData> fmt::Debug for DeviceBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceBuffer({} elements, {} B)", self.length, self.size_bytes())
    }
}

/// Page-locked host memory, which the device reads and writes directly. Making it is slow (0.5 s per GiB): pool it.
pub struct PinnedBuffer<T: DeviceData> {
    pointer: NonNull<T>,
    length: usize,
    /// Bytes allocated, which may be more than `length` elements in a buffer from a pool.
    capacity_bytes: usize,
    context: Context,
}

impl<T: DeviceData> PinnedBuffer<T> {
    /// Zeroed memory. Blocks.
    ///
    /// # Errors
    /// The driver's failure (out of memory).
    pub fn new(context: &Context, length: usize) -> Result<Self, CudaError> {
        let bytes = length.checked_mul(mem::size_of::<T>()).expect("no host has 2^64 bytes");
        if bytes == 0 {
            return Ok(Self {
                pointer: NonNull::dangling(),
                length,
                capacity_bytes: 0,
                context: context.clone(),
            });
        }
        context.bind()?;
        let mut pointer: *mut c_void = std::ptr::null_mut();
        // SAFETY: valid for one write; the context is current.
        context.check("cuMemHostAlloc", unsafe { sys::cuMemHostAlloc(&mut pointer, bytes, 0) })?;
        // SAFETY: page-aligned memory of this many bytes, ours alone.
        unsafe { pointer.cast::<u8>().write_bytes(0, bytes) };
        let pointer = NonNull::new(pointer.cast()).expect("the driver reported success");
        Ok(Self { pointer, length, capacity_bytes: bytes, context: context.clone() })
    }
}

impl<T: DeviceData> PinnedBuffer<T> {
    /// Lets go of the memory without freeing it: a copy may be under way that nobody can wait for any more. The
    /// context frees it at its own end, which this buffer no longer holds up.
    fn leak(mut self) {
        self.capacity_bytes = 0;
    }
}

impl<T: DeviceData> Deref for PinnedBuffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `length` initialised elements, aligned to pages (or dangling with length 0).
        unsafe { slice::from_raw_parts(self.pointer.as_ptr(), self.length) }
    }
}

impl<T: DeviceData> DerefMut for PinnedBuffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and borrowed mutably.
        unsafe { slice::from_raw_parts_mut(self.pointer.as_ptr(), self.length) }
    }
}

impl<T: DeviceData> Drop for PinnedBuffer<T> {
    fn drop(&mut self) {
        if self.capacity_bytes == 0 || self.context.bind().is_err() {
            return;
        }
        // SAFETY: allocated by `new`, freed once; no copy is under way, since `Pending` would hold the buffer.
        let code = unsafe { sys::cuMemFreeHost(self.pointer.as_ptr().cast()) };
        if code != 0 {
            tracing::warn!(device = %self.context.device().id, code, "pinned memory could not be freed");
        }
    }
}

/// Pinned memory on loan to a copy.
#[must_use = "dropping it waits for the copy"]
pub struct Pending<T: DeviceData> {
    buffer: Option<PinnedBuffer<T>>,
    done: Event,
}

impl<T: DeviceData> Pending<T> {
    fn new(buffer: PinnedBuffer<T>, stream: &Stream) -> Result<Self, CudaError> {
        match stream.record() {
            Ok(done) => Ok(Self { buffer: Some(buffer), done }),
            Err(error) => {
                // The copy may be under way and nothing tells when it ends.
                buffer.leak();
                Err(error)
            }
        }
    }

    /// Whether the copy is done. Does not wait.
    ///
    /// # Errors
    /// The first failure of the stream's work.
    pub fn is_done(&self) -> Result<bool, CudaError> {
        self.done.is_done()
    }

    /// Waits for the copy and gives the memory back.
    ///
    /// # Errors
    /// The first failure of the stream's work; the memory is then leaked.
    pub fn wait(mut self) -> Result<PinnedBuffer<T>, CudaError> {
        let buffer = self.buffer.take().expect("taken only here and in drop");
        match self.done.wait() {
            Ok(()) => Ok(buffer),
            Err(error) => {
                buffer.leak();
                Err(error)
            }
        }
    }
}

impl<T: DeviceData> Drop for Pending<T> {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            if self.done.wait().is_err() {
                buffer.leak();
            }
        }
    }
}

/// Pinned memory kept for reuse: staging for uploads. Owned by one thread, like all handles.
pub struct PinnedPool {
    context: Context,
    idle: Vec<PinnedBuffer<u8>>,
    idle_limit_bytes: usize,
}

impl PinnedPool {
    /// A pool that keeps at most `idle_limit_bytes` of unused memory.
    pub fn new(context: &Context, idle_limit_bytes: usize) -> Self {
        Self { context: context.clone(), idle: Vec::new(), idle_limit_bytes }
    }

    /// `length` bytes with unspecified contents: the smallest idle buffer that fits, else a new one (blocks).
    ///
    /// # Errors
    /// The driver's failure (out of memory).
    pub fn take(&mut self, length: usize) -> Result<PinnedBuffer<u8>, CudaError> {
        let fitting = self.idle.iter().enumerate().filter(|(_, buffer)| buffer.capacity_bytes >= length);
        let best = fitting.min_by_key(|(_, buffer)| buffer.capacity_bytes).map(|(index, _)| index);
        let Some(index) = best else { return PinnedBuffer::new(&self.context, length) };
        let mut buffer = self.idle.swap_remove(index);
        buffer.length = length; // the capacity was zeroed when it was made: all initialised
        Ok(buffer)
    }

    /// Takes a buffer back, or frees it when enough are idle.
    pub fn give_back(&mut self, buffer: PinnedBuffer<u8>) {
        if self.idle_bytes() + buffer.capacity_bytes <= self.idle_limit_bytes {
            self.idle.push(buffer);
        }
    }

    pub fn idle_bytes(&self) -> usize {
        self.idle.iter().map(|buffer| buffer.capacity_bytes).sum()
    }
}
