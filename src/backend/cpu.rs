//! The `cpu` backend: real proofs on worker threads of the host.
//!
//! Each lane is one thread that takes its stages from a channel; within a stage the work is spread by rayon. The actor's
//! thread only sends and receives. A panic of the prover ends its partition, not its thread.
//!
//! ```text
//! actor's thread    CpuBackend --Command--> lane 0 (thread) --+
//!                              --Command--> lane 1 (thread) --+--Report--> poll()
//!                                                             +--> waker
//! ```

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{bounded, unbounded, Receiver, Sender, TrySendError};

pub use crate::backend::host::{host_memory_bytes, host_memory_bytes_under};
use crate::backend::steps::ProofSteps;
use crate::backend::{
    BackendEvent, BackendFactory, BackendWaker, DeviceBackend, DeviceInfo, FinishedProof, LaneIndex,
    LaneLayout, MemoryModel, PartitionWork, Stage, WatchdogConfig,
};
use crate::error::{catch, DeviceError, ErrorClass};
use crate::ids::{CircuitId, DeviceId, JobId, WorkRef};
use crate::policy::plan::{ProvePlan, QuerySet};

/// Commands a lane may have waiting: begin, one stage, clear, and room to spare. More would break the contract.
const MAX_QUEUED_COMMANDS: usize = 8;

/// How much of the host the `cpu` device may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuConfig {
    /// Partitions side by side. More than one helps only where one cannot fill all cores.
    pub num_lanes: u32,
    /// Host memory for proving, in bytes, without the keys that the host store holds.
    pub memory_bytes: u64,
    /// Threads of a rayon pool of its own; `None`: the process-wide pool.
    pub num_threads: Option<usize>,
}

impl Default for CpuConfig {
    fn default() -> Self {
        Self { num_lanes: 1, memory_bytes: host_memory_bytes(), num_threads: None }
    }
}

/// Opens the host itself as a device, named `cpu`.
#[derive(Clone, Debug, Default)]
pub struct CpuFactory {
    config: CpuConfig,
}

impl CpuFactory {
    pub fn new(config: CpuConfig) -> Self {
        Self { config }
    }
}

impl BackendFactory for CpuFactory {
    type Backend = CpuBackend;

    fn device_id(&self) -> DeviceId {
        DeviceId::new("cpu")
    }

    fn backend(&self) -> &'static str {
        "cpu"
    }

    fn open(&self, waker: BackendWaker) -> Result<CpuBackend, DeviceError> {
        CpuBackend::open(self.device_id(), &self.config, waker)
    }

    /// A core may need an hour for a stage of a 32 GiB proof: a floor below that would lose healthy hosts.
    fn watchdog(&self) -> WatchdogConfig {
        let hour = Duration::from_secs(3_600);
        WatchdogConfig { floor: 2 * hour, upload_floor: 2 * hour, factor: 10 }
    }
}

/// The opened host.
pub struct CpuBackend {
    info: DeviceInfo,
    layout: LaneLayout,
    lanes: Vec<Lane>,
    reports: Receiver<Report>,
    /// Sum over the lanes, written by their threads.
    memory_in_use: Arc<AtomicU64>,
}

/// The actor's side of a lane.
struct Lane {
    commands: Sender<Command>,
    /// Makes the thread skip stages that have not begun.
    aborting: Arc<AtomicBool>,
    abort_pending: bool,
    finished: Option<FinishedProof>,
    /// The partition it has, to name it in errors; `None`: the lane is empty and its thread idle.
    at: Option<WorkRef>,
    thread: JoinHandle<()>,
}

enum Command {
    Begin(Box<PartitionWork>),
    Run(Stage),
    /// Drop the partition and report [`Report::Aborted`].
    Clear,
}

enum Report {
    Done { lane: LaneIndex, stage: Stage, elapsed: Duration, finished: Option<Box<FinishedProof>> },
    Failed { lane: LaneIndex, stage: Stage, error: DeviceError },
    Aborted { lane: LaneIndex },
}

impl CpuBackend {
    fn open(id: DeviceId, config: &CpuConfig, waker: BackendWaker) -> Result<Self, DeviceError> {
        let failed = |what: String| DeviceError::Open { device: id.to_string(), what };
        let pool = match config.num_threads {
            None => None,
            Some(num_threads) => {
                let pool = rayon::ThreadPoolBuilder::new()
                    .num_threads(num_threads)
                    .thread_name(|index| format!("cuzk-cpu-{index}"))
                    .build()
                    .map_err(|error| failed(error.to_string()))?;
                Some(Arc::new(pool))
            }
        };
        let (report, reports) = unbounded();
        let memory_in_use = Arc::new(AtomicU64::new(0));
        let layout = LaneLayout { normal: config.num_lanes.max(1), critical: 1, critical_preempts: false };
        let mut lanes = Vec::new();
        for index in 0..layout.normal + layout.critical {
            let (commands, received) = bounded(MAX_QUEUED_COMMANDS);
            let aborting = Arc::new(AtomicBool::new(false));
            let worker = Worker {
                lane: LaneIndex(index),
                commands: received,
                report: report.clone(),
                waker: Arc::clone(&waker),
                aborting: Arc::clone(&aborting),
                pool: pool.clone(),
                partition: None,
                memory_in_use: Arc::clone(&memory_in_use),
                counted_bytes: 0,
            };
            let thread = std::thread::Builder::new()
                .name(format!("cuzk-lane-{index}"))
                .spawn(move || worker.run())
                .map_err(|error| failed(error.to_string()))?;
            lanes.push(Lane { commands, aborting, abort_pending: false, finished: None, at: None, thread });
        }
        let num_threads = config.num_threads.unwrap_or_else(rayon::current_num_threads);
        let info = DeviceInfo {
            id,
            ordinal: 0,
            name: format!("host processor, {num_threads} threads"),
            backend: "cpu",
            memory_total_bytes: config.memory_bytes,
        };
        Ok(Self { info, layout, lanes, reports, memory_in_use })
    }

    fn work_of(&self, lane: LaneIndex) -> WorkRef {
        let at = self.lanes[lane.0 as usize].at.clone();
        at.unwrap_or_else(|| WorkRef::job(JobId(0)).on(self.info.id.clone()))
    }

    fn take_in(&mut self, report: Report) -> Option<BackendEvent> {
        match report {
            Report::Done { lane, stage, elapsed, finished } => {
                self.lanes[lane.0 as usize].finished = finished.map(|finished| *finished);
                Some(BackendEvent::StageDone { lane, stage, elapsed })
            }
            Report::Failed { lane, stage, error } => {
                let state = &mut self.lanes[lane.0 as usize];
                state.at = None;
                let is_moot = state.abort_pending && error.class() != ErrorClass::DeviceLost;
                (!is_moot).then_some(BackendEvent::StageFailed { lane, stage, error })
            }
            Report::Aborted { lane } => {
                let state = &mut self.lanes[lane.0 as usize];
                state.at = None;
                state.finished = None;
                state.abort_pending = false;
                Some(BackendEvent::Aborted { lane })
            }
        }
    }

    /// Never waits: the contract bounds what can be queued.
    fn command(&self, lane: LaneIndex, command: Command) -> Result<(), DeviceError> {
        let at = || self.work_of(lane);
        match self.lanes[lane.0 as usize].commands.try_send(command) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(_)) => Err(DeviceError::Fault {
                at: at(),
                stage: "enqueue",
                what: "more stages enqueued than agreed".to_owned(),
            }),
            Err(TrySendError::Disconnected(_)) => {
                Err(DeviceError::Lost { at: at(), what: "its worker thread has ended".to_owned() })
            }
        }
    }
}

impl DeviceBackend for CpuBackend {
    fn info(&self) -> DeviceInfo {
        self.info.clone()
    }

    fn lanes(&self) -> LaneLayout {
        self.layout
    }

    /// None: between two stages lies one wake-up, and the cores are better given to CRITICAL work at once.
    fn stages_ahead(&self) -> u32 {
        0
    }

    fn memory_model(&self) -> MemoryModel {
        MemoryModel::SharedWithHost
    }

    fn begin(&mut self, lane: LaneIndex, work: PartitionWork, _: &ProvePlan) -> Result<(), DeviceError> {
        self.lanes[lane.0 as usize].at = Some(work.at.clone());
        self.command(lane, Command::Begin(Box::new(work)))
    }

    fn enqueue(&mut self, lane: LaneIndex, stage: Stage) -> Result<(), DeviceError> {
        self.command(lane, Command::Run(stage))
    }

    fn poll(&mut self) -> Vec<BackendEvent> {
        let mut events = Vec::new();
        while let Ok(report) = self.reports.try_recv() {
            events.extend(self.take_in(report));
        }
        events
    }

    fn take_proof(&mut self, lane: LaneIndex) -> Result<FinishedProof, DeviceError> {
        let at = self.work_of(lane);
        let lane = &mut self.lanes[lane.0 as usize];
        let finished = lane.finished.take().ok_or_else(|| DeviceError::Fault {
            at,
            stage: Stage::Assemble.as_str(),
            what: "no proof to take".to_owned(),
        })?;
        lane.at = None;
        Ok(finished)
    }

    fn abort(&mut self, lane: LaneIndex) {
        let state = &mut self.lanes[lane.0 as usize];
        state.abort_pending = true;
        state.aborting.store(true, Ordering::Release);
        // A thread that has ended holds nothing; its end has been reported by an earlier command.
        let _ = self.command(lane, Command::Clear);
    }

    /// Keys stay in the host store: none is this device's own.
    fn resident(&self, _: &CircuitId) -> QuerySet {
        QuerySet::NONE
    }

    fn evict_srs(&mut self, _: &CircuitId) -> bool {
        false
    }

    fn memory_in_use_bytes(&self) -> u64 {
        self.memory_in_use.load(Ordering::Relaxed)
    }

    fn trim(&mut self) {}
}

impl Drop for CpuBackend {
    /// Joins the threads that are idle. One that computes (the actor has panicked) ends by itself after its stage;
    /// waiting for it here would block the actor's thread.
    fn drop(&mut self) {
        for lane in self.lanes.drain(..) {
            lane.aborting.store(true, Ordering::Release);
            drop(lane.commands);
            if lane.at.is_none() {
                // Its result says whether the thread panicked, which `Worker::run` never does.
                let _ = lane.thread.join();
            }
        }
    }
}

/// The thread's side of a lane.
struct Worker {
    lane: LaneIndex,
    commands: Receiver<Command>,
    report: Sender<Report>,
    waker: BackendWaker,
    aborting: Arc<AtomicBool>,
    pool: Option<Arc<rayon::ThreadPool>>,
    partition: Option<(WorkRef, ProofSteps)>,
    memory_in_use: Arc<AtomicU64>,
    /// This lane's share of `memory_in_use`.
    counted_bytes: u64,
}

impl Worker {
    fn run(mut self) {
        while let Ok(command) = self.commands.recv() {
            match command {
                Command::Begin(work) => {
                    let at = work.at.clone();
                    self.hold(Some((at, ProofSteps::new(*work))));
                }
                Command::Run(stage) => self.run_stage(stage),
                Command::Clear => {
                    self.hold(None);
                    self.aborting.store(false, Ordering::Release);
                    self.tell(Report::Aborted { lane: self.lane });
                }
            }
        }
        self.hold(None);
    }

    fn run_stage(&mut self, stage: Stage) {
        if self.aborting.load(Ordering::Acquire) {
            return;
        }
        // Empty after a failure: what was enqueued behind it is dropped.
        let Some((at, mut steps)) = self.partition.take() else { return };
        let begun = Instant::now();
        let outcome = catch(|| match &self.pool {
            Some(pool) => pool.install(|| steps.run(stage)),
            None => steps.run(stage),
        });
        let lane = self.lane;
        match outcome {
            Ok(Ok(())) => {
                let finished = steps
                    .take_proof()
                    .map(|proof| Box::new(FinishedProof { proof, memory_peak_bytes: steps.peak_bytes() }));
                let is_last = finished.is_some();
                self.hold((!is_last).then_some((at, steps)));
                self.tell(Report::Done { lane, stage, elapsed: begun.elapsed(), finished });
            }
            Ok(Err(error)) => self.fail(stage, error),
            Err(what) => {
                let what = format!("the prover panicked: {what}");
                self.fail(stage, DeviceError::Fault { at, stage: stage.as_str(), what });
            }
        }
    }

    fn fail(&mut self, stage: Stage, error: DeviceError) {
        self.hold(None);
        self.tell(Report::Failed { lane: self.lane, stage, error });
    }

    /// Replaces the partition and corrects the count of memory in use.
    fn hold(&mut self, partition: Option<(WorkRef, ProofSteps)>) {
        self.partition = partition;
        let bytes = self.partition.as_ref().map_or(0, |(_, steps)| steps.memory_bytes());
        self.memory_in_use.fetch_add(bytes, Ordering::AcqRel);
        self.memory_in_use.fetch_sub(self.counted_bytes, Ordering::AcqRel);
        self.counted_bytes = bytes;
    }

    fn tell(&self, report: Report) {
        // The backend may have gone already; then nobody wants to know.
        if self.report.send(report).is_ok() {
            (self.waker)();
        }
    }
}
