//! How the process ends: an exit code, and what standard error says of it.

use std::fmt;

use cuzk::error::{ConfigError, EngineError, JournalError};

/// No device is left, or a server failed.
pub const EXIT_FAILED: u8 = 1;
/// Wrong arguments or configuration.
pub const EXIT_CONFIG: u8 = 2;
/// Another process has what this one needs.
pub const EXIT_IN_USE: u8 = 4;
/// Ended by a signal: this plus its number.
pub const EXIT_SIGNAL_BASE: i32 = 128;

/// Why the daemon ends other than by being asked to.
#[derive(Clone, Debug)]
pub struct Failure {
    pub code: u8,
    pub what: String,
}

impl Failure {
    pub fn failed(what: impl fmt::Display) -> Self {
        Self { code: EXIT_FAILED, what: what.to_string() }
    }

    pub fn config(what: impl fmt::Display) -> Self {
        Self { code: EXIT_CONFIG, what: what.to_string() }
    }

    pub fn in_use(what: impl fmt::Display) -> Self {
        Self { code: EXIT_IN_USE, what: what.to_string() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::config(error)
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        match &error {
            EngineError::Config(_) => Self::config(error),
            EngineError::Journal(JournalError::InUse { .. }) => Self::in_use(error),
            EngineError::Journal(_) => Self::config(error),
            _ => Self::failed(error),
        }
    }
}

/// An error with what it came from: the library's own says "transport error" alone.
pub fn with_sources(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text += &format!(": {error}");
        source = error.source();
    }
    text
}
