//! What happens to partitions that run: stages end, are cancelled, fail, or take too long.

use std::sync::atomic::Ordering;
use std::time::Duration;

use actix::Context;
use tokio::time::Instant;

use super::{GpuDevice, Hold, Job, Origin, Phase};
use crate::actors::gpu_device::lanes::{Running, Sharing};
use crate::backend::{BackendEvent, DeviceBackend, FinishedProof, LaneIndex, Stage};
use crate::error::{DeviceError, ErrorClass, PlanError};
use crate::messages::device::{PartitionProved, StageFinished, StageTimings};
use crate::messages::events::{AttemptRef, EventKind};
use crate::policy::plan::{plan, ProvePlan};

impl<B: DeviceBackend> GpuDevice<B> {
    /// Besides the backend's own wake-ups: a device that hangs or whose context failed sends none. Idempotent, since
    /// missed ticks are repaid in a burst.
    pub(super) fn on_tick(&mut self, ctx: &mut Context<Self>) {
        self.num_ticks += 1;
        self.pump(ctx);
        self.apply_cancels(ctx);
        // A batch may have waited long enough.
        self.begin_due_pass(ctx);
        self.check_watchdog(ctx);
        self.publish_status();
        // Whether or not anything else has changed.
        if let Some(mut entry) = self.peers.board.get_mut(&self.id) {
            entry.num_ticks = self.num_ticks;
        }
    }

    /// Takes in all that has ended. Each event is one of a bounded number of stages in flight, so this ends.
    pub(super) fn pump(&mut self, ctx: &mut Context<Self>) {
        while let Some(device) = &mut self.device {
            // Before the poll: a wake-up during it means that there is more.
            device.wake_pending.store(false, Ordering::Release);
            let events = device.backend.poll();
            if events.is_empty() {
                break;
            }
            for event in events {
                self.take_in(event, ctx);
            }
        }
        self.finish_drain(ctx);
        self.publish_status();
    }

    fn take_in(&mut self, event: BackendEvent, ctx: &mut Context<Self>) {
        if !self.is_open() {
            return;
        }
        match event {
            BackendEvent::StageDone { lane, stage, elapsed } => self.stage_done(lane, stage, elapsed, ctx),
            BackendEvent::StageFailed { lane, error, .. } => self.lane_failed(lane, error, ctx),
            BackendEvent::Aborted { lane } => self.lane_aborted(lane, ctx),
        }
    }

    fn stage_done(&mut self, lane: LaneIndex, stage: Stage, elapsed: Duration, ctx: &mut Context<Self>) {
        let Some(device) = &mut self.device else { return };
        let Some(running) = self.lanes.running_mut(lane) else { return };
        let expected = running.in_flight.pop_front();
        debug_assert_eq!(expected, Some(stage), "stages end in order");
        drop(running.stage_spans.pop_front());
        running.running_since = Instant::now();
        running.timings.push((stage, elapsed));
        let own = elapsed / running.num_in_stage(stage);
        running.waited_for_others += elapsed - own;
        running.count_stage(stage, own);
        device.watchdog.learn(&running.job.circuit, stage, own);
        let is_new_key =
            stage == Stage::Upload && running.pinned && device.cache.mark_loaded(&running.job.circuit);
        if is_new_key && self.phase != Phase::Testing {
            let circuit = running.job.circuit.clone();
            self.tell_residency(&circuit, true);
        }
        let Some(running) = self.lanes.running_mut(lane) else { return };
        if matches!(running.job.origin, Origin::Scheduler { .. }) {
            let at = running.job.at.clone();
            if let Some(at) = AttemptRef::of(&at) {
                self.peers.events.emit(|| EventKind::StageDone {
                    at,
                    device: self.id.clone(),
                    lane: lane.0,
                    stage,
                    elapsed_us: elapsed.as_micros() as u64,
                });
            }
            let device = self.id.clone();
            self.peers.stage_finished.do_send(StageFinished { at, device, stage, elapsed });
        }
        if running.aborting {
            return;
        }
        // A preload wants no more than its upload.
        if running.job.is_cancelled() || running.job.is_preload() {
            self.abort(lane);
        } else if stage == Stage::Assemble {
            self.lane_finished(lane, ctx);
        } else if stage == Stage::SumH {
            self.after_sum_h(lane, ctx);
        } else {
            self.advance(lane, ctx);
        }
    }

    /// Keeps the lane supplied with stages, unless CRITICAL work goes first.
    pub(super) fn advance(&mut self, lane: LaneIndex, ctx: &mut Context<Self>) {
        let critical_is_running = self.lanes.critical_is_running();
        let Some(device) = &mut self.device else { return };
        let Some(running) = self.lanes.running_mut(lane) else { return };
        let yields = critical_is_running && !running.job.is_critical() && !device.layout.critical_preempts;
        let max_in_flight = 1 + device.backend.stages_ahead() as usize;
        let (mut failed, mut invites) = (None, false);
        while !running.aborting && !yields && running.in_flight.len() < max_in_flight {
            let Some(stage) = running.stages.pop_front() else { break };
            if running.in_flight.is_empty() {
                running.running_since = Instant::now();
            }
            if let Err(error) = device.backend.enqueue(lane, stage) {
                failed = Some(error);
                break;
            }
            running.in_flight.push_back(stage);
            invites |= stage == Stage::SumH;
            let parent = &running.job.span;
            running
                .stage_spans
                .push_back(tracing::info_span!(parent: parent, "stage", %stage, lane = lane.0));
        }
        if let Some(error) = failed {
            self.lane_failed(lane, error, ctx);
        } else if invites {
            self.invite_another(lane);
        }
    }

    fn lane_finished(&mut self, lane: LaneIndex, ctx: &mut Context<Self>) {
        let Some(device) = &mut self.device else { return };
        let finished = match device.backend.take_proof(lane) {
            Ok(finished) => finished,
            Err(error) => return self.lane_failed(lane, error, ctx),
        };
        let Some(released) = self.release(lane) else { return };
        let job = &released.job;
        match &job.origin {
            Origin::SelfTest { expected } => {
                let is_right = **expected == finished.proof;
                self.self_test_ended(job, is_right, ctx);
            }
            Origin::Scheduler { .. } => self.answer_proved(released, finished),
            Origin::Preload { .. } => unreachable!("a preload has no stage but its upload"),
        }
        self.lane_is_free(ctx);
    }

    fn answer_proved(&mut self, released: Released, finished: FinishedProof) {
        let Released { job, plan, sharing, timings, own_sums, waited_for_others, .. } = released;
        self.learn_gain(&job, &plan, sharing, own_sums);
        let memory_planned_bytes = plan.work_peak_bytes();
        self.partitions_proved += 1;
        tracing::debug!(parent: &job.span, device = %self.id, "partition proved");
        if let Some(at) = AttemptRef::of(&job.at) {
            let device = self.id.clone();
            let (planned_bytes, peak_bytes) = (memory_planned_bytes, finished.memory_peak_bytes);
            self.peers.events.emit(|| EventKind::PartitionProved { at, device, planned_bytes, peak_bytes });
        }
        self.peers.proved.do_send(PartitionProved {
            at: job.at,
            device: self.id.clone(),
            proof: finished.proof,
            timings: StageTimings(timings),
            waited_for_others,
            memory_peak_bytes: finished.memory_peak_bytes,
            memory_planned_bytes,
        });
    }

    fn self_test_ended(&mut self, job: &Job, is_right: bool, ctx: &mut Context<Self>) {
        if !is_right {
            let what = "the proof of the known answer differs from the host's".to_owned();
            let error = DeviceError::Fault { at: job.at.clone(), stage: Stage::Assemble.as_str(), what };
            return self.lose(error, ctx);
        }
        self.evict(&job.circuit);
        if self.phase == Phase::Testing {
            self.report_ready(ctx);
        }
    }

    /// The lane is empty because of an error; decides who hears of it.
    pub(super) fn lane_failed(&mut self, lane: LaneIndex, error: DeviceError, ctx: &mut Context<Self>) {
        self.lanes.leave_pass(lane);
        let Some(Released { job, plan, .. }) = self.release(lane) else { return };
        if error.class() == ErrorClass::DeviceLost {
            self.answer_failed(job, error.clone());
            return self.lose(error, ctx);
        }
        if job.is_cancelled() {
            let at = job.at.clone();
            self.answer_failed(job, DeviceError::Cancelled { at });
        } else if matches!(error, DeviceError::OutOfVram { .. }) {
            self.replan_or_fail(lane, job, plan.peak_bytes(), error, ctx);
        } else {
            self.give_up(job, error, ctx);
        }
        self.lane_is_free(ctx);
    }

    /// The driver refused memory that the plan counted on: tries once more with less, if less will do. The same size
    /// is never tried twice.
    fn replan_or_fail(
        &mut self,
        lane: LaneIndex,
        mut job: Job,
        refused_bytes: u64,
        error: DeviceError,
        ctx: &mut Context<Self>,
    ) {
        self.remember_refusal(&job.at, refused_bytes);
        let smaller = self.smaller_budget(&job, refused_bytes).filter(|_| !job.was_replanned);
        let Some(ceiling_bytes) = smaller else {
            return self.give_up(job, error, ctx);
        };
        tracing::warn!(parent: &job.span, device = %self.id, %error, ceiling_bytes, "replanning with less memory");
        job.ceiling_bytes = Some(ceiling_bytes);
        job.was_replanned = true;
        self.place(lane, job, ctx);
    }

    fn lane_aborted(&mut self, lane: LaneIndex, ctx: &mut Context<Self>) {
        let Some(Released { job, given_up, .. }) = self.release(lane) else { return };
        if job.is_preload() {
            self.preload_ended(job);
        } else if let Some(error) = given_up.filter(|_| !job.is_cancelled()) {
            self.answer_failed(job, error);
        } else {
            let at = job.at.clone();
            self.answer_failed(job, DeviceError::Cancelled { at });
        }
        self.lane_is_free(ctx);
    }

    /// Takes a partition that the backend no longer has out of its lane and gives its working memory back; its key is
    /// idle from now on.
    fn release(&mut self, lane: LaneIndex) -> Option<Released> {
        let running = self.lanes.take_running(lane)?;
        let Running { job, plan, memory, sharing, pinned, timings, own_sums, .. } = running;
        let Running { waited_for_others, given_up, .. } = running;
        drop(memory);
        if pinned {
            let is_useless = self.device.as_mut().is_some_and(|device| device.cache.unpin(&job.circuit));
            if is_useless {
                self.evict(&job.circuit);
            }
        }
        Some(Released { job, plan, sharing, timings, own_sums, waited_for_others, given_up })
    }

    /// After a lane became empty, or gave its memory back: memory for those who wait, the next stages for those who yielded.
    pub(super) fn lane_is_free(&mut self, ctx: &mut Context<Self>) {
        self.place_waiting(ctx);
        for lane in self.lanes.running() {
            self.advance(lane, ctx);
        }
    }

    pub(super) fn abort(&mut self, lane: LaneIndex) {
        let Some(device) = &mut self.device else { return };
        let Some(running) = self.lanes.running_mut(lane) else { return };
        if !std::mem::replace(&mut running.aborting, true) {
            device.backend.abort(lane);
            self.lanes.leave_pass(lane);
        }
    }

    /// Cancels are flags: nobody sends a message that could come too late.
    fn apply_cancels(&mut self, ctx: &mut Context<Self>) {
        let cancelled: Vec<LaneIndex> = self
            .lanes
            .iter()
            .filter(|lane| match &lane.hold {
                Hold::Empty => false,
                Hold::Waiting { job, .. } => job.is_cancelled(),
                Hold::Running(running) => running.job.is_cancelled() && !running.aborting,
            })
            .map(|lane| lane.index)
            .collect();
        for &lane in &cancelled {
            match std::mem::take(self.lanes.hold_mut(lane)) {
                Hold::Waiting { job, .. } => {
                    let at = job.at.clone();
                    self.answer_failed(*job, DeviceError::Cancelled { at });
                }
                other => {
                    *self.lanes.hold_mut(lane) = other;
                    self.abort(lane);
                }
            }
        }
        if !cancelled.is_empty() {
            self.lane_is_free(ctx);
            self.pump(ctx);
        }
    }

    fn check_watchdog(&mut self, ctx: &mut Context<Self>) {
        let Some(device) = &self.device else { return };
        let hung = self.lanes.iter().find_map(|lane| {
            let Hold::Running(running) = &lane.hold else { return None };
            let stage = *running.in_flight.front()?;
            let limit = device.watchdog.limit(&running.job.circuit, stage);
            let limit = limit.saturating_mul(running.num_in_stage(stage));
            (running.running_since.elapsed() > limit).then_some((lane.index, stage, limit))
        });
        let Some((lane, stage, limit)) = hung else { return };
        // The lane still runs: its memory is not free, and the whole device goes with it.
        let Some(Running { job, .. }) = self.lanes.take_running(lane) else { return };
        let error = DeviceError::Hung {
            at: job.at.clone(),
            stage: stage.as_str(),
            limit_ms: limit.as_millis() as u64,
        };
        self.answer_failed(job, error.clone());
        self.lose(error, ctx);
    }

    /// A budget below `refused_bytes` with which the job can be planned: three quarters of it if that will do, else
    /// the least that does.
    fn smaller_budget(&self, job: &Job, refused_bytes: u64) -> Option<u64> {
        let (shape, srs) = self.device.as_ref()?.sizes(job);
        let quarter_less = refused_bytes / 4 * 3;
        match plan(&shape, &srs, quarter_less) {
            Ok(_) => Some(quarter_less),
            Err(PlanError::InsufficientVram { needs_bytes, .. }) => {
                (needs_bytes < refused_bytes).then_some(needs_bytes)
            }
        }
    }
}

/// What is left of a partition that left its lane.
struct Released {
    job: Job,
    plan: ProvePlan,
    sharing: Sharing,
    timings: Vec<(Stage, Duration)>,
    own_sums: Duration,
    waited_for_others: Duration,
    given_up: Option<DeviceError>,
}
