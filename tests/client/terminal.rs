//! A program in a pseudo-terminal, and the screen that it draws.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustix::pty::{grantpt, openpt, ptsname, unlockpt, OpenptFlags};
use rustix::termios::{tcgetattr, tcsetwinsize, Termios, Winsize};

const LIMIT: Duration = Duration::from_secs(60);

pub struct Terminal {
    child: Child,
    keys: File,
    output: Receiver<Vec<u8>>,
    screen: vt100::Parser,
    /// All that was written, drawn over since or not.
    written: Vec<u8>,
    /// The program's side, kept open: its settings are looked at after the program ended.
    side: OwnedFd,
    before: Termios,
}

impl Terminal {
    /// Runs the command on a terminal of its own of 80 columns and 24 lines.
    pub fn run(command: &Command) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let side = File::options().read(true).write(true).open(name).unwrap();
        tcsetwinsize(&side, Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let before = tcgetattr(&side).unwrap();
        let stdio = || Stdio::from(side.try_clone().unwrap());
        // Its controlling terminal too: else the size would be that of the terminal that the tests run in.
        let mut leader = Command::new("setsid");
        leader.arg("--ctty").arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => leader.env(name, value),
                None => leader.env_remove(name),
            };
        }
        leader.env("TERM", "xterm-256color").stdin(stdio()).stdout(stdio()).stderr(stdio());
        let child = leader.spawn().unwrap();
        let keys = File::from(master);
        let output = read(keys.try_clone().unwrap());
        let (screen, written) = (vt100::Parser::new(24, 80, 0), Vec::new());
        Self { child, keys, output, screen, written, side: side.into(), before }
    }

    pub fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until the screen is as wanted.
    #[track_caller]
    pub fn wait_for(&mut self, is_wanted: impl Fn(&vt100::Screen) -> bool) {
        let end = Instant::now() + LIMIT;
        while !is_wanted(self.screen.screen()) {
            match self.output.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(bytes) => self.take_in(&bytes),
                Err(RecvTimeoutError::Timeout) => panic!("never seen:\n{}", self.contents()),
                Err(RecvTimeoutError::Disconnected) => panic!("it ended:\n{}", self.contents()),
            }
        }
    }

    fn take_in(&mut self, bytes: &[u8]) {
        self.screen.process(bytes);
        self.written.extend_from_slice(bytes);
    }

    #[track_caller]
    pub fn wait_for_text(&mut self, text: &str) {
        self.wait_for(|screen| screen.contents().contains(text));
    }

    pub fn contents(&self) -> String {
        self.screen.screen().contents()
    }

    pub fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child)
    }

    /// Waits for the program's end, and looks whether it left the terminal as it was.
    #[track_caller]
    pub fn end(self) -> ExitStatus {
        self.finish().status
    }

    /// As [`Terminal::end`], with what the program has shown.
    #[track_caller]
    pub fn finish(mut self) -> Finished {
        let status = self.child.wait().unwrap();
        let after = tcgetattr(&self.side).unwrap();
        let modes = |termios: &Termios| {
            (termios.input_modes, termios.output_modes, termios.control_modes, termios.local_modes)
        };
        assert_eq!(modes(&after), modes(&self.before), "the terminal's modes are not restored");
        // What was written last is in the reader's hands once nobody has the other side open.
        let Self { side, output, mut screen, mut written, .. } = self;
        drop(side);
        while let Ok(bytes) = output.recv_timeout(LIMIT) {
            screen.process(&bytes);
            written.extend(bytes);
        }
        let screen = screen.screen();
        assert!(!screen.alternate_screen() && !screen.hide_cursor(), "{}", screen.contents());
        let written = String::from_utf8_lossy(&written).into_owned();
        Finished { status, screen: screen.contents(), written }
    }
}

/// A program that has ended.
pub struct Finished {
    pub status: ExitStatus,
    /// What it left on the screen.
    pub screen: String,
    /// All that was ever on it.
    pub written: String,
}

/// All that the program writes, until its side is closed.
fn read(mut master: File) -> Receiver<Vec<u8>> {
    let (send, output) = channel();
    std::thread::spawn(move || {
        let mut chunk = [0; 4096];
        while let Ok(length @ 1..) = master.read(&mut chunk) {
            if send.send(chunk[..length].to_vec()).is_err() {
                return;
            }
        }
    });
    output
}
