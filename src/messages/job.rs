//! Engine <-> Scheduler.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::Message;
use actix::Recipient;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};

use crate::backend::Stage;
use crate::circuits::{EncodedWork, FilecoinRequest, WorkKind, Workload};
use crate::error::EngineError;
use crate::groth16::Blinding;
use crate::ids::{CircuitId, DeviceId, JobId, PartitionIndex};
use crate::messages::journal::Durability;

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
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
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
    /// A host's own circuit, as bytes that the host's decoder of that format reads (`EngineConfig::decoders`).
    Encoded(EncodedWork),
    /// A decoded job, or a host's own circuit (`CustomCircuit::into_workload`). It lives and dies with the process: no
    /// journal can keep it.
    Workload(Arc<dyn Workload>),
}

/// A request as a host makes it.
#[derive(Clone, Debug)]
pub struct ProofRequest {
    /// Not unique: work is identified by this **and** kind, digest of all inputs, fixed blinding values and placement.
    /// Empty: one is made.
    pub request_id: String,
    pub payload: Payload,
    /// `None`: the kind's own.
    pub priority: Option<Priority>,
    /// From acceptance; `None`: no limit. Of several callers of the same work, the latest deadline counts.
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

/// How a job ended.
pub type JobResult = Result<Arc<ProofOutcome>, EngineError>;

/// Command, Engine -> Scheduler: a decoded job. Refused work leaves no trace.
#[derive(Message)]
#[rtype(result = "Result<JobAccepted, EngineError>")]
pub struct SubmitJob {
    /// Empty: the job gets an identity of its own and nothing attaches to it.
    pub request_id: String,
    pub workload: Arc<dyn Workload>,
    /// `None`: the kind's own.
    pub priority: Option<Priority>,
    /// From acceptance.
    pub deadline: Option<Duration>,
    pub blinding: BlindingSource,
    pub placement: Placement,
    /// The request's bytes, for the journal; `None`: the job is none for it, or there is no journal.
    pub encoded: Option<Arc<[u8]>>,
    pub span: tracing::Span,
}

impl fmt::Debug for SubmitJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubmitJob")
            .field("request_id", &self.request_id)
            .field("circuit", self.workload.circuit())
            .field("num_partitions", &self.workload.num_partitions())
            .finish_non_exhaustive()
    }
}

/// Reply: the job is in the table (or was already), and this caller waits for it.
#[derive(Debug)]
pub struct JobAccepted {
    pub request_id: String,
    /// The same work was known: this caller shares its job.
    pub attached: bool,
    pub ticket: JobTicket,
    /// Everything that happens from now on; an attached caller first gets `Accepted`. Bounded by what the job
    /// does: a few events per partition and stage.
    pub events: mpsc::UnboundedReceiver<JobEvent>,
    /// `Some` once the job has ended.
    pub result: watch::Receiver<Option<JobResult>>,
    /// The caller is told that its job is accepted once it is in the journal, if it is to be there.
    pub durability: Durability,
}

/// Somebody waits for this job. Dropping it, also with a reply that nobody received, tells the Scheduler
/// [`ReleaseTicket`]; without any ticket the job is cancelled.
pub struct JobTicket {
    job: JobId,
    number: u64,
    keep_job: bool,
    released: Recipient<ReleaseTicket>,
}

impl JobTicket {
    pub fn new(job: JobId, number: u64, released: Recipient<ReleaseTicket>) -> Self {
        Self { job, number, keep_job: false, released }
    }

    pub fn job(&self) -> JobId {
        self.job
    }

    /// Gives the ticket back without cancelling: the job goes on with nobody waiting.
    pub fn detach(mut self) {
        self.keep_job = true;
    }
}

impl fmt::Debug for JobTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobTicket({} #{})", self.job, self.number)
    }
}

impl Drop for JobTicket {
    fn drop(&mut self) {
        self.released.do_send(ReleaseTicket { job: self.job, number: self.number, keep_job: self.keep_job });
    }
}

/// Fact: a caller no longer waits. `keep_job`: the job is not to be cancelled for lack of waiting callers.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "()")]
pub struct ReleaseTicket {
    pub job: JobId,
    pub number: u64,
    pub keep_job: bool,
}
