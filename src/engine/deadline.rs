//! Deadlines of what the engine asks its actors, kept on the asker's side: an actor that does not answer keeps none.

use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// How long the engine's actors may take to answer. They are far above what a healthy engine needs, so that one that
/// passes is a defect and is said to be one ([`crate::error::EngineError::NoAnswer`]). A job that is accepted after that
/// has nobody who wants it, and is dropped unless it was to be kept without a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// What the Scheduler answers within a handler or two: whether it takes a job, where one is. Its handlers take
    /// milliseconds with ten thousand jobs waiting.
    pub answer: Duration,
    /// Decoding and checking a request, which waits for a worker thread behind as many others as may wait, each of which
    /// takes a second or so.
    pub decode: Duration,
    /// What a journal brings back: every job of it decoded and queued again, and of one that processes ended over, every other
    /// job proved before it.
    pub recovery: Duration,
    /// A write of the journal. A disk that takes longer counts as failing although it gives no error: new jobs are refused,
    /// and proofs given without being stored, until it answers. 256 MiB at a time may have to be written.
    pub journal: Duration,
    /// Loading a circuit: its key of up to a hundred gigabytes from a slow disk, once others have let go of the memory.
    pub preload: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            answer: Duration::from_secs(60),
            decode: Duration::from_secs(600),
            recovery: Duration::from_secs(6 * 3600),
            journal: Duration::from_secs(30),
            preload: Duration::from_secs(6 * 3600),
        }
    }
}

/// The clock that deadlines are kept by. An engine's callers may be in any runtime or in none, and its actors' threads are
/// those that may not answer: so it is a runtime of its own, which does nothing but look at the time.
pub(super) struct Clock {
    runtime: Handle,
    thread: Mutex<Option<ClockThread>>,
}

struct ClockThread {
    end: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Clock {
    /// # Errors
    /// If the system refuses a thread, or what a runtime needs.
    pub fn start() -> std::io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_time().build()?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel();
        let thread = std::thread::Builder::new().name("cuzk-clock".into()).spawn(move || {
            // An error: the sender is gone, which says the same.
            let _ = runtime.block_on(ended);
        })?;
        Ok(Self { runtime: handle, thread: Mutex::new(Some(ClockThread { end, thread })) })
    }

    /// That of the runtime on whose thread this is called, which may be paused.
    ///
    /// # Panics
    /// If there is none.
    pub fn here() -> Self {
        Self { runtime: Handle::current(), thread: Mutex::new(None) }
    }

    /// What comes of `future`; `None` if the limit passed before. On any executor.
    pub async fn within<F: Future>(&self, limit: Duration, future: F) -> Option<F::Output> {
        let limited = {
            let _entered = self.runtime.enter();
            tokio::time::timeout(limit, future)
        };
        limited.await.ok()
    }

    /// Joins its thread. Every actor must have stopped: then whatever is still waited for with a deadline has its answer,
    /// which [`tokio::time::timeout`] looks at before the time.
    pub fn stop(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(ClockThread { end, thread }) = thread else { return };
        // Nobody there to receive: it has ended.
        let _ = end.send(());
        if thread.join().is_err() {
            tracing::error!("the engine's clock ended by a panic");
        }
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;
    use crate::engine::block_on;

    #[test]
    fn a_deadline_is_kept_without_a_runtime_around() {
        let clock = Clock::start().unwrap();
        assert_eq!(block_on(clock.within(Duration::from_millis(1), pending::<u32>())), None);
        assert_eq!(block_on(clock.within(Duration::from_secs(3600), ready(3))), Some(3));
        clock.stop();
        // What has its answer does not look at the time.
        assert_eq!(block_on(clock.within(Duration::ZERO, ready(4))), Some(4));
    }
}
