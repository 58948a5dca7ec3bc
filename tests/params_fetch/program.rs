//! `cuzk params fetch` as a process: killed, interrupted, twice at once, behind a proxy.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use cuzk::params::partial_path;
use serde_json::Value;
use tempfile::TempDir;

use crate::server::Server;
use crate::{content, manifest, spec};

/// A folder with a manifest, an empty folder for parameters and a server that has the files.
pub struct Place {
    pub root: TempDir,
    params: Vec<u8>,
    vk: Vec<u8>,
}

impl Place {
    pub fn new() -> Self {
        let place =
            Self { root: tempfile::tempdir().unwrap(), params: content(3_000_000, 3), vk: content(3000, 4) };
        fs::write(place.root.path().join("manifest.json"), manifest(&place.params, &place.vk)).unwrap();
        place
    }

    pub fn command(&self, more: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cuzk"));
        for (name, _) in std::env::vars() {
            let lower = name.to_ascii_lowercase();
            if lower.starts_with("cuzk_") || lower.ends_with("_proxy") || lower == "ssl_cert_file" {
                command.env_remove(name);
            }
        }
        command
            .args(["params", "fetch", "wpost-2k", "--manifest"])
            .arg(self.root.path().join("manifest.json"))
            .arg("--params")
            .arg(self.dir())
            .args(more)
            .env("XDG_CACHE_HOME", self.root.path().join("cache"));
        command
    }

    pub fn dir(&self) -> std::path::PathBuf {
        self.root.path().join("params")
    }

    pub fn run(&self, more: &[&str]) -> Output {
        self.command(more).output().unwrap()
    }

    pub fn server(&self) -> Server {
        let (params, vk) = (self.params.clone(), self.vk.clone());
        Server::start(move |_, request| {
            request.serve(if request.path.contains("QmVk") || request.path.ends_with(".vk") {
                &vk
            } else {
                &params
            });
        })
    }

    /// Gives the verifying key, and the first third of the parameters to whoever asks for them whole.
    pub fn stalling_server(&self) -> Server {
        let (params, vk) = (self.params.clone(), self.vk.clone());
        Server::start(move |_, request| match request.range {
            _ if request.path.ends_with("QmVk") => request.serve(&vk),
            None => request.serve_stalled(&params, 1_000_000),
            Some(_) => request.serve(&params),
        })
    }

    /// Starts a fetch, and returns once a third has been written.
    fn begun(&self, server: &Server) -> Child {
        let child = self
            .command(&["--gateway", &server.url(), "--parallel", "1"])
            .stderr(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let partial = partial_path(&self.dir(), &spec().params_file());
        while !fs::metadata(&partial).is_ok_and(|metadata| metadata.len() == 1_000_000) {
            std::thread::yield_now();
        }
        child
    }

    #[track_caller]
    pub fn assert_whole(&self) {
        assert!(fs::read(self.dir().join(spec().params_file())).unwrap() == self.params);
        assert!(fs::read(self.dir().join(spec().vk_file())).unwrap() == self.vk);
        assert_eq!(fs::read_dir(self.dir()).unwrap().count(), 2);
    }
}

#[track_caller]
pub fn expect(output: &Output, code: i32) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "stdout: {stdout}\nstderr: {stderr}");
    (stdout, stderr)
}

fn json_lines(stdout: &str) -> Vec<Value> {
    stdout.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

#[test]
fn a_killed_fetch_goes_on_where_it_was() {
    let place = Place::new();
    let server = place.stalling_server();
    let mut child = place.begun(&server);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!place.dir().join(spec().params_file()).exists(), "no half file under its final name");

    let run = place.run(&["--gateway", &server.url(), "--json"]);
    let lines = json_lines(&expect(&run, 0).0);
    place.assert_whole();
    assert_eq!(lines.len(), 3);
    let params = &lines[1];
    assert_eq!((&params["state"], &params["resumed_bytes"]), (&"fetched".into(), &1_000_000.into()));
    assert_eq!(params["fetched_bytes"], 2_000_000);
    assert_eq!(lines[0]["state"], "present", "the key had come before the kill");
    assert_eq!(lines[2]["total"]["failed"], 0);
    assert!(server.ranges().contains(&Some(1_000_000)));
}

#[test]
fn an_interrupt_ends_it_at_once_and_says_how_to_go_on() {
    let place = Place::new();
    let server = place.stalling_server();
    let child = place.begun(&server);
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let (_, stderr) = expect(&child.wait_with_output().unwrap(), 130);
    assert!(stderr.contains("interrupted: what has come is kept"), "{stderr}");
    expect(&place.run(&["--gateway", &server.url()]), 0);
    place.assert_whole();
}

#[test]
fn two_at_once_do_not_write_the_same_file() {
    let place = Place::new();
    let server = place.stalling_server();
    let mut first = place.begun(&server);
    let second = place.run(&["--gateway", &server.url()]);
    let (_, stderr) = expect(&second, 1);
    assert!(stderr.contains("another process is fetching it"), "{stderr}");
    first.kill().unwrap();
    first.wait().unwrap();
    expect(&place.run(&["--gateway", &server.url()]), 0);
    place.assert_whole();
}

#[test]
fn a_dry_run_asks_nobody_and_makes_nothing() {
    let place = Place::new();
    let run = place.run(&[
        "--dry-run",
        "--json",
        "--gateway",
        "https://gateway.invalid",
        "--gateway",
        "file:///srv",
    ]);
    let lines = json_lines(&expect(&run, 0).0);
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[1]["state"], "missing");
    assert_eq!(lines[1]["addresses"][0], "https://gateway.invalid/ipfs/QmParams");
    assert_eq!(lines[1]["addresses"][1], format!("file:///srv/{}", spec().params_file()));
    assert!(lines[2]["total"]["free_bytes"].as_u64().unwrap() > 0);
    assert!(!place.dir().exists());
}

#[test]
fn by_default_it_is_what_porep_and_snap_of_32_gib_need() {
    let run = Command::new(env!("CARGO_BIN_EXE_cuzk"))
        .args(["params", "fetch", "--dry-run", "--json", "--params", "/nonexistent/parameters"])
        .env_remove("CUZK_GATEWAY")
        .output()
        .unwrap();
    let lines = json_lines(&expect(&run, 0).0);
    let circuits: Vec<&str> = lines.iter().filter_map(|line| line["circuit"].as_str()).collect();
    assert_eq!(circuits, ["porep-32g", "snap-32g", "porep-32g", "snap-32g"]);
    let missing = lines[4]["total"]["missing_bytes"].as_u64().unwrap();
    assert!((80_000_000_000..84_000_000_000).contains(&missing), "{missing}");
    assert!(lines[0]["addresses"][0].as_str().unwrap().starts_with("https://proofs.filecoin.io/ipfs/Qm"));
    // And there is no room for them where there is no folder.
    let run = Command::new(env!("CARGO_BIN_EXE_cuzk"))
        .args([
            "params",
            "fetch",
            "--kind",
            "window,winning",
            "--sector-size",
            "64GiB",
            "--params",
            "/proc/self",
        ])
        .output()
        .unwrap();
    assert!(expect(&run, 2).1.contains("/proc/self: cannot write: "));
}

#[test]
fn mirrors_come_from_the_flag_the_variable_and_the_configuration() {
    let place = Place::new();
    let config = place.root.path().join("cuzk.toml");
    fs::write(&config, "[fetch]\ngateways = [\"http://configured.invalid\"]\n").unwrap();
    let config = config.to_str().unwrap();
    let first_address = |command: &mut Command| {
        let lines = json_lines(&expect(&command.output().unwrap(), 0).0);
        lines[0]["addresses"][0].as_str().unwrap().to_owned()
    };
    let args = ["--dry-run", "--json", "--config", config];
    assert!(first_address(&mut place.command(&args)).starts_with("http://configured.invalid/"));
    let named = "http://named.invalid, http://second.invalid";
    let mut by_variable = place.command(&args);
    assert!(first_address(by_variable.env("CUZK_GATEWAY", named)).starts_with("http://named.invalid/"));
    let mut by_flag = place.command(&[&args[..], &["--gateway", "http://flag.invalid"]].concat());
    assert!(first_address(by_flag.env("CUZK_GATEWAY", named)).starts_with("http://flag.invalid/"));
    let wrong = place.run(&["--gateway", "ftp://nowhere"]);
    assert!(expect(&wrong, 2).1.contains("ftp://nowhere: use http://, https:// or file:///FOLDER"));
}

/// A proxy that takes either form, and counts.
pub fn proxy(target: std::net::SocketAddr) -> (String, std::sync::mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (send, seen) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && client.read(&mut byte).unwrap() == 1 {
                head.push(byte[0]);
            }
            let text = String::from_utf8(head.clone()).unwrap();
            send.send(text.lines().next().unwrap().to_owned()).unwrap();
            let mut server = TcpStream::connect(target).unwrap();
            if text.starts_with("CONNECT ") {
                client.write_all(b"HTTP/1.1 200 Connected\r\n\r\n").unwrap();
            } else {
                server.write_all(&head).unwrap();
            }
            let (mut up, mut down) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut up, &mut server));
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut down, &mut client);
                let _ = client.shutdown(std::net::Shutdown::Both);
            });
        }
    });
    (format!("http://{address}"), seen)
}

#[test]
fn the_proxy_of_the_environment_is_used() {
    let place = Place::new();
    let server = place.server();
    let target = server.url().trim_start_matches("http://").parse().unwrap();
    let (proxy, seen) = proxy(target);
    // A name that only the proxy can make sense of.
    let run =
        place.command(&["--gateway", "http://gateway.invalid"]).env("http_proxy", &proxy).output().unwrap();
    expect(&run, 0);
    place.assert_whole();
    let asked: Vec<String> = seen.try_iter().collect();
    assert!(!asked.is_empty() && asked.iter().all(|line| line.contains("gateway.invalid")), "{asked:?}");

    // An exception.
    fs::remove_dir_all(place.dir()).unwrap();
    let mut command = place.command(&["--gateway", &server.url()]);
    expect(&command.env("http_proxy", &proxy).env("no_proxy", "127.0.0.1").output().unwrap(), 0);
    place.assert_whole();
    assert_eq!(seen.try_iter().count(), 0);
}

#[test]
fn check_says_what_is_left_over() {
    let place = Place::new();
    fs::create_dir(place.dir()).unwrap();
    let write = |name: &str| fs::write(place.dir().join(name), "some bytes").unwrap();
    write(&spec().params_file());
    write("v27-stacked-of-another-version.params");
    write(&format!(".{}.partial", spec().vk_file()));
    write("notes.txt");
    let run = Command::new(env!("CARGO_BIN_EXE_cuzk"))
        .args(["params", "check", "--json", "--params"])
        .arg(place.dir())
        .output()
        .unwrap();
    let (stdout, _) = expect(&run, 3);
    let lines = json_lines(&stdout);
    assert_eq!((&lines[0]["circuit"], &lines[0]["state"]), (&"wpost-2k".into(), &"wrong".into()));
    let left: Vec<&str> = lines[1..].iter().map(|line| line["left_over"].as_str().unwrap()).collect();
    let name = |path: &str| Path::new(path).file_name().unwrap().to_str().unwrap().to_owned();
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(name(left[0]).ends_with(".vk.partial") && name(left[1]).starts_with("v27-"), "{left:?}");
}

#[test]
fn plain_lines_say_which_file_came_from_where() {
    let place = Place::new();
    let server = place.server();
    let mut child = place
        .command(&["--gateway", &server.url()])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines: Vec<String> =
        BufReader::new(child.stdout.take().unwrap()).lines().map(|line| line.unwrap()).collect();
    assert!(child.wait().unwrap().success());
    assert_eq!(lines.len(), 2);
    assert!(lines[1].starts_with(&format!("wpost-2k: {}: fetched, 2.9 MiB, verified", spec().params_file())));
    assert!(lines[1].ends_with(&format!("from {}", server.url())), "{}", lines[1]);
}
