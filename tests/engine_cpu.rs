//! The engine on the `cpu` device, as hosts use it: from plain threads, from tokio, from inside an actix system.
//!
//! One engine at a time: the thread counts are of the whole process.

#[path = "engine/gate.rs"]
mod gate;
#[path = "engine/squares.rs"]
mod squares;
#[path = "common/wrapped.rs"]
mod wrapped;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cuzk::actors::ArbiterLayout;
use cuzk::engine::{DeviceSpec, Engine, EngineConfig};
use cuzk::error::{EngineError, ErrorClass, ScheduleError};
use cuzk::ids::JobId;
use cuzk::messages::job::{BlindingSource, CancelOutcome, JobEvent, Priority, ProofRequest};
use futures_core::Stream;

use gate::Gate;
use squares::{holds, request};

const DRAIN: Duration = Duration::from_secs(60);

fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn config() -> EngineConfig {
    EngineConfig {
        devices: vec![DeviceSpec::Cpu { threads: 0, lanes: 2 }],
        synthesis_threads: 2,
        ..EngineConfig::default()
    }
}

fn engine() -> Engine {
    Engine::start(config()).unwrap()
}

/// Ids of this process's threads that an engine may have started: all but rayon's own, which live on.
fn engine_threads() -> BTreeSet<OsString> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let named = tasks.filter_map(|task| {
        let task = task.ok()?;
        Some((task.file_name(), std::fs::read_to_string(task.path().join("comm")).ok()?))
    });
    let named = named.filter(|(_, name)| name.starts_with("cuzk") || name.starts_with("actix"));
    named.map(|(id, _)| id).collect()
}

/// No engine thread is left but those of `before`. A thread that was joined stands in `/proc` for a moment longer: the kernel
/// wakes who joins it before it takes the entry away.
fn assert_joined(before: &BTreeSet<OsString>) {
    let since = Instant::now();
    while engine_threads().difference(before).next().is_some() {
        assert!(since.elapsed() < Duration::from_secs(1), "{:?} beside {before:?}", engine_threads());
        std::thread::yield_now();
    }
}

#[test]
fn proves_from_a_plain_thread_and_reports_every_step() {
    let _alone = alone();
    let engine = engine();
    engine.wait_ready_blocking().unwrap();
    let mut job = engine.submit_blocking(request("steps", &[3, 4, 5])).unwrap();
    let events: Vec<JobEvent> = job.events().blocking_iter().collect();
    let outcome = job.wait_blocking().unwrap();
    assert!(holds(&outcome.proof, &[3, 4, 5]));
    assert_eq!(outcome.devices.len(), 3);
    assert_eq!(outcome.retries, 0);
    assert!(!outcome.timings.stages.is_empty() && outcome.timings.total > Duration::ZERO);

    assert!(matches!(events.first(), Some(JobEvent::Accepted { num_partitions: 3, .. })));
    assert!(matches!(events.last(), Some(JobEvent::Finished(Ok(_)))));
    let count = |wanted: fn(&JobEvent) -> bool| events.iter().filter(|event| wanted(event)).count();
    assert_eq!(count(|event| matches!(event, JobEvent::WitnessReady { .. })), 3);
    assert_eq!(count(|event| matches!(event, JobEvent::Placed { .. })), 3);
    assert_eq!(count(|event| matches!(event, JobEvent::PartitionVerified { .. })), 3);
    assert_eq!(count(|event| matches!(event, JobEvent::CircuitReady { .. })), 1);
    assert!(count(|event| matches!(event, JobEvent::StageDone { .. })) >= 3 * 7);

    let status = engine.status();
    assert!(status.ready, "{:?}", status.reasons);
    assert_eq!((status.totals.completed, status.totals.dispatched), (1, 3));
    assert_eq!(status.host_memory_reserved_bytes, 0);
    engine.shutdown_blocking(DRAIN);
}

#[test]
fn proves_from_tokio_on_several_threads() {
    let _alone = alone();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let engine = engine();
        let tasks: Vec<_> = (0..8u64)
            .map(|x| {
                let engine = engine.clone();
                tokio::spawn(async move {
                    let job = engine.submit(request("", &[x + 2])).await.unwrap();
                    assert!(holds(&job.wait().await.unwrap().proof, &[x + 2]));
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        engine.shutdown(DRAIN).await;
    });
}

#[test]
fn events_are_a_stream_which_ends_after_the_last() {
    let _alone = alone();
    let engine = engine();
    let mut job = engine.submit_blocking(request("stream", &[3, 4])).unwrap();
    let (mut stream, mut again) = (job.events(), job.events());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let events = runtime.block_on(async {
        let mut events = Vec::new();
        while let Some(event) = poll_fn(|context| Pin::new(&mut stream).poll_next(context)).await {
            events.push(event);
        }
        assert!(poll_fn(|context| Pin::new(&mut again).poll_next(context)).await.is_none(), "taken before");
        events
    });
    assert!(matches!(events.first(), Some(JobEvent::Accepted { num_partitions: 2, .. })), "{events:?}");
    assert!(matches!(events.last(), Some(JobEvent::Finished(Ok(_)))), "{events:?}");
    let is_verified = |event: &&JobEvent| matches!(event, JobEvent::PartitionVerified { .. });
    assert_eq!(events.iter().filter(is_verified).count(), 2);
}

#[test]
fn proves_from_inside_an_actix_system() {
    let _alone = alone();
    actix::System::new().block_on(async {
        let engine = engine();
        let job = engine.submit(request("", &[9])).await.unwrap();
        assert!(holds(&job.wait().await.unwrap().proof, &[9]));
        engine.shutdown(DRAIN).await;
    });
}

/// The layout of simulations, with real work on other threads.
#[test]
fn proves_on_a_single_arbiter() {
    let _alone = alone();
    let engine =
        Engine::start(EngineConfig { arbiter_layout: ArbiterLayout::SingleThread, ..config() }).unwrap();
    let job = engine.submit_blocking(request("", &[2])).unwrap();
    assert!(holds(&job.wait_blocking().unwrap().proof, &[2]));
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let _alone = alone();
    let engine = engine();
    let seeded = |id: &str, seed: u8| ProofRequest {
        blinding: BlindingSource::Seeded([seed; 32]),
        ..request(id, &[6, 7])
    };
    let prove = |request: ProofRequest| engine.submit_blocking(request).unwrap().wait_blocking().unwrap();
    let (first, again) = (prove(seeded("a", 1)), prove(seeded("b", 1)));
    assert_ne!(first.job, again.job);
    assert_eq!(first.proof, again.proof);
    assert_ne!(first.proof, prove(seeded("a", 2)).proof);
    assert_ne!(first.proof[..192], first.proof[192..], "each partition has blinding values of its own");
}

/// B26.
#[test]
fn b26_dropping_the_last_handle_cancels() {
    let _alone = alone();
    let engine = engine();
    let gate = Gate::default();
    let job = engine.submit_blocking(gate.before(request("dropped", &[2, 3]))).unwrap();
    let other = engine.submit_blocking(gate.before(request("dropped", &[2, 3]))).unwrap();
    assert!(other.is_attached());
    let id = job.id();
    drop(job);
    // This question is behind the drop's message: the job still runs, for the other caller.
    assert_eq!(engine.cancel_blocking(JobId(u64::MAX)).unwrap(), CancelOutcome::Unknown);
    assert!(other.result().is_none());
    drop(other);
    assert_eq!(engine.cancel_blocking(id).unwrap(), CancelOutcome::AlreadyEnded);
    assert_eq!(engine.status().totals.cancelled, 1);
    gate.open();

    // Its retry is clean.
    let job = engine.submit_blocking(request("dropped", &[2, 3])).unwrap();
    assert!(holds(&job.wait_blocking().unwrap().proof, &[2, 3]));
}

#[test]
fn a_detached_job_goes_on_and_is_found_again() {
    let _alone = alone();
    let engine = engine();
    let id = engine.submit_blocking(request("kept", &[5])).unwrap().detach();
    let job = engine.submit_blocking(request("kept", &[5])).unwrap();
    assert!(job.is_attached());
    assert_eq!(job.id(), id);
    assert!(holds(&job.wait_blocking().unwrap().proof, &[5]));
}

#[test]
fn shutdown_finishes_accepted_jobs_refuses_new_ones_and_joins_every_thread() {
    let _alone = alone();
    drop(engine());
    let before = engine_threads();
    let engine = engine();
    let xs: Vec<u64> = (2..40).collect();
    let job = engine.submit_blocking(request("", &xs)).unwrap();
    assert!(engine_threads().difference(&before).next().is_some());
    let other = engine.clone();
    let stopper = std::thread::spawn(move || other.shutdown_blocking(DRAIN));
    assert!(holds(&job.wait_blocking().unwrap().proof, &xs));
    stopper.join().unwrap();
    assert_joined(&before);
    let refused = engine.submit_blocking(request("", &[2])).unwrap_err();
    assert!(matches!(refused, EngineError::Schedule(ScheduleError::Draining)), "{refused}");
    engine.shutdown_blocking(DRAIN);
}

#[test]
fn dropping_the_engine_ends_detached_jobs_and_joins_every_thread() {
    let _alone = alone();
    let before = engine_threads();
    let engine = engine();
    let many: Vec<u64> = (2..500).collect();
    engine.submit_blocking(request("", &many)).unwrap().detach();
    drop(engine);
    assert_joined(&before);
}

#[test]
fn a_drain_that_takes_too_long_answers_with_draining() {
    let _alone = alone();
    let engine = engine();
    let gate = Gate::default();
    let job = engine.submit_blocking(gate.before(request("", &[2]))).unwrap();
    let other = engine.clone();
    let stopper = std::thread::spawn(move || other.shutdown_blocking(Duration::ZERO));
    let error = job.wait_blocking().unwrap_err();
    assert!(matches!(error, EngineError::Schedule(ScheduleError::Draining)), "{error}");
    // It joins the thread that is at the gate.
    gate.open();
    stopper.join().unwrap();
}

#[test]
fn contradictory_configurations_are_refused() {
    let _alone = alone();
    let twice = EngineConfig {
        devices: vec![DeviceSpec::Cpu { threads: 0, lanes: 1 }, DeviceSpec::Cpu { threads: 0, lanes: 1 }],
        ..EngineConfig::default()
    };
    assert!(matches!(Engine::start(twice), Err(EngineError::Config(_))));
    let never = EngineConfig { max_attempts: 0, ..EngineConfig::default() };
    assert!(matches!(Engine::start(never), Err(EngineError::Config(_))));
}

/// B34.
#[test]
fn b34_sixteen_threads_with_twenty_witnesses_each() {
    let _alone = alone();
    let engine = Engine::start(EngineConfig { max_queued_jobs: 320, ..config() }).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..16u64 {
            let engine = engine.clone();
            scope.spawn(move || {
                for index in 0..20 {
                    let x = 2 + 20 * thread + index;
                    // All under one request id: only the inputs differ.
                    let job = engine.submit_blocking(request("shared", &[x])).unwrap();
                    assert!(holds(&job.wait_blocking().unwrap().proof, &[x]), "witness {x}");
                }
            });
        }
    });
    let totals = engine.status().totals;
    assert_eq!((totals.accepted, totals.completed, totals.attached), (320, 320, 0));
}

/// The default priority is the kind's; a host may say another.
#[test]
fn a_full_queue_refuses_with_a_retryable_error_but_never_critical_work() {
    let _alone = alone();
    let engine = Engine::start(EngineConfig { max_queued_jobs: 1, ..config() }).unwrap();
    // It takes one of two threads for witnesses, and the only place of the queue.
    let gate = Gate::default();
    let first = engine.submit_blocking(gate.before(request("", &[3]))).unwrap();
    let refused = engine.submit_blocking(request("", &[2])).unwrap_err();
    assert!(
        matches!(refused, EngineError::Schedule(ScheduleError::QueueFull { jobs: 1, limit: 1 })),
        "{refused}"
    );
    assert_eq!(refused.class(), ErrorClass::Retry);
    let critical = ProofRequest { priority: Some(Priority::Critical), ..request("", &[2]) };
    let critical = engine.submit_blocking(critical).unwrap();
    assert!(holds(&critical.wait_blocking().unwrap().proof, &[2]));
    assert!(first.result().is_none(), "the critical one went first");
    gate.open();
    assert!(holds(&first.wait_blocking().unwrap().proof, &[3]));
}

/// B50.
#[test]
fn b50_many_calls_at_once_and_status_never_waits_for_proving() {
    let _alone = alone();
    let engine = engine();
    engine.wait_ready_blocking().unwrap();
    let left = AtomicUsize::new(32);
    let slowest = std::thread::scope(|scope| {
        for x in 2..34u64 {
            let (engine, left) = (engine.clone(), &left);
            scope.spawn(move || {
                let job = engine.submit_blocking(request("", &[x, x + 100]));
                assert!(holds(&job.unwrap().wait_blocking().unwrap().proof, &[x, x + 100]));
                left.fetch_sub(1, Ordering::AcqRel);
            });
        }
        let (mut slowest, mut num_asked) = (Duration::ZERO, 0);
        while left.load(Ordering::Acquire) > 0 {
            let begun = Instant::now();
            let status = engine.status();
            slowest = slowest.max(begun.elapsed());
            num_asked += 1;
            assert!(status.jobs.len() <= 32);
            std::thread::yield_now();
        }
        println!("status was asked {num_asked} times, the slowest answer took {slowest:?}");
        slowest
    });
    assert!(slowest < Duration::from_millis(50), "{slowest:?}");
    assert_eq!(engine.status().totals.completed, 32);
}
