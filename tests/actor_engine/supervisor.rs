//! The Supervisor: its devices are the test, which says what they say.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix::{Actor, ActorContext, Arbiter, ArbiterHandle, Context, Handler};
use cuzk::actors::gpu_device::{DeviceConfig, DeviceHandle, DevicePeers, DeviceSpawner};
use cuzk::actors::scheduler::SchedulerConfig;
use cuzk::actors::supervisor::{EngineLinks, RestartPolicy, Supervisor, SupervisorConfig};
use cuzk::actors::synthesizer::pool::WorkerPool;
use cuzk::actors::synthesizer::SynthesizerConfig;
use cuzk::actors::{ArbiterLayout, Pace};
use cuzk::backend::{DeviceInfo, MemoryModel};
use cuzk::error::DeviceError;
use cuzk::ids::DeviceId;
use cuzk::messages::device::{EvictSrs, ProvePartition};
use cuzk::messages::events::EventSink;
use cuzk::messages::lifecycle::{
    ActorName, DeviceAddress, DeviceLost, DeviceMemory, DeviceReady, Drain, Drained, Shutdown, StopActor,
};
use cuzk::messages::srs::{Eviction, PreloadSrs};
use cuzk::policy::batch::BatchPolicy;
use cuzk::policy::health::HealthPolicy;
use cuzk::policy::queue::QueuePolicy;
use cuzk::policy::role::Role;
use tokio::sync::mpsc::{unbounded_channel, UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;

use crate::common::{on_paused_arbiter, stopped};

const NAME: &str = "fake-0";

/// A device actor that only drains and stops; the test speaks for it.
struct FakeDevice {
    peers: DevicePeers,
}

impl Actor for FakeDevice {
    type Context = Context<Self>;
}

impl Handler<ProvePartition> for FakeDevice {
    type Result = ();

    fn handle(&mut self, _: ProvePartition, _: &mut Context<Self>) {}
}

impl Handler<EvictSrs> for FakeDevice {
    type Result = Result<Eviction, DeviceError>;

    fn handle(&mut self, _: EvictSrs, _: &mut Context<Self>) -> Self::Result {
        Ok(Eviction::Absent)
    }
}

impl Handler<PreloadSrs> for FakeDevice {
    type Result = ();

    fn handle(&mut self, _: PreloadSrs, _: &mut Context<Self>) {}
}

impl Handler<Drain> for FakeDevice {
    type Result = ();

    fn handle(&mut self, _: Drain, ctx: &mut Context<Self>) {
        self.peers.drained.do_send(Drained { actor: ActorName::Device(DeviceId::new(NAME)) });
        ctx.stop();
    }
}

impl Handler<StopActor> for FakeDevice {
    type Result = ();

    fn handle(&mut self, _: StopActor, ctx: &mut Context<Self>) {
        ctx.stop();
    }
}

/// A device that was started: what it may say, and where it is told.
struct Started {
    peers: DevicePeers,
    handle: DeviceHandle,
}

impl Started {
    fn say_ready(&self) {
        let ready = DeviceReady {
            info: DeviceInfo {
                id: DeviceId::new(NAME),
                ordinal: 0,
                name: "fake".into(),
                backend: "fake",
                memory_total_bytes: 1 << 30,
            },
            life: self.peers.life,
            num_lanes: 1,
            num_critical_lanes: 0,
            memory: DeviceMemory {
                normal_limit_bytes: 1 << 30,
                critical_limit_bytes: 1 << 30,
                model: MemoryModel::Dedicated,
            },
            checks_rows: false,
            address: self.handle.address.clone(),
        };
        self.peers.ready.iter().for_each(|peer| peer.do_send(ready.clone()));
    }

    fn say_lost(&self, error: &DeviceError) {
        let lost = DeviceLost { device: DeviceId::new(NAME), life: self.peers.life, error: error.clone() };
        self.peers.lost.iter().for_each(|peer| peer.do_send(lost.clone()));
    }
}

struct FakeSpawner {
    started: Mutex<UnboundedSender<Started>>,
}

impl DeviceSpawner for FakeSpawner {
    fn device_id(&self) -> DeviceId {
        DeviceId::new(NAME)
    }

    fn backend(&self) -> &'static str {
        "fake"
    }

    fn start(&self, _: &ArbiterHandle, _: DeviceConfig, peers: DevicePeers) -> DeviceHandle {
        let device = FakeDevice { peers: peers.clone() }.start();
        let handle = DeviceHandle {
            id: self.device_id(),
            address: DeviceAddress {
                prove: device.clone().recipient(),
                evict: device.clone().recipient(),
                preload: device.clone().recipient(),
            },
            drain: device.clone().recipient(),
            stop: device.recipient(),
        };
        let started = Started { peers, handle: handle.clone() };
        self.started.lock().unwrap().send(started).expect("the test listens");
        handle
    }
}

struct Subject {
    links: EngineLinks,
    started: UnboundedReceiver<Started>,
    stopped: oneshot::Receiver<Vec<Arbiter>>,
}

impl Subject {
    async fn start() -> Self {
        let (sender, started) = unbounded_channel();
        let config = SupervisorConfig {
            devices: vec![Arc::new(FakeSpawner { started: Mutex::new(sender) })],
            device: DeviceConfig::default(),
            layout: ArbiterLayout::SingleThread,
            scheduler: SchedulerConfig {
                devices: vec![(DeviceId::new(NAME), Role::General)],
                max_queued_jobs: 4,
                max_attempts: 3,
                retained_results: 4,
                host_memory_budget_bytes: 1 << 30,
                max_synthesizing: 1,
                queue: QueuePolicy {
                    aging_step: Duration::from_secs(300),
                    affinity_limit: Duration::from_secs(30),
                },
                batches: BatchPolicy { max_partitions: 4, max_time: Duration::from_secs(30) },
                warmup: Vec::new(),
                idle_limit: None,
                journal_limit: Duration::from_secs(30),
                health: HealthPolicy {
                    window: Duration::from_secs(60),
                    quarantine_points: 4,
                    quarantine: Duration::from_secs(60),
                },
                pace: Pace::default(),
                events: EventSink::off(),
            },
            synthesizer: SynthesizerConfig {
                params_dir: "params".into(),
                shape_cache_dir: None,
                verdict_dir: None,
                fold_limit_bytes: Some(u64::MAX),
                decoders: Vec::new(),
                max_waiting_decodes: 4,
            },
            restarts: RestartPolicy {
                max_restarts: 2,
                window: Duration::from_secs(60),
                quarantine: Duration::from_secs(60),
                max_quarantines: 1,
            },
            device_start_limit: Duration::from_secs(5),
            pace: Pace::default(),
            events: EventSink::off(),
        };
        let (pool, _) = WorkerPool::start(0).expect("no thread is needed");
        let (links_sender, links) = oneshot::channel();
        let (stopped_sender, stopped) = oneshot::channel();
        Supervisor::new(config, pool, links_sender, stopped_sender).start();
        Self { links: links.await.expect("it starts"), started, stopped }
    }

    async fn next_started(&mut self) -> Started {
        tokio::time::timeout(Duration::from_secs(3600), self.started.recv())
            .await
            .expect("it is started again")
            .expect("the Supervisor lives")
    }

    /// Nothing is started within the time.
    async fn none_started(&mut self, time: Duration) {
        if tokio::time::timeout(time, self.started.recv()).await.is_ok() {
            panic!("another actor was started");
        }
    }

    /// Waits until the Scheduler has said so of the device.
    async fn state(&self, wanted: &str) {
        let mut status = self.links.status.clone();
        let reached = status.wait_for(|status| status.devices.iter().any(|device| device.state == wanted));
        let waited = tokio::time::timeout(Duration::from_secs(3600), reached).await.map(|_| ());
        assert!(waited.is_ok(), "the device never was {wanted}: {:?}", self.links.status.borrow().devices);
    }

    async fn end(self) {
        self.links.shutdown.do_send(Shutdown { drain: Duration::ZERO });
        let arbiters = self.stopped.await.expect("it hands its arbiters over");
        assert!(arbiters.is_empty(), "all were on this one");
        stopped(&self.links.submit).await;
        stopped(&self.links.shutdown).await;
        let decode = self.links.decode.borrow().clone();
        stopped(&decode).await;
    }
}

fn gone() -> DeviceError {
    DeviceError::Open { device: NAME.into(), what: "unplugged".into() }
}

#[test]
fn a_lost_device_is_started_anew_and_what_its_first_life_says_later_counts_no_more() {
    on_paused_arbiter(async {
        let mut subject = Subject::start().await;
        let first = subject.next_started().await;
        first.say_ready();
        subject.state("ready").await;
        first.say_lost(&gone());
        let second = subject.next_started().await;
        assert_eq!((first.peers.life, second.peers.life), (1, 2));
        second.say_ready();
        subject.state("ready").await;
        first.say_lost(&gone());
        first.say_ready();
        subject.none_started(Duration::from_secs(10)).await;
        let status = subject.links.status.borrow().clone();
        assert_eq!((status.devices[0].state.as_str(), status.devices[0].restarts), ("ready", 1));
        subject.end().await;
    });
}

#[test]
fn a_device_that_dies_without_a_word_is_started_anew() {
    on_paused_arbiter(async {
        let mut subject = Subject::start().await;
        let first = subject.next_started().await;
        first.say_ready();
        first.handle.stop.do_send(StopActor);
        let second = subject.next_started().await;
        second.say_ready();
        subject.state("ready").await;
        assert_eq!(subject.links.status.borrow().devices[0].health, "degraded");
        subject.end().await;
    });
}

#[test]
fn settings_that_a_device_cannot_work_with_give_it_up_at_once() {
    on_paused_arbiter(async {
        let mut subject = Subject::start().await;
        let first = subject.next_started().await;
        let what = "the reserve is larger than the budget".to_owned();
        first.say_lost(&DeviceError::Settings { device: DeviceId::new(NAME), what });
        subject.state("gone").await;
        subject.none_started(Duration::from_secs(600)).await;
        let status = subject.links.status.borrow().clone();
        assert!(status.reasons.iter().any(|reason| reason.contains("larger than the budget")), "{status:?}");
        subject.end().await;
    });
}

#[test]
fn a_device_that_opens_late_is_used_all_the_same() {
    on_paused_arbiter(async {
        let mut subject = Subject::start().await;
        let first = subject.next_started().await;
        subject.state("withdrawn").await;
        subject.none_started(Duration::from_secs(60)).await;
        first.say_ready();
        subject.state("ready").await;
        subject.none_started(Duration::from_secs(60)).await;
        subject.end().await;
    });
}

#[test]
fn too_many_losses_lead_to_quarantine_and_then_to_the_end() {
    on_paused_arbiter(async {
        let mut subject = Subject::start().await;
        for _ in 0..3 {
            subject.next_started().await.say_lost(&gone());
        }
        subject.none_started(Duration::from_secs(59)).await;
        subject.next_started().await.say_lost(&gone());
        subject.state("gone").await;
        subject.none_started(Duration::from_secs(600)).await;
        subject.end().await;
    });
}
