//! What a device actor drives: [`DeviceBackend`].
//!
//! The contract is drawn for CUDA: work is enqueued and polled, nothing here waits, memory is reserved before it is
//! used, a lane is an ordered stream of stages, and a finished stage wakes the actor through [`BackendWaker`].

pub mod cpu;
pub mod sim;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::DeviceError;
use crate::groth16::{Assignment, Blinding, Evaluations, Proof, R1csShape, Srs};
use crate::ids::{CircuitId, DeviceId, WorkRef};

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// SRS made resident (or streaming prepared), witness on the device.
    Upload,
    /// Row values, if the witness came without them.
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
    pub at: WorkRef,
    pub circuit: CircuitId,
    pub shape: Arc<R1csShape>,
    pub srs: Arc<Srs>,
    pub assignment: Arc<Assignment>,
    /// Row values, if the witness check already made them.
    pub evaluations: Option<Evaluations>,
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

/// What a poll reports.
#[derive(Debug)]
pub enum BackendEvent {
    StageDone {
        lane: LaneIndex,
        stage: Stage,
        elapsed: Duration,
    },
    /// The stage failed; the lane holds nothing any more.
    StageFailed {
        lane: LaneIndex,
        stage: Stage,
        error: DeviceError,
    },
}

/// Wakes the device actor from any thread: "poll me". Cheap, never blocks, may be called spuriously.
pub type BackendWaker = Arc<dyn Fn() + Send + Sync>;

/// One open device. Created, used and dropped on its actor's thread; need not be `Send`.
pub trait DeviceBackend: 'static {
    fn info(&self) -> DeviceInfo;

    /// Lanes this device runs side by side.
    fn num_lanes(&self) -> u32;

    /// Stages that may be enqueued ahead of the one that runs, per lane (0: one at a time).
    fn stages_ahead(&self) -> u32;

    /// Gives `lane` a partition. Allocates nothing beyond `reservation_bytes`.
    fn begin(
        &mut self,
        lane: LaneIndex,
        work: PartitionWork,
        reservation_bytes: u64,
    ) -> Result<(), DeviceError>;

    /// Enqueues the next stage of the lane's partition and returns at once.
    fn enqueue(&mut self, lane: LaneIndex, stage: Stage) -> Result<(), DeviceError>;

    /// Everything that finished since the last poll, in order per lane.
    fn poll(&mut self) -> Vec<BackendEvent>;

    /// The finished proof of a lane whose `Assemble` stage is done. The lane is free afterwards.
    fn take_proof(&mut self, lane: LaneIndex) -> Result<Proof, DeviceError>;

    /// Drops the lane's partition once its running stage ends; that end is still reported.
    fn abort(&mut self, lane: LaneIndex);

    /// Frees a circuit's SRS on the device; `false` if it was not resident.
    fn evict_srs(&mut self, circuit: &CircuitId) -> bool;

    /// Bytes of device memory in use by this backend, and the highest value since `begin` of the running work.
    fn memory_in_use_bytes(&self) -> u64;

    /// Gives idle pooled memory back.
    fn trim(&mut self);
}

/// Opens a device on its actor's thread. The factory crosses threads, the backend does not.
pub trait BackendFactory: Send + Sync + 'static {
    type Backend: DeviceBackend;

    fn device_id(&self) -> DeviceId;

    fn open(&self, waker: BackendWaker) -> Result<Self::Backend, DeviceError>;
}
