//! The store of proving keys: preloaded, kept, let go, on the host and on devices.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cuzk::actors::gpu_device::DeviceConfig;
use cuzk::backend::sim::SimFleet;
use cuzk::circuits::{CustomCircuit, SrsSource, Workload};
use cuzk::engine::{DeviceSpec, Engine, EngineConfig, Preload};
use cuzk::error::{DeviceError, EngineError, ErrorClass, PlanError, ScheduleError, SrsError};
use cuzk::groth16::generate::generate_params;
use cuzk::groth16::R1csShape;
use cuzk::ids::CircuitId;
use cuzk::messages::job::{JobEvent, Payload, Priority, ProofRequest};
use cuzk::messages::srs::{Eviction, Residence};
use cuzk::messages::synthesis::PartitionNeeds;
use cuzk::policy::plan::{plan, ShapeSummary, SrsSummary};
use rand::SeedableRng;
use rand_chacha::ChaCha20Rng;
use tokio::time::Instant;

use crate::simulation::{all_ready, config, device, find, placed, prove, simulate, with_priority};
use crate::squares::{holds, request, srs, Squares, NUM_SQUARINGS};

fn named_with(name: &str, source: SrsSource, xs: &[u64]) -> Arc<dyn Workload> {
    let instances = xs.iter().map(|&x| (Squares::of(x), Squares::of(x).public_inputs())).collect();
    CustomCircuit::new(CircuitId::new(name), source, Squares::blank(NUM_SQUARINGS), instances).into_workload()
}

fn named(name: &str, xs: &[u64]) -> Arc<dyn Workload> {
    named_with(name, SrsSource::Memory(srs()), xs)
}

fn job(workload: Arc<dyn Workload>) -> ProofRequest {
    ProofRequest::new(Payload::Workload(workload))
}

/// Bytes of a key on a device, and of a partition's work beside it.
pub fn device_bytes() -> (u64, u64) {
    let shape = R1csShape::record(Squares::blank(NUM_SQUARINGS)).unwrap();
    let plan = plan(&ShapeSummary::of(&shape), &SrsSummary::of(&srs()), 1 << 40).unwrap();
    (plan.resident_bytes, plan.work_peak_bytes())
}

/// Bytes of the circuit on the host, and of one partition.
fn host_bytes() -> (u64, u64) {
    let shape = R1csShape::record(Squares::blank(NUM_SQUARINGS)).unwrap();
    (srs().num_bytes() + shape.num_bytes(), PartitionNeeds::of(&shape).witness_bytes)
}

/// Parameters of the circuit as a file.
fn params_in(dir: &Path) -> SrsSource {
    let shape = R1csShape::record(Squares::blank(NUM_SQUARINGS)).unwrap();
    let (path, vk_path) = (dir.join("squares.params"), dir.join("squares.vk"));
    generate_params(&shape, &mut ChaCha20Rng::seed_from_u64(1), &path, &vk_path, &|_, _| {}).unwrap();
    SrsSource::File(path.into())
}

fn pinned(workload: Arc<dyn Workload>) -> Preload {
    Preload { workload, pinned: true, on_devices: true }
}

fn circuits(engine: &Engine) -> Vec<String> {
    engine.status().circuits.iter().map(|circuit| circuit.circuit.clone()).collect()
}

#[test]
fn b14_keys_take_turns_and_one_in_use_stays() {
    let (key_bytes, work_bytes) = device_bytes();
    let mut config = config("sim:1;stage=10ms");
    let budget_bytes = Some(2 * key_bytes + work_bytes);
    config.device = DeviceConfig { budget_bytes, self_test: false, ..DeviceConfig::default() };
    simulate(config, |engine| async move {
        for _ in 0..5 {
            for name in ["a", "b", "c"] {
                assert!(holds(&prove(&engine, job(named(name, &[3]))).await.unwrap().proof, &[3]));
            }
        }
        let status = engine.wait_status(|status| status.devices[0].lanes_busy == 0).await.unwrap();
        assert_eq!(status.devices[0].resident_srs, ["b", "c"], "room for two, the oldest went");

        let mut running = engine.submit(job(named("c", &[4]))).await.unwrap();
        find(&mut running.events(), placed).await;
        let error = engine.evict(&CircuitId::new("c")).await.unwrap_err();
        assert!(
            matches!(error, EngineError::Schedule(ScheduleError::CircuitInUse { jobs: 1, .. })),
            "{error}"
        );
        assert_eq!(error.class(), ErrorClass::Retry);
        running.wait().await.unwrap();
        let evicted = engine.evict(&CircuitId::new("c")).await.unwrap();
        assert_eq!(evicted.host_bytes, host_bytes().0);
        assert_eq!(evicted.devices, [(device(0), Eviction::Freed { num_bytes: key_bytes })]);
        let again = engine.evict(&CircuitId::new("c")).await.unwrap();
        assert_eq!((again.host_bytes, &again.devices[..]), (0, &[(device(0), Eviction::Absent)][..]));
        assert_eq!(circuits(&engine), ["a", "b"]);
    });
}

#[test]
fn b15_an_impossible_reservation_fails_at_once_with_both_numbers() {
    let (circuit_bytes, _) = host_bytes();
    let half = circuit_bytes / 2;
    simulate(EngineConfig { host_memory_budget_bytes: half, ..config("sim:1") }, |engine| async move {
        let begun = Instant::now();
        let error = engine.preload(Preload::new(named("a", &[2]))).await.unwrap_err();
        let EngineError::Schedule(ScheduleError::HostMemory { needs_bytes, has_bytes, .. }) = error else {
            panic!("{error}")
        };
        assert!(needs_bytes > has_bytes && has_bytes == half, "needs {needs_bytes}, has {has_bytes}");
        assert_eq!(error.class(), ErrorClass::Caller);
        assert!(begun.elapsed() < Duration::from_secs(1));
        assert_eq!(engine.status().circuit_memory_reserved_bytes, 0);
        // A job of it is slow and not stuck.
        prove(&engine, job(named("a", &[2]))).await.unwrap();
    });
    let mut config = config("sim:1");
    config.device = DeviceConfig { budget_bytes: Some(64), self_test: false, ..DeviceConfig::default() };
    simulate(config, |engine| async move {
        all_ready(&engine).await;
        let error = engine.preload(pinned(named("a", &[2]))).await.unwrap_err();
        let EngineError::Device(DeviceError::Plan { source, .. }) = error else { panic!("{error}") };
        let PlanError::InsufficientVram { needs_bytes, has_bytes } = source;
        assert!(needs_bytes > has_bytes && has_bytes == 64, "needs {needs_bytes}, has {has_bytes}");
        // On the host alone there is room.
        engine.preload(Preload::new(named("a", &[2]))).await.unwrap();
    });
}

#[test]
fn b16_what_was_reserved_is_what_is_freed_whatever_the_disk_says_now() {
    let dir = tempfile::tempdir().unwrap();
    let source = params_in(dir.path());
    simulate(config("sim:1"), |engine| async move {
        all_ready(&engine).await;
        let loaded = engine.preload(pinned(named_with("file", source.clone(), &[2]))).await.unwrap();
        assert!(!loaded.was_loaded && loaded.pinned);
        let [(id, Residence::Resident { num_bytes })] = &loaded.devices[..] else { panic!("{loaded:?}") };
        assert_eq!(*id, device(0));
        let status = engine.status();
        assert_eq!(status.circuit_memory_reserved_bytes, loaded.host_bytes);
        assert_eq!(status.circuit_memory_pinned_bytes, loaded.host_bytes);
        assert_eq!(status.devices[0].resident_srs, ["file"]);

        std::fs::remove_file(dir.path().join("squares.params")).unwrap();
        let evicted = engine.evict(&CircuitId::new("file")).await.unwrap();
        assert_eq!(evicted.host_bytes, loaded.host_bytes);
        assert_eq!(evicted.devices, [(device(0), Eviction::Freed { num_bytes: *num_bytes })]);
        let is_free = |status: &cuzk::messages::status::EngineStatus| {
            status.circuit_memory_reserved_bytes == 0 && status.devices[0].memory_reserved_bytes == 0
        };
        let status = engine.wait_status(is_free).await.unwrap();
        assert_eq!((status.circuit_memory_pinned_bytes, status.devices[0].memory_in_use_bytes), (0, 0));
        let error = engine.preload(pinned(named_with("file", source, &[2]))).await.unwrap_err();
        assert!(matches!(error, EngineError::Srs { source: SrsError::Missing { .. }, .. }), "{error}");
    });
}

fn slow_to_load() -> EngineConfig {
    let mut fleet: SimFleet = "sim:1;stage=10ms".parse().unwrap();
    fleet.device_mut(0).unwrap().srs_load_duration = Duration::from_secs(20);
    let devices = fleet.devices().iter().cloned().map(Box::new).map(DeviceSpec::Sim).collect();
    EngineConfig { devices, ..config("sim:1") }
}

/// Times of eleven CRITICAL proofs, one after the other, from when the engine says that it is ready.
fn critical_times(config: EngineConfig) -> Vec<Duration> {
    simulate(config, |engine| async move {
        engine.wait_ready().await.unwrap();
        let mut times = Vec::new();
        for x in 2..13 {
            let begun = Instant::now();
            let critical = with_priority(Priority::Critical, request("", &[x]));
            prove(&engine, critical).await.unwrap();
            times.push(begun.elapsed());
        }
        times
    })
}

#[test]
fn b23_the_first_critical_proof_after_ready_is_as_fast_as_later_ones() {
    let median = |times: &[Duration]| {
        let mut sorted = times.to_vec();
        sorted.sort();
        sorted[sorted.len() / 2]
    };
    let cold = critical_times(slow_to_load());
    assert!(cold[0] > Duration::from_secs(20), "without a list the first one pays: {cold:?}");
    let warmup = vec![crate::squares::workload(vec![Squares::of(2)])];
    let warm = critical_times(EngineConfig { warmup, ..slow_to_load() });
    assert!(warm[0] * 10 <= median(&warm[1..]) * 12, "{warm:?}");
}

#[test]
fn a_warmup_that_fails_is_said_and_holds_nothing_up() {
    let missing = SrsSource::File("/nonexistent/squares.params".into());
    let warmup = vec![named_with("missing", missing, &[2])];
    simulate(EngineConfig { warmup, ..config("sim:1") }, |engine| async move {
        engine.wait_ready().await.unwrap();
        let readiness = engine.readiness();
        assert!(readiness.degraded, "{readiness:?}");
        assert!(
            readiness.reasons.iter().any(|reason| reason.starts_with("missing was not loaded")),
            "{readiness:?}"
        );
        prove(&engine, request("", &[2])).await.unwrap();
    });
}

#[test]
fn what_is_pinned_stays_and_the_others_take_turns() {
    let (circuit_bytes, partition_bytes) = host_bytes();
    let budget = 2 * circuit_bytes + 2 * partition_bytes;
    simulate(EngineConfig { host_memory_budget_bytes: budget, ..config("sim:1") }, |engine| async move {
        engine.preload(pinned(named("kept", &[2]))).await.unwrap();
        for name in ["a", "b", "a", "b"] {
            prove(&engine, job(named(name, &[2]))).await.unwrap();
            assert_eq!(circuits(&engine), [name, "kept"]);
            let status = engine.status();
            assert!(status.circuit_memory_reserved_bytes <= budget, "{status:?}");
        }
        let too_much = engine.preload(pinned(named("c", &[2]))).await.unwrap();
        assert!(too_much.pinned);
        let error = engine.preload(pinned(named("d", &[2]))).await.unwrap_err();
        assert!(matches!(error, EngineError::Schedule(ScheduleError::HostMemory { .. })), "{error}");
        engine.evict(&CircuitId::new("kept")).await.unwrap();
        engine.preload(pinned(named("d", &[2]))).await.unwrap();
        assert_eq!(circuits(&engine), ["c", "d"]);
    });
}

#[test]
fn several_may_wait_for_one_preload_and_a_job_shares_it() {
    simulate(config("sim:2"), |engine| async move {
        all_ready(&engine).await;
        let workload = named("a", &[5]);
        let one = engine.preload(Preload::new(Arc::clone(&workload)));
        let two = engine.preload(Preload { on_devices: true, ..Preload::new(Arc::clone(&workload)) });
        let (one, two, outcome) = tokio::join!(one, two, prove(&engine, job(Arc::clone(&workload))));
        assert_eq!(one.unwrap().host_bytes, host_bytes().0);
        let loaded = two.unwrap();
        assert_eq!(loaded.devices.len(), 2, "{loaded:?}");
        assert!(loaded.devices.iter().all(|(_, residence)| residence.num_bytes() == device_bytes().0));
        assert!(holds(&outcome.unwrap().proof, &[5]));
        let again = engine.preload(Preload::new(workload)).await.unwrap();
        assert!(again.was_loaded && !again.pinned);
        let status = engine.wait_status(|status| status.host_memory_reserved_bytes == 0).await.unwrap();
        assert_eq!(status.circuit_memory_pinned_bytes, 0);
    });
}

#[test]
fn a_rebuilt_device_gets_what_is_pinned_again() {
    simulate(config("sim:1;stage=10ms;0:sticky"), |engine| async move {
        engine.preload(pinned(named("kept", &[2]))).await.unwrap();
        let mut job = engine.submit(request("", &[3])).await.unwrap();
        let retried = |event: &JobEvent| matches!(event, JobEvent::PartitionRetried { .. }).then_some(());
        find(&mut job.events(), retried).await;
        assert!(engine.status().devices[0].resident_srs.is_empty());
        job.wait().await.unwrap();
        let is_back = |status: &cuzk::messages::status::EngineStatus| {
            status.devices[0].resident_srs.iter().any(|name| name == "kept")
        };
        engine.wait_status(is_back).await.unwrap();
        engine.wait_status(|status| status.host_memory_reserved_bytes == 0).await.unwrap();
    });
}

#[test]
fn idle_circuits_are_let_go_after_their_time() {
    let idle_limit = Some(Duration::from_secs(60));
    simulate(EngineConfig { idle_limit, ..config("sim:1") }, |engine| async move {
        engine.preload(pinned(named("kept", &[2]))).await.unwrap();
        prove(&engine, job(named("a", &[2]))).await.unwrap();
        let begun = Instant::now();
        let is_gone = |status: &cuzk::messages::status::EngineStatus| {
            status.circuits.len() == 1 && status.devices[0].resident_srs == ["kept"]
        };
        engine.wait_status(is_gone).await.unwrap();
        let waited = begun.elapsed();
        assert!(waited >= Duration::from_secs(60) && waited < Duration::from_secs(61), "{waited:?}");
        assert_eq!(circuits(&engine), ["kept"]);
    });
}
