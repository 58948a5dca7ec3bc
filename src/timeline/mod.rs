//! An event log as a picture: what each lane of each device did and when, what waited, what memory was taken.
//!
//! ```text
//! events ──> Timeline ──> svg.rs     one self-contained file, for people
//!                     ──> chrome.rs  for chrome://tracing and Perfetto
//!                     ──> summary.rs figures, as text and JSON
//! ```

mod chrome;
mod summary;
mod svg;

use std::collections::BTreeMap;

pub use self::summary::Summary;
use crate::backend::Stage;
use crate::circuits::WorkKind;
use crate::ids::{DeviceId, JobId};
use crate::messages::events::{AttemptRef, Event, EventKind, JobOutcome};

/// One stage of one attempt. Times in microseconds, as in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bar {
    pub begin_us: u64,
    pub end_us: u64,
    pub stage: Stage,
    pub at: AttemptRef,
}

/// Something of a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    pub at_us: u64,
    pub what: String,
}

/// A value from `at_us` until the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    pub at_us: u64,
    pub value: u64,
}

/// What one device did.
#[derive(Clone, Debug, Default)]
pub struct DeviceTrack {
    pub name: String,
    pub memory_bytes: u64,
    /// By lane.
    pub lanes: BTreeMap<u32, Vec<Bar>>,
    pub reserved_bytes: Vec<Step>,
    pub in_use_bytes: Vec<Step>,
    pub failures: Vec<Mark>,
    /// Health and service, as they changed.
    pub states: Vec<Mark>,
    pub num_verified: u64,
}

/// When a device's kernels ran, over all its lanes. In microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelTime {
    /// From the begin of the first stage of kernels to the end of the last.
    pub span_us: u64,
    /// Of that, while no lane was in such a stage.
    pub idle_us: u64,
}

impl KernelTime {
    /// The idle part of the span.
    pub fn idle_share(&self) -> f64 {
        self.idle_us as f64 / self.span_us.max(1) as f64
    }
}

impl DeviceTrack {
    /// Of uploads, which wait for copies, and assemblies, which are the host's, nothing counts.
    pub fn kernel_time(&self) -> KernelTime {
        let is_kernels = |bar: &&Bar| !matches!(bar.stage, Stage::Upload | Stage::Assemble);
        let bars = self.lanes.values().flatten().filter(is_kernels);
        let mut busy: Vec<(u64, u64)> = bars.map(|bar| (bar.begin_us, bar.end_us)).collect();
        busy.sort_unstable();
        let Some(&(begin_us, mut end_us)) = busy.first() else { return KernelTime::default() };
        let mut idle_us = 0;
        for (from_us, to_us) in busy {
            idle_us += from_us.saturating_sub(end_us);
            end_us = end_us.max(to_us);
        }
        KernelTime { span_us: end_us - begin_us, idle_us }
    }
}

/// One job.
#[derive(Clone, Debug)]
pub struct JobTrack {
    pub kind: WorkKind,
    pub circuit: String,
    pub begin_us: u64,
    /// `None`: it had not ended when the log did.
    pub end_us: Option<u64>,
    pub outcome: Option<JobOutcome>,
    pub started_us: Option<u64>,
    /// Partitions that were never on a device.
    waiting: u64,
}

/// Everything of a log.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    pub begin_us: u64,
    pub end_us: u64,
    pub devices: BTreeMap<DeviceId, DeviceTrack>,
    pub jobs: BTreeMap<JobId, JobTrack>,
    /// Partitions that wait for a device, and jobs that have not ended.
    pub waiting: Vec<Step>,
    pub open_jobs: Vec<Step>,
    pub witness_bytes: Vec<Step>,
    pub num_dropped: u64,
}

impl Timeline {
    /// `events` in the order of their times.
    pub fn new(events: &[Event]) -> Self {
        let mut builder = Builder::default();
        events.iter().for_each(|event| builder.take_in(event));
        builder.finish()
    }

    pub fn span_us(&self) -> u64 {
        (self.end_us - self.begin_us).max(1)
    }
}

/// Lanes of a device that are shown although nothing ran there. No device has as many; a log is what somebody wrote.
const LANES_MAX: u32 = 256;

#[derive(Default)]
struct Builder {
    timeline: Timeline,
    has_begun: bool,
    num_waiting: u64,
    num_open: u64,
}

impl Builder {
    fn device(&mut self, id: &DeviceId) -> &mut DeviceTrack {
        self.timeline.devices.entry(id.clone()).or_default()
    }

    fn take_in(&mut self, event: &Event) {
        let at_us = event.at_us;
        if !std::mem::replace(&mut self.has_begun, true) {
            self.timeline.begin_us = at_us;
        }
        self.timeline.end_us = self.timeline.end_us.max(at_us);
        match &event.kind {
            EventKind::EventsDropped { count } => {
                self.timeline.num_dropped = self.timeline.num_dropped.saturating_add(*count);
            }
            EventKind::HostMemory { witness_bytes, .. } => {
                self.timeline.witness_bytes.push(Step { at_us, value: *witness_bytes });
            }
            EventKind::JobAccepted { .. } | EventKind::JobEnded { .. } => self.take_in_job(event),
            EventKind::Placed { at, .. } => {
                let job = self.timeline.jobs.get_mut(&at.job);
                if let Some(job) = job.filter(|job| at.attempt.0 == 1 && job.waiting > 0) {
                    job.started_us.get_or_insert(at_us);
                    job.waiting -= 1;
                    self.num_waiting -= 1;
                    self.timeline.waiting.push(Step { at_us, value: self.num_waiting });
                }
            }
            _ => self.take_in_device(event),
        }
    }

    fn take_in_job(&mut self, event: &Event) {
        let at_us = event.at_us;
        match &event.kind {
            EventKind::JobAccepted { job, kind, circuit, num_partitions, .. } => {
                let waiting = u64::from(*num_partitions);
                let track = JobTrack {
                    kind: *kind,
                    circuit: circuit.to_string(),
                    begin_us: at_us,
                    end_us: None,
                    outcome: None,
                    started_us: None,
                    waiting,
                };
                self.num_waiting += waiting;
                self.num_open += 1;
                // Logs of two engines in one file: the former job of this number ends unseen.
                if let Some(former) = self.timeline.jobs.insert(*job, track) {
                    self.num_waiting -= former.waiting;
                    self.num_open -= u64::from(former.end_us.is_none());
                }
            }
            EventKind::JobEnded { job, outcome, .. } => {
                // Of a log that begins in the middle: nothing is known of it.
                let track = self.timeline.jobs.get_mut(job).filter(|track| track.end_us.is_none());
                let Some(track) = track else { return };
                track.end_us = Some(at_us);
                track.outcome = Some(*outcome);
                self.num_waiting -= std::mem::take(&mut track.waiting);
                self.num_open -= 1;
            }
            _ => return,
        }
        self.timeline.waiting.push(Step { at_us, value: self.num_waiting });
        self.timeline.open_jobs.push(Step { at_us, value: self.num_open });
    }

    fn take_in_device(&mut self, event: &Event) {
        let at_us = event.at_us;
        match &event.kind {
            EventKind::DeviceReady { device, name, memory_bytes, num_lanes, num_critical_lanes, .. } => {
                let track = self.device(device);
                track.name.clone_from(name);
                track.memory_bytes = *memory_bytes;
                for lane in 0..num_lanes.saturating_add(*num_critical_lanes).min(LANES_MAX) {
                    track.lanes.entry(lane).or_default();
                }
                track.states.push(Mark { at_us, what: "ready".to_owned() });
            }
            EventKind::DeviceDown { device, reason, .. } => {
                self.device(device).states.push(Mark { at_us, what: format!("down: {reason}") });
            }
            EventKind::DeviceHealth { device, health } => {
                self.device(device).states.push(Mark { at_us, what: health.clone() });
            }
            EventKind::DeviceMemory { device, reserved_bytes, in_use_bytes } => {
                let track = self.device(device);
                track.reserved_bytes.push(Step { at_us, value: *reserved_bytes });
                track.in_use_bytes.push(Step { at_us, value: *in_use_bytes });
            }
            EventKind::StageDone { at, device, lane, stage, elapsed_us } => {
                let begin_us = at_us.saturating_sub(*elapsed_us);
                let bar = Bar { begin_us, end_us: at_us, stage: *stage, at: *at };
                self.device(device).lanes.entry(*lane).or_default().push(bar);
            }
            EventKind::PartitionVerified { device, .. } => self.device(device).num_verified += 1,
            EventKind::AttemptFailed { device, at, reason, .. } => {
                let what = format!("job {} partition {}: {reason}", at.job, at.partition);
                self.device(device).failures.push(Mark { at_us, what });
            }
            _ => {}
        }
    }

    fn finish(self) -> Timeline {
        self.timeline
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::ids::{Attempt, CircuitId, PartitionIndex};
    use crate::messages::job::Priority;

    /// Two jobs of one device: the first is proved, of the second one attempt fails and the log ends.
    pub fn small_log() -> Vec<Event> {
        let device = DeviceId::new("sim-0");
        let at = |job, attempt| AttemptRef {
            job: JobId(job),
            partition: PartitionIndex(0),
            attempt: Attempt(attempt),
        };
        let accepted = |job| EventKind::JobAccepted {
            job: JobId(job),
            request_id: "<a & b>".into(),
            kind: WorkKind::PorepC2,
            circuit: CircuitId::new("porep-2k"),
            priority: Priority::Normal,
            num_partitions: 1,
            deadline_us: None,
        };
        let placed = |job| EventKind::Placed { at: at(job, 1), device: device.clone(), critical_lane: false };
        let stage = |job, stage| EventKind::StageDone {
            at: at(job, 1),
            device: device.clone(),
            lane: 0,
            stage,
            elapsed_us: 100,
        };
        let kinds = [
            EventKind::DeviceReady {
                device: device.clone(),
                name: "card".into(),
                backend: "sim".into(),
                num_lanes: 1,
                num_critical_lanes: 1,
                memory_bytes: 1 << 30,
            },
            accepted(1),
            accepted(2),
            placed(1),
            EventKind::DeviceMemory {
                device: device.clone(),
                reserved_bytes: 1 << 29,
                in_use_bytes: 1 << 28,
            },
            stage(1, Stage::Upload),
            stage(1, Stage::SumH),
            EventKind::PartitionVerified { at: at(1, 1), device: device.clone() },
            EventKind::JobEnded {
                job: JobId(1),
                kind: WorkKind::PorepC2,
                outcome: JobOutcome::Completed,
                num_partitions: 1,
                retries: 0,
                queue_us: 0,
                total_us: 700,
                reason: None,
            },
            placed(2),
            EventKind::AttemptFailed {
                at: at(2, 1),
                device,
                invalid: true,
                reason: "its proof does not verify".into(),
            },
        ];
        (1..).zip(kinds).map(|(index, kind)| Event { at_us: 100 * index, kind }).collect()
    }

    #[test]
    fn a_log_becomes_lanes_queues_and_jobs() {
        let timeline = Timeline::new(&small_log());
        assert_eq!((timeline.begin_us, timeline.end_us), (100, 1100));
        let device = &timeline.devices[&DeviceId::new("sim-0")];
        let bars = &device.lanes[&0];
        assert_eq!(bars.len(), 2);
        assert_eq!((bars[1].begin_us, bars[1].end_us, bars[1].stage), (600, 700, Stage::SumH));
        assert!(device.lanes[&1].is_empty());
        assert_eq!((device.num_verified, device.failures.len()), (1, 1));
        let waiting: Vec<u64> = timeline.waiting.iter().map(|step| step.value).collect();
        assert_eq!(waiting, [1, 2, 1, 1, 0]);
        assert_eq!(timeline.jobs[&JobId(1)].end_us, Some(900));
        assert_eq!(timeline.jobs[&JobId(2)].end_us, None);
    }

    #[test]
    fn a_device_is_idle_between_the_kernels_of_all_its_lanes() {
        let at = AttemptRef { job: JobId(1), partition: PartitionIndex(0), attempt: Attempt(1) };
        let bar = |stage, begin_us, end_us| Bar { begin_us, end_us, stage, at };
        let mut device = DeviceTrack::default();
        assert_eq!(device.kernel_time(), KernelTime::default());
        device.lanes.insert(
            0,
            vec![bar(Stage::Upload, 0, 100), bar(Stage::Quotient, 100, 200), bar(Stage::SumH, 260, 300)],
        );
        device.lanes.insert(
            1,
            vec![
                bar(Stage::Evaluate, 150, 220),
                bar(Stage::SumBG2, 280, 290),
                bar(Stage::Assemble, 300, 900),
            ],
        );
        let time = device.kernel_time();
        assert_eq!(time, KernelTime { span_us: 200, idle_us: 40 });
        assert!((time.idle_share() - 0.2).abs() < 1e-9);
    }

    #[test]
    fn a_log_that_begins_in_the_middle_is_drawn_all_the_same() {
        let timeline = Timeline::new(&small_log()[4..]);
        assert_eq!(timeline.devices[&DeviceId::new("sim-0")].lanes[&0].len(), 2);
        assert!(timeline.jobs.is_empty());
        assert!(Timeline::new(&[]).to_svg().contains("</svg>"));
    }
}
