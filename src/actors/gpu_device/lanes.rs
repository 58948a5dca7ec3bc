//! What each lane of a device holds.

use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix::Recipient;
use tokio::time::Instant;

use crate::actors::gpu_device::ledger::{Claim, Reservation};
use crate::backend::{LaneIndex, LaneLayout, PartitionWork, Stage};
use crate::error::{DeviceError, SynthesisError};
use crate::groth16::{Blinding, PackedWitness, Proof, R1csShape, Srs};
use crate::ids::{CircuitId, WorkRef};
use crate::messages::device::{CancelFlag, LaneCredit, LaneKind, ProvePartition};
use crate::messages::job::Priority;
use crate::messages::srs::SrsPreloaded;
use crate::policy::plan::ProvePlan;

/// Who is told about the end of a piece of work.
pub enum Origin {
    /// The Scheduler. The credit goes back when this is dropped; before that where another partition is to come and join a
    /// pass with this one.
    Scheduler { cancel: CancelFlag, credit: Option<LaneCredit> },
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
        Self::new(work, priority, Origin::Scheduler { cancel, credit: Some(credit) }, span)
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

    /// Lets the Scheduler send another partition while this one is still here.
    pub fn give_credit_back(&mut self) {
        if let Origin::Scheduler { credit, .. } = &mut self.origin {
            drop(credit.take());
        }
    }

    /// It is here beyond what the Scheduler counts.
    fn has_given_credit_back(&self) -> bool {
        matches!(self.origin, Origin::Scheduler { credit: None, .. })
    }

    /// Whether it may wait for others: not what is CRITICAL, no proof of a job's, or was refused memory before.
    pub fn may_share(&self) -> bool {
        let is_of_a_job = matches!(self.origin, Origin::Scheduler { .. });
        is_of_a_job && !self.is_critical() && self.ceiling_bytes.is_none()
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

/// With whom a partition goes through its sums after `SumH`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// By itself, in the memory of its own plan.
    Alone,
    /// It is on its way to being parked; so many may be in its pass.
    Joins { max_members: u32 },
    /// Nothing of it but its key is on the device.
    Parked { max_members: u32, since: Instant },
    /// `num_members` had the stage that runs begun, `num_left` will have the next one.
    InPass { pass: PassId, num_members: u32, num_left: u32 },
}

/// Tells the passes of one device apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassId(pub u64);

/// A partition that the backend has.
#[derive(Debug)]
pub struct Running {
    pub job: Job,
    pub plan: ProvePlan,
    /// Working memory, of the plan or of a pass, which its members hold together; resident queries are the cache's. `None`
    /// while it is parked.
    pub memory: Option<Rc<Reservation>>,
    pub sharing: Sharing,
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
    /// Its part of the sums that a pass takes, or all of them where it has them by itself.
    pub own_sums: Duration,
    /// Until others were there, and while they had their part of its stages.
    pub waited_for_others: Duration,
    /// The backend was told to abort it.
    pub aborting: bool,
    /// Why, if it was not cancelled.
    pub given_up: Option<DeviceError>,
}

impl Running {
    /// Partitions that go through this stage together: it takes as many times as long.
    pub fn num_in_stage(&self, stage: Stage) -> u32 {
        match self.sharing {
            Sharing::InPass { num_members, .. } if stage.is_of_pass() => num_members.max(1),
            _ => 1,
        }
    }

    /// A stage has ended, of which this was its own part: others may have left meanwhile, and have no part of the next.
    pub fn count_stage(&mut self, stage: Stage, own: Duration) {
        if !stage.is_of_pass() {
            return;
        }
        self.own_sums += own;
        match &mut self.sharing {
            Sharing::InPass { num_members, num_left, .. } if stage != Stage::SumBG2 => {
                *num_members = *num_left
            }
            _ => {}
        }
    }

    pub fn is_parked(&self) -> bool {
        matches!(self.sharing, Sharing::Parked { .. })
    }

    /// The most that may be in its pass, if that has not begun.
    fn max_members(&self) -> Option<u32> {
        match self.sharing {
            Sharing::Joins { max_members } | Sharing::Parked { max_members, .. } => Some(max_members),
            Sharing::Alone | Sharing::InPass { .. } => None,
        }
    }
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
    /// Beyond the credits that the Scheduler has.
    is_extra: bool,
    pub hold: Hold,
}

impl Lane {
    fn running(&self) -> Option<&Running> {
        match &self.hold {
            Hold::Running(running) => Some(running),
            Hold::Empty | Hold::Waiting { .. } => None,
        }
    }
}

/// All lanes of a device.
#[derive(Debug, Default)]
pub struct Lanes {
    lanes: Vec<Lane>,
    num_arrivals: u64,
}

impl Lanes {
    /// `num_parking`: [`crate::backend::DeviceBackend::parking_lanes`].
    pub fn new(layout: LaneLayout, num_parking: u32) -> Self {
        let of = |kind, is_extra, count: u32| std::iter::repeat_n((kind, is_extra), count as usize);
        let kinds = of(LaneKind::Normal, false, layout.normal)
            .chain(of(LaneKind::Critical, false, layout.critical))
            .chain(of(LaneKind::Normal, true, num_parking));
        let lane =
            |(index, (kind, is_extra))| Lane { index: LaneIndex(index), kind, is_extra, hold: Hold::Empty };
        Self { lanes: (0..).zip(kinds).map(lane).collect(), num_arrivals: 0 }
    }

    /// # Panics
    /// If the backend names a lane it does not have.
    pub fn hold_mut(&mut self, index: LaneIndex) -> &mut Hold {
        &mut self.lanes[index.0 as usize].hold
    }

    pub fn running_of(&self, index: LaneIndex) -> Option<&Running> {
        self.lanes[index.0 as usize].running()
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

    /// The job of a lane that waits for memory.
    pub fn waiting_job(&self, index: LaneIndex) -> Option<&Job> {
        match &self.lanes[index.0 as usize].hold {
            Hold::Waiting { job, .. } => Some(job),
            Hold::Empty | Hold::Running(_) => None,
        }
    }

    /// Lanes that the backend works on, CRITICAL first. What is parked is not worked on.
    pub fn running(&self) -> Vec<LaneIndex> {
        let mut running: Vec<(bool, LaneIndex)> = self
            .lanes
            .iter()
            .filter_map(|lane| Some((lane.running()?, lane.index)))
            .filter(|(running, _)| !running.is_parked())
            .map(|(running, index)| (!running.job.is_critical(), index))
            .collect();
        running.sort_unstable();
        running.into_iter().map(|(_, index)| index).collect()
    }

    /// Whether the backend has anything that will end, what is parked included.
    pub fn are_in_use(&self) -> bool {
        self.lanes.iter().any(|lane| lane.running().is_some())
    }

    pub fn critical_is_running(&self) -> bool {
        self.iter().any(|lane| matches!(&lane.hold, Hold::Running(running) if running.job.is_critical()))
    }

    pub fn iter(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.iter()
    }

    /// Parked lanes that are not being aborted, the one that was parked first in front.
    pub fn parked(&self) -> Vec<LaneIndex> {
        let mut parked: Vec<(Instant, LaneIndex)> = self
            .lanes
            .iter()
            .filter_map(|lane| match lane.running()? {
                Running { sharing: Sharing::Parked { since, .. }, aborting: false, .. } => {
                    Some((*since, lane.index))
                }
                _ => None,
            })
            .collect();
        parked.sort_unstable();
        parked.into_iter().map(|(_, index)| index).collect()
    }

    /// Partitions whose pass has not begun: on their way to it, or parked. They are of one circuit, one key and one set of
    /// resident queries.
    pub fn batch(&self) -> impl Iterator<Item = &Running> {
        self.lanes.iter().filter_map(Lane::running).filter(|running| running.max_members().is_some())
    }

    /// The most that may be in the pass that is to begin next; 0 if there is none.
    pub fn max_members(&self) -> u32 {
        self.batch().filter_map(Running::max_members).min().unwrap_or(0)
    }

    /// Partitions here beyond those that the Scheduler counts.
    pub fn num_beyond_credits(&self) -> u32 {
        let is_beyond = |lane: &&Lane| match &lane.hold {
            Hold::Empty => false,
            Hold::Waiting { job, .. } => job.has_given_credit_back(),
            Hold::Running(running) => running.job.has_given_credit_back(),
        };
        self.lanes.iter().filter(is_beyond).count() as u32
    }

    /// Lanes that there are credits for.
    pub fn num_of(&self, kind: LaneKind) -> u32 {
        self.lanes.iter().filter(|lane| lane.kind == kind && !lane.is_extra).count() as u32
    }

    /// How many partitions of a kind could be begun besides those that the backend works on by themselves. (A member of a
    /// pass, or what is parked, is in nobody's way.)
    pub fn num_free_of(&self, kind: LaneKind) -> u32 {
        let is_taken = |lane: &&Lane| {
            let by_itself =
                |running: &Running| matches!(running.sharing, Sharing::Alone | Sharing::Joins { .. });
            lane.kind == kind && lane.running().is_some_and(by_itself)
        };
        self.num_of(kind).saturating_sub(self.lanes.iter().filter(is_taken).count() as u32)
    }

    pub fn num_busy(&self) -> u32 {
        self.lanes.iter().filter(|lane| !matches!(lane.hold, Hold::Empty)).count() as u32
    }

    /// The partition of this lane will have no part of further stages: those who are in a pass with it are one fewer.
    pub fn leave_pass(&mut self, index: LaneIndex) {
        let sharing = self.running_of(index).map(|running| running.sharing);
        let Some(Sharing::InPass { pass: left, .. }) = sharing else { return };
        for lane in self.lanes.iter_mut().filter(|lane| lane.index != index) {
            let Hold::Running(running) = &mut lane.hold else { continue };
            match &mut running.sharing {
                Sharing::InPass { pass, num_left, .. } if *pass == left => {
                    *num_left = num_left.saturating_sub(1);
                }
                _ => {}
            }
        }
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
