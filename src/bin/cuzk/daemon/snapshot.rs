//! What a daemon says of itself at one moment: `cuzk status` prints it, `cuzk top` draws it.

use cuzk::messages::status::{RunningPartition, Totals};
use cuzk_wire::client::Client;
use cuzk_wire::v1::{self, srs_status::Tier};
use serde::Serialize;
use tonic::Status;

/// Sizes in bytes; counts since the daemon's start.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Snapshot {
    pub version: String,
    pub ready: bool,
    pub degraded: bool,
    pub draining: bool,
    /// Empty, or why nothing will ever be proved again.
    pub fatal: String,
    pub reasons: Vec<String>,
    pub uptime_seconds: u64,
    pub recovering: u64,
    pub totals: Totals,
    pub witness_memory_bytes: u64,
    pub circuit_memory_bytes: u64,
    pub host_memory_budget_bytes: u64,
    pub devices: Vec<Device>,
    pub queues: Vec<Queue>,
    pub circuits: Vec<Circuit>,
    /// Jobs that have not ended, oldest first.
    pub jobs: Vec<Job>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Device {
    pub id: String,
    pub ordinal: u32,
    pub name: String,
    pub backend: String,
    pub state: String,
    pub health: String,
    pub role: String,
    pub lanes: u32,
    pub lanes_busy: u32,
    pub memory_total_bytes: u64,
    pub memory_free_bytes: u64,
    pub memory_budget_bytes: u64,
    pub memory_reserved_bytes: u64,
    pub memory_in_use_bytes: u64,
    pub resident_srs: Vec<String>,
    pub partitions_proved: u64,
    pub partitions_failed: u64,
    pub invalid_proofs: u64,
    pub restarts: u64,
    pub temperature_celsius: Option<u32>,
    pub power_watts: Option<u32>,
    pub utilization_percent: Option<u32>,
    pub current_proof_kind: String,
    pub current_jobs: Vec<String>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Queue {
    pub proof_kind: String,
    pub pending: u32,
    pub in_progress: u32,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Circuit {
    pub circuit_id: String,
    /// `hot` (on a device), `warm` (in host memory), `cold`.
    pub tier: &'static str,
    pub state: String,
    pub size_bytes: u64,
    pub ref_count: u32,
    pub pinned: bool,
    pub devices: Vec<String>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Job {
    pub job_id: String,
    pub number: String,
    pub request_id: String,
    pub proof_kind: String,
    pub circuit_id: String,
    /// `low`, `normal`, `high` or `critical`.
    pub priority: &'static str,
    pub state: String,
    pub partitions: u32,
    pub partitions_done: u32,
    pub partitions_running: u32,
    pub devices: Vec<String>,
    pub running: Vec<RunningPartition>,
    pub age_ms: u64,
}

impl Snapshot {
    /// Asks once for everything. Neither call waits for proving.
    pub async fn take(client: &mut Client) -> Result<Self, Status> {
        let status = client.get_status(v1::GetStatusRequest {}).await?.into_inner();
        let jobs = client.list_jobs(v1::ListJobsRequest {}).await?.into_inner();
        Ok(Self::new(status, jobs))
    }

    fn new(status: v1::GetStatusResponse, jobs: v1::ListJobsResponse) -> Self {
        Self {
            version: status.version,
            ready: status.ready,
            degraded: status.degraded,
            draining: status.draining,
            fatal: status.fatal,
            reasons: status.reasons,
            uptime_seconds: status.uptime_seconds,
            recovering: status.recovering,
            totals: status.totals.as_ref().map(totals).unwrap_or_default(),
            witness_memory_bytes: status.witness_memory_bytes,
            circuit_memory_bytes: status.circuit_memory_bytes,
            host_memory_budget_bytes: status.host_memory_budget_bytes,
            devices: status.gpus.into_iter().map(Device::from).collect(),
            queues: status.queues.into_iter().map(Queue::from).collect(),
            circuits: status.loaded_srs.into_iter().map(Circuit::from).collect(),
            jobs: jobs.jobs.into_iter().map(Job::from).collect(),
        }
    }

    /// What runs on a device: stage, job and, of several, which partition.
    pub fn doing(&self, device: &Device) -> String {
        let of_job = |job: &'_ Job| -> Vec<String> {
            let here = job.running.iter().filter(|running| running.device == device.id);
            here.map(|running| match job.partitions {
                1 => format!("{} {}", running.doing, job.job_id),
                _ => format!("{} {}[{}]", running.doing, job.job_id, running.partition),
            })
            .collect()
        };
        self.jobs.iter().flat_map(of_job).collect::<Vec<String>>().join(", ")
    }

    /// One word for all of it.
    pub fn condition(&self) -> &'static str {
        match self {
            _ if !self.fatal.is_empty() => "failed",
            _ if self.draining => "draining",
            _ if !self.ready => "not ready",
            _ if self.degraded => "degraded",
            _ => "ready",
        }
    }
}

fn totals(said: &v1::Totals) -> Totals {
    Totals {
        accepted: said.accepted,
        attached: said.attached,
        refused: said.refused,
        recovered: said.recovered,
        completed: said.completed,
        failed: said.failed,
        cancelled: said.cancelled,
        deadline_exceeded: said.deadline_exceeded,
        dispatched: said.dispatched,
        fallback: said.fallback,
        retried: said.retried,
        invalid_proofs: said.invalid_proofs,
        late_results: said.late_results,
    }
}

impl From<v1::GpuStatus> for Device {
    fn from(gpu: v1::GpuStatus) -> Self {
        Self {
            id: gpu.id,
            ordinal: gpu.ordinal,
            name: gpu.name,
            backend: gpu.backend,
            state: gpu.state,
            health: gpu.health,
            role: gpu.role,
            lanes: gpu.lanes,
            lanes_busy: gpu.lanes_busy,
            memory_total_bytes: gpu.vram_total_bytes,
            memory_free_bytes: gpu.vram_free_bytes,
            memory_budget_bytes: gpu.memory_budget_bytes,
            memory_reserved_bytes: gpu.memory_reserved_bytes,
            memory_in_use_bytes: gpu.memory_in_use_bytes,
            resident_srs: gpu.resident_srs,
            partitions_proved: gpu.partitions_proved,
            partitions_failed: gpu.partitions_failed,
            invalid_proofs: gpu.invalid_proofs,
            restarts: gpu.restarts,
            temperature_celsius: gpu.temperature_celsius,
            power_watts: gpu.power_watts,
            utilization_percent: gpu.utilization_percent,
            current_proof_kind: gpu.current_proof_kind,
            current_jobs: gpu.current_job_ids,
        }
    }
}

impl From<v1::QueueStatus> for Queue {
    fn from(queue: v1::QueueStatus) -> Self {
        let v1::QueueStatus { proof_kind, pending, in_progress } = queue;
        Self { proof_kind, pending, in_progress }
    }
}

impl From<v1::SrsStatus> for Circuit {
    fn from(srs: v1::SrsStatus) -> Self {
        Self {
            tier: match srs.tier() {
                Tier::Hot => "hot",
                Tier::Warm => "warm",
                Tier::Cold => "cold",
            },
            circuit_id: srs.circuit_id,
            state: srs.state,
            size_bytes: srs.size_bytes,
            ref_count: srs.ref_count,
            pinned: srs.pinned,
            devices: srs.devices,
        }
    }
}

fn running(said: v1::RunningPartition) -> RunningPartition {
    let v1::RunningPartition { partition, device, doing } = said;
    RunningPartition { partition, device, doing }
}

impl From<v1::JobStatus> for Job {
    fn from(job: v1::JobStatus) -> Self {
        Self {
            priority: match job.priority() {
                v1::Priority::Low => "low",
                v1::Priority::High => "high",
                v1::Priority::Critical => "critical",
                v1::Priority::Normal | v1::Priority::Unspecified => "normal",
            },
            job_id: job.job_id,
            number: job.number,
            request_id: job.request_id,
            proof_kind: job.proof_kind,
            circuit_id: job.circuit_id,
            state: job.state,
            partitions: job.partitions,
            partitions_done: job.partitions_done,
            partitions_running: job.partitions_running,
            devices: job.devices,
            running: job.running.into_iter().map(running).collect(),
            age_ms: job.age_ms,
        }
    }
}
