//! The status that any thread may read: made here, published on a watch channel, never asked for.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::devices::{Device, Service};
use super::job::{Job, Partition};
use super::{Scheduler, KINDS};
use crate::ids::{CircuitId, DeviceId};
use crate::messages::status::{
    CircuitStatus, DeviceStatus, EngineDeviceStatus, EngineStatus, JobStatus, QueueStatus, Readiness,
    RunningPartition,
};
use crate::policy::host_memory::HostPart;
use crate::policy::readiness::{readiness, DeviceFact, EngineFacts, ServiceFact};

/// With more jobs than this, the snapshot is not made at every change: its cost grows with them.
const MAX_JOBS_FOR_EVERY_CHANGE: usize = 32;

/// Least time between two snapshots of so many jobs. A job costs about half a microsecond in each, so this is below one
/// hundredth of the actor's time.
const INTERVAL_PER_JOB: Duration = Duration::from_micros(50);

/// Least time between two snapshots when there are many jobs.
const LEAST_INTERVAL: Duration = Duration::from_millis(50);

impl Scheduler {
    pub(super) fn publish(&mut self) {
        let now = self.now();
        let num_jobs = self.jobs.len();
        let mut interval = self.config.pace.status_interval;
        if num_jobs > MAX_JOBS_FOR_EVERY_CHANGE {
            let by_cost = INTERVAL_PER_JOB.saturating_mul(u32::try_from(num_jobs).unwrap_or(u32::MAX));
            interval = interval.max(LEAST_INTERVAL).max(by_cost);
        }
        if self.published_at.is_some_and(|at| now.saturating_sub(at) < interval) {
            return;
        }
        self.published_at = Some(now);
        self.status.send_replace(Arc::new(self.snapshot(now)));
    }

    fn snapshot(&self, now: Duration) -> EngineStatus {
        let Readiness { ready, degraded, fatal, reasons } = self.readiness(now);
        let budget = self.memory.budget();
        EngineStatus {
            ready,
            degraded,
            fatal,
            reasons,
            draining: self.draining,
            uptime_ms: now.as_millis() as u64,
            devices: self.devices.iter().map(|(id, device)| self.device_status(id, device, now)).collect(),
            queues: self.queues(),
            circuits: self.circuit_statuses(),
            jobs: self.jobs.values().map(|job| job_status(job, now)).collect(),
            recovering: self.durable.num_recovering() as u64,
            totals: self.totals,
            host_memory_reserved_bytes: budget.part_bytes(HostPart::Witnesses),
            circuit_memory_reserved_bytes: budget.part_bytes(HostPart::Circuits),
            circuit_memory_pinned_bytes: budget.pinned_bytes(),
            host_memory_budget_bytes: budget.limit_bytes(),
            step_times: self.step_times,
        }
    }

    fn readiness(&self, now: Duration) -> Readiness {
        let failures = self.warmup_failures.iter();
        let journal_failure = self.durable.failure();
        readiness(&EngineFacts {
            draining: self.draining,
            synthesizer: as_fact(&self.synthesizer_service),
            journal_failure: journal_failure.as_deref(),
            num_recovering: self.durable.num_recovering(),
            num_held_back: self.durable.num_held_back(),
            warming: self.warming().map(CircuitId::as_str).collect(),
            warmup_failures: failures.map(|(id, what)| (id.as_str(), what.as_str())).collect(),
            devices: self
                .devices
                .iter()
                .map(|(id, device)| DeviceFact {
                    id: id.as_str(),
                    role: device.role,
                    service: as_fact(&device.service),
                    health: device.health.health(now),
                })
                .collect(),
        })
    }

    fn queues(&self) -> Vec<QueueStatus> {
        let mut queues: Vec<QueueStatus> =
            KINDS.iter().map(|&kind| QueueStatus { kind, pending: 0, in_progress: 0 }).collect();
        for job in self.jobs.values() {
            let kind = job.spec.workload.kind();
            let queue = queues.iter_mut().find(|queue| queue.kind == kind).expect("every kind is listed");
            for partition in &job.partitions {
                queue.pending += u64::from(partition.needs_device());
                queue.in_progress += u64::from(partition.is_in_progress());
            }
        }
        queues
    }

    fn circuit_statuses(&self) -> Vec<CircuitStatus> {
        let mut circuits: Vec<CircuitStatus> = self
            .circuits
            .iter()
            .map(|(id, circuit)| {
                let (state, num_bytes) = circuit.as_status();
                let pinned = circuit.is_pinned();
                CircuitStatus { circuit: id.to_string(), state: state.to_owned(), num_bytes, pinned }
            })
            .collect();
        circuits.sort_by(|a, b| a.circuit.cmp(&b.circuit));
        circuits
    }

    fn device_status(&self, id: &DeviceId, device: &Device, now: Duration) -> EngineDeviceStatus {
        let state = match device.service {
            Service::Starting => "starting",
            Service::Ready => "ready",
            Service::Withdrawn { .. } => "withdrawn",
            Service::Gone { .. } => "gone",
        };
        let mut resident_srs: Vec<String> = device.resident.iter().map(ToString::to_string).collect();
        resident_srs.sort();
        let info = device.info.as_ref();
        // What one that died of a panic wrote last is still on the board, and no longer true.
        let own = match device.service {
            Service::Ready => self.board.get(id).map(|entry| entry.value().clone()),
            _ => None,
        };
        let figure = |of: fn(&DeviceStatus) -> u64| own.as_ref().map_or(0, of);
        EngineDeviceStatus {
            id: id.to_string(),
            name: info.map(|info| info.name.clone()).unwrap_or_default(),
            backend: info.map(|info| info.backend.to_owned()).unwrap_or_default(),
            state: state.to_owned(),
            health: device.health.health(now).as_str().to_owned(),
            role: device.role.as_str().to_owned(),
            num_lanes: device.num_lanes,
            lanes_busy: device.lanes_busy(),
            memory_total_bytes: info.map_or(0, |info| info.memory_total_bytes),
            memory_budget_bytes: figure(|own| own.budget_bytes),
            memory_reserved_bytes: figure(|own| own.reserved_bytes),
            memory_in_use_bytes: figure(|own| own.in_use_bytes),
            partition_planned_bytes: device.planned_bytes,
            partition_peak_bytes: device.peak_bytes,
            resident_srs,
            srs_bytes: own.as_ref().map(|own| own.srs_bytes.clone()).unwrap_or_default(),
            partitions_proved: device.num_proved,
            partitions_failed: device.num_failed,
            invalid_proofs: device.num_invalid,
            restarts: device.num_restarts,
            num_ticks: figure(|own| own.num_ticks),
        }
    }
}

fn as_fact(service: &Service) -> ServiceFact<'_> {
    match service {
        Service::Starting => ServiceFact::Starting,
        Service::Ready => ServiceFact::Ready,
        Service::Withdrawn { reason } => ServiceFact::Withdrawn(reason),
        Service::Gone { reason } => ServiceFact::Gone(reason),
    }
}

fn running(job: &Job) -> Vec<RunningPartition> {
    let of = |(partition, state): (u32, &Partition)| {
        let (device, doing) = (state.device()?.to_string(), state.doing()?.to_owned());
        Some(RunningPartition { partition, device, doing })
    };
    (0..).zip(&job.partitions).filter_map(of).collect()
}

fn job_status(job: &Job, now: Duration) -> JobStatus {
    let devices: BTreeSet<&DeviceId> =
        job.partitions.iter().filter_map(|partition| partition.device()).collect();
    JobStatus {
        devices: devices.into_iter().map(ToString::to_string).collect(),
        name: job.name(),
        job: job.spec.id.to_string(),
        request_id: job.spec.request_id.clone(),
        kind: job.spec.workload.kind(),
        circuit: job.circuit().to_string(),
        priority: job.spec.priority,
        num_partitions: job.spec.workload.num_partitions(),
        num_done: job.num_done() as u32,
        running: running(job),
        num_running: job.partitions.iter().filter(|partition| partition.is_in_progress()).count() as u32,
        age_ms: now.saturating_sub(job.spec.accepted_at).as_millis() as u64,
    }
}
