//! The books: events go in, one after the other.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use cuzk::backend::Stage;
use cuzk::circuits::WorkKind;
use cuzk::ids::{DeviceId, JobId, PartitionIndex};
use cuzk::messages::events::{AttemptRef, EventKind, JobOutcome};

use super::counts::{Counts, Rates};
use super::devices::{AttemptEnd, DeviceTrack};
use super::jobs::{EndedJob, JobTrack, PartitionTrack, Phase};

/// Jobs that are kept after their end.
const MAX_ENDED_JOBS: usize = 50;
/// Incidents that are kept.
const MAX_INCIDENTS: usize = 50;

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IncidentKind {
    AttemptFailed,
    InvalidProof,
    JobFailed,
    JobRefused,
    DeadlineExceeded,
    DeviceDown,
    EventsDropped,
}

impl IncidentKind {
    /// Stable name, for the status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AttemptFailed => "attempt_failed",
            Self::InvalidProof => "invalid_proof",
            Self::JobFailed => "job_failed",
            Self::JobRefused => "job_refused",
            Self::DeadlineExceeded => "deadline_exceeded",
            Self::DeviceDown => "device_down",
            Self::EventsDropped => "events_dropped",
        }
    }
}

/// Something that went wrong.
#[derive(Clone, Debug)]
pub struct Incident {
    pub at: Duration,
    pub what: IncidentKind,
    pub job: Option<JobId>,
    pub partition: Option<PartitionIndex>,
    pub device: Option<DeviceId>,
    pub kind: Option<WorkKind>,
    pub reason: String,
}

impl Incident {
    fn new(at: Duration, what: IncidentKind, reason: String) -> Self {
        Self { at, what, job: None, partition: None, device: None, kind: None, reason }
    }
}

/// Everything that is known of the recent past.
#[derive(Clone, Debug, Default)]
pub struct Books {
    /// Those that have not ended: as many as the engine admits.
    pub jobs: BTreeMap<JobId, JobTrack>,
    /// The newest last.
    pub ended_jobs: VecDeque<EndedJob>,
    pub devices: BTreeMap<DeviceId, DeviceTrack>,
    /// The newest last.
    pub incidents: VecDeque<Incident>,
    pub counts: Counts,
    pub rates: Rates,
}

fn micros(elapsed_us: u64) -> Duration {
    Duration::from_micros(elapsed_us)
}

impl Books {
    pub fn take_in(&mut self, now: Duration, event: EventKind) {
        match event {
            EventKind::JobAccepted { .. } | EventKind::JobRefused { .. } | EventKind::JobEnded { .. } => {
                self.take_in_job(now, event);
            }
            EventKind::WitnessBegun { job, partition, .. } => {
                self.set_phase(job, partition, Phase::Witness);
            }
            EventKind::WitnessMade { job, partition, elapsed_us } => {
                self.set_phase(job, partition, Phase::Ready);
                if let Some(track) = self.jobs.get(&job) {
                    self.counts.witness_took(track.kind, micros(elapsed_us));
                }
            }
            EventKind::Placed { at, device, .. } => self.placed(at, device, now),
            EventKind::StageDone { at, device, stage, elapsed_us, .. } => {
                self.stage_done(at, device, stage, micros(elapsed_us), now);
            }
            EventKind::PartitionProved { at, device, .. } => self.proved(at, device, now),
            EventKind::PartitionVerified { at, device } => self.verified(at, device, now),
            EventKind::AttemptFailed { at, device, invalid, reason } => {
                self.attempt_failed(at, device, invalid, reason, now);
            }
            EventKind::CircuitReady { circuit, elapsed_us, .. } => {
                self.counts.load_took(circuit, micros(elapsed_us));
            }
            EventKind::DeviceDown { device, gone, reason } => self.device_down(device, gone, reason, now),
            EventKind::EventsDropped { count } => {
                let reason = format!("{count} events were lost: figures are too low by them");
                self.tell(Incident::new(now, IncidentKind::EventsDropped, reason));
            }
            // The engine's own status has what these say, as of now.
            EventKind::LogStarted { .. }
            | EventKind::DeviceReady { .. }
            | EventKind::DeviceHealth { .. }
            | EventKind::KeyResident { .. }
            | EventKind::DeviceMemory { .. }
            | EventKind::HostMemory { .. } => {}
        }
    }

    fn tell(&mut self, incident: Incident) {
        if self.incidents.len() == MAX_INCIDENTS {
            self.incidents.pop_front();
        }
        self.incidents.push_back(incident);
    }

    fn partition(&mut self, job: JobId, partition: PartitionIndex) -> Option<&mut PartitionTrack> {
        self.jobs.get_mut(&job)?.partitions.get_mut(partition.0 as usize)
    }

    fn set_phase(&mut self, job: JobId, partition: PartitionIndex, phase: Phase) {
        if let Some(track) = self.partition(job, partition) {
            track.phase = phase;
        }
    }

    fn take_in_job(&mut self, now: Duration, event: EventKind) {
        match event {
            EventKind::JobAccepted { job, request_id, kind, circuit, priority, num_partitions, .. } => {
                *self.counts.accepted.entry((kind, priority)).or_default() += 1;
                let partitions = vec![PartitionTrack::default(); num_partitions as usize];
                let track = JobTrack { request_id, kind, circuit, priority, accepted_at: now, partitions };
                self.jobs.insert(job, track);
            }
            EventKind::JobRefused { kind, reason } => {
                *self.counts.refused.entry(kind).or_default() += 1;
                let incident = Incident::new(now, IncidentKind::JobRefused, reason);
                self.tell(Incident { kind: Some(kind), ..incident });
            }
            EventKind::JobEnded {
                job,
                kind,
                outcome,
                num_partitions,
                retries,
                queue_us,
                total_us,
                reason,
            } => {
                let track = self.jobs.remove(&job);
                let (request_id, circuit) =
                    track.map_or_else(Default::default, |track| (track.request_id, Some(track.circuit)));
                let (queue, total) = (micros(queue_us), micros(total_us));
                self.ended(EndedJob {
                    job,
                    request_id,
                    kind,
                    circuit,
                    outcome,
                    num_partitions,
                    retries,
                    queue,
                    total,
                    ended_at: now,
                    reason,
                });
            }
            _ => {}
        }
    }

    fn ended(&mut self, job: EndedJob) {
        let now = job.ended_at;
        *self.counts.ended.entry((job.kind, job.outcome)).or_default() += 1;
        if job.outcome == JobOutcome::Completed {
            self.counts.job_took(job.kind, job.total);
            self.rates.at(now).jobs += 1;
        }
        for device in self.devices.values_mut() {
            device.end_all(|attempt| attempt.at.job == job.job, AttemptEnd::Dropped, now);
        }
        let what = match job.outcome {
            JobOutcome::Failed => Some(IncidentKind::JobFailed),
            JobOutcome::Expired => Some(IncidentKind::DeadlineExceeded),
            JobOutcome::Completed | JobOutcome::Cancelled => None,
        };
        if let Some(what) = what {
            let incident = Incident::new(now, what, job.reason.clone().unwrap_or_default());
            self.tell(Incident { job: Some(job.job), kind: Some(job.kind), ..incident });
        }
        if self.ended_jobs.len() == MAX_ENDED_JOBS {
            self.ended_jobs.pop_front();
        }
        self.ended_jobs.push_back(job);
    }

    fn placed(&mut self, at: AttemptRef, device: DeviceId, now: Duration) {
        let Some(job) = self.jobs.get_mut(&at.job) else { return };
        if let Some(partition) = job.partitions.get_mut(at.partition.0 as usize) {
            if partition.attempts == 0 {
                self.counts.waited(job.kind, job.priority, now.saturating_sub(job.accepted_at));
            }
            partition.attempts += 1;
            partition.phase = Phase::Proving;
            partition.device = Some(device.clone());
        }
        self.devices.entry(device).or_default().place(at, job.kind, job.circuit.clone(), now);
    }

    fn stage_done(
        &mut self,
        at: AttemptRef,
        device: DeviceId,
        stage: Stage,
        elapsed: Duration,
        now: Duration,
    ) {
        let track = self.devices.entry(device.clone()).or_default();
        if let Some(circuit) = track.stage_done(at, stage, elapsed, now) {
            self.counts.stage_took(device, circuit, stage, elapsed);
        }
    }

    fn proved(&mut self, at: AttemptRef, device: DeviceId, now: Duration) {
        let track = self.devices.entry(device.clone()).or_default();
        if let Some(attempt) = track.end(at, AttemptEnd::Proved, now) {
            let elapsed = now.saturating_sub(attempt.begun_at);
            self.counts.partition_took(device, attempt.circuit.clone(), elapsed);
        }
        if let Some(partition) = self.partition(at.job, at.partition) {
            partition.phase = Phase::Verifying;
            partition.proved_at = now;
        }
    }

    fn verified(&mut self, at: AttemptRef, device: DeviceId, now: Duration) {
        self.rates.at(now).partitions += 1;
        let Some(job) = self.jobs.get_mut(&at.job) else { return };
        *self.counts.verified.entry((job.kind, device)).or_default() += 1;
        if let Some(partition) = job.partitions.get_mut(at.partition.0 as usize) {
            partition.phase = Phase::Done;
            self.counts.verification_took(job.kind, now.saturating_sub(partition.proved_at));
        }
    }

    fn attempt_failed(
        &mut self,
        at: AttemptRef,
        device: DeviceId,
        invalid: bool,
        reason: String,
        now: Duration,
    ) {
        let end = if invalid { AttemptEnd::Invalid } else { AttemptEnd::Failed };
        self.devices.entry(device.clone()).or_default().end(at, end, now);
        self.rates.at(now).failures += 1;
        // It is placed again, or its job ends.
        self.set_phase(at.job, at.partition, Phase::Ready);
        let kind = self.jobs.get(&at.job).map(|job| job.kind);
        if let Some(kind) = kind {
            *self.counts.failed.entry((kind, device.clone(), invalid)).or_default() += 1;
        }
        let what = if invalid { IncidentKind::InvalidProof } else { IncidentKind::AttemptFailed };
        self.tell(Incident {
            job: Some(at.job),
            partition: Some(at.partition),
            device: Some(device),
            kind,
            ..Incident::new(now, what, reason)
        });
    }

    fn device_down(&mut self, device: DeviceId, gone: bool, reason: String, now: Duration) {
        self.devices.entry(device.clone()).or_default().end_all(|_| true, AttemptEnd::Failed, now);
        let reason = if gone { format!("given up: {reason}") } else { reason };
        let incident = Incident::new(now, IncidentKind::DeviceDown, reason);
        self.tell(Incident { device: Some(device), ..incident });
    }
}

#[cfg(test)]
mod tests {
    use cuzk::ids::{Attempt, CircuitId};
    use cuzk::messages::job::Priority;

    use super::*;

    fn at(partition: u32, attempt: u32) -> AttemptRef {
        AttemptRef { job: JobId(1), partition: PartitionIndex(partition), attempt: Attempt(attempt) }
    }

    fn accepted() -> EventKind {
        EventKind::JobAccepted {
            job: JobId(1),
            request_id: "r".into(),
            kind: WorkKind::PorepC2,
            circuit: CircuitId::new("porep-2k"),
            priority: Priority::Normal,
            num_partitions: 2,
            deadline_us: None,
        }
    }

    fn ended(outcome: JobOutcome, reason: Option<&str>) -> EventKind {
        EventKind::JobEnded {
            job: JobId(1),
            kind: WorkKind::PorepC2,
            outcome,
            num_partitions: 2,
            retries: 1,
            queue_us: 5,
            total_us: 9_000_000,
            reason: reason.map(str::to_owned),
        }
    }

    fn books(events: impl IntoIterator<Item = EventKind>) -> Books {
        let mut books = Books::default();
        for (event, second) in events.into_iter().zip(1..) {
            books.take_in(Duration::from_secs(second), event);
        }
        books
    }

    fn phases(books: &Books) -> Vec<Phase> {
        books.jobs[&JobId(1)].partitions.iter().map(|partition| partition.phase).collect()
    }

    #[test]
    fn a_partition_goes_through_its_phases_and_each_time_is_counted_once() {
        let device = DeviceId::new("sim-0");
        let mut events = vec![
            accepted(),
            EventKind::WitnessBegun { job: JobId(1), partition: PartitionIndex(0), num_bytes: 1 },
            EventKind::WitnessMade { job: JobId(1), partition: PartitionIndex(0), elapsed_us: 1_000_000 },
            EventKind::Placed { at: at(0, 1), device: device.clone(), critical_lane: false },
        ];
        assert_eq!(phases(&books(events.clone())), [Phase::Proving, Phase::Waiting]);
        events.push(EventKind::AttemptFailed {
            at: at(0, 1),
            device: device.clone(),
            invalid: false,
            reason: "it hung".into(),
        });
        assert_eq!(phases(&books(events.clone())), [Phase::Ready, Phase::Waiting]);
        events.extend([
            EventKind::Placed { at: at(0, 2), device: device.clone(), critical_lane: false },
            EventKind::PartitionProved {
                at: at(0, 2),
                device: device.clone(),
                planned_bytes: 1,
                peak_bytes: 1,
            },
            EventKind::PartitionVerified { at: at(0, 2), device: device.clone() },
        ]);
        let books = books(events);
        assert_eq!(phases(&books), [Phase::Done, Phase::Waiting]);
        let counts = &books.counts;
        let key = (WorkKind::PorepC2, Priority::Normal);
        assert_eq!((counts.waits[&key].count(), counts.waits[&key].sum()), (1, 3.0));
        assert_eq!(counts.verification_times[&WorkKind::PorepC2].sum(), 1.0);
        assert_eq!(counts.verified[&(WorkKind::PorepC2, device.clone())], 1);
        assert_eq!(counts.failed[&(WorkKind::PorepC2, device.clone(), false)], 1);
        assert_eq!(books.incidents[0].reason, "it hung");
        assert_eq!(books.devices[&device].ended.len(), 2);
    }

    #[test]
    fn the_end_of_a_job_ends_what_runs_of_it() {
        let device = DeviceId::new("sim-0");
        let placed = EventKind::Placed { at: at(1, 1), device: device.clone(), critical_lane: false };
        let books = books([accepted(), placed, ended(JobOutcome::Failed, Some("no device is left"))]);
        assert!(books.jobs.is_empty() && books.devices[&device].running.is_empty());
        assert_eq!(books.devices[&device].ended[0].end, Some((Duration::from_secs(3), AttemptEnd::Dropped)));
        assert_eq!(books.ended_jobs[0].circuit, Some(CircuitId::new("porep-2k")));
        assert_eq!(books.incidents[0].what, IncidentKind::JobFailed);
        assert_eq!(books.counts.ended[&(WorkKind::PorepC2, JobOutcome::Failed)], 1);
    }

    #[test]
    fn memory_is_bounded_and_unknown_work_is_no_reason_to_panic() {
        let device = DeviceId::new("sim-0");
        let mut books = books([
            EventKind::StageDone {
                at: at(0, 1),
                device: device.clone(),
                lane: 0,
                stage: Stage::SumH,
                elapsed_us: 1,
            },
            EventKind::PartitionVerified { at: at(7, 1), device: device.clone() },
            EventKind::PartitionProved { at: at(7, 1), device, planned_bytes: 0, peak_bytes: 0 },
        ]);
        for second in 0..1000 {
            books.take_in(Duration::from_secs(second), accepted());
            books.take_in(Duration::from_secs(second), ended(JobOutcome::Expired, None));
        }
        assert_eq!((books.jobs.len(), books.ended_jobs.len()), (0, MAX_ENDED_JOBS));
        assert_eq!(books.incidents.len(), MAX_INCIDENTS);
    }
}
