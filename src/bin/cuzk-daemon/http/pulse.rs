//! Heartbeats: how long ago each actor last showed that it lives.
//!
//! The Scheduler publishes the engine's status at each of its ticks, and each device counts its own in there. A thread
//! of its own looks for changes, so that the answer to a probe depends on no one who might hang.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{bounded, Receiver, RecvTimeoutError, Sender};
use cuzk::engine::Engine;
use cuzk::messages::status::EngineStatus;
use serde::Serialize;

/// How often is looked. The ticks themselves are some tens of milliseconds apart.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// A Scheduler that is silent for so long does not work. Too low: a busy machine's process is restarted by its probe.
const SCHEDULER_LIMIT: Duration = Duration::from_secs(10);
/// The same of a device in service, whose thread may be held up by its driver; the watchdog needs that thread.
const DEVICE_LIMIT: Duration = Duration::from_secs(60);

const SCHEDULER: &str = "scheduler";

/// One actor's heartbeat.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Beat {
    /// `scheduler`, or a device's id.
    pub actor: String,
    pub age_ms: u64,
    /// Silence beyond this means that the actor hangs.
    pub limit_ms: u64,
}

impl Beat {
    pub fn is_alive(&self) -> bool {
        self.age_ms <= self.limit_ms
    }
}

/// What was seen last of an actor, and when that was new.
struct Seen {
    count: u64,
    changed_at: Instant,
    limit: Duration,
}

type Actors = BTreeMap<String, Seen>;

/// The heartbeats of an engine's actors.
pub struct Pulse {
    actors: Arc<Mutex<Actors>>,
    /// The thread ends when it is dropped.
    _stop: Sender<()>,
}

impl Pulse {
    /// # Errors
    /// The system's, if it refuses a thread.
    pub fn start(engine: Engine) -> std::io::Result<Self> {
        let actors: Arc<Mutex<Actors>> = Arc::default();
        let (stop, stopped) = bounded(0);
        let thread_actors = Arc::clone(&actors);
        look(&actors, &engine.status(), Instant::now());
        std::thread::Builder::new()
            .name("cuzk-pulse".into())
            .spawn(move || watch(&engine, &thread_actors, &stopped))?;
        Ok(Self { actors, _stop: stop })
    }

    /// Of the Scheduler, and of each device in service.
    pub fn beats(&self) -> Vec<Beat> {
        let actors = self.actors.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let beat = |(actor, seen): (&String, &Seen)| Beat {
            actor: actor.clone(),
            age_ms: now.saturating_duration_since(seen.changed_at).as_millis() as u64,
            limit_ms: seen.limit.as_millis() as u64,
        };
        actors.iter().map(beat).collect()
    }
}

fn watch(engine: &Engine, actors: &Mutex<Actors>, stopped: &Receiver<()>) {
    while stopped.recv_timeout(LOOK_INTERVAL) == Err(RecvTimeoutError::Timeout) {
        look(actors, &engine.status(), Instant::now());
    }
}

fn look(actors: &Mutex<Actors>, status: &EngineStatus, now: Instant) {
    let devices = status.devices.iter().filter(|device| device.state == "ready" && device.num_ticks > 0);
    let devices = devices.map(|device| (device.id.as_str(), device.num_ticks, DEVICE_LIMIT));
    let counts: Vec<_> = devices.chain([(SCHEDULER, status.uptime_ms, SCHEDULER_LIMIT)]).collect();
    let mut actors = actors.lock().unwrap_or_else(PoisonError::into_inner);
    // One that is out of service has no pulse to have.
    actors.retain(|actor, _| counts.iter().any(|(counted, ..)| counted == actor));
    for (actor, count, limit) in counts {
        match actors.get_mut(actor) {
            Some(seen) if seen.count == count => {}
            Some(seen) => (seen.count, seen.changed_at) = (count, now),
            None => {
                actors.insert(actor.to_owned(), Seen { count, changed_at: now, limit });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_counted_from_the_last_change() {
        let actors = Mutex::default();
        let begun = Instant::now();
        let status = |uptime_ms| EngineStatus { uptime_ms, ..EngineStatus::default() };
        for (uptime_ms, second) in [(100, 0), (200, 1), (200, 2), (200, 3)] {
            look(&actors, &status(uptime_ms), begun + Duration::from_secs(second));
        }
        let actors = actors.lock().unwrap();
        assert_eq!(actors.len(), 1);
        assert_eq!(actors[SCHEDULER].changed_at, begun + Duration::from_secs(1));
    }

    #[test]
    fn an_actor_is_alive_up_to_its_limit() {
        let beat = |age_ms| Beat { actor: SCHEDULER.into(), age_ms, limit_ms: 10_000 };
        assert!(beat(10_000).is_alive() && !beat(10_001).is_alive());
    }
}
