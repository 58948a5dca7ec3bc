//! One lane: what becomes of the partitions it is given, one after the other.

use std::rc::Rc;

use super::ahead::Ahead;
use super::partition::{HostSide, Partition, PassWork, Report};
use super::sum::WindowSum;
use super::{device_error, Shared};
use crate::backend::{BackendEvent, FinishedProof, LaneIndex, PartitionWork, Stage};
use crate::cuda::spmv::RowChecker;
use crate::cuda::staging::Ticket;
use crate::cuda::witness::DenseCounter;
use crate::cuda::{Context, CudaError, Event, Priority, Stream};
use crate::error::{DeviceError, ErrorClass};
use crate::ids::{JobId, WorkRef};
use crate::policy::plan::{ProvePlan, Query};

/// An ordered sequence of stages: a stream for kernels, a stream for copies.
pub struct Lane {
    index: LaneIndex,
    streams: Streams,
    state: State,
    run: u64,
}

/// A lane's queues on the device.
pub struct Streams {
    pub compute: Stream,
    pub copies: Stream,
    /// What `compute` holds of sums.
    pub ahead: Ahead,
    /// Of a critical lane: first in every queue.
    pub is_urgent: bool,
    /// Counts on `compute`.
    pub dense: DenseCounter,
    /// Checks rows on `compute`.
    pub rows: RowChecker,
}

enum State {
    Empty,
    Running(Box<Partition>),
    /// Nothing more is launched; ends when the device has passed what was, and the copies under way are done. Until then
    /// resident points are still read, so the partition must not count as gone.
    Ending(Box<Ending>),
    Finished(Box<FinishedProof>),
}

struct Ending {
    /// Dropped at the end: nothing of it has to be waited for then.
    partition: Option<Box<Partition>>,
    left: Leftover,
    outcome: Outcome,
}

/// What is still under way of a partition that has ended.
#[derive(Clone, Default)]
pub struct Leftover {
    /// None: they could not be marked, so the context is lost and nothing runs in it. Behind each the actor is woken.
    pub ends: Vec<Rc<Event>>,
    pub tickets: Vec<Ticket>,
    /// Of a pass that failed before it gave them to its members. They are before `ends`: then dropping them does not wait.
    pub sums: Vec<Rc<WindowSum>>,
}

impl Leftover {
    /// Whether the device has passed all ends, and no copy is under way.
    fn is_done(&self) -> Result<bool, CudaError> {
        for end in &self.ends {
            if !end.is_done()? {
                return Ok(false);
            }
        }
        Ok(self.tickets.iter().all(Ticket::is_done))
    }

    fn extend(&mut self, other: Leftover) {
        self.ends.extend(other.ends);
        self.tickets.extend(other.tickets);
        self.sums.extend(other.sums);
    }
}

enum Outcome {
    Aborted,
    Failed { stage: Stage, error: DeviceError },
}

impl Outcome {
    fn event(self, lane: LaneIndex) -> BackendEvent {
        match self {
            Self::Aborted => BackendEvent::Aborted { lane },
            Self::Failed { stage, error } => BackendEvent::StageFailed { lane, stage, error },
        }
    }
}

impl Lane {
    pub fn new(context: &Context, index: LaneIndex, priority: Priority) -> Result<Self, CudaError> {
        let compute = Stream::new(context, priority)?;
        let streams = Streams {
            dense: DenseCounter::new(&compute)?,
            rows: RowChecker::new(&compute)?,
            compute,
            copies: Stream::new(context, priority)?,
            ahead: Ahead::default(),
            is_urgent: priority == Priority::High,
        };
        Ok(Self { index, streams, state: State::Empty, run: 0 })
    }

    /// Takes a partition. Nothing is launched yet.
    ///
    /// # Errors
    /// If it has one: a bug of the caller's.
    pub fn begin(
        &mut self,
        work: PartitionWork,
        plan: &ProvePlan,
        shared: &mut Shared,
    ) -> Result<(), DeviceError> {
        if !matches!(self.state, State::Empty) {
            return Err(misused(work.at, Stage::Upload, "a partition for a lane that has one"));
        }
        self.run += 1;
        self.state = State::Running(Box::new(Partition::new(work, plan, shared)));
        Ok(())
    }

    /// # Errors
    /// If there is no partition that could have another stage, or it was aborted: a bug of the caller's.
    pub fn enqueue(&mut self, stage: Stage, shared: &mut Shared) -> Result<(), DeviceError> {
        let running = match &mut self.state {
            State::Running(running) => running,
            State::Ending(ending) => {
                return match ending.outcome {
                    // The next poll says so, and that answers this stage too: the caller cannot know of it yet.
                    Outcome::Failed { .. } => Ok(()),
                    Outcome::Aborted => {
                        let at =
                            ending.partition.as_ref().map_or_else(|| nobody(shared), |of| of.at().clone());
                        Err(misused(at, stage, "a stage for a lane that was aborted"))
                    }
                };
            }
            State::Empty | State::Finished(_) => {
                return Err(misused(nobody(shared), stage, "a stage for an empty lane"));
            }
        };
        let host = HostSide { lane: self.index, run: self.run };
        if let Err((stage, error)) = running.enqueue(stage, &mut self.streams, host, shared) {
            let error = device_error(running.at(), stage, &error, &shared.context);
            self.end(Outcome::Failed { stage, error }, Leftover::default(), shared);
        }
        Ok(())
    }

    /// Frees the device memory of a partition whose sum over `h` is done.
    pub fn park(&mut self) {
        if let State::Running(running) = &mut self.state {
            running.park(&mut self.streams);
        }
    }

    /// What a pass needs of the partition, whose sums are the pass's from now on; `None`: it has failed meanwhile.
    pub fn join_pass(&mut self) -> Option<PassWork> {
        match &mut self.state {
            State::Running(running) => Some(running.join_pass()),
            _ => None,
        }
    }

    pub fn is_in_pass(&self) -> bool {
        self.running().is_some_and(Partition::is_in_pass)
    }

    /// The sum that its partition, a member of a pass, is ready for.
    pub fn next_in_pass(&self) -> Option<Stage> {
        self.running().and_then(Partition::next_in_pass)
    }

    /// The pass begins that sum.
    pub fn take_for_pass(&mut self) {
        if let State::Running(running) = &mut self.state {
            running.take_for_pass();
        }
    }

    /// The pass has put the sum into its stream, between these events.
    pub fn give_pass_sum(&mut self, query: Query, windows: WindowSum, begun: Rc<Event>, end: Rc<Event>) {
        if let State::Running(running) = &mut self.state {
            running.give_pass_sum(query, windows, begun, end);
        }
    }

    /// The pass has failed, for all of its members.
    pub fn pass_failed(&mut self, stage: Stage, error: &CudaError, left: Leftover, shared: &mut Shared) {
        if let State::Running(running) = &self.state {
            let error = device_error(running.at(), stage, error, &shared.context);
            self.end(Outcome::Failed { stage, error }, left, shared);
        }
    }

    /// Its partition, which has failed by itself, was in a pass: what is left of it there. It is too late where that failure
    /// is reported already.
    pub fn wait_also_for(&mut self, left: Leftover) {
        match &mut self.state {
            State::Ending(ending) => ending.left.extend(left),
            _ => debug_assert!(false, "a lane that fails is looked at before its next poll"),
        }
    }

    fn running(&self) -> Option<&Partition> {
        match &self.state {
            State::Running(running) => Some(running),
            _ => None,
        }
    }

    /// What a host thread has made; nothing if it is for a partition that has gone.
    pub fn take_report(&mut self, report: Report) {
        match &mut self.state {
            State::Running(running) if report.run == self.run => running.take_report(report),
            _ => {}
        }
    }

    /// Moves on what can move, and reports what has ended.
    pub fn poll(&mut self, shared: &mut Shared, events: &mut Vec<BackendEvent>) {
        let lane = self.index;
        match &mut self.state {
            State::Empty | State::Finished(_) => {}
            State::Running(running) => {
                let host = HostSide { lane, run: self.run };
                match running.poll(&mut self.streams, host, shared, events) {
                    Ok(None) => {}
                    Ok(Some(finished)) => {
                        self.state = State::Finished(Box::new(finished));
                    }
                    Err((stage, error)) => {
                        let error = device_error(running.at(), stage, &error, &shared.context);
                        self.end(Outcome::Failed { stage, error }, Leftover::default(), shared);
                    }
                }
            }
            State::Ending(ending) => match ending.left.is_done() {
                Ok(true) => self.report_end(events),
                Ok(false) => {}
                Err(error) => self.fail(&error, shared, events),
            },
        }
    }

    /// The device failed under whatever this lane was doing: there is nothing to wait for.
    pub fn fail(&mut self, error: &CudaError, shared: &mut Shared, events: &mut Vec<BackendEvent>) {
        let (stage, at) = match &self.state {
            State::Empty | State::Finished(_) => return,
            State::Running(running) => (running.current_stage(), running.at().clone()),
            State::Ending(_) => (Stage::Assemble, nobody(shared)),
        };
        let error = device_error(&at, stage, error, &shared.context);
        match &mut self.state {
            State::Ending(ending) if error.class() != ErrorClass::DeviceLost => ending.left.ends.clear(),
            State::Ending(ending) => ending.outcome = Outcome::Failed { stage, error },
            _ => self.end(Outcome::Failed { stage, error }, Leftover::default(), shared),
        }
        self.report_end(events);
    }

    fn report_end(&mut self, events: &mut Vec<BackendEvent>) {
        if let State::Ending(ending) = std::mem::replace(&mut self.state, State::Empty) {
            let Ending { partition, left, outcome } = *ending;
            if let Some(mut partition) = partition {
                partition.give_replies_back(&mut self.streams);
            }
            drop(left);
            events.push(outcome.event(self.index));
        }
    }

    /// Launches nothing more of the partition; [`poll`](Self::poll) reports the outcome when the device has passed what
    /// was launched, and what is left elsewhere.
    fn end(&mut self, outcome: Outcome, mut left: Leftover, shared: &mut Shared) {
        self.run += 1;
        let mut partition = None;
        if let State::Running(mut running) = std::mem::replace(&mut self.state, State::Empty) {
            left.extend(running.let_go(shared));
            partition = Some(running);
        }
        left.ends.extend(self.streams.compute.mark(&shared.waker).map(Rc::new));
        self.state = State::Ending(Box::new(Ending { partition, left, outcome }));
        (shared.waker)();
    }

    pub fn take_proof(&mut self) -> Result<FinishedProof, DeviceError> {
        match std::mem::replace(&mut self.state, State::Empty) {
            State::Finished(finished) => Ok(*finished),
            other => {
                let at = match &other {
                    State::Running(running) => running.at().clone(),
                    _ => WorkRef::job(JobId(0)),
                };
                self.state = other;
                let what = "no proof to take".to_owned();
                Err(DeviceError::Fault { at, stage: Stage::Assemble.as_str(), what })
            }
        }
    }

    /// Stops the partition; a failure that is not reported yet is moot, unless it loses the device.
    pub fn abort(&mut self, left: Leftover, shared: &mut Shared) {
        match &mut self.state {
            State::Ending(ending) => {
                let is_moot = match &ending.outcome {
                    Outcome::Aborted => false,
                    Outcome::Failed { error, .. } => error.class() != ErrorClass::DeviceLost,
                };
                if is_moot {
                    ending.outcome = Outcome::Aborted;
                }
                ending.left.extend(left);
            }
            _ => self.end(Outcome::Aborted, left, shared),
        }
    }

    pub fn used_bytes(&self) -> u64 {
        match &self.state {
            State::Running(running) => running.used_bytes(),
            State::Ending(ending) => ending.partition.as_ref().map_or(0, |partition| partition.used_bytes()),
            _ => 0,
        }
    }
}

fn misused(at: WorkRef, stage: Stage, what: &str) -> DeviceError {
    DeviceError::Fault { at, stage: stage.as_str(), what: what.to_owned() }
}

/// In errors that concern no partition.
fn nobody(shared: &Shared) -> WorkRef {
    WorkRef::job(JobId(0)).on(shared.context.device().id.clone())
}
