//! Crash, hang, loss.

use std::time::Duration;

use cuzk::actors::gpu_device::DeviceConfig;
use cuzk::backend::sim::SimFleet;
use cuzk::backend::WatchdogConfig;
use cuzk::engine::{DeviceSpec, Engine, EngineConfig, JobHandle};
use cuzk::error::{DeviceError, EngineError, ScheduleError};
use cuzk::messages::job::{JobEvent, Placement, Priority, ProofRequest};
use tokio::time::Instant;

use crate::common;
use crate::simulation::{
    config, device, find, gone, health_becomes, health_of, num_on, prove, simulate, submit_all, with_priority,
};
use crate::squares::{holds, request};

#[test]
fn b41_a_poisoned_context_is_rebuilt_and_its_work_moved() {
    simulate(config("sim:2;stage=10ms;0:sticky"), |engine| async move {
        engine.wait_ready().await.unwrap();
        let begun = Instant::now();
        let mut job = engine.submit(request("", &[2, 3])).await.unwrap();
        let mut events = job.events();
        find(&mut events, |event| matches!(event, JobEvent::PartitionRetried { .. }).then_some(())).await;
        health_becomes(&engine, 0, "degraded").await;
        assert!(begun.elapsed() <= Duration::from_secs(1));
        let outcome = job.wait().await.unwrap();
        assert_eq!((num_on(&outcome, 1), outcome.retries), (2, 1));
        let status = engine.status();
        assert_eq!((status.devices[0].restarts, status.devices[0].state.as_str()), (1, "ready"));
    });
}

#[test]
fn b42_a_panic_in_a_device_actor_changes_its_health_and_loses_nothing() {
    simulate(config("sim:2;stage=10ms;0:panic"), |engine| async move {
        engine.wait_ready().await.unwrap();
        let begun = Instant::now();
        let outcome = prove(&engine, request("", &[2, 3])).await.unwrap();
        assert!(holds(&outcome.proof, &[2, 3]));
        assert!(begun.elapsed() <= Duration::from_secs(2));
        assert_eq!(health_of(&engine, 0), "degraded");
        assert_eq!(outcome.retries, 1);
    });
}

#[test]
fn b45_a_hang_moves_the_work() {
    let limit = Duration::from_secs(2);
    let mut config = config("sim:2;stage=10ms;0:hang");
    let watchdog = WatchdogConfig { floor: limit, upload_floor: limit, factor: 8 };
    config.device = DeviceConfig { watchdog: Some(watchdog), ..DeviceConfig::default() };
    simulate(config, |engine| async move {
        engine.wait_ready().await.unwrap();
        let begun = Instant::now();
        let outcome = prove(&engine, request("", &[2, 3, 4])).await.unwrap();
        assert!(holds(&outcome.proof, &[2, 3, 4]));
        assert!(begun.elapsed() >= limit && begun.elapsed() <= 2 * limit, "{:?}", begun.elapsed());
        assert_eq!((num_on(&outcome, 1), outcome.retries), (3, 1));
    });
}

#[test]
fn b47_an_actor_that_dies_loses_no_job() {
    simulate(config("sim:1;stage=10ms;0:panic"), |engine| async move {
        let jobs = submit_all(&engine, (2..12).map(|x| request("", &[x]))).await;
        for (job, x) in jobs.iter().zip(2..) {
            assert!(holds(&job.wait().await.unwrap().proof, &[x]));
        }
        let status = engine.status();
        assert_eq!(status.devices[0].restarts, 1);
        assert_eq!((status.totals.completed, status.totals.retried), (10, 1));
    });
}

#[test]
fn b48_one_bad_partition_costs_one_partition() {
    simulate(config("sim:2;0:corrupt@2"), |engine| async move {
        let xs: Vec<u64> = (2..10).collect();
        let outcome = prove(&engine, request("", &xs)).await.unwrap();
        assert!(holds(&outcome.proof, &xs));
        assert_eq!(outcome.retries, 1);
        assert_eq!(engine.status().totals.dispatched, 9);
    });
}

#[test]
fn a_device_that_is_gone_for_good_is_given_up_and_jobs_say_why() {
    simulate(config("sim:1;0:lost"), |engine| async move {
        let error = prove(&engine, request("", &[2])).await.unwrap_err();
        assert!(
            matches!(
                error,
                EngineError::Schedule(ScheduleError::NoDevice(_))
                    | EngineError::Device(DeviceError::Lost { .. })
            ),
            "{error}"
        );
        // It is tried a bounded number of times, with a pause between.
        gone(&engine, 0).await;
        let error = engine.submit(request("", &[2])).await.unwrap_err();
        assert!(matches!(error, EngineError::Schedule(ScheduleError::NoDevice(_))), "{error}");
        assert!(engine.wait_ready().await.is_err());
        assert!(engine.status().reasons.iter().any(|reason| reason.contains("given up")));
    });
}

#[test]
fn work_for_a_device_that_was_given_up_is_refused_while_others_serve() {
    simulate(config("sim:2;0:lost"), |engine| async move {
        let on_first = || ProofRequest { placement: Placement::Device(device(0)), ..request("", &[2]) };
        prove(&engine, on_first()).await.unwrap_err();
        gone(&engine, 0).await;
        let error = engine.submit(on_first()).await.unwrap_err();
        assert!(matches!(error, EngineError::Schedule(ScheduleError::NoDevice(_))), "{error}");
        prove(&engine, request("", &[2])).await.unwrap();
    });
}

#[test]
fn work_that_fits_only_on_a_device_that_was_given_up_ends() {
    let mut fleet: SimFleet = "sim:2;0:lost".parse().unwrap();
    fleet.device_mut(1).unwrap().memory_bytes = 64;
    let mut config = config("sim:2");
    config.devices = fleet.devices().iter().cloned().map(Box::new).map(DeviceSpec::Sim).collect();
    config.device.self_test = false;
    simulate(config, |engine| async move {
        let ended = tokio::time::timeout(Duration::from_secs(3600), prove(&engine, request("", &[2]))).await;
        let error = ended.expect("a job ends once no device is left for it").unwrap_err();
        assert!(matches!(error, EngineError::Schedule(ScheduleError::NoDevice(_))), "{error}");
        assert_eq!(engine.status().devices[0].state, "gone");
    });
}

#[test]
fn a_critical_reserve_as_large_as_the_budget_gives_the_device_up_at_once_with_the_reason() {
    let mut config = config("sim:1;mem=1GiB");
    config.device.critical_reserve_bytes = 1 << 30;
    simulate(config, |engine| async move {
        let begun = Instant::now();
        let error = engine.wait_ready().await.unwrap_err();
        assert!(error.to_string().contains("reserve for CRITICAL work"), "{error}");
        assert!(error.to_string().contains("1073741824 B"), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
        assert_eq!(engine.status().devices[0].state, "gone");
    });
}

#[test]
fn a_budget_too_small_for_the_self_test_is_not_tried_again_and_again() {
    let mut config = config("sim:1");
    config.device.budget_bytes = Some(1000);
    simulate(config, |engine| async move {
        let begun = Instant::now();
        let error = engine.wait_ready().await.unwrap_err();
        assert!(error.to_string().contains("budget is 1000 B"), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    });
}

#[test]
fn a_lost_device_leaves_the_work_to_the_other() {
    simulate(config("sim:2;stage=10ms;0:lost"), |engine| async move {
        let xs: Vec<u64> = (2..10).collect();
        let outcome = prove(&engine, request("", &xs)).await.unwrap();
        assert!(holds(&outcome.proof, &xs));
        assert_eq!(num_on(&outcome, 1), 8);
        let status = engine.status();
        assert!(
            status.ready && status.reasons.iter().any(|reason| reason.starts_with("sim-0 is out of service"))
        );
    });
}

/// Every fault at once, on four devices, from a seed: whatever happens, each job has an answer, and a right one.
#[test]
fn any_mixture_of_faults_answers_every_job() {
    use rand::Rng;
    let mut rng = common::seeds::rng();
    for _ in 0..6 {
        let words = ["sticky", "hang", "lost", "corrupt", "panic", "delay(700ms)"];
        let script = |index: usize, rng: &mut rand_chacha::ChaCha20Rng| {
            let word = words[rng.gen_range(0..words.len())];
            format!(";{index}:{word}@{},alloc_fail({})", rng.gen_range(1..4), rng.gen_range(1..60))
        };
        let faults: String = (0..3).map(|index| script(index, &mut rng)).collect();
        let mut config = config(&format!("sim:4;stage=10ms{faults}"));
        // Each of the three faulty devices may fail one partition once; then the fourth gets it.
        config.max_attempts = 4;
        let limit = Duration::from_secs(5);
        config.device.watchdog = Some(WatchdogConfig { floor: limit, upload_floor: limit, factor: 8 });
        let priorities: Vec<u8> = (0..20).map(|_| rng.gen_range(0..4)).collect();
        simulate(config, |engine| async move {
            let levels = [Priority::Low, Priority::Normal, Priority::High, Priority::Critical];
            let requests = priorities
                .iter()
                .zip(2..)
                .map(|(&level, x)| with_priority(levels[level as usize], request("", &[x, x + 100])));
            let jobs = submit_all(&engine, requests).await;
            for (job, x) in jobs.iter().zip(2..) {
                assert!(holds(&job.wait().await.unwrap().proof, &[x, x + 100]), "{x} on {faults}");
            }
            let status = engine.status();
            assert_eq!((status.totals.completed, status.jobs.len()), (20, 0));
            assert_eq!(status.host_memory_reserved_bytes, 0);
        });
    }
}

/// The same on threads and a clock that runs: one arbiter per device, workers for synthesis.
#[test]
fn b47_on_real_threads() {
    let config = EngineConfig { synthesis_threads: 2, ..config("sim:1;stage=1ms;0:panic") };
    let engine = Engine::start(config).unwrap();
    let jobs: Vec<JobHandle> = (2..12).map(|x| engine.submit_blocking(request("", &[x])).unwrap()).collect();
    for (job, x) in jobs.iter().zip(2..) {
        assert!(holds(&job.wait_blocking().unwrap().proof, &[x]));
    }
    assert_eq!(engine.status().devices[0].restarts, 1);
    drop(jobs);
    engine.shutdown_blocking(Duration::from_secs(60));
}
