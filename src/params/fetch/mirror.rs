//! Where files come from: IPFS gateways, web servers, folders.

use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ureq::http::{header, HeaderMap, StatusCode};
use ureq::tls::{parse_pem, Certificate, PemItem, RootCerts, TlsConfig};
use ureq::{Agent, Proxy};

use crate::error::ParamsError;
use crate::params::PublishedFile;

/// A place that has files.
pub struct Mirror {
    source: Source,
    /// The address without user and password.
    shown: String,
}

enum Source {
    /// An address in which `{cid}` and `{name}` stand for the file's.
    Http { template: String, agent: Agent },
    /// Files under their names.
    Folder(PathBuf),
}

/// By whose certificates a mirror is trusted.
#[derive(Clone, Debug)]
pub struct Authorities(RootCerts);

impl Default for Authorities {
    /// Those that browsers trust. They are built in: no file of the system is needed.
    fn default() -> Self {
        Self(RootCerts::WebPki)
    }
}

impl Authorities {
    /// Those in this file (PEM), and no others.
    ///
    /// # Errors
    /// [`ParamsError::Certificates`] if it cannot be read, or has none.
    pub fn read(path: &Path) -> Result<Self, ParamsError> {
        let refused = |what: String| ParamsError::Certificates { path: path.to_owned(), what };
        let text = std::fs::read(path).map_err(|error| refused(error.to_string()))?;
        let mut certificates: Vec<Certificate<'static>> = Vec::new();
        for item in parse_pem(&text) {
            if let PemItem::Certificate(certificate) = item.map_err(|error| refused(error.to_string()))? {
                certificates.push(certificate);
            }
        }
        if certificates.is_empty() {
            return Err(refused("has no certificate (PEM)".to_owned()));
        }
        Ok(Self(RootCerts::new_with_certs(&certificates)))
    }
}

/// What a mirror gives of a file.
pub struct Opened {
    pub reader: Box<dyn Read>,
    /// Where in the file the reader begins: where it was asked to, or earlier.
    pub offset: u64,
    /// The length of the file as the mirror says.
    pub total_bytes: Option<u64>,
}

/// Why a mirror does not give a file, and what that means for it.
#[derive(Debug)]
pub enum Refusal {
    /// It does not have it, or not for us: it is not asked for this file again.
    Gone(String),
    /// Its certificate is none that is trusted: it is not asked again either.
    Untrusted(String),
    /// It has other bytes than the manifest says.
    Wrong(String),
    /// It may have it later; perhaps it said when.
    Passing(String, Option<Duration>),
}

impl Mirror {
    /// `https://gateway` (the file is at `/ipfs/CID` there), any `http://` or `https://` address with `{cid}` or `{name}`
    /// in it, or `file:///folder` with files under their names. Trusted as [`Authorities::default`] says.
    ///
    /// # Errors
    /// [`ParamsError::Mirror`].
    pub fn new(url: &str, stall_limit: Duration) -> Result<Self, ParamsError> {
        Self::trusted_by(url, stall_limit, &Authorities::default())
    }

    /// The same, trusted by others.
    ///
    /// # Errors
    /// [`ParamsError::Mirror`].
    pub fn trusted_by(
        url: &str,
        stall_limit: Duration,
        authorities: &Authorities,
    ) -> Result<Self, ParamsError> {
        let shown = without_credentials(url);
        let refused = |what: String| ParamsError::Mirror { url: shown.clone(), what };
        if let Some(path) = url.strip_prefix("file://") {
            let path = PathBuf::from(path);
            if !path.is_absolute() {
                return Err(refused("a folder is named by its whole path: file:///PATH".to_owned()));
            }
            return Ok(Self { source: Source::Folder(path), shown });
        }
        let is_encrypted = url.starts_with("https://");
        if !is_encrypted && !url.starts_with("http://") {
            return Err(refused("use http://, https:// or file:///FOLDER".to_owned()));
        }
        let template = template_of(url);
        if template.parse::<ureq::http::Uri>().is_err() && !template.contains('{') {
            return Err(refused("is no address".to_owned()));
        }
        let proxy =
            proxy_for(is_encrypted, |name| std::env::var(name).ok()).map_err(|(variable, error)| {
                refused(format!("its proxy, {variable}, cannot be used: {error}"))
            })?;
        let agent = Agent::config_builder()
            .proxy(proxy)
            .tls_config(TlsConfig::builder().root_certs(authorities.0.clone()).build())
            .http_status_as_error(false)
            .timeout_connect(Some(stall_limit))
            .timeout_recv_response(Some(stall_limit))
            .timeout_per_read(Some(stall_limit))
            .user_agent(concat!("cuzk/", env!("CARGO_PKG_VERSION")))
            .build()
            .into();
        Ok(Self { source: Source::Http { template, agent }, shown })
    }

    /// The file from `offset` on.
    pub fn open(&self, file: &PublishedFile, offset: u64) -> Result<Opened, Refusal> {
        match &self.source {
            Source::Folder(dir) => open_in_folder(dir, file, offset),
            Source::Http { template, agent } => {
                let url = template.replace("{cid}", &file.cid).replace("{name}", &file.name);
                open_http(agent, &url, offset)
            }
        }
    }

    /// Where it has this file, for people.
    pub fn address_of(&self, file: &PublishedFile) -> String {
        match &self.source {
            Source::Folder(dir) => format!("file://{}", dir.join(&file.name).display()),
            Source::Http { template, .. } => {
                without_credentials(&template.replace("{cid}", &file.cid).replace("{name}", &file.name))
            }
        }
    }
}

impl fmt::Display for Mirror {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

fn template_of(url: &str) -> String {
    if url.contains("{cid}") || url.contains("{name}") {
        return url.to_owned();
    }
    let base = url.trim_end_matches('/');
    let base = base.strip_suffix("/ipfs").unwrap_or(base);
    format!("{base}/ipfs/{{cid}}")
}

/// `https://user:password@host/` without the part that is nobody's business.
fn without_credentials(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let end = rest.find('/').unwrap_or(rest.len());
    let host = rest[..end].rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}{}", &rest[end..])
}

/// The proxy that the environment names for the scheme, in either case of letters, as other programs read it.
fn proxy_for(
    is_encrypted: bool,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<Proxy>, (&'static str, ureq::Error)> {
    let names: [&'static str; 4] = if is_encrypted {
        ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"]
    } else {
        ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"]
    };
    let set = |name: &&str| variable(name).filter(|value| !value.trim().is_empty());
    let Some((name, value)) = names.iter().find_map(|name| Some((*name, set(name)?))) else {
        return Ok(None);
    };
    let refused = |error| (name, error);
    let proxy = Proxy::new(value.trim()).map_err(refused)?;
    let Some(exceptions) = ["NO_PROXY", "no_proxy"].iter().find_map(set) else { return Ok(Some(proxy)) };
    // Only a builder takes exceptions.
    let mut builder = Proxy::builder(proxy.protocol()).host(proxy.host()).port(proxy.port());
    if let Some(username) = proxy.username() {
        builder = builder.username(username);
    }
    if let Some(password) = proxy.password() {
        builder = builder.password(password);
    }
    for entry in exceptions.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        builder = builder.no_proxy(entry);
        // A name stands for what is below it too, as elsewhere.
        if !entry.starts_with(['.', '*']) {
            builder = builder.no_proxy(&format!(".{entry}"));
        }
    }
    builder.build().map(Some).map_err(refused)
}

fn open_in_folder(dir: &Path, file: &PublishedFile, offset: u64) -> Result<Opened, Refusal> {
    let open = || {
        let mut file = File::open(dir.join(&file.name))?;
        let total_bytes = file.metadata()?.len();
        file.seek(SeekFrom::Start(offset))?;
        Ok(Opened { reader: Box::new(file), offset, total_bytes: Some(total_bytes) })
    };
    open().map_err(|error: std::io::Error| Refusal::Gone(error.to_string()))
}

fn open_http(agent: &Agent, url: &str, offset: u64) -> Result<Opened, Refusal> {
    let mut request = agent.get(url).header(header::ACCEPT_ENCODING, "identity");
    if offset > 0 {
        request = request.header(header::RANGE, format!("bytes={offset}-"));
    }
    let response = request.call().map_err(|error| match error {
        ureq::Error::BadUri(what) => Refusal::Gone(format!("is no address: {what}")),
        ureq::Error::TooManyRedirects => Refusal::Gone("redirects for ever".to_owned()),
        ureq::Error::Io(error) if is_untrusted(&error) => Refusal::Untrusted(error.to_string()),
        error => Refusal::Passing(error.to_string(), None),
    })?;
    let status = response.status();
    let (offset, total_bytes) = match status {
        StatusCode::OK => (0, response.body().content_length()),
        StatusCode::PARTIAL_CONTENT => {
            let range = header_text(response.headers(), header::CONTENT_RANGE).and_then(parse_range);
            match range {
                Some((first, total)) if first <= offset => (first, total),
                _ => {
                    return Err(Refusal::Passing("gave another range than it was asked for".to_owned(), None))
                }
            }
        }
        StatusCode::RANGE_NOT_SATISFIABLE => {
            return Err(Refusal::Wrong(format!(
                "has no more than the {offset} B that came, which are not it"
            )))
        }
        _ => return Err(refusal(status, response.headers())),
    };
    Ok(Opened { reader: Box::new(response.into_body().into_reader()), offset, total_bytes })
}

/// rustls's error is inside; only its text is to be had without naming its version.
fn is_untrusted(error: &std::io::Error) -> bool {
    error.kind() == ErrorKind::InvalidData && error.to_string().starts_with("invalid peer certificate")
}

fn header_text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// First byte and whole length of `bytes 100-199/200`; the length may be unknown (`*`).
fn parse_range(text: &str) -> Option<(u64, Option<u64>)> {
    let (range, total) = text.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (first, _last) = range.split_once('-')?;
    let total = if total == "*" { None } else { Some(total.parse().ok()?) };
    Some((first.trim().parse().ok()?, total))
}

fn refusal(status: StatusCode, headers: &HeaderMap) -> Refusal {
    let said = format!("answered {status}");
    let is_passing = status.is_server_error()
        || matches!(
            status,
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS
        );
    if !is_passing {
        return Refusal::Gone(said);
    }
    // As a date it is nothing worth a calendar: the usual wait will do.
    let seconds = header_text(headers, header::RETRY_AFTER).and_then(|text| text.trim().parse().ok());
    Refusal::Passing(said, seconds.map(Duration::from_secs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_say_where_the_file_is() {
        for (url, template) in [
            ("https://gateway", "https://gateway/ipfs/{cid}"),
            ("https://gateway/", "https://gateway/ipfs/{cid}"),
            ("https://gateway/ipfs/", "https://gateway/ipfs/{cid}"),
            ("http://mirror/params/{name}", "http://mirror/params/{name}"),
            ("http://mirror/get?cid={cid}", "http://mirror/get?cid={cid}"),
        ] {
            assert_eq!(template_of(url), template);
        }
        let limit = Duration::from_secs(1);
        for url in ["ftp://host", "gateway", "file://relative/folder", "file://"] {
            assert!(matches!(Mirror::new(url, limit), Err(ParamsError::Mirror { .. })), "{url}");
        }
    }

    #[test]
    fn passwords_are_not_shown() {
        let mirror = Mirror::new("https://me:se@cret@host:8443/x@y/{name}", Duration::from_secs(1)).unwrap();
        assert_eq!(mirror.to_string(), "https://host:8443/x@y/{name}");
    }

    #[test]
    fn ranges_are_read_strictly() {
        assert_eq!(parse_range("bytes 100-199/200"), Some((100, Some(200))));
        assert_eq!(parse_range("bytes 0-9/*"), Some((0, None)));
        for wrong in ["", "bytes", "bytes */200", "bytes 1-2/x", "items 1-2/3", "bytes -1-2/3"] {
            assert_eq!(parse_range(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn each_scheme_has_its_proxy_and_exceptions() {
        let variables = |name: &str| match name {
            "https_proxy" => Some("http://me:secret@secure:1".to_owned()),
            "HTTP_PROXY" => Some("http://plain:2".to_owned()),
            "NO_PROXY" => Some("internal,.local".to_owned()),
            _ => None,
        };
        let secure = proxy_for(true, variables).unwrap().unwrap();
        assert_eq!((secure.host(), secure.port(), secure.username()), ("secure", 1, Some("me")));
        assert_eq!(proxy_for(false, variables).unwrap().unwrap().host(), "plain");
        for direct in ["https://a.local/", "https://internal/", "https://a.internal/"] {
            assert!(secure.is_no_proxy(&direct.parse().unwrap()), "{direct}");
        }
        for by_proxy in ["https://elsewhere/", "https://notinternal/"] {
            assert!(!secure.is_no_proxy(&by_proxy.parse().unwrap()), "{by_proxy}");
        }
        assert!(proxy_for(true, |_| None).unwrap().is_none());
        assert!(proxy_for(true, |_| Some(String::new())).unwrap().is_none());
        let (name, _) = proxy_for(true, |_| Some("ftp://x".to_owned())).unwrap_err();
        assert_eq!(name, "HTTPS_PROXY");
    }
}
