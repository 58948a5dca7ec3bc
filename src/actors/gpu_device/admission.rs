//! Taking a partition: checks, plan, eviction, reservation, beginning. Nothing is launched before all of it holds.

use std::rc::Rc;

use actix::Context;

use super::{Claim, Device, GpuDevice, Job, Origin, Phase};
use crate::actors::gpu_device::lanes::{Hold, Running};
use crate::actors::gpu_device::ledger::Reservation;
use crate::actors::gpu_device::passes::{stages_of, DuePass};
use crate::actors::gpu_device::srs_cache::Presence;
use crate::backend::{DeviceBackend, LaneIndex, MemoryModel};
use crate::error::{DeviceError, PlanError};
use crate::ids::CircuitId;
use crate::messages::device::{LaneCredit, LaneKind, ProvePartition};
use crate::messages::job::Priority;
use crate::policy::capacity::sparing_lanes;
use crate::policy::plan::{resident_bytes, ProvePlan, QuerySet, ShapeSummary, SrsSummary};

/// Whether a job fits on the device now.
enum Fit {
    Now {
        plan: ProvePlan,
        grant: Grant,
    },
    /// Once running work has ended.
    Later,
    Never(DeviceError),
}

/// The memory of a plan.
struct Grant {
    work: Reservation,
    /// For queries that were not there yet.
    resident: Option<Reservation>,
}

impl<B: DeviceBackend> GpuDevice<B> {
    /// Gives an arriving partition a lane, or answers why not.
    pub(super) fn accept(&mut self, message: ProvePartition, ctx: &mut Context<Self>) {
        let lane = self.lane_for(&message.credit, message.priority);
        let mut job = Job::from_message(message);
        job.at = job.at.on(self.id.clone());
        let refusal = match lane {
            Err(what) => Some(DeviceError::NotTaking { at: job.at.clone(), what }),
            Ok(_) => refusal_by_inputs(&job),
        };
        match (lane, refusal) {
            (Ok(lane), None) => {
                job.ceiling_bytes = self.refused_before(&job.at).map(|bytes| bytes.saturating_sub(1));
                self.place(lane, job, ctx);
            }
            (_, Some(error)) => self.answer_failed(job, error),
            (Err(_), None) => unreachable!("a missing lane is a refusal"),
        }
    }

    pub(super) fn lane_for(
        &self,
        credit: &LaneCredit,
        priority: Priority,
    ) -> Result<LaneIndex, &'static str> {
        match self.phase {
            Phase::Ready => {}
            Phase::Opening | Phase::Testing => return Err("it is not ready"),
            Phase::Draining => return Err("it is draining"),
            Phase::Closed => return Err("it is closed"),
        }
        if *credit.device() != self.id {
            return Err("the credit is of another device");
        }
        if credit.kind() == LaneKind::Critical && priority != Priority::Critical {
            return Err("this lane is for critical work");
        }
        self.lanes.empty_lane(credit.kind()).ok_or("it has no free lane")
    }

    /// Begins `job` in its empty lane, or keeps it there until there is memory, or answers why it cannot be.
    pub(super) fn place(&mut self, lane: LaneIndex, job: Job, ctx: &mut Context<Self>) {
        // Whoever came first gets the next memory, else a large plan could wait for ever behind small ones. So could a pass.
        let queues_behind = self.lanes.waiting().iter().any(|&other| self.goes_first(other, &job));
        let pass_goes_first = !job.is_critical() && self.pass_is_due();
        if queues_behind || pass_goes_first {
            self.lanes.wait(lane, Box::new(job));
            return;
        }
        self.place_now(lane, job, ctx);
    }

    fn goes_first(&self, waiting: LaneIndex, job: &Job) -> bool {
        self.lanes.iter().any(|lane| match &lane.hold {
            Hold::Waiting { job: other, .. } => {
                lane.index == waiting && (other.is_critical() || !job.is_critical())
            }
            Hold::Empty | Hold::Running(_) => false,
        })
    }

    fn place_now(&mut self, lane: LaneIndex, job: Job, ctx: &mut Context<Self>) {
        match self.fit(&job) {
            Fit::Now { plan, grant } => self.begin(lane, job, plan, grant, ctx),
            Fit::Later => {
                self.lanes.wait(lane, Box::new(job));
                self.hurry_pass(ctx);
            }
            Fit::Never(error) => self.give_up(job, error, ctx),
        }
    }

    /// Answers a job that cannot be done here; a device that cannot do its self-test is of no use.
    pub(super) fn give_up(&mut self, job: Job, error: DeviceError, ctx: &mut Context<Self>) {
        if matches!(job.origin, Origin::SelfTest { .. }) {
            self.lose(error, ctx);
        } else {
            self.answer_failed(job, error);
        }
    }

    /// Memory came free: begins what waits for it, in order, until one does not fit yet. A pass that is due comes behind
    /// CRITICAL work and before any other.
    pub(super) fn place_waiting(&mut self, ctx: &mut Context<Self>) {
        for lane in self.lanes.waiting() {
            let is_critical = self.lanes.waiting_job(lane).is_some_and(Job::is_critical);
            if !is_critical && self.begin_due_pass(ctx) == DuePass::Waits {
                return;
            }
            let hold = std::mem::take(self.lanes.hold_mut(lane));
            let Hold::Waiting { job, arrival } = hold else {
                *self.lanes.hold_mut(lane) = hold;
                continue;
            };
            match self.fit(&job) {
                Fit::Now { plan, grant } => self.begin(lane, *job, plan, grant, ctx),
                Fit::Never(error) => self.give_up(*job, error, ctx),
                Fit::Later => {
                    *self.lanes.hold_mut(lane) = Hold::Waiting { job, arrival };
                    return self.hurry_pass(ctx);
                }
            }
        }
        self.begin_due_pass(ctx);
    }

    /// As [`Self::fit_beside_running`]; if nothing runs, and nothing is parked that would, waiting would have no end.
    fn fit(&mut self, job: &Job) -> Fit {
        match self.fit_beside_running(job) {
            Fit::Later if !self.lanes.are_in_use() => {
                let what = "its memory cannot be had, though nothing runs";
                Fit::Never(DeviceError::NotTaking { at: job.at.clone(), what })
            }
            fit => fit,
        }
    }

    /// Plans `job` on what is free or can be made free, and reserves it. Evicts idle keys, oldest first, if needed.
    fn fit_beside_running(&mut self, job: &Job) -> Fit {
        let num_changes = self.num_key_changes();
        match self.try_to_fit(job) {
            // What an evicted key held may be charged to the other side of the critical reserve, and be no gain: then the plan
            // counted on too much, and one on what is really free may fit.
            Fit::Later if self.num_key_changes() != num_changes => self.try_to_fit(job),
            fit => fit,
        }
    }

    pub(super) fn num_key_changes(&self) -> u64 {
        self.device.as_ref().map_or(0, |device| device.cache.num_changes())
    }

    fn try_to_fit(&mut self, job: &Job) -> Fit {
        let Some(device) = &self.device else {
            return Fit::Never(DeviceError::NotTaking { at: job.at.clone(), what: "it is closed" });
        };
        let (shape, srs) = device.sizes(job);
        let limit_bytes = device.limit_bytes(job);
        if let Err(source) = self.plans.plan(&shape, &srs, limit_bytes) {
            return Fit::Never(DeviceError::Plan { at: job.at.clone(), source });
        }
        match device.presence(job) {
            Presence::Replaced { in_use: true } => Fit::Later,
            Presence::Replaced { in_use: false } => {
                self.evict(&job.circuit);
                self.fit_absent(job, &shape, &srs, limit_bytes)
            }
            Presence::Absent => self.fit_absent(job, &shape, &srs, limit_bytes),
            Presence::Here { queries, bytes, in_use } => {
                match self.fit_present(job, &shape, &srs, (queries, bytes), limit_bytes) {
                    Some(fit) => fit,
                    None if in_use => Fit::Later,
                    None => {
                        self.evict(&job.circuit);
                        self.fit_absent(job, &shape, &srs, limit_bytes)
                    }
                }
            }
        }
    }

    fn fit_absent(&mut self, job: &Job, shape: &ShapeSummary, srs: &SrsSummary, limit_bytes: u64) -> Fit {
        let Some(device) = &self.device else { return Fit::Later };
        let budget_bytes = device.reclaimable_bytes(job).min(limit_bytes);
        match self.plan_sparing_lanes(shape, srs, budget_bytes) {
            Ok(plan) => self.reserve(job, plan, 0),
            Err(_) => Fit::Later,
        }
    }

    /// `None` if the plan does not fit around the queries that are there.
    fn fit_present(
        &mut self,
        job: &Job,
        shape: &ShapeSummary,
        srs: &SrsSummary,
        (queries, bytes): (QuerySet, u64),
        limit_bytes: u64,
    ) -> Option<Fit> {
        let device = self.device.as_ref()?;
        let budget_bytes = (device.reclaimable_bytes(job) + bytes).min(limit_bytes);
        // More room than when they were loaded: load the rest too. Not under those who wait for a pass, whose memory it is.
        let wanted = match self.plan_sparing_lanes(shape, srs, budget_bytes) {
            Ok(plan) if !self.lanes.batch().any(|other| other.job.circuit == job.circuit) => {
                plan.resident.union(queries)
            }
            _ => queries,
        };
        let plan = self
            .plans
            .plan_with_resident(shape, srs, wanted, budget_bytes)
            .or_else(|_| self.plans.plan_with_resident(shape, srs, queries, budget_bytes))
            .ok()?;
        Some(self.reserve(job, plan, resident_bytes(shape, srs, queries)))
    }

    /// Plans with what is left when as many of the other free lanes as possible could take such a partition too: keys
    /// on the device are no gain if a lane stands idle for them.
    fn plan_sparing_lanes(
        &self,
        shape: &ShapeSummary,
        srs: &SrsSummary,
        budget_bytes: u64,
    ) -> Result<ProvePlan, PlanError> {
        let num_other_lanes = self.lanes.num_free_of(LaneKind::Normal).saturating_sub(1);
        let least_bytes = self.plans.least_budget_bytes(shape, srs);
        sparing_lanes(budget_bytes, num_other_lanes, least_bytes, |bytes| self.plans.plan(shape, srs, bytes))
    }

    /// Takes the memory of a plan that fits into what is free or idle. `there_bytes` of what is resident are on the device
    /// and paid for.
    fn reserve(&mut self, job: &Job, plan: ProvePlan, there_bytes: u64) -> Fit {
        let work_bytes = plan.work_peak_bytes();
        let new_bytes = plan.resident_bytes - there_bytes;
        self.make_room(&job.circuit, work_bytes + new_bytes, job.claim());
        let Some(device) = &self.device else { return Fit::Later };
        let resident = match new_bytes {
            0 => Ok(None),
            bytes => device.ledger.reserve(bytes, job.claim()).map(Some),
        };
        match (device.ledger.reserve(work_bytes, job.claim()), resident) {
            (Ok(work), Ok(resident)) => Fit::Now { plan, grant: Grant { work, resident } },
            _ => Fit::Later,
        }
    }

    pub(super) fn make_room(&mut self, circuit: &CircuitId, bytes: u64, claim: Claim) {
        while let Some(device) = &self.device {
            if device.ledger.available_bytes(claim) >= bytes {
                return;
            }
            match device.cache.least_recently_used(circuit) {
                Some(oldest) => self.evict(&oldest),
                None => return,
            };
        }
    }

    fn begin(&mut self, lane: LaneIndex, job: Job, plan: ProvePlan, grant: Grant, ctx: &mut Context<Self>) {
        let sharing = self.sharing_of(&job, &plan);
        let Some(device) = &mut self.device else { return };
        let pinned = device.memory_model == MemoryModel::Dedicated && !plan.resident.is_empty();
        if pinned {
            device.cache.pin(&job.circuit, &job.srs, plan.resident, grant.resident);
        }
        let stages = stages_of(&job, sharing);
        let begun = device.backend.begin(lane, job.work(), &plan);
        let running = Running {
            job,
            plan,
            memory: Some(Rc::new(grant.work)),
            sharing,
            pinned,
            stages,
            in_flight: Default::default(),
            stage_spans: Default::default(),
            running_since: tokio::time::Instant::now(),
            timings: Vec::new(),
            own_sums: std::time::Duration::ZERO,
            waited_for_others: std::time::Duration::ZERO,
            aborting: false,
            given_up: None,
        };
        *self.lanes.hold_mut(lane) = Hold::Running(Box::new(running));
        match begun {
            Ok(()) => self.advance(lane, ctx),
            Err(error) => self.lane_failed(lane, error, ctx),
        }
    }
}

impl<B: DeviceBackend> Device<B> {
    /// What decides the memory of a job here.
    pub(super) fn sizes(&self, job: &Job) -> (ShapeSummary, SrsSummary) {
        let (shape, srs) = self.backend.sizes(&job.circuit, &job.shape, &job.srs);
        match self.memory_model {
            MemoryModel::Dedicated => (shape, srs),
            MemoryModel::SharedWithHost => (shape, srs.in_place()),
        }
    }

    fn presence(&self, job: &Job) -> Presence {
        match self.memory_model {
            MemoryModel::Dedicated => self.cache.presence(&job.circuit, &job.srs),
            MemoryModel::SharedWithHost => Presence::Absent,
        }
    }

    /// The most this job may ever use.
    fn limit_bytes(&self, job: &Job) -> u64 {
        let limit_bytes = self.ledger.limit_bytes(job.claim());
        job.ceiling_bytes.map_or(limit_bytes, |ceiling_bytes| limit_bytes.min(ceiling_bytes))
    }

    /// What is free, and what idle keys of other circuits hold.
    pub(super) fn reclaimable_bytes(&self, job: &Job) -> u64 {
        self.ledger.available_bytes(job.claim()) + self.cache.idle_bytes(&job.circuit)
    }
}

/// What is wrong with a job by itself, on any device.
fn refusal_by_inputs(job: &Job) -> Option<DeviceError> {
    if let Err(source) = job.srs.check_fits(&job.shape) {
        return Some(DeviceError::Srs { at: job.at.clone(), source });
    }
    if let Err(source) = job.check_witness() {
        return Some(DeviceError::Witness { at: job.at.clone(), source });
    }
    job.is_cancelled().then(|| DeviceError::Cancelled { at: job.at.clone() })
}
