//! Simulated devices that are watched from inside: nobody works on one twice, nothing is in two places.
//!
//! Their proofs are looked up instead of made, so that ten thousand lives take minutes; they are right proofs all the same,
//! and the engine verifies them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cuzk::backend::sim::{SimBackend, SimConfig, SimFactory, SimProver};
use cuzk::backend::{
    BackendEvent, BackendFactory, BackendWaker, DeviceBackend, DeviceInfo, FinishedProof, LaneIndex,
    LaneLayout, MemoryModel, PartitionWork, Stage, WatchdogConfig,
};
use cuzk::error::DeviceError;
use cuzk::groth16::{R1csShape, Srs};
use cuzk::ids::{CircuitId, DeviceId, JobId, PartitionIndex};
use cuzk::policy::plan::{ProvePlan, QuerySet, ShapeSummary, SrsSummary};
use cuzk::policy::shared_pass::PassPlan;

use super::jobs::{corrupted, proof_of};

/// What runs on all devices of one engine, as the devices themselves see it.
#[derive(Default)]
pub struct Observed {
    open: BTreeSet<DeviceId>,
    /// By device and lane.
    running: BTreeMap<(DeviceId, u32), (JobId, PartitionIndex)>,
    /// What each job proves: told by the test when the job is accepted.
    pub statements: HashMap<JobId, Vec<u64>>,
    /// What must never happen. (A panic here would only be one more fault to the engine.)
    pub violations: Vec<String>,
    /// Passes that more than one partition had.
    pub num_shared: u64,
    /// What must not happen unless the job is CRITICAL, which is not known here.
    pub suspicions: Vec<(Option<JobId>, String)>,
}

impl Observed {
    pub fn nothing_is_open(&self) -> bool {
        self.open.is_empty() && self.running.is_empty()
    }

    fn begin(&mut self, device: &DeviceId, lane: LaneIndex, job: JobId, partition: PartitionIndex) {
        let work = (job, partition);
        if let Some(((other, _), _)) = self.running.iter().find(|(_, running)| **running == work) {
            let what = format!("job {job} partition {partition} runs on {other} and is begun on {device}");
            self.violations.push(what);
        }
        if self.running.insert((device.clone(), lane.0), work).is_some() {
            self.violations.push(format!("lane {} of {device} is booked twice", lane.0));
        }
    }
}

pub type Shared = Arc<Mutex<Observed>>;

pub fn lock(shared: &Shared) -> MutexGuard<'_, Observed> {
    // A scripted panic may pass by here; what it leaves is whole.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A simulated device of one engine.
pub struct ObservedFactory {
    inner: SimFactory,
    shared: Shared,
    corrupts: Corrupts,
}

/// Which of a device's proofs, in the order in which it makes them, are wrong.
#[derive(Clone, Debug, Default)]
pub struct Corrupts {
    ordinals: BTreeSet<u64>,
    num_made: Arc<Mutex<u64>>,
}

impl Corrupts {
    pub fn of(ordinals: impl IntoIterator<Item = u64>) -> Self {
        Self { ordinals: ordinals.into_iter().collect(), num_made: Arc::default() }
    }

    fn strikes(&self) -> bool {
        let mut num_made = self.num_made.lock().unwrap_or_else(PoisonError::into_inner);
        *num_made += 1;
        self.ordinals.contains(&num_made)
    }
}

impl ObservedFactory {
    pub fn new(config: SimConfig, shared: Shared, corrupts: Corrupts) -> Self {
        let inner = SimFactory::new(SimConfig { prover: SimProver::Fake, ..config });
        Self { inner, shared, corrupts }
    }
}

impl BackendFactory for ObservedFactory {
    type Backend = ObservedBackend;

    fn device_id(&self) -> DeviceId {
        self.inner.device_id()
    }

    fn backend(&self) -> &'static str {
        self.inner.backend()
    }

    fn open(&self, waker: BackendWaker) -> Result<ObservedBackend, DeviceError> {
        let inner = self.inner.open(waker)?;
        let id = self.device_id();
        let mut observed = lock(&self.shared);
        if !observed.open.insert(id.clone()) {
            observed.violations.push(format!("{id} has two owners"));
        }
        drop(observed);
        let corrupts = self.corrupts.clone();
        Ok(ObservedBackend { inner, id, shared: Arc::clone(&self.shared), corrupts, at: HashMap::new() })
    }

    fn makes_proofs(&self) -> bool {
        false
    }

    fn watchdog(&self) -> WatchdogConfig {
        self.inner.watchdog()
    }
}

pub struct ObservedBackend {
    inner: SimBackend,
    id: DeviceId,
    shared: Shared,
    corrupts: Corrupts,
    /// What each lane has. (A preload is no partition.)
    at: HashMap<u32, Option<(JobId, PartitionIndex)>>,
}

impl ObservedBackend {
    fn violated(&self, what: String) {
        lock(&self.shared).violations.push(what);
    }

    fn lane_is_empty(&mut self, lane: LaneIndex) {
        self.at.remove(&lane.0);
        lock(&self.shared).running.remove(&(self.id.clone(), lane.0));
    }
}

impl DeviceBackend for ObservedBackend {
    fn info(&self) -> DeviceInfo {
        self.inner.info()
    }

    fn lanes(&self) -> LaneLayout {
        self.inner.lanes()
    }

    fn stages_ahead(&self) -> u32 {
        self.inner.stages_ahead()
    }

    fn memory_model(&self) -> MemoryModel {
        self.inner.memory_model()
    }

    fn parking_lanes(&self) -> u32 {
        self.inner.parking_lanes()
    }

    fn sizes(&self, circuit: &CircuitId, shape: &R1csShape, srs: &Srs) -> (ShapeSummary, SrsSummary) {
        self.inner.sizes(circuit, shape, srs)
    }

    fn park(&mut self, lane: LaneIndex) {
        self.inner.park(lane);
    }

    fn begin_pass(&mut self, lanes: &[LaneIndex], plan: &PassPlan) {
        let members = lanes.len() as u32;
        if members != plan.num_members {
            self.violated(format!("a pass of {members} on {} is planned for {}", self.id, plan.num_members));
        }
        let mut observed = lock(&self.shared);
        observed.num_shared += u64::from(members > 1);
        drop(observed);
        self.inner.begin_pass(lanes, plan);
    }

    fn begin(&mut self, lane: LaneIndex, work: PartitionWork, plan: &ProvePlan) -> Result<(), DeviceError> {
        let work_of = work.at.partition.map(|partition| (work.at.job, partition));
        self.inner.begin(lane, work, plan)?;
        if self.at.insert(lane.0, work_of).is_some() {
            self.violated(format!("lane {} of {} is not empty", lane.0, self.id));
        }
        if let Some((job, partition)) = work_of {
            lock(&self.shared).begin(&self.id, lane, job, partition);
        }
        Ok(())
    }

    fn enqueue(&mut self, lane: LaneIndex, stage: Stage) -> Result<(), DeviceError> {
        let layout = self.inner.lanes();
        let is_critical = |lane: u32| (layout.normal..layout.normal + layout.critical).contains(&lane);
        let critical_runs = self.at.keys().any(|&busy| is_critical(busy));
        // A lane whose end was polled and not taken in yet is empty: what comes for it is dropped.
        let begins = !is_critical(lane.0) && self.at.contains_key(&lane.0);
        if begins && critical_runs && !layout.critical_preempts {
            // CRITICAL work takes a normal lane too, when its own are taken.
            let job = self.at.get(&lane.0).copied().flatten().map(|(job, _)| job);
            let what = format!("{}: stage {stage} of job {job:?} is begun while CRITICAL work runs", self.id);
            lock(&self.shared).suspicions.push((job, what));
        }
        let enqueued = self.inner.enqueue(lane, stage);
        if enqueued.is_err() {
            self.lane_is_empty(lane);
        }
        enqueued
    }

    fn poll(&mut self) -> Vec<BackendEvent> {
        let events = self.inner.poll();
        for event in &events {
            match event {
                BackendEvent::StageDone { .. } => {}
                BackendEvent::StageFailed { lane, .. } | BackendEvent::Aborted { lane } => {
                    self.lane_is_empty(*lane);
                }
            }
        }
        events
    }

    fn take_proof(&mut self, lane: LaneIndex) -> Result<FinishedProof, DeviceError> {
        let finished = self.inner.take_proof(lane)?;
        let work = self.at.get(&lane.0).copied().flatten();
        self.lane_is_empty(lane);
        let statement = |(job, partition): (JobId, PartitionIndex)| {
            lock(&self.shared).statements.get(&job).map(|xs| xs[partition.0 as usize])
        };
        let Some(x) = work.and_then(statement) else {
            self.violated(format!("{} has a proof of nothing that was accepted: {work:?}", self.id));
            return Ok(finished);
        };
        let proof = if self.corrupts.strikes() { corrupted(&proof_of(x)) } else { proof_of(x) };
        Ok(FinishedProof { proof, ..finished })
    }

    fn abort(&mut self, lane: LaneIndex) {
        self.inner.abort(lane);
    }

    fn resident(&self, circuit: &CircuitId) -> QuerySet {
        self.inner.resident(circuit)
    }

    fn evict_srs(&mut self, circuit: &CircuitId) -> bool {
        self.inner.evict_srs(circuit)
    }

    fn memory_in_use_bytes(&self) -> u64 {
        self.inner.memory_in_use_bytes()
    }

    fn trim(&mut self) {
        self.inner.trim();
    }

    /// As for any simulated device, nothing need be leaked.
    fn abandon(self) {}
}

impl Drop for ObservedBackend {
    fn drop(&mut self) {
        let mut observed = lock(&self.shared);
        observed.open.remove(&self.id);
        observed.running.retain(|(device, _), _| *device != self.id);
    }
}
