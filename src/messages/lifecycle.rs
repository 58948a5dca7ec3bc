//! Supervisor <-> everyone: start, loss, drain.

use std::time::Duration;

use actix::prelude::Message;
use actix::Recipient;
use actix_rt::ArbiterHandle;

use crate::backend::DeviceInfo;
use crate::error::DeviceError;
use crate::ids::{CircuitId, DeviceId};
use crate::messages::device::{EvictSrs, PartitionFailed, PartitionProved, ProvePartition, StageFinished};
use crate::messages::status::GetDeviceStatus;

/// Where a device actor sends its facts. The Supervisor fills it in; clones go to the same places.
#[derive(Clone, Debug)]
pub struct DeviceLinks {
    /// Supervisor and Scheduler.
    pub ready: Vec<Recipient<DeviceReady>>,
    /// Supervisor and Scheduler. Sent as well (instead of `ready`) when the backend does not open.
    pub lost: Vec<Recipient<DeviceLost>>,
    pub drained: Recipient<Drained>,
    pub residency: Recipient<ResidencyChanged>,
    pub proved: Recipient<PartitionProved>,
    pub failed: Recipient<PartitionFailed>,
    pub stage_finished: Recipient<StageFinished>,
}

/// Builds a device actor, again and again: what the Supervisor keeps of a device. Erases the backend's type.
pub trait DeviceSpawner: Send + Sync + 'static {
    fn device_id(&self) -> DeviceId;

    /// Starts a fresh actor on `arbiter` and returns at once; [`DeviceReady`] or [`DeviceLost`] follows. The actor
    /// stops by itself after `Drained` and after `DeviceLost`. `watchdog_floor`: the least a stage may take before
    /// it counts as hung.
    ///
    /// The recipient's `connected()` tells whether the actor still lives.
    fn spawn(&self, arbiter: &ArbiterHandle, links: DeviceLinks, watchdog_floor: Duration) -> Recipient<Drain>;
}

/// Fact, device -> Supervisor and Scheduler: the backend is open and proved its known answer.
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub struct DeviceReady {
    pub info: DeviceInfo,
    pub num_lanes: u32,
    pub address: DeviceAddress,
}

/// What peers may say to a device, and nothing else.
#[derive(Debug, Clone)]
pub struct DeviceAddress {
    pub prove: Recipient<ProvePartition>,
    pub evict: Recipient<EvictSrs>,
    pub status: Recipient<GetDeviceStatus>,
}

/// Fact, device -> Supervisor and Scheduler: this device takes no more work. Every partition it held is reported
/// by `PartitionFailed` before this; the Supervisor rebuilds the actor from its factory.
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub struct DeviceLost {
    pub device: DeviceId,
    pub error: DeviceError,
}

/// Fact, device -> Scheduler: a circuit's SRS is (no longer) resident.
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub struct ResidencyChanged {
    pub device: DeviceId,
    pub circuit: CircuitId,
    pub resident: bool,
}

/// Fact, Supervisor -> Scheduler: a device is out of service. `returns`: whether it may come back by itself.
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub struct DeviceWithdrawn {
    pub device: DeviceId,
    pub reason: String,
    pub returns: bool,
}

/// Command: take no new work, finish what runs, answer [`Drained`].
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub struct Drain;

/// Fact: nothing runs in this actor any more.
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub struct Drained {
    pub actor: String,
}

/// Fact, Supervisor -> Scheduler: an actor died (panic) and is being rebuilt; what it held must be given again.
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub struct ActorDied {
    pub actor: String,
    pub device: Option<DeviceId>,
}
