//! The actors.

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
