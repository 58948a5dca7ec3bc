//! Engine, Scheduler <-> Synthesizer. Commands are answered by facts; all work runs on its worker threads.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use actix::prelude::Message;
use actix::Recipient;
use blstrs::Scalar;

use crate::circuits::{SrsSource, Undecoded, Workload};
use crate::error::{EngineError, SrsError, SynthesisError};
use crate::groth16::domain::quotient_bytes;
use crate::groth16::{Blinding, PackedWitness, PreparedVerifyingKey, Proof, R1csShape, Srs};
use crate::ids::{CircuitId, JobId, WorkRef};
use crate::messages::device::CancelFlag;
use crate::messages::job::Priority;
use crate::policy::plan::{ShapeSummary, SrsSummary};

/// Everything about a circuit that its jobs share: made once, never changed.
pub struct PreparedCircuit {
    pub id: CircuitId,
    pub source: SrsSource,
    pub shape: Arc<R1csShape>,
    pub srs: Arc<Srs>,
    pub vk: PreparedVerifyingKey,
    /// What memory is reserved by: of `shape`, but in simulations of larger circuits.
    pub needs: PartitionNeeds,
    /// Bytes of shape and SRS in host memory.
    pub num_bytes: u64,
}

/// Host memory that one partition of a circuit takes, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionNeeds {
    /// A bit or a scalar per aux variable, and a scalar per input.
    pub witness_bytes: u64,
    /// What a proof on the host takes besides.
    pub host_proof_bytes: u64,
}

impl PartitionNeeds {
    pub fn of(shape: &R1csShape) -> Self {
        let num_scalars = shape.num_inputs() + shape.classes().num_dense();
        Self {
            witness_bytes: 32 * num_scalars as u64 + 8 * shape.num_aux().div_ceil(64) as u64,
            host_proof_bytes: quotient_bytes(shape.domain_log2()),
        }
    }
}

impl PreparedCircuit {
    /// Bytes of one witness: a bit or a scalar per aux variable, and a scalar per input.
    pub fn witness_bytes(&self) -> u64 {
        self.needs.witness_bytes
    }

    /// Bytes that a proof on the host takes besides the witness.
    pub fn host_proof_bytes(&self) -> u64 {
        self.needs.host_proof_bytes
    }
}

impl fmt::Debug for PreparedCircuit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparedCircuit")
            .field("id", &self.id)
            .field("num_bytes", &self.num_bytes)
            .finish_non_exhaustive()
    }
}

/// Goes with host memory that was reserved for somebody else's work: while one is left, that work may still hold it.
#[derive(Clone, Debug, Default)]
pub struct MemoryLease(Arc<()>);

impl MemoryLease {
    /// Both are of the same reservation.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// To see when the last one is gone.
    pub fn watch(&self) -> Weak<()> {
        Arc::downgrade(&self.0)
    }
}

/// Question with a long answer: decode and validate a request, on a worker thread. The reply comes when it is done.
#[derive(Debug, Message)]
#[rtype(result = "Result<DecodedRequest, EngineError>")]
pub struct DecodeRequest {
    pub request: Undecoded,
    pub priority: Priority,
    /// A journal will want its bytes.
    pub keep_bytes: bool,
    /// Gone once the caller is, who may vanish while the request waits: it is dropped then, undecoded. `None`: whoever asks
    /// stays.
    pub caller: Option<Weak<()>>,
}

/// What a request says.
#[derive(Clone, Debug)]
pub struct DecodedRequest {
    pub workload: Arc<dyn Workload>,
    /// The request as a journal keeps it, if that was asked for.
    pub encoded: Option<Arc<[u8]>>,
}

/// Command: find out what a circuit will take, without loading it. Answered by [`CircuitMeasured`] or
/// [`CircuitFailed`].
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct MeasureCircuit {
    pub circuit: CircuitId,
    pub source: SrsSource,
    pub priority: Priority,
    pub span: tracing::Span,
}

/// What a circuit takes, by the counts of its parameter file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CircuitNeeds {
    /// Host memory of shape and SRS. The shape's part is an estimate where the circuit was never seen.
    pub num_bytes: u64,
    /// The least its shape can be; its rows are only known once it is recorded.
    pub shape: ShapeSummary,
    pub srs: SrsSummary,
}

/// Fact: what a circuit will take.
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub struct CircuitMeasured {
    pub circuit: CircuitId,
    /// Of the command.
    pub source: SrsSource,
    pub needs: CircuitNeeds,
}

/// Command: record or load a circuit's shape and load its SRS, whose memory is reserved. Answered by
/// [`CircuitPrepared`] or [`CircuitFailed`].
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct PrepareCircuit {
    pub circuit: CircuitId,
    pub source: SrsSource,
    /// Any job of the circuit: it knows how to record the shape.
    pub workload: Arc<dyn Workload>,
    pub priority: Priority,
    /// Stops the loading at its next piece.
    pub cancel: CancelFlag,
    pub lease: MemoryLease,
    pub span: tracing::Span,
}

/// Fact: how far the preparation of a circuit has come.
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub struct CircuitProgress {
    pub circuit: CircuitId,
    pub what: &'static str,
    pub done: u64,
    pub total: u64,
}

/// Fact: a circuit is ready for witnesses and proofs.
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub struct CircuitPrepared {
    pub circuit: Arc<PreparedCircuit>,
    /// Of the command: an id may name another proving key by now.
    pub lease: MemoryLease,
    pub elapsed: Duration,
}

/// Why a circuit could not be prepared.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CircuitError {
    #[error(transparent)]
    Srs(#[from] SrsError),
    #[error(transparent)]
    Synthesis(#[from] SynthesisError),
}

/// Fact: a circuit could not be prepared. The next job of it tries again.
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub struct CircuitFailed {
    pub circuit: CircuitId,
    /// Of the command: an id may name another proving key by now.
    pub source: SrsSource,
    pub error: CircuitError,
}

/// Whether every constraint is checked before a witness counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowsCheck {
    /// Yes: what has the witness proves without looking at it.
    All,
    /// No: whatever device proves it looks at a sample of the constraints. The others are looked at if a proof of it does not
    /// verify, before anybody is blamed for that.
    ByDevice,
}

/// Command: make and check one partition's witness. Answered by [`WitnessSynthesized`] or [`SynthesisFailed`],
/// unless cancelled before it began.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct SynthesizeWitness {
    pub at: WorkRef,
    pub workload: Arc<dyn Workload>,
    pub circuit: Arc<PreparedCircuit>,
    pub rows: RowsCheck,
    pub priority: Priority,
    pub cancel: CancelFlag,
    pub lease: MemoryLease,
    pub span: tracing::Span,
}

/// Fact: a witness that satisfies its circuit, as far as that was to be checked.
#[derive(Message)]
#[rtype(result = "()")]
pub struct WitnessSynthesized {
    pub at: WorkRef,
    pub witness: Arc<PackedWitness>,
    /// What the verifier puts in, without the leading one.
    pub public_inputs: Arc<[Scalar]>,
    /// Of the command.
    pub lease: MemoryLease,
    pub elapsed: Duration,
}

impl fmt::Debug for WitnessSynthesized {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WitnessSynthesized")
            .field("at", &self.at)
            .field("witness", &self.witness)
            .finish_non_exhaustive()
    }
}

/// Fact: no witness, and why; or that a witness whose proof does not verify is none. The same inputs fail again.
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub struct SynthesisFailed {
    pub at: WorkRef,
    pub error: SynthesisError,
}

/// A proof that waits for its verdict.
#[derive(Clone)]
pub struct UnverifiedProof {
    pub at: WorkRef,
    pub proof: Proof,
    pub public_inputs: Arc<[Scalar]>,
    /// The witness, if its constraints were not all checked.
    pub unchecked: Option<Arc<PackedWitness>>,
}

/// Command: verify proofs of one circuit. Answered by [`ProofsVerified`], after [`SynthesisFailed`] for each proof that does
/// not verify and whose unchecked witness is found to satisfy nothing.
#[derive(Message)]
#[rtype(result = "()")]
pub struct VerifyProofs {
    pub circuit: Arc<PreparedCircuit>,
    pub proofs: Vec<UnverifiedProof>,
    pub priority: Priority,
    pub span: tracing::Span,
}

impl fmt::Debug for VerifyProofs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerifyProofs")
            .field("circuit", &self.circuit.id)
            .field("num_proofs", &self.proofs.len())
            .finish_non_exhaustive()
    }
}

/// Fact: which of the proofs hold, in the order of the command.
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub struct ProofsVerified {
    pub verdicts: Vec<(WorkRef, bool)>,
    pub elapsed: Duration,
}

/// Command: prove a partition on the host and verify that proof, to tell a device that proves wrongly from a key by
/// which nobody can prove. Answered by [`KeyChecked`].
#[derive(Message)]
#[rtype(result = "()")]
pub struct CheckKey {
    pub at: WorkRef,
    pub circuit: Arc<PreparedCircuit>,
    pub witness: Arc<PackedWitness>,
    pub public_inputs: Arc<[Scalar]>,
    pub blinding: Blinding,
    pub priority: Priority,
    /// Looked at between stages.
    pub cancel: CancelFlag,
    pub lease: MemoryLease,
    pub span: tracing::Span,
}

impl fmt::Debug for CheckKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckKey")
            .field("at", &self.at)
            .field("circuit", &self.circuit.id)
            .finish_non_exhaustive()
    }
}

/// What the host's own proof says about a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyVerdict {
    /// It verifies.
    Right,
    /// It does not.
    Wrong,
    /// There is none: cancelled, or the host's prover failed.
    Unknown,
}

/// Fact: what a [`CheckKey`] found.
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub struct KeyChecked {
    pub at: WorkRef,
    pub circuit: Arc<PreparedCircuit>,
    pub verdict: KeyVerdict,
    pub elapsed: Duration,
}

/// Command: the last check of a whole job's bytes by the circuit's own library. Answered by [`JobVerified`].
#[derive(Message)]
#[rtype(result = "()")]
pub struct VerifyJob {
    pub job: JobId,
    pub workload: Arc<dyn Workload>,
    pub circuit: Arc<PreparedCircuit>,
    pub proof: Vec<u8>,
    pub priority: Priority,
    pub span: tracing::Span,
}

impl fmt::Debug for VerifyJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerifyJob")
            .field("job", &self.job)
            .field("proof_bytes", &self.proof.len())
            .finish_non_exhaustive()
    }
}

/// Fact: the library's verdict, with the bytes it was given.
#[derive(Clone, Message)]
#[rtype(result = "()")]
pub struct JobVerified {
    pub job: JobId,
    pub proof: Vec<u8>,
    /// What the library said against the proof, or that it panicked.
    pub result: Result<(), String>,
    pub elapsed: Duration,
}

impl fmt::Debug for JobVerified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobVerified")
            .field("job", &self.job)
            .field("result", &self.result)
            .finish_non_exhaustive()
    }
}

/// Fact, pool -> Synthesizer: a worker thread finished its task.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "()")]
pub struct WorkerFreed;

/// What peers may say to a Synthesizer, and nothing else.
#[derive(Debug, Clone)]
pub struct SynthesizerAddress {
    pub decode: Recipient<DecodeRequest>,
    pub measure: Recipient<MeasureCircuit>,
    pub prepare: Recipient<PrepareCircuit>,
    pub witness: Recipient<SynthesizeWitness>,
    pub verify: Recipient<VerifyProofs>,
    pub check_key: Recipient<CheckKey>,
    pub verify_job: Recipient<VerifyJob>,
}

/// Fact, Supervisor -> Scheduler: the Synthesizer lives (again). What its predecessor held must be asked for again.
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub struct SynthesizerReady {
    pub address: SynthesizerAddress,
}

/// Whom the Synthesizer tells what: the Scheduler.
#[derive(Debug, Clone)]
pub struct SynthesizerPeers {
    pub progress: Recipient<CircuitProgress>,
    pub measured: Recipient<CircuitMeasured>,
    pub prepared: Recipient<CircuitPrepared>,
    pub circuit_failed: Recipient<CircuitFailed>,
    pub synthesized: Recipient<WitnessSynthesized>,
    pub synthesis_failed: Recipient<SynthesisFailed>,
    pub verified: Recipient<ProofsVerified>,
    pub key_checked: Recipient<KeyChecked>,
    pub job_verified: Recipient<JobVerified>,
}
