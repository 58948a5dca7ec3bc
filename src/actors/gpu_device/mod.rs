//! `GpuDevice<B>`: the owner of one device.
//!
//! It opens its backend on its arbiter's thread, proves a known answer, reports ready, and then takes partitions as
//! long as it has lanes. It plans a partition's memory before anything is launched, reserves what the plan says, keeps
//! the stages coming, and watches the time. It never waits: every handler enqueues, polls and returns.
//!
//! ```text
//!                    +--------------------------- GpuDevice<B> ----------------------------+
//! ProvePartition --> | admission.rs   check, plan, evict, reserve, begin                   | --> PartitionProved
//! EvictSrs, Drain -> | progress.rs    stage ends, cancels, failures, watchdog              |     PartitionFailed
//!                    | passes.rs      park, share a pass over streamed queries             |
//! PreloadSrs ------> | preload.rs     the upload alone                                     |     SrsPreloaded
//! wake-up, tick ---> | lanes.rs  ledger.rs  srs_cache.rs  watchdog.rs    (state)           |     StageFinished
//!                    | B: DeviceBackend                                                    |     DeviceReady, …Lost
//!                    +---------------------------------------------------------------------+
//! ```
//!
//! Who calls it: the Supervisor starts it (`spawn.rs`), the Scheduler sends it work. What must never happen: a second
//! owner of the device, a launch outside a reservation, an answer given twice or not at all.

mod admission;
mod config;
mod lanes;
mod ledger;
mod passes;
mod plans;
mod preload;
mod progress;
mod self_test;
mod spawn;
mod srs_cache;
mod watchdog;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use actix::{Actor, ActorContext, AsyncContext, Context, Handler, Message};

pub use config::{DeviceConfig, DevicePeers};
pub use spawn::{DeviceHandle, DeviceSpawner, FactorySpawner};

use crate::actors::gpu_device::lanes::{Hold, Job, Lanes, Origin};
use crate::actors::gpu_device::ledger::{Claim, MemoryLedger};
use crate::actors::gpu_device::plans::Plans;
use crate::actors::gpu_device::self_test::KnownAnswer;
use crate::actors::gpu_device::srs_cache::SrsCache;
use crate::actors::gpu_device::watchdog::Watchdog;
use crate::backend::{BackendFactory, BackendWaker, DeviceBackend, DeviceInfo, LaneLayout, MemoryModel};
use crate::error::DeviceError;
use crate::ids::{CircuitId, DeviceId, JobId, PartitionIndex, WorkRef};
use crate::messages::device::{EvictSrs, LaneKind, PartitionFailed, ProvePartition};
use crate::messages::events::EventKind;
use crate::messages::job::Priority;
use crate::messages::lifecycle::{
    ActorName, DeviceAddress, DeviceLost, DeviceMemory, DeviceReady, Drain, Drained, ResidencyChanged,
    StopActor,
};
use crate::messages::srs::{Eviction, Residence};
use crate::messages::status::DeviceStatus;
use crate::policy::shared_pass::PassGain;

/// Partitions whose refused plan is remembered, so that a retry on this device does not ask for as much again.
const MAX_REMEMBERED_REFUSALS: usize = 256;

/// The actor of one device: its context, lanes, memory and resident keys.
///
/// It (1) opens and tests the device, (2) takes one partition per lane, (3) answers each exactly once, (4) reports the
/// device lost and stops when it cannot be trusted any more. A panic in it frees all that it held.
pub struct GpuDevice<B: DeviceBackend> {
    id: DeviceId,
    factory: Arc<dyn BackendFactory<Backend = B>>,
    config: DeviceConfig,
    peers: DevicePeers,
    phase: Phase,
    /// Dropped, or abandoned, on this actor's thread.
    device: Option<Device<B>>,
    lanes: Lanes,
    plans: Plans,
    /// Whether passes that partitions share have paid here.
    gains: HashMap<CircuitId, PassGain>,
    num_passes: u64,
    /// By what budget a partition was refused memory here, oldest first.
    refusals: VecDeque<((JobId, PartitionIndex), u64)>,
    partitions_proved: u64,
    partitions_failed: u64,
    num_ticks: u64,
    /// The figures of the status on the board.
    published: Option<Figures>,
}

/// What a device's status says, but for names: to see whether it changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Figures {
    phase: Phase,
    lanes_busy: u32,
    reserved_bytes: u64,
    in_use_bytes: u64,
    num_key_changes: u64,
    num_ended: u64,
}

/// An open device and the books over it.
struct Device<B> {
    backend: B,
    info: DeviceInfo,
    layout: LaneLayout,
    memory_model: MemoryModel,
    ledger: MemoryLedger,
    cache: SrsCache,
    watchdog: Watchdog,
    /// Set by the waker, so that a burst of wake-ups is one message.
    wake_pending: Arc<AtomicBool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Opening,
    Testing,
    Ready,
    /// Nothing new is taken; what runs ends.
    Draining,
    /// Drained or lost: the actor stops once the mail that is queued is answered.
    Closed,
}

impl Phase {
    fn as_str(self) -> &'static str {
        match self {
            Phase::Opening => "opening",
            Phase::Testing => "testing",
            Phase::Ready => "ready",
            Phase::Draining => "draining",
            Phase::Closed => "closed",
        }
    }
}

/// The backend has something to poll.
#[derive(Message)]
#[rtype(result = "()")]
struct BackendWoke;

/// Sent by the actor to itself: behind the mail that is queued already.
#[derive(Message)]
#[rtype(result = "()")]
struct StopAfterMail;

impl<B: DeviceBackend> GpuDevice<B> {
    pub fn new(
        factory: Arc<dyn BackendFactory<Backend = B>>,
        config: DeviceConfig,
        peers: DevicePeers,
    ) -> Self {
        Self {
            id: factory.device_id(),
            factory,
            config,
            peers,
            phase: Phase::Opening,
            device: None,
            lanes: Lanes::default(),
            plans: Plans::default(),
            gains: HashMap::new(),
            num_passes: 0,
            refusals: VecDeque::new(),
            partitions_proved: 0,
            partitions_failed: 0,
            num_ticks: 0,
            published: None,
        }
    }

    fn open(&mut self, ctx: &mut Context<Self>) -> Result<(), DeviceError> {
        let wake_pending = Arc::new(AtomicBool::new(false));
        let waker = make_waker(ctx.address().recipient(), Arc::clone(&wake_pending));
        let backend = self.factory.open(waker)?;
        let info = backend.info();
        let budget_bytes = self.config.budget_bytes_of(info.memory_total_bytes);
        self.check_reserve(budget_bytes)?;
        self.lanes = Lanes::new(backend.lanes(), backend.parking_lanes());
        self.device = Some(Device {
            layout: backend.lanes(),
            memory_model: backend.memory_model(),
            info,
            backend,
            ledger: MemoryLedger::new(budget_bytes, self.config.critical_reserve_bytes),
            cache: SrsCache::default(),
            watchdog: Watchdog::new(self.config.watchdog.unwrap_or_else(|| self.factory.watchdog())),
            wake_pending,
        });
        Ok(())
    }

    /// A reserve as large as the budget would leave no other work any room, ever.
    fn check_reserve(&self, budget_bytes: u64) -> Result<(), DeviceError> {
        let reserve_bytes = self.config.critical_reserve_bytes;
        if reserve_bytes < budget_bytes {
            return Ok(());
        }
        let what = format!(
            "the reserve for CRITICAL work needs to be below the device's budget of {budget_bytes} B, has \
             {reserve_bytes} B"
        );
        Err(DeviceError::Settings { device: self.id.clone(), what })
    }

    /// Proves the known answer in the first lane; its end decides whether the device is used.
    fn begin_self_test(&mut self, ctx: &mut Context<Self>) {
        self.phase = Phase::Testing;
        let answer = KnownAnswer::get();
        let origin = Origin::SelfTest { expected: Box::new(answer.proof().clone()) };
        let job = Job::new(answer.work(self.id.clone()), Priority::High, origin, tracing::Span::none());
        let lane = self.lanes.empty_lane(LaneKind::Normal).expect("a backend has a normal lane");
        self.place(lane, job, ctx);
        self.pump(ctx);
    }

    fn report_ready(&mut self, ctx: &mut Context<Self>) {
        let Some(device) = &self.device else { return };
        self.phase = Phase::Ready;
        let ready = DeviceReady {
            info: device.info.clone(),
            life: self.peers.life,
            num_lanes: device.layout.normal,
            num_critical_lanes: device.layout.critical,
            memory: DeviceMemory {
                normal_limit_bytes: device.ledger.limit_bytes(Claim::Normal),
                critical_limit_bytes: device.ledger.limit_bytes(Claim::Critical),
                model: device.memory_model,
            },
            checks_rows: device.backend.checks_rows(),
            address: DeviceAddress {
                prove: ctx.address().recipient(),
                evict: ctx.address().recipient(),
                preload: ctx.address().recipient(),
            },
        };
        tracing::info!(device = %self.id, name = %device.info.name, "device ready");
        self.publish_status();
        for peer in &self.peers.ready {
            peer.do_send(ready.clone());
        }
    }

    /// Reports the device lost, with what it held reported before, and lets go of it.
    fn lose(&mut self, error: DeviceError, ctx: &mut Context<Self>) {
        if self.phase == Phase::Closed {
            return;
        }
        tracing::error!(device = %self.id, %error, "device lost");
        self.phase = Phase::Closed;
        for job in self.lanes.take_jobs() {
            let error = DeviceError::Lost { at: job.at.clone(), what: error.to_string() };
            self.answer_failed(job, error);
        }
        if let Some(device) = self.device.take() {
            match &error {
                // The device may never answer again: freeing would wait for it.
                DeviceError::Hung { .. } | DeviceError::Lost { .. } => device.backend.abandon(),
                _ => drop(device.backend),
            }
        }
        for peer in &self.peers.lost {
            peer.do_send(DeviceLost { device: self.id.clone(), life: self.peers.life, error: error.clone() });
        }
        self.publish_status();
        ctx.address().do_send(StopAfterMail);
    }

    /// Ends a drain if nothing runs any more.
    fn finish_drain(&mut self, ctx: &mut Context<Self>) {
        if self.phase != Phase::Draining || self.lanes.num_busy() > 0 {
            return;
        }
        self.phase = Phase::Closed;
        self.device = None;
        self.publish_status();
        self.peers.drained.do_send(Drained { actor: ActorName::Device(self.id.clone()) });
        ctx.address().do_send(StopAfterMail);
    }

    fn answer_failed(&mut self, job: Job, error: DeviceError) {
        match job.origin {
            Origin::SelfTest { .. } => return,
            Origin::Preload { .. } => return self.answer_preloaded(job, Residence::Failed(error)),
            Origin::Scheduler { .. } => {}
        }
        self.partitions_failed += 1;
        tracing::debug!(parent: &job.span, device = %self.id, %error, "partition failed");
        self.peers.failed.do_send(PartitionFailed { at: job.at, device: self.id.clone(), error });
        // The credit, in `job.origin`, is dropped here: the lane is free after the answer.
    }

    /// Wherever memory may have changed hands, and above all where the device is let go: the board outlives this actor.
    fn publish_status(&mut self) {
        let figures = self.figures();
        let last = self.published.replace(figures);
        if last == Some(figures) {
            return;
        }
        self.peers.board.insert(self.id.clone(), self.status());
        let Figures { reserved_bytes, in_use_bytes, .. } = figures;
        if last.is_none_or(|last| (last.reserved_bytes, last.in_use_bytes) != (reserved_bytes, in_use_bytes))
        {
            let device = self.id.clone();
            self.peers.events.emit(|| EventKind::DeviceMemory { device, reserved_bytes, in_use_bytes });
        }
    }

    fn figures(&self) -> Figures {
        let device = self.device.as_ref();
        Figures {
            phase: self.phase,
            lanes_busy: self.lanes.num_busy(),
            reserved_bytes: device.map_or(0, |device| device.ledger.reserved_bytes()),
            in_use_bytes: device.map_or(0, |device| device.backend.memory_in_use_bytes()),
            num_key_changes: device.map_or(0, |device| device.cache.num_changes()),
            num_ended: self.partitions_proved + self.partitions_failed,
        }
    }

    fn is_open(&self) -> bool {
        self.device.is_some()
    }

    fn evict(&mut self, circuit: &CircuitId) -> bool {
        let Some(device) = &mut self.device else { return false };
        let Some(removed) = device.cache.remove(circuit) else { return false };
        device.backend.evict_srs(circuit);
        if removed.was_loaded && self.phase != Phase::Testing {
            self.tell_residency(circuit, false);
        }
        true
    }

    fn tell_residency(&self, circuit: &CircuitId, resident: bool) {
        let (device, circuit) = (self.id.clone(), circuit.clone());
        self.peers.events.emit(|| EventKind::KeyResident {
            device: device.clone(),
            circuit: circuit.clone(),
            resident,
        });
        self.peers.residency_changed.do_send(ResidencyChanged { device, circuit, resident });
    }

    /// The smallest plan of this partition that was refused memory here before.
    fn refused_before(&self, at: &WorkRef) -> Option<u64> {
        let key = (at.job, at.partition?);
        self.refusals.iter().find(|(refused, _)| *refused == key).map(|(_, bytes)| *bytes)
    }

    fn remember_refusal(&mut self, at: &WorkRef, peak_bytes: u64) {
        let Some(partition) = at.partition else { return };
        let key = (at.job, partition);
        self.refusals.retain(|(refused, _)| *refused != key);
        if self.refusals.len() == MAX_REMEMBERED_REFUSALS {
            self.refusals.pop_front();
        }
        self.refusals.push_back((key, peak_bytes));
    }

    fn status(&self) -> DeviceStatus {
        let device = self.device.as_ref();
        DeviceStatus {
            id: self.id.to_string(),
            name: device.map_or_else(String::new, |device| device.info.name.clone()),
            backend: self.factory.backend().to_owned(),
            health: self.phase.as_str().to_owned(),
            num_lanes: self.lanes.num_of(LaneKind::Normal),
            lanes_busy: self.lanes.num_busy(),
            budget_bytes: device.map_or(0, |device| device.ledger.budget_bytes()),
            reserved_bytes: device.map_or(0, |device| device.ledger.reserved_bytes()),
            in_use_bytes: device.map_or(0, |device| device.backend.memory_in_use_bytes()),
            resident_srs: device.map_or_else(Vec::new, |device| {
                device.cache.loaded().iter().map(CircuitId::to_string).collect()
            }),
            srs_bytes: device.map_or_else(BTreeMap::new, |device| {
                let circuits = device.cache.loaded().into_iter();
                circuits.map(|circuit| (circuit.to_string(), device.cache.bytes_of(&circuit))).collect()
            }),
            partitions_proved: self.partitions_proved,
            partitions_failed: self.partitions_failed,
            num_ticks: self.num_ticks,
        }
    }
}

fn make_waker(actor: actix::Recipient<BackendWoke>, wake_pending: Arc<AtomicBool>) -> BackendWaker {
    Arc::new(move || {
        if !wake_pending.swap(true, Ordering::AcqRel) {
            actor.do_send(BackendWoke);
        }
    })
}

impl<B: DeviceBackend> Actor for GpuDevice<B> {
    type Context = Context<Self>;

    /// The only place that may block: nobody has been told of this actor yet.
    fn started(&mut self, ctx: &mut Context<Self>) {
        if let Err(error) = self.open(ctx) {
            self.lose(error, ctx);
            return;
        }
        ctx.run_interval(self.config.tick, Self::on_tick);
        if self.config.self_test && self.factory.makes_proofs() {
            self.begin_self_test(ctx);
        } else {
            self.report_ready(ctx);
        }
    }
}

impl<B: DeviceBackend> Handler<ProvePartition> for GpuDevice<B> {
    type Result = ();

    fn handle(&mut self, message: ProvePartition, ctx: &mut Context<Self>) {
        self.accept(message, ctx);
        self.pump(ctx);
    }
}

impl<B: DeviceBackend> Handler<BackendWoke> for GpuDevice<B> {
    type Result = ();

    fn handle(&mut self, _: BackendWoke, ctx: &mut Context<Self>) {
        self.pump(ctx);
    }
}

impl<B: DeviceBackend> Handler<EvictSrs> for GpuDevice<B> {
    type Result = Result<Eviction, DeviceError>;

    fn handle(&mut self, evict: EvictSrs, _: &mut Context<Self>) -> Self::Result {
        let EvictSrs { circuit, when_idle } = evict;
        let Some(device) = &mut self.device else { return Ok(Eviction::Absent) };
        let num_bytes = device.cache.bytes_of(&circuit);
        if device.cache.in_use(&circuit) == Some(true) {
            if !when_idle {
                return Err(DeviceError::SrsInUse { device: self.id.clone(), circuit });
            }
            device.cache.evict_when_idle(&circuit);
            return Ok(Eviction::WhenIdle { num_bytes });
        }
        let was_there = self.evict(&circuit);
        if let Some(device) = &mut self.device {
            device.backend.trim();
        }
        self.publish_status();
        Ok(if was_there { Eviction::Freed { num_bytes } } else { Eviction::Absent })
    }
}

impl<B: DeviceBackend> Handler<Drain> for GpuDevice<B> {
    type Result = ();

    fn handle(&mut self, _: Drain, ctx: &mut Context<Self>) {
        if self.phase != Phase::Closed {
            self.phase = Phase::Draining;
        }
        self.finish_drain(ctx);
    }
}

impl<B: DeviceBackend> Handler<StopActor> for GpuDevice<B> {
    type Result = ();

    /// The drain took too long. An arbiter that is the host's own goes on, so this actor must not tick there any more.
    fn handle(&mut self, _: StopActor, ctx: &mut Context<Self>) {
        if let Some(device) = self.device.take() {
            tracing::warn!(device = %self.id, lanes_busy = self.lanes.num_busy(), "device is stopped undrained");
            // What still runs there may never end: freeing would wait for it.
            device.backend.abandon();
        }
        self.phase = Phase::Closed;
        self.publish_status();
        ctx.stop();
    }
}

impl<B: DeviceBackend> Handler<StopAfterMail> for GpuDevice<B> {
    type Result = ();

    fn handle(&mut self, _: StopAfterMail, ctx: &mut Context<Self>) {
        ctx.stop();
    }
}
