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

/// Which actors share a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ArbiterLayout {
    /// One arbiter thread per device, one for the rest: production.
    #[default]
    ThreadPerDevice,
    /// All on one arbiter: tests, where a paused clock is then exact.
    SingleThread,
}
