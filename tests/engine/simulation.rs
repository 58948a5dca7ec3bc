//! An engine on simulated devices, on one arbiter with a paused clock.

use std::future::Future;
use std::time::Duration;

use cuzk::backend::sim::SimFleet;
use cuzk::engine::{DeviceSpec, Engine, EngineConfig, JobEvents, JobHandle};
use cuzk::ids::DeviceId;
use cuzk::messages::job::{JobEvent, JobResult, Priority, ProofOutcome, ProofRequest};

use crate::common;

/// Stages of a partition whose row values came with its witness.
pub const NUM_STAGES: u32 = 8;

/// An engine on the devices that `fleet` describes (see `SimFleet`), synthesis inside its actor.
pub fn config(fleet: &str) -> EngineConfig {
    let fleet: SimFleet = fleet.parse().unwrap();
    EngineConfig {
        devices: fleet.devices().iter().cloned().map(Box::new).map(DeviceSpec::Sim).collect(),
        synthesis_threads: 0,
        ..EngineConfig::default()
    }
}

/// Runs `test` with an engine on one arbiter with a paused clock; at the end every actor must have stopped.
pub fn simulate<F: Future>(config: EngineConfig, test: impl FnOnce(Engine) -> F) -> F::Output {
    println!("devices: {:?}", config.devices);
    common::on_paused_arbiter(async move {
        let engine = Engine::start_on_current_arbiter(config).await.unwrap();
        let output = test(engine.clone()).await;
        engine.shutdown(Duration::from_secs(3600)).await;
        output
    })
}

pub async fn prove(engine: &Engine, request: ProofRequest) -> JobResult {
    engine.submit(request).await?.wait().await
}

pub async fn submit_all(engine: &Engine, requests: impl IntoIterator<Item = ProofRequest>) -> Vec<JobHandle> {
    let mut jobs = Vec::new();
    for request in requests {
        jobs.push(engine.submit(request).await.unwrap());
    }
    jobs
}

pub fn with_priority(priority: Priority, request: ProofRequest) -> ProofRequest {
    ProofRequest { priority: Some(priority), ..request }
}

/// The next event that `wanted` picks something from.
pub async fn find<T>(events: &mut JobEvents, wanted: impl Fn(&JobEvent) -> Option<T>) -> T {
    loop {
        let event = events.next().await.expect("the job ended without this event");
        if let Some(found) = wanted(&event) {
            return found;
        }
    }
}

pub fn placed(event: &JobEvent) -> Option<DeviceId> {
    match event {
        JobEvent::Placed { device, .. } => Some(device.clone()),
        _ => None,
    }
}

pub fn device(index: u32) -> DeviceId {
    DeviceId::new(format!("sim-{index}"))
}

pub fn num_on(outcome: &ProofOutcome, index: u32) -> usize {
    outcome.devices.iter().filter(|id| **id == device(index)).count()
}

pub fn health_of(engine: &Engine, index: usize) -> String {
    engine.status().devices[index].health.clone()
}
