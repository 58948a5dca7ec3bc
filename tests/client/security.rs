//! TLS, client certificates and tokens, as a client meets them.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

use crate::rig::Daemon;

/// An authority, and certificates that it signed, as PEM files in `dir`.
struct Authority {
    dir: PathBuf,
    name: &'static str,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(dir: &Path, name: &'static str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        fs::write(dir.join(format!("{name}.pem")), certificate.pem()).unwrap();
        Self { dir: dir.to_owned(), name, issuer: Issuer::new(params, key) }
    }

    fn path(&self) -> String {
        self.dir.join(format!("{}.pem", self.name)).display().to_string()
    }

    /// Paths of certificate and key.
    fn sign(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let file = |kind: &str| self.dir.join(format!("{}-{name}-{kind}.pem", self.name));
        fs::write(file("cert"), certificate.pem()).unwrap();
        fs::write(file("key"), key.serialize_pem()).unwrap();
        (file("cert").display().to_string(), file("key").display().to_string())
    }
}

/// A port that was free a moment ago.
fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("localhost:{}", listener.local_addr().unwrap().port())
}

fn written(dir: &TempDir, name: &str, text: &str) -> String {
    let path = dir.path().join(name);
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn tls_client_certificate_and_token_are_all_needed_and_do() {
    let dir = tempfile::tempdir().unwrap();
    let ours = Authority::new(dir.path(), "ours");
    let other = Authority::new(dir.path(), "other");
    let (cert, key) = ours.sign("localhost");
    let (client_cert, client_key) = ours.sign("operator");
    let (other_cert, other_key) = other.sign("operator");
    let tokens = written(&dir, "tokens", "first-token-of-two\nsecond-token-of-two\n");
    let token = written(&dir, "token", "# the operator's\nsecond-token-of-two\n");
    let wrong_token = written(&dir, "wrong-token", "third-token-of-two\n");
    let settings = format!(
        "tls_cert = \"{cert}\"\ntls_key = \"{key}\"\ntls_client_ca = \"{}\"\ntoken_file = \"{tokens}\"\n",
        ours.path()
    );
    let tls = ["--tls-ca".to_owned(), ours.path()];
    let certificate = ["--tls-cert", &client_cert, "--tls-key", &client_key].map(str::to_owned);
    let token = ["--token-file".to_owned(), token];
    let access = [&tls[..], &certificate, &token].concat();
    let daemon = Daemon::start_in(dir, free_address(), &settings, access);

    let ask =
        |args: &[&str]| crate::rig::cuzk(&[&["status", "--json", "--addr", &daemon.addr][..], args].concat());
    let (ca, other_ca) = (ours.path(), other.path());
    let with = |cert: &str, key: &str, token: &str| {
        ask(&["--tls-ca", &ca, "--tls-cert", cert, "--tls-key", key, "--token-file", token])
    };
    assert_eq!(with(&client_cert, &client_key, &token[1]).expect(0).json()["ready"], true);
    // Without TLS, with another authority, under another name, without or with a foreign certificate.
    ask(&[]).expect(1);
    ask(&["--tls-ca", &other_ca]).expect(1);
    ask(&["--tls-ca", &ca, "--tls-name", "elsewhere"]).expect(1);
    ask(&["--tls-ca", &ca, "--token-file", &token[1]]).expect(1);
    with(&other_cert, &other_key, &token[1]).expect(1);
    // A wrong token is wrong use, and is not printed.
    let refused = with(&client_cert, &client_key, &wrong_token).expect(2);
    assert!(
        refused.stderr.contains("token") && !refused.stderr.contains("third-token"),
        "{}",
        refused.stderr
    );
    let missing = ask(&["--tls-ca", &ca, "--tls-cert", &client_cert, "--tls-key", &client_key]).expect(2);
    assert!(missing.stderr.contains("--token-file"), "{}", missing.stderr);
}
