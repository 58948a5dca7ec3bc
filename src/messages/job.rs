//! Engine <-> Scheduler.

use std::sync::Arc;
use std::time::Duration;

use actix::prelude::Message;
use serde::{Deserialize, Serialize};

use crate::backend::Stage;
use crate::circuits::{FilecoinRequest, WorkKind, Workload};
use crate::error::EngineError;
use crate::groth16::Blinding;
use crate::ids::{CircuitId, DeviceId, JobId, PartitionIndex};

/// Order of service. A higher level is served first, with aging so that nothing starves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Priority {
    Low,
    Normal,
    High,
    Critical,
}

impl Priority {
    /// The kind's own level: WinningPoSt CRITICAL, WindowPoSt HIGH, the others NORMAL.
    pub fn of(kind: WorkKind) -> Self {
        match kind {
            WorkKind::WinningPost => Self::Critical,
            WorkKind::WindowPost => Self::High,
            WorkKind::PorepC2 | WorkKind::SnapUpdate | WorkKind::Custom => Self::Normal,
        }
    }
}

/// Which device may do the work. Data that only the Scheduler reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    #[default]
    Any,
    Device(DeviceId),
}

/// Where `r` and `s` come from.
#[derive(Clone, Default)]
pub enum BlindingSource {
    /// The operating system's generator: production.
    #[default]
    OsRandom,
    /// ChaCha20 from this seed, stream = partition: reproducible tests and `--seed`.
    Seeded([u8; 32]),
    /// One pair per partition: replays.
    Fixed(Vec<Blinding>),
}

impl std::fmt::Debug for BlindingSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::OsRandom => "OsRandom",
            Self::Seeded(_) => "Seeded(..)",
            Self::Fixed(_) => "Fixed(..)",
        })
    }
}

/// What is to be proved.
#[derive(Clone, Debug)]
pub enum Payload {
    Filecoin(Box<FilecoinRequest>),
    /// A decoded job, or a host's own circuit (`CustomCircuit::into_workload`).
    Workload(Arc<dyn Workload>),
}

/// A request as a host makes it.
#[derive(Clone, Debug)]
pub struct ProofRequest {
    /// Not unique: work is identified by this **and** kind **and** digest of all inputs. Empty: one is made.
    pub request_id: String,
    pub payload: Payload,
    /// `None`: the kind's own.
    pub priority: Option<Priority>,
    /// From acceptance; `None`: no limit.
    pub deadline: Option<Duration>,
    pub blinding: BlindingSource,
    pub placement: Placement,
}

impl ProofRequest {
    pub fn new(payload: Payload) -> Self {
        Self {
            request_id: String::new(),
            payload,
            priority: None,
            deadline: None,
            blinding: BlindingSource::OsRandom,
            placement: Placement::Any,
        }
    }
}

/// What one finished job yields.
#[derive(Clone, Debug)]
pub struct ProofOutcome {
    pub job: JobId,
    pub request_id: String,
    pub kind: WorkKind,
    pub circuit: CircuitId,
    /// 192 B per partition, in partition order; verified.
    pub proof: Vec<u8>,
    pub timings: JobTimings,
    /// The device that made each partition's proof.
    pub devices: Vec<DeviceId>,
    /// Partitions proved again after a failure.
    pub retries: u32,
}

/// Where a job's time went. Stage times are summed over partitions.
#[derive(Clone, Debug, Default)]
pub struct JobTimings {
    pub queue_wait: Duration,
    pub circuit_load: Duration,
    pub synthesis: Duration,
    pub stages: Vec<(Stage, Duration)>,
    pub verify: Duration,
    pub total: Duration,
}

/// Progress of one job, in order. The last one is `Finished`.
#[derive(Clone, Debug)]
pub enum JobEvent {
    Accepted { job: JobId, kind: WorkKind, circuit: CircuitId, num_partitions: u32 },
    CircuitLoading { circuit: CircuitId, what: &'static str, done: u64, total: u64 },
    CircuitReady { circuit: CircuitId },
    WitnessReady { partition: PartitionIndex, elapsed: Duration },
    Placed { partition: PartitionIndex, device: DeviceId },
    StageDone { partition: PartitionIndex, device: DeviceId, stage: Stage, elapsed: Duration },
    PartitionVerified { partition: PartitionIndex, device: DeviceId },
    PartitionRetried { partition: PartitionIndex, reason: String },
    Finished(Result<Arc<ProofOutcome>, EngineError>),
}

/// What a cancel found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelOutcome {
    /// It had not begun.
    WasQueued,
    /// Some of it ran; it stops at the next stage boundary.
    WasRunning,
    /// It had ended, or was cancelled before: nothing changed.
    AlreadyEnded,
    Unknown,
}

/// Command: cancel a job. Idempotent.
#[derive(Debug, Message)]
#[rtype(result = "CancelOutcome")]
pub struct CancelJob {
    pub job: JobId,
}
