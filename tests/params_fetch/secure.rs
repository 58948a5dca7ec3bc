//! `cuzk params fetch` over TLS: which authorities it trusts, and through what.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, Stream};

use crate::program::{expect, proxy, Place};

/// An authority of one's own, and a server that it vouches for as `localhost`.
struct Secure {
    address: SocketAddr,
    /// The authority's certificate.
    ca: PathBuf,
}

impl Secure {
    /// In front of `plain`, whose answers it passes on.
    fn start(place: &Place, plain: &str) -> Self {
        let authority_key = KeyPair::generate().unwrap();
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = place.root.path().join("ca.pem");
        fs::write(&ca, authority.self_signed(&authority_key).unwrap().pem()).unwrap();

        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = certificate.signed_by(&key, &Issuer::new(authority, authority_key)).unwrap();
        let chain: Vec<CertificateDer<'static>> = vec![certificate.der().clone()];
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = Arc::new(config.with_no_client_auth().with_single_cert(chain, key).unwrap());

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let plain: SocketAddr = plain.trim_start_matches("http://").parse().unwrap();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (client, config) = (client.unwrap(), Arc::clone(&config));
                std::thread::spawn(move || pass_on(client, config, plain));
            }
        });
        Self { address, ca }
    }

    fn url(&self) -> String {
        format!("https://localhost:{}", self.address.port())
    }
}

/// One request and its answer. A client that does not trust us goes away, which is no matter here.
fn pass_on(mut client: TcpStream, config: Arc<ServerConfig>, plain: SocketAddr) {
    let mut session = ServerConnection::new(config).unwrap();
    let mut client = Stream::new(&mut session, &mut client);
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        match client.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return,
        }
    }
    let mut server = TcpStream::connect(plain).unwrap();
    server.write_all(&head).unwrap();
    if std::io::copy(&mut server, &mut client).is_ok() {
        client.conn.send_close_notify();
        let _ = client.flush();
    }
}

#[test]
fn an_authority_of_ones_own_is_trusted_when_it_is_named_and_only_then() {
    let place = Place::new();
    let server = place.server();
    let secure = Secure::start(&place, &server.url());
    let (url, ca) = (secure.url(), secure.ca.to_str().unwrap());

    let run = place.run(&["--gateway", &url, "--rounds", "1"]);
    let (_, stderr) = expect(&run, 1);
    assert!(stderr.contains("invalid peer certificate") && stderr.contains("--ca"), "{stderr}");
    assert!(server.paths().is_empty(), "nothing is asked of whoever is not trusted");

    let config = place.root.path().join("cuzk.toml");
    fs::write(&config, format!("[fetch]\nca = {ca:?}\n")).unwrap();
    let config = config.to_str().unwrap();
    for (args, variable) in
        [(&["--ca", ca][..], ""), (&["--config", config], ""), (&[], ca), (&["--ca", ca], "/nonexistent")]
    {
        let mut command = place.command(&[&["--gateway", url.as_str()][..], args].concat());
        expect(&command.env("SSL_CERT_FILE", variable).output().unwrap(), 0);
        place.assert_whole();
        fs::remove_dir_all(place.dir()).unwrap();
    }
}

#[test]
fn a_file_without_certificates_is_wrong_use() {
    let place = Place::new();
    let empty = place.root.path().join("empty.pem");
    fs::write(&empty, "no certificate\n").unwrap();
    for (file, said) in
        [(empty.to_str().unwrap(), "has no certificate"), ("/nonexistent.pem", "No such file")]
    {
        let (_, stderr) = expect(&place.run(&["--ca", file]), 2);
        assert!(stderr.contains(file) && stderr.contains(said), "{stderr}");
    }
    assert!(!place.dir().exists(), "nothing was begun");
}

/// As in networks whose only way out is a proxy: a tunnel, within which the mirror's own certificate counts.
#[test]
fn a_proxy_gives_a_tunnel_to_a_mirror_with_tls() {
    let place = Place::new();
    let server = place.server();
    let secure = Secure::start(&place, &server.url());
    let (proxy, seen) = proxy(secure.address);
    let url = secure.url();
    let mut command = place.command(&["--gateway", &url, "--ca", secure.ca.to_str().unwrap()]);
    expect(&command.env("https_proxy", &proxy).output().unwrap(), 0);
    place.assert_whole();
    let asked: Vec<String> = seen.try_iter().collect();
    let tunnel = format!("CONNECT localhost:{} ", secure.address.port());
    assert!(!asked.is_empty() && asked.iter().all(|line| line.starts_with(&tunnel)), "{asked:?}");
}
