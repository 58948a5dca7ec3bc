//! What `/status` serves, and the page shows. Names are stable: `docs/observability.md` lists them, and a test compares.

use std::time::Duration;

use cuzk::backend::Stage;
use cuzk::circuits::WorkKind;
use cuzk::ids::JobId;
use cuzk::messages::job::Priority;
use cuzk::messages::status::{EngineDeviceStatus, EngineStatus, JobStatus, Totals};
use serde::Serialize;

use super::history::{self, Books, DeviceTrack, RATE_BUCKET};
use super::metrics::outcome_name;
use super::pulse::Beat;
use super::queue::{queues, Queue};
use super::sensors::{Sample, Sensors};
use super::srs::{residences, Residence};
use super::State;

/// Version of the format: another number means that a name went or changed its meaning.
const FORMAT: u32 = 1;

/// Everything.
#[derive(Debug, Serialize)]
pub struct Status {
    format: u32,
    version: &'static str,
    /// When this was made: all ages count back from here.
    unix_ms: u64,
    uptime_ms: u64,
    ready: bool,
    degraded: bool,
    draining: bool,
    fatal: Option<String>,
    reasons: Vec<String>,
    recovering: u64,
    heartbeats: Vec<Beat>,
    /// The stages of a partition, in their order.
    stages: [&'static str; Stage::ALL.len()],
    devices: Vec<Device>,
    queues: Vec<Queue>,
    jobs: Vec<Job>,
    ended_jobs: Vec<EndedJob>,
    srs: Vec<Residence>,
    rates: Rates,
    host_memory: HostMemory,
    totals: Totals,
    incidents: Vec<Incident>,
    events_dropped: u64,
}

#[derive(Debug, Serialize)]
struct Device {
    id: String,
    name: String,
    backend: String,
    state: String,
    health: String,
    role: String,
    num_lanes: u32,
    lanes_busy: u32,
    memory: DeviceMemory,
    sensors: Option<Sensors>,
    partitions_proved: u64,
    partitions_failed: u64,
    invalid_proofs: u64,
    restarts: u64,
    num_batches: u64,
    busy_ms: u64,
    running: Vec<Running>,
    /// Attempts that ended lately, the newest last.
    ended: Vec<Ended>,
}

#[derive(Debug, Serialize)]
struct DeviceMemory {
    total_bytes: u64,
    budget_bytes: u64,
    reserved_bytes: u64,
    in_use_bytes: u64,
    partition_planned_bytes: u64,
    partition_peak_bytes: u64,
}

/// An attempt that runs.
#[derive(Debug, Serialize)]
struct Running {
    job: String,
    partition: u32,
    attempt: u32,
    kind: WorkKind,
    circuit: String,
    row: usize,
    age_ms: u64,
    stage: Option<&'static str>,
    stage_age_ms: u64,
    /// From 0 to 1; unknown for the first of a circuit on a device.
    progress: Option<f64>,
    /// Of the stages that are done.
    stage_ms: Vec<Option<u64>>,
}

/// An attempt that has ended.
#[derive(Debug, Serialize)]
struct Ended {
    job: String,
    partition: u32,
    attempt: u32,
    kind: WorkKind,
    row: usize,
    begun_ago_ms: u64,
    ended_ago_ms: u64,
    outcome: &'static str,
}

#[derive(Debug, Serialize)]
struct Job {
    job: String,
    request_id: String,
    kind: WorkKind,
    circuit: String,
    priority: Priority,
    age_ms: u64,
    num_partitions: u32,
    num_done: u32,
    num_running: u32,
    /// In their order; empty if nothing is known of them.
    partitions: Vec<Partition>,
}

#[derive(Debug, Serialize)]
struct Partition {
    phase: &'static str,
    attempts: u32,
    device: Option<String>,
}

#[derive(Debug, Serialize)]
struct EndedJob {
    job: String,
    request_id: String,
    kind: WorkKind,
    circuit: Option<String>,
    outcome: &'static str,
    num_partitions: u32,
    retries: u32,
    queue_ms: u64,
    total_ms: u64,
    ended_ago_ms: u64,
    reason: Option<String>,
}

/// What was done lately.
#[derive(Debug, Serialize)]
struct Rates {
    /// Of the last minute, and of the ten last minutes.
    partitions_per_minute: f64,
    partitions_per_minute_10m: f64,
    jobs_per_minute: f64,
    jobs_per_minute_10m: f64,
    bucket_s: u64,
    /// By bucket, the oldest first; the last one has not ended.
    partitions: Vec<u64>,
    jobs: Vec<u64>,
    failures: Vec<u64>,
}

#[derive(Debug, Serialize)]
struct HostMemory {
    budget_bytes: u64,
    witnesses_bytes: u64,
    circuits_bytes: u64,
    pinned_bytes: u64,
}

/// Something that went wrong.
#[derive(Debug, Serialize)]
struct Incident {
    ago_ms: u64,
    what: &'static str,
    job: Option<String>,
    partition: Option<u32>,
    device: Option<String>,
    kind: Option<WorkKind>,
    reason: String,
}

fn millis(duration: Duration) -> u64 {
    duration.as_millis() as u64
}

/// The state of everything now.
pub fn status(state: &State) -> Status {
    let engine = state.engine().status();
    let sample = state.sample();
    let beats = state.beats();
    let events_dropped = state.history().num_dropped();
    state.history().read(|books, now| {
        let status = EngineStatus::clone(&engine);
        Status {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION"),
            unix_ms: super::unix_ms(),
            uptime_ms: status.uptime_ms,
            ready: status.ready,
            degraded: status.degraded,
            draining: status.draining,
            fatal: status.fatal,
            reasons: status.reasons,
            recovering: status.recovering,
            heartbeats: beats,
            stages: Stage::ALL.map(Stage::as_str),
            devices: engine.devices.iter().map(|of| device(of, books, &sample, now)).collect(),
            queues: queues(&engine),
            jobs: status.jobs.into_iter().map(|of| job(of, books)).collect(),
            ended_jobs: books.ended_jobs.iter().rev().map(|of| ended_job(of, now)).collect(),
            srs: residences(&engine, &sample),
            rates: rates(books, now),
            host_memory: HostMemory {
                budget_bytes: engine.host_memory_budget_bytes,
                witnesses_bytes: engine.host_memory_reserved_bytes,
                circuits_bytes: engine.circuit_memory_reserved_bytes,
                pinned_bytes: engine.circuit_memory_pinned_bytes,
            },
            totals: engine.totals,
            incidents: books.incidents.iter().rev().map(|of| incident(of, now)).collect(),
            events_dropped,
        }
    })
}

fn device(status: &EngineDeviceStatus, books: &Books, sample: &Sample, now: Duration) -> Device {
    let nothing = DeviceTrack::default();
    let track = books.devices.iter().find(|(id, _)| id.as_str() == status.id);
    let track = track.map_or(&nothing, |(_, track)| track);
    let mut running: Vec<Running> = track.running.iter().map(|attempt| run(attempt, track, now)).collect();
    running.sort_by_key(|attempt| attempt.row);
    let EngineDeviceStatus { id, name, backend, state, health, role, .. } = status.clone();
    Device {
        sensors: sample.gpus.get(&id).cloned(),
        id,
        name,
        backend,
        state,
        health,
        role,
        num_lanes: status.num_lanes,
        lanes_busy: status.lanes_busy,
        memory: DeviceMemory {
            total_bytes: status.memory_total_bytes,
            budget_bytes: status.memory_budget_bytes,
            reserved_bytes: status.memory_reserved_bytes,
            in_use_bytes: status.memory_in_use_bytes,
            partition_planned_bytes: status.partition_planned_bytes,
            partition_peak_bytes: status.partition_peak_bytes,
        },
        partitions_proved: status.partitions_proved,
        partitions_failed: status.partitions_failed,
        invalid_proofs: status.invalid_proofs,
        restarts: status.restarts,
        num_batches: track.num_batches,
        busy_ms: millis(track.busy),
        running,
        ended: track.ended.iter().filter_map(|attempt| ended(attempt, now)).collect(),
    }
}

fn run(attempt: &history::Attempt, track: &DeviceTrack, now: Duration) -> Running {
    Running {
        job: attempt.at.job.to_string(),
        partition: attempt.at.partition.0,
        attempt: attempt.at.attempt.0,
        kind: attempt.kind,
        circuit: attempt.circuit.to_string(),
        row: attempt.row,
        age_ms: millis(now.saturating_sub(attempt.begun_at)),
        stage: attempt.stage().map(Stage::as_str),
        stage_age_ms: millis(now.saturating_sub(attempt.stage_begun_at)),
        progress: track.progress(attempt, now),
        stage_ms: attempt.stages.iter().map(|elapsed| elapsed.map(millis)).collect(),
    }
}

fn ended(attempt: &history::Attempt, now: Duration) -> Option<Ended> {
    let (ended_at, end) = attempt.end?;
    Some(Ended {
        job: attempt.at.job.to_string(),
        partition: attempt.at.partition.0,
        attempt: attempt.at.attempt.0,
        kind: attempt.kind,
        row: attempt.row,
        begun_ago_ms: millis(now.saturating_sub(attempt.begun_at)),
        ended_ago_ms: millis(now.saturating_sub(ended_at)),
        outcome: end.as_str(),
    })
}

fn job(status: JobStatus, books: &Books) -> Job {
    // As ids are shown.
    let id = u64::from_str_radix(&status.job, 16).ok().map(JobId);
    let track = id.and_then(|id| books.jobs.get(&id));
    let partitions = track.map_or(&[][..], |track| track.partitions.as_slice());
    let partition = |of: &history::PartitionTrack| Partition {
        phase: of.phase.as_str(),
        attempts: of.attempts,
        device: of.device.as_ref().map(ToString::to_string),
    };
    Job {
        job: status.job,
        request_id: status.request_id,
        kind: status.kind,
        circuit: status.circuit,
        priority: status.priority,
        age_ms: status.age_ms,
        num_partitions: status.num_partitions,
        num_done: status.num_done,
        num_running: status.num_running,
        partitions: partitions.iter().map(partition).collect(),
    }
}

fn ended_job(job: &history::EndedJob, now: Duration) -> EndedJob {
    EndedJob {
        job: job.job.to_string(),
        request_id: job.request_id.clone(),
        kind: job.kind,
        circuit: job.circuit.as_ref().map(ToString::to_string),
        outcome: outcome_name(job.outcome),
        num_partitions: job.num_partitions,
        retries: job.retries,
        queue_ms: millis(job.queue),
        total_ms: millis(job.total),
        ended_ago_ms: millis(now.saturating_sub(job.ended_at)),
        reason: job.reason.clone(),
    }
}

fn rates(books: &Books, now: Duration) -> Rates {
    let buckets = books.rates.last(now);
    let column = |of: fn(&history::RateBucket) -> u64| buckets.iter().map(of).collect::<Vec<u64>>();
    // The last bucket has not ended: so much of a minute has passed with it.
    let begun_s = now.as_secs_f64() % RATE_BUCKET.as_secs_f64();
    let per_minute = |column: &[u64], num_buckets: usize| {
        let seconds = begun_s + RATE_BUCKET.as_secs_f64() * num_buckets as f64;
        // Less has passed since the start.
        let seconds = seconds.min(now.as_secs_f64()).max(1.0);
        let done: u64 = column.iter().rev().take(num_buckets + 1).sum();
        done as f64 * 60.0 / seconds
    };
    let (partitions, jobs) = (column(|bucket| bucket.partitions), column(|bucket| bucket.jobs));
    Rates {
        partitions_per_minute: per_minute(&partitions, 6),
        partitions_per_minute_10m: per_minute(&partitions, buckets.len() - 1),
        jobs_per_minute: per_minute(&jobs, 6),
        jobs_per_minute_10m: per_minute(&jobs, buckets.len() - 1),
        bucket_s: RATE_BUCKET.as_secs(),
        partitions,
        jobs,
        failures: column(|bucket| bucket.failures),
    }
}

fn incident(incident: &history::Incident, now: Duration) -> Incident {
    Incident {
        ago_ms: millis(now.saturating_sub(incident.at)),
        what: incident.what.as_str(),
        job: incident.job.map(|job| job.to_string()),
        partition: incident.partition.map(|partition| partition.0),
        device: incident.device.as_ref().map(ToString::to_string),
        kind: incident.kind,
        reason: incident.reason.clone(),
    }
}
