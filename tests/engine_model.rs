//! Random lives of an engine against a simple reference: random jobs, faults, cancels, drops and restarts, on simulated
//! devices with a paused clock.
//!
//! After every step: no job is lost, none is answered twice or wrongly, nothing that was reserved is leaked, no device has
//! two owners and no lane two partitions, no CRITICAL work waits for other work beyond a stage, and nothing waits while
//! every device is idle.
//!
//! What lives have of the behaviours that tests of those ids show one by one:
//!
//! - one to three devices of one or two lanes and perhaps one more for CRITICAL work, perhaps one reserved for that, of
//!   memories that hold many keys or none (B01, B02, B06, B09, B11, B12, B14), some of which share passes over what they
//!   stream (`policy/shared_pass.rs`); host memory that holds one circuit or
//!   many, preloads, evictions, keys that are let go when idle (B15, B16, B23, B28);
//! - work of every priority, equal requests, full queues, deadlines, cancels, callers who go away (B21, B22, B24 to B27,
//!   B29, B30, B31); statements that do not hold, and whose jobs are let go (B19);
//! - refused allocations, wrong proofs, poisoned contexts, panics, hangs, delays, lost devices, and jobs that no device is
//!   left for, which no other backend takes in silence (B13, B32, B33, B41 to B43, B45 to B48, B54); kills, after which
//!   another engine goes on from the journal (B49); a look at the status after every step (B50).
//!
//! Not in them: B20, which is arithmetic (`policy/capacity.rs`), and B34, since a life has one thread (`engine_cpu.rs`).
//!
//! ```sh
//! cargo test --release --test engine_model                              # the default number of lives
//! CUZK_MODEL_SEEDS=1001-10000 cargo test --release --test engine_model  # those that CI runs besides
//! CUZK_TEST_SEED=17 cargo test --release --test engine_model            # one life again, exactly
//! ```

mod common;
#[path = "model/devices.rs"]
mod devices;
#[path = "model/jobs.rs"]
mod jobs;
#[path = "model/life.rs"]
mod life;
#[path = "model/machine.rs"]
mod machine;
#[path = "model/order.rs"]
mod order;
#[path = "model/reference.rs"]
mod reference;
#[path = "engine/squares.rs"]
#[allow(dead_code, reason = "the model makes requests of its own")]
mod squares;

use std::ops::RangeInclusive;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Mutex;

/// Lives of an ordinary run: 37 ms of one core each, so some 20 s on two cores. Ten thousand take some three minutes.
const NUM_SEEDS: u64 = 1_000;

/// Panics that a script asks for are no news; those of the test itself are.
fn be_quiet_about_scripted_panics() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let text = info.payload().downcast_ref::<String>();
        if !text.is_some_and(|text| text.contains("scripted panic")) {
            usual(info);
        }
    }));
}

fn replay(seed: u64) -> String {
    format!("CUZK_TEST_SEED={seed} cargo test --release --test engine_model -- --nocapture")
}

/// The life of a seed; a panic anywhere on its thread, also in a task that listens, is a failure.
fn live(seed: u64) -> Result<(), String> {
    let lived = catch_unwind(AssertUnwindSafe(|| common::on_paused_arbiter(life::live(seed))));
    lived.map_err(|_| format!("the life of seed {seed} went wrong; again:\n    {}", replay(seed)))
}

/// `COUNT`, or `FIRST-LAST`.
fn seeds(text: &str) -> Option<RangeInclusive<u64>> {
    let (first, last) = text.split_once('-').unwrap_or(("1", text));
    Some(first.parse().ok()?..=last.parse().ok()?).filter(|seeds| !seeds.is_empty())
}

#[test]
fn any_life_of_an_engine_agrees_with_the_reference() {
    be_quiet_about_scripted_panics();
    if let Ok(seed) = std::env::var("CUZK_TEST_SEED") {
        return live(seed.parse().expect("CUZK_TEST_SEED is a decimal number")).unwrap();
    }
    let seeds = match std::env::var("CUZK_MODEL_SEEDS") {
        Ok(text) => {
            seeds(&text).expect("CUZK_MODEL_SEEDS is a number of seeds, or two seeds as in 1001-10000")
        }
        Err(_) => 1..=NUM_SEEDS,
    };
    let num_threads = std::thread::available_parallelism().map_or(1, |threads| threads.get());
    let (next, failures) = (AtomicU64::new(*seeds.start()), Mutex::new(Vec::new()));
    let begun = std::time::Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..num_threads {
            scope.spawn(|| loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                let has_failed = !failures.lock().expect("nobody panics with it").is_empty();
                if seed > *seeds.end() || has_failed {
                    return;
                }
                if let Err(failure) = live(seed) {
                    println!("{failure}");
                    failures.lock().expect("nobody panics with it").push(failure);
                }
            });
        }
    });
    let num_shared = life::NUM_SHARED.load(Ordering::Relaxed);
    println!(
        "lives {seeds:?} on {num_threads} threads took {:?}; {num_shared} passes were shared",
        begun.elapsed()
    );
    let failures = failures.into_inner().expect("nobody panics with it");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    let num_lives = seeds.end() - seeds.start() + 1;
    assert!(num_shared > 0 || num_lives < 200, "of so many lives some have a card that shares passes");
}
