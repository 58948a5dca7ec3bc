//! The journal: accepted jobs and finished results, on disk, so that a kill at any moment loses neither.
//!
//! ```text
//! Scheduler --Op--> JournalWriter --(channel)--> thread: Store --redb--> file
//!     ^                                             |
//!     +------------------ JournalWritten -----------+      one transaction, one wait for the disk, many changes
//! ```
//!
//! - A job is written **before** it is acknowledged, with everything that decoding it again needs; a result before it is
//!   given. What a caller was told therefore survives, and nothing is proved again once its result was stored.
//! - Work that cannot be written is accepted all the same and said to be so (`JobHandle::is_durable`): a decoded
//!   `Workload` object of the host's, and work with given blinding values (seeds, replays), since `r` and `s` are never
//!   written. Every other job gets fresh ones when it is proved again: any of its proofs is as good as another.
//! - Requests are written as they came. They hold sector data or witnesses: the file is readable by its owner alone.
//! - A job may be what kills the process, again and again. The journal counts the processes that ended over each; one that
//!   two ended over is held back until all others have ended, and is then worked on alone: the others get through.
//! - While a journal cannot be written, new jobs are refused with an error to try again, and the engine proves those it
//!   has; it is tried again by itself, after a second at first and after half a minute at last. A proof that cannot be
//!   stored is still given to whoever waits for it: its job is proved once more if the process is killed before it is.
//! - What a file holds is versioned (`schema.rs`) and every record has a checksum (`record.rs`). A damaged journal, or
//!   one of a newer version, is refused by name with what to do; it is never emptied.
//!
//! `medium.rs` says where the bytes are; simulations keep them in memory, and write where they are called, since a
//! paused clock does not wait for a thread.

mod medium;
mod record;
mod request;
mod schema;
mod store;
mod writer;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;

use crate::ids::JobId;

pub use self::medium::{Medium, MemoryDisk, OpenBackend, StorageBackend};
pub use self::record::{JobRecord, ResultRecord, StoredEnd, StoredProof};
pub use self::request::encode_request;
pub use self::schema::SUSPECT_AFTER;
pub use self::store::{Contents, Op, Reader, Retention, Store};
pub use self::writer::{JournalThread, JournalWriter};

/// Where the journal is and how long it keeps results.
#[derive(Clone, Debug)]
pub struct JournalConfig {
    pub medium: Medium,
    pub retention: Retention,
    /// For simulations: the time of day when the engine starts, since 1970; the engine's own clock counts on from
    /// there. `None`: the system's.
    pub time_of_start: Option<Duration>,
}

impl JournalConfig {
    /// A journal in a file, which is made if there is none. Results of the last week are kept, 10,000 at most.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self::on(Medium::File(path.into()))
    }

    /// As [`JournalConfig::file`], on any medium.
    pub fn on(medium: Medium) -> Self {
        let retention = Retention { count: RETENTION_COUNT, age: Duration::from_secs(RETENTION_AGE_S) };
        Self { medium, retention, time_of_start: None }
    }
}

/// A journal that was opened for an engine, and what was in it.
pub struct OpenJournal {
    pub writer: JournalWriter,
    pub contents: Contents,
    /// Since 1970, when the engine starts.
    pub time_of_start: Duration,
    /// How far the recovery is.
    pub recovery: watch::Sender<Recovery>,
}

/// How far the jobs of an earlier process are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// All are queued again or have ended, but for those that are held back.
    pub is_done: bool,
    /// Jobs that processes ended over: each waits until all others have ended, to be worked on alone. Until it is in the
    /// table.
    pub held_back: BTreeSet<JobId>,
    /// Why those that are left are not decoded any more, for good.
    pub hindered: Option<String>,
}

impl JournalConfig {
    /// The time of day at which an engine starts now, since 1970.
    pub fn time_of_start(&self) -> Duration {
        self.time_of_start.unwrap_or_else(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
    }
}

/// Default of [`Retention::count`]: some KiB each, in memory too.
pub const RETENTION_COUNT: usize = 10_000;
/// Default of [`Retention::age`]: a week.
pub const RETENTION_AGE_S: u64 = 7 * 86_400;
