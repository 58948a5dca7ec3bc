//! Jobs as events tell of them: where each partition stands.

use std::time::Duration;

use cuzk::circuits::WorkKind;
use cuzk::ids::{CircuitId, DeviceId, JobId};
use cuzk::messages::events::JobOutcome;
use cuzk::messages::job::Priority;

/// Where a partition stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// No witness yet.
    #[default]
    Waiting,
    /// Its witness is being made.
    Witness,
    /// Waits for a device.
    Ready,
    Proving,
    /// A device made a proof, which is not verified yet.
    Verifying,
    Done,
}

impl Phase {
    /// Stable name, for the status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Witness => "witness",
            Self::Ready => "ready",
            Self::Proving => "proving",
            Self::Verifying => "verifying",
            Self::Done => "done",
        }
    }
}

/// One partition.
#[derive(Clone, Debug, Default)]
pub struct PartitionTrack {
    pub phase: Phase,
    /// How often it was given to a device.
    pub attempts: u32,
    /// Where it is or was last.
    pub device: Option<DeviceId>,
    /// When its proof was made.
    pub proved_at: Duration,
}

/// A job that has not ended.
#[derive(Clone, Debug)]
pub struct JobTrack {
    pub request_id: String,
    pub kind: WorkKind,
    pub circuit: CircuitId,
    pub priority: Priority,
    pub accepted_at: Duration,
    pub partitions: Vec<PartitionTrack>,
}

/// A job that has ended.
#[derive(Clone, Debug)]
pub struct EndedJob {
    pub job: JobId,
    pub request_id: String,
    pub kind: WorkKind,
    pub circuit: Option<CircuitId>,
    pub outcome: JobOutcome,
    pub num_partitions: u32,
    pub retries: u32,
    pub queue: Duration,
    pub total: Duration,
    pub ended_at: Duration,
    pub reason: Option<String>,
}
