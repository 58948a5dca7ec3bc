//! Which device does the work, and with what memory.

use std::time::Duration;

use cuzk::actors::gpu_device::DeviceConfig;
use cuzk::backend::sim::SimFleet;
use cuzk::backend::Stage;
use cuzk::engine::{DeviceSpec, EngineConfig, JobEvents, JobHandle};
use cuzk::error::{DeviceError, EngineError, ScheduleError};
use cuzk::ids::DeviceId;
use cuzk::messages::job::{JobEvent, Placement, ProofRequest};
use cuzk::messages::status::EngineStatus;
use tokio::time::Instant;

use crate::simulation::{all_ready, config, find, num_on, placed, prove, simulate, submit_all, NUM_STAGES};
use crate::squares::{holds, request};

#[test]
fn b01_all_devices_are_fed() {
    // 8 stages of 12.5 ms are the 100 ms of one partition.
    let mut fleet: SimFleet = "sim:4".parse().unwrap();
    for index in 0..4 {
        fleet.device_mut(index).unwrap().stage_durations = [Duration::from_micros(12_500); 9];
    }
    let mut config = config("sim:4");
    config.devices = fleet.devices().iter().cloned().map(Box::new).map(DeviceSpec::Sim).collect();
    simulate(config, |engine| async move {
        engine.wait_ready().await.unwrap();
        all_ready(&engine).await;
        let begun = Instant::now();
        let xs: Vec<u64> = (2..18).collect();
        let outcome = prove(&engine, request("b01", &xs)).await.unwrap();
        assert!(holds(&outcome.proof, &xs));
        assert!((0..4).all(|index| num_on(&outcome, index) >= 3), "{:?}", outcome.devices);
        assert!(begun.elapsed() <= Duration::from_millis(550), "{:?}", begun.elapsed());
    });
}

#[test]
fn b02_one_engine_drives_all_devices_without_lock_files() {
    let dir = tempfile::tempdir().unwrap();
    // Every folder that the engine knows of is this one.
    let config = EngineConfig {
        params_dir: dir.path().to_owned(),
        shape_cache_dir: Some(dir.path().join("shapes")),
        verdict_dir: Some(dir.path().join("verdicts")),
        ..config("sim:2;stage=10ms")
    };
    simulate(config, |engine| async move {
        engine.wait_ready().await.unwrap();
        let mut jobs = submit_all(&engine, [request("", &[2]), request("", &[3])]).await;
        let mut streams: Vec<JobEvents> = jobs.iter_mut().map(JobHandle::events).collect();
        let begun = Instant::now();
        let first = find(&mut streams[0], placed).await;
        let second = find(&mut streams[1], placed).await;
        assert_ne!(first, second);
        for job in &jobs {
            job.wait().await.unwrap();
        }
        let alone = Duration::from_millis(10) * NUM_STAGES;
        assert!(begun.elapsed() < alone * 3 / 2, "both ran at once: {:?}", begun.elapsed());
    });
    let left: Vec<_> =
        std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["shapes"], "the shape that was recorded, and nothing else");
}

#[test]
fn a_fixed_device_gets_the_work_and_an_unknown_one_is_refused() {
    simulate(config("sim:3"), |engine| async move {
        let on = |id: &str| ProofRequest {
            placement: Placement::Device(DeviceId::new(id)),
            ..request("", &[2, 3, 4, 5])
        };
        let outcome = prove(&engine, on("sim-2")).await.unwrap();
        assert_eq!(num_on(&outcome, 2), 4);
        let error = prove(&engine, on("sim-7")).await.unwrap_err();
        assert!(matches!(error, EngineError::Schedule(ScheduleError::NoDevice(_))), "{error}");
    });
}

#[test]
fn b11_work_that_fits_nowhere_fails_at_once_with_both_numbers() {
    let mut config = config("sim:2");
    config.device = DeviceConfig { budget_bytes: Some(64), self_test: false, ..DeviceConfig::default() };
    simulate(config, |engine| async move {
        engine.wait_ready().await.unwrap();
        let begun = Instant::now();
        let error = prove(&engine, request("", &[2])).await.unwrap_err();
        assert!(matches!(error, EngineError::Device(DeviceError::Plan { .. })), "{error}");
        assert!(error.to_string().contains("budget is 64 B"), "{error}");
        assert!(begun.elapsed() < Duration::from_millis(100));
    });
}

#[test]
fn a_host_memory_budget_below_one_witness_still_lets_one_through() {
    let config = EngineConfig { host_memory_budget_bytes: 1, ..config("sim:2") };
    simulate(config, |engine| async move {
        let outcome = prove(&engine, request("", &[2, 3, 4, 5])).await.unwrap();
        assert!(holds(&outcome.proof, &[2, 3, 4, 5]));
        assert_eq!(engine.status().host_memory_reserved_bytes, 0);
    });
}

#[test]
fn the_status_shows_each_devices_own_memory() {
    simulate(config("sim:2"), |engine| async move {
        prove(&engine, request("", &[2, 3, 4, 5])).await.unwrap();
        // A device writes its figures before it answers, and the Scheduler publishes them with its next tick.
        let is_idle = |status: &EngineStatus| {
            status.devices.iter().all(|device| {
                device.memory_budget_bytes > 0
                    && device.lanes_busy == 0
                    && (device.memory_reserved_bytes > 0) != device.resident_srs.is_empty()
            })
        };
        for device in &engine.wait_status(is_idle).await.unwrap().devices {
            assert!(device.memory_budget_bytes > 0, "{device:?}");
            assert!(device.memory_budget_bytes <= device.memory_total_bytes, "{device:?}");
            assert!(device.memory_in_use_bytes <= device.memory_reserved_bytes, "{device:?}");
            assert!(device.memory_reserved_bytes <= device.memory_budget_bytes, "{device:?}");
            // The proving key stays where it was used.
            assert_eq!(device.memory_reserved_bytes > 0, !device.resident_srs.is_empty(), "{device:?}");
        }
    });
}

#[test]
fn stages_are_reported_in_order() {
    simulate(config("sim:1"), |engine| async move {
        let mut job = engine.submit(request("", &[2])).await.unwrap();
        let mut events = job.events();
        let mut stages = Vec::new();
        while let Some(event) = events.next().await {
            if let JobEvent::StageDone { stage, .. } = event {
                stages.push(stage);
            }
        }
        assert_eq!(stages, Stage::ALL);
    });
}

#[test]
fn an_idle_circuit_is_let_go_when_memory_is_short() {
    let config = EngineConfig { host_memory_budget_bytes: 0, ..config("sim:1") };
    simulate(config, |engine| async move {
        for x in [2, 3] {
            let job = engine.submit(request("", &[x])).await.unwrap();
            assert_eq!(engine.status().circuits.len(), 1);
            assert!(holds(&job.wait().await.unwrap().proof, &[x]));
            let status = engine.wait_status(|status| status.circuits.is_empty()).await.unwrap();
            assert_eq!(status.circuit_memory_reserved_bytes, 0);
        }
    });
}
