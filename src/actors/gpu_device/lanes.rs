//! What each lane of a device holds.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use actix::Recipient;
use tokio::time::Instant;

use crate::actors::gpu_device::ledger::{Claim, Reservation};
use crate::backend::{LaneIndex, LaneLayout, PartitionWork, Stage};
use crate::error::SynthesisError;
use crate::groth16::{Blinding, PackedWitness, Proof, R1csShape, Srs};
use crate::ids::{CircuitId, WorkRef};
use crate::messages::device::{CancelFlag, LaneCredit, LaneKind, ProvePartition};
use crate::messages::job::Priority;
use crate::messages::srs::SrsPreloaded;
use crate::policy::plan::ProvePlan;

/// Who is told about the end of a piece of work.
pub enum Origin {
    /// The Scheduler. The credit goes back when this is dropped.
    Scheduler { cancel: CancelFlag, _credit: LaneCredit },
    /// The Scheduler, which wants the key on the device and no proof.
    Preload { answer: Recipient<SrsPreloaded>, _credit: LaneCredit },
    /// The actor itself, before it reports ready: the proof must be this one.
    SelfTest { expected: Box<Proof> },
}

/// One partition, as the actor keeps it until its answer: all that is needed to begin it again.
pub struct Job {
    pub at: WorkRef,
    pub circuit: CircuitId,
    pub shape: Arc<R1csShape>,
    pub srs: Arc<Srs>,
    witness: Arc<PackedWitness>,
    blinding: Blinding,
    pub priority: Priority,
    pub origin: Origin,
    pub span: tracing::Span,
    /// Plans must stay within this, since a larger one was refused memory.
    pub ceiling_bytes: Option<u64>,
    pub was_replanned: bool,
}

impl Job {
    pub fn new(work: PartitionWork, priority: Priority, origin: Origin, span: tracing::Span) -> Self {
        let PartitionWork { at, circuit, shape, srs, witness, blinding } = work;
        Self {
            at,
            circuit,
            shape,
            srs,
            witness,
            blinding,
            priority,
            origin,
            span,
            ceiling_bytes: None,
            was_replanned: false,
        }
    }

    pub fn from_message(message: ProvePartition) -> Self {
        let ProvePartition { work, priority, cancel, credit, span } = message;
        Self::new(work, priority, Origin::Scheduler { cancel, _credit: credit }, span)
    }

    /// What the backend gets.
    pub fn work(&self) -> PartitionWork {
        PartitionWork {
            at: self.at.clone(),
            circuit: self.circuit.clone(),
            shape: Arc::clone(&self.shape),
            srs: Arc::clone(&self.srs),
            witness: Arc::clone(&self.witness),
            blinding: self.blinding,
        }
    }

    /// The stages it goes through from here.
    pub fn stages(&self) -> VecDeque<Stage> {
        if self.is_preload() {
            return VecDeque::from([Stage::Upload]);
        }
        Stage::ALL.into_iter().collect()
    }

    /// # Errors
    /// [`SynthesisError::ShapeMismatch`] if the witness is of another shape.
    pub fn check_witness(&self) -> Result<(), SynthesisError> {
        self.shape.check_fits(&self.witness)
    }

    pub fn is_cancelled(&self) -> bool {
        match &self.origin {
            Origin::Scheduler { cancel, .. } => cancel.is_cancelled(),
            Origin::Preload { .. } | Origin::SelfTest { .. } => false,
        }
    }

    pub fn is_preload(&self) -> bool {
        matches!(self.origin, Origin::Preload { .. })
    }

    pub fn is_critical(&self) -> bool {
        self.priority == Priority::Critical
    }

    pub fn claim(&self) -> Claim {
        if self.is_critical() {
            Claim::Critical
        } else {
            Claim::Normal
        }
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("at", &self.at).field("circuit", &self.circuit).finish_non_exhaustive()
    }
}

/// A partition that the backend has.
#[derive(Debug)]
pub struct Running {
    pub job: Job,
    pub plan: ProvePlan,
    /// Working memory of the plan; resident queries are the cache's.
    pub memory: Reservation,
    /// It counts as a user of its circuit's resident queries.
    pub pinned: bool,
    /// Not enqueued yet.
    pub stages: VecDeque<Stage>,
    /// Enqueued and not ended; the first one runs.
    pub in_flight: VecDeque<Stage>,
    /// Of the stages in flight.
    pub stage_spans: VecDeque<tracing::Span>,
    /// Since when the first one in flight runs.
    pub running_since: Instant,
    pub timings: Vec<(Stage, Duration)>,
    /// The backend was told to abort it.
    pub aborting: bool,
}

/// What a lane holds.
#[derive(Debug, Default)]
pub enum Hold {
    #[default]
    Empty,
    /// Accepted; its plan does not fit beside what runs now.
    Waiting {
        job: Box<Job>,
        arrival: u64,
    },
    Running(Box<Running>),
}

#[derive(Debug)]
pub struct Lane {
    pub index: LaneIndex,
    pub kind: LaneKind,
    pub hold: Hold,
}

/// All lanes of a device.
#[derive(Debug, Default)]
pub struct Lanes {
    lanes: Vec<Lane>,
    num_arrivals: u64,
}

impl Lanes {
    pub fn new(layout: LaneLayout) -> Self {
        let kinds = std::iter::repeat_n(LaneKind::Normal, layout.normal as usize)
            .chain(std::iter::repeat_n(LaneKind::Critical, layout.critical as usize));
        let lanes =
            (0..).zip(kinds).map(|(index, kind)| Lane { index: LaneIndex(index), kind, hold: Hold::Empty });
        Self { lanes: lanes.collect(), num_arrivals: 0 }
    }

    /// # Panics
    /// If the backend names a lane it does not have.
    pub fn hold_mut(&mut self, index: LaneIndex) -> &mut Hold {
        &mut self.lanes[index.0 as usize].hold
    }

    pub fn running_mut(&mut self, index: LaneIndex) -> Option<&mut Running> {
        match self.hold_mut(index) {
            Hold::Running(running) => Some(running),
            Hold::Empty | Hold::Waiting { .. } => None,
        }
    }

    /// Takes out what the backend no longer has.
    pub fn take_running(&mut self, index: LaneIndex) -> Option<Running> {
        match std::mem::take(self.hold_mut(index)) {
            Hold::Running(running) => Some(*running),
            other => {
                *self.hold_mut(index) = other;
                None
            }
        }
    }

    pub fn empty_lane(&self, kind: LaneKind) -> Option<LaneIndex> {
        self.lanes
            .iter()
            .find(|lane| lane.kind == kind && matches!(lane.hold, Hold::Empty))
            .map(|lane| lane.index)
    }

    /// Keeps `job` in its empty lane until there is memory.
    pub fn wait(&mut self, index: LaneIndex, job: Box<Job>) {
        self.num_arrivals += 1;
        let arrival = self.num_arrivals;
        *self.hold_mut(index) = Hold::Waiting { job, arrival };
    }

    /// Lanes whose job waits for memory: CRITICAL first, then by arrival.
    pub fn waiting(&self) -> Vec<LaneIndex> {
        let mut waiting: Vec<(bool, u64, LaneIndex)> = self
            .lanes
            .iter()
            .filter_map(|lane| match &lane.hold {
                Hold::Waiting { job, arrival } => Some((!job.is_critical(), *arrival, lane.index)),
                Hold::Empty | Hold::Running(_) => None,
            })
            .collect();
        waiting.sort_unstable();
        waiting.into_iter().map(|(_, _, index)| index).collect()
    }

    /// Lanes that the backend works on, CRITICAL first.
    pub fn running(&self) -> Vec<LaneIndex> {
        let mut running: Vec<(bool, LaneIndex)> = self
            .lanes
            .iter()
            .filter_map(|lane| match &lane.hold {
                Hold::Running(running) => Some((!running.job.is_critical(), lane.index)),
                Hold::Empty | Hold::Waiting { .. } => None,
            })
            .collect();
        running.sort_unstable();
        running.into_iter().map(|(_, index)| index).collect()
    }

    pub fn critical_is_running(&self) -> bool {
        self.iter().any(|lane| matches!(&lane.hold, Hold::Running(running) if running.job.is_critical()))
    }

    pub fn iter(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.iter()
    }

    pub fn num_of(&self, kind: LaneKind) -> u32 {
        self.lanes.iter().filter(|lane| lane.kind == kind).count() as u32
    }

    /// Lanes of a kind that the backend does not work on: empty or waiting.
    pub fn num_free_of(&self, kind: LaneKind) -> u32 {
        let is_free = |lane: &&Lane| lane.kind == kind && !matches!(lane.hold, Hold::Running(_));
        self.lanes.iter().filter(is_free).count() as u32
    }

    pub fn num_busy(&self) -> u32 {
        self.lanes.iter().filter(|lane| !matches!(lane.hold, Hold::Empty)).count() as u32
    }

    /// Empties every lane.
    pub fn take_jobs(&mut self) -> Vec<Job> {
        self.lanes
            .iter_mut()
            .filter_map(|lane| match std::mem::take(&mut lane.hold) {
                Hold::Empty => None,
                Hold::Waiting { job, .. } => Some(*job),
                Hold::Running(running) => Some(running.job),
            })
            .collect()
    }
}
