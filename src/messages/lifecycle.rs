//! Supervisor <-> everyone: start, loss, drain.

use std::fmt;
use std::time::Duration;

use actix::prelude::Message;
use actix::Recipient;

use crate::backend::{DeviceInfo, MemoryModel};
use crate::error::DeviceError;
use crate::ids::{CircuitId, DeviceId};
use crate::messages::device::{EvictSrs, ProvePartition};
use crate::messages::srs::PreloadSrs;
use crate::policy::batch::BatchPolicy;

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
    pub memory: DeviceMemory,
    /// As [`crate::backend::DeviceBackend::checks_rows`] says.
    pub checks_rows: bool,
    pub address: DeviceAddress,
}

/// What a device may use of its memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceMemory {
    /// The most that a partition which is not CRITICAL can ever have.
    pub normal_limit_bytes: u64,
    /// The most that a CRITICAL one can.
    pub critical_limit_bytes: u64,
    pub model: MemoryModel,
}

/// What peers may say to a device, and nothing else.
#[derive(Debug, Clone)]
pub struct DeviceAddress {
    pub prove: Recipient<ProvePartition>,
    pub evict: Recipient<EvictSrs>,
    pub preload: Recipient<PreloadSrs>,
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
    pub actor: ActorName,
}

/// Which actor a fact is about. Prints as `scheduler`, `synthesizer`, `device sim-0`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ActorName {
    Scheduler,
    Synthesizer,
    Device(DeviceId),
}

impl fmt::Display for ActorName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scheduler => f.write_str("scheduler"),
            Self::Synthesizer => f.write_str("synthesizer"),
            Self::Device(id) => write!(f, "device {id}"),
        }
    }
}

/// Fact, Supervisor -> Scheduler: the Synthesizer or a device died (panic); what it held must be given again. Its
/// successor's `SynthesizerReady` or `DeviceReady` follows, unless it is withdrawn.
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub struct ActorDied {
    pub actor: ActorName,
}

/// Fact, Supervisor -> Scheduler: the Synthesizer died too often.
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub struct SynthesizerWithdrawn {
    /// It will not be tried again: nothing will ever be decoded, synthesized or verified.
    pub is_permanent: bool,
    pub reason: String,
}

/// Why a device is out of service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Withdrawal {
    /// It has not opened in time. It still may: then its [`DeviceReady`] counts, whichever of the two comes first.
    NotOpen,
    /// It was lost too often, and will be tried again.
    Quarantined,
    /// It will not be tried again.
    GivenUp,
}

/// Fact, Supervisor -> Scheduler: a device is out of service.
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub struct DeviceWithdrawn {
    pub device: DeviceId,
    /// The actor of this device that was started last when this was said, as in [`DeviceReady`].
    pub life: u64,
    pub cause: Withdrawal,
    pub reason: String,
}

/// What of an engine can be set while it runs. The fields are those of `EngineConfig`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuntimeSettings {
    pub max_queued_jobs: usize,
    pub max_attempts: u32,
    pub retained_results: usize,
    pub affinity_limit: Duration,
    pub batches: BatchPolicy,
    pub idle_limit: Option<Duration>,
    pub host_memory_budget_bytes: u64,
}

/// Command, Engine -> Scheduler: other settings from now on. Nothing that was let in under the former ones is put out.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "()")]
pub struct Reconfigure {
    pub settings: RuntimeSettings,
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
