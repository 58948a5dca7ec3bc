//! The store of proving keys, spoken to: Engine <-> Scheduler <-> GpuDevice.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::Message;
use actix::Recipient;
use serde::Serialize;

use crate::backend::PartitionWork;
use crate::circuits::Workload;
use crate::error::{DeviceError, EngineError};
use crate::ids::{CircuitId, DeviceId};
use crate::messages::device::LaneCredit;
use crate::messages::job::Priority;

/// Command with a long answer, Engine -> Scheduler: have a circuit loaded before a job needs it. The reply comes when it
/// is loaded, or cannot be.
#[derive(Message)]
#[rtype(result = "Result<CircuitLoaded, EngineError>")]
pub struct PreloadCircuit {
    /// Knows the circuit's key and how its shape is recorded. No witness is asked of it.
    pub workload: Arc<dyn Workload>,
    /// It stays on the host until it is evicted, whatever else needs the memory, and is loaded again on a device that was
    /// rebuilt.
    pub pinned: bool,
    /// Also load its queries on every device that keeps any.
    pub on_devices: bool,
    /// Its place among those who wait for memory.
    pub priority: Priority,
    pub span: tracing::Span,
}

impl fmt::Debug for PreloadCircuit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreloadCircuit")
            .field("circuit", self.workload.circuit())
            .field("pinned", &self.pinned)
            .field("on_devices", &self.on_devices)
            .finish_non_exhaustive()
    }
}

/// Reply: where a circuit is now, and what it takes there.
#[derive(Clone, Debug)]
pub struct CircuitLoaded {
    pub circuit: CircuitId,
    /// It was on the host when the command came.
    pub was_loaded: bool,
    /// Shape and SRS, reserved on the host.
    pub host_bytes: u64,
    pub pinned: bool,
    /// Each device that was asked; empty if none was to be.
    pub devices: Vec<(DeviceId, Residence)>,
    pub elapsed: Duration,
}

/// What a device has of a circuit's key.
#[derive(Clone, Debug)]
pub enum Residence {
    /// Queries of this many bytes stay there.
    Resident { num_bytes: u64 },
    /// None stays: every partition streams them from the host.
    Streamed,
    /// The device reads host memory.
    InPlace,
    /// It could not be loaded there.
    Failed(DeviceError),
}

impl Residence {
    /// Bytes on the device itself.
    pub fn num_bytes(&self) -> u64 {
        match self {
            Self::Resident { num_bytes } => *num_bytes,
            Self::Streamed | Self::InPlace | Self::Failed(_) => 0,
        }
    }
}

/// Command, Engine -> Scheduler: let a circuit go, on the host and on every device. Refused while a job of it has not
/// ended.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<CircuitEvicted, EngineError>")]
pub struct EvictCircuit {
    pub circuit: CircuitId,
}

/// Reply: what was let go of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CircuitEvicted {
    pub circuit: CircuitId,
    /// What was reserved for it on the host; 0 if it was not loaded.
    pub host_bytes: u64,
    /// Each device in service.
    pub devices: Vec<(DeviceId, Eviction)>,
}

/// What an eviction on one device did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Eviction {
    /// It was not there.
    Absent,
    /// This much device memory is free now.
    Freed { num_bytes: u64 },
    /// A partition still uses it: it goes with the last one that does.
    WhenIdle { num_bytes: u64 },
}

/// Command, Scheduler -> GpuDevice, by `do_send`: load what the device keeps of a key, without proving. Answered by
/// [`SrsPreloaded`], unless the actor dies.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct PreloadSrs {
    /// A partition of the circuit that is never proved: only its upload runs. Its witness is of zeros.
    pub work: PartitionWork,
    pub priority: Priority,
    /// The lane that it occupies meanwhile.
    pub credit: LaneCredit,
    pub answer: Recipient<SrsPreloaded>,
    pub span: tracing::Span,
}

/// Fact, GpuDevice -> Scheduler: what it has of a key now.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub struct SrsPreloaded {
    pub device: DeviceId,
    /// Of the actor that says so, as in [`crate::messages::lifecycle::DeviceReady`].
    pub life: u64,
    pub circuit: CircuitId,
    pub residence: Residence,
}
