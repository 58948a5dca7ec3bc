//! What a device actor is given at its start: its settings and the peers it may speak to.

use std::time::Duration;

use actix::Recipient;

use crate::backend::WatchdogConfig;
use crate::messages::device::{PartitionFailed, PartitionProved, StageFinished};
use crate::messages::events::EventSink;
use crate::messages::lifecycle::{DeviceLost, DeviceReady, Drained, ResidencyChanged};
use crate::messages::status::StatusBoard;
use crate::policy::batch::BatchPolicy;

/// Settings of one device actor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceConfig {
    /// Device memory that may be used, in bytes. `None`: nine tenths of what the device has.
    pub budget_bytes: Option<u64>,
    /// Part of the budget that only CRITICAL work may use.
    pub critical_reserve_bytes: u64,
    /// How many partitions may share a pass over streamed queries, and how long the first of them waits for the others at most
    /// ([`crate::policy::shared_pass`]).
    pub batches: BatchPolicy,
    /// `None`: as the backend advises ([`crate::backend::BackendFactory::watchdog`]).
    pub watchdog: Option<WatchdogConfig>,
    /// How often the device is asked for finished stages besides its own wake-ups, and cancels and the watchdog are
    /// looked at.
    pub tick: Duration,
    /// Prove a known answer before the device reports ready. Ignored by backends that make no real proofs.
    pub self_test: bool,
}

impl DeviceConfig {
    /// What may be used of a device that has `total_bytes`.
    pub fn budget_bytes_of(&self, total_bytes: u64) -> u64 {
        self.budget_bytes.unwrap_or(total_bytes / 10 * 9)
    }
}

impl Default for DeviceConfig {
    fn default() -> Self {
        Self {
            budget_bytes: None,
            critical_reserve_bytes: 0,
            batches: BatchPolicy::default(),
            watchdog: None,
            tick: Duration::from_millis(20),
            self_test: true,
        }
    }
}

/// Whom a device actor tells what.
#[derive(Clone, Debug)]
pub struct DevicePeers {
    /// Which actor of its device this is; it says so in what it tells. Higher than every predecessor's.
    pub life: u64,
    pub proved: Recipient<PartitionProved>,
    pub failed: Recipient<PartitionFailed>,
    pub stage_finished: Recipient<StageFinished>,
    pub residency_changed: Recipient<ResidencyChanged>,
    /// The Scheduler and the Supervisor.
    pub ready: Vec<Recipient<DeviceReady>>,
    /// The Scheduler and the Supervisor.
    pub lost: Vec<Recipient<DeviceLost>>,
    pub drained: Recipient<Drained>,
    /// Where it writes its own state.
    pub board: StatusBoard,
    pub events: EventSink,
}
