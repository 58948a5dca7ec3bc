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

/// The right to occupy one lane of a device. Dropping it, also by a panic, tells the Scheduler [`LaneFreed`].
pub struct LaneCredit {
    device: DeviceId,
    incarnation: u64,
    freed: Recipient<LaneFreed>,
}

impl LaneCredit {
    pub fn new(device: DeviceId, freed: Recipient<LaneFreed>) -> Self {
        Self { device, incarnation: 0, freed }
    }

    /// Marks the credit as one of this life of the device, so that it cannot free a lane of its successor.
    pub fn of_incarnation(mut self, incarnation: u64) -> Self {
        self.incarnation = incarnation;
        self
    }

    pub fn device(&self) -> &DeviceId {
        &self.device
    }
}

impl fmt::Debug for LaneCredit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LaneCredit({})", self.device)
    }
}

impl Drop for LaneCredit {
    fn drop(&mut self) {
        self.freed.do_send(LaneFreed { device: self.device.clone(), incarnation: self.incarnation });
    }
}

/// A lane's credit came back.
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub struct LaneFreed {
    pub device: DeviceId,
    /// Which life of the device the credit belonged to.
    pub incarnation: u64,
}

/// Command: prove one partition. Accepted means: an answer ([`PartitionProved`] or [`PartitionFailed`]) will come.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct ProvePartition {
    pub work: PartitionWork,
    pub priority: Priority,
    pub cancel: CancelFlag,
    pub credit: LaneCredit,
    pub span: tracing::Span,
}

/// Fact: what one partition took.
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
    pub memory_peak_bytes: u64,
}

/// Fact: a device gave a partition up.
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

/// Command: free a circuit's SRS on this device. `Ok(false)`: it was not resident.
#[derive(Debug, Message)]
#[rtype(result = "Result<bool, DeviceError>")]
pub struct EvictSrs {
    pub circuit: CircuitId,
}
