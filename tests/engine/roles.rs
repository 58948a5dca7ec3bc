//! What each device is there for, and what the engine says of itself when some are not there.

use std::time::Duration;

use cuzk::engine::{Engine, EngineConfig};
use cuzk::error::{ConfigError, EngineError, ScheduleError};
use cuzk::messages::job::{JobEvent, Placement, Priority, ProofRequest};
use tokio::time::Instant;

use crate::simulation::{
    all_ready, config, device, find, health_becomes, num_on, placed, prove, simulate, submit_all,
    with_priority,
};
use crate::squares::{holds, request};

fn with_reserved(fleet: &str) -> EngineConfig {
    EngineConfig { reserved_for_critical: [device(1)].into(), ..config(fleet) }
}

#[test]
fn b09_a_reserved_device_takes_nothing_but_critical_work() {
    simulate(with_reserved("sim:2;stage=25ms"), |engine| async move {
        all_ready(&engine).await;
        let xs: Vec<u64> = (2..52).collect();
        let mut normal = engine.submit(request("", &xs)).await.unwrap();
        let mut events = normal.events();
        for _ in 0..10 {
            find(&mut events, placed).await;
        }
        let submitted = Instant::now();
        let mut critical =
            engine.submit(with_priority(Priority::Critical, request("", &[60]))).await.unwrap();
        assert_eq!(find(&mut critical.events(), placed).await, device(1));
        assert!(submitted.elapsed() < Duration::from_millis(50), "{:?}", submitted.elapsed());
        assert!(holds(&critical.wait().await.unwrap().proof, &[60]));
        let outcome = normal.wait().await.unwrap();
        assert!(holds(&outcome.proof, &xs));
        assert_eq!(num_on(&outcome, 1), 0);
        assert_eq!(engine.status().devices[1].role, "reserved-for-critical");
    });
}

#[test]
fn b09_other_work_for_a_reserved_device_is_refused_by_name() {
    simulate(with_reserved("sim:2"), |engine| async move {
        let on_it = || ProofRequest { placement: Placement::Device(device(1)), ..request("", &[2]) };
        let error = prove(&engine, on_it()).await.unwrap_err();
        assert!(error.to_string().contains("sim-1 is reserved for CRITICAL work"), "{error}");
        prove(&engine, with_priority(Priority::Critical, on_it())).await.unwrap();
    });
    let unknown = EngineConfig { reserved_for_critical: [device(7)].into(), ..config("sim:2") };
    let error = Engine::start(unknown).unwrap_err();
    assert!(
        matches!(&error, EngineError::Config(ConfigError::Value { key, .. }) if key == "reserved_for_critical"),
        "{error}"
    );
}

#[test]
fn b09_without_another_device_other_work_is_refused_and_ends() {
    simulate(with_reserved("sim:2;0:lost"), |engine| async move {
        let error = prove(&engine, request("", &[2])).await.unwrap_err();
        assert!(matches!(error, EngineError::Schedule(ScheduleError::NoDevice(_))), "{error}");
        crate::simulation::gone(&engine, 0).await;
        let error = prove(&engine, request("", &[2])).await.unwrap_err();
        assert!(error.to_string().contains("reserved for CRITICAL work"), "{error}");
        prove(&engine, with_priority(Priority::Critical, request("", &[2]))).await.unwrap();
        let readiness = engine.readiness();
        assert!(readiness.ready && readiness.degraded && readiness.fatal.is_none(), "{readiness:?}");
    });
}

#[test]
fn b43_the_only_device_lost_is_fatal_and_says_why() {
    simulate(config("sim:1;0:lost"), |engine| async move {
        engine.wait_ready().await.unwrap();
        assert_eq!(engine.readiness().fatal, None);
        let error = prove(&engine, request("", &[2])).await.unwrap_err();
        assert!(matches!(error, EngineError::Schedule(ScheduleError::NoDevice(_))), "{error}");
        let why = engine.wait_fatal().await.unwrap();
        assert!(why.contains("no device is left: sim-0"), "{why}");
        let readiness = engine.readiness();
        assert!(!readiness.ready && readiness.fatal == Some(why), "{readiness:?}");
    });
}

#[test]
fn a_lost_device_beside_another_is_degraded_and_not_fatal() {
    simulate(config("sim:2;stage=10ms;0:lost"), |engine| async move {
        all_ready(&engine).await;
        assert!(!engine.readiness().degraded, "{:?}", engine.readiness());
        prove(&engine, request("", &[2, 3])).await.unwrap();
        crate::simulation::gone(&engine, 0).await;
        let readiness = engine.readiness();
        assert!(readiness.ready && readiness.degraded && readiness.fatal.is_none(), "{readiness:?}");
        assert!(
            readiness.reasons.iter().any(|reason| reason.starts_with("sim-0 was given up")),
            "{readiness:?}"
        );
    });
}

/// The CPU proves on threads of its own, so the clock runs.
fn started(cpu_fallback: bool) -> Engine {
    let config = EngineConfig {
        synthesis_threads: 2,
        max_restarts: 0,
        quarantine: Duration::from_millis(20),
        cpu_fallback,
        ..config("sim:1;0:lost")
    };
    Engine::start(config).unwrap()
}

#[test]
fn b54_without_a_fallback_nothing_is_proved_in_silence() {
    let engine = started(false);
    let error = engine.submit_blocking(request("", &[2, 3])).unwrap().wait_blocking().unwrap_err();
    assert!(matches!(error, EngineError::Schedule(ScheduleError::NoDevice(_))), "{error}");
    engine.wait_status_blocking(|status| status.fatal.is_some()).unwrap();
    assert_eq!(engine.status().devices.len(), 1, "there is no CPU device");
    engine.shutdown_blocking(Duration::from_secs(60));
}

#[test]
fn b54_a_fallback_completes_and_is_counted_and_visible() {
    let engine = started(true);
    let mut job = engine.submit_blocking(request("", &[2, 3])).unwrap();
    let retried = |event: &JobEvent| matches!(event, JobEvent::PartitionRetried { .. });
    assert!(job.events().blocking_iter().any(|event| retried(&event)), "the device had it first");
    let outcome = job.wait_blocking().unwrap();
    assert!(holds(&outcome.proof, &[2, 3]));
    assert!(outcome.devices.iter().all(|id| id.as_str() == "cpu"), "{:?}", outcome.devices);
    let in_place = |status: &cuzk::messages::status::EngineStatus| {
        status.reasons.iter().any(|reason| reason.contains("cpu proves in place of"))
    };
    let status = engine.wait_status_blocking(in_place).unwrap();
    assert!(status.ready && status.degraded && status.fatal.is_none(), "{:?}", status.readiness());
    assert_eq!(status.totals.fallback, 2);
    assert_eq!((status.devices[0].id.as_str(), status.devices[0].role.as_str()), ("cpu", "fallback"));
    drop(job);
    engine.shutdown_blocking(Duration::from_secs(60));
}

#[test]
fn a_quarantined_device_is_probed_and_returns() {
    simulate(config("sim:2;stage=10ms;0:corrupt@1,corrupt@2"), |engine| async move {
        all_ready(&engine).await;
        // Enough that both are given work until the first is found out.
        let jobs = submit_all(&engine, (2..8).map(|x| request("", &[x]))).await;
        for (job, x) in jobs.iter().zip(2..) {
            assert!(holds(&job.wait().await.unwrap().proof, &[x]));
        }
        health_becomes(&engine, 0, "quarantined").await;
        assert!(engine.readiness().reasons.iter().any(|reason| reason.starts_with("sim-0 is quarantined")));
        health_becomes(&engine, 0, "probation").await;
        let before = engine.status().devices[0].partitions_proved;
        let xs: Vec<u64> = (10..20).collect();
        assert!(holds(&prove(&engine, request("", &xs)).await.unwrap().proof, &xs));
        let status = engine.status();
        assert_eq!(status.devices[0].health, "healthy", "its probe succeeded");
        assert!(status.devices[0].partitions_proved >= before + 2, "and it is used again: {status:?}");
        assert!(!status.degraded, "{:?}", status.reasons);
    });
}
