//! Errors, one enum per layer. [`ErrorClass`] alone decides what happens next.

mod panics;

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

pub(crate) use self::panics::{catch, panic_text};
use crate::ids::{CircuitId, DeviceId, JobId, WorkRef};

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

/// An aux variable that is a bit by the circuit's constraints has another value: they are not satisfied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("aux variable {aux} is a bit by the circuit's constraints and has another value")]
pub struct NotABit {
    pub aux: usize,
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
    /// A variable that the constraints make a bit has another value: the inputs are wrong.
    #[error(transparent)]
    NotABit(#[from] NotABit),
    /// The circuit's code refused its inputs.
    #[error("circuit refused its inputs: {0}")]
    Circuit(String),
    /// The circuit's code panicked on its inputs; the worker thread survived.
    #[error("circuit panicked on its inputs: {0}")]
    Panicked(String),
    /// Preparing the circuit panicked, with no job's inputs in play: its blank instance, or code of this library. Report
    /// it; the worker thread survived.
    #[error("circuit panicked while it was prepared: {0}")]
    PreparationPanicked(String),
    /// The circuit is too large for the field's evaluation domain or for 32-bit indices.
    #[error("circuit too large: {0}")]
    TooLarge(String),
}

impl SynthesisError {
    /// What to do about it.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Unsatisfied { .. }
            | Self::PublicInput { .. }
            | Self::ShapeMismatch { .. }
            | Self::NotABit(_)
            | Self::Circuit(_)
            | Self::Panicked(_)
            | Self::TooLarge(_) => ErrorClass::Caller,
            Self::PreparationPanicked(_) => ErrorClass::Bug,
        }
    }
}

/// A parameter file or proving key that is not to be used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SrsError {
    /// The file is not there. `advice`: how to come by it, where the circuit is one of Filecoin's; or name another folder.
    #[error("parameter file {path} not found for circuit {circuit}: {}name its folder (--params, [srs] params_dir)", advice.as_ref().map(|advice| format!("{advice}, or ")).unwrap_or_default())]
    Missing { circuit: String, path: PathBuf, advice: Option<String> },
    /// The system refused to read or write. Whether that may pass depends on its reason: [`SrsError::class`].
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
    /// What to do about it. A path that may not be opened, or is no file, is wrong tomorrow too, and so is a file that
    /// this machine's memory cannot take; any other failure of the system to read or write may pass.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Io { source, .. } => match source.kind() {
                ErrorKind::PermissionDenied
                | ErrorKind::NotFound
                | ErrorKind::NotADirectory
                | ErrorKind::IsADirectory
                | ErrorKind::InvalidInput
                | ErrorKind::OutOfMemory => ErrorClass::Caller,
                _ => ErrorClass::Retry,
            },
            Self::Stopped { .. } => ErrorClass::Cancelled,
            Self::Missing { .. }
            | Self::Length { .. }
            | Self::Point { .. }
            | Self::Digest { .. }
            | Self::Mismatch { .. }
            | Self::Unfit { .. }
            | Self::Generate { .. }
            | Self::ShapeFile { .. } => ErrorClass::Caller,
        }
    }

    /// Names the circuit that the missing file was wanted for, and how to come by it; a reader of files does not know.
    pub fn for_circuit(mut self, name: &CircuitId, how_to_get: Option<String>) -> Self {
        if let Self::Missing { circuit, advice, .. } = &mut self {
            *circuit = name.to_string();
            *advice = how_to_get;
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

/// A fold ([`crate::groth16::fold`]) that cannot be made, or is not to be used; the plain key is.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FoldError {
    /// Only a plain key of the circuit can be folded.
    #[error("key cannot be folded: {what}")]
    Key { what: String },
    /// It begins as no fold file does.
    #[error("{path}: not a fold file")]
    Foreign { path: PathBuf },
    /// Another version of this program made it. Make it anew.
    #[error("{path}: fold of version {has}, this program reads {needs}")]
    Version { path: PathBuf, needs: u32, has: u32 },
    /// It was cut, or goes on too long. Make it anew.
    #[error("{path}: fold needs {needs_bytes} B, has {has_bytes} B")]
    Length { path: PathBuf, needs_bytes: u64, has_bytes: u64 },
    /// It is the fold of another key or circuit.
    #[error("{path}: fold of another {what}: needs {needs}, has {has}")]
    Mismatch { path: PathBuf, what: &'static str, needs: String, has: String },
    /// The file was damaged. Make it anew.
    #[error("{path}: sha256 is {has}, expected {needs}")]
    Digest { path: PathBuf, needs: String, has: String },
    /// A point of the file is no point of the curve's prime-order subgroup.
    #[error("{path}: {section}[{index}]: {what}")]
    Point { path: PathBuf, section: &'static str, index: u64, what: &'static str },
    /// Its points are not the key's: a sum with random scalars differs. Make it anew; if that is found right after it was
    /// made, the device that made it is broken.
    #[error("the folded {query} query is not that of the key")]
    Wrong { query: &'static str },
    /// The device that transforms points failed.
    #[error("device: {0}")]
    Device(String),
    #[error("{path}: {source}")]
    Io {
        path: PathBuf,
        #[source]
        source: Arc<std::io::Error>,
    },
    #[error("stopped")]
    Stopped,
}

/// A file of which it cannot be said what it is.
#[derive(Clone, Debug, thiserror::Error)]
pub enum InspectError {
    /// It cannot be read, is damaged, or is of no known format. `at`: the file, and what of it.
    #[error("{at}: {what}")]
    File { at: String, what: String },
    /// It is no regular file, or too large for an input.
    #[error(transparent)]
    Input(#[from] RequestError),
    /// It begins as a parameter file or verifying key, and is none to be used.
    #[error(transparent)]
    Srs(#[from] SrsError),
}

/// Parameter files that cannot be listed, fetched or checked.
#[derive(Debug, thiserror::Error)]
pub enum ParamsError {
    /// No manifest in Filecoin's form (`parameters.json`).
    #[error("manifest: {what}")]
    Manifest { what: String },
    /// The manifest has no such file: no network has a key for the circuit, or it is another network's manifest.
    #[error("{circuit}: {name} is not published: the manifest does not have it")]
    Unpublished { circuit: String, name: String },
    /// No address that files can be fetched from. Correct it.
    #[error("{url}: {what}")]
    Mirror { url: String, what: String },
    /// No file of certificates. Name another one.
    #[error("{}: {what}", path.display())]
    Certificates { path: PathBuf, what: String },
    /// The system refused to read or write.
    #[error("{}: {source}", path.display())]
    Io {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// Another process fetches this file. Wait for it.
    #[error("{}: another process is fetching it", path.display())]
    Busy { path: PathBuf },
    /// There is another file under the name. Remove it, or ask to replace it.
    #[error("{}: is another file than the published one: its digest is {has}, the manifest's {needs}", path.display())]
    Wrong { path: PathBuf, has: String, needs: String },
    /// Choose another folder, or make room.
    #[error("{}: needs {needs_bytes} B of free space, has {free_bytes} B", dir.display())]
    Space { dir: PathBuf, needs_bytes: u64, free_bytes: u64 },
    /// No mirror gave the file. What came is kept: the next run goes on there. If one was not trusted, name its authority.
    #[error("{file}: no mirror gave it: {}", reasons.join("; "))]
    Unavailable { file: String, reasons: Vec<String>, has_untrusted: bool },
    /// Whoever asked for it wanted it no more. What came is kept.
    #[error("stopped")]
    Stopped,
}

impl ParamsError {
    /// What to do about it.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Busy { .. } | Self::Unavailable { .. } => ErrorClass::Retry,
            Self::Stopped => ErrorClass::Cancelled,
            Self::Io { source, .. } => match source.kind() {
                ErrorKind::PermissionDenied
                | ErrorKind::NotFound
                | ErrorKind::NotADirectory
                | ErrorKind::ReadOnlyFilesystem => ErrorClass::Caller,
                _ => ErrorClass::Retry,
            },
            _ => ErrorClass::Caller,
        }
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
    /// The witness is of another shape, or does not satisfy the circuit, as a device saw that looks at rows itself.
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
    /// What to do about it.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Srs { source, .. } => source.class(),
            Self::Plan { .. } | Self::Unsupported { .. } | Self::Settings { .. } => ErrorClass::Caller,
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
    /// Nothing can be decoded or synthesized now. If it was given up, this engine will not get better: end the process.
    #[error("no synthesizer is ready: {0}")]
    NoSynthesizer(String),
    /// What was not in the journal is lost; what is, the next process proves. End this one and start another.
    #[error("the engine stops: its scheduler died")]
    Stopped,
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

/// A journal that cannot be used, or not now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    /// One process per journal: stop the other one, or name another file.
    #[error("journal {} is in use by another process: stop that one, or set [journal] path to another file", path.display())]
    InUse { path: PathBuf },
    /// A later version of this program wrote it: use that one, or begin a new journal.
    #[error("journal {} is of version {has}, and this program knows {knows} at most: use the newer program that wrote it, or set [journal] path to a new file", path.display())]
    Newer { path: PathBuf, has: u64, knows: u64 },
    /// It is not as it was written. Nothing that it holds was removed; the library may have marked it as looked at.
    #[error("journal {} is damaged: {what}; put a copy of it in its place, or move it away to begin a new one (the jobs in it are then to be submitted again)", path.display())]
    Damaged { path: PathBuf, what: String },
    /// Its folder is missing, or may not be used.
    #[error("journal {} cannot be opened: {what}; its folder must exist and be writable", path.display())]
    Unreachable { path: PathBuf, what: String },
    /// The disk fails. Try again.
    #[error("journal {} cannot be read: {what}", path.display())]
    Unreadable { path: PathBuf, what: String },
    /// The disk is full or fails. Nothing was accepted: try again.
    #[error("journal {} cannot be written: {what}; new jobs are refused until it can be: try again", path.display())]
    Unwritable { path: PathBuf, what: String },
    /// The disk is full or fails. The job has ended in this process: try again.
    #[error("job {job} has ended, but journal {} cannot be written: {what}; if this process ends before it can be, the next one proves the job", path.display())]
    NotForgotten { job: JobId, path: PathBuf, what: String },
}

impl JournalError {
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::InUse { .. } | Self::Newer { .. } | Self::Damaged { .. } | Self::Unreachable { .. } => {
                ErrorClass::Caller
            }
            Self::Unreadable { .. } | Self::Unwritable { .. } | Self::NotForgotten { .. } => {
                ErrorClass::Retry
            }
        }
    }
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
    /// Our verifier accepts every partition, the circuit's own library does not accept the whole (or panicked). One of
    /// the two is wrong, and the request, which was checked before it was proved, is not. The proof is not returned:
    /// report it.
    #[error("{at}: proof holds by our verifier, and not by the circuit's own library: {what}")]
    Disputed { at: WorkRef, what: String },
    #[error("{at}: cancelled")]
    Cancelled { at: WorkRef },
    #[error("{at}: deadline passed")]
    DeadlineExceeded { at: WorkRef },
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The job failed in an earlier life of the engine, for this reason; the journal kept it. The same request tries
    /// again.
    #[error("{what}")]
    FailedBefore { at: WorkRef, class: ErrorClass, what: String },
    /// An actor did not answer in time (`EngineConfig::deadlines`). What it had not begun by then it does not do; of
    /// what it had begun nobody hears. Asking again under the same request id is safe.
    #[error("{asked}: no answer within {limit_ms} ms")]
    NoAnswer { asked: &'static str, limit_ms: u64 },
    /// The engine did not start: the system refused it a thread, or its own ended at once. Give it what it lacks, else
    /// report it.
    #[error("{what}")]
    Internal { what: String },
}

impl EngineError {
    /// What to do about it: that of the layer it came from.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Request(_) | Self::Config(_) => ErrorClass::Caller,
            Self::Synthesis { source, .. } => source.class(),
            Self::Srs { source, .. } => source.class(),
            Self::Device(error) => error.class(),
            // The same settings fail again.
            Self::Schedule(ScheduleError::HostMemory { .. }) => ErrorClass::Caller,
            Self::Schedule(_) | Self::NoAnswer { .. } => ErrorClass::Retry,
            Self::Cancelled { .. } | Self::DeadlineExceeded { .. } => ErrorClass::Cancelled,
            Self::Journal(error) => error.class(),
            Self::FailedBefore { class, .. } => *class,
            Self::Disputed { .. } | Self::Internal { .. } => ErrorClass::Bug,
        }
    }
}
