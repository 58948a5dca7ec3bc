//! What the journal costs a caller: printed, not judged, since it is the disk that is measured.

use std::path::Path;
use std::time::{Duration, Instant};

use cuzk::actors::gpu_device::DeviceConfig;
use cuzk::backend::sim::SimFleet;
use cuzk::engine::{DeviceSpec, Engine, EngineConfig};
use cuzk::journal::{JournalConfig, Store};
use cuzk::messages::status::EngineStatus;

use crate::encoded::{encoded, SquaresDecoder};
use crate::model::KEEP_ALL;

const NUM_SUBMITS: u64 = 200;
const NUM_THREADS: u64 = 16;

/// An engine that accepts, and proves next to nothing while it is measured.
fn engine(journal: Option<&Path>) -> Engine {
    let fleet: SimFleet = "sim:1;stage=200ms".parse().unwrap();
    Engine::start(EngineConfig {
        devices: fleet.devices().iter().cloned().map(Box::new).map(DeviceSpec::Sim).collect(),
        synthesis_threads: 2,
        max_queued_jobs: 100_000,
        device: DeviceConfig { self_test: false, ..DeviceConfig::default() },
        journal: journal.map(JournalConfig::file),
        decoders: vec![SquaresDecoder::small()],
        ..EngineConfig::default()
    })
    .unwrap()
}

/// Median and 99th percentile of submits one after the other, and submits a second from many threads.
fn measure(engine: &Engine, name: &str) {
    let submit = |id: String| {
        let begun = Instant::now();
        engine.submit_blocking(encoded(&id, &[2])).unwrap().detach();
        begun.elapsed()
    };
    let mut times: Vec<Duration> = (0..NUM_SUBMITS).map(|index| submit(format!("one-{index}"))).collect();
    times.sort_unstable();
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..NUM_THREADS {
            let submit = &submit;
            scope.spawn(move || {
                for index in 0..NUM_SUBMITS / NUM_THREADS {
                    submit(format!("{thread}-{index}"));
                }
            });
        }
    });
    let rate = (NUM_SUBMITS / NUM_THREADS * NUM_THREADS) as f64 / begun.elapsed().as_secs_f64();
    println!(
        "{name}: submit median {:?}, p99 {:?}; {NUM_THREADS} threads: {rate:.0} a second",
        times[times.len() / 2],
        times[times.len() * 99 / 100]
    );
}

#[test]
fn submits_with_and_without_a_journal() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("journal");
    let without = engine(None);
    measure(&without, "without a journal");
    without.shutdown_blocking(Duration::ZERO);
    let with = engine(Some(&path));
    measure(&with, "with a journal");
    with.shutdown_blocking(Duration::ZERO);
    // All of them are there for the next process.
    let medium = cuzk::journal::Medium::File(path);
    let (store, contents) = Store::open(medium, KEEP_ALL).unwrap();
    let submitted = NUM_SUBMITS + NUM_SUBMITS / NUM_THREADS * NUM_THREADS;
    let num_jobs = contents.jobs.len();
    assert_eq!((num_jobs + contents.results.len()) as u64, submitted);
    drop(store);
    let again = engine(Some(dir.path().join("journal").as_path()));
    let begun = Instant::now();
    let all = num_jobs as u64;
    let is_done = |status: &EngineStatus| status.recovering == 0 && status.totals.recovered == all;
    let status = again.wait_status_blocking(is_done).unwrap();
    println!("{num_jobs} jobs queued again in {:?}", begun.elapsed());
    assert_eq!(again.recovered().len(), num_jobs);
    assert_eq!(status.totals.recovered, num_jobs as u64);
    again.shutdown_blocking(Duration::ZERO);
}
