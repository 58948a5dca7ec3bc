//! What systemd is told: that the daemon serves, what it is at, that it lives.

use std::sync::Arc;
use std::time::Duration;

use cuzk::messages::status::EngineStatus;
use sd_notify::NotifyState;

use crate::daemon::Daemon;

/// How often the status text is looked at.
const STATUS_PACE: Duration = Duration::from_secs(1);

/// Says it. Without systemd nobody listens, and that is no error.
pub fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "systemd was not told");
    }
}

/// Before the configuration is read again; `tell(&[NotifyState::Ready])` ends it.
pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(_) => tell(&[NotifyState::Reloading]),
    }
}

/// Tells what the daemon is at, and that it lives, until it is dropped. It lives as long as the engine's Scheduler looks at
/// its clock: a watchdog that only this task fed would never find a stuck engine.
pub async fn keep_telling(daemon: Arc<Daemon>) {
    // The unit's, halved as systemd recommends.
    let watchdog = sd_notify::watchdog_enabled().map(|limit| limit / 2);
    let pace = watchdog.unwrap_or(STATUS_PACE).min(STATUS_PACE);
    let mut told = String::new();
    let mut last_uptime_ms = None;
    loop {
        let status = daemon.engine.status();
        let text = describe(&status, daemon.is_draining());
        if text != told {
            tell(&[NotifyState::Status(&text)]);
            told = text;
        }
        // While it drains and ends, its actors go one by one: `TimeoutStopSec` watches over that.
        let lives = last_uptime_ms != Some(status.uptime_ms) || daemon.is_draining();
        if watchdog.is_some() && lives {
            tell(&[NotifyState::Watchdog]);
        }
        last_uptime_ms = Some(status.uptime_ms);
        tokio::time::sleep(pace).await;
    }
}

/// One line for `systemctl status`.
fn describe(status: &EngineStatus, is_draining: bool) -> String {
    let jobs = status.jobs.len();
    let devices = status.devices.iter().filter(|device| device.state == "ready").count();
    let all = status.devices.len();
    let state = match (&status.fatal, is_draining, status.ready, status.degraded) {
        (Some(fatal), ..) => format!("fatal: {fatal}"),
        (None, true, ..) => "draining".to_owned(),
        (None, false, true, false) => "ready".to_owned(),
        (None, false, true, true) => format!("degraded: {}", status.reasons.join("; ")),
        (None, false, false, _) => format!("not ready: {}", status.reasons.join("; ")),
    };
    format!(
        "{state}; {devices} of {all} devices, {jobs} jobs, {} proofs completed, {} failed",
        status.totals.completed, status.totals.failed
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_line_says_what_an_operator_asks_first() {
        let mut status = EngineStatus { ready: true, ..EngineStatus::default() };
        assert_eq!(describe(&status, false), "ready; 0 of 0 devices, 0 jobs, 0 proofs completed, 0 failed");
        assert!(describe(&status, true).starts_with("draining; "));
        status.ready = false;
        status.reasons = vec!["no device".to_owned()];
        assert!(describe(&status, false).starts_with("not ready: no device; "));
        status.fatal = Some("all are gone".to_owned());
        assert!(describe(&status, true).starts_with("fatal: all are gone; "));
    }
}
