//! A device actor with recording peers around it.

use std::sync::Arc;
use std::time::Duration;

use actix::{Arbiter, Recipient};
use cuzk::actors::gpu_device::{DeviceConfig, DeviceHandle, DevicePeers, DeviceSpawner};
use cuzk::backend::{PartitionWork, Stage};
use cuzk::ids::CircuitId;
use cuzk::messages::device::{
    CancelFlag, EvictSrs, LaneCredit, LaneFreed, LaneKind, PartitionFailed, PartitionProved, ProvePartition,
    StageFinished,
};
use cuzk::messages::events::EventSink;
use cuzk::messages::job::Priority;
use cuzk::messages::lifecycle::{DeviceLost, DeviceReady, Drain, Drained, ResidencyChanged};
use cuzk::messages::srs::Eviction;
use cuzk::messages::status::{DeviceStatus, StatusBoard};

use super::probe::{probe_all, ProbeHandle};

/// Everything a device says, in the order it says it.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a test holds a few dozen of them")]
pub enum Fact {
    Ready(DeviceReady),
    Proved(PartitionProved),
    Failed(PartitionFailed),
    Stage(StageFinished),
    Residency(ResidencyChanged),
    Lost(DeviceLost),
    Drained(Drained),
    Freed(LaneFreed),
}

macro_rules! fact_from {
    ($($variant:ident($message:ty)),* $(,)?) => {
        $(impl From<$message> for Fact {
            fn from(message: $message) -> Self {
                Fact::$variant(message)
            }
        })*
    };
}

fact_from! {
    Ready(DeviceReady),
    Proved(PartitionProved),
    Failed(PartitionFailed),
    Stage(StageFinished),
    Residency(ResidencyChanged),
    Lost(DeviceLost),
    Drained(Drained),
    Freed(LaneFreed),
}

impl Fact {
    /// Short and comparable: `proved 1/0`, `failed 1/0`, `stage 1/0 sum_h`, `freed`, ….
    pub fn label(&self) -> String {
        let name = |at: &cuzk::ids::WorkRef| {
            format!("{}/{}", at.job.0, at.partition.map_or(-1, |partition| i64::from(partition.0)))
        };
        match self {
            Fact::Ready(_) => "ready".to_owned(),
            Fact::Proved(proved) => format!("proved {}", name(&proved.at)),
            Fact::Failed(failed) => format!("failed {}", name(&failed.at)),
            Fact::Stage(stage) => format!("stage {} {}", name(&stage.at), stage.stage),
            Fact::Residency(change) => {
                format!("{} {}", if change.resident { "resident" } else { "evicted" }, change.circuit)
            }
            Fact::Lost(_) => "lost".to_owned(),
            Fact::Drained(_) => "drained".to_owned(),
            Fact::Freed(_) => "freed".to_owned(),
        }
    }
}

/// Of the only actor that a rig starts.
const LIFE: u64 = 1;

/// A started device actor on the current arbiter.
pub struct DeviceRig {
    pub handle: DeviceHandle,
    pub facts: ProbeHandle<Fact>,
    pub board: StatusBoard,
    freed: Recipient<LaneFreed>,
}

impl DeviceRig {
    pub fn start(spawner: &Arc<dyn DeviceSpawner>, config: DeviceConfig) -> Self {
        let (probe, facts) = probe_all::<Fact>();
        let board = StatusBoard::default();
        let peers = DevicePeers {
            life: LIFE,
            proved: probe.clone().recipient(),
            failed: probe.clone().recipient(),
            stage_finished: probe.clone().recipient(),
            residency_changed: probe.clone().recipient(),
            ready: vec![probe.clone().recipient()],
            lost: vec![probe.clone().recipient()],
            drained: probe.clone().recipient(),
            board: StatusBoard::clone(&board),
            events: EventSink::off(),
        };
        let handle = spawner.start(&Arbiter::current(), config, peers);
        Self { handle, facts, board, freed: probe.recipient() }
    }

    /// Starts it and waits until it reports ready.
    pub async fn ready(spawner: &Arc<dyn DeviceSpawner>, config: DeviceConfig) -> Self {
        let mut rig = Self::start(spawner, config);
        match rig.facts.next().await {
            Fact::Ready(_) => rig,
            other => panic!("expected the device to be ready, got {other:?}"),
        }
    }

    pub fn credit(&self, kind: LaneKind) -> LaneCredit {
        LaneCredit::new(self.handle.id.clone(), LIFE, kind, self.freed.clone())
    }

    /// Sends a NORMAL partition.
    pub fn prove(&self, work: PartitionWork) -> CancelFlag {
        self.prove_as(work, Priority::Normal, LaneKind::Normal)
    }

    pub fn prove_as(&self, work: PartitionWork, priority: Priority, lane: LaneKind) -> CancelFlag {
        let cancel = CancelFlag::default();
        self.send(work, priority, cancel.clone(), self.credit(lane));
        cancel
    }

    pub fn send(&self, work: PartitionWork, priority: Priority, cancel: CancelFlag, credit: LaneCredit) {
        let span = tracing::Span::none();
        self.handle.address.prove.do_send(ProvePartition { work, priority, cancel, credit, span });
    }

    /// What it last wrote of itself, once it has taken in everything that it was told before.
    pub async fn status(&self) -> DeviceStatus {
        let nothing = EvictSrs { circuit: CircuitId::new("nothing"), when_idle: false };
        let answer = self.handle.address.evict.send(nothing).await.expect("the actor lives");
        assert!(matches!(answer, Ok(Eviction::Absent)), "there is no such key");
        self.board.get(&self.handle.id).expect("it writes when it is ready").clone()
    }

    pub async fn proved(&mut self) -> PartitionProved {
        loop {
            match self.facts.next().await {
                Fact::Proved(proved) => return proved,
                Fact::Failed(failed) => panic!("expected a proof, got {failed:?}"),
                Fact::Lost(lost) => panic!("expected a proof, got {lost:?}"),
                _ => {}
            }
        }
    }

    pub async fn failed(&mut self) -> PartitionFailed {
        loop {
            match self.facts.next().await {
                Fact::Failed(failed) => return failed,
                Fact::Proved(proved) => panic!("expected a failure, got {proved:?}"),
                Fact::Lost(lost) => panic!("expected a failure, got {lost:?}"),
                _ => {}
            }
        }
    }

    pub async fn lost(&mut self) -> DeviceLost {
        self.facts
            .find(|fact| match fact {
                Fact::Lost(lost) => Some(lost.clone()),
                _ => None,
            })
            .await
    }

    /// Waits until `stage` of any partition has ended.
    pub async fn stage(&mut self, stage: Stage) {
        loop {
            match self.facts.next().await {
                Fact::Stage(finished) if finished.stage == stage => return,
                _ => {}
            }
        }
    }

    pub async fn freed(&mut self) {
        self.facts.find(|fact| matches!(fact, Fact::Freed(_)).then_some(())).await;
    }

    /// Labels of everything said so far.
    pub fn labels(&mut self) -> Vec<String> {
        self.facts.drain().iter().map(Fact::label).collect()
    }

    /// Drains an idle or busy device and waits until its actor has stopped; everything it still said, as labels.
    pub async fn drain(mut self) -> Vec<String> {
        self.handle.drain.do_send(Drain);
        let mut labels = Vec::new();
        loop {
            let fact = self.facts.next().await;
            labels.push(fact.label());
            if matches!(fact, Fact::Drained(_)) {
                break;
            }
        }
        super::closed(&self.handle.drain, Drain).await;
        labels
    }

    pub async fn quiet_for(&mut self, time: Duration) {
        self.facts.expect_silence(time).await;
    }
}
