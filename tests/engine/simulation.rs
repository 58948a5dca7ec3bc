//! An engine on simulated devices, on one arbiter with a paused clock.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix::ArbiterHandle;
use cuzk::actors::gpu_device::{DeviceConfig, DeviceHandle, DevicePeers, DeviceSpawner, FactorySpawner};
use cuzk::backend::sim::{SimFactory, SimFleet};
use cuzk::engine::{DeviceSpec, Engine, EngineConfig, JobEvents, JobHandle};
use cuzk::error::{EngineError, ScheduleError};
use cuzk::ids::DeviceId;
use cuzk::messages::job::{JobEvent, JobResult, Payload, Priority, ProofOutcome, ProofRequest};
use cuzk::messages::status::EngineStatus;

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
    let mut output = None;
    let slot = &mut output;
    simulate_boxed(config, Box::new(move |engine| Box::pin(async move { *slot = Some(test(engine).await) })));
    output.expect("the engine was driven until the test's end")
}

type Test<'t> = Box<dyn FnOnce(Engine) -> Pin<Box<dyn Future<Output = ()> + 't>> + 't>;

/// Compiled once for all tests.
fn simulate_boxed(config: EngineConfig, test: Test<'_>) {
    println!("devices: {:?}", config.devices);
    common::on_paused_arbiter(async move {
        let handles = Arc::default();
        let devices = config.devices.into_iter().map(|device| watched(device, &handles)).collect();
        let config = EngineConfig { devices, ..config };
        let engine = Engine::start_on_current_arbiter(config).await.unwrap();
        test(engine.clone()).await;
        engine.shutdown(Duration::from_secs(3600)).await;
        all_stopped(&engine, &handles).await;
    });
}

type Handles = Arc<Mutex<Vec<DeviceHandle>>>;

/// Remembers every actor that is started for its device.
struct Watched {
    spawner: Arc<dyn DeviceSpawner>,
    handles: Handles,
}

impl DeviceSpawner for Watched {
    fn device_id(&self) -> DeviceId {
        self.spawner.device_id()
    }

    fn backend(&self) -> &'static str {
        self.spawner.backend()
    }

    fn start(&self, arbiter: &ArbiterHandle, config: DeviceConfig, peers: DevicePeers) -> DeviceHandle {
        let handle = self.spawner.start(arbiter, config, peers);
        self.handles.lock().unwrap().push(handle.clone());
        handle
    }
}

fn watched(device: DeviceSpec, handles: &Handles) -> DeviceSpec {
    let DeviceSpec::Sim(sim) = device else { panic!("simulations are of simulated devices") };
    let spawner = FactorySpawner::boxed(SimFactory::new(*sim));
    DeviceSpec::Spawner(Arc::new(Watched { spawner, handles: Arc::clone(handles) }))
}

/// # Panics
/// If an actor is still running: the Scheduler publishes, the Synthesizer decodes, a device is connected.
async fn all_stopped(engine: &Engine, handles: &Handles) {
    let published = tokio::time::timeout(Duration::from_secs(3600), engine.wait_status(|_| false)).await;
    published.expect("the Scheduler has stopped").unwrap_err();
    let request = ProofRequest::new(Payload::Filecoin(Box::default()));
    let error = engine.submit(request).await.unwrap_err();
    assert!(matches!(error, EngineError::Schedule(ScheduleError::Draining)), "{error}");
    let handles = std::mem::take(&mut *handles.lock().unwrap());
    assert!(!handles.is_empty(), "every device has an actor");
    for handle in handles {
        common::stopped(&handle.stop).await;
    }
}

/// Waits until every device is ready.
pub async fn all_ready(engine: &Engine) {
    let is_ready = |status: &EngineStatus| {
        !status.devices.is_empty() && status.devices.iter().all(|device| device.state == "ready")
    };
    engine.wait_status(is_ready).await.unwrap();
}

/// Waits until a device's health is so.
pub async fn health_becomes(engine: &Engine, index: usize, health: &str) {
    engine.wait_status(|status| status.devices[index].health == health).await.unwrap();
}

/// Waits until a device is given up.
pub async fn gone(engine: &Engine, index: usize) {
    engine.wait_status(|status| status.devices[index].state == "gone").await.unwrap();
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
