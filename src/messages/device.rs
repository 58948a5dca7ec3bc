//! Scheduler <-> GpuDevice.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::Message;
use actix::Recipient;

use crate::backend::{PartitionWork, Stage};
use crate::error::DeviceError;
use crate::groth16::Proof;
use crate::ids::{CircuitId, DeviceId, WorkRef};
use crate::messages::job::Priority;
use crate::messages::srs::Eviction;

/// Set once to stop work at its next stage boundary. Clones share the flag.
#[derive(Clone, Default)]
pub struct CancelFlag(Arc<AtomicBool>);

impl CancelFlag {
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl fmt::Debug for CancelFlag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CancelFlag({})", self.is_cancelled())
    }
}

/// What a lane is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LaneKind {
    /// Any work.
    Normal,
    /// CRITICAL work only: a stream of higher priority, in reserved memory; it never waits for a normal partition.
    Critical,
}

/// The right to occupy one lane of a device. Dropping it, also by a panic, tells the Scheduler [`LaneFreed`].
///
/// The Scheduler makes as many as [`crate::messages::lifecycle::DeviceReady`] grants, spends one per
/// [`ProvePartition`], and gets it back as a message: the limit of a device is this, never its mailbox.
/// A credit that comes back only after its device's successor reported ready is of an earlier life, and not counted.
pub struct LaneCredit {
    device: DeviceId,
    life: u64,
    kind: LaneKind,
    freed: Recipient<LaneFreed>,
}

impl LaneCredit {
    /// `life`: the one that [`crate::messages::lifecycle::DeviceReady`] named. A credit of an earlier one is void.
    pub fn new(device: DeviceId, life: u64, kind: LaneKind, freed: Recipient<LaneFreed>) -> Self {
        Self { device, life, kind, freed }
    }

    pub fn device(&self) -> &DeviceId {
        &self.device
    }

    pub fn kind(&self) -> LaneKind {
        self.kind
    }
}

impl fmt::Debug for LaneCredit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LaneCredit({}, {:?})", self.device, self.kind)
    }
}

impl Drop for LaneCredit {
    fn drop(&mut self) {
        self.freed.do_send(LaneFreed { device: self.device.clone(), life: self.life, kind: self.kind });
    }
}

/// A lane's credit came back.
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub struct LaneFreed {
    pub device: DeviceId,
    pub life: u64,
    pub kind: LaneKind,
}

/// Command: prove one partition, sent by `do_send`. Exactly one answer comes, [`PartitionProved`] or
/// [`PartitionFailed`], unless the actor dies (then the Supervisor says [`crate::messages::lifecycle::ActorDied`]).
/// Refusals are failures too: [`DeviceError::NotTaking`] if the device drains or the credit's lane is not free.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct ProvePartition {
    pub work: PartitionWork,
    pub priority: Priority,
    pub cancel: CancelFlag,
    pub credit: LaneCredit,
    pub span: tracing::Span,
}

/// How long each stage of one partition ran, in order of their ends.
#[derive(Debug, Clone, Default)]
pub struct StageTimings(pub Vec<(Stage, Duration)>);

/// Fact: a device made a proof. It is not verified yet.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct PartitionProved {
    pub at: WorkRef,
    pub device: DeviceId,
    pub proof: Proof,
    pub timings: StageTimings,
    /// For how long it waited there for others to share a pass with, and what the others took of that. It says how busy the
    /// queue is, not how fast the device.
    pub waited_for_others: Duration,
    /// Highest device memory in use for this partition, without the resident SRS, as the backend measured it.
    pub memory_peak_bytes: u64,
    /// What the plan had foreseen for the same.
    pub memory_planned_bytes: u64,
}

/// Fact: a device gave a partition up. Its lane, its memory and its credit are free, or freed by the same handler.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct PartitionFailed {
    pub at: WorkRef,
    pub device: DeviceId,
    pub error: DeviceError,
}

/// Fact: a stage ended (progress).
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub struct StageFinished {
    pub at: WorkRef,
    pub device: DeviceId,
    pub stage: Stage,
    pub elapsed: Duration,
}

/// Command: free a circuit's SRS on this device.
#[derive(Debug, Message)]
#[rtype(result = "Result<Eviction, DeviceError>")]
pub struct EvictSrs {
    pub circuit: CircuitId,
    /// While a partition uses it: `true`, it is freed with the last one that does; `false`, this is refused.
    pub when_idle: bool,
}
