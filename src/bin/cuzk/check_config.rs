//! `cuzk check-config`: is this configuration usable, and what does it say?

use std::path::PathBuf;

use clap::Args;
use cuzk::config::Config;

use crate::failure::Failure;
use crate::options::environment;
use crate::ui;

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
    let text = toml::to_string(config)
        .map_err(|error| Failure::proving("configuration", format!("cannot be printed: {error}")))?;
    ui::out(&format!("# configuration is valid; values that would be used:\n{text}"));
    Ok(())
}
