//! A daemon of a test's own.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use cuzk_wire::v1::proving_engine_client::ProvingEngineClient;
use cuzk_wire::v1::{GetStatusRequest, GetStatusResponse};
use cuzk_wire::MESSAGE_BYTES_MAX;
use rustix::process::{kill_process, Pid, Signal};
use tempfile::TempDir;
use tonic::transport::{Channel, Endpoint};

pub type Client = ProvingEngineClient<Channel>;

/// Nothing takes this long on an idle machine; whatever else runs beside the tests must not make them fail.
pub const LIMIT: Duration = Duration::from_secs(300);

/// A folder with the parameters of both PoSts of 2 KiB: made once, kept with the build, shared with `tests/client.rs`.
pub fn params() -> &'static str {
    static DIR: OnceLock<String> = OnceLock::new();
    DIR.get_or_init(|| {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("post-params").display().to_string();
        let made = Command::new(env!("CARGO_BIN_EXE_cuzk"))
            .args(["params", "generate", "wpost-2k", "winning-2k", "--params", &dir])
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        dir
    })
}

/// How a daemon is started.
pub struct Setup {
    pub dir: TempDir,
    pub devices: String,
    /// Of parameter files.
    pub params: String,
    /// More lines of `[daemon]`, and of other sections after them.
    pub daemon: String,
    pub sections: String,
    pub args: Vec<String>,
    pub env: Vec<(String, String)>,
    /// Files that it may have open.
    pub max_files: Option<u32>,
}

impl Setup {
    pub fn new(devices: &str) -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            devices: devices.to_owned(),
            params: params().to_owned(),
            daemon: String::new(),
            sections: String::new(),
            args: Vec::new(),
            env: Vec::new(),
            max_files: None,
        }
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("cuzk.sock")
    }

    pub fn config_file(&self) -> PathBuf {
        self.dir.path().join("cuzk.toml")
    }

    pub fn log(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    pub fn write_config(&self) {
        let mut text = String::new();
        let socket = self.socket();
        writeln!(text, "[daemon]\nlisten = \"unix://{}\"", socket.display()).unwrap();
        if !self.daemon.contains("status_listen") {
            writeln!(text, "status_listen = \"\"").unwrap();
        }
        writeln!(text, "state_dir = \"{}\"\n{}", self.dir.path().display(), self.daemon).unwrap();
        writeln!(text, "[gpus]\ndevices = \"{}\"\n[srs]\nparams_dir = \"{}\"", self.devices, self.params)
            .unwrap();
        if !self.sections.contains("[logging]") {
            writeln!(text, "[logging]\nlevel = \"info\"\nformat = \"json\"").unwrap();
        }
        writeln!(text, "{}", self.sections).unwrap();
        fs::write(self.config_file(), text).unwrap();
    }

    /// The program with this setup; its log goes to a file, so that no full pipe holds it up.
    pub fn command(&self) -> Command {
        self.write_config();
        let program = env!("CARGO_BIN_EXE_cuzk-daemon");
        let mut command = match self.max_files {
            None => Command::new(program),
            Some(files) => {
                let mut shell = Command::new("sh");
                shell.args(["-c", &format!("ulimit -n {files}; exec \"$0\" \"$@\""), program]);
                shell
            }
        };
        clean(&mut command);
        let log = fs::OpenOptions::new().create(true).append(true).open(self.log()).unwrap();
        command
            .arg("--config")
            .arg(self.config_file())
            .args(&self.args)
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        command
    }

    /// Starts it, and waits until it answers and can prove.
    pub async fn start(self) -> Daemon {
        let mut daemon = self.spawn();
        daemon.wait_ready().await;
        daemon
    }

    pub fn spawn(self) -> Daemon {
        let child = self.command().spawn().unwrap();
        Daemon { child, setup: self, code: None }
    }
}

/// Nothing of the environment that the tests run in.
pub fn clean(command: &mut Command) {
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("CUZK_")) {
        command.env_remove(name);
    }
    for name in ["NOTIFY_SOCKET", "WATCHDOG_USEC", "LISTEN_FDS", "LISTEN_PID", "STATE_DIRECTORY"] {
        command.env_remove(name);
    }
    command.env("XDG_CACHE_HOME", Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache"));
}

/// A running daemon; killed when it is dropped.
pub struct Daemon {
    child: Child,
    pub setup: Setup,
    code: Option<i32>,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Daemon {
    pub async fn client(&self) -> Client {
        connect(&self.setup.socket()).await.expect("the daemon serves")
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    #[track_caller]
    pub fn log_text(&self) -> String {
        fs::read_to_string(self.setup.log()).unwrap()
    }

    /// Where it says that it serves gRPC over TCP.
    #[track_caller]
    pub fn tcp_address(&self) -> String {
        self.address("serving gRPC")
    }

    /// Where it says that it serves HTTP.
    #[track_caller]
    pub fn status_address(&self) -> String {
        self.address("serving HTTP")
    }

    /// The code and the body of what HTTP answers.
    #[track_caller]
    pub fn http(&self, path: &str) -> (u16, String) {
        let mut socket = TcpStream::connect(self.status_address()).unwrap();
        write!(socket, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no HTTP: {answer}"));
        let code = head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
        (code.unwrap_or_else(|| panic!("no code: {head}")), body.to_owned())
    }

    #[track_caller]
    fn address(&self, message: &str) -> String {
        let text = self.log_text();
        let mut lines = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let address = lines.find_map(|line| {
            let address = line["address"].as_str()?;
            (line["message"] == message && address.starts_with("127.")).then(|| address.to_owned())
        });
        address.unwrap_or_else(|| panic!("it does not say where: {text}"))
    }

    /// The log once it says `words`: a thread of its own writes it, after the answer perhaps.
    pub async fn log_with(&self, words: &str) -> String {
        let begun = Instant::now();
        loop {
            let text = self.log_text();
            if text.contains(words) && text.ends_with('\n') {
                return text;
            }
            assert!(begun.elapsed() < LIMIT, "the log does not say {words:?}: {text}");
            pause().await;
        }
    }

    pub async fn wait_ready(&mut self) {
        let begun = Instant::now();
        loop {
            if let Some(mut client) = connect(&self.setup.socket()).await {
                if client.get_status(GetStatusRequest {}).await.is_ok_and(|status| status.get_ref().ready) {
                    return;
                }
            }
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "the daemon ended with {ended:?}: {}", self.log_text());
            assert!(begun.elapsed() < LIMIT, "the daemon is not ready: {}", self.log_text());
            pause().await;
        }
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for the end, and gives the exit code. (128 plus the signal's number, if one ended it.)
    pub async fn exit_code(&mut self) -> i32 {
        let begun = Instant::now();
        loop {
            if let Some(code) = self.code {
                return code;
            }
            if let Some(status) = self.child.try_wait().unwrap() {
                use std::os::unix::process::ExitStatusExt;
                self.code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
                continue;
            }
            assert!(begun.elapsed() < LIMIT, "the daemon does not end: {}", self.log_text());
            pause().await;
        }
    }

    /// `kill -9`, and the same again with all that it left on the disk.
    pub async fn kill_and_restart(mut self) -> Daemon {
        self.signal(Signal::KILL);
        assert_eq!(self.exit_code().await, 128 + 9);
        self.restart().await
    }

    /// The same again, after it ended.
    pub async fn restart(mut self) -> Daemon {
        assert!(self.child.try_wait().unwrap().is_some(), "it still runs");
        self.child = self.setup.command().spawn().unwrap();
        self.code = None;
        self.wait_ready().await;
        self
    }
}

pub async fn connect(socket: &Path) -> Option<Client> {
    let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display())).unwrap();
    let channel = endpoint.connect().await.ok()?;
    let client = ProvingEngineClient::new(channel);
    // One more MiB than a daemon may take, for the test of just that.
    Some(client.max_encoding_message_size(300 << 20).max_decoding_message_size(MESSAGE_BYTES_MAX))
}

/// Between two looks at what no message tells: another process.
pub async fn pause() {
    tokio::time::sleep(Duration::from_millis(20)).await;
}

pub async fn status(client: &mut Client) -> GetStatusResponse {
    client.get_status(GetStatusRequest {}).await.unwrap().into_inner()
}

/// Waits until the status is as wanted.
pub async fn wait_status(
    client: &mut Client,
    wanted: impl Fn(&GetStatusResponse) -> bool,
) -> GetStatusResponse {
    let begun = Instant::now();
    loop {
        let status = status(client).await;
        if wanted(&status) {
            return status;
        }
        assert!(begun.elapsed() < LIMIT, "{status:?}");
        pause().await;
    }
}

pub fn in_progress(status: &GetStatusResponse) -> u32 {
    status.queues.iter().map(|queue| queue.in_progress).sum()
}
