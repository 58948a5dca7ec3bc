//! An engine with a journal whose Scheduler dies: the next process goes on where it was.

use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cuzk::actors::synthesizer::host::{HostTask, HostWork, RealHost};
use cuzk::actors::synthesizer::SynthesizerConfig;
use cuzk::circuits::{WorkDecoder, Workload};
use cuzk::engine::{Deadlines, Engine, EngineConfig, Workers};
use cuzk::error::{EngineError, ErrorClass, RequestError, ScheduleError};
use cuzk::journal::{Medium, MemoryDisk};
use cuzk::messages::events::{Event, EventConsumer, EventKind, EventSink};
use cuzk::messages::synthesis::SynthesizerPeers;

use crate::encoded::{encoded, SquaresDecoder, FORMAT};
use crate::engine::{contents, with_medium};
use crate::simulation::{simulate, submit_all};
use crate::squares::holds;

/// Panics in whoever tells it of the first verdict: the Scheduler.
struct Fatal;

impl EventConsumer for Fatal {
    fn consume(&self, event: Event) {
        let is_verified = matches!(event.kind, EventKind::PartitionVerified { .. });
        assert!(!is_verified, "the scheduler is to die of this, on purpose");
    }
}

fn on_disk(disk: &MemoryDisk) -> EngineConfig {
    with_medium("sim:1;stage=50ms", Medium::Backend(Arc::new(disk.clone())))
}

/// The journals of processes that were killed one after the other: each had the first job, `a`, in hand, and was given
/// another.
fn killed(num_kills: usize) -> Vec<MemoryDisk> {
    let mut left = vec![MemoryDisk::default()];
    for (name, x) in ["a", "b", "c"].into_iter().zip(2..).take(num_kills) {
        let disk = left[left.len() - 1].fork();
        left.push(simulate(on_disk(&disk.clone()), |engine| async move {
            let _job = engine.submit(encoded(name, &[x])).await.unwrap();
            disk.fork()
        }));
    }
    left.split_off(1)
}

/// This machine, whose witnesses kill whoever orders them.
struct Deadly(RealHost);

impl HostWork for Deadly {
    fn run(&self, task: HostTask, peers: &SynthesizerPeers) {
        self.0.run(task, peers);
    }

    fn duration(&self, task: &HostTask) -> Duration {
        assert!(!matches!(task, HostTask::Witness(_)), "the synthesizer is to die of this, on purpose");
        Duration::ZERO
    }
}

#[test]
fn b47_b49_who_waits_for_a_job_that_is_held_back_is_told_when_nobody_is_left_to_decode_it() {
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
    let disk = killed(2).pop().unwrap();
    let workers = Workers::Simulated(Arc::new(Deadly(host)));
    simulate(EngineConfig { workers, ..on_disk(&disk) }, |engine| async move {
        let a = &engine.recovered()[0];
        assert_eq!((a.request_id.as_str(), a.process_ends), ("a", 2));
        // `b` is proved before it, of which the Synthesizer dies until it is given up.
        let attached = tokio::time::timeout(Duration::from_secs(86_400), engine.attach(a.job)).await;
        let error = attached.expect("nobody waits for ever").unwrap_err();
        assert!(matches!(error, EngineError::Schedule(ScheduleError::NoSynthesizer(_))), "{error}");
        engine.wait_fatal().await.unwrap();
    });
}

/// Says that it is there, and decodes once it is let.
#[derive(Debug)]
struct Gated {
    inner: Arc<dyn WorkDecoder>,
    is_there: Mutex<Sender<()>>,
    go_on: Mutex<Receiver<()>>,
}

impl WorkDecoder for Gated {
    fn format(&self) -> &str {
        FORMAT
    }

    fn decode(&self, bytes: &[u8]) -> Result<Arc<dyn Workload>, RequestError> {
        self.is_there.lock().unwrap().send(()).unwrap();
        // An error: nobody holds it back any more.
        let _ = self.go_on.lock().unwrap().recv();
        self.inner.decode(bytes)
    }
}

#[test]
fn b49_a_job_that_is_still_being_decoded_is_waited_for_until_a_deadline() {
    // Held back after the second kill, and decoded at once after the first.
    for (disk, num_kills) in killed(2).into_iter().zip(1..) {
        let (is_there, there) = channel();
        let (go_on, waits) = channel();
        let decoder =
            Gated { inner: SquaresDecoder::small(), is_there: is_there.into(), go_on: waits.into() };
        let deadlines = Deadlines { recovery: Duration::from_millis(20), ..Deadlines::default() };
        let decoders: Vec<Arc<dyn WorkDecoder>> = vec![Arc::new(decoder)];
        let config = EngineConfig { synthesis_threads: 1, deadlines, decoders, ..on_disk(&disk) };
        let engine = Engine::start(config).unwrap();
        // Before the engine, whose threads are joined then, however this ends.
        let go_on = go_on;
        let recovered = engine.recovered();
        let a = recovered.iter().find(|job| job.request_id == "a").unwrap();
        assert_eq!(a.process_ends, num_kills);
        if num_kills == 2 {
            // The other one goes first.
            there.recv().unwrap();
            go_on.send(()).unwrap();
        }
        there.recv().unwrap();
        let answer = |error: EngineError| {
            assert!(matches!(error, EngineError::NoAnswer { limit_ms: 20, .. }), "{error}");
            assert_eq!(error.class(), ErrorClass::Retry);
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        answer(runtime.block_on(engine.attach(a.job)).unwrap_err());
        if num_kills == 1 {
            answer(runtime.block_on(engine.wait_recovered()).unwrap_err());
        }
        go_on.send(()).unwrap();
        engine.wait_status_blocking(|status| status.totals.recovered == u64::from(num_kills)).unwrap();
        let attached = runtime.block_on(engine.attach(a.job)).unwrap().expect("it is known");
        assert!(holds(&attached.wait_blocking().unwrap().proof, &[2]));
        drop((attached, go_on));
        engine.shutdown_blocking(Duration::from_secs(60));
    }
}

#[test]
fn b47_b49_jobs_of_a_scheduler_that_died_are_proved_by_the_next_process() {
    let disk = MemoryDisk::default();
    let dying = EngineConfig { events: EventSink::to(Fatal), ..on_disk(&disk) };
    simulate(dying, |engine| async move {
        let requests = ["a", "b", "c"].iter().zip(2..).map(|(id, x)| encoded(id, &[x]));
        let jobs = submit_all(&engine, requests).await;
        for job in &jobs {
            assert!(job.is_durable());
            let error = job.wait().await.unwrap_err();
            assert!(matches!(error, EngineError::Schedule(ScheduleError::Stopped)), "{error}");
            assert_eq!(error.class(), ErrorClass::Retry);
        }
        let error = engine.submit(encoded("late", &[9])).await.unwrap_err();
        assert!(matches!(error, EngineError::Schedule(ScheduleError::Stopped)), "{error}");
    });
    assert_eq!(contents(&disk).jobs.len(), 3, "nobody ended them, and nobody forgot them");
    simulate(on_disk(&disk), |engine| async move {
        for (job, x) in engine.recovered().iter().zip(2..) {
            let attached = engine.attach(job.job).await.unwrap().expect("it is known");
            assert!(holds(&attached.wait().await.unwrap().proof, &[x]));
        }
        assert_eq!((engine.recovered().len(), engine.status().totals.completed), (3, 3));
    });
}
