//! What a device is there for.

use crate::messages::job::Priority;

/// The part a device plays. Set by configuration, never changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Role {
    /// Takes any work.
    #[default]
    General,
    /// Takes CRITICAL work and nothing else, so that it is free when such work comes.
    ReservedForCritical,
    /// Takes what no other device is left for: the CPU, where the operator has allowed it. Never used in silence: what
    /// it proves is counted and the status says so.
    Fallback,
}

impl Role {
    /// Whether work of this priority may go there at all. (A fallback takes any, when its time has come.)
    pub fn admits(self, priority: Priority) -> bool {
        self != Self::ReservedForCritical || priority == Priority::Critical
    }

    /// Stable lower-case name, for the status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::General => "general",
            Self::ReservedForCritical => "reserved-for-critical",
            Self::Fallback => "fallback",
        }
    }
}
