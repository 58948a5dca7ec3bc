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
    check_log_file(&config.logging.file)?;
    let text = toml::to_string(config)
        .map_err(|error| Failure::proving("configuration", format!("cannot be printed: {error}")))?;
    ui::out(&format!("# configuration is valid; values that would be used:\n{text}"))?;
    Ok(())
}

/// Whether logs could be appended to the file, without leaving an empty one behind.
fn check_log_file(file: &str) -> Result<(), ConfigError> {
    let path = Path::new(file);
    let tried = match path.try_exists() {
        _ if file.is_empty() => return Ok(()),
        Ok(true) => std::fs::OpenOptions::new().append(true).open(path).map(drop),
        Ok(false) => files::try_folder(files::folder(path)),
        Err(error) => Err(error),
    };
    tried.map_err(|error| ConfigError::Value {
        key: "logging.file".to_owned(),
        what: format!("{file}: {error}"),
    })
}
