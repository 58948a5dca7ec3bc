//! Arguments, and how they change the configuration.

use std::path::PathBuf;

use clap::Parser;
use cuzk::config::{Config, ListenAddresses, LogFormat};
use cuzk::error::ConfigError;

/// Serves the proving engine to Curio and to others, over gRPC (cuzk.v1.ProvingEngine) and HTTP.
#[derive(Clone, Debug, Parser)]
#[command(name = "cuzk-daemon", version, max_term_width = 100, after_help = AFTER_HELP)]
pub struct Args {
    /// Configuration file (else the one that CUZK_CONFIG names, else defaults)
    #[arg(long, short, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where to serve gRPC: unix:///path or host:port; several with commas
    #[arg(long, short, value_name = "ADDRESS")]
    pub listen: Option<ListenAddresses>,
    /// Log filter, such as `info` or `warn,cuzk=debug`
    #[arg(long, value_name = "FILTER")]
    pub log_level: Option<String>,
    /// Form of log lines: text or json
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,
    /// Serve addresses that other machines can reach without TLS
    #[arg(long)]
    pub insecure: bool,
    /// Check the configuration, say what is wrong, and exit
    #[arg(long)]
    pub check_config: bool,
}

const AFTER_HELP: &str = "\
Exit codes: 0 drained after SIGTERM, SIGINT or `cuzk drain`; 1 no device is left, the engine or a server failed; 2 wrong arguments or \
configuration, also one that would be unsafe; 4 another daemon serves this socket or uses this journal; 130, 143 a second \
SIGINT or SIGTERM ended it at once.

SIGHUP reads the configuration again. docs/operations.md explains every exit code and error.";

impl Args {
    /// The configuration: defaults, the file, the environment, these flags.
    pub fn load(&self) -> Result<Config, ConfigError> {
        // Variables that are no text are none of ours.
        let environment = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        let mut config = Config::load(self.config.as_deref(), environment)?;
        if let Some(listen) = &self.listen {
            config.daemon.listen.clone_from(listen);
        }
        if let Some(level) = &self.log_level {
            config.logging.level.clone_from(level);
        }
        if let Some(format) = self.log_format {
            config.logging.format = format;
        }
        config.daemon.insecure |= self.insecure;
        config.validate()?;
        Ok(config)
    }
}
