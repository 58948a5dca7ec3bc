//! The simulated device itself: lanes, memory, health. No timers here.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

use blstrs::{G1Affine, G1Projective, G2Affine, Scalar};
use group::prime::PrimeCurveAffine;
use group::{Curve, Group};
use tokio::task::AbortHandle;

use super::circuit::PartitionView;
use super::passes::{PassStep, SimPass};
use super::token::{corrupted_token, token_proof};
use super::{ComputeError, FaultKind, Life, SimConfig, SimProver};
use crate::backend::steps::ProofSteps;
use crate::backend::{BackendEvent, FinishedProof, LaneIndex, PartitionWork, Stage};
use crate::error::{DeviceError, ErrorClass};
use crate::groth16::{Proof, R1csShape, Srs};
use crate::ids::{CircuitId, DeviceId, JobId, PartitionIndex, WorkRef};
use crate::policy::plan::{ProvePlan, Query, QuerySet, ShapeSummary, SrsSummary};

/// What starting a stage leads to.
pub(super) enum Step {
    /// Compute it, if there are steps, and let it take so long.
    Run { stage: Stage, duration: Duration, steps: Option<Box<ProofSteps>> },
    /// The same for all members of a pass.
    RunTogether(PassStep),
    /// It failed at its very beginning; the event is there.
    EndedAtOnce,
}

pub(super) struct SimState {
    config: SimConfig,
    id: DeviceId,
    life: Arc<Life>,
    pub(super) lanes: Vec<SimLane>,
    pub(super) passes: Vec<SimPass>,
    events: VecDeque<Happening>,
    /// Bytes of the queries that are loaded, per circuit.
    loaded: HashMap<CircuitId, (QuerySet, u64)>,
    /// Lanes whose next stage waits until no other lane computes.
    waits_to_compute: VecDeque<LaneIndex>,
    /// Nothing works any more until the device is opened anew.
    broken: Option<Broken>,
}

enum Happening {
    Event(BackendEvent),
    Panic(String),
}

#[derive(Clone, Copy)]
enum Broken {
    Poisoned,
    Gone,
}

#[derive(Default)]
pub(super) struct SimLane {
    pub partition: Option<SimPartition>,
    /// Enqueued, not begun.
    pub queue: VecDeque<Stage>,
    pub running: Option<Stage>,
    abort_pending: bool,
    /// It runs a stage that takes the whole device.
    pub computes: bool,
    task: Option<AbortHandle>,
}

pub(super) struct SimPartition {
    at: WorkRef,
    circuit: CircuitId,
    pub srs: SrsSummary,
    /// Of the shape on the device, if it is kept there.
    shape_bytes: u64,
    /// Bytes of queries that its upload has loaded.
    loaded_bytes: u64,
    /// Position in the device's life, from 1; `None` for a self-test, which no script concerns.
    ordinal: Option<u64>,
    plan: ProvePlan,
    /// Working memory allocated now; in a pass, its own part of that.
    pub work_bytes: u64,
    peak_bytes: u64,
    /// Away while a stage is computed; `None` for placeholders.
    pub steps: Option<Box<ProofSteps>>,
    proof: Option<Proof>,
}

impl SimState {
    pub fn new(config: SimConfig, id: DeviceId, life: Arc<Life>) -> Self {
        let num_lanes = config.layout.normal + config.layout.critical + config.parking_lanes;
        let lanes = (0..num_lanes).map(|_| SimLane::default()).collect();
        Self {
            config,
            id,
            life,
            lanes,
            passes: Vec::new(),
            events: VecDeque::new(),
            loaded: HashMap::new(),
            waits_to_compute: VecDeque::new(),
            broken: None,
        }
    }

    pub fn config(&self) -> &SimConfig {
        &self.config
    }

    /// Those of the circuit that is simulated, else the work's own.
    pub fn sizes(&self, circuit: &CircuitId, shape: &R1csShape, srs: &Srs) -> (ShapeSummary, SrsSummary) {
        match self.config.circuits.get(circuit) {
            Some(simulated) => (simulated.shape, simulated.srs),
            None => (ShapeSummary::of(shape), SrsSummary::of(srs)),
        }
    }

    pub fn partition_of(&self, lane: LaneIndex) -> Option<PartitionView<'_>> {
        self.lanes[lane.0 as usize].partition.as_ref().map(|partition| PartitionView {
            circuit: &partition.circuit,
            srs: &partition.srs,
            plan: &partition.plan,
            loaded_bytes: partition.loaded_bytes,
            ordinal: partition.ordinal,
        })
    }

    pub fn begin(
        &mut self,
        lane: LaneIndex,
        work: PartitionWork,
        plan: &ProvePlan,
    ) -> Result<(), DeviceError> {
        self.check_health(&work.at, "begin")?;
        assert!(self.lane(lane).partition.is_none(), "lane {} is empty at `begin`", lane.0);
        let ordinal =
            work.at.partition.is_some().then(|| self.life.num_partitions.fetch_add(1, Ordering::AcqRel) + 1);
        let (shape, srs) = self.sizes(&work.circuit, &work.shape, &work.srs);
        let (at, circuit) = (work.at.clone(), work.circuit.clone());
        let steps = (self.config.prover == SimProver::Real).then(|| Box::new(ProofSteps::new(work)));
        let plan = plan.clone();
        self.lane(lane).partition = Some(SimPartition {
            at,
            circuit,
            srs,
            shape_bytes: shape.shape_bytes(),
            loaded_bytes: 0,
            ordinal,
            plan,
            work_bytes: 0,
            peak_bytes: 0,
            steps,
            proof: None,
        });
        Ok(())
    }

    pub fn enqueue(&mut self, lane: LaneIndex, stage: Stage) -> Result<(), DeviceError> {
        let at = self.work_of(lane);
        self.check_health(&at, stage.as_str())?;
        // Behind a failure that is not polled yet the lane is empty, and what comes is dropped.
        let lane = self.lane(lane);
        if lane.partition.is_some() && !lane.abort_pending {
            lane.queue.push_back(stage);
        }
        Ok(())
    }

    /// Takes the lane's next stage, allocates for it, and says how long it takes.
    pub fn start_next(&mut self, lane: LaneIndex) -> Option<Step> {
        if self.lane(lane).running.is_some() {
            return None;
        }
        let stage = *self.lane(lane).queue.front()?;
        if let Some(pass) = self.pass_of(lane).filter(|_| stage.is_of_pass()) {
            return self.start_together(pass, stage);
        }
        let computes = self.config.takes_whole_device(lane, stage);
        if self.must_wait_to_compute(lane, stage) {
            return None;
        }
        self.lane(lane).queue.pop_front();
        let faults = self.faults_at(lane, stage);
        if faults.contains(&FaultKind::Lost) {
            self.fall_off_the_bus(lane, stage);
            return Some(Step::EndedAtOnce);
        }
        if let Err(error) = self.allocate_for(lane, stage) {
            self.fail(lane, stage, error);
            return Some(Step::EndedAtOnce);
        }
        let duration = delayed(self.duration_of(lane, stage), &faults);
        let lane = self.lane(lane);
        lane.running = Some(stage);
        lane.computes = computes;
        let steps = lane.partition.as_mut().and_then(|partition| partition.steps.take());
        Some(Step::Run { stage, duration, steps })
    }

    /// Whether another lane takes the whole device now, as this stage would. It is told when that is over.
    pub(super) fn must_wait_to_compute(&mut self, lane: LaneIndex, stage: Stage) -> bool {
        let computes = self.config.takes_whole_device(lane, stage);
        let must_wait = computes && self.lanes.iter().any(|lane| lane.computes);
        if must_wait && !self.waits_to_compute.contains(&lane) {
            self.waits_to_compute.push_back(lane);
        }
        must_wait
    }

    pub(super) fn fall_off_the_bus(&mut self, lane: LaneIndex, stage: Stage) {
        self.life.is_gone.store(true, Ordering::Release);
        self.broken = Some(Broken::Gone);
        let at = self.work_of(lane);
        self.fail(lane, stage, DeviceError::Lost { at, what: "it fell off the bus".to_owned() });
    }

    pub fn end_stage(
        &mut self,
        lane: LaneIndex,
        stage: Stage,
        elapsed: Duration,
        computed: Result<Option<Box<ProofSteps>>, ComputeError>,
    ) {
        self.lane(lane).running = None;
        self.lane(lane).computes = false;
        let faults = self.faults_at(lane, stage);
        let at = self.work_of(lane);
        if faults.contains(&FaultKind::Panic) {
            let what = format!("scripted panic: {at} in stage {stage}");
            self.events.push_back(Happening::Panic(what));
            return;
        }
        if faults.contains(&FaultKind::Sticky) {
            self.broken = Some(Broken::Poisoned);
        }
        let steps = match (self.check_health(&at, stage.as_str()), computed) {
            (Err(error), _) | (Ok(()), Err(ComputeError::Failed(error))) => {
                return self.fail(lane, stage, error);
            }
            (Ok(()), Err(ComputeError::Panicked(what))) => {
                return self.fail(lane, stage, DeviceError::Fault { at, stage: stage.as_str(), what });
            }
            (Ok(()), Ok(steps)) => steps,
        };
        let corrupts = faults.contains(&FaultKind::Corrupt);
        let prover = self.config.prover;
        if let Some(partition) = &mut self.lane(lane).partition {
            partition.end_stage(stage, steps, prover, corrupts);
        }
        self.events.push_back(Happening::Event(BackendEvent::StageDone { lane, stage, elapsed }));
        if self.lane(lane).abort_pending {
            self.clear_aborted(lane);
        }
    }

    /// A lane that waited for the device, once it is free: its next stage is to be started.
    pub fn next_to_compute(&mut self) -> Option<LaneIndex> {
        if self.lanes.iter().any(|lane| lane.computes) {
            return None;
        }
        // Those that were emptied meanwhile wait for nothing.
        while let Some(lane) = self.waits_to_compute.pop_front() {
            if !self.lane(lane).queue.is_empty() {
                return Some(lane);
            }
        }
        None
    }

    /// # Errors
    /// With the text of a scripted panic, in its turn.
    pub fn poll(&mut self) -> Result<Vec<BackendEvent>, String> {
        let mut events = Vec::new();
        while let Some(happening) = self.events.pop_front() {
            match happening {
                Happening::Event(event) => events.push(event),
                Happening::Panic(what) => return Err(what),
            }
        }
        Ok(events)
    }

    pub fn take_proof(&mut self, lane: LaneIndex) -> Result<FinishedProof, DeviceError> {
        let at = self.work_of(lane);
        let taken = self.lane(lane).partition.take();
        let finished = taken.and_then(|partition| {
            let memory_peak_bytes = partition.peak_bytes;
            partition.proof.map(|proof| FinishedProof { proof, memory_peak_bytes })
        });
        finished.ok_or_else(|| DeviceError::Fault {
            at,
            stage: Stage::Assemble.as_str(),
            what: "no proof to take".to_owned(),
        })
    }

    /// Returns whom it was in a pass with: they may have waited for this one alone.
    pub fn abort(&mut self, lane: LaneIndex) -> Vec<LaneIndex> {
        if self.lane(lane).partition.is_none() {
            self.make_failure_moot(lane);
            return Vec::new();
        }
        let others = self.pass_of(lane).map_or_else(Vec::new, |pass| self.members_of(pass));
        let state = self.lane(lane);
        state.abort_pending = true;
        state.queue.clear();
        if state.running.is_none() {
            self.clear_aborted(lane);
        }
        others.into_iter().filter(|other| *other != lane).collect()
    }

    pub fn resident(&self, circuit: &CircuitId) -> QuerySet {
        self.loaded.get(circuit).map_or(QuerySet::NONE, |(queries, _)| *queries)
    }

    pub fn evict(&mut self, circuit: &CircuitId) -> bool {
        self.loaded.remove(circuit).is_some()
    }

    pub fn memory_in_use_bytes(&self) -> u64 {
        let loaded: u64 = self.loaded.values().map(|(_, bytes)| bytes).sum();
        let work: u64 =
            self.lanes.iter().filter_map(|lane| lane.partition.as_ref()).map(|part| part.work_bytes).sum();
        let in_passes: u64 = self.passes.iter().map(|pass| pass.common_bytes).sum();
        loaded + work + in_passes
    }

    pub fn keep_task(&mut self, lane: LaneIndex, task: AbortHandle) {
        self.lane(lane).task = Some(task);
    }

    pub fn abort_tasks(&mut self) {
        for task in self.lanes.iter_mut().filter_map(|lane| lane.task.take()) {
            task.abort();
        }
    }

    pub(super) fn lane(&mut self, lane: LaneIndex) -> &mut SimLane {
        &mut self.lanes[lane.0 as usize]
    }

    pub(super) fn work_of(&self, lane: LaneIndex) -> WorkRef {
        match &self.lanes[lane.0 as usize].partition {
            Some(partition) => partition.at.clone(),
            None => WorkRef::job(JobId(0)).on(self.id.clone()),
        }
    }

    pub(super) fn faults_at(&self, lane: LaneIndex, stage: Stage) -> Vec<FaultKind> {
        let partition = self.lanes[lane.0 as usize].partition.as_ref();
        match partition.and_then(|partition| partition.ordinal) {
            Some(ordinal) => {
                let by_chance = self.config.fault_rates.at(self.config.index, ordinal, stage);
                self.config.faults.at(ordinal, stage).chain(by_chance).collect()
            }
            None => Vec::new(),
        }
    }

    fn check_health(&self, at: &WorkRef, stage: &'static str) -> Result<(), DeviceError> {
        match self.broken {
            None => Ok(()),
            Some(Broken::Poisoned) => {
                let what = "the context is poisoned".to_owned();
                Err(DeviceError::Fault { at: at.clone(), stage, what })
            }
            Some(Broken::Gone) => {
                Err(DeviceError::Lost { at: at.clone(), what: "it fell off the bus".to_owned() })
            }
        }
    }

    /// Empties the lane. A failure of a partition that is to be aborted anyway only counts if the device is lost.
    pub(super) fn fail(&mut self, lane: LaneIndex, stage: Stage, error: DeviceError) {
        let state = self.lane(lane);
        state.running = None;
        state.computes = false;
        if state.abort_pending && error.class() != ErrorClass::DeviceLost {
            return self.clear_aborted(lane);
        }
        state.partition = None;
        state.queue.clear();
        state.abort_pending = false;
        self.leave_pass(lane);
        self.events.push_back(Happening::Event(BackendEvent::StageFailed { lane, stage, error }));
    }

    /// It has failed, which is not polled yet: that is the end of an aborted lane, unless the device is lost.
    fn make_failure_moot(&mut self, lane: LaneIndex) {
        for happening in &mut self.events {
            match happening {
                Happening::Event(BackendEvent::StageFailed { lane: failed, error, .. })
                    if *failed == lane && error.class() != ErrorClass::DeviceLost =>
                {
                    *happening = Happening::Event(BackendEvent::Aborted { lane });
                }
                _ => {}
            }
        }
    }

    fn clear_aborted(&mut self, lane: LaneIndex) {
        let state = self.lane(lane);
        state.partition = None;
        state.abort_pending = false;
        self.leave_pass(lane);
        self.events.push_back(Happening::Event(BackendEvent::Aborted { lane }));
    }

    /// Frees what the last stage had, allocates what this one needs.
    fn allocate_for(&mut self, lane: LaneIndex, stage: Stage) -> Result<(), DeviceError> {
        let Some(partition) = &mut self.lane(lane).partition else { return Ok(()) };
        partition.work_bytes = 0;
        let (at, stage_bytes) = (partition.at.clone(), partition.plan.stage_bytes[stage.index()]);
        if stage == Stage::Upload {
            let loaded_bytes = self.load_queries(lane, &at)?;
            if let Some(partition) = &mut self.lane(lane).partition {
                partition.loaded_bytes = loaded_bytes;
            }
        }
        for bytes in in_parts(stage_bytes, num_allocations(stage)) {
            self.allocate(&at, bytes)?;
            if let Some(partition) = &mut self.lane(lane).partition {
                partition.work_bytes += bytes;
                partition.peak_bytes = partition.peak_bytes.max(partition.work_bytes);
            }
        }
        Ok(())
    }

    /// Loads the plan's resident queries, and the shape, that are not there; one allocation each. How many bytes.
    fn load_queries(&mut self, lane: LaneIndex, at: &WorkRef) -> Result<u64, DeviceError> {
        let Some(partition) = &self.lanes[lane.0 as usize].partition else { return Ok(0) };
        let (circuit, srs, wanted) = (partition.circuit.clone(), partition.srs, partition.plan.resident);
        let there = self.resident(&circuit);
        let of_query = |query: Query| QuerySet::NONE.with(query);
        let mut missing: Vec<(QuerySet, u64)> = wanted
            .iter()
            .filter(|query| !there.contains(*query))
            .map(|query| (of_query(query), srs.resident_bytes(of_query(query))))
            .collect();
        if wanted.has_shape() && !there.has_shape() {
            missing.push((QuerySet::SHAPE, partition.shape_bytes));
        }
        let mut loaded_bytes = 0;
        for (part, bytes) in missing {
            self.allocate(at, bytes)?;
            let loaded = self.loaded.entry(circuit.clone()).or_default();
            loaded.0 = loaded.0.union(part);
            loaded.1 += bytes;
            loaded_bytes += bytes;
        }
        Ok(loaded_bytes)
    }

    pub(super) fn allocate(&mut self, at: &WorkRef, asked_bytes: u64) -> Result<(), DeviceError> {
        let free_bytes = self.config.memory_bytes.saturating_sub(self.memory_in_use_bytes());
        // A self-test has no partition, and its allocations are not counted.
        let is_refused = at.partition.is_some() && {
            let ordinal = self.life.num_allocations.fetch_add(1, Ordering::AcqRel) + 1;
            self.config.faults.refuses_allocation(ordinal)
        };
        if is_refused || asked_bytes > free_bytes {
            return Err(DeviceError::OutOfVram { at: at.clone(), asked_bytes, free_bytes });
        }
        Ok(())
    }
}

impl SimPartition {
    fn end_stage(&mut self, stage: Stage, steps: Option<Box<ProofSteps>>, prover: SimProver, corrupts: bool) {
        self.steps = steps;
        if stage != Stage::Assemble {
            return;
        }
        self.work_bytes = 0;
        let proof = match &mut self.steps {
            Some(steps) => steps.take_proof(),
            None if prover == SimProver::Token => {
                let partition = self.at.partition.unwrap_or(PartitionIndex(0));
                let token = token_proof(self.at.job, partition);
                self.proof = Some(if corrupts { corrupted_token(token) } else { token });
                return;
            }
            None => Some(placeholder(&self.at)),
        };
        self.proof = proof.map(|proof| if corrupts { corrupted(proof) } else { proof });
    }
}

/// How long a stage takes with what is scripted for it.
pub(super) fn delayed(duration: Duration, faults: &[FaultKind]) -> Duration {
    faults.iter().fold(duration, |duration, fault| match fault {
        // A hang may be of the same stage.
        FaultKind::Delay(delay) => duration.saturating_add(*delay),
        FaultKind::Hang => Duration::MAX,
        _ => duration,
    })
}

/// How a stage's memory is asked for: as many pieces as a device would.
fn num_allocations(stage: Stage) -> u64 {
    match stage {
        Stage::Upload | Stage::Assemble => 1,
        Stage::Evaluate | Stage::Quotient => 3,
        Stage::SumH | Stage::SumL | Stage::SumA | Stage::SumBG1 | Stage::SumBG2 => 2,
    }
}

/// `total` as `count` parts that add up to it.
fn in_parts(total: u64, count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(move |index| total / count + u64::from(index < total % count))
}

/// Points of the right groups that no verifying key accepts, and that tell partitions apart.
fn placeholder(at: &WorkRef) -> Proof {
    let partition = at.partition.map_or(0, |partition| u64::from(partition.0));
    let scalar = Scalar::from(at.job.0) * Scalar::from(1 << 32) + Scalar::from(partition + 2);
    Proof {
        a: (G1Projective::generator() * scalar).to_affine(),
        b: G2Affine::generator(),
        c: G1Affine::generator(),
    }
}

/// Still three points of the right groups; the equation no longer holds.
fn corrupted(proof: Proof) -> Proof {
    Proof { c: (G1Projective::from(proof.c) + G1Affine::generator()).to_affine(), ..proof }
}
