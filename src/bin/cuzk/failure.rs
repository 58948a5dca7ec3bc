//! What ends a command unsuccessfully: one line for people, a code for scripts.

use std::io::ErrorKind;

use cuzk::error::{
    ConfigError, DeviceError, EngineError, ErrorClass, InspectError, JournalError, ParamsError, RequestError,
    SrsError,
};
use serde_json::{json, Value};

/// Proving failed: the input was good.
pub const EXIT_PROVING: u8 = 1;
/// Wrong use or configuration.
pub const EXIT_USAGE: u8 = 2;
/// Bad input: request, vanilla proof, parameter file.
pub const EXIT_INPUT: u8 = 3;
/// Added to a signal's number, as shells do.
pub const EXIT_SIGNAL_BASE: u8 = 128;
/// As if SIGPIPE (13) had ended the process: the reader of standard output went away.
pub const EXIT_CLOSED_PIPE: u8 = EXIT_SIGNAL_BASE + 13;

/// Why a command ended, in one line.
#[derive(Clone, Debug)]
pub struct Failure {
    pub code: u8,
    /// `caller`, `retry`, `device-lost`, `cancelled`, `bug`.
    pub class: &'static str,
    /// What is wrong, and what to do.
    pub message: String,
    /// Where: a field, a file, a partition.
    pub at: String,
}

impl Failure {
    /// Bad input at `at`.
    pub fn input(at: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: EXIT_INPUT, class: "caller", message: message.into(), at: at.into() }
    }

    /// Input that cannot be used: bad, if the caller's class says so; else reading or handling it failed.
    fn of_class(class: ErrorClass, at: String, message: String) -> Self {
        let code = if class == ErrorClass::Caller { EXIT_INPUT } else { EXIT_PROVING };
        Self { code, class: class.as_str(), message, at }
    }

    /// Wrong use of the command line or the configuration.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { code: EXIT_USAGE, class: "caller", message: message.into(), at: "command line".to_owned() }
    }

    /// The input was good; making or checking the proof was not.
    pub fn proving(at: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: EXIT_PROVING, class: "bug", message: message.into(), at: at.into() }
    }

    /// What was asked about a proof has the answer no, for the caller to deal with: it does not verify, or is another
    /// than the recorded one.
    pub fn refuted(at: impl Into<String>, message: impl Into<String>) -> Self {
        Self { class: "caller", ..Self::proving(at, message) }
    }

    /// Standard output cannot be written. Only a reader that went away is a quiet end: a result that a full disk
    /// swallowed must not look like one.
    pub fn stdout(error: &std::io::Error) -> Self {
        let (code, class) = match error.kind() {
            ErrorKind::BrokenPipe => (EXIT_CLOSED_PIPE, "cancelled"),
            _ => (EXIT_PROVING, "retry"),
        };
        let message = format!("standard output: cannot write: {error}");
        Self { code, class, message, at: "standard output".to_owned() }
    }

    /// A result that was to be written to a folder or to standard output.
    #[cfg(feature = "daemon")]
    pub fn written(error: &std::io::Error) -> Self {
        match error.kind() {
            ErrorKind::BrokenPipe => Self::stdout(error),
            _ => Self::usage(format!("cannot write: {error}")),
        }
    }

    /// How a command ends of whose `total` parts some failed. The only part's failure is the command's; of several, which
    /// were printed one by one, a failure of ours or the machine's counts before bad input.
    pub fn of_parts(mut failures: Vec<Self>, total: usize, what: &str) -> Result<(), Self> {
        if failures.is_empty() {
            return Ok(());
        }
        let num_failures = failures.len();
        let worst = failures.iter().position(|failure| failure.code == EXIT_PROVING).unwrap_or(0);
        let failure = failures.swap_remove(worst);
        if total == 1 {
            return Err(failure);
        }
        Err(Self { message: format!("{num_failures} of {total} {what} (see above)"), ..failure })
    }

    /// The `error` of a line for scripts.
    pub fn as_json(&self) -> Value {
        json!({ "class": self.class, "message": self.message, "at": self.at })
    }

    /// The same failure, said of a file, if it does not name the file already.
    pub fn in_file(mut self, file: &str) -> Self {
        if !self.message.contains(file) {
            self.message = format!("{file}: {}", self.message);
        }
        self
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        let at = match &error {
            ConfigError::Read { path, .. } => path.clone(),
            ConfigError::UnknownKey { key, .. } | ConfigError::Value { key, .. } => key.clone(),
        };
        Self { code: EXIT_USAGE, class: "caller", message: error.to_string(), at }
    }
}

impl From<RequestError> for Failure {
    fn from(error: RequestError) -> Self {
        let at = match &error {
            RequestError::Field { field, .. } => field.clone(),
            RequestError::Contradiction { left, right, .. } => format!("{left}, {right}"),
            RequestError::Unsupported { .. } => "registered_proof".to_owned(),
            RequestError::VanillaProof { at, .. } => at.clone(),
        };
        Self::input(at, error.to_string())
    }
}

impl From<SrsError> for Failure {
    fn from(error: SrsError) -> Self {
        let at = match &error {
            SrsError::Missing { path, .. }
            | SrsError::Io { path, .. }
            | SrsError::Digest { path, .. }
            | SrsError::Unfit { path }
            | SrsError::Stopped { path }
            | SrsError::ShapeFile { path, .. } => path.display().to_string(),
            SrsError::Length { path, section, .. } => format!("{} {section}", path.display()),
            SrsError::Point { path, section, index, .. } => format!("{} {section}[{index}]", path.display()),
            SrsError::Mismatch { path: Some(path), what, .. } => format!("{} {what}", path.display()),
            SrsError::Mismatch { path: None, what, .. } => (*what).to_owned(),
            SrsError::Generate { .. } => "circuit".to_owned(),
        };
        Self::of_class(error.class(), at, error.to_string())
    }
}

impl From<InspectError> for Failure {
    fn from(error: InspectError) -> Self {
        match error {
            InspectError::File { ref at, .. } => Self::input(at.clone(), error.to_string()),
            InspectError::Input(error) => error.into(),
            InspectError::Srs(error) => error.into(),
        }
    }
}

impl From<ParamsError> for Failure {
    fn from(error: ParamsError) -> Self {
        let (code, at) = match &error {
            ParamsError::Manifest { .. } => (EXIT_USAGE, "manifest".to_owned()),
            ParamsError::Unpublished { circuit, .. } => (EXIT_USAGE, circuit.clone()),
            ParamsError::Mirror { url, .. } => (EXIT_USAGE, url.clone()),
            ParamsError::Certificates { path, .. } => (EXIT_USAGE, path.display().to_string()),
            ParamsError::Space { dir, .. } => (EXIT_USAGE, dir.display().to_string()),
            ParamsError::Wrong { path, .. } => (EXIT_INPUT, path.display().to_string()),
            ParamsError::Io { path, .. } if error.class() == ErrorClass::Caller => {
                (EXIT_INPUT, path.display().to_string())
            }
            ParamsError::Io { path, .. } | ParamsError::Busy { path } => {
                (EXIT_PROVING, path.display().to_string())
            }
            ParamsError::Unavailable { file, .. } => (EXIT_PROVING, file.clone()),
            ParamsError::Stopped => (EXIT_PROVING, "signal".to_owned()),
        };
        Self { code, class: error.class().as_str(), message: error.to_string(), at }
    }
}

impl From<JournalError> for Failure {
    fn from(error: JournalError) -> Self {
        let code = match &error {
            JournalError::Unreadable { .. }
            | JournalError::Unwritable { .. }
            | JournalError::NotForgotten { .. } => EXIT_PROVING,
            _ => EXIT_USAGE,
        };
        Self { code, class: error.class().as_str(), message: error.to_string(), at: "journal".to_owned() }
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        let class = error.class().as_str();
        let message = error.to_string();
        match error {
            EngineError::Request(error) => error.into(),
            EngineError::Config(error) => error.into(),
            EngineError::Srs { source, .. } => source.into(),
            EngineError::Device(DeviceError::Srs { source, .. }) => source.into(),
            EngineError::Synthesis { at, source } => Self::of_class(source.class(), at.to_string(), message),
            EngineError::Device(error) => Self { code: EXIT_PROVING, class, message, at: place(&error) },
            EngineError::Cancelled { at }
            | EngineError::DeadlineExceeded { at }
            | EngineError::Disputed { at, .. } => {
                Self { code: EXIT_PROVING, class, message, at: at.to_string() }
            }
            EngineError::Journal(error) => error.into(),
            EngineError::FailedBefore { at, .. } => {
                Self { code: EXIT_PROVING, class, message, at: at.to_string() }
            }
            EngineError::Schedule(_) | EngineError::NoAnswer { .. } | EngineError::Internal { .. } => {
                Self { code: EXIT_PROVING, class, message, at: "engine".to_owned() }
            }
        }
    }
}

/// The partition, attempt and device an error is about.
fn place(error: &DeviceError) -> String {
    match error {
        DeviceError::OutOfVram { at, .. }
        | DeviceError::Plan { at, .. }
        | DeviceError::Unsupported { at, .. }
        | DeviceError::Srs { at, .. }
        | DeviceError::Witness { at, .. }
        | DeviceError::Hung { at, .. }
        | DeviceError::Fault { at, .. }
        | DeviceError::Lost { at, .. }
        | DeviceError::InvalidProof { at }
        | DeviceError::Cancelled { at }
        | DeviceError::NotTaking { at, .. } => at.to_string(),
        DeviceError::Open { device, .. } => format!("device {device}"),
        DeviceError::Settings { device, .. } => format!("device {device}"),
        DeviceError::SrsInUse { device, circuit } => format!("{circuit} on {device}"),
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use cuzk::error::SynthesisError;
    use cuzk::ids::{CircuitId, JobId, WorkRef};

    use super::*;

    #[track_caller]
    fn assert_ends(error: EngineError, code: u8, class: &str) {
        let failure = Failure::from(error);
        assert_eq!((failure.code, failure.class), (code, class), "{}", failure.message);
        assert!(!failure.at.is_empty() && !failure.message.is_empty());
    }

    #[test]
    fn only_the_callers_errors_are_bad_input() {
        let at = || WorkRef::job(JobId(7));
        assert_ends(EngineError::Disputed { at: at(), what: "no".into() }, EXIT_PROVING, "bug");
        let synthesis = |source| EngineError::Synthesis { at: at(), source };
        let unsatisfied = SynthesisError::Unsatisfied { index: 1, num_constraints: 2 };
        assert_ends(synthesis(unsatisfied), EXIT_INPUT, "caller");
        assert_ends(synthesis(SynthesisError::Panicked("on inputs".into())), EXIT_INPUT, "caller");
        let preparation = SynthesisError::PreparationPanicked("blank".into());
        assert_ends(synthesis(preparation), EXIT_PROVING, "bug");

        let srs = |source| EngineError::Srs { circuit: CircuitId::new("porep-2k"), source };
        let io = |kind: io::ErrorKind| SrsError::Io { path: "f".into(), source: Arc::new(kind.into()) };
        assert_ends(srs(io(io::ErrorKind::PermissionDenied)), EXIT_INPUT, "caller");
        assert_ends(srs(io(io::ErrorKind::NotADirectory)), EXIT_INPUT, "caller");
        assert_ends(srs(io(io::ErrorKind::StorageFull)), EXIT_PROVING, "retry");
        assert_ends(srs(io(io::ErrorKind::Other)), EXIT_PROVING, "retry");
        let device = DeviceError::Srs { at: at(), source: io(io::ErrorKind::Interrupted) };
        assert_ends(EngineError::Device(device), EXIT_PROVING, "retry");
        assert_ends(srs(SrsError::Stopped { path: "f".into() }), EXIT_PROVING, "cancelled");
        assert_ends(srs(SrsError::Unfit { path: "f".into() }), EXIT_INPUT, "caller");
    }
}
