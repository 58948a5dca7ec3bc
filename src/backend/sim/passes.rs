//! Partitions of a simulated device that go through their sums together.

use std::time::Duration;

use super::state::{delayed, SimState, Step};
use super::{ComputeError, FaultKind};
use crate::backend::steps::ProofSteps;
use crate::backend::{LaneIndex, Stage};
use crate::error::DeviceError;
use crate::policy::plan::{Query, QuerySet};
use crate::policy::shared_pass::PassPlan;

/// What a lane's computation came to; nothing where proofs are placeholders.
type Computed = Result<Option<Box<ProofSteps>>, ComputeError>;

/// A pass, until its last sum has ended or nobody is left in it.
pub(super) struct SimPass {
    lanes: Vec<LaneIndex>,
    plan: PassPlan,
    /// Memory of all of them together that is allocated now.
    pub common_bytes: u64,
    /// Each has copied its packed witness.
    is_copied: bool,
}

/// A stage that all members of a pass begin now. To be computed for each that has steps, and to take so long in all.
pub(super) struct PassStep {
    pub stage: Stage,
    pub duration: Duration,
    pub members: Vec<(LaneIndex, Option<Box<ProofSteps>>)>,
}

/// Its place in the list, for as long as the list is not changed.
#[derive(Clone, Copy)]
pub(super) struct PassPlace(usize);

impl SimState {
    /// Frees the lane's working memory.
    pub fn park(&mut self, lane: LaneIndex) {
        let state = self.lane(lane);
        assert!(
            state.running.is_none() && state.queue.is_empty(),
            "lane {} is idle when it is parked",
            lane.0
        );
        // A failure that is not polled yet has emptied it.
        if let Some(partition) = &mut state.partition {
            partition.work_bytes = 0;
        }
    }

    pub fn begin_pass(&mut self, lanes: &[LaneIndex], plan: &PassPlan) {
        assert!(plan.num_members as usize >= lanes.len(), "a pass is planned for all of its members");
        assert!(lanes.iter().all(|lane| self.pass_of(*lane).is_none()), "a lane is in one pass");
        let lanes = lanes.iter().copied().filter(|lane| self.lane(*lane).partition.is_some()).collect();
        let lanes: Vec<LaneIndex> = lanes;
        if lanes.is_empty() {
            return;
        }
        self.passes.push(SimPass { lanes, plan: plan.clone(), common_bytes: 0, is_copied: false });
    }

    pub(super) fn pass_of(&self, lane: LaneIndex) -> Option<PassPlace> {
        self.passes.iter().position(|pass| pass.lanes.contains(&lane)).map(PassPlace)
    }

    pub(super) fn members_of(&self, pass: PassPlace) -> Vec<LaneIndex> {
        self.passes[pass.0].lanes.clone()
    }

    /// The lane is empty, or goes on by itself.
    pub(super) fn leave_pass(&mut self, lane: LaneIndex) {
        for pass in &mut self.passes {
            pass.lanes.retain(|member| *member != lane);
        }
        self.passes.retain(|pass| !pass.lanes.is_empty());
    }

    /// Begins the stage for all members, once each of them has it next.
    pub(super) fn start_together(&mut self, pass: PassPlace, stage: Stage) -> Option<Step> {
        let lanes = self.members_of(pass);
        let all_have_it = lanes.iter().all(|lane| {
            let lane = self.lane(*lane);
            lane.running.is_none() && lane.queue.front() == Some(&stage)
        });
        if !all_have_it || self.must_wait_to_compute(lanes[0], stage) {
            return None;
        }
        for lane in &lanes {
            self.lane(*lane).queue.pop_front();
        }
        let faults: Vec<Vec<FaultKind>> = lanes.iter().map(|lane| self.faults_at(*lane, stage)).collect();
        if faults.iter().flatten().any(|fault| *fault == FaultKind::Lost) {
            for lane in lanes {
                self.fall_off_the_bus(lane, stage);
            }
            return Some(Step::EndedAtOnce);
        }
        self.allocate_together(pass, stage);
        // Those that were refused memory have left.
        let place = lanes.iter().find_map(|lane| self.pass_of(*lane));
        let Some(place) = place else { return Some(Step::EndedAtOnce) };
        let left = self.members_of(place);
        let works = lanes.iter().zip(&faults).filter(|(lane, _)| left.contains(lane));
        let work = works.fold(Duration::ZERO, |sum, (lane, faults)| {
            sum.saturating_add(delayed(self.work_of_stage(*lane, stage), faults))
        });
        let duration = work.max(self.copy_together(place, stage));
        let computes = self.config().takes_whole_device(left[0], stage);
        let mut members = Vec::with_capacity(left.len());
        for (index, lane) in left.into_iter().enumerate() {
            let state = self.lane(lane);
            state.running = Some(stage);
            state.computes = computes && index == 0;
            members.push((lane, state.partition.as_mut().and_then(|partition| partition.steps.take())));
        }
        Some(Step::RunTogether(PassStep { stage, duration, members }))
    }

    /// Frees what the last stage had and allocates for this one: what is common, which all of them need, and each member's own.
    fn allocate_together(&mut self, pass: PassPlace, stage: Stage) {
        let Some(query) = Query::of_stage(stage) else { return };
        let lanes = self.members_of(pass);
        let bytes = self.passes[pass.0].plan.bytes(query);
        self.passes[pass.0].common_bytes = 0;
        for lane in &lanes {
            self.set_own_bytes(*lane, 0);
        }
        let at = self.work_of(lanes[0]);
        if let Err(error) = self.allocate(&at, bytes.common) {
            for lane in lanes {
                let at = self.work_of(lane);
                let error = match error.clone() {
                    DeviceError::OutOfVram { asked_bytes, free_bytes, .. } => {
                        DeviceError::OutOfVram { at, asked_bytes, free_bytes }
                    }
                    other => other,
                };
                self.fail(lane, stage, error);
            }
            return;
        }
        self.passes[pass.0].common_bytes = bytes.common;
        for lane in lanes {
            let at = self.work_of(lane);
            match self.allocate(&at, bytes.per_member) {
                Ok(()) => self.set_own_bytes(lane, bytes.per_member),
                Err(error) => self.fail(lane, stage, error),
            }
        }
    }

    fn set_own_bytes(&mut self, lane: LaneIndex, bytes: u64) {
        if let Some(partition) = &mut self.lane(lane).partition {
            partition.work_bytes = bytes;
        }
    }

    /// What passes over the link during the stage: a streamed query once, and before the first one all packed witnesses.
    fn copy_together(&mut self, pass: PassPlace, stage: Stage) -> Duration {
        let lanes = self.members_of(pass);
        let srs = self.lane(lanes[0]).partition.as_ref().map(|partition| partition.srs);
        let pass = &mut self.passes[pass.0];
        let is_copied = std::mem::replace(&mut pass.is_copied, true);
        let packed_bytes = if is_copied { 0 } else { pass.plan.packed_bytes * lanes.len() as u64 };
        let streamed = Query::of_stage(stage).filter(|query| pass.plan.sum(*query).streamed);
        let query_bytes =
            streamed.zip(srs).map_or(0, |(query, srs)| srs.resident_bytes(QuerySet::NONE.with(query)));
        self.config().transfer(packed_bytes + query_bytes)
    }

    /// The stage has ended for all who began it; after the last one they are on their own.
    pub(super) fn end_together(
        &mut self,
        stage: Stage,
        elapsed: Duration,
        ended: Vec<(LaneIndex, Computed)>,
    ) {
        let is_last = stage == Stage::SumBG2;
        for (lane, computed) in ended {
            if is_last {
                self.leave_pass(lane);
                self.set_own_bytes(lane, 0);
            }
            self.end_stage(lane, stage, elapsed, computed);
        }
    }
}
