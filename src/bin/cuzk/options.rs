//! Options that several commands share, and how they change the configuration.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use cuzk::config::{Config, DeviceChoice, LogFormat, LoggingConfig};
use cuzk::error::ConfigError;
use cuzk::messages::events::EventSink;
use cuzk::telemetry::event_log::EventLog;

/// Options of every command.
#[derive(Args)]
pub struct GlobalOptions {
    /// Configuration file (else the one that CUZK_CONFIG names, else defaults)
    #[arg(long, short, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Log filter, such as `info` or `warn,cuzk=debug`
    #[arg(long, global = true, value_name = "FILTER")]
    pub log_level: Option<String>,
    /// Form of log lines: text or json
    #[arg(long, global = true, value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,
}

impl GlobalOptions {
    /// The configuration, with these flags applied.
    pub fn config(&self) -> Result<Config, ConfigError> {
        let mut config = Config::load(self.config.as_deref(), environment())?;
        if let Some(level) = &self.log_level {
            config.logging.level.clone_from(level);
        }
        if let Some(format) = self.log_format {
            config.logging.format = format;
        }
        config.validate()?;
        Ok(config)
    }
}

/// How this program logs. What the scheduler logs of jobs that fail or are tried again, every command says itself on
/// standard error. Who has not asked for other log lines than the default's need not read it twice.
pub fn logging(config: &Config) -> LoggingConfig {
    let default = LoggingConfig::default();
    let mut logging = config.logging.clone();
    if logging.level == default.level && logging.file == default.file {
        logging.level += ",cuzk::actors::scheduler::outcome=error";
    }
    logging
}

/// Where events go.
#[derive(Args)]
pub struct EventsOption {
    /// Write everything the engine does to this file, for `cuzk-bench timeline` [default: `[telemetry] event_log`]
    #[arg(long, value_name = "FILE")]
    pub events: Option<PathBuf>,
}

impl EventsOption {
    /// The engine's end of the log, and its guard, which must outlive the engine. No log if none is asked for.
    pub fn open(&self, config: &Config) -> Result<(EventSink, Option<EventLog>), ConfigError> {
        let configured = Some(&config.telemetry.event_log).filter(|path| !path.is_empty());
        match self.events.clone().or_else(|| configured.map(PathBuf::from)) {
            Some(path) => EventLog::create(&path).map(|(sink, log)| (sink, Some(log))),
            None => Ok((EventSink::off(), None)),
        }
    }
}

/// How to say what is wrong before there is a configuration: as JSON if `--log-format` or the environment says so. What
/// the configuration file says of it cannot be known, since the file may be what is wrong.
pub fn early_logging() -> LoggingConfig {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let is_flag = |pair: &[OsString]| pair[0] == "--log-format" && pair[1] == "json";
    let by_flag =
        arguments.windows(2).any(is_flag) || arguments.iter().any(|argument| argument == "--log-format=json");
    let by_variable = std::env::var_os("CUZK_LOGGING_FORMAT").is_some_and(|format| format == "json");
    let format = if by_flag || by_variable { LogFormat::Json } else { LogFormat::Text };
    LoggingConfig { format, ..LoggingConfig::default() }
}

/// The environment's variables, but for those that are no text: none of ours is one of them.
pub fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

/// Where parameter files are.
#[derive(Args)]
pub struct ParamsOption {
    /// Folder of parameter files [default: `[srs] params_dir` of the configuration, else FIL_PROOFS_PARAMETER_CACHE, else
    /// /var/tmp/filecoin-proof-parameters/]
    #[arg(long, value_name = "DIR")]
    pub params: Option<PathBuf>,
}

impl ParamsOption {
    pub fn dir(&self, config: &Config) -> PathBuf {
        self.params.clone().unwrap_or_else(|| config.params_dir())
    }
}

/// Which devices prove.
#[derive(Args)]
pub struct DeviceOption {
    /// Devices that prove: auto, cpu, cuda, cuda:DEVICE[,DEVICE] (UUID, PCI bus id or number), or sim:N (N simulated
    /// devices over the CPU prover)
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<DeviceChoice>,
}

impl DeviceOption {
    pub fn choice(&self, config: &Config) -> DeviceChoice {
        self.device.clone().unwrap_or_else(|| config.gpus.devices.clone())
    }
}
