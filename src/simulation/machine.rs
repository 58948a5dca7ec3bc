//! The machine of a scenario, as an engine's configuration.

use std::sync::Arc;
use std::time::Duration;

use ff::Field;

use super::host::SimulatedHost;
use super::scenario::{seconds, DeviceScenario, EngineScenario, Scenario, StreamScenario};
use super::workload::SimulatedJob;
use crate::actors::gpu_device::DeviceConfig;
use crate::actors::{ArbiterLayout, Pace};
use crate::backend::sim::{FaultRates, SimConfig, SimProver};
use crate::backend::{LaneLayout, WatchdogConfig};
use crate::engine::{DeviceSpec, EngineConfig, Workers};
use crate::error::ConfigError;
use crate::groth16::{Blinding, Scalar};
use crate::messages::events::EventSink;
use crate::messages::job::{BlindingSource, Payload, ProofRequest};
use crate::policy::batch::BatchPolicy;
use crate::policy::shared_pass::parking_lanes;

/// Finished results are of no interest here, beyond what a caller may still ask for.
const RETAINED_RESULTS: usize = 16;

/// Nobody reads the status of a simulation.
const STATUS_INTERVAL: Duration = Duration::from_secs(3600);

/// The machine of a scenario: for an engine in virtual time, or in real time for tests of load.
pub struct Machine {
    scenario: Scenario,
    host: Arc<SimulatedHost>,
}

impl Machine {
    /// # Errors
    /// [`ConfigError::Value`] naming what is wrong with the scenario.
    pub fn new(scenario: Scenario) -> Result<Self, ConfigError> {
        scenario.validate()?;
        let host = Arc::new(SimulatedHost::new(&scenario));
        Ok(Self { scenario, host })
    }

    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// Jobs that were about to be answered with a wrong proof.
    pub fn num_wrong(&self) -> u64 {
        self.host.num_wrong()
    }

    /// # Errors
    /// [`ConfigError::Value`] if a device's faults cannot be read.
    pub fn engine_config(&self, events: EventSink) -> Result<EngineConfig, ConfigError> {
        engine_config(&self.scenario, events, Arc::clone(&self.host))
    }

    /// A job of a stream. All its jobs are alike, and none attaches to another.
    pub fn request(&self, stream: &StreamScenario) -> ProofRequest {
        let circuit = self.host.stand_in(&stream.circuit);
        let job = SimulatedJob { circuit, num_partitions: stream.partitions };
        let blinding = Blinding { r: Scalar::ONE, s: Scalar::ONE };
        ProofRequest {
            priority: stream.priority,
            deadline: stream.deadline_s.map(seconds),
            // Drawing random ones would be the slowest part of a simulated proof.
            blinding: BlindingSource::Fixed(vec![blinding; stream.partitions as usize]),
            ..ProofRequest::new(Payload::Workload(Arc::new(job)))
        }
    }
}

fn engine_config(
    scenario: &Scenario,
    events: EventSink,
    host: Arc<SimulatedHost>,
) -> Result<EngineConfig, ConfigError> {
    let engine = &scenario.engine;
    let tick = seconds(engine.tick_s);
    Ok(EngineConfig {
        devices: devices(scenario, &host)?,
        host_memory_budget_bytes: scenario.host.memory.0,
        max_queued_jobs: engine.max_queued_jobs,
        max_attempts: engine.max_attempts,
        synthesis_threads: scenario.host.workers,
        arbiter_layout: ArbiterLayout::SingleThread,
        retained_results: RETAINED_RESULTS,
        device: DeviceConfig {
            critical_reserve_bytes: engine.critical_reserve.0,
            tick,
            self_test: false,
            ..DeviceConfig::default()
        },
        aging_step: seconds(engine.aging_step_s),
        affinity_limit: seconds(engine.affinity_limit_s),
        batches: batches(engine),
        max_restarts: engine.max_restarts,
        restart_window: seconds(engine.restart_window_s),
        quarantine: seconds(engine.quarantine_s),
        pace: Pace { scheduler_tick: tick, supervisor_tick: tick, status_interval: STATUS_INTERVAL },
        events,
        workers: Workers::Simulated(host),
        ..EngineConfig::default()
    })
}

fn batches(engine: &EngineScenario) -> BatchPolicy {
    BatchPolicy { max_partitions: engine.batch_partitions, max_time: seconds(engine.batch_limit_s) }
}

fn devices(scenario: &Scenario, host: &SimulatedHost) -> Result<Vec<DeviceSpec>, ConfigError> {
    let circuits = Arc::new(host.simulated_circuits());
    let mut devices = Vec::new();
    for device in &scenario.devices {
        let mut config = SimConfig { circuits: Arc::clone(&circuits), ..sim_config(device, scenario)? };
        for _ in 0..device.count {
            config.index = devices.len() as u32;
            devices.push(DeviceSpec::Sim(Box::new(config.clone())));
        }
    }
    Ok(devices)
}

fn sim_config(device: &DeviceScenario, scenario: &Scenario) -> Result<SimConfig, ConfigError> {
    let EngineScenario { watchdog_s, upload_watchdog_s, .. } = scenario.engine;
    let chances = device.chances()?.into_iter();
    Ok(SimConfig {
        model: device.model.clone(),
        memory_bytes: device.vram.0,
        layout: LaneLayout { normal: device.lanes, critical: device.critical_lanes, critical_preempts: true },
        parking_lanes: parking_lanes(batches(&scenario.engine)),
        // As the CUDA backend: the next stage is there before the last one ends.
        stages_ahead: 1,
        speed_per_mille: (device.speed * 1000.0).round() as u32,
        link_bytes_per_s: Some((device.link_gib_per_s * f64::from(1 << 30)) as u64),
        shares_compute: true,
        jitter_per_mille: (device.jitter_percent * 10.0).round() as u32,
        prover: SimProver::Token,
        faults: device.script()?,
        fault_rates: chances
            .fold(FaultRates::of_seed(scenario.seed), |rates, (kind, rate)| rates.with(kind, rate)),
        watchdog: WatchdogConfig {
            floor: seconds(watchdog_s),
            upload_floor: seconds(upload_watchdog_s),
            ..WatchdogConfig::default()
        },
        ..SimConfig::default()
    })
}
