//! What a device actor drives: [`DeviceBackend`].
//!
//! The contract is drawn for CUDA: work is enqueued and polled, nothing here waits, memory is planned and reserved
//! before it is used, a lane is an ordered stream of stages, and a finished stage wakes the actor through
//! [`BackendWaker`].
//!
//! ```text
//! actor                                    backend                          CUDA's reading of it
//! begin(lane, work, plan)                  keeps the work                   pick stream, take memory of the plan
//! enqueue(lane, Upload)                    runs                             copies, event
//! enqueue(lane, Quotient)                  runs after it                    launches, event
//!                         <- waker()                                        host function behind each event
//! poll() -> StageDone(Upload) …                                             query the events
//! abort(lane)                              drops what has not begun         flag read between launches
//! poll() -> Aborted(lane)                  the lane is empty                last event passed, memory free
//! take_proof(lane)                         the lane is empty                answers read back and assembled
//! ```
//!
//! Where a card streams queries, partitions of one circuit may share a pass over them ([`crate::policy::shared_pass`]):
//!
//! ```text
//! … poll() -> StageDone(SumH)              of several lanes, one after the other
//! park(lane), each                         keeps work and sum(h)            frees all of its device memory
//! begin_pass(lanes, plan)                  they go on together              packed witnesses are copied, once each
//! enqueue(lane, SumL), each                begins when all have asked       chunks are copied once, added for each
//! poll() -> StageDone(SumL), each … SumBG2
//! enqueue(lane, Assemble), each            each by itself again
//! abort(lane)                              leaves the others alone          its buckets are freed
//! ```

pub mod cpu;
pub mod host;
pub mod sim;
pub mod steps;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::DeviceError;
use crate::groth16::{Blinding, PackedWitness, Proof, R1csShape, Srs};
use crate::ids::{CircuitId, DeviceId, WorkRef};
use crate::policy::plan::{ProvePlan, QuerySet, ShapeSummary, SrsSummary};
use crate::policy::shared_pass::PassPlan;

/// What a device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    pub id: DeviceId,
    /// Display only.
    pub ordinal: u32,
    pub name: String,
    /// `cpu`, `sim`, `cuda`.
    pub backend: &'static str,
    /// Device memory in bytes; for `cpu`, the part of host memory it may use.
    pub memory_total_bytes: u64,
}

/// One independent ordered sequence of stages on a device (a CUDA stream, a CPU worker).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LaneIndex(pub u32);

/// The steps of one proof, in order. Cancellation and overtaking happen between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// SRS made resident (or streaming prepared), witness on the device.
    Upload,
    /// Row values of the witness.
    Evaluate,
    Quotient,
    SumH,
    SumL,
    SumA,
    SumBG1,
    SumBG2,
    Assemble,
}

impl Stage {
    /// Those that partitions may go through together ([`crate::policy::shared_pass`]).
    pub fn is_of_pass(self) -> bool {
        matches!(self, Stage::SumL | Stage::SumA | Stage::SumBG1 | Stage::SumBG2)
    }

    pub const ALL: [Stage; 9] = [
        Stage::Upload,
        Stage::Evaluate,
        Stage::Quotient,
        Stage::SumH,
        Stage::SumL,
        Stage::SumA,
        Stage::SumBG1,
        Stage::SumBG2,
        Stage::Assemble,
    ];

    /// Position in [`Stage::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }

    /// The stage of that name, as [`Stage::as_str`] gives it.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|stage| stage.as_str() == name)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Stage::Upload => "upload",
            Stage::Evaluate => "evaluate",
            Stage::Quotient => "quotient",
            Stage::SumH => "sum_h",
            Stage::SumL => "sum_l",
            Stage::SumA => "sum_a",
            Stage::SumBG1 => "sum_b_g1",
            Stage::SumBG2 => "sum_b_g2",
            Stage::Assemble => "assemble",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A partition as a device gets it.
pub struct PartitionWork {
    /// Names the work. A device's self-test has no partition.
    pub at: WorkRef,
    pub circuit: CircuitId,
    pub shape: Arc<R1csShape>,
    pub srs: Arc<Srs>,
    /// Of the shape's variables, with the verifier's inputs; its constraints hold, as far as the backend does not check them
    /// itself ([`DeviceBackend::checks_rows`]).
    pub witness: Arc<PackedWitness>,
    pub blinding: Blinding,
}

impl fmt::Debug for PartitionWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartitionWork")
            .field("at", &self.at)
            .field("circuit", &self.circuit)
            .finish_non_exhaustive()
    }
}

/// The lanes a device has. Normal ones are numbered from 0, the critical ones follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneLayout {
    /// Lanes for any work. At least 1.
    pub normal: u32,
    /// Lanes for CRITICAL work alone (CUDA: streams of higher priority).
    pub critical: u32,
    /// Whether the hardware itself lets a critical lane go first while normal lanes run. If not, the actor enqueues
    /// no normal stage while a critical partition runs.
    pub critical_preempts: bool,
}

/// What the device's memory has to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryModel {
    /// Its own memory: an SRS is copied there, as a whole or in chunks.
    Dedicated,
    /// Host memory: queries are read where the host store holds them, which also accounts for them.
    SharedWithHost,
}

/// When a stage counts as hung: after `max(floor, factor * slowest seen for this circuit and stage)`.
///
/// A floor that is too low loses healthy devices on their first large circuit, since nothing has been measured yet;
/// one that is too high only delays the moment a hang is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchdogConfig {
    /// Least limit of a computing stage.
    pub floor: Duration,
    /// Least limit of [`Stage::Upload`], which may load a whole SRS.
    pub upload_floor: Duration,
    /// Multiple of the slowest run seen. At least 1.
    pub factor: u32,
}

impl Default for WatchdogConfig {
    fn default() -> Self {
        Self { floor: Duration::from_secs(120), upload_floor: Duration::from_secs(600), factor: 8 }
    }
}

/// What a poll reports.
#[derive(Debug)]
pub enum BackendEvent {
    StageDone {
        lane: LaneIndex,
        stage: Stage,
        elapsed: Duration,
    },
    /// The stage failed, and later ones of the lane are dropped: the lane is empty.
    StageFailed {
        lane: LaneIndex,
        stage: Stage,
        error: DeviceError,
    },
    /// An [`DeviceBackend::abort`] took effect: the lane is empty.
    Aborted {
        lane: LaneIndex,
    },
}

/// A proof as a lane gives it back.
#[derive(Clone, Debug)]
pub struct FinishedProof {
    /// Not verified.
    pub proof: Proof,
    /// Highest device memory in use for this partition, in bytes, without resident queries.
    pub memory_peak_bytes: u64,
}

/// Wakes the device actor from any thread: "poll me". Cheap, never blocks, may be called spuriously, and still after
/// the actor has gone.
pub type BackendWaker = Arc<dyn Fn() + Send + Sync>;

/// One open device. Created, used and dropped on its actor's thread; need not be `Send`.
///
/// No method waits. The actor calls them within these rules, so a backend may treat a violation as a bug:
/// a lane is empty at [`begin`](Self::begin); stages come in the order of [`Stage::ALL`], each once, at most
/// 1 + [`stages_ahead`](Self::stages_ahead) of them unfinished; after an `Err`, a `StageFailed` or an `Aborted` the lane
/// is empty.
pub trait DeviceBackend: Unpin + 'static {
    fn info(&self) -> DeviceInfo;

    fn lanes(&self) -> LaneLayout;

    /// Lanes besides those of [`lanes`](Self::lanes), numbered after them, for as many more partitions as may be parked or in
    /// a pass. Any normal partition may be begun in one. 0: this device shares no passes.
    fn parking_lanes(&self) -> u32 {
        0
    }

    /// Stages that may be enqueued behind the one that runs, per lane (0: one at a time).
    fn stages_ahead(&self) -> u32;

    fn memory_model(&self) -> MemoryModel;

    /// Whether it looks at a sample of a witness's constraints before it proves anything of it, by whatever plan it works, so
    /// that the host need not check all of them before. (A proof is verified in any case, and before anybody is blamed for
    /// one that does not hold every constraint is looked at; this decides who finds out, and when.)
    fn checks_rows(&self) -> bool {
        false
    }

    /// The sizes that decide what memory such work takes: its own. A simulated device says those of the circuit that
    /// it stands for.
    fn sizes(&self, circuit: &CircuitId, shape: &R1csShape, srs: &Srs) -> (ShapeSummary, SrsSummary) {
        let _ = circuit;
        (ShapeSummary::of(shape), SrsSummary::of(srs))
    }

    /// Gives an empty `lane` a partition to run as `plan` says: in every stage no more than
    /// `plan.stage_bytes[stage]` of working memory, and `plan.resident` queries loaded by the `Upload` stage unless
    /// they are there already. Resident queries stay until [`evict_srs`](Self::evict_srs).
    ///
    /// # Errors
    /// If the work cannot even begin; nothing is held then.
    fn begin(&mut self, lane: LaneIndex, work: PartitionWork, plan: &ProvePlan) -> Result<(), DeviceError>;

    /// Enqueues the next stage of the lane's partition and returns at once.
    ///
    /// # Errors
    /// If it cannot be enqueued; the lane is empty then.
    fn enqueue(&mut self, lane: LaneIndex, stage: Stage) -> Result<(), DeviceError>;

    /// Frees all working memory of a lane whose `SumH` is done and after it nothing was enqueued. Its partition goes on in a
    /// pass. Only asked of a device that has [`parking_lanes`](Self::parking_lanes).
    fn park(&mut self, lane: LaneIndex) {
        unreachable!("lane {} is parked on a device that shares no passes", lane.0)
    }

    /// Lets parked lanes, all of one circuit and key, go on together as `plan` says, with all of them in no more working memory
    /// than that. A sum of the pass runs when each of the lanes that are left has it enqueued, and ends for all of them
    /// together; a lane that fails or is aborted leaves the others as they are. What fails for all of them is reported as a
    /// failure of each. Only asked of a device that has [`parking_lanes`](Self::parking_lanes).
    fn begin_pass(&mut self, lanes: &[LaneIndex], plan: &PassPlan) {
        let _ = plan;
        unreachable!("a pass of {lanes:?} on a device that shares none")
    }

    /// Everything that finished since the last poll, in order per lane.
    fn poll(&mut self) -> Vec<BackendEvent>;

    /// The finished proof of a lane whose `Assemble` stage is done. The lane is empty afterwards.
    ///
    /// # Errors
    /// If there is none: a bug of the caller or of the backend.
    fn take_proof(&mut self, lane: LaneIndex) -> Result<FinishedProof, DeviceError>;

    /// Stops the lane's partition at the next stage boundary, or before if the backend can: stages that have not
    /// begun are dropped. Exactly one [`BackendEvent::Aborted`] follows, also if nothing was running. A failure of the
    /// running stage is no longer reported, unless it loses the device.
    fn abort(&mut self, lane: LaneIndex);

    /// The queries of this circuit that are loaded.
    fn resident(&self, circuit: &CircuitId) -> QuerySet;

    /// Frees a circuit's queries on the device; `false` if there were none. The actor does not ask while a lane uses
    /// them.
    fn evict_srs(&mut self, circuit: &CircuitId) -> bool;

    /// Device memory in use by this backend, in bytes, resident queries included.
    fn memory_in_use_bytes(&self) -> u64;

    /// Gives idle pooled memory back to the system.
    fn trim(&mut self);

    /// Lets go of a device that hangs or is gone. Freeing its handles would wait for it, so they are leaked; a backend
    /// whose teardown never waits may clean up.
    fn abandon(self)
    where
        Self: Sized,
    {
        std::mem::forget(self);
    }
}

/// Opens a device on its actor's thread. The factory crosses threads, the backend does not.
pub trait BackendFactory: Send + Sync + 'static {
    type Backend: DeviceBackend;

    fn device_id(&self) -> DeviceId;

    /// `cpu`, `sim`, `cuda`.
    fn backend(&self) -> &'static str;

    /// Opens the device. May block: the actor has not reported ready yet. `waker` is called, from any thread, each
    /// time something may be there to [`poll`](DeviceBackend::poll).
    ///
    /// # Errors
    /// [`DeviceError::Open`] saying why there is no such device now.
    fn open(&self, waker: BackendWaker) -> Result<Self::Backend, DeviceError>;

    /// `false` if its proofs are placeholders: no self-test can be made then.
    fn makes_proofs(&self) -> bool {
        true
    }

    /// Limits that suit this kind of device.
    fn watchdog(&self) -> WatchdogConfig {
        WatchdogConfig::default()
    }
}
