//! Streams and events.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;

use super::error::CudaCode;
use super::{sys, Context, CudaError};
use crate::backend::BackendWaker;
use crate::error::catch;

/// Which of two streams with waiting work the device serves first. A running block is never interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    Normal,
    /// For CRITICAL work that overtakes a running partition.
    High,
}

/// A queue of device work, done in order. Never serialised with the null stream. Clones share the queue.
#[derive(Clone)]
pub struct Stream {
    inner: Rc<StreamInner>,
}

struct StreamInner {
    raw: sys::CUstream,
    context: Context,
}

impl Stream {
    /// # Errors
    /// The driver's failure.
    pub fn new(context: &Context, priority: Priority) -> Result<Self, CudaError> {
        context.bind()?;
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: both valid for one write; the context is current.
        let code = unsafe { sys::cuCtxGetStreamPriorityRange(&mut least, &mut greatest) };
        context.check("cuCtxGetStreamPriorityRange", code)?;
        let number: c_int = if priority == Priority::High { greatest } else { least };
        let mut raw = ptr::null_mut();
        // SAFETY: valid for one write; the context is current.
        let code = unsafe { sys::cuStreamCreateWithPriority(&mut raw, sys::CU_STREAM_NON_BLOCKING, number) };
        context.check("cuStreamCreateWithPriority", code)?;
        Ok(Self { inner: Rc::new(StreamInner { raw, context: context.clone() }) })
    }

    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    pub(super) fn raw(&self) -> sys::CUstream {
        self.inner.raw
    }

    /// Waits for all work given so far.
    ///
    /// # Errors
    /// The first failure of that work.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        self.context().bind()?;
        // SAFETY: the stream is alive.
        self.context().check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(self.raw()) })
    }

    /// Whether all work given so far is done. Does not wait.
    ///
    /// # Errors
    /// The first failure of that work.
    pub fn is_done(&self) -> Result<bool, CudaError> {
        self.context().bind()?;
        // SAFETY: the stream is alive.
        ready(self.context(), "cuStreamQuery", unsafe { sys::cuStreamQuery(self.raw()) })
    }

    /// Marks this point of the queue with a new event.
    ///
    /// # Errors
    /// The driver's failure.
    pub fn record(&self) -> Result<Event, CudaError> {
        let event = Event::new(self.context())?;
        // SAFETY: both are alive and of one context.
        self.context().check("cuEventRecord", unsafe { sys::cuEventRecord(event.raw, self.raw()) })?;
        Ok(event)
    }

    /// [`record`](Self::record), and has `waker` called when the device has passed that point: in this order, so that who is
    /// woken finds the event done.
    ///
    /// # Errors
    /// As [`record`](Self::record).
    pub fn mark(&self, waker: &BackendWaker) -> Result<Event, CudaError> {
        let event = self.record()?;
        let waker = Arc::clone(waker);
        // Without it the next tick finds out.
        let _ = self.notify(move || waker());
        Ok(event)
    }

    /// Later work of this stream starts after the event, which may be of another stream of this device.
    ///
    /// # Errors
    /// The driver's failure.
    pub fn wait_for(&self, event: &Event) -> Result<(), CudaError> {
        self.context().bind()?;
        // SAFETY: both are alive; the event was recorded when it was made.
        self.context().check("cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(self.raw(), event.raw, 0) })
    }

    /// Calls `wake` on a thread of the driver when the work given so far is done. It must not call CUDA and should
    /// only send a message. After a failure of the context it is never called (and leaked): poll as well.
    ///
    /// # Errors
    /// The driver's failure; `wake` is then dropped.
    pub fn notify(&self, wake: impl FnOnce() + Send + 'static) -> Result<(), CudaError> {
        self.context().bind()?;
        let boxed: Box<Box<dyn FnOnce() + Send>> = Box::new(Box::new(wake));
        let data = Box::into_raw(boxed);
        // SAFETY: `call_boxed` takes exactly this pointer, and the driver calls it at most once.
        let code = unsafe { sys::cuLaunchHostFunc(self.raw(), call_boxed, data.cast()) };
        if code != 0 {
            // SAFETY: the driver refused it, so it is still ours alone.
            drop(unsafe { Box::from_raw(data) });
        }
        self.context().check("cuLaunchHostFunc", code)
    }
}

unsafe extern "C" fn call_boxed(data: *mut c_void) {
    // SAFETY: made by `notify` from this very type, and called once.
    let wake = unsafe { Box::from_raw(data.cast::<Box<dyn FnOnce() + Send>>()) };
    if catch(wake).is_err() {
        tracing::error!("a completion callback panicked on the driver's thread");
    }
}

impl Drop for StreamInner {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: made by `new`, destroyed once. Work still queued is finished by the driver first.
            let code = unsafe { sys::cuStreamDestroy_v2(self.raw) };
            if code != 0 {
                tracing::warn!(device = %self.context.device().id, code, "a CUDA stream could not be destroyed");
            }
        }
    }
}

/// A point in a stream's queue, with its time.
pub struct Event {
    raw: sys::CUevent,
    context: Context,
}

impl Event {
    fn new(context: &Context) -> Result<Self, CudaError> {
        context.bind()?;
        let mut raw = ptr::null_mut();
        // SAFETY: valid for one write; the context is current.
        context.check("cuEventCreate", unsafe { sys::cuEventCreate(&mut raw, sys::CU_EVENT_DEFAULT) })?;
        Ok(Self { raw, context: context.clone() })
    }

    /// Whether the device has passed it. Does not wait.
    ///
    /// # Errors
    /// The first failure of the work before it.
    pub fn is_done(&self) -> Result<bool, CudaError> {
        self.context.bind()?;
        // SAFETY: the event is alive.
        ready(&self.context, "cuEventQuery", unsafe { sys::cuEventQuery(self.raw) })
    }

    /// Waits until the device has passed it.
    ///
    /// # Errors
    /// The first failure of the work before it.
    pub fn wait(&self) -> Result<(), CudaError> {
        self.context.bind()?;
        // SAFETY: the event is alive.
        self.context.check("cuEventSynchronize", unsafe { sys::cuEventSynchronize(self.raw) })
    }

    /// Milliseconds of device time since an earlier event, to about half a microsecond. Both must be done.
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_READY` if either is not done.
    pub fn elapsed_ms(&self, since: &Event) -> Result<f32, CudaError> {
        self.context.bind()?;
        let mut milliseconds = 0.0;
        // SAFETY: valid for one write; both events are alive.
        let code = unsafe { sys::cuEventElapsedTime(&mut milliseconds, since.raw, self.raw) };
        self.context.check("cuEventElapsedTime", code)?;
        Ok(milliseconds)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: made by `new`, destroyed once; the driver keeps it until the device has passed it.
            unsafe { sys::cuEventDestroy_v2(self.raw) };
        }
    }
}

fn ready(context: &Context, call: &'static str, code: c_int) -> Result<bool, CudaError> {
    if code == CudaCode::NOT_READY {
        return Ok(false);
    }
    context.check(call, code).map(|()| true)
}
