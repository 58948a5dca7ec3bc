//! A daemon of a test's own, and the programs that are called with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tempfile::TempDir;

pub use crate::done::Done;

pub const WINDOW: &str = "tests/data/filecoin/window-2k/full-partition/manifest.json";
pub const WINNING: &str = "tests/data/filecoin/winning-2k/sector-1/manifest.json";

/// Nothing here takes as long on an idle machine; builds beside it must not make it fail.
const LIMIT: Duration = Duration::from_secs(300);

/// A program in an environment of its own.
pub fn command(program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("CUZK_")) {
        command.env_remove(name);
    }
    command
        .args(args)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("XDG_CACHE_HOME", Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache"))
        .env("FIL_PROOFS_PARAMETER_CACHE", params())
        .env_remove("NOTIFY_SOCKET");
    command
}

pub const CUZK: &str = env!("CARGO_BIN_EXE_cuzk");
pub const BENCH: &str = env!("CARGO_BIN_EXE_cuzk-bench");
pub const DAEMON: &str = env!("CARGO_BIN_EXE_cuzk-daemon");

pub fn cuzk(args: &[&str]) -> Done {
    Done::of(command(CUZK, args).output().unwrap())
}

pub fn bench(args: &[&str]) -> Done {
    Done::of(command(BENCH, args).output().unwrap())
}

/// A folder with the test parameters of both PoSts of 2 KiB: made once, kept with the build, shared with `tests/daemon.rs`.
pub fn params() -> &'static str {
    static DIR: OnceLock<String> = OnceLock::new();
    DIR.get_or_init(|| {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("post-params").display().to_string();
        let args = ["params", "generate", "wpost-2k", "winning-2k", "--params", &dir];
        let made = Command::new(CUZK).args(args).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        dir
    })
}

/// A running daemon with two simulated devices. Killed when dropped, unless it ended before.
pub struct Daemon {
    child: Child,
    dir: TempDir,
    pub addr: String,
    /// What every client needs to be let in.
    access: Vec<String>,
}

impl Daemon {
    pub fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let addr = format!("unix://{}", dir.path().join("cuzk.sock").display());
        Self::start_in(dir, addr, "", Vec::new())
    }

    /// `settings`: more lines of `[daemon]`; `access`: flags that clients need.
    pub fn start_in(dir: TempDir, addr: String, settings: &str, access: Vec<String>) -> Self {
        let config = format!(
            "[daemon]\nlisten = \"{addr}\"\nstatus_listen = \"\"\nstate_dir = \"{state}\"\n{settings}\n\
             [gpus]\ndevices = \"sim:2\"\n[srs]\nparams_dir = \"{params}\"\n",
            state = dir.path().join("state").display(),
            params = params(),
        );
        fs::create_dir_all(dir.path().join("state")).unwrap();
        fs::write(dir.path().join("cuzk.toml"), config).unwrap();
        let child = spawn(dir.path());
        let mut daemon = Self { child, dir, addr, access };
        daemon.wait_ready();
        daemon
    }

    /// Asks again and again: each answer, also that nobody is there, is a process that ended.
    fn wait_ready(&mut self) {
        let begun = Instant::now();
        let socket = self.addr.strip_prefix("unix://").map(PathBuf::from);
        loop {
            // Before it listens, asking would only take a core from it.
            if socket.as_ref().is_some_and(|socket| !socket.exists()) && begun.elapsed() < LIMIT {
                assert_eq!(self.child.try_wait().unwrap(), None, "the daemon ended: {}", self.log());
                std::thread::sleep(Duration::from_millis(10));
                continue;
            }
            let status = self.cuzk(&["status", "--json"]);
            if status.code == 0 && status.json()["ready"] == true {
                return;
            }
            assert_eq!(self.child.try_wait().unwrap(), None, "the daemon ended: {}", self.log());
            assert!(begun.elapsed() < LIMIT, "{}{}", status.stderr, self.log());
        }
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// `cuzk` with the flags that reach this daemon.
    pub fn cuzk(&self, args: &[&str]) -> Done {
        Done::of(self.command(args).output().unwrap())
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = command(CUZK, args);
        command.args(["--addr", &self.addr]).args(&self.access);
        command
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// After [`Daemon::kill`].
    pub fn start_again(&mut self) {
        self.child = spawn(self.dir.path());
        self.wait_ready();
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }
}

fn spawn(dir: &Path) -> Child {
    let log = fs::OpenOptions::new().create(true).append(true).open(dir.join("log")).unwrap();
    command(DAEMON, &["--config", &dir.join("cuzk.toml").display().to_string()])
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap()
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended: then neither does anything.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
