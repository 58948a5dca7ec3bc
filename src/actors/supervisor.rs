//! The Supervisor: starts, watches, rebuilds, drains and stops all other actors.
//!
//! It keeps a factory for each: a device's [`DeviceSpawner`], and its own configuration for Scheduler and
//! Synthesizer. `actix::Supervisor` is not used: it does not restart after a panic. Nobody is told when an actor
//! panics, so this one looks at every address on a tick.
//!
//! - A device that dies or says `DeviceLost` is rebuilt on its arbiter, a bounded number of times per window, then
//!   quarantined, tried again, and at last given up. The Scheduler is told each time.
//! - A Synthesizer that dies is rebuilt under the same bounds; its worker threads live on.
//! - A Scheduler that dies takes the job table with it: its callers are answered (their channels close), and the
//!   engine stops. It is not rebuilt here: a table that a panic left half changed is not to be trusted, the callers'
//!   handles are of the old one, and the journal, where there is one, belongs to the process. The next process rebuilds
//!   it from there.
//!
//! Shutting down: `Drain` to the Scheduler, which finishes its jobs, or ends them when the time is over; then `Drain`
//! to every device; then the arbiters are handed to whoever joins them.

mod restarts;

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, ActorContext, Addr, AsyncContext, Context, Handler, Recipient};
use actix_rt::{Arbiter, ArbiterHandle};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

pub use self::restarts::RestartPolicy;
use self::restarts::{RestartRecord, Verdict};
use crate::actors::gpu_device::{DeviceConfig, DeviceHandle, DevicePeers, DeviceSpawner};
use crate::actors::scheduler::{Scheduler, SchedulerConfig};
use crate::actors::synthesizer::pool::WorkerPool;
use crate::actors::synthesizer::{Synthesizer, SynthesizerConfig};
use crate::actors::{ArbiterLayout, Pace};
use crate::error::ErrorClass;
use crate::ids::DeviceId;
use crate::journal::OpenJournal;
use crate::messages::events::EventSink;
use crate::messages::job::{CancelJob, FindJob, SubmitJob};
use crate::messages::journal::AttachJob;
use crate::messages::lifecycle::{
    ActorDied, ActorName, DeviceLost, DeviceReady, DeviceWithdrawn, Drain, Drained, EndJobs, Reconfigure,
    Shutdown, StopActor, SynthesizerWithdrawn, Withdrawal,
};
use crate::messages::srs::{EvictCircuit, PreloadCircuit};
use crate::messages::status::{EngineStatus, StatusBoard};
use crate::messages::synthesis::{DecodeRequest, SynthesizerPeers, SynthesizerReady};

/// What the Supervisor starts, and its limits.
#[derive(Clone)]
pub struct SupervisorConfig {
    pub devices: Vec<Arc<dyn DeviceSpawner>>,
    pub device: DeviceConfig,
    pub layout: ArbiterLayout,
    pub scheduler: SchedulerConfig,
    pub synthesizer: SynthesizerConfig,
    pub restarts: RestartPolicy,
    /// A device that has not opened by then is reported; it still counts when it does.
    pub device_start_limit: Duration,
    pub pace: Pace,
    pub events: EventSink,
}

/// What the engine's handles may say, and read.
#[derive(Clone)]
pub struct EngineLinks {
    pub submit: Recipient<SubmitJob>,
    pub cancel: Recipient<CancelJob>,
    pub preload: Recipient<PreloadCircuit>,
    pub evict: Recipient<EvictCircuit>,
    pub attach: Recipient<AttachJob>,
    pub find: Recipient<FindJob>,
    pub reconfigure: Recipient<Reconfigure>,
    /// Changes when the Synthesizer is rebuilt.
    pub decode: watch::Receiver<Recipient<DecodeRequest>>,
    pub shutdown: Recipient<Shutdown>,
    pub status: watch::Receiver<Arc<EngineStatus>>,
}

enum SlotState {
    Starting { since: Duration, reported: bool },
    Ready,
    Quarantined { until: Duration },
    GivenUp,
}

struct DeviceSlot {
    spawner: Arc<dyn DeviceSpawner>,
    arbiter: ArbiterHandle,
    handle: Option<DeviceHandle>,
    /// How many actors were started for it: the number of the last one.
    life: u64,
    state: SlotState,
    record: RestartRecord,
}

/// Whether there is a Synthesizer, and when there will be.
enum SynthesizerState {
    Up,
    Quarantined { until: Duration },
    GivenUp,
}

/// How a device's actor came to its end.
struct DeviceEnd {
    reason: String,
    /// The next one would end in the same way.
    is_permanent: bool,
}

enum Phase {
    Running,
    /// The Scheduler finishes its jobs.
    DrainingJobs,
    /// Devices finish what was cancelled under them.
    DrainingDevices {
        until: Duration,
    },
}

/// See the module.
pub struct Supervisor {
    config: SupervisorConfig,
    begun: Instant,
    pool: WorkerPool,
    links: Option<oneshot::Sender<EngineLinks>>,
    stopped: Option<oneshot::Sender<Vec<Arbiter>>>,
    arbiters: Vec<Arbiter>,
    slots: Vec<DeviceSlot>,
    board: StatusBoard,
    /// For the Scheduler.
    journal: Option<OpenJournal>,
    scheduler: Option<Addr<Scheduler>>,
    synthesizer: Option<Addr<Synthesizer>>,
    synthesizer_state: SynthesizerState,
    synthesizer_record: RestartRecord,
    decode: Option<watch::Sender<Recipient<DecodeRequest>>>,
    phase: Phase,
}

/// How long devices may take to let go of cancelled work, before they are stopped all the same.
const DEVICE_DRAIN_LIMIT: Duration = Duration::from_secs(10);

impl Supervisor {
    /// `links` gets the addresses once everything is started; `stopped` gets the arbiters, which the receiver is to
    /// stop and join, once everything has drained.
    pub fn new(
        config: SupervisorConfig,
        pool: WorkerPool,
        links: oneshot::Sender<EngineLinks>,
        stopped: oneshot::Sender<Vec<Arbiter>>,
    ) -> Self {
        Self {
            begun: Instant::now(),
            pool,
            links: Some(links),
            stopped: Some(stopped),
            arbiters: Vec::new(),
            slots: Vec::new(),
            board: StatusBoard::default(),
            journal: None,
            scheduler: None,
            synthesizer: None,
            synthesizer_state: SynthesizerState::Up,
            synthesizer_record: RestartRecord::new(config.restarts),
            decode: None,
            phase: Phase::Running,
            config,
        }
    }

    /// With a journal for the Scheduler.
    pub fn with_journal(mut self, journal: Option<OpenJournal>) -> Self {
        self.journal = journal;
        self
    }

    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    fn scheduler(&self) -> &Addr<Scheduler> {
        self.scheduler.as_ref().expect("started with this actor")
    }

    fn start_scheduler(&mut self, ctx: &Context<Self>) -> watch::Receiver<Arc<EngineStatus>> {
        let (status, reader) = watch::channel(Arc::new(EngineStatus::default()));
        let drained = ctx.address().recipient();
        let board = StatusBoard::clone(&self.board);
        let mut scheduler = Scheduler::new(self.config.scheduler.clone(), drained, status, board);
        if let Some(journal) = self.journal.take() {
            scheduler = scheduler.with_journal(journal);
        }
        self.scheduler = Some(scheduler.start());
        reader
    }

    /// The first one, or the successor of one that died.
    fn start_synthesizer(&mut self) -> Addr<Synthesizer> {
        let scheduler = self.scheduler().clone();
        let peers = SynthesizerPeers {
            progress: scheduler.clone().recipient(),
            measured: scheduler.clone().recipient(),
            prepared: scheduler.clone().recipient(),
            circuit_failed: scheduler.clone().recipient(),
            synthesized: scheduler.clone().recipient(),
            synthesis_failed: scheduler.clone().recipient(),
            verified: scheduler.clone().recipient(),
            key_checked: scheduler.clone().recipient(),
            job_verified: scheduler.clone().recipient(),
        };
        let synthesizer = Synthesizer::new(self.config.synthesizer.clone(), self.pool.clone(), peers).start();
        scheduler.do_send(SynthesizerReady { address: Synthesizer::address(&synthesizer) });
        self.synthesizer = Some(synthesizer.clone());
        synthesizer
    }

    fn start_devices(&mut self, ctx: &Context<Self>) {
        for spawner in self.config.devices.clone() {
            let arbiter = match self.config.layout {
                ArbiterLayout::SingleThread => Arbiter::current(),
                ArbiterLayout::ThreadPerDevice => {
                    let arbiter = Arbiter::new();
                    let handle = arbiter.handle();
                    self.arbiters.push(arbiter);
                    handle
                }
            };
            let state = SlotState::Starting { since: self.now(), reported: false };
            let record = RestartRecord::new(self.config.restarts);
            self.slots.push(DeviceSlot { spawner, arbiter, handle: None, life: 0, state, record });
            self.spawn_device(self.slots.len() - 1, ctx);
        }
    }

    fn spawn_device(&mut self, index: usize, ctx: &Context<Self>) {
        let now = self.now();
        let scheduler = self.scheduler().clone();
        self.slots[index].life += 1;
        let peers = DevicePeers {
            life: self.slots[index].life,
            proved: scheduler.clone().recipient(),
            failed: scheduler.clone().recipient(),
            stage_finished: scheduler.clone().recipient(),
            residency_changed: scheduler.clone().recipient(),
            ready: vec![scheduler.clone().recipient(), ctx.address().recipient()],
            lost: vec![scheduler.recipient(), ctx.address().recipient()],
            drained: ctx.address().recipient(),
            board: StatusBoard::clone(&self.board),
            events: self.config.events.clone(),
        };
        let config = self.config.device.clone();
        let slot = &mut self.slots[index];
        slot.handle = Some(slot.spawner.start(&slot.arbiter, config, peers));
        slot.state = SlotState::Starting { since: now, reported: false };
    }

    /// The slot whose present actor this is. One that was found dead before its last words came has none any more:
    /// its end must not be counted twice, nor against its successor.
    fn slot_of(&self, device: &DeviceId, life: u64) -> Option<usize> {
        self.slots.iter().position(|slot| {
            slot.spawner.device_id() == *device && slot.life == life && slot.handle.is_some()
        })
    }

    /// A device is no more. Builds it again, now, later or never.
    fn device_ended(&mut self, index: usize, end: DeviceEnd, ctx: &Context<Self>) {
        let now = self.now();
        let slot = &mut self.slots[index];
        let device = slot.spawner.device_id();
        slot.handle = None;
        if !matches!(self.phase, Phase::Running | Phase::DrainingJobs) {
            return;
        }
        let (DeviceEnd { reason, is_permanent }, life) = (end, slot.life);
        let verdict = if is_permanent { Verdict::GiveUp } else { slot.record.lost(now) };
        match verdict {
            Verdict::Restart => {
                tracing::warn!(%device, %reason, "device is rebuilt");
                self.spawn_device(index, ctx);
            }
            Verdict::Quarantine { until } => {
                tracing::error!(%device, %reason, "device is quarantined");
                slot.state = SlotState::Quarantined { until };
                let cause = Withdrawal::Quarantined;
                self.scheduler().do_send(DeviceWithdrawn { device, life, cause, reason });
            }
            Verdict::GiveUp => {
                tracing::error!(%device, %reason, "device is given up");
                slot.state = SlotState::GivenUp;
                let cause = Withdrawal::GivenUp;
                self.scheduler().do_send(DeviceWithdrawn { device, life, cause, reason });
            }
        }
    }

    fn tick(&mut self, ctx: &mut Context<Self>) {
        if let Phase::DrainingDevices { until } = self.phase {
            let all_stopped =
                self.slots.iter().all(|slot| slot.handle.as_ref().is_none_or(|h| !h.connected()));
            if all_stopped || self.now() >= until {
                self.stop(ctx);
            }
            return;
        }
        if !self.scheduler().connected() {
            tracing::error!("the scheduler died: the engine stops");
            self.drain_devices();
            return;
        }
        self.watch_synthesizer();
        for index in 0..self.slots.len() {
            self.watch_device(index, ctx);
        }
    }

    fn watch_synthesizer(&mut self) {
        match self.synthesizer_state {
            SynthesizerState::Up => {
                if self.synthesizer.as_ref().is_none_or(|synthesizer| !synthesizer.connected()) {
                    self.synthesizer_died();
                }
            }
            SynthesizerState::Quarantined { until } if self.now() >= until => self.rebuild_synthesizer(),
            SynthesizerState::Quarantined { .. } | SynthesizerState::GivenUp => {}
        }
    }

    /// Builds it again, now, later or never.
    fn synthesizer_died(&mut self) {
        self.scheduler().do_send(ActorDied { actor: ActorName::Synthesizer });
        let RestartPolicy { max_restarts, window, .. } = self.config.restarts;
        let reason = format!("it died more than {max_restarts} times within {} s", window.as_secs());
        let is_permanent = match self.synthesizer_record.lost(self.now()) {
            Verdict::Restart => {
                tracing::error!("the synthesizer died and is rebuilt");
                return self.rebuild_synthesizer();
            }
            Verdict::Quarantine { until } => {
                self.synthesizer_state = SynthesizerState::Quarantined { until };
                false
            }
            Verdict::GiveUp => {
                self.synthesizer_state = SynthesizerState::GivenUp;
                true
            }
        };
        tracing::error!(%reason, is_permanent, "the synthesizer is out of service");
        self.scheduler().do_send(SynthesizerWithdrawn { is_permanent, reason });
    }

    fn rebuild_synthesizer(&mut self) {
        self.synthesizer_state = SynthesizerState::Up;
        let synthesizer = self.start_synthesizer();
        if let Some(decode) = &self.decode {
            decode.send_replace(synthesizer.recipient());
        }
    }

    fn watch_device(&mut self, index: usize, ctx: &Context<Self>) {
        let now = self.now();
        let limit = self.config.device_start_limit;
        let slot = &mut self.slots[index];
        let device = slot.spawner.device_id();
        if slot.handle.as_ref().is_some_and(|handle| !handle.connected()) {
            let actor = ActorName::Device(device);
            let end = DeviceEnd { reason: format!("{actor} died"), is_permanent: false };
            self.scheduler().do_send(ActorDied { actor });
            self.device_ended(index, end, ctx);
            return;
        }
        match &mut slot.state {
            SlotState::Quarantined { until } if now >= *until => self.spawn_device(index, ctx),
            SlotState::Starting { since, reported: reported @ false }
                if now.saturating_sub(*since) > limit =>
            {
                *reported = true;
                let reason = format!("did not open within {} ms", limit.as_millis());
                tracing::error!(%device, %reason);
                let (life, cause) = (slot.life, Withdrawal::NotOpen);
                self.scheduler().do_send(DeviceWithdrawn { device, life, cause, reason });
            }
            _ => {}
        }
    }

    fn drain_devices(&mut self) {
        if matches!(self.phase, Phase::DrainingDevices { .. }) {
            return;
        }
        self.phase = Phase::DrainingDevices { until: self.now() + DEVICE_DRAIN_LIMIT };
        for handle in self.slots.iter().filter_map(|slot| slot.handle.as_ref()) {
            handle.drain.do_send(Drain);
        }
    }

    /// Everything has drained: hands the arbiters over and stops.
    fn stop(&mut self, ctx: &mut Context<Self>) {
        self.scheduler().do_send(StopActor);
        if let Some(synthesizer) = &self.synthesizer {
            synthesizer.do_send(StopActor);
        }
        for handle in self.slots.iter().filter_map(|slot| slot.handle.as_ref()) {
            // To one that has drained this is nothing.
            handle.stop.do_send(StopActor);
        }
        if let Some(stopped) = self.stopped.take() {
            // Nobody there to join them: then the engine's thread is gone already, and with it this system.
            let _ = stopped.send(std::mem::take(&mut self.arbiters));
        }
        ctx.stop();
    }
}

impl Actor for Supervisor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let status = self.start_scheduler(ctx);
        let synthesizer = self.start_synthesizer();
        self.start_devices(ctx);
        let (decode, decode_reader) = watch::channel(synthesizer.recipient());
        self.decode = Some(decode);
        let links = EngineLinks {
            submit: self.scheduler().clone().recipient(),
            cancel: self.scheduler().clone().recipient(),
            preload: self.scheduler().clone().recipient(),
            evict: self.scheduler().clone().recipient(),
            attach: self.scheduler().clone().recipient(),
            find: self.scheduler().clone().recipient(),
            reconfigure: self.scheduler().clone().recipient(),
            decode: decode_reader,
            shutdown: ctx.address().recipient(),
            status,
        };
        let nobody = self.links.take().is_some_and(|reply| reply.send(links).is_err());
        if nobody {
            ctx.notify(Shutdown { drain: Duration::ZERO });
        }
        ctx.run_interval(self.config.pace.supervisor_tick, Self::tick);
    }
}

impl Handler<DeviceReady> for Supervisor {
    type Result = ();

    fn handle(&mut self, ready: DeviceReady, _: &mut Self::Context) {
        if let Some(index) = self.slot_of(&ready.info.id, ready.life) {
            self.slots[index].state = SlotState::Ready;
        }
    }
}

impl Handler<DeviceLost> for Supervisor {
    type Result = ();

    fn handle(&mut self, lost: DeviceLost, ctx: &mut Self::Context) {
        if let Some(index) = self.slot_of(&lost.device, lost.life) {
            // Settings that it cannot work with do not get better by trying again.
            let is_permanent = lost.error.class() == ErrorClass::Caller;
            self.device_ended(index, DeviceEnd { reason: lost.error.to_string(), is_permanent }, ctx);
        }
    }
}

impl Handler<Shutdown> for Supervisor {
    type Result = ();

    fn handle(&mut self, shutdown: Shutdown, ctx: &mut Self::Context) {
        if let Phase::DrainingDevices { .. } = self.phase {
            return;
        }
        if let Phase::Running = self.phase {
            self.phase = Phase::DrainingJobs;
            self.scheduler().do_send(Drain);
        }
        if shutdown.drain.is_zero() {
            self.scheduler().do_send(EndJobs);
        } else {
            ctx.run_later(shutdown.drain, |actor, _| actor.scheduler().do_send(EndJobs));
        }
    }
}

impl Handler<Drained> for Supervisor {
    type Result = ();

    fn handle(&mut self, drained: Drained, ctx: &mut Self::Context) {
        if drained.actor == ActorName::Scheduler {
            self.drain_devices();
        }
        self.tick(ctx);
    }
}
