//! Signals: SIGTERM and SIGINT end the daemon in order, a second one at once; SIGHUP reads the configuration again. SIGXFSZ,
//! which would end it, leaves a file that may grow no further to whoever writes it: as a full disk.

use std::sync::Arc;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;

use crate::daemon::{Daemon, DrainRequest};
use crate::failure::{Failure, EXIT_SIGNAL_BASE};
use crate::notify;

/// Takes the signals over before anything else is started, so that none ends the process in the middle of a start.
///
/// # Errors
/// If the system refuses.
pub fn install() -> Result<Signals, Failure> {
    Signals::new([SIGHUP, SIGINT, SIGTERM, SIGXFSZ])
        .map_err(|error| Failure::failed(format!("signals: {error}")))
}

/// Serves them, on a thread of its own: a stuck runtime cannot keep the second SIGTERM from ending the process.
///
/// # Errors
/// If the system refuses a thread.
pub fn serve(mut signals: Signals, daemon: Arc<Daemon>) -> Result<(), Failure> {
    let serve = move || {
        let mut file_limit_told = false;
        for signal in signals.forever() {
            match signal {
                SIGHUP => reload(&daemon),
                SIGXFSZ if file_limit_told => {}
                // Once: the file may be the log.
                SIGXFSZ => {
                    file_limit_told = true;
                    tracing::error!("a file is as large as this process may make it (ulimit -f)");
                }
                signal if daemon.is_draining() => {
                    tracing::warn!(signal, "a second signal: the daemon ends at once");
                    std::process::exit(EXIT_SIGNAL_BASE + signal);
                }
                signal => {
                    tracing::info!(signal, "the daemon finishes what it has and ends");
                    daemon.drain(DrainRequest { limit_ms: None });
                }
            }
        }
    };
    let thread = std::thread::Builder::new().name("signals".to_owned()).spawn(serve);
    thread.map(drop).map_err(|error| Failure::failed(format!("no thread for signals: {error}")))
}

fn reload(daemon: &Daemon) {
    notify::reloading();
    // The log has what came of it; nobody else waits for it.
    let _ = daemon.reload("SIGHUP");
    notify::tell(&[sd_notify::NotifyState::Ready]);
}
