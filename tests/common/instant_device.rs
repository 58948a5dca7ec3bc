//! A device that is done at once, and its answers right: what is left of a partition's time is the engine's own.

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, ActorContext, Addr, ArbiterHandle, AsyncContext, Context, Handler};
use cuzk::actors::gpu_device::{DeviceConfig, DeviceHandle, DevicePeers, DeviceSpawner};
use cuzk::backend::sim::token_proof;
use cuzk::backend::{DeviceInfo, MemoryModel};
use cuzk::error::DeviceError;
use cuzk::ids::DeviceId;
use cuzk::messages::device::{EvictSrs, PartitionProved, ProvePartition, StageTimings};
use cuzk::messages::lifecycle::{
    ActorName, DeviceAddress, DeviceMemory, DeviceReady, Drain, Drained, StopActor,
};
use cuzk::messages::srs::{Eviction, PreloadSrs, Residence, SrsPreloaded};
use tokio::sync::watch;

/// Starts [`InstantDevice`]s, which report ready once the gate is open.
pub struct InstantSpawner {
    index: u32,
    gate: watch::Receiver<bool>,
}

struct InstantDevice {
    id: DeviceId,
    peers: DevicePeers,
    gate: watch::Receiver<bool>,
}

fn addressed(address: &Addr<InstantDevice>) -> DeviceAddress {
    DeviceAddress {
        prove: address.clone().recipient(),
        preload: address.clone().recipient(),
        evict: address.clone().recipient(),
    }
}

impl DeviceSpawner for InstantSpawner {
    fn device_id(&self) -> DeviceId {
        DeviceId::new(format!("instant-{}", self.index))
    }

    fn backend(&self) -> &'static str {
        "sim"
    }

    fn start(&self, arbiter: &ArbiterHandle, _: DeviceConfig, peers: DevicePeers) -> DeviceHandle {
        let id = self.device_id();
        let device = InstantDevice { id: id.clone(), peers, gate: self.gate.clone() };
        let address = InstantDevice::start_in_arbiter(arbiter, move |_| device);
        DeviceHandle {
            id,
            address: addressed(&address),
            drain: address.clone().recipient(),
            stop: address.recipient(),
        }
    }
}

/// The devices as an engine takes them, and their gate: `true` opens it.
pub fn instant_devices(count: u32) -> (watch::Sender<bool>, Vec<Arc<dyn DeviceSpawner>>) {
    let (open, gate) = watch::channel(false);
    let spawner = |index| Arc::new(InstantSpawner { index, gate: gate.clone() }) as Arc<dyn DeviceSpawner>;
    (open, (0..count).map(spawner).collect())
}

impl Actor for InstantDevice {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let ready = DeviceReady {
            info: DeviceInfo {
                id: self.id.clone(),
                ordinal: 0,
                name: "instant".into(),
                backend: "sim",
                memory_total_bytes: 1 << 40,
            },
            life: self.peers.life,
            num_lanes: 2,
            num_critical_lanes: 1,
            memory: DeviceMemory {
                normal_limit_bytes: 1 << 40,
                critical_limit_bytes: 1 << 40,
                model: MemoryModel::Dedicated,
            },
            checks_rows: false,
            address: addressed(&ctx.address()),
        };
        let (peers, mut gate) = (self.peers.ready.clone(), self.gate.clone());
        actix_rt::spawn(async move {
            // A gate that is dropped closed stays closed.
            if gate.wait_for(|open| *open).await.is_ok() {
                peers.iter().for_each(|peer| peer.do_send(ready.clone()));
            }
        });
    }
}

impl Handler<ProvePartition> for InstantDevice {
    type Result = ();

    fn handle(&mut self, message: ProvePartition, _: &mut Self::Context) {
        let at = message.work.at.clone();
        let partition = at.partition.expect("a partition is proved");
        self.peers.proved.do_send(PartitionProved {
            proof: token_proof(at.job, partition),
            at,
            device: self.id.clone(),
            timings: StageTimings::default(),
            waited_for_others: Duration::ZERO,
            memory_peak_bytes: 0,
            memory_planned_bytes: 0,
        });
    }
}

impl Handler<PreloadSrs> for InstantDevice {
    type Result = ();

    fn handle(&mut self, message: PreloadSrs, _: &mut Self::Context) {
        let PreloadSrs { work, answer, .. } = message;
        let (device, life, residence) = (self.id.clone(), self.peers.life, Residence::Streamed);
        answer.do_send(SrsPreloaded { device, life, circuit: work.circuit, residence });
    }
}

impl Handler<EvictSrs> for InstantDevice {
    type Result = Result<Eviction, DeviceError>;

    fn handle(&mut self, _: EvictSrs, _: &mut Self::Context) -> Self::Result {
        Ok(Eviction::Absent)
    }
}

impl Handler<Drain> for InstantDevice {
    type Result = ();

    fn handle(&mut self, _: Drain, ctx: &mut Self::Context) {
        self.peers.drained.do_send(Drained { actor: ActorName::Device(self.id.clone()) });
        ctx.stop();
    }
}

impl Handler<StopActor> for InstantDevice {
    type Result = ();

    fn handle(&mut self, _: StopActor, ctx: &mut Self::Context) {
        ctx.stop();
    }
}
