//! Jobs that come one by one while the device is busy with others: how long an urgent one takes then.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use cuzk::engine::Engine;
use cuzk::loops;
use rayon::{ThreadPool, ThreadPoolBuilder};

use super::{prove, Subject};
use crate::Failure;

/// Whose requests are made, and come again and again.
pub const NUM_SECTORS: u32 = 8;
/// Jobs without a load beside them.
const NUM_ALONE: usize = 30;

/// The jobs of a device that has nothing else to do; from each request to its verified proof.
pub fn prove_some(engine: &Engine, subject: &Subject) -> Result<Vec<Duration>, Failure> {
    let pool = decoding_pool()?;
    let prove = |name, number| loops::with(&pool, || prove_one(engine, subject, name, number));
    // The first checks the layouts, and fills caches.
    prove("first", 0)?;
    (0..NUM_ALONE).map(|number| prove("alone", number)).collect()
}

/// Requests are decoded here and not in the engine, which has such threads for urgent ones.
fn decoding_pool() -> Result<Arc<ThreadPool>, Failure> {
    ThreadPoolBuilder::new().build().map(Arc::new).map_err(Failure::failed)
}

/// The jobs that come until `load` has ended, some time between each proof and the next request, as blocks are won.
pub fn prove_during(
    engine: &Engine,
    subject: &Subject,
    load: impl FnOnce() -> Result<(), Failure>,
) -> Result<Vec<Duration>, Failure> {
    let pool = decoding_pool()?;
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let beside = scope.spawn(|| {
            let mut times = Vec::new();
            while !ended.load(Ordering::Relaxed) {
                thread::sleep(pause(times.len()));
                let number = times.len();
                times.push(loops::with(&pool, || prove_one(engine, subject, "beside", number))?);
            }
            Ok(times)
        });
        let loaded = load();
        ended.store(true, Ordering::Relaxed);
        let times = beside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        loaded.and(times)
    })
}

/// 20 to 220 ms, in no step with anything.
fn pause(number: usize) -> Duration {
    Duration::from_millis(20 + 61 * number as u64 % 200)
}

fn prove_one(engine: &Engine, subject: &Subject, name: &str, number: usize) -> Result<Duration, Failure> {
    let request = number % subject.requests.len();
    let name = format!("{name}-{number}");
    let proofs = prove(engine, subject, &subject.requests[request..=request], &name)?;
    Ok(proofs[0].wall)
}
