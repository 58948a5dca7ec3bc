//! Who is let in: which addresses may be served, TLS, bearer tokens. The threat model is docs/security.md.

use std::path::Path;
use std::sync::{PoisonError, RwLock};

use cuzk::config::{DaemonConfig, ListenAddress};
use subtle::{Choice, ConstantTimeEq};
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};

use crate::failure::{with_sources, Failure};

/// Shorter ones can be guessed.
const TOKEN_BYTES_MIN: usize = 16;
/// Sixteen is more than anybody needs, and every call is compared with all.
const TOKENS_MAX: usize = 64;

/// Refuses to serve what others can reach without TLS, unless that was said out loud.
///
/// # Errors
/// The address, and what to do.
pub fn check_exposure(config: &DaemonConfig) -> Result<(), Failure> {
    if config.insecure {
        return Ok(());
    }
    let has_tls = !config.tls_cert.is_empty();
    if let Some(address) = config.listen.0.iter().find(|address| !address.is_local() && !has_tls) {
        return Err(Failure::config(format!(
            "daemon.listen: {address} can be reached by other machines: set tls_cert and tls_key, or say --insecure"
        )));
    }
    if config.status_listen.is_empty() {
        return Ok(());
    }
    let status = config.status_listen.parse::<ListenAddress>();
    let status = status.map_err(|what| Failure::config(format!("daemon.status_listen: {what}")))?;
    if !status.is_local() {
        return Err(Failure::config(format!(
            "daemon.status_listen: {status} can be reached by other machines, and HTTP has no TLS: use 127.0.0.1 behind a \
             proxy, or say --insecure"
        )));
    }
    Ok(())
}

/// TLS as configured; `None`: none.
///
/// # Errors
/// The file that cannot be read.
fn tls(config: &DaemonConfig) -> Result<Option<ServerTlsConfig>, Failure> {
    if config.tls_cert.is_empty() {
        return Ok(None);
    }
    let read = |key: &str, path: &str| {
        std::fs::read(path).map_err(|error| Failure::config(format!("daemon.{key}: {path}: {error}")))
    };
    let certificate = read("tls_cert", &config.tls_cert)?;
    let key = read("tls_key", &config.tls_key)?;
    let mut tls = ServerTlsConfig::new()
        .identity(Identity::from_pem(certificate, key))
        .timeout(std::time::Duration::from_secs(config.slow_client_limit_s));
    if !config.tls_client_ca.is_empty() {
        tls = tls.client_ca_root(Certificate::from_pem(read("tls_client_ca", &config.tls_client_ca)?));
    }
    Ok(Some(tls))
}

/// The server with TLS as configured, on addresses of the network.
///
/// # Errors
/// The file that cannot be read, or what is wrong with what it holds.
pub fn with_tls(server: Server, config: &DaemonConfig) -> Result<Server, Failure> {
    let Some(tls) = tls(config)? else { return Ok(server) };
    server.tls_config(tls).map_err(|error| {
        let files = [&config.tls_cert, &config.tls_key, &config.tls_client_ca].map(String::as_str).join(" ");
        let what = with_sources(&error);
        Failure::config(format!("daemon.tls_cert, tls_key, tls_client_ca ({}): {what}", files.trim_end()))
    })
}

/// The bearer tokens that are good now. Never printed.
#[derive(Default)]
pub struct Tokens {
    known: RwLock<Vec<Vec<u8>>>,
}

impl Tokens {
    /// Reads a file of tokens, one a line. `""`: none is asked for.
    ///
    /// # Errors
    /// If it cannot be read, has no token, or a line is no token. The line's number is named, and nothing of it.
    pub fn read(&self, path: &str) -> Result<Vec<Vec<u8>>, Failure> {
        if path.is_empty() {
            return Ok(Vec::new());
        }
        let refuse = |what: String| Failure::config(format!("daemon.token_file: {path}: {what}"));
        let text = std::fs::read_to_string(Path::new(path)).map_err(|error| refuse(error.to_string()))?;
        let mut tokens = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let number = index + 1;
            if line.len() < TOKEN_BYTES_MIN {
                return Err(refuse(format!(
                    "line {number}: needs {TOKEN_BYTES_MIN} characters at least, has {}",
                    line.len()
                )));
            }
            if !line.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(refuse(format!("line {number}: a token is of visible ASCII characters")));
            }
            tokens.push(line.as_bytes().to_vec());
        }
        match tokens.len() {
            0 => Err(refuse("has no token".to_owned())),
            1..=TOKENS_MAX => Ok(tokens),
            has => Err(refuse(format!("needs {TOKENS_MAX} tokens at most, has {has}"))),
        }
    }

    /// These are good from now on. Whether that changed anything.
    pub fn replace(&self, tokens: Vec<Vec<u8>>) -> bool {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let has_changed = *known != tokens;
        *known = tokens;
        has_changed
    }

    /// Whether a call with this `authorization` header may go on. Takes as long for a wrong token as for a right one of
    /// the same length.
    pub fn allow(&self, authorization: Option<&[u8]>) -> bool {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if known.is_empty() {
            return true;
        }
        let Some(given) = authorization.and_then(bearer) else { return false };
        let found = known.iter().fold(Choice::from(0), |found, token| found | token.as_slice().ct_eq(given));
        found.into()
    }
}

/// The token of `Bearer <token>`; the scheme's case does not matter.
fn bearer(header: &[u8]) -> Option<&[u8]> {
    const SCHEME: &[u8] = b"bearer ";
    let (scheme, token) = header.split_at_checked(SCHEME.len())?;
    scheme.eq_ignore_ascii_case(SCHEME).then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(listen: &str) -> DaemonConfig {
        DaemonConfig { listen: listen.parse().unwrap(), ..DaemonConfig::default() }
    }

    #[test]
    fn b57_what_others_can_reach_needs_tls_or_insecure() {
        for local in ["unix:///run/a", "127.0.0.1:1", "[::1]:1", "localhost:1"] {
            assert!(check_exposure(&config(local)).is_ok(), "{local}");
        }
        for open in ["0.0.0.0:1", "[::]:1", "10.1.2.3:1", "prover.example:1", "unix:///run/a,0.0.0.0:1"] {
            let error = check_exposure(&config(open)).unwrap_err();
            assert!(error.what.contains("--insecure"), "{error}");
            let tls = DaemonConfig { tls_cert: "c".into(), tls_key: "k".into(), ..config(open) };
            assert!(check_exposure(&tls).is_ok(), "{open}");
            assert!(check_exposure(&DaemonConfig { insecure: true, ..config(open) }).is_ok(), "{open}");
        }
        let status = DaemonConfig { status_listen: "0.0.0.0:1".into(), ..config("127.0.0.1:1") };
        assert!(check_exposure(&status).is_err());
    }

    #[test]
    fn a_token_is_taken_whole_or_not_at_all() {
        let tokens = Tokens::default();
        assert!(tokens.allow(None), "none is asked for");
        tokens.replace(vec![b"0123456789abcdef".to_vec(), b"fedcba9876543210".to_vec()]);
        assert!(tokens.allow(Some(b"Bearer fedcba9876543210")));
        assert!(tokens.allow(Some(b"bearer 0123456789abcdef")));
        for wrong in
            [&b"Bearer 0123456789abcde"[..], b"Bearer 0123456789abcdeff", b"0123456789abcdef", b"Bearer "]
        {
            assert!(!tokens.allow(Some(wrong)));
        }
        assert!(!tokens.allow(None));
    }
}
