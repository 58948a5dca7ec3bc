//! The engine under load: status while ten thousand jobs wait, what a partition costs the scheduler, memory that stays
//! flat, CRITICAL work over a full backlog.

mod common;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crossbeam_channel::{bounded, RecvTimeoutError};
use cuzk::actors::gpu_device::DeviceConfig;
use cuzk::actors::{ArbiterLayout, Pace};
use cuzk::circuits::WorkKind;
use cuzk::engine::{Engine, EngineConfig};
use cuzk::messages::events::EventSink;
use cuzk::messages::job::ProofRequest;
use cuzk::simulation::{simulate, Arrivals, Options, Scenario};
use cuzk::telemetry::process::resident_bytes;

use crate::common::load::{machine, overhead};
use crate::common::on_paused_arbiter;

const NUM_CALLERS: usize = 1_000;
const JOBS_PER_CALLER: usize = 10;

/// What somebody saw who asked for the status all the while.
#[derive(Debug, Default)]
struct Seen {
    slowest: Duration,
    most_jobs: usize,
    /// How old a status was at most, when it was read.
    stalest: Duration,
}

/// `JOBS_PER_CALLER` jobs by each of `NUM_CALLERS` threads, each of which waits for all of its own.
fn wave(engine: &Engine, request: &ProofRequest, started: Instant) -> Seen {
    let (done_sender, done) = bounded::<()>(0);
    let num_proved = Arc::new(Mutex::new(0));
    let callers: Vec<_> = (0..NUM_CALLERS)
        .map(|_| {
            let (engine, request, done) = (engine.clone(), request.clone(), done_sender.clone());
            let num_proved = Arc::clone(&num_proved);
            let call = move || {
                let submit = |_| engine.submit_blocking(request.clone()).expect("the queue has room");
                let jobs: Vec<_> = (0..JOBS_PER_CALLER).map(submit).collect();
                jobs.iter().for_each(|job| drop(job.wait_blocking().expect("nothing fails")));
                *num_proved.lock().unwrap() += jobs.len();
                drop(done);
            };
            std::thread::Builder::new().stack_size(256 << 10).spawn(call).unwrap()
        })
        .collect();
    drop(done_sender);
    let mut seen = Seen::default();
    // Nothing is ever sent: the channel ends with the last caller.
    while done.recv_timeout(Duration::from_millis(2)) == Err(RecvTimeoutError::Timeout) {
        let asked = Instant::now();
        let status = engine.status();
        seen.slowest = seen.slowest.max(asked.elapsed());
        seen.most_jobs = seen.most_jobs.max(status.jobs.len());
        seen.stalest =
            seen.stalest.max(started.elapsed().saturating_sub(Duration::from_millis(status.uptime_ms)));
    }
    callers.into_iter().for_each(|caller| caller.join().unwrap());
    assert_eq!(*num_proved.lock().unwrap(), NUM_CALLERS * JOBS_PER_CALLER);
    seen
}

#[test]
fn b50_status_is_answered_at_once_while_a_thousand_callers_wait() {
    let machine = machine(8, 1.0, 1);
    let config = EngineConfig {
        arbiter_layout: ArbiterLayout::ThreadPerDevice,
        pace: Pace::default(),
        device: DeviceConfig::default(),
        ..machine.engine_config(EventSink::off()).unwrap()
    };
    let started = Instant::now();
    let engine = Engine::start(config).unwrap();
    engine.wait_ready_blocking().unwrap();
    let request = machine.request(&machine.scenario().streams[0]);
    let mut resident = Vec::new();
    for _ in 0..3 {
        let seen = wave(&engine, &request, started);
        resident.push(resident_bytes().unwrap());
        println!("{seen:?}, {} MiB resident afterwards", resident[resident.len() - 1] >> 20);
        assert!(seen.most_jobs > 5_000, "the queue was long: {seen:?}");
        assert!(seen.slowest < Duration::from_millis(50), "{seen:?}");
        // Published less often than with few jobs, and published all the same.
        assert!(seen.stalest < Duration::from_secs(5), "{seen:?}");
    }
    // The first wave fills what is kept for good: pools, tables, results.
    assert!(resident[2] <= resident[1] + (32 << 20), "{resident:?}");
    engine.shutdown_blocking(Duration::from_secs(10));
    assert_eq!(machine.num_wrong(), 0);
}

#[test]
fn a_partition_costs_the_engine_the_same_whatever_waits() {
    let cost = |num_jobs| on_paused_arbiter(overhead(8, num_jobs, 1)).per_partition();
    // The first run pays for tables that are made once.
    cost(100);
    let (few, many) = (cost(500), cost(10_000));
    println!("per partition: {few:?} with 500 jobs waiting, {many:?} with 10,000");
    // The bench has the figure; here is a limit that only another order of growth exceeds, also on a busy machine.
    assert!(many < Duration::from_millis(2), "{many:?}");
    assert!(many < few * 8 + Duration::from_micros(100), "{few:?} with few, {many:?} with many");
}

#[test]
fn critical_work_begins_within_a_stage_over_a_full_backlog() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/two-a6000.toml");
    let mut scenario = Scenario::read(&path).unwrap();
    scenario.streams[1].arrivals = Arrivals::Poisson { per_hour: 120.0 };
    let stage_s = scenario.circuits[0].stage_ms.sum_h / 1000.0 / scenario.devices[0].speed;
    let options = Options { hours: Some(4.0), ..Options::default() };
    let report = simulate(&scenario, options).unwrap().report;
    println!("{report}");
    let critical = &report.kinds[&WorkKind::WinningPost];
    assert!(critical.completed > 300 && critical.missed_deadlines == 0, "{critical:?}");
    assert!(critical.start.p99_s <= stage_s, "{critical:?}, a stage takes {stage_s} s");
    assert!(report.devices.values().all(|device| device.utilisation > 0.8), "the backlog fills both devices");
}
