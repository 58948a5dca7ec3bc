//! Where the daemon is, and how to show who asks: flags of every program that speaks to one.

use std::path::{Path, PathBuf};

use clap::Args;
use cuzk::config::{Config, DEFAULT_LISTEN};
use cuzk_wire::client::{ConnectError, Endpoint, Tls};
use cuzk_wire::ADDR_VARIABLE;

/// A token's file holds a line, not a library.
const TOKEN_BYTES_MAX: u64 = 64 << 10;

/// Which daemon.
#[derive(Args, Clone, Debug)]
pub struct DaemonOptions {
    /// The daemon: unix:///path or host:port [default: CUZK_ADDR, else `[daemon] listen` of the configuration]
    #[arg(long, value_name = "ADDR", help_heading = "Daemon")]
    pub addr: Option<String>,
    /// Speak TLS, and trust the authorities in this file (PEM)
    #[arg(long, value_name = "FILE", help_heading = "Daemon")]
    tls_ca: Option<PathBuf>,
    /// This client's certificate (PEM), for a daemon that asks for one
    #[arg(long, value_name = "FILE", help_heading = "Daemon", requires = "tls_ca", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key of --tls-cert (PEM)
    #[arg(long, value_name = "FILE", help_heading = "Daemon", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Name in the daemon's certificate [default: the host of --addr]
    #[arg(long, value_name = "NAME", help_heading = "Daemon", requires = "tls_ca")]
    tls_name: Option<String>,
    /// File whose first line is the bearer token; lines that begin with # are none
    #[arg(long, value_name = "FILE", help_heading = "Daemon")]
    token_file: Option<PathBuf>,
}

impl DaemonOptions {
    /// The address as text: the flag's, the variable's, or where a daemon of this configuration listens.
    pub fn address(&self, config: &Config) -> String {
        let variable = || std::env::var(ADDR_VARIABLE).ok().filter(|text| !text.is_empty());
        let configured =
            || config.daemon.listen.0.first().map_or(DEFAULT_LISTEN.to_owned(), ToString::to_string);
        self.addr.clone().or_else(variable).unwrap_or_else(configured)
    }

    /// # Errors
    /// What is wrong with the address or with which file.
    pub fn endpoint(&self, config: &Config) -> Result<Endpoint, String> {
        let tls = match &self.tls_ca {
            None => None,
            Some(ca) => Some(Tls {
                ca: read(ca)?,
                identity: match (&self.tls_cert, &self.tls_key) {
                    (Some(certificate), Some(key)) => Some((read(certificate)?, read(key)?)),
                    _ => None,
                },
                server_name: self.tls_name.clone(),
            }),
        };
        let token = self.token_file.as_deref().map(read_token).transpose()?;
        let address = self.address(config).parse().map_err(|error: ConnectError| error.to_string())?;
        Ok(Endpoint { address, tls, token })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| unusable(path, &error.to_string()))
}

fn read_token(path: &Path) -> Result<String, String> {
    let size = std::fs::metadata(path).map_err(|error| unusable(path, &error.to_string()))?.len();
    if size > TOKEN_BYTES_MAX {
        return Err(unusable(path, "is too large for a token"));
    }
    let text = String::from_utf8(read(path)?).map_err(|_| unusable(path, "is no text"))?;
    match text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#')) {
        Some(token) => Ok(token.to_owned()),
        None => Err(unusable(path, "has no token")),
    }
}

fn unusable(path: &Path, what: &str) -> String {
    format!("{}: {what}", path.display())
}
