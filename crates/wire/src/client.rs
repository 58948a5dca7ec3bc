//! The client's side: where a daemon is, and a connection to it.
//!
//! ```no_run
//! # async fn status() -> Result<(), Box<dyn std::error::Error>> {
//! use cuzk_wire::client::{connect, Endpoint};
//!
//! let mut client = connect(&Endpoint::new("unix:///run/curio/cuzk.sock".parse()?)).await?;
//! let status = client.get_status(cuzk_wire::v1::GetStatusRequest {}).await?.into_inner();
//! println!("{} proofs", status.total_proofs_completed);
//! # Ok(())
//! # }
//! ```

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::interceptor::InterceptedService;
use tonic::service::Interceptor;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Identity};
use tonic::{Request, Status};

use crate::v1::proving_engine_client::ProvingEngineClient;
use crate::MESSAGE_BYTES_MAX;

/// A connection that is not made by then is not made: a daemon takes connections also while it loads.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// A proof takes minutes, during which nothing is sent: pings keep what lies between from dropping the connection, and
/// tell when the other end is gone.
const PING_INTERVAL: Duration = Duration::from_secs(20);
const PING_LIMIT: Duration = Duration::from_secs(20);
/// Of one call and of the connection: with HTTP/2's own 64 KiB, 50 MB of inputs would wait for the other end 800 times.
const WINDOW_BYTES: u32 = 4 << 20;

/// A client of the daemon. Clones share one connection, which is made again when it breaks.
pub type Client = ProvingEngineClient<InterceptedService<Channel, Bearer>>;

/// Where a daemon listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// `unix:///path`
    Unix(PathBuf),
    /// `host:port`
    Tcp { host: String, port: u16 },
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

impl FromStr for Address {
    type Err = ConnectError;

    /// `unix:///path`, `host:port`, or `[v6]:port`.
    fn from_str(text: &str) -> Result<Self, ConnectError> {
        let bad = || ConnectError::Address { text: text.to_owned() };
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return if path.starts_with('/') { Ok(Self::Unix(PathBuf::from(path))) } else { Err(bad()) };
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(bad)?;
        let port: u16 = port.parse().map_err(|_| bad())?;
        let (bare, is_v6) = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(host) => (host, true),
            None => (host, false),
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c) || (is_v6 && ":%".contains(c));
        if port == 0 || bare.is_empty() || !bare.chars().all(is_name) {
            return Err(bad());
        }
        Ok(Self::Tcp { host: bare.to_owned(), port })
    }
}

/// How a daemon's TLS is checked, and how this client shows who it is. All in PEM.
#[derive(Clone)]
pub struct Tls {
    /// Authorities of which one must have signed the daemon's certificate. The system's own are not asked.
    pub ca: Vec<u8>,
    /// This client's certificate and its private key, for a daemon that asks for one.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// The name that the daemon's certificate must have. `None`: the host of the address.
    pub server_name: Option<String>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("ca_bytes", &self.ca.len())
            .field("has_identity", &self.identity.is_some())
            .field("server_name", &self.server_name)
            .finish()
    }
}

/// All that it takes to speak to a daemon.
#[derive(Clone)]
pub struct Endpoint {
    pub address: Address,
    pub tls: Option<Tls>,
    /// Sent with every call as `authorization: Bearer TOKEN`.
    pub token: Option<String>,
}

impl Endpoint {
    /// Cleartext, without a token.
    pub fn new(address: Address) -> Self {
        Self { address, tls: None, token: None }
    }

    fn channel(&self) -> Result<tonic::transport::Endpoint, ConnectError> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let uri = match &self.address {
            Address::Unix(_) => self.address.to_string(),
            Address::Tcp { .. } => format!("{scheme}://{}", self.address),
        };
        let channel = tonic::transport::Endpoint::from_shared(uri)
            .map_err(|_| ConnectError::Address { text: self.address.to_string() })?
            .connect_timeout(CONNECT_LIMIT)
            .http2_keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_LIMIT)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES);
        match &self.tls {
            None => Ok(channel),
            Some(tls) => channel
                .tls_config(self.tls_config(tls))
                .map_err(|error| ConnectError::Tls { what: chain(&error) }),
        }
    }

    fn tls_config(&self, tls: &Tls) -> ClientTlsConfig {
        let mut config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&tls.ca));
        if let Some((certificate, key)) = &tls.identity {
            config = config.identity(Identity::from_pem(certificate, key));
        }
        match &tls.server_name {
            Some(name) => config.domain_name(name),
            None => config,
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("address", &self.address)
            .field("tls", &self.tls)
            .field("has_token", &self.token.is_some())
            .finish()
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Mend the address.
    #[error("`{text}` is no address: write unix:///path or host:port")]
    Address { text: String },
    /// Mend the certificates.
    #[error("TLS: {what}")]
    Tls { what: String },
    /// Mend the token.
    #[error("the token has characters that no header can have")]
    Token,
    /// Start the daemon, or name the right address.
    #[error("no daemon at {address}: is cuzk-daemon running? ({what})")]
    NoDaemon { address: Address, what: String },
    /// Join the socket's group, or have its mode changed.
    #[error("{address} may not be opened by this user: {what}")]
    Forbidden { address: Address, what: String },
    /// Something answers, and not as a daemon does; or nothing answers at all.
    #[error("cannot connect to {address}: {what}")]
    Failed { address: Address, what: String },
}

/// Connects, or says what is in the way.
///
/// # Errors
/// [`ConnectError`]
pub async fn connect(endpoint: &Endpoint) -> Result<Client, ConnectError> {
    let bearer = Bearer::new(endpoint.token.as_deref())?;
    let channel = endpoint.channel()?.connect().await.map_err(|error| refused(&endpoint.address, &error))?;
    Ok(ProvingEngineClient::with_interceptor(channel, bearer)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX))
}

fn refused(address: &Address, error: &tonic::transport::Error) -> ConnectError {
    let (address, what) = (address.clone(), chain(error));
    let kind = sources(error).find_map(|error| error.downcast_ref::<io::Error>()).map(io::Error::kind);
    match kind {
        Some(io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            ConnectError::NoDaemon { address, what }
        }
        Some(io::ErrorKind::PermissionDenied) => ConnectError::Forbidden { address, what },
        _ => ConnectError::Failed { address, what },
    }
}

fn sources<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    fn next<'a>(error: &&'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
        // Without the star it is the reference that is asked, which is an error too, and gives the same one.
        (*error).source()
    }
    std::iter::successors(Some(error), next)
}

/// The innermost reasons of an error, outermost first; the library's own outer words say nothing.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut parts: Vec<String> = Vec::new();
    for source in sources(error).skip(1) {
        let text = source.to_string();
        // An error that prints its source as well would say it twice.
        if !parts.last().is_some_and(|last| last.contains(&text)) {
            parts.push(text);
        }
    }
    if parts.is_empty() {
        return error.to_string();
    }
    parts.join(": ")
}

/// Adds the token to every call.
#[derive(Clone)]
pub struct Bearer(Option<MetadataValue<Ascii>>);

impl Bearer {
    fn new(token: Option<&str>) -> Result<Self, ConnectError> {
        let Some(token) = token else { return Ok(Self(None)) };
        let mut value: MetadataValue<Ascii> =
            format!("Bearer {token}").parse().map_err(|_| ConnectError::Token)?;
        value.set_sensitive(true);
        Ok(Self(Some(value)))
    }
}

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(value) = &self.0 {
            request.metadata_mut().insert("authorization", value.clone());
        }
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        for text in ["unix:///run/curio/cuzk.sock", "localhost:9820", "127.0.0.1:1", "[::1]:9820"] {
            assert_eq!(text.parse::<Address>().expect(text).to_string(), text);
        }
        for text in [
            "",
            "unix://run/x",
            "unix:x",
            "unix://",
            "/run/x",
            "host",
            "host:",
            "host:0",
            ":1",
            "http://h:1",
            "a b:1",
        ] {
            assert!(matches!(text.parse::<Address>(), Err(ConnectError::Address { .. })), "{text}");
        }
        assert_eq!("unix:/run/x".parse::<Address>().expect("short"), Address::Unix("/run/x".into()));
    }

    #[test]
    fn secrets_are_not_printed() {
        let tls = Tls {
            ca: b"ca".to_vec(),
            identity: Some((b"c".to_vec(), b"PRIVATE".to_vec())),
            server_name: None,
        };
        let endpoint =
            Endpoint { tls: Some(tls), token: Some("hush".to_owned()), address: Address::Unix("/s".into()) };
        let text = format!("{endpoint:?}");
        assert!(
            text.contains("has_token: true") && !text.contains("hush") && !text.contains("PRIVATE"),
            "{text}"
        );
        assert!(matches!(Bearer::new(Some("a\nb")), Err(ConnectError::Token)));
    }
}
