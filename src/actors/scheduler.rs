//! The Scheduler: the job table, and handlers over the pure decisions of [`crate::policy`].
//!
//! ```text
//! Engine --SubmitJob, CancelJob, PreloadCircuit, …--> Scheduler --…Circuit, SynthesizeWitness, Verify*, CheckKey--> Synthesizer
//!                                                    --ProvePartition, PreloadSrs + LaneCredit--> one GpuDevice
//! Synthesizer --WitnessSynthesized, ProofsVerified, …--> Scheduler <--PartitionProved, PartitionFailed, LaneFreed-- GpuDevice
//! Scheduler   --Op--> journal (a thread) --JournalWritten--> Scheduler
//! Supervisor  --DeviceReady, DeviceLost, ActorDied, …Withdrawn, Drain--> Scheduler
//! ```
//!
//! Every handler changes the table and then runs `Scheduler::pump`, which does whatever has become possible:
//! expire, ask for witnesses, dispatch, verify. A result counts only if it answers the attempt that was asked for;
//! a proof counts only after it was verified. What must never happen: a job that leaves the table without an answer.
//! There is one way out, `Scheduler::finish`; and if this actor itself dies, its callers' channels close and they
//! get an error.

mod backlog;
mod blame;
mod circuit_facts;
mod circuits;
mod devices;
mod durable;
mod flow;
mod intake;
mod job;
mod lifecycle;
mod lifeline;
mod memory;
mod not_begun;
mod outcome;
mod results;
mod snapshot;
mod srs_store;
mod synthesis;
mod witnesses;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, AsyncContext, Context, Recipient};
use tokio::sync::watch;
use tokio::time::Instant;

use self::backlog::Backlog;
use self::blame::KeyCheck;
use self::circuits::Circuit;
use self::devices::{Devices, Service};
use self::durable::Durable;
use self::job::Job;
use self::lifeline::Told;
use self::memory::HostMemory;
use self::not_begun::NotBegun;
use self::srs_store::Wanted;
use crate::actors::Pace;
use crate::circuits::{WorkKind, Workload};
use crate::ids::{CircuitId, DeviceId, JobId, PartitionIndex};
use crate::messages::device::LaneFreed;
use crate::messages::events::EventSink;
use crate::messages::job::{JobEvent, JobResult, ReleaseTicket};
use crate::messages::lifecycle::Drained;
use crate::messages::srs::SrsPreloaded;
use crate::messages::status::{EngineStatus, StatusBoard, StepTimes, Totals};
use crate::messages::synthesis::SynthesizerAddress;
use crate::policy::admission::{Identities, WorkIdentity};
use crate::policy::batch::BatchPolicy;
use crate::policy::health::HealthPolicy;
use crate::policy::queue::QueuePolicy;
use crate::policy::role::Role;

/// Limits and policies.
#[derive(Clone, Debug)]
pub struct SchedulerConfig {
    pub devices: Vec<(DeviceId, Role)>,
    pub max_queued_jobs: usize,
    pub max_attempts: u32,
    pub retained_results: usize,
    /// Of circuits and witnesses together.
    pub host_memory_budget_bytes: u64,
    /// Witnesses being made at a time: the Synthesizer's threads. More would only take the order out of our hands.
    pub max_synthesizing: usize,
    pub queue: QueuePolicy,
    pub batches: BatchPolicy,
    pub health: HealthPolicy,
    /// Circuits that are loaded, on the host and on the devices, before the engine counts as ready. They stay.
    pub warmup: Vec<Arc<dyn Workload>>,
    /// How long a circuit may be idle before it is let go of, here and on the devices; `None`: until its memory is wanted.
    pub idle_limit: Option<Duration>,
    /// How long the journal may take to answer before its disk counts as failing.
    pub journal_limit: Duration,
    pub pace: Pace,
    pub events: EventSink,
}

/// A job that has ended, kept so that the same request attaches to it.
struct EndedJob {
    name: String,
    request_id: String,
    identity: Option<WorkIdentity>,
    accepted: JobEvent,
    result: JobResult,
    /// In the journal.
    is_durable: bool,
}

/// Where this actor can be told things, for guards that tell it.
struct OwnAddress {
    lane_freed: Recipient<LaneFreed>,
    ticket_released: Recipient<ReleaseTicket>,
    srs_preloaded: Recipient<SrsPreloaded>,
}

/// See the module.
pub struct Scheduler {
    config: SchedulerConfig,
    begun: Instant,
    own: Option<OwnAddress>,
    drained: Recipient<Drained>,
    synthesizer: Option<SynthesizerAddress>,
    /// `Ready` exactly if there is an address.
    synthesizer_service: Service,
    jobs: BTreeMap<JobId, Job>,
    ended: HashMap<JobId, EndedJob>,
    ended_order: VecDeque<JobId>,
    identities: Identities,
    /// Every job that is known, by what its callers ask for it by.
    names: HashMap<String, JobId>,
    /// Of them: they have a limit of their own.
    num_critical: usize,
    /// Jobs of which nothing has begun.
    not_begun: NotBegun,
    /// Partitions without a witness.
    waiting: Backlog,
    /// Partitions with a witness and without a device.
    ready: Backlog,
    /// As `ready`, but not every device will do: each is looked at by itself.
    ready_particular: BTreeSet<(JobId, PartitionIndex)>,
    /// Partitions whose proof did not verify, and nobody knows yet whose fault that is.
    suspects: BTreeSet<(JobId, PartitionIndex)>,
    /// A device is gone for good since placements were last looked at.
    placements_changed: bool,
    deadlines: BTreeSet<(Duration, JobId)>,
    num_synthesizing: usize,
    circuits: BTreeMap<CircuitId, Circuit>,
    /// Circuits that somebody wants loaded although no job of them may be there.
    wanted: BTreeMap<CircuitId, Wanted>,
    /// Circuits of the warmup list that were not loaded, and why.
    warmup_failures: BTreeMap<CircuitId, String>,
    devices: Devices,
    /// Of circuits, of witnesses, and of the host's own proofs.
    memory: HostMemory,
    key_check: Option<KeyCheck>,
    /// The journal, and what of it is still to be queued.
    durable: Durable,
    next_job: u64,
    next_ticket: u64,
    draining: bool,
    reported_drained: bool,
    totals: Totals,
    status: watch::Sender<Arc<EngineStatus>>,
    /// The devices' own figures, for the status alone: no decision is made by them.
    board: StatusBoard,
    published_at: Option<Duration>,
    step_times: StepTimes,
    told: Told,
}

/// How long a device that refused work is left alone.
const REST: Duration = Duration::from_millis(50);

impl Scheduler {
    pub fn new(
        config: SchedulerConfig,
        drained: Recipient<Drained>,
        status: watch::Sender<Arc<EngineStatus>>,
        board: StatusBoard,
    ) -> Self {
        assert!(config.max_attempts > 0, "a partition needs an attempt to be proved");
        Self {
            begun: Instant::now(),
            own: None,
            drained,
            synthesizer: None,
            synthesizer_service: Service::Starting,
            jobs: BTreeMap::new(),
            ended: HashMap::new(),
            ended_order: VecDeque::new(),
            identities: Identities::default(),
            names: HashMap::new(),
            num_critical: 0,
            not_begun: NotBegun::default(),
            waiting: Backlog::new(config.queue),
            ready: Backlog::new(config.queue),
            ready_particular: BTreeSet::new(),
            suspects: BTreeSet::new(),
            placements_changed: false,
            deadlines: BTreeSet::new(),
            num_synthesizing: 0,
            circuits: BTreeMap::new(),
            wanted: BTreeMap::new(),
            warmup_failures: BTreeMap::new(),
            devices: Devices::new(config.devices.iter().cloned(), config.health),
            memory: HostMemory::new(config.host_memory_budget_bytes),
            key_check: None,
            durable: Durable::default(),
            next_job: 1,
            next_ticket: 1,
            draining: false,
            reported_drained: false,
            totals: Totals::default(),
            status,
            board,
            published_at: None,
            step_times: StepTimes::default(),
            told: Told::default(),
            config,
        }
    }

    /// Time since the start: what the policies count in.
    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    fn own(&self) -> &OwnAddress {
        self.own.as_ref().expect("set when the actor started")
    }
}

impl Drop for Scheduler {
    /// Also after a panic: worker threads must not go on reading what nobody will use.
    fn drop(&mut self) {
        self.circuits.values().for_each(Circuit::cancel_loading);
        self.jobs.values().for_each(|job| job.cancel.cancel());
    }
}

impl Actor for Scheduler {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let address = ctx.address();
        self.durable.start(&address);
        self.own = Some(OwnAddress {
            lane_freed: address.clone().recipient(),
            srs_preloaded: address.clone().recipient(),
            ticket_released: address.recipient(),
        });
        // Idempotent: ticks that were missed come in a burst.
        ctx.run_interval(self.config.pace.scheduler_tick, |actor, _| actor.tick());
        self.want_warmup();
        self.publish();
    }
}

/// Every kind, in the order in which status lists them.
const KINDS: [WorkKind; 5] =
    [WorkKind::WinningPost, WorkKind::WindowPost, WorkKind::PorepC2, WorkKind::SnapUpdate, WorkKind::Custom];
