//! `[daemon]`: where the daemon listens, whom it lets in, how much it takes at a time.

use serde::{Deserialize, Serialize};

use super::values::{ByteSize, ListenAddresses, SocketMode};
use super::{within, Config};
use crate::error::ConfigError;

/// A year.
const SECONDS_MAX: u64 = 366 * 86_400;

/// `[daemon]`: the program `cuzk-daemon`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DaemonConfig {
    /// gRPC: `unix:///path` or `host:port`.
    pub listen: ListenAddresses,
    /// HTTP: health, metrics, status and the page. Empty: none.
    pub status_listen: String,
    pub socket_mode: SocketMode,
    /// Name or number. Empty: the process's own.
    pub socket_group: String,
    /// Serve addresses that others can reach without TLS.
    pub insecure: bool,
    /// PEM files. Empty: no TLS.
    pub tls_cert: String,
    pub tls_key: String,
    /// PEM file: clients need a certificate that it signed. Empty: they need none.
    pub tls_client_ca: String,
    /// File of bearer tokens, one a line. Empty: none is asked for.
    pub token_file: String,
    /// Folder that the daemon writes to. See [`Config::state_dir`].
    pub state_dir: String,
    pub drain_limit_s: u64,
    pub max_connections: u32,
    pub max_streams_per_connection: u32,
    pub max_calls: u32,
    /// 0: no limit.
    pub max_calls_per_s: u32,
    /// 0: no limit.
    pub max_calls_per_s_per_connection: u32,
    /// Of requests that are being received or decoded, all together.
    pub max_bytes_in_flight: ByteSize,
    /// The same of one connection.
    pub max_bytes_per_connection: ByteSize,
    pub max_header_bytes: ByteSize,
    /// How long a connection may take to say what it wants, and a request may stand still.
    pub slow_client_limit_s: u64,
}

/// Where Curio's client looks for a daemon.
pub const DEFAULT_LISTEN: &str = "unix:///run/curio/cuzk.sock";
/// Where the page is.
pub const DEFAULT_STATUS_LISTEN: &str = "127.0.0.1:9821";

impl Default for DaemonConfig {
    fn default() -> Self {
        Self {
            listen: DEFAULT_LISTEN.parse().expect("a test reads it"),
            status_listen: DEFAULT_STATUS_LISTEN.to_owned(),
            socket_mode: SocketMode(0o660),
            socket_group: String::new(),
            insecure: false,
            tls_cert: String::new(),
            tls_key: String::new(),
            tls_client_ca: String::new(),
            token_file: String::new(),
            state_dir: String::new(),
            drain_limit_s: 1800,
            max_connections: 256,
            max_streams_per_connection: 1024,
            max_calls: 4096,
            max_calls_per_s: 0,
            max_calls_per_s_per_connection: 0,
            max_bytes_in_flight: ByteSize(8 << 30),
            max_bytes_per_connection: ByteSize(4 << 30),
            max_header_bytes: ByteSize(16 << 10),
            slow_client_limit_s: 30,
        }
    }
}

impl DaemonConfig {
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        within("daemon.drain_limit_s", self.drain_limit_s, 0, SECONDS_MAX)?;
        within("daemon.max_connections", self.max_connections.into(), 1, 1_000_000)?;
        within("daemon.max_streams_per_connection", self.max_streams_per_connection.into(), 1, 1_000_000)?;
        within("daemon.max_calls", self.max_calls.into(), 1, 1_000_000)?;
        within("daemon.max_calls_per_s", self.max_calls_per_s.into(), 0, 1_000_000)?;
        within(
            "daemon.max_calls_per_s_per_connection",
            self.max_calls_per_s_per_connection.into(),
            0,
            1_000_000,
        )?;
        within("daemon.max_header_bytes", self.max_header_bytes.0, 1 << 10, 1 << 20)?;
        within("daemon.slow_client_limit_s", self.slow_client_limit_s, 1, 86_400)?;
        let value = |key: &str, what: String| Err(ConfigError::Value { key: key.to_owned(), what });
        // One request of the greatest size must find room.
        for (key, size) in [
            ("daemon.max_bytes_in_flight", self.max_bytes_in_flight),
            ("daemon.max_bytes_per_connection", self.max_bytes_per_connection),
        ] {
            if size.0 < 257 << 20 {
                return value(key, format!("needs 257MiB at least, has {size}"));
            }
        }
        if self.tls_cert.is_empty() != self.tls_key.is_empty() {
            return value(
                "daemon.tls_key",
                "tls_cert and tls_key are given together or not at all".to_owned(),
            );
        }
        if !self.tls_client_ca.is_empty() && self.tls_cert.is_empty() {
            return value("daemon.tls_client_ca", "needs tls_cert and tls_key".to_owned());
        }
        Ok(())
    }
}

impl Config {
    /// The folder that the daemon writes to: `[daemon] state_dir`, else the first of `$STATE_DIRECTORY`, which systemd
    /// sets. `None`: there is none.
    pub fn state_dir(&self) -> Option<std::path::PathBuf> {
        if !self.daemon.state_dir.is_empty() {
            return Some(self.daemon.state_dir.clone().into());
        }
        let by_systemd = std::env::var("STATE_DIRECTORY").ok()?;
        let first = by_systemd.split(':').next()?;
        (!first.is_empty()).then(|| first.into())
    }

    /// The journal of the daemon: `[journal] path`, else `journal` in [`Config::state_dir`]. `None`: jobs live as long
    /// as the process.
    pub fn daemon_journal(&self) -> Option<std::path::PathBuf> {
        if !self.journal.path.is_empty() {
            return Some(self.journal.path.clone().into());
        }
        self.state_dir().map(|dir| dir.join("journal"))
    }
}
