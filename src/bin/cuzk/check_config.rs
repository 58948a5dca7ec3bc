//! `cuzk check-config`: is this configuration usable, and what does it say?

use std::path::{Path, PathBuf};

use clap::Args;
use cuzk::config::Config;
use cuzk::error::ConfigError;

use crate::failure::Failure;
use crate::options::environment;
use crate::{files, ui};

/// Check a configuration file and print the values that would be used
#[derive(Args)]
pub struct CheckConfigArgs {
    /// File to check [default: the one of --config or CUZK_CONFIG, else the defaults]
    file: Option<PathBuf>,
}

pub fn run(args: &CheckConfigArgs, config: &Config) -> Result<(), Failure> {
    let of_file;
    let config = match &args.file {
        Some(file) => {
            of_file = Config::load(Some(file), environment())?;
            &of_file
        }
        None => config,
    };
    config.check_devices_built()?;
    check_file("logging.file", &config.logging.file)?;
    check_file("journal.path", &config.journal.path)?;
    let text = toml::to_string(config)
        .map_err(|error| Failure::proving("configuration", format!("cannot be printed: {error}")))?;
    let warnings: String = config.warnings.iter().map(|warning| format!("# warning: {warning}\n")).collect();
    ui::out(&format!("# configuration is valid; values that would be used:\n{warnings}{text}"))?;
    Ok(())
}

/// Whether the file could be written, without leaving an empty one behind.
fn check_file(key: &str, file: &str) -> Result<(), ConfigError> {
    let path = Path::new(file);
    let tried = match path.try_exists() {
        _ if file.is_empty() => return Ok(()),
        Ok(true) => std::fs::OpenOptions::new().append(true).open(path).map(drop),
        Ok(false) => files::try_folder(files::folder(path)),
        Err(error) => Err(error),
    };
    tried.map_err(|error| ConfigError::Value { key: key.to_owned(), what: format!("{file}: {error}") })
}
