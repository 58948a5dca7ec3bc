//! Tools of the message-level tests: one paused arbiter, peers that record, seeds, small circuits.
#![allow(dead_code, reason = "each test binary compiles its own copy and uses a part of this")]

pub mod device;
pub mod fixtures;
pub mod instant_device;
pub mod load;
pub mod probe;
pub mod seeds;
pub mod synthetic;
pub mod wrapped;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use actix::{Message, Recipient, System};

/// Runs `test` on one arbiter whose clock is paused: time moves only when every actor and task on it is idle, and
/// then straight to the next timer. All actors of the test must live on `Arbiter::current()`.
pub fn on_paused_arbiter<F: Future>(test: F) -> F::Output {
    run(true, test)
}

/// As [`on_paused_arbiter`] with the real clock: for backends that compute on other threads, which a paused clock
/// would not wait for.
pub fn on_arbiter<F: Future>(test: F) -> F::Output {
    run(false, test)
}

fn run<F: Future>(paused: bool, test: F) -> F::Output {
    let mut output = None;
    let slot = &mut output;
    run_boxed(paused, Box::pin(async move { *slot = Some(test.await) }));
    output.expect("the arbiter ran until the test's end")
}

/// One for all tests: a runtime that is compiled for the future of each takes a second of it each time.
fn run_boxed(paused: bool, test: Pin<Box<dyn Future<Output = ()> + '_>>) {
    let system = System::with_tokio_rt(move || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(paused)
            .build()
            .expect("a current-thread runtime needs no more than a few file descriptors")
    });
    // Dropping the runner drops its runtime: tasks that are left over do not outlive the test.
    system.block_on(test);
}

/// Waits until the actor behind `recipient` has stopped, on a clock that is paused: it jumps from look to look, and
/// nobody sleeps.
///
/// # Panics
/// If it is still running after a virtual minute.
pub async fn stopped<M>(recipient: &Recipient<M>)
where
    M: Message + Send + 'static,
    M::Result: Send,
{
    for _ in 0..60_000 {
        if !recipient.connected() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("an actor is still running at the end of its test");
}

/// Waits until the actor behind `recipient` has stopped, on any clock: asks until nobody answers. It must be about to
/// stop, and every question is one more message to it.
///
/// # Panics
/// If it goes on answering.
pub async fn closed<M>(recipient: &Recipient<M>, question: M)
where
    M: Message + Clone + Send + 'static,
    M::Result: Send,
{
    for _ in 0..100 {
        if recipient.send(question.clone()).await.is_err() {
            return;
        }
    }
    panic!("an actor is still running at the end of its test");
}
