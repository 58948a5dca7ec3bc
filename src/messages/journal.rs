//! Journal -> Scheduler.

use std::sync::Arc;

use actix::prelude::Message;
use tokio::sync::oneshot;

use crate::circuits::WorkKind;
use crate::error::{EngineError, JournalError};
use crate::ids::{CircuitId, JobId, RequestDigest};
use crate::messages::job::{JobAccepted, Priority};
use crate::messages::synthesis::DecodedRequest;

/// Fact: these changes are on the disk, or none of them is.
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub struct JournalWritten {
    /// In the order in which they were asked for.
    pub ops: Vec<WrittenOp>,
    /// The jobs whose results were let go, since others are newer or they were too old.
    pub result: Result<Arc<[JobId]>, JournalError>,
}

/// What was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WrittenOp {
    /// `number`: of the request to write it.
    Accepted {
        job: JobId,
        number: u64,
    },
    Updated {
        job: JobId,
        number: u64,
    },
    Finished {
        job: JobId,
        number: u64,
    },
    TakenInHand {
        job: JobId,
    },
    Forgotten {
        number: u64,
    },
    Other,
}

/// Fact, to the Scheduler by itself: a job of the journal is decoded, or cannot be.
#[derive(Message)]
#[rtype(result = "()")]
pub struct RecoveredDecoded {
    pub job: JobId,
    /// `None`: the Synthesizer died over it, and will be asked again.
    pub decoded: Option<Result<DecodedRequest, EngineError>>,
}

/// Question: one more caller waits for a job that is known by its number. `None`: it is not known (any more).
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "Option<JobAccepted>")]
pub struct AttachJob {
    pub job: JobId,
}

/// Whether a job outlives its process.
#[derive(Debug)]
pub enum Durability {
    /// There is no journal, or the job is none for it: a decoded [`crate::circuits::Workload`], or one with given
    /// blinding values, which are never written.
    NotJournalled,
    Written,
    /// To be told when it is.
    Writing(oneshot::Receiver<Result<(), JournalError>>),
}

impl Durability {
    /// It is in the journal, or on its way there.
    pub fn is_durable(&self) -> bool {
        !matches!(self, Self::NotJournalled)
    }
}

/// A job that an earlier process had accepted and not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveredJob {
    /// The same number as before.
    pub job: JobId,
    pub request_id: String,
    pub kind: WorkKind,
    pub circuit: CircuitId,
    pub digest: RequestDigest,
    pub priority: Priority,
    /// Milliseconds since 1970.
    pub accepted_unix_ms: u64,
    /// Milliseconds since 1970; `None`: no limit.
    pub deadline_unix_ms: Option<u64>,
    /// How many processes ended, otherwise than by their own will, while they had it in hand. From two on it is taken in
    /// hand alone, after all other jobs of earlier processes: it may be the reason.
    pub process_ends: u32,
}
