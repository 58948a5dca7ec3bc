//! What an engine of a life has to work with: devices, their faults, limits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cuzk::actors::gpu_device::{DeviceConfig, FactorySpawner};
use cuzk::backend::sim::{SimCircuit, SimConfig};
use cuzk::backend::{LaneLayout, Stage, WatchdogConfig};
use cuzk::engine::{DeviceSpec, EngineConfig};
use cuzk::ids::CircuitId;
use cuzk::policy::batch::BatchPolicy;
use cuzk::policy::plan::{least_budget_bytes, EvaluationSummary, ShapeSummary, SrsSummary};
use rand::Rng;
use rand_chacha::ChaCha20Rng;

use super::devices::{Corrupts, ObservedFactory, Shared};
use super::jobs::{shape, CIRCUITS};
use super::squares::srs;

const MS: Duration = Duration::from_millis(1);

/// What the engines of a life have alike.
#[derive(Clone, Copy)]
pub struct Machine {
    pub num_devices: u32,
    /// The last device is for CRITICAL work alone.
    pub reserves: bool,
}

/// What may go wrong on a device in this life.
fn faults(rng: &mut ChaCha20Rng) -> String {
    let stage = |rng: &mut ChaCha20Rng| Stage::ALL[rng.gen_range(2..9)];
    let word = |rng: &mut ChaCha20Rng| match rng.gen_range(0..6) {
        0 => format!("sticky@{}.{}", rng.gen_range(1..6), stage(rng)),
        1 => format!("hang@{}.{}", rng.gen_range(1..6), stage(rng)),
        2 => format!("panic@{}.{}", rng.gen_range(1..6), stage(rng)),
        3 => format!("delay({}ms)@{}.{}", rng.gen_range(5..200), rng.gen_range(1..6), stage(rng)),
        4 => format!("alloc_fail({})", rng.gen_range(1..60)),
        _ if rng.gen_bool(0.3) => format!("lost@{}.{}", rng.gen_range(1..6), stage(rng)),
        _ => format!("delay(1ms)@*.{}", stage(rng)),
    };
    let num_faults = if rng.gen_bool(0.5) { rng.gen_range(1..4) } else { 0 };
    (0..num_faults).map(|_| word(rng)).collect::<Vec<_>>().join(",")
}

fn device(index: u32, shared: &Shared, rng: &mut ChaCha20Rng) -> DeviceSpec {
    let least = least_budget_bytes(&ShapeSummary::of(shape()), &SrsSummary::of(&srs()));
    let memory_bytes = if rng.gen_bool(0.6) { 1 << 30 } else { least * rng.gen_range(2..8) };
    let stage = MS * [1, 3, 10][rng.gen_range(0..3)];
    // A card that has not the room for these circuits' keys, and shares passes over them.
    let shares = rng.gen_bool(0.3);
    let memory_bytes = if shares { rng.gen_range(20..56) << 30 } else { memory_bytes };
    let config = SimConfig {
        index,
        memory_bytes,
        circuits: if shares { large_circuits(stage) } else { Arc::default() },
        parking_lanes: if shares { rng.gen_range(1..6) } else { 0 },
        link_bytes_per_s: (shares && rng.gen_bool(0.5)).then_some(2 << 40),
        layout: LaneLayout {
            normal: rng.gen_range(1..3),
            critical: rng.gen_range(0..2),
            critical_preempts: rng.gen_bool(0.3),
        },
        stages_ahead: rng.gen_range(0..2),
        stage_durations: [stage; 9],
        srs_load_duration: MS * rng.gen_range(0..20),
        faults: faults(rng).parse().expect("the script is well-formed"),
        watchdog: WatchdogConfig { floor: 500 * MS, upload_floor: 500 * MS, factor: 4 },
        ..SimConfig::default()
    };
    let num_corrupt = if rng.gen_bool(0.2) { rng.gen_range(1..4) } else { 0 };
    let corrupts = Corrupts::of((0..num_corrupt).map(|_| rng.gen_range(1..8)).collect::<Vec<u64>>());
    DeviceSpec::Spawner(FactorySpawner::boxed(ObservedFactory::new(config, Arc::clone(shared), corrupts)))
}

/// The circuits of the lives, as large as a partition of a PoRep of 32 GiB.
fn large_circuits(stage: Duration) -> Arc<BTreeMap<CircuitId, SimCircuit>> {
    let num_aux = 130_000_000;
    let evaluation = EvaluationSummary::known(Some(1_700_000), Some(66_000_000));
    let shape = ShapeSummary { domain_log2: 27, num_rows: num_aux, num_inputs: 328, num_aux, evaluation };
    let srs = SrsSummary::new([(1 << 27) - 1, num_aux, 105_000_000, 52_000_000, 52_000_000]);
    let circuit = SimCircuit { shape, srs, stage_durations: [stage; 9] };
    Arc::new(CIRCUITS.iter().map(|name| (CircuitId::new(*name), circuit.clone())).collect())
}

/// One of the engines: its devices and limits are other ones each time.
pub fn config(machine: Machine, shared: &Shared, rng: &mut ChaCha20Rng) -> EngineConfig {
    let devices: Vec<DeviceSpec> = (0..machine.num_devices).map(|index| device(index, shared, rng)).collect();
    let reserved = devices.last().filter(|_| machine.reserves).map(DeviceSpec::device_id);
    let circuit_bytes = srs().num_bytes() + shape().num_bytes();
    let tight = circuit_bytes * rng.gen_range(1..4) + rng.gen_range(0..10_000);
    EngineConfig {
        devices,
        reserved_for_critical: reserved.into_iter().collect(),
        synthesis_threads: 0,
        host_memory_budget_bytes: if rng.gen_bool(0.5) { 1 << 30 } else { tight },
        max_queued_jobs: rng.gen_range(4..14),
        max_attempts: rng.gen_range(2..5),
        device: DeviceConfig { self_test: false, ..DeviceConfig::default() },
        // Priorities alone decide: what waits does not rise.
        aging_step: Duration::from_secs(100_000),
        affinity_limit: MS * rng.gen_range(0..200),
        batches: BatchPolicy { max_partitions: rng.gen_range(1..5), max_time: MS * rng.gen_range(0..500) },
        idle_limit: rng.gen_bool(0.3).then(|| MS * rng.gen_range(50..500)),
        max_restarts: rng.gen_range(0..3),
        restart_window: Duration::from_secs(5),
        quarantine: Duration::from_secs(1),
        ..EngineConfig::default()
    }
}
