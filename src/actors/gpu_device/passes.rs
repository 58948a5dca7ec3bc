//! Partitions that share a pass over the queries that a card streams: who is parked, when their pass begins, in what memory.
//!
//! ```text
//! admission: nothing streamed, CRITICAL, a preload, nothing gained so far -> Alone
//!            the first of a batch, or of the batch's circuit, key and plan -> Joins
//!
//! Joins  --SumH is enqueued-->  another is invited: the credit goes back while the pass has room and there are lanes
//! Joins  --SumH ends-->         nobody else is here or on the way: Alone, as if there were no passes
//!                               else Parked: its memory comes free, and the next one begins
//! Parked --the pass is due and has memory-->  InPass, with all that are parked
//! ```
//!
//! A pass is due when it is full, when nobody is on the way to it any more, or when the first of it has waited for
//! `BatchPolicy::max_time`. It gets the next memory that comes free before all work that is not CRITICAL; so it waits for
//! nothing but what runs, which ends. Where not all have memory beside that, half of them go on without the others, or whoever
//! has when the first has waited long enough. CRITICAL work neither waits for others nor is in their passes, and has the next
//! memory before any pass.
//!
//! What must never happen: a parked partition that nobody takes on. That is why only one batch is formed at a time, why its
//! circuit's resident queries do not grow meanwhile (the memory of the pass is what they leave), and why a pass of one needs no
//! more than a partition had by itself.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix::Context;
use tokio::time::Instant;

use super::{Claim, GpuDevice, Job, Phase};
use crate::actors::gpu_device::lanes::{PassId, Sharing};
use crate::actors::gpu_device::ledger::Reservation;
use crate::backend::{DeviceBackend, LaneIndex, Stage};
use crate::error::DeviceError;
use crate::policy::plan::ProvePlan;
use crate::policy::shared_pass::{
    has_shared_queries, least_members, members_of_batch, plan_pass, PassGain, PassPlan,
};

/// Circuits whose gain is known, at most. An embedding host may name any number of them; beyond this all are learnt anew.
const MAX_GAINS: usize = 256;

/// What became of the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DuePass {
    /// No pass is due, or none any more.
    None,
    /// One is due, and what runs has its memory.
    Waits,
}

/// Whether a pass has memory now.
enum PassFit {
    Now(PassPlan, Reservation),
    /// Once running work has ended.
    Later,
    Never,
}

/// The stages that a partition goes through before it is looked at again.
pub(super) fn stages_of(job: &Job, sharing: Sharing) -> VecDeque<Stage> {
    let is_for_now = |stage: &Stage| match sharing {
        Sharing::Joins { .. } => *stage <= Stage::SumH,
        Sharing::Alone | Sharing::Parked { .. } | Sharing::InPass { .. } => true,
    };
    if job.is_preload() {
        return VecDeque::from([Stage::Upload]);
    }
    Stage::ALL.into_iter().filter(is_for_now).collect()
}

fn stages_after_sum_h() -> VecDeque<Stage> {
    Stage::ALL.into_iter().filter(|stage| *stage > Stage::SumH).collect()
}

impl<B: DeviceBackend> GpuDevice<B> {
    /// Whether a partition that is about to begin is to share a pass.
    pub(super) fn sharing_of(&self, job: &Job, plan: &ProvePlan) -> Sharing {
        let Some(device) = &self.device else { return Sharing::Alone };
        if !self.may_join(job) || !self.lanes.batch().all(|other| other.plan.resident == plan.resident) {
            return Sharing::Alone;
        }
        let (shape, srs) = device.sizes(job);
        match self.plans.max_members(&shape, &srs, plan, members_of_batch(self.config.batches)) {
            0 => Sharing::Alone,
            max_members => Sharing::Joins { max_members },
        }
    }

    /// Whether a partition is for the batch, or would begin one, as far as that is known without its plan.
    fn may_join(&self, job: &Job) -> bool {
        let shares_passes = self.device.as_ref().is_some_and(|device| device.backend.parking_lanes() > 0);
        let may_wait = !self.config.batches.max_time.is_zero() && job.may_share();
        shares_passes
            && may_wait
            && self.gains.get(&job.circuit).is_none_or(PassGain::is_worth_while)
            && self.lanes.batch().all(|other| is_alike(&other.job, job))
    }

    /// A partition is proved: its own part of the sums, in a pass or by itself.
    pub(super) fn learn_gain(&mut self, job: &Job, plan: &ProvePlan, sharing: Sharing, own_sums: Duration) {
        let learn = match sharing {
            Sharing::InPass { num_members: 2.., .. } => PassGain::learn_shared,
            Sharing::Alone if has_shared_queries(plan) => PassGain::learn_alone,
            // A pass of one, or that all others left, says nothing of either.
            _ => return,
        };
        if self.gains.len() >= MAX_GAINS && !self.gains.contains_key(&job.circuit) {
            self.gains.clear();
        }
        learn(self.gains.entry(job.circuit.clone()).or_default(), own_sums);
    }

    /// The partition of this lane is about to be parked: another one may come.
    pub(super) fn invite_another(&mut self, lane: LaneIndex) {
        let Some(device) = &self.device else { return };
        if self.phase != Phase::Ready {
            // Whoever came would be refused.
            return;
        }
        let has_lane = self.lanes.num_beyond_credits() < device.backend.parking_lanes();
        let has_room = (self.lanes.batch().count() as u32) < self.lanes.max_members();
        let Some(running) = self.lanes.running_mut(lane) else { return };
        if has_lane && has_room && matches!(running.sharing, Sharing::Joins { .. }) {
            running.job.give_credit_back();
        }
    }

    /// Its sum over `h` is done.
    pub(super) fn after_sum_h(&mut self, lane: LaneIndex, ctx: &mut Context<Self>) {
        let is_alone = self.lanes.parked().is_empty() && !self.another_is_on_its_way(Some(lane));
        let Some(device) = &mut self.device else { return };
        let Some(running) = self.lanes.running_mut(lane) else { return };
        let Sharing::Joins { max_members } = running.sharing else { return self.advance(lane, ctx) };
        if is_alone {
            running.sharing = Sharing::Alone;
            running.stages = stages_after_sum_h();
            return self.advance(lane, ctx);
        }
        debug_assert!(running.in_flight.is_empty(), "nothing is enqueued behind the sum over h");
        device.backend.park(lane);
        running.memory = None;
        running.sharing = Sharing::Parked { max_members, since: Instant::now() };
        self.lane_is_free(ctx);
    }

    /// Whether a partition that could join the batch is being proved, `but` apart, or gets the next memory.
    fn another_is_on_its_way(&self, but: Option<LaneIndex>) -> bool {
        let is_joining = |lane: &LaneIndex| Some(*lane) != but && self.is_joining(*lane);
        if self.lanes.iter().map(|lane| lane.index).any(|lane| is_joining(&lane)) {
            return true;
        }
        let first_waiting = self.lanes.waiting().first().and_then(|lane| self.lanes.waiting_job(*lane));
        first_waiting.is_some_and(|job| !job.is_cancelled() && self.may_join(job))
    }

    fn is_joining(&self, lane: LaneIndex) -> bool {
        self.lanes
            .running_of(lane)
            .is_some_and(|running| matches!(running.sharing, Sharing::Joins { .. }) && !running.aborting)
    }

    /// Whether a pass is to begin as soon as there is memory.
    pub(super) fn pass_is_due(&self) -> bool {
        let parked = self.lanes.parked();
        let is_full = parked.len() as u32 >= self.lanes.max_members();
        !parked.is_empty() && (is_full || self.is_late(&parked) || !self.another_is_on_its_way(None))
    }

    /// Whether the first that was parked has waited as long as it may.
    fn is_late(&self, parked: &[LaneIndex]) -> bool {
        let first = parked.first().and_then(|lane| self.lanes.running_of(*lane));
        first.is_some_and(|running| match running.sharing {
            Sharing::Parked { since, .. } => since.elapsed() >= self.config.batches.max_time,
            _ => false,
        })
    }

    /// Begins the pass that is due, if one is.
    pub(super) fn begin_due_pass(&mut self, ctx: &mut Context<Self>) -> DuePass {
        if !self.pass_is_due() {
            return DuePass::None;
        }
        if self.critical_waits_for_memory() {
            return DuePass::Waits;
        }
        self.begin_pass(ctx)
    }

    /// The memory that a pass would have is for CRITICAL work first, unless that waits for the very key that the pass lets go.
    fn critical_waits_for_memory(&self) -> bool {
        let first_waiting = self.lanes.waiting().first().and_then(|lane| self.lanes.waiting_job(*lane));
        let is_for_key = |job: &Job| {
            self.lanes.batch().any(|other| other.job.circuit == job.circuit && !is_alike(&other.job, job))
        };
        first_waiting.is_some_and(|job| job.is_critical() && !is_for_key(job))
    }

    /// Somebody waits for memory: where nothing runs that would give any back, those who are parked go on without others.
    pub(super) fn hurry_pass(&mut self, ctx: &mut Context<Self>) {
        if self.lanes.running().is_empty() && !self.lanes.parked().is_empty() {
            self.begin_pass(ctx);
        }
    }

    fn begin_pass(&mut self, ctx: &mut Context<Self>) -> DuePass {
        let mut parked = self.lanes.parked();
        parked.truncate(self.lanes.max_members() as usize);
        let (plan, memory) = match self.fit_pass(&mut parked) {
            PassFit::Now(plan, memory) => (plan, Rc::new(memory)),
            PassFit::Later => return DuePass::Waits,
            PassFit::Never => {
                self.give_parked_up(&parked);
                return DuePass::None;
            }
        };
        let Some(device) = &mut self.device else { return DuePass::None };
        tracing::debug!(device = %self.id, num_members = parked.len(), bytes = memory.bytes(), "pass begun");
        device.backend.begin_pass(&parked, &plan);
        self.num_passes += 1;
        let (pass, num_members) = (PassId(self.num_passes), plan.num_members);
        for &lane in &parked {
            let Some(running) = self.lanes.running_mut(lane) else { continue };
            running.memory = Some(Rc::clone(&memory));
            if let Sharing::Parked { since, .. } = running.sharing {
                running.waited_for_others += since.elapsed();
            }
            running.sharing = Sharing::InPass { pass, num_members, num_left: num_members };
            running.stages = stages_after_sum_h();
        }
        drop(memory);
        // Each failure on the way leaves the others as they are, or takes the whole device.
        for lane in parked {
            self.advance(lane, ctx);
        }
        DuePass::None
    }

    /// Plans a pass of as many of these as have memory, and reserves it: of any number where nothing else runs, and else of as
    /// many as are worth while.
    fn fit_pass(&mut self, parked: &mut Vec<LaneIndex>) -> PassFit {
        let nothing_runs = self.lanes.running().is_empty();
        let most = parked.len() as u32;
        let least = if nothing_runs { 1 } else { least_members(most, self.is_late(parked)) };
        // Fewer never take more: where the least do not fit, there is no need to look at the others at every tick.
        let fits = self.plan_pass_of(parked, least).is_some();
        let fitted = (least..=most).rev().filter(|_| fits).find_map(|most| self.fit_pass_of(parked, most));
        match fitted {
            Some((plan, memory)) => {
                parked.truncate(plan.num_members as usize);
                PassFit::Now(plan, memory)
            }
            None if nothing_runs => PassFit::Never,
            None => PassFit::Later,
        }
    }

    fn fit_pass_of(&mut self, parked: &[LaneIndex], num_members: u32) -> Option<(PassPlan, Reservation)> {
        let num_changes = self.num_key_changes();
        let fitted = self.reserve_pass_of(parked, num_members);
        // What evicted keys held may be charged to the other side of the critical reserve, and be no gain: the second plan is made
        // for what is really free.
        match fitted {
            None if self.num_key_changes() != num_changes => self.reserve_pass_of(parked, num_members),
            fitted => fitted,
        }
    }

    fn reserve_pass_of(&mut self, parked: &[LaneIndex], num_members: u32) -> Option<(PassPlan, Reservation)> {
        let plan = self.plan_pass_of(parked, num_members)?;
        let circuit = self.lanes.running_of(*parked.first()?)?.job.circuit.clone();
        self.make_room(&circuit, plan.peak_bytes(), Claim::Normal);
        let memory = self.device.as_ref()?.ledger.reserve(plan.peak_bytes(), Claim::Normal).ok()?;
        Some((plan, memory))
    }

    /// In what is free, and what idle keys hold.
    fn plan_pass_of(&self, parked: &[LaneIndex], num_members: u32) -> Option<PassPlan> {
        let device = self.device.as_ref()?;
        let first = self.lanes.running_of(*parked.first()?)?;
        let (shape, srs) = device.sizes(&first.job);
        let limit_bytes = device.ledger.limit_bytes(Claim::Normal).saturating_sub(first.plan.resident_bytes);
        let work_bytes = device.reclaimable_bytes(&first.job).min(limit_bytes);
        plan_pass(&shape, &srs, first.plan.resident, num_members, work_bytes)
    }

    /// Not while the books are right: what a partition had by itself is free when nothing runs.
    fn give_parked_up(&mut self, parked: &[LaneIndex]) {
        for &lane in parked {
            if let Some(running) = self.lanes.running_mut(lane) {
                let what = "the memory of its pass cannot be had, though nothing runs";
                running.given_up = Some(DeviceError::NotTaking { at: running.job.at.clone(), what });
            }
            self.abort(lane);
        }
    }
}

/// Whether two partitions are of one circuit and one key.
fn is_alike(one: &Job, other: &Job) -> bool {
    one.circuit == other.circuit && Arc::ptr_eq(&one.srs, &other.srs)
}
