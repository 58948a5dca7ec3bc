//! The `sim` backend: devices whose memory, speed and faults are written down, on the arbiter's own clock.
//!
//! Nothing runs but timers of the actor's arbiter, so that a paused clock makes every run exact and repeatable. Proofs
//! are real ([`SimProver::Real`]: each stage is computed by tokio's blocking threads, which hold a paused clock),
//! placeholders that do not verify ([`SimProver::Fake`]), or tokens that a simulated host tells right from wrong
//! ([`SimProver::Token`]).
//!
//! ```text
//! enqueue -> [queue of the lane] -> allocate -> (compute) -> sleep(duration) -> event -> waker
//!                                      |                        |
//!                                  alloc_fail          hang, sticky, panic, delay      (script.rs)
//!
//! in a pass: once all members have the stage enqueued, allocate -> (compute, each) -> sleep(all of them) -> events -> waker
//! ```

mod circuit;
mod fleet;
mod passes;
mod rates;
mod script;
mod state;
mod token;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

pub use circuit::SimCircuit;
pub use fleet::SimFleet;
pub use rates::{mix, FaultRates};
pub use script::{Fault, FaultKind, FaultScript, Partitions};
pub use token::token_proof;

use crate::backend::sim::passes::PassStep;
use crate::backend::sim::state::{SimState, Step};
use crate::backend::steps::ProofSteps;
use crate::backend::{
    BackendEvent, BackendFactory, BackendWaker, DeviceBackend, DeviceInfo, FinishedProof, LaneIndex,
    LaneLayout, MemoryModel, PartitionWork, Stage, WatchdogConfig,
};
use crate::error::DeviceError;
use crate::groth16::{R1csShape, Srs};
use crate::ids::{CircuitId, DeviceId};
use crate::policy::plan::{ProvePlan, QuerySet, ShapeSummary, SrsSummary};
use crate::policy::shared_pass::PassPlan;

/// What a simulated device's proofs are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SimProver {
    /// Those of the host's prover.
    #[default]
    Real,
    /// Valid points that depend on job and partition alone, and verify for nothing. No self-test is made.
    Fake,
    /// As `Fake`, made by no arithmetic at all ([`token_proof`]): for simulations with a host that knows them.
    Token,
}

/// One simulated device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimConfig {
    /// Its name is `sim-<index>`.
    pub index: u32,
    /// What it is called besides. Empty: "simulated device" and its number.
    pub model: String,
    pub memory_bytes: u64,
    pub layout: LaneLayout,
    /// Partitions that may wait there for others, or be in a pass with them, beyond the lanes. 0: it shares no passes.
    pub parking_lanes: u32,
    pub stages_ahead: u32,
    /// By [`Stage::index`]. A stage of a real prover takes its computing time besides, on a clock that runs.
    pub stage_durations: [Duration; 9],
    /// Further time of an upload that has to load queries.
    pub srs_load_duration: Duration,
    /// Circuits that take other times than these, and other sizes than they have.
    pub circuits: Arc<BTreeMap<CircuitId, SimCircuit>>,
    /// How fast this device is beside one that takes the durations as they are, in thousandths: of 500, every stage
    /// takes twice as long.
    pub speed_per_mille: u32,
    /// From the host: queries that are loaded or streamed take this time, streamed ones beside their sum, or the sums of all
    /// members of a pass. `None`: no time.
    pub link_bytes_per_s: Option<u64>,
    /// Stages of normal lanes run one at a time, but for uploads: a kernel fills the whole device. Stages of critical
    /// lanes run beside them.
    pub shares_compute: bool,
    /// By how much the time of a stage differs by chance, in thousandths of it either way.
    pub jitter_per_mille: u32,
    pub prover: SimProver,
    /// It says that it looks at a sample of a witness's constraints, and is out of luck with it: what is broken is never in
    /// the sample.
    pub checks_rows: bool,
    pub faults: FaultScript,
    pub fault_rates: FaultRates,
    pub watchdog: WatchdogConfig,
}

impl Default for SimConfig {
    /// 24 GiB, one lane and one critical lane, stages of 1 ms, real proofs, no faults.
    fn default() -> Self {
        Self {
            index: 0,
            model: String::new(),
            memory_bytes: 24 << 30,
            layout: LaneLayout { normal: 1, critical: 1, critical_preempts: false },
            parking_lanes: 0,
            stages_ahead: 0,
            stage_durations: [Duration::from_millis(1); 9],
            srs_load_duration: Duration::ZERO,
            circuits: Arc::default(),
            speed_per_mille: 1000,
            link_bytes_per_s: None,
            shares_compute: false,
            jitter_per_mille: 0,
            prover: SimProver::Real,
            checks_rows: false,
            faults: FaultScript::none(),
            fault_rates: FaultRates::none(),
            watchdog: WatchdogConfig::default(),
        }
    }
}

/// What outlives one opening of the device, so that a script goes on where it was.
#[derive(Debug, Default)]
struct Life {
    num_partitions: AtomicU64,
    num_allocations: AtomicU64,
    is_gone: AtomicBool,
}

/// Opens one simulated device, again and again.
#[derive(Debug)]
pub struct SimFactory {
    config: SimConfig,
    life: Arc<Life>,
}

impl SimFactory {
    pub fn new(config: SimConfig) -> Self {
        Self { config, life: Arc::default() }
    }

    pub fn config(&self) -> &SimConfig {
        &self.config
    }
}

impl BackendFactory for SimFactory {
    type Backend = SimBackend;

    fn device_id(&self) -> DeviceId {
        DeviceId::new(format!("sim-{}", self.config.index))
    }

    fn backend(&self) -> &'static str {
        "sim"
    }

    /// Must be called on an arbiter's thread.
    fn open(&self, waker: BackendWaker) -> Result<SimBackend, DeviceError> {
        if self.life.is_gone.load(Ordering::Acquire) {
            let device = self.device_id().to_string();
            return Err(DeviceError::Open { device, what: "it is gone".to_owned() });
        }
        let name = match self.config.model.as_str() {
            "" => format!("simulated device {}", self.config.index),
            model => model.to_owned(),
        };
        let info = DeviceInfo {
            id: self.device_id(),
            ordinal: self.config.index,
            name,
            backend: "sim",
            memory_total_bytes: self.config.memory_bytes,
        };
        let state = SimState::new(self.config.clone(), info.id.clone(), Arc::clone(&self.life));
        Ok(SimBackend { info, state: Rc::new(RefCell::new(state)), waker })
    }

    fn makes_proofs(&self) -> bool {
        self.config.prover == SimProver::Real
    }

    fn watchdog(&self) -> WatchdogConfig {
        self.config.watchdog
    }
}

/// An opened simulated device. Belongs to the arbiter it was opened on.
pub struct SimBackend {
    info: DeviceInfo,
    /// Shared with the timers of running stages, all on this thread.
    state: Rc<RefCell<SimState>>,
    waker: BackendWaker,
}

impl SimBackend {
    fn start_next(&self, lane: LaneIndex) {
        start_next(&self.state, &self.waker, lane);
    }
}

/// Starts the lane's next stage if none runs, and those of lanes that waited for what became free.
fn start_next(state: &Rc<RefCell<SimState>>, waker: &BackendWaker, lane: LaneIndex) {
    let mut next = Some(lane);
    while let Some(lane) = next {
        let step = state.borrow_mut().start_next(lane);
        match step {
            Some(Step::Run { stage, duration, steps }) => {
                let running = run_stage(Rc::clone(state), Arc::clone(waker), lane, stage, duration, steps);
                let task = actix_rt::spawn(running);
                state.borrow_mut().keep_task(lane, task.abort_handle());
            }
            Some(Step::RunTogether(step)) => spawn_together(state, waker, lane, step),
            Some(Step::EndedAtOnce) => waker(),
            None => {}
        }
        next = state.borrow_mut().next_to_compute();
    }
}

fn spawn_together(state: &Rc<RefCell<SimState>>, waker: &BackendWaker, lane: LaneIndex, step: PassStep) {
    let task = actix_rt::spawn(run_together(Rc::clone(state), Arc::clone(waker), step));
    state.borrow_mut().keep_task(lane, task.abort_handle());
}

/// One stage of all members of a pass, and then whatever they and others have enqueued.
async fn run_together(shared: Rc<RefCell<SimState>>, waker: BackendWaker, step: PassStep) {
    let PassStep { stage, duration, members } = step;
    let begun = tokio::time::Instant::now();
    let mut ended = Vec::with_capacity(members.len());
    for (lane, steps) in members {
        let computed = match steps {
            None => Ok(None),
            Some(steps) => compute(steps, stage).await,
        };
        ended.push((lane, computed));
    }
    tokio::time::sleep(duration).await;
    let lanes: Vec<LaneIndex> = ended.iter().map(|(lane, _)| *lane).collect();
    let waiting = {
        let mut state = shared.borrow_mut();
        state.end_together(stage, begun.elapsed(), ended);
        state.next_to_compute()
    };
    for lane in waiting.into_iter().chain(lanes) {
        start_next(&shared, &waker, lane);
    }
    waker();
}

/// One stage after the other of a lane, until its queue is empty.
async fn run_stage(
    shared: Rc<RefCell<SimState>>,
    waker: BackendWaker,
    lane: LaneIndex,
    mut stage: Stage,
    mut duration: Duration,
    mut steps: Option<Box<ProofSteps>>,
) {
    loop {
        let begun = tokio::time::Instant::now();
        let computed = match steps {
            None => Ok(None),
            Some(steps) => compute(steps, stage).await,
        };
        tokio::time::sleep(duration).await;
        let next = {
            let mut state = shared.borrow_mut();
            state.end_stage(lane, stage, begun.elapsed(), computed);
            // Who waited for this device's multiprocessors goes before this lane's next stage.
            match state.next_to_compute() {
                None => state.start_next(lane),
                Some(waiting) => {
                    drop(state);
                    start_next(&shared, &waker, waiting);
                    shared.borrow_mut().start_next(lane)
                }
            }
        };
        waker();
        match next {
            Some(Step::Run { stage: next_stage, duration: next_duration, steps: next_steps }) => {
                (stage, duration, steps) = (next_stage, next_duration, next_steps);
            }
            Some(Step::RunTogether(step)) => return spawn_together(&shared, &waker, lane, step),
            Some(Step::EndedAtOnce) | None => return,
        }
    }
}

/// Runs a stage of a real proof off the arbiter's thread. A panic there is given back as its text.
async fn compute(mut steps: Box<ProofSteps>, stage: Stage) -> Result<Option<Box<ProofSteps>>, ComputeError> {
    let computed = tokio::task::spawn_blocking(move || {
        let outcome = steps.run(stage);
        (steps, outcome)
    });
    match computed.await {
        Ok((steps, Ok(()))) => Ok(Some(steps)),
        Ok((_, Err(error))) => Err(ComputeError::Failed(error)),
        Err(error) => Err(ComputeError::Panicked(error.to_string())),
    }
}

enum ComputeError {
    Failed(DeviceError),
    Panicked(String),
}

impl DeviceBackend for SimBackend {
    fn info(&self) -> DeviceInfo {
        self.info.clone()
    }

    fn lanes(&self) -> LaneLayout {
        self.state.borrow().config().layout
    }

    fn parking_lanes(&self) -> u32 {
        self.state.borrow().config().parking_lanes
    }

    fn stages_ahead(&self) -> u32 {
        self.state.borrow().config().stages_ahead
    }

    fn memory_model(&self) -> MemoryModel {
        MemoryModel::Dedicated
    }

    fn checks_rows(&self) -> bool {
        self.state.borrow().config().checks_rows
    }

    fn sizes(&self, circuit: &CircuitId, shape: &R1csShape, srs: &Srs) -> (ShapeSummary, SrsSummary) {
        self.state.borrow().sizes(circuit, shape, srs)
    }

    fn begin(&mut self, lane: LaneIndex, work: PartitionWork, plan: &ProvePlan) -> Result<(), DeviceError> {
        self.state.borrow_mut().begin(lane, work, plan)
    }

    fn enqueue(&mut self, lane: LaneIndex, stage: Stage) -> Result<(), DeviceError> {
        self.state.borrow_mut().enqueue(lane, stage)?;
        self.start_next(lane);
        Ok(())
    }

    fn park(&mut self, lane: LaneIndex) {
        self.state.borrow_mut().park(lane);
    }

    fn begin_pass(&mut self, lanes: &[LaneIndex], plan: &PassPlan) {
        self.state.borrow_mut().begin_pass(lanes, plan);
    }

    /// # Panics
    /// If the script says so: that is how a panic in the actor's handler is made.
    fn poll(&mut self) -> Vec<BackendEvent> {
        let polled = self.state.borrow_mut().poll();
        match polled {
            Ok(events) => events,
            Err(scripted) => panic!("{scripted}"),
        }
    }

    fn take_proof(&mut self, lane: LaneIndex) -> Result<FinishedProof, DeviceError> {
        self.state.borrow_mut().take_proof(lane)
    }

    fn abort(&mut self, lane: LaneIndex) {
        let others = self.state.borrow_mut().abort(lane);
        let waiting = self.state.borrow_mut().next_to_compute();
        // Its pass may have waited for this one alone.
        for lane in waiting.into_iter().chain(others) {
            self.start_next(lane);
        }
        (self.waker)();
    }

    fn resident(&self, circuit: &CircuitId) -> QuerySet {
        self.state.borrow().resident(circuit)
    }

    fn evict_srs(&mut self, circuit: &CircuitId) -> bool {
        self.state.borrow_mut().evict(circuit)
    }

    fn memory_in_use_bytes(&self) -> u64 {
        self.state.borrow().memory_in_use_bytes()
    }

    fn trim(&mut self) {}

    /// Its teardown waits for nothing, so nothing need be leaked.
    fn abandon(self) {}
}

impl Drop for SimBackend {
    fn drop(&mut self) {
        // A panic may have unwound through a borrow; the timers then end with their arbiter.
        if let Ok(mut state) = self.state.try_borrow_mut() {
            state.abort_tasks();
        }
    }
}
