//! What systemd is told and hands over.

use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::process::{Command, Stdio};
use std::time::Duration;

use cuzk_wire::v1::GetStatusRequest;
use rustix::process::Signal;

use super::rig::{clean, connect, pause, Setup};

/// The next message that has `word`.
fn wait_for(socket: &UnixDatagram, word: &str) -> String {
    let mut buffer = [0; 4096];
    loop {
        let length = socket.recv(&mut buffer).unwrap_or_else(|error| panic!("waiting for {word}: {error}"));
        let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
        if text.contains(word) {
            return text;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn systemd_is_told_of_readiness_life_and_end() {
    let mut setup = Setup::new("sim:1");
    let path = setup.dir.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    let mut env = |name: &str, value: &str| setup.env.push((name.to_owned(), value.to_owned()));
    env("NOTIFY_SOCKET", path.to_str().unwrap());
    env("WATCHDOG_USEC", "400000");
    let mut daemon = setup.start().await;
    let told = tokio::task::spawn_blocking(move || {
        wait_for(&socket, "READY=1");
        // Again and again: the Scheduler's clock goes on.
        for _ in 0..3 {
            wait_for(&socket, "WATCHDOG=1");
        }
        socket
    });
    let socket = told.await.unwrap();
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.exit_code().await, 0);
    assert!(wait_for(&socket, "STOPPING=1").contains("STOPPING=1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_that_systemd_opened_is_served() {
    let setup = Setup::new("sim:1");
    setup.write_config();
    let path = setup.dir.path().join("handed-over.sock");
    let listener = UnixListener::bind(&path).unwrap();
    // As systemd does: descriptor 3, named by the process's own number.
    let mut command = Command::new("sh");
    clean(&mut command);
    let log = std::fs::File::create(setup.log()).unwrap();
    let mut child = command
        .arg("-c")
        .arg("LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" --config \"$1\" 3<&0 0</dev/null")
        .arg(env!("CARGO_BIN_EXE_cuzk-daemon"))
        .arg(setup.config_file())
        .stdin(Stdio::from(OwnedFd::from(listener)))
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap();
    let log = || std::fs::read_to_string(setup.log()).unwrap();
    // Whoever connects before the daemon serves waits in the socket's queue.
    let mut client = loop {
        if let Some(client) = connect(&path).await {
            break client;
        }
        assert!(child.try_wait().unwrap().is_none(), "{}", log());
        pause().await;
    };
    client.get_status(GetStatusRequest {}).await.unwrap();
    assert!(!setup.socket().exists(), "the configured socket is not opened beside it");
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::TERM).unwrap();
    while child.try_wait().unwrap().is_none() {
        pause().await;
    }
    assert!(path.exists(), "the file is systemd's");
}
