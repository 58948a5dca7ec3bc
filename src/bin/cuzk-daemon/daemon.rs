//! What every part of the daemon shares.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use cuzk::config::Config;
use cuzk::engine::Engine;
use cuzk::telemetry::LogFilter;
use tokio::sync::watch;

use crate::args::Args;
use crate::reload::{self, Reloaded};
use crate::security::Tokens;

/// A running daemon.
pub struct Daemon {
    pub engine: Engine,
    pub started: Instant,
    args: Args,
    /// What is in use now.
    config: Mutex<Arc<Config>>,
    filter: LogFilter,
    /// Of callers that come over the network.
    pub tokens: Tokens,
    drain: watch::Sender<Option<DrainRequest>>,
}

/// Somebody wants the daemon to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainRequest {
    /// Milliseconds; `None`: as configured.
    pub limit_ms: Option<u64>,
}

impl Daemon {
    pub fn new(
        engine: Engine,
        args: Args,
        config: Arc<Config>,
        tokens: Tokens,
        filter: LogFilter,
    ) -> Arc<Self> {
        Arc::new(Self {
            engine,
            started: Instant::now(),
            args,
            config: Mutex::new(config),
            filter,
            tokens,
            drain: watch::channel(None).0,
        })
    }

    /// The configuration that is in use now.
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.locked())
    }

    fn locked(&self) -> MutexGuard<'_, Arc<Config>> {
        self.config.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for an orderly end; of several, the shortest limit counts.
    pub fn drain(&self, request: DrainRequest) {
        self.drain.send_modify(|known| {
            let shortest = match (*known, request.limit_ms) {
                (Some(DrainRequest { limit_ms: Some(known) }), Some(limit)) => Some(known.min(limit)),
                (Some(DrainRequest { limit_ms: Some(known) }), None) => Some(known),
                (_, limit) => limit,
            };
            *known = Some(DrainRequest { limit_ms: shortest });
        });
    }

    /// `Some` once somebody asked for an orderly end.
    pub fn draining(&self) -> watch::Receiver<Option<DrainRequest>> {
        self.drain.subscribe()
    }

    pub fn is_draining(&self) -> bool {
        self.drain.borrow().is_some()
    }

    /// Reads the configuration again, applies what can change at run time, and logs what that was. `asked_by`: for the log.
    ///
    /// # Errors
    /// What is wrong with it, in words; nothing has changed then.
    pub fn reload(&self, asked_by: &str) -> Result<Reloaded, String> {
        let reloaded = self.read_again();
        match &reloaded {
            Ok(reloaded) => tracing::warn!(
                asked_by,
                applied = reloaded.applied.join(", "),
                needs_restart = reloaded.needs_restart.join(", "),
                "the configuration was read again"
            ),
            Err(error) => {
                tracing::error!(asked_by, error, "the configuration cannot be used: the former one stays");
            }
        }
        reloaded
    }

    fn read_again(&self) -> Result<Reloaded, String> {
        let new = self.args.load().map_err(|error| error.to_string())?;
        // Held to the end: two reloads at a time would mix.
        let mut current = self.locked();
        let has_cpu_device = self.engine.status().devices.iter().any(|device| device.id == "cpu");
        let settings = new.runtime_settings(has_cpu_device).map_err(|error| error.to_string())?;
        let (next, reloaded) = reload::apply(&current, new, Some(&self.filter), &self.tokens)?;
        self.engine.reconfigure(settings);
        *current = Arc::new(next);
        Ok(reloaded)
    }
}
