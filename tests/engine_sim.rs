//! The engine on simulated devices with scripted faults, named by behaviour.
//!
//! Each test has an engine of its own. Where time matters, all actors are on one arbiter whose clock is paused: hours
//! pass in no time, and every run is the same.

mod common;
#[path = "engine/squares.rs"]
mod squares;

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use blstrs::Scalar;
use cuzk::actors::gpu_device::DeviceConfig;
use cuzk::backend::sim::SimFleet;
use cuzk::backend::{Stage, WatchdogConfig};
use cuzk::circuits::{CustomCircuit, FilecoinRequest, SrsSource, WorkKind, Workload};
use cuzk::engine::{DeviceSpec, Engine, EngineConfig, JobEvents, JobHandle};
use cuzk::error::{DeviceError, EngineError, RequestError, ScheduleError, SrsError, SynthesisError};
use cuzk::groth16::{Assignment, R1csShape};
use cuzk::ids::{CircuitId, DeviceId, JobId, PartitionIndex, RequestDigest};
use cuzk::messages::job::{
    CancelOutcome, JobEvent, JobResult, Payload, Placement, Priority, ProofOutcome, ProofRequest,
};
use tokio::time::Instant;

use squares::{holds, request, srs, workload, Squares, NUM_SQUARINGS};

/// Stages of a partition whose row values came with its witness.
const NUM_STAGES: u32 = 8;

/// An engine on the devices that `fleet` describes (see `SimFleet`), synthesis inside its actor.
fn config(fleet: &str) -> EngineConfig {
    let fleet: SimFleet = fleet.parse().unwrap();
    EngineConfig {
        devices: fleet.devices().iter().cloned().map(DeviceSpec::Sim).collect(),
        synthesis_threads: 0,
        ..EngineConfig::default()
    }
}

/// Runs `test` with an engine on one arbiter with a paused clock; at the end every actor must have stopped.
fn simulate<F: Future>(config: EngineConfig, test: impl FnOnce(Engine) -> F) -> F::Output {
    println!("devices: {:?}", config.devices);
    common::on_paused_arbiter(async move {
        let engine = Engine::start_on_current_arbiter(config).await.unwrap();
        let output = test(engine.clone()).await;
        engine.shutdown(Duration::from_secs(3600)).await;
        output
    })
}

async fn prove(engine: &Engine, request: ProofRequest) -> JobResult {
    engine.submit(request).await?.wait().await
}

async fn submit_all(engine: &Engine, requests: impl IntoIterator<Item = ProofRequest>) -> Vec<JobHandle> {
    let mut jobs = Vec::new();
    for request in requests {
        jobs.push(engine.submit(request).await.unwrap());
    }
    jobs
}

fn with_priority(priority: Priority, request: ProofRequest) -> ProofRequest {
    ProofRequest { priority: Some(priority), ..request }
}

/// The next event that `wanted` picks something from.
async fn find<T>(events: &mut JobEvents, wanted: impl Fn(&JobEvent) -> Option<T>) -> T {
    loop {
        let event = events.next().await.expect("the job ended without this event");
        if let Some(found) = wanted(&event) {
            return found;
        }
    }
}

fn placed(event: &JobEvent) -> Option<DeviceId> {
    match event {
        JobEvent::Placed { device, .. } => Some(device.clone()),
        _ => None,
    }
}

fn device(index: u32) -> DeviceId {
    DeviceId::new(format!("sim-{index}"))
}

fn num_on(outcome: &ProofOutcome, index: u32) -> usize {
    outcome.devices.iter().filter(|id| **id == device(index)).count()
}

fn health_of(engine: &Engine, index: usize) -> String {
    engine.status().devices[index].health.clone()
}

// ---- Which device does the work ----

#[test]
fn b01_all_devices_are_fed() {
    // 8 stages of 12.5 ms are the 100 ms of one partition.
    let mut fleet: SimFleet = "sim:4".parse().unwrap();
    for index in 0..4 {
        fleet.device_mut(index).unwrap().stage_durations = [Duration::from_micros(12_500); 9];
    }
    let mut config = config("sim:4");
    config.devices = fleet.devices().iter().cloned().map(DeviceSpec::Sim).collect();
    simulate(config, |engine| async move {
        engine.wait_ready().await.unwrap();
        while engine.status().devices.iter().any(|device| device.state != "ready") {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
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
    let locks = || -> BTreeSet<_> {
        let entries = std::fs::read_dir(std::env::temp_dir()).unwrap();
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names.filter(|name| name.contains("lock")).collect()
    };
    let before = locks();
    simulate(config("sim:2;stage=10ms"), |engine| async move {
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
    assert_eq!(locks(), before);
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

// ---- Memory ----

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

// ---- Priority, deadlines, cancel ----

#[test]
fn b21_high_waits_at_most_for_one_running_partition() {
    simulate(config("sim:1;stage=25ms"), |engine| async move {
        let normal = submit_all(&engine, (2..22).map(|x| request("", &[x]))).await;
        engine.wait_ready().await.unwrap();
        tokio::time::sleep(Duration::from_millis(110)).await;
        let submitted = Instant::now();
        let mut high = engine.submit(with_priority(Priority::High, request("", &[30]))).await.unwrap();
        find(&mut high.events(), placed).await;
        assert!(submitted.elapsed() <= Duration::from_millis(250), "{:?}", submitted.elapsed());
        for job in normal {
            job.wait().await.unwrap();
        }
    });
}

#[test]
fn b22_critical_overtakes_a_running_high() {
    simulate(config("sim:1;stage=1000ms"), |engine| async move {
        let high = engine.submit(with_priority(Priority::High, request("", &[2]))).await.unwrap();
        let mut running = engine.submit(with_priority(Priority::Low, request("", &[4]))).await.unwrap();
        engine.wait_ready().await.unwrap();
        tokio::time::sleep(Duration::from_millis(1500)).await;
        let submitted = Instant::now();
        let critical = engine.submit(with_priority(Priority::Critical, request("", &[3]))).await.unwrap();
        critical.wait().await.unwrap();
        // Its own stages, and at most what was left of the one that ran.
        assert!(
            submitted.elapsed() <= Duration::from_secs(u64::from(NUM_STAGES) + 1),
            "{:?}",
            submitted.elapsed()
        );
        assert!(high.result().is_none());
        high.wait().await.unwrap();
        find(&mut running.events(), placed).await;
    });
}

#[test]
fn b25_cancel_is_defined_in_every_state_and_idempotent() {
    let stage = Duration::from_millis(100);
    simulate(config("sim:1;stage=100ms"), |engine| async move {
        let mut running = engine.submit(request("", &[2])).await.unwrap();
        find(&mut running.events(), |event| matches!(event, JobEvent::StageDone { .. }).then_some(())).await;
        let queued = engine.submit(request("", &[3])).await.unwrap();
        let mut next = engine.submit(request("", &[4])).await.unwrap();

        assert_eq!(queued.cancel().await.unwrap(), CancelOutcome::WasQueued);
        assert_eq!(queued.cancel().await.unwrap(), CancelOutcome::AlreadyEnded);
        assert!(matches!(queued.wait().await, Err(EngineError::Cancelled { .. })));

        let cancelled = Instant::now();
        assert_eq!(running.cancel().await.unwrap(), CancelOutcome::WasRunning);
        assert!(matches!(running.wait().await, Err(EngineError::Cancelled { .. })));
        find(&mut next.events(), placed).await;
        assert!(cancelled.elapsed() <= stage + Duration::from_millis(20), "{:?}", cancelled.elapsed());
        assert_eq!(running.cancel().await.unwrap(), CancelOutcome::AlreadyEnded);

        next.wait().await.unwrap();
        assert_eq!(next.cancel().await.unwrap(), CancelOutcome::AlreadyEnded);
        assert_eq!(engine.cancel(JobId(77)).await.unwrap(), CancelOutcome::Unknown);
        let status = engine.status();
        assert_eq!((status.totals.cancelled, status.host_memory_reserved_bytes), (2, 0));
    });
}

#[test]
fn b26_a_caller_that_goes_away_cancels_unless_another_waits() {
    simulate(config("sim:1;stage=600ms"), |engine| async move {
        let long = || request("again", &[2]);
        let first = engine.submit(long()).await.unwrap();
        let id = first.id();
        // Gives up after a second, before the five are over.
        let limited = tokio::time::timeout(Duration::from_secs(1), first.wait()).await;
        assert!(limited.is_err());
        drop(first);
        let retry = engine.submit(long()).await.unwrap();
        assert_ne!(retry.id(), id, "the first was cancelled");
        let also = engine.submit(long()).await.unwrap();
        assert!(also.is_attached() && also.id() == retry.id());
        drop(also);
        assert!(holds(&retry.wait().await.unwrap().proof, &[2]));
    });
}

#[test]
fn b27_critical_is_accepted_when_the_queue_is_full() {
    simulate(EngineConfig { max_queued_jobs: 64, ..config("sim:1;stage=10ms") }, |engine| async move {
        let normal = submit_all(&engine, (2..66).map(|x| request("", &[x]))).await;
        let error = engine.submit(with_priority(Priority::High, request("", &[70]))).await.unwrap_err();
        assert!(matches!(error, EngineError::Schedule(ScheduleError::QueueFull { jobs: 64, .. })), "{error}");
        let critical = engine.submit(with_priority(Priority::Critical, request("", &[70]))).await.unwrap();
        critical.wait().await.unwrap();
        let num_before = normal.iter().filter(|job| job.result().is_some()).count();
        assert!(num_before <= 1, "{num_before} went before it");
    });
}

#[test]
fn b29_expired_work_is_never_dispatched() {
    simulate(config("sim:1;stage=125ms"), |engine| async move {
        let long = engine.submit(request("", &[2])).await.unwrap();
        engine.wait_ready().await.unwrap();
        let deadline = Some(Duration::from_millis(100));
        let late = engine.submit(ProofRequest { deadline, ..request("", &[3]) }).await.unwrap();
        let begun = Instant::now();
        assert!(matches!(late.wait().await, Err(EngineError::DeadlineExceeded { .. })));
        assert!(begun.elapsed() <= Duration::from_millis(200), "{:?}", begun.elapsed());
        long.wait().await.unwrap();
        let totals = engine.status().totals;
        assert_eq!((totals.deadline_exceeded, totals.dispatched), (1, 1));
    });
}

// ---- Right answers ----

#[test]
fn b30_work_is_identified_by_id_kind_and_digest() {
    simulate(config("sim:2"), |engine| async move {
        let first = engine.submit(request("same", &[2, 3])).await.unwrap();
        let other = engine.submit(request("same", &[4, 5])).await.unwrap();
        let again = engine.submit(request("same", &[2, 3])).await.unwrap();
        let other_kind = of_kind(WorkKind::WindowPost, "same", &[2, 3]);
        let other_kind = engine.submit(other_kind).await.unwrap();
        assert_eq!(again.id(), first.id());
        assert_eq!(BTreeSet::from([first.id(), other.id(), other_kind.id()]).len(), 3);
        assert!(holds(&first.wait().await.unwrap().proof, &[2, 3]));
        assert!(holds(&other.wait().await.unwrap().proof, &[4, 5]));
        assert!(holds(&other_kind.wait().await.unwrap().proof, &[2, 3]));
        assert_eq!(again.wait().await.unwrap().proof, first.wait().await.unwrap().proof);

        // A finished result is served to whoever asks again, without device work.
        let dispatched = engine.status().totals.dispatched;
        let mut later = engine.submit(request("same", &[4, 5])).await.unwrap();
        assert_eq!(later.id(), other.id());
        assert_eq!(later.wait().await.unwrap().proof, other.wait().await.unwrap().proof);
        find(&mut later.events(), |event| matches!(event, JobEvent::Finished(Ok(_))).then_some(())).await;
        assert_eq!(engine.status().totals.dispatched, dispatched);
    });
}

#[test]
fn b31_no_job_vanishes_while_the_device_is_busy() {
    simulate(config("sim:1;stage=50ms"), |engine| async move {
        let xs: Vec<u64> = (2..10).collect();
        let mut busy = engine.submit(request("", &xs)).await.unwrap();
        find(&mut busy.events(), placed).await;
        let posts = submit_all(
            &engine,
            (0..5).map(|index| of_kind(WorkKind::WindowPost, &format!("post-{index}"), &[20 + index])),
        )
        .await;
        for (index, post) in posts.iter().enumerate() {
            assert!(holds(&post.wait().await.unwrap().proof, &[20 + index as u64]));
        }
        assert!(busy.result().is_none(), "HIGH went before the rest of NORMAL");
        assert!(holds(&busy.wait().await.unwrap().proof, &xs));
    });
}

#[test]
fn b32_a_proof_of_any_kind_is_verified_before_it_is_returned() {
    for kind in ALL_KINDS {
        simulate(config("sim:2;0:corrupt@*"), |engine| async move {
            let outcome = prove(&engine, of_kind(kind, "b32", &[2, 3, 4])).await.unwrap();
            assert!(holds(&outcome.proof, &[2, 3, 4]));
            assert_eq!(num_on(&outcome, 1), 3);
            assert!(outcome.retries >= 1 && engine.status().totals.invalid_proofs >= 1);
        });
    }
}

#[test]
fn b32_with_nothing_but_a_corrupting_device_the_job_fails() {
    for kind in ALL_KINDS {
        simulate(config("sim:1;0:corrupt@*"), |engine| async move {
            let error = prove(&engine, of_kind(kind, "b32", &[2])).await.unwrap_err();
            assert!(matches!(error, EngineError::Device(DeviceError::InvalidProof { .. })), "{error}");
            let totals = engine.status().totals;
            assert_eq!((totals.dispatched, totals.invalid_proofs, totals.completed), (3, 3, 0));
            assert_eq!(health_of(&engine, 0), "quarantined");
        });
    }
}

#[test]
fn b33_a_device_that_corrupts_is_found_and_left_out() {
    simulate(config("sim:2;0:corrupt@*"), |engine| async move {
        let jobs = submit_all(&engine, (2..22).map(|x| request("", &[x]))).await;
        for (job, x) in jobs.iter().zip(2..) {
            let outcome = job.wait().await.unwrap();
            assert!(holds(&outcome.proof, &[x]));
            assert_eq!(outcome.devices, [device(1)]);
        }
        assert_eq!(health_of(&engine, 0), "quarantined");
        assert_eq!(health_of(&engine, 1), "healthy");
        // Suspect after one, left out after two; a third may have been under way when the second was found out.
        let status = engine.status();
        assert!((2..=3).contains(&status.devices[0].invalid_proofs), "{:?}", status.devices);
        assert_eq!(status.totals.invalid_proofs, status.devices[0].invalid_proofs);
        // After its quarantine it is probed once.
        tokio::time::sleep(Duration::from_secs(61)).await;
        assert_eq!(health_of(&engine, 0), "probation");
    });
}

#[test]
fn b38_a_proving_key_of_another_circuit_is_refused_before_any_launch() {
    simulate(config("sim:1"), |engine| async move {
        let blank = Squares::blank(NUM_SQUARINGS + 1);
        let circuit = Squares { num_squarings: NUM_SQUARINGS + 1, ..Squares::of(2) };
        let inputs = circuit.public_inputs();
        let workload = CustomCircuit::new(
            CircuitId::new("more-squares"),
            SrsSource::Memory(srs()),
            blank,
            vec![(circuit, inputs)],
        );
        let request = ProofRequest::new(Payload::Workload(workload.into_workload()));
        let error = prove(&engine, request).await.unwrap_err();
        let EngineError::Srs { circuit, source: SrsError::Mismatch { .. } } = &error else {
            panic!("{error}")
        };
        assert_eq!(circuit.as_str(), "more-squares");
        assert_eq!(engine.status().totals.dispatched, 0);
    });
}

#[test]
fn b40_an_unsatisfied_witness_fails_before_device_work_naming_the_constraint() {
    simulate(config("sim:1"), |engine| async move {
        let broken = Squares { broken_at: Some(3), ..Squares::of(5) };
        let request = ProofRequest::new(Payload::Workload(workload(vec![Squares::of(2), broken])));
        let error = prove(&engine, request).await.unwrap_err();
        let EngineError::Synthesis { at, source } = &error else { panic!("{error}") };
        assert_eq!(at.partition, Some(PartitionIndex(1)));
        let num_constraints = NUM_SQUARINGS;
        assert_eq!(*source, SynthesisError::Unsatisfied { index: 3, num_constraints });
        // Partition 0 may have gone ahead; the broken one has not, and the engine goes on.
        assert!(engine.status().totals.dispatched <= 1);
        assert!(holds(&prove(&engine, squares::request("", &[6])).await.unwrap().proof, &[6]));
    });
}

#[test]
fn b61_the_reason_of_a_failure_reaches_the_caller() {
    simulate(config("sim:1"), |engine| async move {
        let panics = Squares { panics: true, ..Squares::of(2) };
        let error = prove(&engine, ProofRequest::new(Payload::Workload(workload(vec![panics])))).await;
        let error = error.unwrap_err();
        assert!(error.to_string().contains("this circuit panics on purpose"), "{error}");
        assert!(error.to_string().starts_with("job 0001 partition 0"), "{error}");

        let missing = CustomCircuit::new(
            CircuitId::new("nowhere"),
            SrsSource::File("/nowhere/at/all.params".into()),
            Squares::blank(NUM_SQUARINGS),
            vec![(Squares::of(2), Squares::of(2).public_inputs())],
        );
        let error = prove(&engine, ProofRequest::new(Payload::Workload(missing.into_workload()))).await;
        let error = error.unwrap_err();
        assert!(error.to_string().contains("/nowhere/at/all.params"), "{error}");

        let empty = ProofRequest::new(Payload::Filecoin(Box::new(FilecoinRequest::default())));
        let error = engine.submit(empty).await.unwrap_err();
        assert!(matches!(error, EngineError::Request(_)), "{error}");
        let none = ProofRequest::new(Payload::Workload(workload(Vec::new())));
        let error = engine.submit(none).await.unwrap_err();
        assert!(matches!(error, EngineError::Request(RequestError::Field { .. })), "{error}");

        let totals = engine.status().totals;
        assert_eq!((totals.accepted, totals.failed, totals.completed, totals.dispatched), (2, 2, 0, 0));
    });
}

// ---- Crash, hang ----

#[test]
fn b41_a_poisoned_context_is_rebuilt_and_its_work_moved() {
    simulate(config("sim:2;stage=10ms;0:sticky"), |engine| async move {
        engine.wait_ready().await.unwrap();
        let begun = Instant::now();
        let mut job = engine.submit(request("", &[2, 3])).await.unwrap();
        let mut events = job.events();
        find(&mut events, |event| matches!(event, JobEvent::PartitionRetried { .. }).then_some(())).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(health_of(&engine, 0), "degraded");
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
        while engine.status().devices[0].state != "gone" {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let error = engine.submit(request("", &[2])).await.unwrap_err();
        assert!(matches!(error, EngineError::Schedule(ScheduleError::NoDevice(_))), "{error}");
        assert!(engine.wait_ready().await.is_err());
        assert!(engine.status().reasons.iter().any(|reason| reason.contains("given up")));
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

// ---- Jobs of any kind, from the same small circuit ----

const ALL_KINDS: [WorkKind; 5] =
    [WorkKind::PorepC2, WorkKind::SnapUpdate, WorkKind::WindowPost, WorkKind::WinningPost, WorkKind::Custom];

/// A workload that says it is of another kind.
#[derive(Debug)]
struct OfKind {
    kind: WorkKind,
    workload: Arc<dyn Workload>,
}

fn of_kind(kind: WorkKind, request_id: &str, xs: &[u64]) -> ProofRequest {
    let workload = workload(xs.iter().map(|&x| Squares::of(x)).collect());
    let payload = Payload::Workload(Arc::new(OfKind { kind, workload }));
    ProofRequest { request_id: request_id.into(), ..ProofRequest::new(payload) }
}

impl Workload for OfKind {
    fn kind(&self) -> WorkKind {
        self.kind
    }

    fn circuit(&self) -> &CircuitId {
        self.workload.circuit()
    }

    fn num_partitions(&self) -> u32 {
        self.workload.num_partitions()
    }

    fn digest(&self) -> RequestDigest {
        self.workload.digest()
    }

    fn srs(&self) -> SrsSource {
        self.workload.srs()
    }

    fn record_shape(&self) -> Result<R1csShape, SynthesisError> {
        self.workload.record_shape()
    }

    fn synthesize(&self, partition: PartitionIndex, shape: &R1csShape) -> Result<Assignment, SynthesisError> {
        self.workload.synthesize(partition, shape)
    }

    fn public_inputs(&self, partition: PartitionIndex) -> Result<Vec<Scalar>, SynthesisError> {
        self.workload.public_inputs(partition)
    }
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
        let expected: Vec<Stage> = Stage::ALL.into_iter().filter(|stage| *stage != Stage::Evaluate).collect();
        assert_eq!(stages, expected);
    });
}
