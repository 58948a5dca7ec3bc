//! The engine's published state as the wire says it. Nothing here asks an actor.

use std::collections::{BTreeMap, BTreeSet};

use cuzk::circuits::WorkKind;
use cuzk::messages::job::Priority;
use cuzk::messages::status::{
    CircuitStatus, EngineDeviceStatus, EngineStatus, JobStatus, RunningPartition, Totals as EngineTotals,
};
use cuzk_wire::v1::{self, srs_status::Tier};

use crate::daemon::Daemon;

/// The kinds that the wire has, in its order.
const KINDS: [WorkKind; 4] =
    [WorkKind::PorepC2, WorkKind::SnapUpdate, WorkKind::WindowPost, WorkKind::WinningPost];

pub fn status(daemon: &Daemon) -> v1::GetStatusResponse {
    let status = daemon.engine.status();
    let devices = status.devices.iter().zip(0..);
    v1::GetStatusResponse {
        gpus: devices.map(|(device, ordinal)| gpu(device, ordinal, &status.jobs)).collect(),
        loaded_srs: status.circuits.iter().map(|circuit| srs(circuit, &status)).collect(),
        queues: queues(&status.jobs),
        total_proofs_completed: status.totals.completed,
        total_proofs_failed: status.totals.failed,
        uptime_seconds: daemon.started.elapsed().as_secs(),
        pinned_memory_bytes: status.circuit_memory_pinned_bytes,
        pinned_memory_limit_bytes: status.host_memory_budget_bytes,
        ready: status.ready && !daemon.is_draining(),
        reasons: status.reasons.clone(),
        degraded: status.degraded,
        fatal: status.fatal.clone().unwrap_or_default(),
        draining: status.draining || daemon.is_draining(),
        recovering: status.recovering,
        totals: Some(totals(&status.totals)),
        witness_memory_bytes: status.host_memory_reserved_bytes,
        circuit_memory_bytes: status.circuit_memory_reserved_bytes,
        host_memory_budget_bytes: status.host_memory_budget_bytes,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        jobs: status.jobs.len() as u64,
    }
}

/// Jobs by kind: one that any of its partitions was begun of is in progress.
fn queues(jobs: &[JobStatus]) -> Vec<v1::QueueStatus> {
    let mut counts: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    for job in jobs {
        let (pending, in_progress) = counts.entry(job.kind.as_str()).or_default();
        *(if has_begun(job) { in_progress } else { pending }) += 1;
    }
    let queue = |kind: WorkKind| {
        let (pending, in_progress) = counts.get(kind.as_str()).copied().unwrap_or_default();
        v1::QueueStatus { proof_kind: kind.as_str().to_owned(), pending, in_progress }
    };
    KINDS.into_iter().map(queue).collect()
}

fn has_begun(job: &JobStatus) -> bool {
    job.num_running > 0 || job.num_done > 0
}

fn gpu(device: &EngineDeviceStatus, ordinal: u32, jobs: &[JobStatus]) -> v1::GpuStatus {
    let mut current = jobs.iter().filter(|job| job.devices.contains(&device.id)).peekable();
    let (current_job_id, current_proof_kind) = match current.peek() {
        Some(job) => (job.name.clone(), job.kind.as_str().to_owned()),
        None => Default::default(),
    };
    v1::GpuStatus {
        ordinal,
        name: device.name.clone(),
        vram_total_bytes: device.memory_total_bytes,
        vram_free_bytes: device.memory_total_bytes.saturating_sub(device.memory_in_use_bytes),
        current_job_id,
        current_proof_kind,
        id: device.id.clone(),
        health: device.health.clone(),
        state: device.state.clone(),
        role: device.role.clone(),
        lanes: device.num_lanes,
        lanes_busy: device.lanes_busy,
        memory_budget_bytes: device.memory_budget_bytes,
        memory_reserved_bytes: device.memory_reserved_bytes,
        memory_in_use_bytes: device.memory_in_use_bytes,
        resident_srs: device.resident_srs.clone(),
        partitions_proved: device.partitions_proved,
        partitions_failed: device.partitions_failed,
        invalid_proofs: device.invalid_proofs,
        restarts: device.restarts,
        backend: device.backend.clone(),
        current_job_ids: current.map(|job| job.name.clone()).collect(),
        ..v1::GpuStatus::default()
    }
}

fn srs(circuit: &CircuitStatus, status: &EngineStatus) -> v1::SrsStatus {
    let is_ready = circuit.state == "ready";
    // A device that works in the host's memory has there all that the host has.
    let holds = |device: &&EngineDeviceStatus| {
        let in_place = is_ready && device.state == "ready" && device.backend == "cpu";
        in_place || device.resident_srs.contains(&circuit.circuit)
    };
    let devices: BTreeSet<String> =
        status.devices.iter().filter(holds).map(|device| device.id.clone()).collect();
    let tier = match (devices.is_empty(), is_ready) {
        (false, _) => Tier::Hot,
        (true, true) => Tier::Warm,
        (true, false) => Tier::Cold,
    };
    v1::SrsStatus {
        circuit_id: circuit.circuit.clone(),
        tier: tier.into(),
        size_bytes: circuit.num_bytes,
        ref_count: status.jobs.iter().filter(|job| job.circuit == circuit.circuit).count() as u32,
        state: circuit.state.clone(),
        pinned: circuit.pinned,
        devices: devices.into_iter().collect(),
    }
}

fn totals(of: &EngineTotals) -> v1::Totals {
    v1::Totals {
        accepted: of.accepted,
        attached: of.attached,
        refused: of.refused,
        recovered: of.recovered,
        completed: of.completed,
        failed: of.failed,
        cancelled: of.cancelled,
        deadline_exceeded: of.deadline_exceeded,
        dispatched: of.dispatched,
        fallback: of.fallback,
        retried: of.retried,
        invalid_proofs: of.invalid_proofs,
        late_results: of.late_results,
    }
}

pub fn jobs(daemon: &Daemon) -> v1::ListJobsResponse {
    v1::ListJobsResponse { jobs: daemon.engine.status().jobs.iter().map(job).collect() }
}

fn job(job: &JobStatus) -> v1::JobStatus {
    v1::JobStatus {
        job_id: job.name.clone(),
        number: job.job.clone(),
        request_id: job.request_id.clone(),
        proof_kind: job.kind.as_str().to_owned(),
        circuit_id: job.circuit.clone(),
        priority: priority(job.priority).into(),
        state: if has_begun(job) { "running" } else { "queued" }.to_owned(),
        partitions: job.num_partitions,
        partitions_done: job.num_done,
        partitions_running: job.num_running,
        devices: job.devices.clone(),
        age_ms: job.age_ms,
        running: job.running.iter().map(running).collect(),
    }
}

fn running(running: &RunningPartition) -> v1::RunningPartition {
    let RunningPartition { partition, device, doing } = running;
    v1::RunningPartition { partition: *partition, device: device.clone(), doing: doing.clone() }
}

fn priority(priority: Priority) -> v1::Priority {
    match priority {
        Priority::Low => v1::Priority::Low,
        Priority::Normal => v1::Priority::Normal,
        Priority::High => v1::Priority::High,
        Priority::Critical => v1::Priority::Critical,
    }
}
