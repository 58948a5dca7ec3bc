//! Configuration: what an operator may set, where each value comes from, and what is refused.
//!
//! Values are taken in this order, later ones win: defaults ([`Config::default`]), the file, the environment
//! (`CUZK_<SECTION>_<KEY>`, read once and never written), command-line flags. Every key is listed in
//! `config.example.toml`; a key that is not in [`Config`] is an error with a suggestion, never ignored.
//!
//! A value of the wrong type is found by trying each key alone, so that the error can name it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use toml::{Table, Value};

use crate::error::ConfigError;

/// Environment variable that names the configuration file.
pub const CONFIG_FILE_VARIABLE: &str = "CUZK_CONFIG";
/// Environment variable that Filecoin's own libraries read for the folder of parameter files.
pub const PARAMETER_CACHE_VARIABLE: &str = "FIL_PROOFS_PARAMETER_CACHE";
/// The folder that Filecoin's libraries use without [`PARAMETER_CACHE_VARIABLE`].
pub const DEFAULT_PARAMETER_CACHE: &str = "/var/tmp/filecoin-proof-parameters/";

/// Similarity (0 to 1) below which a known key is no suggestion for a misspelt one.
const SUGGESTION_SIMILARITY_MIN: f64 = 0.55;

/// Everything an operator may set. Sections and keys are those of `config.example.toml`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    pub gpus: GpusConfig,
    pub memory: MemoryConfig,
    pub scheduler: SchedulerConfig,
    pub synthesis: SynthesisConfig,
    pub srs: SrsConfig,
    pub logging: LoggingConfig,
}

/// `[gpus]`: which devices prove.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GpusConfig {
    pub devices: DeviceChoice,
}

impl Default for GpusConfig {
    fn default() -> Self {
        Self { devices: DeviceChoice::Auto }
    }
}

/// `[memory]`: host memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MemoryConfig {
    pub budget: MemoryBudget,
}

impl Default for MemoryConfig {
    fn default() -> Self {
        Self { budget: MemoryBudget::Auto }
    }
}

/// `[scheduler]`: how much is accepted and in which order it is served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SchedulerConfig {
    pub max_queued_jobs: u32,
}

impl Default for SchedulerConfig {
    fn default() -> Self {
        Self { max_queued_jobs: 1024 }
    }
}

/// `[synthesis]`: making witnesses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SynthesisConfig {
    pub threads: u32,
}

/// `[srs]`: proving keys and what is kept about them on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SrsConfig {
    pub params_dir: String,
    pub cache_dir: String,
}

/// `[logging]`: what is logged, how and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LoggingConfig {
    pub level: String,
    pub format: LogFormat,
    pub file: String,
}

impl Default for LoggingConfig {
    fn default() -> Self {
        Self { level: "warn".to_owned(), format: LogFormat::Text, file: String::new() }
    }
}

/// Form of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            other => Err(format!("unknown log format `{other}`: use text or json")),
        }
    }
}

/// Which devices an engine uses: `auto`, `cpu`, `cuda`, `sim:N`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// Every GPU this build can drive; without one, the CPU.
    #[default]
    Auto,
    Cpu,
    Cuda,
    /// That many simulated devices, whose proofs are made by the CPU prover.
    Sim(u32),
}

/// Simulated devices at most: more only costs threads.
pub const SIM_DEVICES_MAX: u32 = 64;

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => return Ok(Self::Auto),
            "cpu" => return Ok(Self::Cpu),
            "cuda" => return Ok(Self::Cuda),
            _ => {}
        }
        let count = text.strip_prefix("sim:").ok_or_else(|| {
            format!("unknown device `{text}`: use auto, cpu, cuda or sim:N (such as sim:2)")
        })?;
        match count.parse() {
            Ok(count @ 1..=SIM_DEVICES_MAX) => Ok(Self::Sim(count)),
            _ => Err(format!("`{text}`: number of simulated devices needs 1 to {SIM_DEVICES_MAX}")),
        }
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda => f.write_str("cuda"),
            Self::Sim(count) => write!(f, "sim:{count}"),
        }
    }
}

/// A budget of host memory: `auto`, or a size such as `16GiB`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemoryBudget {
    /// From the cgroup's limit or the machine's memory, less a margin.
    #[default]
    Auto,
    Bytes(u64),
}

impl MemoryBudget {
    /// The size in bytes; `None` for [`MemoryBudget::Auto`].
    pub fn bytes(self) -> Option<u64> {
        match self {
            Self::Auto => None,
            Self::Bytes(bytes) => Some(bytes),
        }
    }
}

const SIZE_UNITS: [(&str, u64); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

impl FromStr for MemoryBudget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let parsed = SIZE_UNITS.iter().find_map(|(unit, factor)| {
            let number = text.strip_suffix(unit)?.trim_end();
            number.parse::<u64>().ok()?.checked_mul(*factor)
        });
        parsed
            .map(Self::Bytes)
            .ok_or_else(|| format!("`{text}` is no memory size: use auto or a size such as 16GiB or 512MiB"))
    }
}

impl fmt::Display for MemoryBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Bytes(bytes) = *self else { return f.write_str("auto") };
        let (unit, factor) =
            SIZE_UNITS.into_iter().find(|(_, factor)| bytes != 0 && bytes % factor == 0).unwrap_or(("B", 1));
        write!(f, "{}{unit}", bytes / factor)
    }
}

/// Serde by the type's text, so that file, environment and flags are written alike.
macro_rules! serde_by_text {
    ($type:ty) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

serde_by_text!(DeviceChoice);
serde_by_text!(MemoryBudget);

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
        let named = environment.iter().find(|(name, _)| name == CONFIG_FILE_VARIABLE);
        let file = file.map(Path::to_owned).or_else(|| named.map(|(_, value)| PathBuf::from(value)));

        let mut loader = Loader::new();
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
        let mut loader = Loader::new();
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
        let bad = |key: &str, what: String| Err(ConfigError::Value { key: key.to_owned(), what });
        if let MemoryBudget::Bytes(bytes) = self.memory.budget {
            if bytes < MEMORY_BUDGET_MIN_BYTES {
                return bad(
                    "memory.budget",
                    format!(
                        "needs {} at least, has {}",
                        MemoryBudget::Bytes(MEMORY_BUDGET_MIN_BYTES),
                        self.memory.budget
                    ),
                );
            }
        }
        if self.scheduler.max_queued_jobs == 0 {
            return bad("scheduler.max_queued_jobs", "needs 1 at least, has 0".to_owned());
        }
        if self.synthesis.threads > THREADS_MAX {
            return bad(
                "synthesis.threads",
                format!("needs {THREADS_MAX} at most, has {}", self.synthesis.threads),
            );
        }
        if let Err(error) = crate::telemetry::parse_filter(&self.logging.level) {
            return bad("logging.level", error);
        }
        Ok(())
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

/// The smallest budget in which the smallest Filecoin circuit can be proved.
const MEMORY_BUDGET_MIN_BYTES: u64 = 256 << 20;
const THREADS_MAX: u32 = 1024;

/// Values collected over the defaults, and the defaults themselves, which say what keys there are.
struct Loader {
    defaults: Table,
    values: Table,
}

impl Loader {
    fn new() -> Self {
        let defaults = Table::try_from(Config::default()).expect("the default configuration is plain TOML");
        Self { values: defaults.clone(), defaults }
    }

    fn apply_file(&mut self, text: &str, origin: &str) -> Result<(), ConfigError> {
        let table: Table = text.parse().map_err(|error: toml::de::Error| ConfigError::Read {
            path: origin.to_owned(),
            what: error.to_string().trim_end().to_owned(),
        })?;
        for (section, value) in table {
            if !self.defaults.contains_key(&section) {
                return Err(self.unknown(&section));
            }
            let Value::Table(entries) = value else {
                return Err(ConfigError::Value {
                    key: section.clone(),
                    what: format!("is a section: write `[{section}]`"),
                });
            };
            for (key, value) in entries {
                self.set(&section, &key, value)?;
            }
        }
        Ok(())
    }

    /// A variable of another program that happens to begin with `CUZK_` (an orchestrator makes
    /// `CUZK_SERVICE_HOST` for a service of that name) is none of ours; one that names a section is.
    fn apply_variable(&mut self, name: &str, value: &str) -> Result<(), ConfigError> {
        let Some(rest) = name.strip_prefix("CUZK_") else { return Ok(()) };
        let rest = rest.to_ascii_lowercase();
        let Some((section, key)) = rest.split_once('_') else { return Ok(()) };
        let Some(known) = self.defaults.get(section).and_then(Value::as_table) else { return Ok(()) };
        let value = match known.get(key) {
            Some(Value::String(_)) | None => Value::String(value.to_owned()),
            Some(_) => parse_value(value).unwrap_or_else(|| Value::String(value.to_owned())),
        };
        let (section, key) = (section.to_owned(), key.to_owned());
        self.set(&section, &key, value).map_err(|error| match error {
            ConfigError::Value { what, .. } => ConfigError::Value { key: name.to_owned(), what },
            other => other,
        })
    }

    fn set(&mut self, section: &str, key: &str, value: Value) -> Result<(), ConfigError> {
        let dotted = format!("{section}.{key}");
        let known = self.defaults[section].as_table().expect("every field of Config is a section");
        if !known.contains_key(key) {
            return Err(self.unknown(&dotted));
        }
        let entries = self.values[section].as_table_mut().expect("every field of Config is a section");
        entries.insert(key.to_owned(), value);
        match Config::deserialize(self.values.clone()) {
            Ok(_) => Ok(()),
            Err(error) => Err(ConfigError::Value { key: dotted, what: error.message().to_owned() }),
        }
    }

    fn finish(self) -> Result<Config, ConfigError> {
        let invalid = |error: toml::de::Error| ConfigError::Value {
            key: "configuration".to_owned(),
            what: error.message().to_owned(),
        };
        Config::deserialize(self.values).map_err(invalid)
    }

    fn unknown(&self, dotted: &str) -> ConfigError {
        let suggestion = suggest(dotted, &known_keys(&self.defaults));
        ConfigError::UnknownKey { key: dotted.to_owned(), suggestion }
    }
}

/// A number or a truth value as TOML writes it.
fn parse_value(text: &str) -> Option<Value> {
    format!("value = {text}").parse::<Table>().ok()?.remove("value")
}

/// Every section, and every key as `section.key`.
fn known_keys(defaults: &Table) -> Vec<String> {
    let mut keys: Vec<String> = defaults.keys().cloned().collect();
    for (section, value) in defaults {
        let entries = value.as_table().expect("every field of Config is a section");
        keys.extend(entries.keys().map(|key| format!("{section}.{key}")));
    }
    keys
}

/// The known key that `unknown` most likely stands for: compared as a whole, and by its last part alone, since a
/// key in the wrong section is a usual mistake too.
fn suggest(unknown: &str, known: &[String]) -> Option<String> {
    fn last(key: &str) -> &str {
        key.rsplit('.').next().unwrap_or(key)
    }
    let similarity = |candidate: &str| {
        let whole = strsim::normalized_damerau_levenshtein(unknown, candidate);
        let part = strsim::normalized_damerau_levenshtein(last(unknown), last(candidate));
        whole.max(part)
    };
    known
        .iter()
        .map(|candidate| (similarity(candidate), candidate))
        .filter(|(similarity, _)| *similarity >= SUGGESTION_SIMILARITY_MIN)
        .max_by(|left, right| left.0.total_cmp(&right.0))
        .map(|(_, candidate)| candidate.clone())
}
