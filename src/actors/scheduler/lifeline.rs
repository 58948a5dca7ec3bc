//! What the Scheduler tells of its work, for those who want to see it: events, and a span per attempt.
//!
//! Nothing here decides anything, and nothing is built while nobody listens.

use std::time::Duration;

use super::job::Job;
use super::Scheduler;
use crate::circuits::WorkKind;
use crate::error::EngineError;
use crate::ids::{Attempt, DeviceId, JobId, PartitionIndex, WorkRef};
use crate::messages::device::LaneKind;
use crate::messages::events::{AttemptRef, EventKind, JobOutcome};
use crate::messages::job::JobResult;
use crate::messages::lifecycle::DeviceReady;
use crate::policy::host_memory::HostPart;

/// What was told last of figures that are told when they change.
#[derive(Default)]
pub(super) struct Told {
    host_memory: (u64, u64),
}

impl Scheduler {
    pub(super) fn tell_accepted(&self, id: JobId) {
        self.config.events.emit(|| {
            let spec = &self.jobs[&id].spec;
            EventKind::JobAccepted {
                job: id,
                request_id: spec.request_id.clone(),
                kind: spec.workload.kind(),
                circuit: spec.workload.circuit().clone(),
                priority: spec.priority,
                num_partitions: spec.workload.num_partitions(),
                deadline_us: spec.deadline.map(|deadline| micros(deadline.saturating_sub(spec.accepted_at))),
            }
        });
    }

    pub(super) fn tell_refused(&self, kind: WorkKind, error: &EngineError) {
        self.config.events.emit(|| EventKind::JobRefused { kind, reason: error.to_string() });
    }

    pub(super) fn tell_witness_begun(&self, job: JobId, partition: PartitionIndex, num_bytes: u64) {
        self.config.events.emit(|| EventKind::WitnessBegun { job, partition, num_bytes });
    }

    pub(super) fn tell_witness_made(&self, job: JobId, partition: PartitionIndex, elapsed: Duration) {
        self.config.events.emit(|| EventKind::WitnessMade { job, partition, elapsed_us: micros(elapsed) });
    }

    pub(super) fn tell_placed(&self, at: AttemptRef, device: &DeviceId, lane: LaneKind) {
        self.config.events.emit(|| EventKind::Placed {
            at,
            device: device.clone(),
            critical_lane: lane == LaneKind::Critical,
        });
    }

    pub(super) fn tell_verified(&self, at: &WorkRef, device: &DeviceId) {
        let Some(at) = AttemptRef::of(at) else { return };
        self.config.events.emit(|| EventKind::PartitionVerified { at, device: device.clone() });
    }

    /// An attempt failed, whoever found out.
    pub(super) fn tell_attempt_failed(&self, at: AttemptRef, device: &DeviceId, invalid: bool, why: &str) {
        self.config.events.emit(|| EventKind::AttemptFailed {
            at,
            device: device.clone(),
            invalid,
            reason: why.to_owned(),
        });
    }

    pub(super) fn tell_ended(&self, job: &Job, result: &JobResult) {
        self.config.events.emit(|| EventKind::JobEnded {
            job: job.spec.id,
            kind: job.spec.workload.kind(),
            outcome: outcome_of(result),
            num_partitions: job.spec.workload.num_partitions(),
            retries: job.retries,
            queue_us: micros(job.timings.queue_wait),
            total_us: micros(self.now().saturating_sub(job.spec.accepted_at)),
            reason: result.as_ref().err().map(ToString::to_string),
        });
    }

    pub(super) fn tell_device_ready(&self, ready: &DeviceReady) {
        self.config.events.emit(|| EventKind::DeviceReady {
            device: ready.info.id.clone(),
            name: ready.info.name.clone(),
            backend: ready.info.backend.to_owned(),
            num_lanes: ready.num_lanes,
            num_critical_lanes: ready.num_critical_lanes,
            memory_bytes: ready.info.memory_total_bytes,
        });
    }

    pub(super) fn tell_device_down(&self, device: &DeviceId, gone: bool, reason: &str) {
        self.config.events.emit(|| EventKind::DeviceDown {
            device: device.clone(),
            gone,
            reason: reason.to_owned(),
        });
    }

    /// Figures that change for many reasons: compared after every step, told if they are others than before.
    pub(super) fn tell_changes(&mut self) {
        if !self.config.events.is_on() {
            return;
        }
        let budget = self.memory.budget();
        let host_memory = (budget.part_bytes(HostPart::Witnesses), budget.part_bytes(HostPart::Circuits));
        if std::mem::replace(&mut self.told.host_memory, host_memory) != host_memory {
            let (witness_bytes, circuit_bytes) = host_memory;
            self.config.events.emit(|| EventKind::HostMemory { witness_bytes, circuit_bytes });
        }
        let now = self.now();
        for (id, device) in self.devices.iter_mut() {
            let health = device.health.health(now);
            if device.told_health.replace(health) != Some(health) {
                let (device, health) = (id.clone(), health.as_str().to_owned());
                self.config.events.emit(|| EventKind::DeviceHealth { device, health });
            }
        }
    }
}

/// The span of one attempt at a partition, in its job's.
pub(super) fn attempt_span(
    parent: &tracing::Span,
    job: JobId,
    partition: PartitionIndex,
    attempt: Attempt,
) -> tracing::Span {
    tracing::info_span!(parent: parent, "partition", %job, %partition, %attempt)
}

fn outcome_of(result: &JobResult) -> JobOutcome {
    match result {
        Ok(_) => JobOutcome::Completed,
        Err(EngineError::Cancelled { .. }) => JobOutcome::Cancelled,
        Err(EngineError::DeadlineExceeded { .. }) => JobOutcome::Expired,
        Err(_) => JobOutcome::Failed,
    }
}

fn micros(duration: Duration) -> u64 {
    duration.as_micros() as u64
}
