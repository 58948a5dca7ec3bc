//! Configuration: what an operator may set, where each value comes from, and what is refused.
//!
//! Values are taken in this order, later ones win: defaults ([`Config::default`]), the file, the environment
//! (`CUZK_<SECTION>_<KEY>`, read once and never written), command-line flags. Every key is listed in
//! `config.example.toml`; a key that is not in [`Config`] is an error with a suggestion, never ignored.

mod daemon;
mod engine;
mod legacy;
mod load;
mod values;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::ConfigError;
use crate::journal::{RETENTION_AGE_S, RETENTION_COUNT};

pub use daemon::{DaemonConfig, DEFAULT_LISTEN, DEFAULT_STATUS_LISTEN};
pub use engine::{BACKENDS_BUILT, BACKENDS_NOT_BUILT};
pub use values::{
    ByteSize, DeviceChoice, ListenAddress, ListenAddresses, LogFormat, LogRotation, MemoryBudget, SocketMode,
};

/// Environment variable that names the configuration file.
pub const CONFIG_FILE_VARIABLE: &str = "CUZK_CONFIG";
/// Environment variable that Filecoin's own libraries read for the folder of parameter files.
pub const PARAMETER_CACHE_VARIABLE: &str = "FIL_PROOFS_PARAMETER_CACHE";
/// The folder that Filecoin's libraries use without [`PARAMETER_CACHE_VARIABLE`].
pub const DEFAULT_PARAMETER_CACHE: &str = "/var/tmp/filecoin-proof-parameters/";

const THREADS_MAX: u64 = 1024;
/// A day: anything longer is a mistake of unit.
const SECONDS_MAX: u64 = 86_400;
/// A year.
const RETENTION_AGE_S_MAX: u64 = 366 * 86_400;

/// Everything an operator may set. Sections and keys are those of `config.example.toml`, which explains each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    pub daemon: DaemonConfig,
    pub gpus: GpusConfig,
    pub memory: MemoryConfig,
    pub scheduler: SchedulerConfig,
    pub synthesis: SynthesisConfig,
    pub srs: SrsConfig,
    pub fetch: FetchConfig,
    pub journal: JournalConfig,
    pub logging: LoggingConfig,
    pub telemetry: TelemetryConfig,
    /// Keys of the file that were read under another name or have no effect, in words: for the log.
    #[serde(skip)]
    pub warnings: Vec<String>,
}

/// `[gpus]`: which devices prove, and how each is treated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GpusConfig {
    pub devices: DeviceChoice,
    /// Partitions that one device proves side by side. 0: one on the CPU, two on a GPU.
    pub gpu_workers_per_device: u32,
    /// Threads of the CPU device. 0: one per core.
    pub cpu_threads: u32,
    /// Of each device.
    pub memory_budget: MemoryBudget,
    /// Part of `memory_budget` that only CRITICAL work may use.
    pub critical_reserve: ByteSize,
    /// Devices that take CRITICAL work and nothing else, named as in `devices`.
    pub critical_devices: Vec<String>,
    /// Partitions of one circuit share a pass over what a GPU streams.
    pub share_passes: bool,
    /// The CPU proves what no GPU is left for.
    pub cpu_fallback: bool,
    /// Prove a known answer before a device is used.
    pub self_test: bool,
    pub start_limit_s: u64,
    pub max_restarts: u32,
    pub restart_window_s: u64,
    pub quarantine_s: u64,
}

impl Default for GpusConfig {
    fn default() -> Self {
        Self {
            devices: DeviceChoice::Auto,
            gpu_workers_per_device: 0,
            cpu_threads: 0,
            memory_budget: MemoryBudget::Auto,
            critical_reserve: ByteSize(0),
            critical_devices: Vec::new(),
            share_passes: true,
            cpu_fallback: false,
            self_test: true,
            start_limit_s: 60,
            max_restarts: 3,
            restart_window_s: 60,
            quarantine_s: 60,
        }
    }
}

/// `[memory]`: host memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MemoryConfig {
    /// Of circuits (shapes and proving keys) and witnesses together.
    pub budget: MemoryBudget,
}

/// `[scheduler]`: how much is accepted and in which order it is served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SchedulerConfig {
    pub max_queued_jobs: u32,
    pub max_attempts: u32,
    pub retained_results: u32,
    pub aging_step_s: u64,
    pub affinity_limit_s: u64,
    pub batch_partitions: u32,
    pub batch_limit_s: u64,
}

impl Default for SchedulerConfig {
    fn default() -> Self {
        Self {
            max_queued_jobs: 256,
            max_attempts: 3,
            retained_results: 256,
            aging_step_s: 300,
            affinity_limit_s: 30,
            batch_partitions: 32,
            batch_limit_s: 120,
        }
    }
}

/// `[synthesis]`: making witnesses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SynthesisConfig {
    /// 0: one per core.
    pub threads: u32,
}

/// `[srs]`: proving keys, and what is kept about them on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SrsConfig {
    /// See [`Config::params_dir`].
    pub params_dir: String,
    /// See [`Config::cache_dir`].
    pub cache_dir: String,
    /// Circuits that are loaded before the engine counts as ready, by id.
    pub warmup: Vec<String>,
    /// 0: until the memory is wanted.
    pub idle_limit_s: u64,
    /// Use the fold of a key that is beside its parameter file.
    pub folds: bool,
}

impl Default for SrsConfig {
    fn default() -> Self {
        Self {
            params_dir: String::new(),
            cache_dir: String::new(),
            warmup: Vec::new(),
            idle_limit_s: 0,
            folds: true,
        }
    }
}

/// `[fetch]`: where parameter files are fetched from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FetchConfig {
    /// Addresses, tried in turn. Empty: Filecoin's own gateway.
    pub gateways: Vec<String>,
    /// File with the certificates that mirrors are trusted by, PEM. Empty: those that browsers trust.
    pub ca: String,
    /// Files at a time.
    pub parallel_files: u32,
    /// After which a mirror that sends nothing is given up for the next one.
    pub stall_limit_s: u64,
}

impl Default for FetchConfig {
    fn default() -> Self {
        Self { gateways: Vec::new(), ca: String::new(), parallel_files: 4, stall_limit_s: 30 }
    }
}

/// `[journal]`: where accepted jobs and their results outlive the process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JournalConfig {
    /// Empty: no journal.
    pub path: String,
    pub retention_count: u32,
    pub retention_age_s: u64,
}

impl Default for JournalConfig {
    fn default() -> Self {
        Self {
            path: String::new(),
            retention_count: RETENTION_COUNT as u32,
            retention_age_s: RETENTION_AGE_S,
        }
    }
}

/// `[logging]`: what is logged, how and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LoggingConfig {
    /// A filter such as `info` or `warn,cuzk=debug`.
    pub level: String,
    pub format: LogFormat,
    /// Empty: standard error.
    pub file: String,
    pub rotation: LogRotation,
    /// Files that are kept when they are rotated.
    pub retained_files: u32,
}

/// `[telemetry]`: what is recorded of the engine's work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TelemetryConfig {
    /// File that events are written to. Empty: none are made.
    pub event_log: String,
    /// Collector that spans are sent to, such as `http://127.0.0.1:4317`. Empty: none.
    pub otlp_endpoint: String,
}

impl Default for LoggingConfig {
    fn default() -> Self {
        Self {
            level: "warn".to_owned(),
            format: LogFormat::Text,
            file: String::new(),
            rotation: LogRotation::Never,
            retained_files: 7,
        }
    }
}

impl Config {
    /// Defaults, then `file` (or the file that [`CONFIG_FILE_VARIABLE`] names), then the environment; validated.
    /// Flags are applied by the caller, who then calls [`Config::validate`] again.
    ///
    /// # Errors
    /// [`ConfigError`] naming the file, the key or the variable.
    pub fn load(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let environment: Vec<(String, String)> =
            environment.into_iter().filter(|(name, _)| name.starts_with("CUZK_")).collect();
        // Empty means the same as not set, as for every variable of this kind.
        let named =
            environment.iter().find(|(name, value)| name == CONFIG_FILE_VARIABLE && !value.is_empty());
        let file = file.map(Path::to_owned).or_else(|| named.map(|(_, value)| PathBuf::from(value)));

        let mut loader = load::Loader::new();
        if let Some(path) = file {
            let text = std::fs::read_to_string(&path).map_err(|error| ConfigError::Read {
                path: path.display().to_string(),
                what: error.to_string(),
            })?;
            loader.apply_file(&text, &path.display().to_string())?;
        }
        for (name, value) in &environment {
            loader.apply_variable(name, value)?;
        }
        let config = loader.finish()?;
        config.validate()?;
        Ok(config)
    }

    /// A configuration from the text of a file alone. `origin` names it in errors.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn from_toml(text: &str, origin: &str) -> Result<Self, ConfigError> {
        let mut loader = load::Loader::new();
        loader.apply_file(text, origin)?;
        let config = loader.finish()?;
        config.validate()?;
        Ok(config)
    }

    /// Checks what types alone cannot say.
    ///
    /// # Errors
    /// [`ConfigError::Value`] naming the first key whose value cannot be used, with what it needs and has.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let GpusConfig { gpu_workers_per_device, cpu_threads, start_limit_s, .. } = self.gpus;
        within("gpus.gpu_workers_per_device", gpu_workers_per_device.into(), 0, 16)?;
        within("gpus.cpu_threads", cpu_threads.into(), 0, THREADS_MAX)?;
        within("gpus.max_restarts", self.gpus.max_restarts.into(), 0, 1000)?;
        within("gpus.start_limit_s", start_limit_s, 1, SECONDS_MAX)?;
        within("gpus.restart_window_s", self.gpus.restart_window_s, 1, SECONDS_MAX)?;
        within("gpus.quarantine_s", self.gpus.quarantine_s, 1, SECONDS_MAX)?;
        within("scheduler.max_queued_jobs", self.scheduler.max_queued_jobs.into(), 1, u64::from(u32::MAX))?;
        within("scheduler.max_attempts", self.scheduler.max_attempts.into(), 1, 100)?;
        within("scheduler.aging_step_s", self.scheduler.aging_step_s, 1, SECONDS_MAX)?;
        within("scheduler.affinity_limit_s", self.scheduler.affinity_limit_s, 0, SECONDS_MAX)?;
        within("scheduler.batch_partitions", self.scheduler.batch_partitions.into(), 1, 1_000_000)?;
        within("scheduler.batch_limit_s", self.scheduler.batch_limit_s, 0, SECONDS_MAX)?;
        within("srs.idle_limit_s", self.srs.idle_limit_s, 0, SECONDS_MAX)?;
        within("fetch.parallel_files", self.fetch.parallel_files.into(), 1, 64)?;
        within("fetch.stall_limit_s", self.fetch.stall_limit_s, 1, SECONDS_MAX)?;
        within("synthesis.threads", self.synthesis.threads.into(), 0, THREADS_MAX)?;
        within("journal.retention_count", self.journal.retention_count.into(), 1, u64::from(u32::MAX))?;
        within("journal.retention_age_s", self.journal.retention_age_s, 1, RETENTION_AGE_S_MAX)?;
        at_least("gpus.memory_budget", self.gpus.memory_budget, 64 << 20)?;
        at_least("memory.budget", self.memory.budget, 1 << 20)?;
        within("logging.retained_files", self.logging.retained_files.into(), 1, 10_000)?;
        self.daemon.validate()?;
        self.warmup_circuits()?;
        self.check_critical_reserve()?;
        crate::telemetry::parse_filter(&self.logging.level)
            .map_err(|what| ConfigError::Value { key: "logging.level".to_owned(), what })?;
        Ok(())
    }

    /// A reserve as large as the whole budget would leave no other work any room, ever. What a GPU has is not known
    /// here: it is refused when it opens.
    fn check_critical_reserve(&self) -> Result<(), ConfigError> {
        let reserve = self.gpus.critical_reserve;
        if reserve.0 == 0 {
            return Ok(());
        }
        match self.known_device_budget_bytes()? {
            Some(budget_bytes) if reserve.0 >= budget_bytes => Err(ConfigError::Value {
                key: "gpus.critical_reserve".to_owned(),
                what: format!(
                    "needs less than a device's memory_budget ({}), has {reserve}",
                    ByteSize(budget_bytes)
                ),
            }),
            _ => Ok(()),
        }
    }

    /// The folder of parameter files: `[srs] params_dir`, else [`PARAMETER_CACHE_VARIABLE`], else
    /// [`DEFAULT_PARAMETER_CACHE`].
    pub fn params_dir(&self) -> PathBuf {
        if !self.srs.params_dir.is_empty() {
            return PathBuf::from(&self.srs.params_dir);
        }
        match std::env::var_os(PARAMETER_CACHE_VARIABLE) {
            Some(dir) if !dir.is_empty() => PathBuf::from(dir),
            _ => PathBuf::from(DEFAULT_PARAMETER_CACHE),
        }
    }

    /// The folder of circuit shapes and of verdicts on parameter files: `[srs] cache_dir`, else
    /// `$XDG_CACHE_HOME/cuzk`, else `$HOME/.cache/cuzk`, else `cuzk` in the folder for temporary files.
    pub fn cache_dir(&self) -> PathBuf {
        if !self.srs.cache_dir.is_empty() {
            return PathBuf::from(&self.srs.cache_dir);
        }
        let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|dir| dir.is_absolute());
        absolute("XDG_CACHE_HOME")
            .or_else(|| absolute("HOME").map(|home| home.join(".cache")))
            .unwrap_or_else(std::env::temp_dir)
            .join("cuzk")
    }
}

fn within(key: &str, has: u64, min: u64, max: u64) -> Result<(), ConfigError> {
    if (min..=max).contains(&has) {
        return Ok(());
    }
    Err(ConfigError::Value { key: key.to_owned(), what: format!("needs {min} to {max}, has {has}") })
}

fn at_least(key: &str, has: MemoryBudget, min_bytes: u64) -> Result<(), ConfigError> {
    match has.bytes() {
        Some(bytes) if bytes < min_bytes => Err(ConfigError::Value {
            key: key.to_owned(),
            what: format!("needs {} at least, has {has}", ByteSize(min_bytes)),
        }),
        _ => Ok(()),
    }
}
