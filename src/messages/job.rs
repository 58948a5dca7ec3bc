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

/// Where a job's time went. Times of partitions are summed, so that together they may be more than `total`.
#[derive(Clone, Debug, Default)]
pub struct JobTimings {
    /// From acceptance until its first witness was begun, the loading of its circuit left out.
    pub queue_wait: Duration,
    /// Reading the proving key and reading or recording the shape; zero if the circuit was there.
    pub circuit_load: Duration,
    /// Making witnesses and checking every constraint, on worker threads.
    pub synthesis: Duration,
    /// On devices, stage by stage in their order, of the attempts that counted.
    pub stages: Vec<(Stage, Duration)>,
    /// By our verifier and by the circuit's library.
    pub verify: Duration,
    /// From acceptance to the end.
    pub total: Duration,
}

/// Progress of one job, in order. The last one is `Finished`.
#[derive(Clone, Debug)]
pub enum JobEvent {
    /// The first: the input was decoded and checked, and the job is in the table.
    Accepted { job: JobId, kind: WorkKind, circuit: CircuitId, num_partitions: u32 },
    /// The circuit comes into host memory. `what`: `srs`, of which `done` of `total` bytes of the parameter file were read
    /// (reported for each hundredth), or `shape`, which is recorded whole: 0 or 1 of 1. Not sent if the circuit is there.
    CircuitLoading { circuit: CircuitId, what: &'static str, done: u64, total: u64 },
    /// Key and shape are there, and fit each other.
    CircuitReady { circuit: CircuitId },
    /// The partition's witness was made and satisfies every constraint; `elapsed` on a worker thread for both.
    WitnessReady { partition: PartitionIndex, elapsed: Duration },
    /// The partition was sent to this device. Again, if it is retried.
    Placed { partition: PartitionIndex, device: DeviceId },
    /// The device has ended a stage, after `elapsed`.
    StageDone { partition: PartitionIndex, device: DeviceId, stage: Stage, elapsed: Duration },
    /// The device's proof holds: the partition is done.
    PartitionVerified { partition: PartitionIndex, device: DeviceId },
    /// An attempt failed, for this reason; the partition is placed again.
    PartitionRetried { partition: PartitionIndex, reason: String },
    /// The last: how the job ended.
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

/// Command: cancel a job. Idempotent. Answered once the journal will not bring the job back.
#[derive(Debug, Message)]
#[rtype(result = "Result<CancelOutcome, EngineError>")]
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

/// Marks that a name can have at most.
pub const NAME_MARKS_MAX: u8 = 0x7f;

/// What a job is asked for by: its request id; or, if that was taken by other work when it was accepted, the request id,
/// one `#` or (if that was taken too) several, and the job's number.
pub fn job_name(request_id: &str, marks: u8, job: JobId) -> String {
    match marks {
        0 => request_id.to_owned(),
        marks => format!("{request_id}{}{job}", "#".repeat(usize::from(marks))),
    }
}

/// Question: which job is known by this name?
#[derive(Debug, Clone, Message)]
#[rtype(result = "Option<JobId>")]
pub struct FindJob {
    pub name: String,
}

/// Reply: the job is in the table (or was already), and this caller waits for it.
#[derive(Debug)]
pub struct JobAccepted {
    pub request_id: String,
    /// See [`job_name`]. It stays as long as the job is known, after a restart too if it is in a journal.
    pub name: String,
    /// Jobs that are to be served before it and have not begun.
    pub queue_position: u32,
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
