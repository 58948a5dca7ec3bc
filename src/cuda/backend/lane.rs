//! One lane: what becomes of the partitions it is given, one after the other.

use std::sync::Arc;

use super::partition::{HostSide, Partition, Report};
use super::{device_error, Shared};
use crate::backend::{BackendEvent, FinishedProof, LaneIndex, PartitionWork, Stage};
use crate::cuda::staging::Ticket;
use crate::cuda::witness::DenseCounter;
use crate::cuda::{Context, CudaError, Event, Priority, Stream};
use crate::error::{DeviceError, ErrorClass};
use crate::ids::{JobId, WorkRef};
use crate::policy::plan::ProvePlan;

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
    /// Of a critical lane: first in every queue.
    pub is_urgent: bool,
    /// Counts on `compute`.
    pub dense: DenseCounter,
}

enum State {
    Empty,
    Running(Box<Partition>),
    /// Until the device has passed what was launched, and the copies under way are done.
    Aborting {
        end: Option<Event>,
        tickets: Vec<Ticket>,
    },
    Finished(Box<FinishedProof>),
}

impl Lane {
    pub fn new(context: &Context, index: LaneIndex, priority: Priority) -> Result<Self, CudaError> {
        let compute = Stream::new(context, priority)?;
        let streams = Streams {
            dense: DenseCounter::new(&compute)?,
            compute,
            copies: Stream::new(context, priority)?,
            is_urgent: priority == Priority::High,
        };
        Ok(Self { index, streams, state: State::Empty, run: 0 })
    }

    /// Takes a partition. Nothing is launched yet.
    pub fn begin(
        &mut self,
        work: PartitionWork,
        plan: &ProvePlan,
        shared: &mut Shared,
    ) -> Result<(), DeviceError> {
        self.run += 1;
        self.state = State::Running(Box::new(Partition::new(work, plan, shared)));
        Ok(())
    }

    pub fn enqueue(&mut self, stage: Stage, shared: &mut Shared) -> Result<(), DeviceError> {
        let State::Running(running) = &mut self.state else {
            let what = "a stage for an empty lane".to_owned();
            return Err(DeviceError::Fault { at: nobody(shared), stage: stage.as_str(), what });
        };
        let host = HostSide { lane: self.index, run: self.run };
        let Err((stage, error)) = running.enqueue(stage, &mut self.streams, host, shared) else {
            return Ok(());
        };
        let error = device_error(running.at(), stage, &error, &shared.context);
        running.let_go(shared);
        self.state = State::Empty;
        Err(error)
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
                    Err((stage, error)) => self.fail_at(stage, &error, shared, events),
                }
            }
            State::Aborting { end, tickets } => {
                let device_is_done = end.as_ref().map_or(Ok(true), Event::is_done);
                match device_is_done {
                    Ok(false) => {}
                    Ok(true) if tickets.iter().any(|ticket| !ticket.is_done()) => {}
                    Ok(true) => {
                        self.state = State::Empty;
                        events.push(BackendEvent::Aborted { lane });
                    }
                    Err(error) => self.fail(&error, shared, events),
                }
            }
        }
    }

    /// The device failed under whatever this lane was doing.
    pub fn fail(&mut self, error: &CudaError, shared: &mut Shared, events: &mut Vec<BackendEvent>) {
        let stage = match &self.state {
            State::Empty | State::Finished(_) => return,
            State::Running(running) => running.current_stage(),
            State::Aborting { .. } => Stage::Assemble,
        };
        self.fail_at(stage, error, shared, events);
    }

    fn fail_at(
        &mut self,
        stage: Stage,
        error: &CudaError,
        shared: &mut Shared,
        events: &mut Vec<BackendEvent>,
    ) {
        let lane = self.index;
        match std::mem::replace(&mut self.state, State::Empty) {
            State::Running(mut running) => {
                let error = device_error(running.at(), stage, error, &shared.context);
                running.let_go(shared);
                events.push(BackendEvent::StageFailed { lane, stage, error });
            }
            State::Aborting { .. } => {
                let error = device_error(&nobody(shared), stage, error, &shared.context);
                events.push(if error.class() == ErrorClass::DeviceLost {
                    BackendEvent::StageFailed { lane, stage, error }
                } else {
                    BackendEvent::Aborted { lane }
                });
            }
            State::Empty | State::Finished(_) => {}
        }
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

    /// Launches nothing more; [`poll`](Self::poll) reports when the device has passed what was launched.
    pub fn abort(&mut self, shared: &mut Shared) {
        self.run += 1;
        let mut tickets = Vec::new();
        if let State::Running(running) = &mut self.state {
            tickets = running.let_go(shared);
        }
        // Frees the partition's memory in stream order, before the mark.
        self.state = State::Empty;
        let waker = Arc::clone(&shared.waker);
        let end = self.streams.compute.record().and_then(|end| {
            self.streams.compute.notify(move || waker())?;
            Ok(end)
        });
        // Without a mark the context is lost, and nothing runs in it any more.
        self.state = State::Aborting { end: end.ok(), tickets };
        (shared.waker)();
    }

    pub fn used_bytes(&self) -> u64 {
        match &self.state {
            State::Running(running) => running.used_bytes(),
            _ => 0,
        }
    }
}

/// In errors that concern no partition.
fn nobody(shared: &Shared) -> WorkRef {
    WorkRef::job(JobId(0)).on(shared.context.device().id.clone())
}
