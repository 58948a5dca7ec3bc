//! TLS, client certificates and tokens, as a client meets them.

use std::fs;
use std::net::TcpListener;

use tempfile::TempDir;

use crate::certificates::Authority;
use crate::rig::Daemon;

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
