//! Snapshots of state: published, never asked for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use serde::Serialize;

use crate::circuits::WorkKind;
use crate::ids::DeviceId;
use crate::messages::job::Priority;

/// A device's state at one moment. Sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeviceStatus {
    pub id: String,
    pub name: String,
    pub backend: String,
    pub health: String,
    pub num_lanes: u32,
    pub lanes_busy: u32,
    pub budget_bytes: u64,
    pub reserved_bytes: u64,
    pub in_use_bytes: u64,
    pub resident_srs: Vec<String>,
    /// Memory of this device that each of them holds.
    pub srs_bytes: BTreeMap<String, u64>,
    pub partitions_proved: u64,
    pub partitions_failed: u64,
    /// Counts the actor's looks at the clock: a heartbeat.
    pub num_ticks: u64,
}

/// What each device last said of itself. Every device actor writes its own entry and no other, at each tick and after
/// each change; any thread reads. No entry is held across a send or an await.
pub type StatusBoard = Arc<DashMap<DeviceId, DeviceStatus>>;

/// The whole engine at one moment. Made by the Scheduler; reading it waits for nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct EngineStatus {
    /// Jobs are accepted, what was to be loaded first is loaded, and at least one device can prove.
    pub ready: bool,
    /// Ready, and something is not as it should be.
    pub degraded: bool,
    /// No device is left, or no Synthesizer, and none will come back: why. Nothing will ever be proved again, and a process
    /// may end.
    pub fatal: Option<String>,
    /// Why not ready, or what is not as it should be.
    pub reasons: Vec<String>,
    pub draining: bool,
    pub uptime_ms: u64,
    pub devices: Vec<EngineDeviceStatus>,
    pub queues: Vec<QueueStatus>,
    pub circuits: Vec<CircuitStatus>,
    /// Jobs that have not ended, oldest first.
    pub jobs: Vec<JobStatus>,
    /// Jobs of the journal that are still to be decoded and queued again.
    pub recovering: u64,
    pub totals: Totals,
    /// Of the host's memory, for witnesses.
    pub host_memory_reserved_bytes: u64,
    /// Of circuits: loaded, being loaded, and let go but still held by running work.
    pub circuit_memory_reserved_bytes: u64,
    /// Part of that: circuits that stay until they are evicted.
    pub circuit_memory_pinned_bytes: u64,
    /// What all of it together may be.
    pub host_memory_budget_bytes: u64,
    /// How long the Scheduler's steps took: none may make callers, devices or this status wait.
    pub step_times: StepTimes,
}

impl EngineStatus {
    /// The part of it that a health check asks for.
    pub fn readiness(&self) -> Readiness {
        Readiness {
            ready: self.ready,
            degraded: self.degraded,
            fatal: self.fatal.clone(),
            reasons: self.reasons.clone(),
        }
    }
}

/// Upper ends of the first classes of [`StepTimes`], in microseconds; the last class has none.
pub const STEP_CLASSES_US: [u64; 9] = [10, 50, 100, 250, 500, 1_000, 5_000, 20_000, 100_000];

/// How long steps of an actor took, counted in classes of [`STEP_CLASSES_US`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct StepTimes {
    pub counts: [u64; STEP_CLASSES_US.len() + 1],
    pub sum_us: u64,
}

impl StepTimes {
    pub fn record(&mut self, elapsed: Duration) {
        let elapsed_us = elapsed.as_micros() as u64;
        let class = STEP_CLASSES_US.partition_point(|&end_us| end_us < elapsed_us);
        self.counts[class] += 1;
        self.sum_us += elapsed_us;
    }
}

/// Whether an engine can prove, and what is not as it should be. See [`EngineStatus`] for the fields.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Readiness {
    pub ready: bool,
    pub degraded: bool,
    pub fatal: Option<String>,
    pub reasons: Vec<String>,
}

/// A device as the Scheduler sees it, with the device's own figures where it has answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EngineDeviceStatus {
    pub id: String,
    pub name: String,
    pub backend: String,
    /// `starting`, `ready`, `withdrawn`, `gone`.
    pub state: String,
    /// `healthy`, `degraded`, `quarantined`, `probation`.
    pub health: String,
    /// `general`, `reserved-for-critical`, `fallback`.
    pub role: String,
    pub num_lanes: u32,
    pub lanes_busy: u32,
    pub memory_total_bytes: u64,
    /// What this engine may use of it.
    pub memory_budget_bytes: u64,
    /// Reserved by plans of running work and by resident keys.
    pub memory_reserved_bytes: u64,
    pub memory_in_use_bytes: u64,
    /// Of the partition that took most memory, without resident keys: what its plan foresaw.
    pub partition_planned_bytes: u64,
    /// The same: what the device measured.
    pub partition_peak_bytes: u64,
    pub resident_srs: Vec<String>,
    /// Memory of this device that each of them holds, as far as the device has said so.
    pub srs_bytes: BTreeMap<String, u64>,
    pub partitions_proved: u64,
    pub partitions_failed: u64,
    pub invalid_proofs: u64,
    pub restarts: u64,
    /// Counts the actor's looks at the clock: a heartbeat. 0 while it is not in service.
    pub num_ticks: u64,
}

/// Partitions of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct QueueStatus {
    pub kind: WorkKind,
    /// Not yet on a device.
    pub pending: u64,
    /// On a device or being verified.
    pub in_progress: u64,
}

/// A circuit in host memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CircuitStatus {
    pub circuit: String,
    /// `loading` (measured, waiting for memory or being read), `ready`.
    pub state: String,
    /// Shape and SRS: reserved for it.
    pub num_bytes: u64,
    /// It stays until it is evicted.
    pub pinned: bool,
}

/// A job that has not ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct JobStatus {
    pub job: String,
    pub request_id: String,
    /// What the job is found by: [`crate::messages::job::job_name`].
    pub name: String,
    pub kind: WorkKind,
    pub circuit: String,
    pub priority: Priority,
    pub num_partitions: u32,
    pub num_done: u32,
    /// Partitions on a device or being verified.
    pub num_running: u32,
    /// Where those in progress are, each once.
    pub devices: Vec<String>,
    /// Those in progress, in their order.
    pub running: Vec<RunningPartition>,
    pub age_ms: u64,
}

/// A partition in progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RunningPartition {
    pub partition: u32,
    pub device: String,
    /// The device's stage, such as `sum-h`; `verify` once its proof is there.
    pub doing: String,
}

/// Counted since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Jobs that were let in. One whose record then cannot be written has failed, and its caller is told so before it is
    /// acknowledged.
    pub accepted: u64,
    pub attached: u64,
    pub refused: u64,
    /// Jobs of the journal that were queued again after a restart, or ended before they could be.
    pub recovered: u64,
    pub completed: u64,
    pub failed: u64,
    pub cancelled: u64,
    /// Of those that failed.
    pub deadline_exceeded: u64,
    /// Partitions given to a device.
    pub dispatched: u64,
    /// Of these, given to a fallback because no other device was left for them.
    pub fallback: u64,
    /// Partitions given to a device again after a failure.
    pub retried: u64,
    /// Proofs that did not verify.
    pub invalid_proofs: u64,
    /// Results that nobody had asked for, or no longer: dropped.
    pub late_results: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_counts_in_the_first_class_that_holds_it() {
        let mut times = StepTimes::default();
        for elapsed_us in [0, 10, 11, 100_000, 100_001] {
            times.record(Duration::from_micros(elapsed_us));
        }
        assert_eq!(times.counts, [2, 1, 0, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!(times.sum_us, 200_022);
    }
}
