//! `cuzk top` on a terminal of 80×24.

use rustix::process::{kill_process, Signal};

use crate::rig::{cuzk, Daemon, WINDOW};
use crate::terminal::Terminal;

#[test]
fn top_draws_devices_queue_and_jobs_and_q_puts_the_terminal_back() {
    let daemon = Daemon::start();
    for number in 0..6 {
        daemon.cuzk(&["submit", WINDOW, "--request-id", &format!("watched-{number}")]).expect(0);
    }
    let mut terminal = Terminal::run(&daemon.command(&["top", "--interval", "0.2"]));
    terminal.wait_for_text("watched-5");
    terminal.wait_for(|screen| {
        let text = screen.contents();
        ["sim-0", "sim-1", "window-post", "wpost-2k", "ready", "proofs ", "q quit"]
            .iter()
            .all(|word| text.contains(word))
    });
    // Devices work, and their lines say for whom.
    terminal.wait_for(|screen| {
        screen.contents().lines().any(|line| line.starts_with("sim-") && line.contains("watched-"))
    });
    terminal.press("?");
    terminal.wait_for_text("hold the screen");
    terminal.press("?");
    terminal.wait_for(|screen| !screen.contents().contains("hold the screen"));
    terminal.press("s");
    terminal.wait_for_text("by priority");
    terminal.press("/no-such-job\r");
    terminal.wait_for_text("jobs: 0 with `no-such-job`");
    terminal.press("q");
    assert_eq!(terminal.end().code(), Some(0));
}

#[test]
fn top_puts_the_terminal_back_after_ctrl_c_and_after_a_signal() {
    let daemon = Daemon::start();
    let mut terminal = Terminal::run(&daemon.command(&["top"]));
    terminal.wait_for_text("sim-0");
    terminal.press("\u{3}");
    assert_eq!(terminal.end().code(), Some(0));

    let mut terminal = Terminal::run(&daemon.command(&["top"]));
    terminal.wait_for_text("sim-0");
    kill_process(terminal.pid(), Signal::TERM).unwrap();
    assert_eq!(terminal.end().code(), Some(143));
}

#[test]
fn top_waits_for_a_daemon_that_is_gone_and_shows_it_again_when_it_is_back() {
    let mut daemon = Daemon::start();
    let mut terminal = Terminal::run(&daemon.command(&["top", "--interval", "0.2"]));
    terminal.wait_for_text("ready");
    daemon.kill();
    terminal.wait_for(|screen| {
        let text = screen.contents();
        text.contains("is cuzk-daemon running?") || text.contains("went away")
    });
    // What was last known stays.
    assert!(terminal.contents().contains("sim-0"));
    daemon.start_again();
    terminal.wait_for_text("ready  up");
    terminal.press("q");
    assert_eq!(terminal.end().code(), Some(0));
}

#[test]
fn top_is_for_terminals() {
    let run = cuzk(&["top", "--addr", "localhost:1"]).expect(2);
    assert!(run.stderr.contains("no terminal"), "{}", run.stderr);
}
