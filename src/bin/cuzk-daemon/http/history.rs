//! What happened lately: the engine's events, taken in on a thread of its own and kept as figures of bounded size.
//!
//! ```text
//! actors ── EventSink ──> channel of CAPACITY events ──> thread `cuzk-history` ──> Books <── /status, /metrics
//! ```
//!
//! Actors never wait for a reader: they only put events into the channel, and what does not fit is counted.

mod books;
mod counts;
mod devices;
mod jobs;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{bounded, Receiver, Sender};
use cuzk::messages::events::{Event, EventConsumer, EventKind};

pub use self::books::{Books, Incident};
pub use self::counts::{Counts, Histogram, RateBucket, RATE_BUCKET};
pub use self::devices::{Attempt, DeviceTrack};
pub use self::jobs::{EndedJob, PartitionTrack};

/// Events between the actors and the books, some 10 MiB of them. Too low: a burst is counted too low.
const CAPACITY: usize = 1 << 16;

/// When an event was told, on the clock of [`Shared::begun`].
type Told = (Duration, EventKind);

/// The recent past. Clones see the same.
#[derive(Clone)]
pub struct History {
    shared: Arc<Shared>,
    events: Sender<Told>,
}

struct Shared {
    begun: Instant,
    books: Mutex<Books>,
    num_dropped: AtomicU64,
}

impl History {
    /// Starts its thread, which ends with the last clone and the last [`History::consumer`].
    ///
    /// # Errors
    /// The system's, if it refuses a thread.
    pub fn start() -> std::io::Result<Self> {
        let (events, receiver) = bounded(CAPACITY);
        let books = Mutex::new(Books::default());
        let shared = Arc::new(Shared { begun: Instant::now(), books, num_dropped: AtomicU64::new(0) });
        let thread_shared = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("cuzk-history".into())
            .spawn(move || take_in(&thread_shared, &receiver))?;
        Ok(Self { shared, events })
    }

    /// For the engine's [`cuzk::messages::events::EventSink`].
    pub fn consumer(&self) -> impl EventConsumer + 'static {
        ToHistory { shared: Arc::clone(&self.shared), events: self.events.clone() }
    }

    /// The books, and the moment they are read at. `read` should only copy: the thread waits for it.
    pub fn read<T>(&self, read: impl FnOnce(&Books, Duration) -> T) -> T {
        let books = self.shared.books.lock().unwrap_or_else(PoisonError::into_inner);
        read(&books, self.shared.begun.elapsed())
    }

    /// Events that are in no figure: the channel was full.
    pub fn num_dropped(&self) -> u64 {
        self.shared.num_dropped.load(Ordering::Relaxed)
    }
}

fn take_in(shared: &Shared, events: &Receiver<Told>) {
    while let Ok(first) = events.recv() {
        let mut books = shared.books.lock().unwrap_or_else(PoisonError::into_inner);
        // A bounded batch per lock: readers get their turn during a burst.
        for (at, kind) in std::iter::once(first).chain(events.try_iter().take(256)) {
            books.take_in(at, kind);
        }
    }
}

struct ToHistory {
    shared: Arc<Shared>,
    events: Sender<Told>,
}

impl EventConsumer for ToHistory {
    /// The sink may be older than these books, so its times are not theirs.
    fn consume(&self, event: Event) {
        let at = self.shared.begun.elapsed();
        if self.events.try_send((at, event.kind)).is_err() {
            self.shared.num_dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}
