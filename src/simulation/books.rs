//! What is counted of a simulation, event by event.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::spans::Covered;
use crate::circuits::WorkKind;
use crate::ids::{DeviceId, JobId};
use crate::messages::events::{Event, EventConsumer, EventKind, JobOutcome};

/// Most events that are kept to be drawn: some hundred MiB of them.
const MAX_KEPT_EVENTS: usize = 1_000_000;

/// Of one kind of proof.
#[derive(Debug, Default)]
pub(super) struct KindFigures {
    pub accepted: u64,
    pub refused: u64,
    /// By outcome.
    pub ended: BTreeMap<JobOutcome, u64>,
    pub missed_deadlines: u64,
    /// Milliseconds from submission: until the first partition was on a device, and until the end of completed jobs.
    pub start_ms: Vec<u32>,
    pub total_ms: Vec<u32>,
    pub partitions: u64,
    pub retries: u64,
}

/// Of one device.
#[derive(Debug, Default)]
pub(super) struct DeviceFigures {
    pub name: String,
    pub memory_bytes: u64,
    pub computes: Covered,
    pub verified: u64,
    pub failed: u64,
    pub invalid: u64,
    pub quarantines: u64,
    pub is_gone: bool,
    is_up: bool,
    pub times_down: u64,
    pub peak_reserved_bytes: u64,
    pub peak_in_use_bytes: u64,
}

/// Of everything.
#[derive(Debug, Default)]
pub(super) struct Figures {
    pub kinds: BTreeMap<WorkKind, KindFigures>,
    pub devices: BTreeMap<DeviceId, DeviceFigures>,
    /// Jobs that were accepted and never ended.
    pub lost: u64,
    /// Partitions whose proof was verified before the horizon.
    pub partitions_in_time: u64,
    pub peak_queued_jobs: u64,
    pub peak_witness_bytes: u64,
    pub peak_circuit_bytes: u64,
    pub num_events: u64,
}

struct OpenJob {
    kind: WorkKind,
    accepted_us: u64,
    has_deadline: bool,
    has_started: bool,
}

struct State {
    horizon_us: u64,
    keep_us: Range<u64>,
    kept: Vec<Event>,
    figures: Figures,
    open: HashMap<JobId, OpenJob>,
    file: Option<BufWriter<File>>,
    file_error: Option<std::io::Error>,
}

/// Shared by the actors of one arbiter: never contended.
pub(super) struct Books(Mutex<State>);

/// Tells the books.
pub(super) struct BooksConsumer(pub Arc<Books>);

impl EventConsumer for BooksConsumer {
    fn consume(&self, event: Event) {
        self.0 .0.lock().unwrap_or_else(PoisonError::into_inner).take_in(event);
    }
}

impl Books {
    pub fn new(horizon: Duration, keep: Option<Range<Duration>>, file: Option<BufWriter<File>>) -> Self {
        let micros = |duration: Duration| duration.as_micros() as u64;
        Self(Mutex::new(State {
            horizon_us: micros(horizon),
            keep_us: keep.map_or(0..0, |keep| micros(keep.start)..micros(keep.end)),
            kept: Vec::new(),
            figures: Figures::default(),
            open: HashMap::new(),
            file,
            file_error: None,
        }))
    }

    /// The figures and the events that were kept.
    ///
    /// # Errors
    /// If the events could not be written.
    pub fn finish(&self) -> std::io::Result<(Figures, Vec<Event>)> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = &mut state.file {
            file.flush()?;
        }
        if let Some(error) = state.file_error.take() {
            return Err(error);
        }
        let mut figures = std::mem::take(&mut state.figures);
        figures.lost = state.open.len() as u64;
        Ok((figures, std::mem::take(&mut state.kept)))
    }
}

impl State {
    fn take_in(&mut self, event: Event) {
        self.figures.num_events += 1;
        self.count(&event);
        if let (Some(file), None) = (&mut self.file, &self.file_error) {
            let written = serde_json::to_writer(&mut *file, &event)
                .map_err(std::io::Error::from)
                .and_then(|()| file.write_all(b"\n"));
            self.file_error = written.err();
        }
        // What a device is must be known in whatever part is drawn.
        let is_of_device =
            matches!(event.kind, EventKind::DeviceReady { .. } | EventKind::DeviceHealth { .. });
        let is_wanted =
            event.at_us < self.keep_us.end && (self.keep_us.contains(&event.at_us) || is_of_device);
        if is_wanted && self.kept.len() < MAX_KEPT_EVENTS {
            self.kept.push(event);
        }
    }

    fn device(&mut self, id: &DeviceId) -> &mut DeviceFigures {
        // Looked up first: the name is only cloned for a device that was never heard of.
        if !self.figures.devices.contains_key(id) {
            self.figures.devices.insert(id.clone(), DeviceFigures::default());
        }
        self.figures.devices.get_mut(id).expect("it was just put there")
    }

    fn kind(&mut self, kind: WorkKind) -> &mut KindFigures {
        self.figures.kinds.entry(kind).or_default()
    }

    fn count(&mut self, event: &Event) {
        let at_us = event.at_us;
        match &event.kind {
            EventKind::DeviceReady { device, name, memory_bytes, .. } => {
                let figures = self.device(device);
                figures.name.clone_from(name);
                figures.memory_bytes = *memory_bytes;
                figures.is_up = true;
            }
            EventKind::DeviceDown { device, gone, .. } => {
                let figures = self.device(device);
                // A loss is told, and what follows from it too.
                figures.times_down += u64::from(std::mem::replace(&mut figures.is_up, false));
                figures.is_gone |= gone;
            }
            EventKind::DeviceHealth { device, health } => {
                self.device(device).quarantines += u64::from(health == "quarantined");
            }
            EventKind::DeviceMemory { device, reserved_bytes, in_use_bytes } => {
                let figures = self.device(device);
                figures.peak_reserved_bytes = figures.peak_reserved_bytes.max(*reserved_bytes);
                figures.peak_in_use_bytes = figures.peak_in_use_bytes.max(*in_use_bytes);
            }
            EventKind::HostMemory { witness_bytes, circuit_bytes } => {
                let figures = &mut self.figures;
                figures.peak_witness_bytes = figures.peak_witness_bytes.max(*witness_bytes);
                figures.peak_circuit_bytes = figures.peak_circuit_bytes.max(*circuit_bytes);
            }
            EventKind::StageDone { device, elapsed_us, .. } => {
                let end_us = at_us.min(self.horizon_us);
                let begin_us = at_us.saturating_sub(*elapsed_us);
                self.device(device).computes.add(begin_us, end_us);
            }
            EventKind::PartitionVerified { device, .. } => {
                self.device(device).verified += 1;
                self.figures.partitions_in_time += u64::from(at_us <= self.horizon_us);
            }
            EventKind::AttemptFailed { device, invalid, .. } => {
                let figures = self.device(device);
                figures.failed += 1;
                figures.invalid += u64::from(*invalid);
            }
            EventKind::JobRefused { kind, .. } => self.kind(*kind).refused += 1,
            _ => self.count_job(event),
        }
    }

    fn count_job(&mut self, event: &Event) {
        match &event.kind {
            EventKind::JobAccepted { job, kind, deadline_us, .. } => {
                self.kind(*kind).accepted += 1;
                let open = OpenJob {
                    kind: *kind,
                    accepted_us: event.at_us,
                    has_deadline: deadline_us.is_some(),
                    has_started: false,
                };
                self.open.insert(*job, open);
                self.figures.peak_queued_jobs = self.figures.peak_queued_jobs.max(self.open.len() as u64);
            }
            EventKind::Placed { at, .. } => {
                let Some(open) = self.open.get_mut(&at.job) else { return };
                if !std::mem::replace(&mut open.has_started, true) {
                    let (kind, waited_us) = (open.kind, event.at_us - open.accepted_us);
                    self.kind(kind).start_ms.push(to_ms(waited_us));
                }
            }
            EventKind::JobEnded { job, kind, outcome, num_partitions, retries, total_us, .. } => {
                let missed = self.open.remove(job).is_some_and(|open| open.has_deadline)
                    && *outcome != JobOutcome::Completed;
                let figures = self.kind(*kind);
                *figures.ended.entry(*outcome).or_default() += 1;
                figures.missed_deadlines += u64::from(missed);
                figures.retries += u64::from(*retries);
                if *outcome == JobOutcome::Completed {
                    figures.partitions += u64::from(*num_partitions);
                    figures.total_ms.push(to_ms(*total_us));
                }
            }
            _ => {}
        }
    }
}

fn to_ms(micros: u64) -> u32 {
    u32::try_from(micros.div_ceil(1000)).unwrap_or(u32::MAX)
}
