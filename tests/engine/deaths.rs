//! Actors that die, and work that does its best to take a thread with it.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::sync::Arc;
use std::time::Duration;

use cuzk::actors::synthesizer::host::{HostTask, HostWork, RealHost};
use cuzk::actors::synthesizer::SynthesizerConfig;
use cuzk::circuits::Workload;
use cuzk::engine::{Deadlines, Engine, EngineConfig, JobHandle, Preload, Workers};
use cuzk::error::{EngineError, ErrorClass, ScheduleError, SynthesisError};
use cuzk::groth16::{PackedWitness, R1csShape};
use cuzk::ids::{CircuitId, JobId, PartitionIndex};
use cuzk::messages::events::{Event, EventConsumer, EventKind, EventSink};
use cuzk::messages::job::{Payload, ProofRequest};
use cuzk::messages::status::EngineStatus;
use cuzk::messages::synthesis::SynthesizerPeers;
use tokio::time::Instant;

use crate::common::wrapped::{wrapped, Wrapper};
use crate::simulation::{config, prove, simulate, submit_all};
use crate::squares::{holds, request, workload, Squares};

/// A panic that panics again when it is dropped, so many times.
struct Bomb(u32);

impl Drop for Bomb {
    fn drop(&mut self) {
        if self.0 > 0 {
            std::panic::panic_any(Bomb(self.0 - 1));
        }
        panic!("the payload of this panic panics on purpose");
    }
}

/// A circuit whose witness panics with a [`Bomb`].
#[derive(Debug)]
struct Deadly {
    workload: Arc<dyn Workload>,
    depth: u32,
}

impl Wrapper for Deadly {
    fn inner(&self) -> &dyn Workload {
        self.workload.as_ref()
    }

    fn synthesize(&self, _: PartitionIndex, _: &R1csShape) -> Result<PackedWitness, SynthesisError> {
        std::panic::panic_any(Bomb(self.depth));
    }
}

fn deadly(x: u64, depth: u32) -> ProofRequest {
    let workload = workload(vec![Squares::of(x)]);
    ProofRequest::new(Payload::Workload(wrapped(Deadly { workload, depth })))
}

/// More of them than there are threads: if each cost one, nobody would be left for the rest.
#[test]
fn b47_panics_whose_payload_panics_fail_their_own_jobs_and_cost_no_thread() {
    let config = EngineConfig { synthesis_threads: 2, ..config("sim:1;stage=1ms") };
    let engine = Engine::start(config).unwrap();
    let submit = |request| engine.submit_blocking(request).unwrap();
    let deadly: Vec<JobHandle> = (0..9).map(|index| submit(deadly(100 + index, index as u32 % 3))).collect();
    let jobs: Vec<JobHandle> = (2..8).map(|x| submit(request("", &[x]))).collect();
    for job in deadly {
        let error = job.wait_blocking().unwrap_err();
        let is_panic = matches!(&error, EngineError::Synthesis { source: SynthesisError::Panicked(what), .. } if what == "no message");
        assert!(is_panic, "{error}");
    }
    for (job, x) in jobs.iter().zip(2..) {
        assert!(holds(&job.wait_blocking().unwrap().proof, &[x]));
    }
    let is_idle = |status: &EngineStatus| status.jobs.is_empty() && status.host_memory_reserved_bytes == 0;
    engine.wait_status_blocking(is_idle).unwrap();
    drop(jobs);
    engine.shutdown_blocking(Duration::from_secs(60));
}

/// This machine, with tasks that kill.
struct Mined {
    host: RealHost,
    /// Witnesses whose ordering panics in the Synthesizer itself.
    deadly_orders: AtomicU32,
    /// Witnesses whose making panics where nothing is caught.
    deadly_runs: AtomicU32,
}

/// Takes one of them, if there is one left.
fn take(count: &AtomicU32) -> bool {
    count.fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| count.checked_sub(1)).is_ok()
}

impl HostWork for Mined {
    fn run(&self, task: HostTask, peers: &SynthesizerPeers) {
        if matches!(task, HostTask::Witness(_)) && take(&self.deadly_runs) {
            std::panic::panic_any(Bomb(2));
        }
        self.host.run(task, peers);
    }

    fn duration(&self, task: &HostTask) -> Duration {
        let is_deadly = matches!(task, HostTask::Witness(_)) && take(&self.deadly_orders);
        assert!(!is_deadly, "the synthesizer is to die of this, on purpose");
        Duration::ZERO
    }
}

fn mined(deadly_orders: u32, deadly_runs: u32) -> EngineConfig {
    let host = RealHost {
        config: SynthesizerConfig {
            params_dir: "params".into(),
            shape_cache_dir: None,
            verdict_dir: None,
            fold_limit_bytes: None,
            decoders: Vec::new(),
            max_waiting_decodes: 4,
        },
    };
    let (deadly_orders, deadly_runs) = (deadly_orders.into(), deadly_runs.into());
    let workers = Workers::Simulated(Arc::new(Mined { host, deadly_orders, deadly_runs }));
    EngineConfig { workers, ..config("sim:1;stage=10ms") }
}

#[test]
fn b47_a_task_that_unwinds_is_answered_for() {
    simulate(mined(0, 1), |engine| async move {
        let error = prove(&engine, request("", &[2])).await.unwrap_err();
        let is_panic = matches!(&error, EngineError::Synthesis { source: SynthesisError::Panicked(_), .. });
        assert!(is_panic, "{error}");
        assert!(holds(&prove(&engine, request("", &[3])).await.unwrap().proof, &[3]));
        assert_eq!(engine.status().host_memory_reserved_bytes, 0);
    });
}

#[test]
fn b47_a_synthesizer_that_dies_is_rebuilt_and_loses_no_job() {
    simulate(mined(2, 0), |engine| async move {
        let jobs = submit_all(&engine, (2..8).map(|x| request("", &[x, x + 10]))).await;
        for (job, x) in jobs.iter().zip(2..) {
            assert!(holds(&job.wait().await.unwrap().proof, &[x, x + 10]));
        }
        let status = engine.status();
        assert_eq!((status.totals.completed, status.host_memory_reserved_bytes), (6, 0));
    });
}

/// Quarantined after its third restart, and then fine: the job waits for it.
#[test]
fn b47_a_synthesizer_that_dies_too_often_is_left_alone_for_a_while() {
    simulate(mined(4, 0), |engine| async move {
        let begun = Instant::now();
        let job = engine.submit(request("", &[2])).await.unwrap();
        let is_down =
            |reason: &String| reason.contains("synthesizer is out of service: it died more than 3 times");
        let status = engine.wait_status(|status| status.reasons.iter().any(is_down)).await.unwrap();
        assert!(!status.ready && status.fatal.is_none());
        // Nobody is there to decode: to be tried again, and no defect.
        let error = engine.submit(ProofRequest::new(Payload::Filecoin(Box::default()))).await.unwrap_err();
        assert!(matches!(error, EngineError::Schedule(ScheduleError::NoSynthesizer(_))), "{error}");
        assert_eq!(error.class(), ErrorClass::Retry);
        assert!(holds(&job.wait().await.unwrap().proof, &[2]));
        assert!(begun.elapsed() >= Duration::from_secs(60), "{:?}", begun.elapsed());
        engine.wait_ready().await.unwrap();
    });
}

#[test]
fn b47_a_synthesizer_that_never_lives_is_given_up_and_jobs_say_why() {
    simulate(mined(u32::MAX, 0), |engine| async move {
        let error = prove(&engine, request("", &[2])).await.unwrap_err();
        assert!(matches!(error, EngineError::Schedule(ScheduleError::NoSynthesizer(_))), "{error}");
        let error = engine.submit(request("", &[3])).await.unwrap_err();
        assert!(matches!(error, EngineError::Schedule(ScheduleError::NoSynthesizer(_))), "{error}");
        // What ends a daemon.
        let reason = engine.wait_fatal().await.unwrap();
        assert!(reason.contains("the synthesizer was given up: it died more than 3 times"), "{reason}");
        assert!(engine.wait_ready().await.is_err());
        let status = engine.status();
        assert_eq!((status.totals.failed, status.host_memory_reserved_bytes), (1, 0));
    });
}

/// Panics in whoever tells it of the first verdict: the Scheduler. It lives as long as any actor does.
struct Fatal {
    _alive: Arc<()>,
}

impl EventConsumer for Fatal {
    fn consume(&self, event: Event) {
        let is_verified = matches!(event.kind, EventKind::PartitionVerified { .. });
        assert!(!is_verified, "the scheduler is to die of this, on purpose");
    }
}

fn is_stopped(error: &EngineError) -> bool {
    matches!(error, EngineError::Schedule(ScheduleError::Stopped))
}

/// Nothing can be asked of it any more, and nobody waits for ever.
async fn is_dead(engine: &Engine) {
    assert!(is_stopped(&engine.submit(request("", &[9])).await.unwrap_err()));
    assert!(is_stopped(&engine.cancel(JobId(1)).await.unwrap_err()));
    assert!(is_stopped(&engine.find("job-1").await.unwrap_err()));
    assert!(engine.attach(JobId(1)).await.is_err_and(|error| is_stopped(&error)));
    let preload = Preload::new(workload(vec![Squares::of(2)]));
    assert!(is_stopped(&engine.preload(preload).await.unwrap_err()));
    assert!(is_stopped(&engine.evict(&CircuitId::new("squares")).await.unwrap_err()));
    assert!(is_stopped(&engine.wait_ready().await.unwrap_err()));
    // What ends a daemon.
    assert!(is_stopped(&engine.wait_fatal().await.unwrap_err()));
}

#[test]
fn b47_a_scheduler_that_dies_answers_everybody_and_ends_the_engine() {
    let alive = Arc::new(());
    let events = EventSink::to(Fatal { _alive: Arc::clone(&alive) });
    simulate(EngineConfig { events, ..config("sim:2;stage=10ms") }, |engine| async move {
        let mut jobs = submit_all(&engine, (2..5).map(|x| request("", &[x]))).await;
        let mut events = jobs[0].events();
        for job in &jobs {
            let error = job.wait().await.unwrap_err();
            assert!(is_stopped(&error), "{error}");
            assert_eq!(error.class(), ErrorClass::Retry);
        }
        while events.next().await.is_some() {}
        is_dead(&engine).await;
    });
    assert_eq!(Arc::strong_count(&alive), 1, "every actor is gone");
}

/// The same where the actors have threads: they are joined without anybody asking for it.
#[test]
fn b47_on_real_threads_a_dead_schedulers_engine_joins_them_all() {
    let alive = Arc::new(());
    let events = EventSink::to(Fatal { _alive: Arc::clone(&alive) });
    let config = EngineConfig { synthesis_threads: 2, events, ..config("sim:2;stage=1ms") };
    let engine = Engine::start(config).unwrap();
    let job = engine.submit_blocking(request("", &[2])).unwrap();
    let error = job.wait_blocking().unwrap_err();
    assert!(is_stopped(&error), "{error}");
    assert!(is_stopped(&engine.wait_status_blocking(|_| false).unwrap_err()));
    assert!(!engine.readiness().ready, "what was last published is not true any more");
    drop(job);
    engine.shutdown_blocking(Duration::ZERO);
    drop(engine);
    assert_eq!(Arc::strong_count(&alive), 1, "every actor is gone");
}

/// Holds the Scheduler up over the first job that it accepts, until it is let go.
struct Stuck {
    is_stuck: Arc<AtomicBool>,
    go_on: std::sync::Mutex<std::sync::mpsc::Receiver<()>>,
}

impl EventConsumer for Stuck {
    fn consume(&self, event: Event) {
        let is_accepted = matches!(event.kind, EventKind::JobAccepted { .. });
        if is_accepted && !self.is_stuck.swap(true, Ordering::AcqRel) {
            self.go_on.lock().unwrap().recv().unwrap();
        }
    }
}

#[test]
fn an_actor_that_does_not_answer_is_waited_for_no_longer_than_its_deadline() {
    let (go_on, waits) = channel();
    let is_stuck = Arc::new(AtomicBool::new(false));
    let events = EventSink::to(Stuck { is_stuck: Arc::clone(&is_stuck), go_on: waits.into() });
    let deadlines = Deadlines { answer: Duration::from_millis(20), ..Deadlines::default() };
    let config = EngineConfig { synthesis_threads: 1, deadlines, events, ..config("sim:1;stage=1ms") };
    let engine = Engine::start(config).unwrap();
    let is_not_answered = || {
        let error = engine.submit_blocking(request("", &[2])).unwrap_err();
        assert!(matches!(error, EngineError::NoAnswer { asked: "submit a job", limit_ms: 20 }), "{error}");
        assert_eq!(error.class(), ErrorClass::Retry);
    };
    // On a machine with other things to do a thread may take longer than that to begin with any.
    while !is_stuck.load(Ordering::Acquire) {
        is_not_answered();
    }
    is_not_answered();
    let error = engine.cancel_blocking(JobId(1)).unwrap_err();
    assert!(matches!(error, EngineError::NoAnswer { .. }), "{error}");
    go_on.send(()).unwrap();
    // The engine is as it was: what was not begun was not done, and of what was begun nobody is left who wants it.
    let status = engine
        .wait_status_blocking(|status| status.ready && status.totals.accepted > 0 && status.jobs.is_empty())
        .unwrap();
    assert_eq!(status.totals.accepted, 1);
    engine.shutdown_blocking(Duration::from_secs(60));
}

#[test]
fn a_preload_that_takes_too_long_says_so_and_goes_on() {
    let deadlines = Deadlines { preload: Duration::from_secs(1), ..Deadlines::default() };
    let config = EngineConfig { deadlines, ..config("sim:1;stage=2s") };
    simulate(config, |engine| async move {
        engine.wait_ready().await.unwrap();
        let what = Preload { on_devices: true, ..Preload::new(workload(vec![Squares::of(2)])) };
        let error = engine.preload(what).await.unwrap_err();
        assert!(matches!(error, EngineError::NoAnswer { limit_ms: 1000, .. }), "{error}");
        let has_it = |status: &EngineStatus| !status.devices[0].resident_srs.is_empty();
        engine.wait_status(has_it).await.unwrap();
    });
}
