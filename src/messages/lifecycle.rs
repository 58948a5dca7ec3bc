//! Supervisor <-> everyone: start, loss, drain.

use std::time::Duration;

use actix::prelude::Message;
use actix::Recipient;

use crate::backend::DeviceInfo;
use crate::error::DeviceError;
use crate::ids::{CircuitId, DeviceId};
use crate::messages::device::{EvictSrs, ProvePartition};
use crate::messages::status::GetDeviceStatus;

/// Fact, device -> Supervisor and Scheduler: the backend is open and proved its known answer.
/// Sent once per actor; one [`crate::messages::device::LaneCredit`] per lane may be made.
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub struct DeviceReady {
    pub info: DeviceInfo,
    /// Which actor of this device says so: each one that is started has a higher number. Facts of an earlier one are
    /// void, since they may come after its successor was started.
    pub life: u64,
    pub num_lanes: u32,
    /// Further lanes that take CRITICAL work only.
    pub num_critical_lanes: u32,
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
/// by `PartitionFailed` before this; the actor then stops by itself (mail that is already queued is still answered),
/// and the Supervisor rebuilds it from its factory. Also sent when opening the device or its self-test fails.
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub struct DeviceLost {
    pub device: DeviceId,
    /// As in [`DeviceReady`].
    pub life: u64,
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

/// Command: take no new work, finish what runs, answer [`Drained`], stop. Idempotent. An actor that has died or has
/// reported its device lost answers nothing.
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub struct Drain;

/// Fact: nothing runs in this actor any more; it has closed what it owned and stops by itself.
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub struct Drained {
    /// The actor's name: `scheduler`, `synthesizer`, `device sim-0`.
    pub actor: String,
}

/// Fact, Supervisor -> Scheduler: an actor died (panic) and is being rebuilt; what it held must be given again.
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub struct ActorDied {
    pub actor: String,
    pub device: Option<DeviceId>,
}

/// Fact, Supervisor -> Scheduler: a device is out of service. `returns`: whether it will be tried again.
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub struct DeviceWithdrawn {
    pub device: DeviceId,
    pub reason: String,
    pub returns: bool,
}

/// Command, Supervisor -> Scheduler: the drain time is over; end every job that is left. `Drained` follows.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "()")]
pub struct EndJobs;

/// Command, Engine -> Supervisor: take nothing new, let what runs finish for `drain` at most, stop everything.
/// Idempotent; a shorter `drain` counts.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "()")]
pub struct Shutdown {
    pub drain: Duration,
}

/// Command, Supervisor -> Scheduler, Synthesizer and devices: stop. Sent when everything has drained, and to devices
/// that did not in time: whatever they still hold gets no answer.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "()")]
pub struct StopActor;
