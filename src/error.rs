//! Errors, one enum per layer. [`ErrorClass`] alone decides what happens next.

use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;

use crate::ids::{CircuitId, DeviceId, WorkRef};

/// What a caught panic said: its payload is text unless somebody panicked with a value of their own.
pub(crate) fn panic_text(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message").to_owned()
}

/// What to do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// The caller's input or configuration is wrong: the same request fails again.
    Caller,
    /// Try again: later, or on another device.
    Retry,
    /// The device can no longer be trusted; its work moves elsewhere.
    DeviceLost,
    /// The job was cancelled or its deadline passed.
    Cancelled,
    /// A defect of this software or of the machine.
    Bug,
}

impl ErrorClass {
    /// Stable lower-case name, as printed in `--json` output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Caller => "caller",
            Self::Retry => "retry",
            Self::DeviceLost => "device-lost",
            Self::Cancelled => "cancelled",
            Self::Bug => "bug",
        }
    }
}

/// A request that is refused before anything is queued.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// A field is missing, malformed or of the wrong length. Correct that field.
    #[error("{field}: {what}")]
    Field { field: String, what: String },
    /// Two statements of the same fact differ. Correct one of them.
    #[error("{left} says {left_value}, {right} says {right_value}")]
    Contradiction { left: String, left_value: String, right: String, right_value: String },
    /// The sector size, version or proof type is known but not supported, or not known at all.
    #[error("unsupported: {what}")]
    Unsupported { what: String },
    /// A vanilla proof does not decode or does not hold.
    #[error("vanilla proof {at}: {what}")]
    VanillaProof { at: String, what: String },
}

/// A witness could not be made, or does not satisfy its circuit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SynthesisError {
    /// Constraint `index` (from 0, in the circuit's order) does not hold: the inputs are wrong.
    #[error("constraint {index} of {num_constraints} is not satisfied")]
    Unsatisfied { index: usize, num_constraints: usize },
    /// The circuit's public input `index` (the leading one not counted) is not the verifier's.
    #[error("public input {index} of the circuit is not the one the verifier puts in")]
    PublicInput { index: usize },
    /// The witness has another size than the circuit's shape.
    #[error("{what}: shape needs {needs}, witness has {has}")]
    ShapeMismatch { what: &'static str, needs: usize, has: usize },
    /// The circuit's code refused its inputs.
    #[error("circuit refused its inputs: {0}")]
    Circuit(String),
    /// The circuit's code panicked on its inputs; the worker thread survived.
    #[error("circuit panicked on its inputs: {0}")]
    Panicked(String),
    /// The circuit is too large for the field's evaluation domain or for 32-bit indices.
    #[error("circuit too large: {0}")]
    TooLarge(String),
}

/// A parameter file or proving key that is not to be used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SrsError {
    /// The file is not there. Generate or fetch it, or name another folder.
    #[error("parameter file {path} not found for circuit {circuit}: generate it (`cuzk params generate`) or set --params")]
    Missing { circuit: String, path: PathBuf },
    #[error("{path}: {source}")]
    Io {
        path: PathBuf,
        #[source]
        source: Arc<std::io::Error>,
    },
    /// The file ends early or goes on too long: it was cut, or is no parameter file.
    #[error("{path}: {section}: needs {needs_bytes} B, has {has_bytes} B")]
    Length { path: PathBuf, section: &'static str, needs_bytes: u64, has_bytes: u64 },
    /// A point of the file is not a valid, non-identity point of the prime-order subgroup.
    #[error("{path}: {section}[{index}]: {what}")]
    Point { path: PathBuf, section: &'static str, index: u64, what: &'static str },
    /// The digest is not the expected one.
    #[error("{path}: sha256 is {has}, expected {needs}")]
    Digest { path: PathBuf, needs: String, has: String },
    /// The SRS belongs to another circuit. `path`: the file it came from, where it came from one and the check knows it.
    #[error("{}srs does not fit circuit: {what}: circuit needs {needs}, srs has {has}", path.as_ref().map(|path| format!("{}: ", path.display())).unwrap_or_default())]
    Mismatch { path: Option<PathBuf>, what: &'static str, needs: u64, has: u64 },
    /// Points and counts are right, yet no proof made with this key verifies, not even the host's own: it was made for
    /// another circuit of this size, or its parts are of different keys. Fetch or generate the circuit's own.
    #[error("{path}: not this circuit's key: a proof that the host itself made with it does not verify")]
    Unfit { path: PathBuf },
    /// Nobody needs the file any more: the engine stops.
    #[error("{path}: reading was stopped")]
    Stopped { path: PathBuf },
    /// Parameters cannot be made for this circuit.
    #[error("parameters not generated: {what}")]
    Generate { what: String },
    /// A stored circuit shape is damaged or of another version; it is recorded anew.
    #[error("{path}: not a usable shape file: {what}")]
    ShapeFile { path: PathBuf, what: String },
}

impl SrsError {
    /// Names the circuit that the missing file was wanted for; a reader of files does not know it.
    pub fn for_circuit(mut self, name: &CircuitId) -> Self {
        if let Self::Missing { circuit, .. } = &mut self {
            *circuit = name.to_string();
        }
        self
    }

    /// Names the file that a proving key of another circuit came from; a check of counts does not know it.
    pub fn of_file(mut self, file: &std::path::Path) -> Self {
        if let Self::Mismatch { path, .. } = &mut self {
            *path = Some(file.to_owned());
        }
        self
    }
}

/// No way to run this work within the budget.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error("needs {needs_bytes} B of device memory at least, budget is {has_bytes} B")]
    InsufficientVram { needs_bytes: u64, has_bytes: u64 },
}

/// Something went wrong on a device.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DeviceError {
    /// The device cannot be used as it is configured: the same settings fail again. Change them.
    #[error("device {device}: {what}")]
    Settings { device: DeviceId, what: String },
    /// The plan fitted, yet the driver refused. Replan with a smaller budget, then try another device.
    #[error("{at}: device allocation of {asked_bytes} B refused, {free_bytes} B free")]
    OutOfVram { at: WorkRef, asked_bytes: u64, free_bytes: u64 },
    /// It can never fit there. On another device, or with a larger budget, it may.
    #[error("{at}: {source}")]
    Plan {
        at: WorkRef,
        #[source]
        source: PlanError,
    },
    /// The proving key is of another circuit. Nothing was launched.
    #[error("{at}: {source}")]
    Srs {
        at: WorkRef,
        #[source]
        source: SrsError,
    },
    /// The witness is of another shape; the check before the device should have found it. Nothing was launched.
    #[error("{at}: {source}")]
    Witness {
        at: WorkRef,
        #[source]
        source: SynthesisError,
    },
    /// A stage ran past its watchdog. The device is lost.
    #[error("{at}: stage {stage} ran longer than {limit_ms} ms")]
    Hung { at: WorkRef, stage: &'static str, limit_ms: u64 },
    /// The device's context is poisoned; it is rebuilt.
    #[error("{at}: device fault in stage {stage}: {what}")]
    Fault { at: WorkRef, stage: &'static str, what: String },
    /// The device is gone.
    #[error("{at}: device lost: {what}")]
    Lost { at: WorkRef, what: String },
    /// The proof made there does not verify, and the key is not to blame: the host's own proof by it does. It is not
    /// returned.
    #[error("{at}: proof does not verify")]
    InvalidProof { at: WorkRef },
    #[error("{at}: cancelled")]
    Cancelled { at: WorkRef },
    /// The device could not be opened.
    #[error("device {device}: {what}")]
    Open { device: String, what: String },
    /// A partition that runs uses this proving key; evict it later.
    #[error("device {device}: srs of {circuit} is in use")]
    SrsInUse { device: DeviceId, circuit: CircuitId },
    /// No device of this kind can do this work.
    #[error("{at}: not possible here: {what}")]
    Unsupported { at: WorkRef, what: String },
    /// The device is draining or has no free lane; the work was not taken.
    #[error("{at}: device does not take work: {what}")]
    NotTaking { at: WorkRef, what: &'static str },
}

impl DeviceError {
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Srs { .. } | Self::Plan { .. } | Self::Unsupported { .. } | Self::Settings { .. } => {
                ErrorClass::Caller
            }
            Self::OutOfVram { .. } | Self::SrsInUse { .. } | Self::NotTaking { .. } => ErrorClass::Retry,
            Self::Hung { .. }
            | Self::Fault { .. }
            | Self::Lost { .. }
            | Self::Open { .. }
            | Self::InvalidProof { .. } => ErrorClass::DeviceLost,
            Self::Cancelled { .. } => ErrorClass::Cancelled,
            Self::Witness { .. } => ErrorClass::Bug,
        }
    }
}

/// The scheduler's refusals.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    #[error("queue is full: {jobs} jobs waiting, limit {limit}")]
    QueueFull { jobs: usize, limit: usize },
    #[error("engine is shutting down")]
    Draining,
    #[error("no device is ready: {0}")]
    NoDevice(String),
    /// A circuit that is to be preloaded takes more than the host's budget leaves beside what is pinned: waiting would
    /// not help. Raise the budget, or evict what is pinned.
    #[error("circuit {circuit} needs {needs_bytes} B of host memory, budget has {has_bytes} B for it")]
    HostMemory { circuit: CircuitId, needs_bytes: u64, has_bytes: u64 },
    /// It cannot be evicted while jobs of it have not ended. Try again when they have.
    #[error("circuit {circuit} is in use by {jobs} jobs")]
    CircuitInUse { circuit: CircuitId, jobs: usize },
    /// The circuit was evicted, or its key dropped, before it was loaded.
    #[error("circuit {circuit} was let go before it was loaded")]
    LetGo { circuit: CircuitId },
}

/// Configuration that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("{path}: {what}")]
    Read { path: String, what: String },
    #[error("unknown key `{key}`{}", suggestion.as_ref().map(|s| format!(", did you mean `{s}`?")).unwrap_or_default())]
    UnknownKey { key: String, suggestion: Option<String> },
    #[error("{key}: {what}")]
    Value { key: String, what: String },
}

/// What a caller of the engine sees.
#[derive(Clone, Debug, thiserror::Error)]
pub enum EngineError {
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error("{at}: {source}")]
    Synthesis {
        at: WorkRef,
        #[source]
        source: SynthesisError,
    },
    #[error("circuit {circuit}: {source}")]
    Srs {
        circuit: CircuitId,
        #[source]
        source: SrsError,
    },
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("{at}: cancelled")]
    Cancelled { at: WorkRef },
    #[error("{at}: deadline passed")]
    DeadlineExceeded { at: WorkRef },
    /// An actor died or did not answer. The engine rebuilds it; if this repeats, report it.
    #[error("{what}")]
    Internal { what: String },
}

impl EngineError {
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Request(_) | Self::Synthesis { .. } | Self::Srs { .. } | Self::Config(_) => {
                ErrorClass::Caller
            }
            Self::Device(error) => error.class(),
            // The same settings fail again.
            Self::Schedule(ScheduleError::HostMemory { .. }) => ErrorClass::Caller,
            Self::Schedule(_) => ErrorClass::Retry,
            Self::Cancelled { .. } | Self::DeadlineExceeded { .. } => ErrorClass::Cancelled,
            Self::Internal { .. } => ErrorClass::Bug,
        }
    }
}
