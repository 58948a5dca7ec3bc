//! Ctrl-C and SIGTERM: the first asks for an orderly end, the second ends the process at once.

use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::Arc;

use crossbeam_channel::{unbounded, Receiver};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::{Failure, EXIT_SIGNAL_BASE};

/// The signals that this process got.
pub struct Interrupts {
    first: Arc<AtomicI32>,
    /// Gets the first signal's number.
    pub arrived: Receiver<i32>,
}

impl Interrupts {
    /// Takes the signals over for the rest of the process's life.
    pub fn install() -> Result<Self, Failure> {
        let refused =
            |error: std::io::Error| Failure::proving("signals", format!("cannot listen to signals: {error}"));
        let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(refused)?;
        let first = Arc::new(AtomicI32::new(0));
        let (send, arrived) = unbounded();
        let seen = Arc::clone(&first);
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                for signal in signals.forever() {
                    if seen.swap(signal, Ordering::Relaxed) != 0 {
                        std::process::exit(exit_code(signal).into());
                    }
                    // Nobody waits for it: then only the flag is read.
                    let _ = send.send(signal);
                }
            })
            .map_err(refused)?;
        Ok(Self { first, arrived })
    }

    /// The failure to end with, if a signal came.
    pub fn check(&self) -> Result<(), Failure> {
        match self.first.load(Ordering::Relaxed) {
            0 => Ok(()),
            signal => Err(interrupted(signal)),
        }
    }

    /// Runs `work`, which calls [`Interrupts::unwind`] now and then: once a signal came, `work` is unwound, so that
    /// all it has made and not finished is dropped (and half-written files are removed).
    pub fn run<T>(&self, work: impl FnOnce() -> T) -> Result<T, Failure> {
        match catch_unwind(AssertUnwindSafe(work)) {
            Ok(done) => Ok(done),
            Err(payload) if payload.is::<Unwound>() => {
                Err(self.check().err().unwrap_or_else(|| interrupted(SIGINT)))
            }
            Err(payload) => resume_unwind(payload),
        }
    }

    /// Unwinds up to [`Interrupts::run`] if a signal came. No panic: no hook is called, nothing is printed.
    pub fn unwind(&self) {
        if self.check().is_err() {
            resume_unwind(Box::new(Unwound));
        }
    }
}

struct Unwound;

fn exit_code(signal: i32) -> u8 {
    u8::try_from(signal).map_or(u8::MAX, |signal| EXIT_SIGNAL_BASE.saturating_add(signal))
}

/// How a command ends that a signal stopped.
pub fn interrupted(signal: i32) -> Failure {
    let what = if signal == SIGTERM { "terminated" } else { "interrupted" };
    Failure {
        code: exit_code(signal),
        class: "cancelled",
        message: format!("{what}: nothing unfinished was left behind"),
        at: "signal".to_owned(),
    }
}
