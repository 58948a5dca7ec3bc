//! Logs: format, filter and place, as `[logging]` says. The file of what the engine does: [`event_log`].
//!
//! Logs never go to standard output, which belongs to results. Records of the `log` crate (Filecoin's libraries use
//! it) pass through the same filter and format, and so do panics: a worker's panic becomes one log line instead of
//! free text on standard error.

pub mod event_log;
pub mod process;

use std::fs::OpenOptions;
use std::io::IsTerminal;
use std::path::Path;

use tracing_appender::non_blocking::{NonBlocking, WorkerGuard};
use tracing_appender::rolling::{RollingFileAppender, Rotation};
use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{reload, Registry};

use crate::config::{LogFormat, LogRotation, LoggingConfig};
use crate::error::{panic_text, ConfigError};

/// Keeps logs flowing. Drop it last: what is still buffered is written then.
#[must_use = "logs stop when this is dropped"]
pub struct TelemetryGuard {
    filter: reload::Handle<EnvFilter, Registry>,
    _appender: WorkerGuard,
}

impl TelemetryGuard {
    pub fn filter(&self) -> LogFilter {
        LogFilter(self.filter.clone())
    }
}

/// What is let through to the log.
#[derive(Clone)]
pub struct LogFilter(reload::Handle<EnvFilter, Registry>);

impl LogFilter {
    /// Another filter from now on.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn set(&self, text: &str) -> Result<(), ConfigError> {
        let wrong = |what: String| value("logging.level", what);
        let filter = parse_filter(text).map_err(wrong)?;
        self.0.reload(filter).map_err(|error| value("logging.level", error.to_string()))
    }
}

/// One more place that spans and events go to, such as a collector.
pub type ExtraLayer = Box<dyn Layer<Filtered> + Send + Sync>;
/// What an [`ExtraLayer`] is put on.
pub type Filtered = tracing_subscriber::layer::Layered<reload::Layer<EnvFilter, Registry>, Registry>;

fn value(key: &str, what: String) -> ConfigError {
    ConfigError::Value { key: key.to_owned(), what }
}

/// A filter such as `info` or `warn,cuzk=debug`.
///
/// # Errors
/// What is wrong with it, and what to write instead.
pub fn parse_filter(text: &str) -> Result<EnvFilter, String> {
    // `EnvFilter` reads an unknown level such as `verbose` as the name of a module, which would silence everything.
    let is_level = |word: &str| {
        matches!(word.to_ascii_lowercase().as_str(), "off" | "error" | "warn" | "info" | "debug" | "trace")
    };
    let first = text.split(',').next().unwrap_or_default().trim();
    if first.is_empty() || (!first.contains(['=', '[', ':']) && !is_level(first)) {
        return Err(format!(
            "`{text}` does not begin with a level: use off, error, warn, info, debug or trace, as in `info` or \
             `warn,cuzk=debug`"
        ));
    }
    EnvFilter::try_new(text).map_err(|error| format!("`{text}`: {error}"))
}

/// Starts logging for the whole process. Call once, before any thread is started; a second call is an error.
///
/// # Errors
/// [`ConfigError`] if the filter is wrong, the file cannot be opened, or logging has already been started.
pub fn init(config: &LoggingConfig) -> Result<TelemetryGuard, ConfigError> {
    init_with(config, None)
}

/// As [`init`], with one more place that spans and events go to.
///
/// # Errors
/// As [`init`].
pub fn init_with(config: &LoggingConfig, extra: Option<ExtraLayer>) -> Result<TelemetryGuard, ConfigError> {
    let filter = parse_filter(&config.level).map_err(|what| value("logging.level", what))?;
    let to_file = !config.file.is_empty();
    let (writer, guard) = if to_file { file_writer(config)? } else { stderr_writer() };
    let ansi = !to_file && config.format == LogFormat::Text && std::io::stderr().is_terminal();

    let (filter, handle) = reload::Layer::new(filter);
    let lines = tracing_subscriber::fmt::layer().with_ansi(ansi).with_writer(BoxMakeWriter::new(writer));
    let base = tracing_subscriber::registry().with(filter).with(extra);
    let started = match config.format {
        LogFormat::Text => base.with(lines).try_init(),
        LogFormat::Json => base.with(lines.json().flatten_event(true)).try_init(),
    };
    started.map_err(|error| value("logging", error.to_string()))?;
    log_panics();
    Ok(TelemetryGuard { filter: handle, _appender: guard })
}

fn file_writer(config: &LoggingConfig) -> Result<(NonBlocking, WorkerGuard), ConfigError> {
    let path = Path::new(&config.file);
    let refused =
        |error: &dyn std::fmt::Display| value("logging.file", format!("{}: {error}", path.display()));
    let rotation = match config.rotation {
        LogRotation::Never => {
            let file =
                OpenOptions::new().create(true).append(true).open(path).map_err(|error| refused(&error))?;
            return Ok(tracing_appender::non_blocking(file));
        }
        LogRotation::Hourly => Rotation::HOURLY,
        LogRotation::Daily => Rotation::DAILY,
    };
    let name = path.file_name().and_then(|name| name.to_str()).ok_or_else(|| refused(&"names no file"))?;
    let rolling = RollingFileAppender::builder()
        .rotation(rotation)
        .filename_prefix(name)
        .max_log_files(config.retained_files as usize)
        .build(path.parent().unwrap_or(Path::new(".")))
        .map_err(|error| refused(&error))?;
    Ok(tracing_appender::non_blocking(rolling))
}

fn stderr_writer() -> (NonBlocking, WorkerGuard) {
    tracing_appender::non_blocking(std::io::stderr())
}

/// One log line per panic. Panics that are part of normal work (Filecoin's circuits panic on some bad inputs, and
/// the Synthesizer turns that into a typed error) are only seen with `debug`; the thread's name tells them apart.
fn log_panics() {
    std::panic::set_hook(Box::new(|info| {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("unnamed");
        let message = panic_text(info.payload());
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        if name.starts_with(CAUGHT_PANIC_THREADS) {
            tracing::debug!(thread = name, place, "panic caught: {message}");
        } else {
            tracing::error!(thread = name, place, "panic: {message}");
        }
    }));
}

/// Prefix of the names of threads whose panics are caught and reported as the job's error.
const CAUGHT_PANIC_THREADS: &str = "cuzk-worker";
