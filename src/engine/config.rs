//! What an engine is built from.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::deadline::Deadlines;
use super::memory::HostBudgets;
use crate::actors::gpu_device::{DeviceConfig, DeviceSpawner, FactorySpawner};
use crate::actors::scheduler::SchedulerConfig;
use crate::actors::supervisor::{RestartPolicy, SupervisorConfig};
use crate::actors::synthesizer::host::HostWork;
use crate::actors::synthesizer::SynthesizerConfig;
use crate::actors::{ArbiterLayout, Pace};
use crate::backend::cpu::{host_memory_bytes, CpuConfig, CpuFactory};
use crate::backend::sim::{SimConfig, SimFactory};
use crate::circuits::{WorkDecoder, Workload};
use crate::ids::DeviceId;
use crate::journal::JournalConfig;
use crate::messages::events::EventSink;
use crate::policy::batch::BatchPolicy;
use crate::policy::health::HealthPolicy;
use crate::policy::queue::QueuePolicy;
use crate::policy::role::Role;

/// One device the engine shall own.
#[derive(Clone)]
pub enum DeviceSpec {
    /// Proving on the host's cores. `threads`: worker threads over all lanes (0: one per core); `lanes`: partitions
    /// side by side.
    Cpu { threads: usize, lanes: u32 },
    /// A simulated device.
    Sim(Box<SimConfig>),
    /// Any other device: a GPU, a host's own.
    Spawner(Arc<dyn DeviceSpawner>),
}

impl DeviceSpec {
    /// The name under which the engine will know it.
    pub fn device_id(&self) -> DeviceId {
        self.spawner().device_id()
    }
}

impl DeviceSpec {
    fn spawner(&self) -> Arc<dyn DeviceSpawner> {
        match self {
            Self::Cpu { threads, lanes } => {
                let num_threads = (*threads > 0).then_some(*threads);
                // Its part of the host's memory: the others' is not its to plan with.
                let memory_bytes = HostBudgets::of(host_memory_bytes(), true).cpu_device_bytes;
                let config = CpuConfig { num_lanes: (*lanes).max(1), memory_bytes, num_threads };
                FactorySpawner::boxed(CpuFactory::new(config))
            }
            Self::Sim(config) => FactorySpawner::boxed(SimFactory::new(SimConfig::clone(config))),
            Self::Spawner(spawner) => Arc::clone(spawner),
        }
    }
}

impl fmt::Debug for DeviceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu { threads, lanes } => {
                f.debug_struct("Cpu").field("threads", threads).field("lanes", lanes).finish()
            }
            Self::Sim(config) => config.fmt(f),
            Self::Spawner(spawner) => write!(f, "Spawner({})", spawner.device_id()),
        }
    }
}

/// Everything an [`crate::engine::Engine`] needs to know. `Default` is one CPU device and no folders but the system's.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// The devices, each under a name of its own.
    pub devices: Vec<DeviceSpec>,
    /// Those of them that take CRITICAL work and nothing else.
    pub reserved_for_critical: BTreeSet<DeviceId>,
    /// Whether the CPU proves what no other device is left for. If not, such work fails. Without another device than the
    /// CPU this means nothing.
    pub cpu_fallback: bool,
    /// Circuits that are loaded, on the host and on the devices, before the engine counts as ready, and stay. Of these
    /// workloads only key and shape are used ([`crate::engine::preload::circuit`] makes one of a Filecoin circuit).
    pub warmup: Vec<Arc<dyn Workload>>,
    /// How long a circuit may be idle before it is let go of, on the host and on the devices. `None`: until its memory is
    /// wanted.
    pub idle_limit: Option<Duration>,
    /// Folder of the Filecoin parameter files.
    pub params_dir: PathBuf,
    /// Folder in which recorded circuit shapes are kept between runs. `None`: recorded anew each time.
    pub shape_cache_dir: Option<PathBuf>,
    /// Folder in which the verdict on a parameter file is kept. `None`: every point is checked at every load.
    pub verdict_dir: Option<PathBuf>,
    /// Whether proving keys are used folded ([`crate::groth16::fold`]) where the fold is beside the parameter file. One that
    /// is not to be used, or for which `host_memory_budget_bytes` as it was at the start has no room beside the plain key while
    /// it is loaded, is logged, and the plain key takes its place.
    pub use_folds: bool,
    /// Bytes of host memory that circuits (shape and SRS) and witnesses may take together. Whoever
    /// comes first in the queue gets what is free; idle circuits are let go for those that wait. One witness and one
    /// circuit are always let through, and so is the circuit of a CRITICAL job. Too low: parameter files are read again
    /// and again, and devices wait for witnesses. Too high: the host swaps.
    pub host_memory_budget_bytes: u64,
    /// Jobs that may wait or run at a time; one more is refused. CRITICAL ones have a limit of their own, four times
    /// as high.
    pub max_queued_jobs: usize,
    /// How often one partition is given to a device before its job fails. At least 1.
    pub max_attempts: u32,
    /// Worker threads for decoding, synthesis and verification. 0: these run inside the actor, one after the other, where the
    /// engine is started on the current arbiter, for simulations on a paused clock; elsewhere it is one thread.
    pub synthesis_threads: usize,
    /// Which actors share a thread.
    pub arbiter_layout: ArbiterLayout,
    /// Finished jobs whose result is kept, so that the same request attaches to it instead of being proved again. Those
    /// in the journal are kept as long as it keeps them.
    pub retained_results: usize,
    /// Where accepted jobs and their results outlive the process. `None`: nowhere.
    pub journal: Option<JournalConfig>,
    /// Readers of a host's own formats of work, each under a name of its own.
    pub decoders: Vec<Arc<dyn WorkDecoder>>,
    /// Settings of every device actor: memory budget, watchdog, self-test.
    pub device: DeviceConfig,
    /// Waiting this long lifts a job by one priority level; after three times this it goes before everything newer.
    pub aging_step: Duration,
    /// How long work whose SRS is resident on a free device may go before older work of the same level.
    pub affinity_limit: Duration,
    /// Partitions of one circuit that a device proves one after the other while others of the same level wait, and for
    /// how long.
    pub batches: BatchPolicy,
    /// How long a device may take to open before it counts as lost.
    pub device_start_limit: Duration,
    /// Restarts of one device actor, or of the Synthesizer, within [`EngineConfig::restart_window`] before it is quarantined.
    pub max_restarts: u32,
    /// See [`EngineConfig::max_restarts`]; also the window in which a device's failures are counted.
    pub restart_window: Duration,
    /// How long a quarantined device, or Synthesizer, is left alone before it is tried once more.
    pub quarantine: Duration,
    /// How long the engine's own actors may take to answer.
    pub deadlines: Deadlines,
    /// How often actors look at what no message tells them.
    pub pace: Pace,
    /// Who is told what happens; see [`crate::telemetry::event_log`]. Off: costs nothing.
    pub events: EventSink,
    /// Who makes witnesses, verifies and loads circuits.
    pub workers: Workers,
}

/// Who does the work of the host's threads.
#[derive(Clone, Default)]
pub enum Workers {
    /// [`EngineConfig::synthesis_threads`] threads.
    #[default]
    Threads,
    /// As many simulated ones, on the clock of the arbiter that the Synthesizer lives on.
    Simulated(Arc<dyn HostWork>),
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Threads => "Threads",
            Self::Simulated(_) => "Simulated(..)",
        })
    }
}

impl Default for EngineConfig {
    fn default() -> Self {
        let budgets = HostBudgets::of(host_memory_bytes(), true);
        Self {
            devices: vec![DeviceSpec::Cpu { threads: 0, lanes: 1 }],
            reserved_for_critical: BTreeSet::new(),
            cpu_fallback: false,
            warmup: Vec::new(),
            idle_limit: None,
            params_dir: PathBuf::from("/var/tmp/filecoin-proof-parameters"),
            shape_cache_dir: None,
            verdict_dir: None,
            use_folds: true,
            host_memory_budget_bytes: budgets.engine_bytes,
            max_queued_jobs: 256,
            max_attempts: 3,
            synthesis_threads: std::thread::available_parallelism().map_or(1, |n| n.get()),
            arbiter_layout: ArbiterLayout::ThreadPerDevice,
            retained_results: 256,
            journal: None,
            decoders: Vec::new(),
            device: DeviceConfig::default(),
            aging_step: Duration::from_secs(300),
            affinity_limit: Duration::from_secs(30),
            batches: BatchPolicy::default(),
            device_start_limit: Duration::from_secs(60),
            max_restarts: 3,
            restart_window: Duration::from_secs(60),
            quarantine: Duration::from_secs(60),
            deadlines: Deadlines::default(),
            pace: Pace::default(),
            events: EventSink::off(),
            workers: Workers::Threads,
        }
    }
}

type Spawners = Vec<Arc<dyn DeviceSpawner>>;
type Roles = Vec<(DeviceId, Role)>;

impl EngineConfig {
    /// The devices, a fallback among them if there is to be one, and what each is for.
    fn devices_and_roles(&self) -> (Spawners, Roles) {
        let mut devices: Vec<_> = self.devices.iter().map(DeviceSpec::spawner).collect();
        let mut roles: Roles = devices
            .iter()
            .map(|spawner| {
                let is_reserved = self.reserved_for_critical.contains(&spawner.device_id());
                (spawner.device_id(), if is_reserved { Role::ReservedForCritical } else { Role::General })
            })
            .collect();
        let cpu = DeviceSpec::Cpu { threads: 0, lanes: 1 }.spawner();
        if self.cpu_fallback && roles.iter().all(|(id, _)| *id != cpu.device_id()) {
            roles.push((cpu.device_id(), Role::Fallback));
            devices.push(cpu);
        }
        (devices, roles)
    }

    fn scheduler(&self, devices: Roles) -> SchedulerConfig {
        SchedulerConfig {
            devices,
            max_queued_jobs: self.max_queued_jobs,
            max_attempts: self.max_attempts,
            retained_results: self.retained_results,
            host_memory_budget_bytes: self.host_memory_budget_bytes,
            max_synthesizing: self.synthesis_threads.max(1),
            queue: QueuePolicy { aging_step: self.aging_step, affinity_limit: self.affinity_limit },
            batches: self.batches,
            warmup: self.warmup.clone(),
            idle_limit: self.idle_limit,
            journal_limit: self.deadlines.journal,
            health: HealthPolicy {
                window: self.restart_window,
                // Two invalid proofs, or four failures of other kinds.
                quarantine_points: 4,
                quarantine: self.quarantine,
            },
            pace: self.pace,
            events: self.events.clone(),
        }
    }

    /// The same, as the Supervisor takes it.
    pub(super) fn into_supervisor(self) -> SupervisorConfig {
        let (devices, roles) = self.devices_and_roles();
        let scheduler = self.scheduler(roles);
        SupervisorConfig {
            devices,
            device: DeviceConfig { batches: self.batches, ..self.device },
            layout: self.arbiter_layout,
            scheduler,
            synthesizer: SynthesizerConfig {
                params_dir: self.params_dir,
                shape_cache_dir: self.shape_cache_dir,
                verdict_dir: self.verdict_dir,
                fold_limit_bytes: self.use_folds.then_some(self.host_memory_budget_bytes),
                decoders: self.decoders,
                max_waiting_decodes: self.max_queued_jobs.max(1),
            },
            restarts: RestartPolicy {
                max_restarts: self.max_restarts,
                window: self.restart_window,
                quarantine: self.quarantine,
                max_quarantines: 2,
            },
            device_start_limit: self.device_start_limit,
            pace: self.pace,
            events: self.events,
        }
    }
}
