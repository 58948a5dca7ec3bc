//! The callers of a simulation: one task per stream, which submits jobs as a host would, and lets them go on by
//! themselves.

use std::time::Duration;

use rand::Rng;
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use tokio::task::JoinHandle;
use tokio::time::{sleep_until, Instant};

use super::machine::Machine;
use super::scenario::{seconds, Arrivals};
use crate::engine::{Engine, JobHandle};
use crate::messages::job::ProofRequest;

/// Pause of a caller of a backlog whose job was refused or failed: it tries again, but not at once.
const CALLER_PAUSE: Duration = Duration::from_secs(10);

/// All tasks that submit jobs.
pub(super) struct Callers(Vec<JoinHandle<()>>);

impl Callers {
    /// They submit until `horizon`.
    pub fn start(machine: &Machine, engine: &Engine, horizon: Instant) -> Self {
        let scenario = machine.scenario();
        let mut tasks = Vec::new();
        for (index, stream) in scenario.streams.iter().enumerate() {
            let caller = Caller { engine: engine.clone(), horizon, request: machine.request(stream) };
            let mut rng = ChaCha20Rng::seed_from_u64(scenario.seed);
            rng.set_stream(index as u64);
            match stream.arrivals {
                Arrivals::Backlog { jobs } => {
                    tasks.extend((0..jobs).map(|_| actix_rt::spawn(caller.clone().one_after_the_other())));
                }
                arrivals => tasks.push(actix_rt::spawn(caller.by_time(arrivals, rng))),
            }
        }
        Self(tasks)
    }

    /// Waits until all have ended; the engine has stopped by then.
    pub async fn join(self) {
        for task in self.0 {
            if let Err(error) = task.await {
                std::panic::resume_unwind(error.into_panic());
            }
        }
    }
}

/// Submits jobs of one stream.
#[derive(Clone)]
struct Caller {
    engine: Engine,
    horizon: Instant,
    request: ProofRequest,
}

impl Caller {
    /// Nothing of a refused job is left but its event.
    async fn submit(&self) -> Option<JobHandle> {
        let mut handle = self.engine.submit(self.request.clone()).await.ok()?;
        // Nobody listens.
        drop(handle.events());
        Some(handle)
    }

    async fn submit_all(&self, num_jobs: u32) {
        for _ in 0..num_jobs {
            if let Some(handle) = self.submit().await {
                handle.detach();
            }
        }
    }

    async fn by_time(self, arrivals: Arrivals, mut rng: ChaCha20Rng) {
        let mut next = Instant::now();
        if let Arrivals::Windows { offset_s, .. } = arrivals {
            next += seconds(offset_s);
        } else {
            next += gap(arrivals, &mut rng);
        }
        while next < self.horizon {
            sleep_until(next).await;
            match arrivals {
                Arrivals::Windows { jobs, .. } | Arrivals::Bursts { jobs, .. } => self.submit_all(jobs).await,
                Arrivals::Poisson { .. } | Arrivals::Backlog { .. } => self.submit_all(1).await,
            }
            next += gap(arrivals, &mut rng);
        }
    }

    async fn one_after_the_other(self) {
        while Instant::now() < self.horizon {
            let result = match self.submit().await {
                Some(handle) => handle.wait().await.is_ok(),
                None => false,
            };
            if !result {
                tokio::time::sleep(CALLER_PAUSE).await;
            }
        }
    }
}

/// From one arrival to the next.
fn gap(arrivals: Arrivals, rng: &mut ChaCha20Rng) -> Duration {
    match arrivals {
        Arrivals::Poisson { per_hour } | Arrivals::Bursts { per_hour, .. } => {
            // Exponential: the logarithm of a uniform number in (0, 1].
            let uniform = 1.0 - rng.gen::<f64>();
            seconds(-uniform.ln() * 3600.0 / per_hour)
        }
        Arrivals::Windows { every_s, .. } => seconds(every_s),
        Arrivals::Backlog { .. } => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poisson_arrivals_have_their_rate_and_their_spread() {
        let mut rng = ChaCha20Rng::seed_from_u64(3);
        let gaps: Vec<f64> =
            (0..20_000).map(|_| gap(Arrivals::Poisson { per_hour: 60.0 }, &mut rng).as_secs_f64()).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        assert!((58.0..62.0).contains(&mean), "{mean}");
        // Of an exponential distribution one part in e is longer than the mean.
        let longer = gaps.iter().filter(|gap| **gap > 60.0).count() as f64 / gaps.len() as f64;
        assert!((0.355..0.381).contains(&longer), "{longer}");
    }
}
