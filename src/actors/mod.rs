//! The actors: thin over [`crate::policy`], one mailbox each, nothing shared between them.
//!
//! ```text
//!                 Engine  (handle, any thread)
//!                    |
//!               Supervisor                     starts, watches, rebuilds, drains all others
//!              /     |     \
//!    Synthesizer  Scheduler  GpuDevice x N     each device on an arbiter thread of its own
//!    worker threads    |
//!                      +---> picks ONE device per partition, and spends one of its credits
//! ```
//!
//! No handler waits. Facts go by `do_send` and reply `()`; what must be limited is limited by credits and budgets,
//! never by a mailbox.

pub mod gpu_device;
pub mod scheduler;
pub mod supervisor;
pub mod synthesizer;

use std::time::Duration;

/// How often actors look at what no message tells them. All ticks are idempotent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Deadlines are looked at this often when nothing else happens. Too long: expired work is answered late.
    pub scheduler_tick: Duration,
    /// Actors that died are found within this.
    pub supervisor_tick: Duration,
    /// The status is published at most this often. Zero: at every change while there are few jobs.
    pub status_interval: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            scheduler_tick: Duration::from_millis(50),
            supervisor_tick: Duration::from_millis(20),
            status_interval: Duration::ZERO,
        }
    }
}

/// Which actors share a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ArbiterLayout {
    /// One arbiter thread per device, one for the rest: production.
    #[default]
    ThreadPerDevice,
    /// All on one arbiter: tests, where a paused clock is then exact.
    SingleThread,
}
