//! The `sim` backend: devices whose memory, speed and faults are written down, on the arbiter's own clock.
//!
//! Nothing runs but timers of the actor's arbiter, so that a paused clock makes every run exact and repeatable. Proofs
//! are real ([`SimProver::Real`]: each stage is computed by tokio's blocking threads, which hold a paused clock) or
//! placeholders that do not verify ([`SimProver::Fake`]).
//!
//! ```text
//! enqueue -> [queue of the lane] -> allocate -> (compute) -> sleep(duration) -> event -> waker
//!                                      |                        |
//!                                  alloc_fail          hang, sticky, panic, delay      (script.rs)
//! ```

mod fleet;
mod script;
mod state;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

pub use fleet::SimFleet;
pub use script::{Fault, FaultKind, FaultScript, Partitions};

use crate::backend::sim::state::{SimState, Step};
use crate::backend::steps::ProofSteps;
use crate::backend::{
    BackendEvent, BackendFactory, BackendWaker, DeviceBackend, DeviceInfo, FinishedProof, LaneIndex,
    LaneLayout, MemoryModel, PartitionWork, Stage, WatchdogConfig,
};
use crate::error::DeviceError;
use crate::ids::{CircuitId, DeviceId};
use crate::policy::plan::{ProvePlan, QuerySet};

/// What a simulated device's proofs are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SimProver {
    /// Those of the host's prover.
    #[default]
    Real,
    /// Valid points that depend on job and partition alone, and verify for nothing. No self-test is made.
    Fake,
}

/// One simulated device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimConfig {
    /// Its name is `sim-<index>`.
    pub index: u32,
    pub memory_bytes: u64,
    pub layout: LaneLayout,
    pub stages_ahead: u32,
    /// By [`Stage::index`]. A stage of a real prover takes its computing time besides, on a clock that runs.
    pub stage_durations: [Duration; 9],
    /// Further time of an upload that has to load queries.
    pub srs_load_duration: Duration,
    pub prover: SimProver,
    pub faults: FaultScript,
    pub watchdog: WatchdogConfig,
}

impl Default for SimConfig {
    /// 24 GiB, one lane and one critical lane, stages of 1 ms, real proofs, no faults.
    fn default() -> Self {
        Self {
            index: 0,
            memory_bytes: 24 << 30,
            layout: LaneLayout { normal: 1, critical: 1, critical_preempts: false },
            stages_ahead: 0,
            stage_durations: [Duration::from_millis(1); 9],
            srs_load_duration: Duration::ZERO,
            prover: SimProver::Real,
            faults: FaultScript::none(),
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
        let info = DeviceInfo {
            id: self.device_id(),
            ordinal: self.config.index,
            name: format!("simulated device {}", self.config.index),
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
    /// Starts the lane's next stage if none runs.
    fn start_next(&self, lane: LaneIndex) {
        let step = self.state.borrow_mut().start_next(lane);
        match step {
            Some(Step::Run { stage, duration, steps }) => {
                let running =
                    run_stage(Rc::clone(&self.state), Arc::clone(&self.waker), lane, stage, duration, steps);
                let task = actix_rt::spawn(running);
                self.state.borrow_mut().keep_task(lane, task.abort_handle());
            }
            Some(Step::EndedAtOnce) => (self.waker)(),
            None => {}
        }
    }
}

/// One stage after the other of a lane, until its queue is empty.
async fn run_stage(
    state: Rc<RefCell<SimState>>,
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
            let mut state = state.borrow_mut();
            state.end_stage(lane, stage, begun.elapsed(), computed);
            state.start_next(lane)
        };
        waker();
        match next {
            Some(Step::Run { stage: next_stage, duration: next_duration, steps: next_steps }) => {
                (stage, duration, steps) = (next_stage, next_duration, next_steps);
            }
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

    fn stages_ahead(&self) -> u32 {
        self.state.borrow().config().stages_ahead
    }

    fn memory_model(&self) -> MemoryModel {
        MemoryModel::Dedicated
    }

    fn begin(&mut self, lane: LaneIndex, work: PartitionWork, plan: &ProvePlan) -> Result<(), DeviceError> {
        self.state.borrow_mut().begin(lane, work, plan)
    }

    fn enqueue(&mut self, lane: LaneIndex, stage: Stage) -> Result<(), DeviceError> {
        self.state.borrow_mut().enqueue(lane, stage)?;
        self.start_next(lane);
        Ok(())
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
        self.state.borrow_mut().abort(lane);
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
