//! The container's entry point as a script: what it fetches, what it starts, what a signal does to it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use cuzk::params::partial_path;

use crate::program::{expect, Place};
use crate::server::Server;
use crate::spec;

/// The script, with a daemon that only says how it was started. Its kinds are those of the manifest: WindowPoSt 2 KiB.
fn entrypoint(place: &Place, gateway: &str) -> Command {
    let bin = place.root.path().join("bin");
    fs::create_dir_all(&bin).unwrap();
    let daemon = bin.join("cuzk-daemon");
    fs::write(&daemon, "#!/bin/sh\necho daemon \"$@\"\n").unwrap();
    fs::set_permissions(&daemon, fs::Permissions::from_mode(0o755)).unwrap();
    let programs = Path::new(env!("CARGO_BIN_EXE_cuzk")).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    let mut command = Command::new("bash");
    command
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/container/entrypoint.sh"))
        .env("PATH", format!("{}:{}:{path}", bin.display(), programs.display()))
        .env("FIL_PROOFS_PARAMETER_CACHE", place.dir())
        .env("XDG_CACHE_HOME", place.root.path().join("cache"))
        .env("CUZK_GATEWAY", gateway)
        .env("CUZK_MANIFEST", place.root.path().join("manifest.json"))
        .env("CUZK_SECTOR_SIZE", "2KiB")
        .env_remove("CUZK_FETCH")
        .env_remove("CUZK_CONFIG")
        .env_remove("http_proxy")
        .env_remove("HTTP_PROXY")
        .env_remove("ALL_PROXY");
    command
}

#[test]
fn the_daemon_starts_with_its_arguments_and_fetches_nothing_unasked() {
    let place = Place::new();
    let server = place.server();
    for (args, daemon) in [
        (&[][..], "daemon\n"),
        (&["daemon"], "daemon\n"),
        (&["daemon", "--config", "x"], "daemon --config x\n"),
        (&["--config", "x"], "daemon --config x\n"),
    ] {
        let run = entrypoint(&place, &server.url()).args(args).output().unwrap();
        assert_eq!(expect(&run, 0).0, daemon, "{args:?}");
    }
    assert!(server.paths().is_empty() && !place.dir().exists());
}

#[test]
fn parameters_are_fetched_before_the_daemon_starts() {
    let place = Place::new();
    let server = place.server();
    for _start in 0..2 {
        let run = entrypoint(&place, &server.url()).env("CUZK_FETCH", "window").output().unwrap();
        let (stdout, _) = expect(&run, 0);
        assert_eq!(stdout.lines().last(), Some("daemon"), "{stdout}");
        place.assert_whole();
    }
    assert_eq!(server.paths().len(), 2, "the second start asks for nothing");
}

#[test]
fn without_its_parameters_the_daemon_does_not_start() {
    let place = Place::new();
    let server = Server::start(|_, request| request.refuse("404 Not Found", ""));
    let run = entrypoint(&place, &server.url()).env("CUZK_FETCH", "window").output().unwrap();
    let (stdout, stderr) = expect(&run, 1);
    assert!(!stdout.contains("daemon\n") && stderr.contains("404"), "{stdout}{stderr}");
    let run = entrypoint(&place, &server.url()).env("CUZK_FETCH", "windows-11").output().unwrap();
    expect(&run, 2);
}

/// As an orchestrator stops it: the next start goes on.
#[test]
fn a_stop_while_it_fetches_is_answered_at_once_and_gone_on_with() {
    let place = Place::new();
    let server = place.stalling_server();
    let child = entrypoint(&place, &server.url())
        .env("CUZK_FETCH", "window")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let partial = partial_path(&place.dir(), &spec().params_file());
    while !fs::metadata(&partial).is_ok_and(|metadata| metadata.len() == 1_000_000) {
        std::thread::yield_now();
    }
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    let (stdout, stderr) = expect(&child.wait_with_output().unwrap(), 143);
    assert!(!stdout.contains("daemon") && stderr.contains("what has come is kept"), "{stdout}{stderr}");
    let run = entrypoint(&place, &server.url()).env("CUZK_FETCH", "window").output().unwrap();
    expect(&run, 0);
    place.assert_whole();
    assert!(server.ranges().contains(&Some(1_000_000)));
}

#[test]
fn any_other_command_runs_as_it_is() {
    let place = Place::new();
    let run = entrypoint(&place, "http://x").args(["echo", "a  b"]).output().unwrap();
    assert_eq!(expect(&run, 0).0, "a  b\n");
    let run = entrypoint(&place, "http://x").args(["shell", "-c", "echo $0"]).output().unwrap();
    assert_eq!(expect(&run, 0).0, "bash\n");
    let run = entrypoint(&place, "http://x").args(["cuzk", "circuits", "wpost-2k"]).output().unwrap();
    assert!(expect(&run, 0).0.contains("wpost-2k"));
}

#[test]
fn the_health_check_asks_the_daemon() {
    let place = Place::new();
    let server = Server::start(|_, request| {
        if request.path == "/healthz" {
            request.serve_whole(b"ok");
        } else {
            request.refuse("503 Service Unavailable", "");
        }
    });
    let address = server.url().trim_start_matches("http://").to_owned();
    let ask = |what: &str, address: &str| {
        entrypoint(&place, "http://x").arg(what).env("CUZK_STATUS_ADDRESS", address).output().unwrap()
    };
    assert_eq!(expect(&ask("healthy", &address), 0).0, "HTTP/1.1 200 OK\n");
    assert_eq!(expect(&ask("ready", &address), 1).0, "HTTP/1.1 503 Service Unavailable\n");
    assert_eq!(server.paths(), ["/healthz", "/readyz"]);
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    expect(&ask("healthy", &nobody), 1);
}
