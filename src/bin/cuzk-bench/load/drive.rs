//! When jobs are asked for: some at a time, or at random times.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand_chacha::ChaCha20Rng;
use rand_core::{RngCore, SeedableRng};
use tokio::task::JoinSet;

use super::inputs::Inputs;
use super::kind_of;
use super::target::{NoProof, Proved, Target};
use crate::Failure;

/// Which jobs, and when.
pub enum Plan {
    /// Each of these inputs, `concurrency` at a time.
    Closed { jobs: Arc<[usize]>, concurrency: usize },
    /// At these times, whatever has become of those before.
    Open(Vec<Arrival>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrival {
    /// Since the start.
    pub at: Duration,
    /// Index of the input.
    pub input: usize,
}

impl Plan {
    /// `count` jobs, the kinds in turn, and of each its variants in turn.
    pub fn closed(inputs: &Inputs, count: usize, concurrency: usize) -> Self {
        let kinds = &inputs.by_kind;
        let job = |number: usize| {
            let variants = &kinds[number % kinds.len()].1;
            variants[number / kinds.len() % variants.len()]
        };
        Self::Closed { jobs: (0..count).map(job).collect(), concurrency }
    }

    pub fn num_jobs(&self) -> usize {
        match self {
            Self::Closed { jobs, .. } => jobs.len(),
            Self::Open(arrivals) => arrivals.len(),
        }
    }
}

impl Arrival {
    /// Poisson arrivals for `duration`: gaps are exponential, each kind's from a stream of its own, so that another
    /// kind's rate does not change them. `rates`: a second, by kind.
    pub fn poisson(inputs: &Inputs, rates: &[f64], duration: Duration, seed: u64) -> Vec<Self> {
        let mut arrivals = Vec::new();
        for (kind, rate) in rates.iter().enumerate() {
            let variants = &inputs.by_kind[kind].1;
            let times = times(*rate, duration, seed, kind as u64);
            arrivals.extend(
                times.enumerate().map(|(number, at)| Self { at, input: variants[number % variants.len()] }),
            );
        }
        arrivals.sort_by_key(|arrival| arrival.at);
        arrivals
    }
}

fn times(rate: f64, duration: Duration, seed: u64, stream: u64) -> impl Iterator<Item = Duration> {
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    rng.set_stream(stream);
    let mut at = 0.0;
    std::iter::from_fn(move || {
        // In (0, 1]: its logarithm is finite.
        let uniform = (rng.next_u64() >> 11) as f64 + 1.0;
        at -= (uniform / (1u64 << 53) as f64).ln() / rate;
        Duration::try_from_secs_f64(at).ok().filter(|at| *at < duration)
    })
}

/// One job as its caller saw it.
pub struct Record {
    /// Index of its input.
    pub input: usize,
    /// Since the start.
    pub begun: Duration,
    pub ended: Duration,
    pub result: Result<Proved, NoProof>,
}

/// All jobs of a plan, in the order of their end.
pub struct Run {
    pub records: Vec<Record>,
    /// Until the last job ended.
    pub wall: Duration,
}

/// One job of each kind, so that circuits are loaded before anything is measured.
pub async fn warm_up(target: &Target, inputs: &Inputs) -> Result<(), Failure> {
    for (kind, variants) in &inputs.by_kind {
        let proved = target.prove(request_id("warm-up", 0), kind_of(inputs, variants[0])).await;
        proved.map_err(|error| Failure::failed(format!("{kind}: {}", error.what)))?;
    }
    Ok(())
}

/// A name that no other run of this program has: a daemon would give the proof it has.
fn request_id(tag: &str, number: usize) -> String {
    let now = std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_micros();
    format!("{tag}-{}-{now:x}-{number}", std::process::id())
}

/// What every job of a run needs.
struct Course {
    target: Arc<Target>,
    inputs: Arc<Inputs>,
    start: Instant,
    tag: String,
}

impl Course {
    async fn prove(&self, number: usize, input: usize) -> Record {
        let begun = self.start.elapsed();
        let result = self.target.prove(request_id(&self.tag, number), kind_of(&self.inputs, input)).await;
        Record { input, begun, ended: self.start.elapsed(), result }
    }
}

/// Runs the plan to the end of its last job. `tag` begins the jobs' names.
pub async fn run(target: &Arc<Target>, inputs: &Arc<Inputs>, plan: &Plan, tag: &str) -> Run {
    let start = Instant::now();
    let course = Arc::new(Course {
        target: Arc::clone(target),
        inputs: Arc::clone(inputs),
        start,
        tag: tag.to_owned(),
    });
    let mut tasks: JoinSet<Vec<Record>> = JoinSet::new();
    match plan {
        Plan::Closed { jobs, concurrency } => {
            let next = Arc::new(AtomicUsize::new(0));
            for _ in 0..*concurrency {
                tasks.spawn(work(Arc::clone(&course), Arc::clone(jobs), Arc::clone(&next)));
            }
        }
        Plan::Open(arrivals) => {
            for (number, Arrival { at, input }) in arrivals.iter().copied().enumerate() {
                let course = Arc::clone(&course);
                tasks.spawn(async move {
                    tokio::time::sleep_until((start + at).into()).await;
                    vec![course.prove(number, input).await]
                });
            }
        }
    }
    let mut records = tasks.join_all().await.into_iter().flatten().collect::<Vec<_>>();
    records.sort_by_key(|record| record.ended);
    Run { wall: start.elapsed(), records }
}

/// Takes the next job until there is none.
async fn work(course: Arc<Course>, jobs: Arc<[usize]>, next: Arc<AtomicUsize>) -> Vec<Record> {
    let mut records = Vec::new();
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let Some(input) = jobs.get(number) else { return records };
        records.push(course.prove(number, *input).await);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_keep_their_rate_and_their_seed() {
        let minute = Duration::from_secs(600);
        let all: Vec<Duration> = times(2.0, minute, 1, 0).collect();
        // 1200 expected, with a standard deviation of 35.
        assert!((1050..1350).contains(&all.len()), "{}", all.len());
        assert!(all.is_sorted() && all.iter().all(|at| *at < minute));
        assert_eq!(all, times(2.0, minute, 1, 0).collect::<Vec<_>>());
        assert_ne!(all, times(2.0, minute, 2, 0).collect::<Vec<_>>());
        assert_ne!(all, times(2.0, minute, 1, 1).collect::<Vec<_>>());
    }
}
