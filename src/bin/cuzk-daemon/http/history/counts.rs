//! Counters and histograms, as `/metrics` serves them, and the rates of the last minutes.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use cuzk::backend::Stage;
use cuzk::circuits::WorkKind;
use cuzk::ids::{CircuitId, DeviceId};
use cuzk::messages::events::JobOutcome;
use cuzk::messages::job::Priority;

/// Values in classes, as Prometheus has them: `counts[i]` of those up to `ends[i]` and above the end before.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    ends: &'static [f64],
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    fn new(ends: &'static [f64]) -> Self {
        Self { ends, counts: vec![0; ends.len() + 1], sum: 0.0 }
    }

    fn record(&mut self, value: Duration) {
        let seconds = value.as_secs_f64();
        self.counts[self.ends.partition_point(|&end| end < seconds)] += 1;
        self.sum += seconds;
    }

    /// From classes counted elsewhere; the last one has no end.
    ///
    /// # Panics
    /// If `counts` is not one longer than `ends`.
    pub fn of(ends: &'static [f64], counts: &[u64], sum: f64) -> Self {
        assert_eq!(counts.len(), ends.len() + 1, "each class but the last has an end");
        Self { ends, counts: counts.to_vec(), sum }
    }

    /// Each end with the number of values up to it; the last is the number of all.
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let ends = self.ends.iter().copied().chain([f64::INFINITY]);
        ends.zip(&self.counts).scan(0, |total, (end, count)| {
            *total += count;
            Some((end, *total))
        })
    }

    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    pub fn sum(&self) -> f64 {
        self.sum
    }
}

/// Stages: microseconds for test circuits, minutes on a CPU.
const STAGE_ENDS: &[f64] = &[0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0];
/// Whole partitions, witnesses, verifications and loads.
const WORK_ENDS: &[f64] = &[0.005, 0.02, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 180.0, 600.0];
/// Waits and whole jobs: a WindowPoSt has half an hour, a PoRep days.
const WAIT_ENDS: &[f64] = &[0.01, 0.1, 1.0, 5.0, 15.0, 60.0, 180.0, 600.0, 1800.0, 7200.0, 43_200.0];

/// Histograms of one name, by their labels.
pub type Histograms<Labels> = BTreeMap<Labels, Histogram>;

fn record<Labels: Ord>(all: &mut Histograms<Labels>, ends: &'static [f64], labels: Labels, value: Duration) {
    all.entry(labels).or_insert_with(|| Histogram::new(ends)).record(value);
}

/// Everything that is counted since the start. Labels are kinds, devices and circuits of the engine: few.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    pub accepted: BTreeMap<(WorkKind, Priority), u64>,
    pub refused: BTreeMap<WorkKind, u64>,
    pub ended: BTreeMap<(WorkKind, JobOutcome), u64>,
    pub verified: BTreeMap<(WorkKind, DeviceId), u64>,
    /// `true`: the proof was wrong.
    pub failed: BTreeMap<(WorkKind, DeviceId, bool), u64>,
    /// From acceptance until the partition was first given to a device.
    pub waits: Histograms<(WorkKind, Priority)>,
    /// From acceptance to the end, of completed jobs.
    pub job_times: Histograms<WorkKind>,
    pub witness_times: Histograms<WorkKind>,
    /// From placement until the device had a proof.
    pub device_times: Histograms<(DeviceId, CircuitId)>,
    pub stage_times: Histograms<(DeviceId, CircuitId, Stage)>,
    /// From proof to verdict, the wait for a worker included.
    pub verification_times: Histograms<WorkKind>,
    pub load_times: Histograms<CircuitId>,
}

impl Counts {
    pub fn waited(&mut self, kind: WorkKind, priority: Priority, wait: Duration) {
        record(&mut self.waits, WAIT_ENDS, (kind, priority), wait);
    }

    pub fn job_took(&mut self, kind: WorkKind, total: Duration) {
        record(&mut self.job_times, WAIT_ENDS, kind, total);
    }

    pub fn witness_took(&mut self, kind: WorkKind, elapsed: Duration) {
        record(&mut self.witness_times, WORK_ENDS, kind, elapsed);
    }

    pub fn partition_took(&mut self, device: DeviceId, circuit: CircuitId, elapsed: Duration) {
        record(&mut self.device_times, WORK_ENDS, (device, circuit), elapsed);
    }

    pub fn stage_took(&mut self, device: DeviceId, circuit: CircuitId, stage: Stage, elapsed: Duration) {
        record(&mut self.stage_times, STAGE_ENDS, (device, circuit, stage), elapsed);
    }

    pub fn verification_took(&mut self, kind: WorkKind, elapsed: Duration) {
        record(&mut self.verification_times, WORK_ENDS, kind, elapsed);
    }

    pub fn load_took(&mut self, circuit: CircuitId, elapsed: Duration) {
        record(&mut self.load_times, WORK_ENDS, circuit, elapsed);
    }
}

/// Length of one bucket of [`Rates`].
pub const RATE_BUCKET: Duration = Duration::from_secs(10);
/// Buckets that are kept: ten minutes.
pub const RATE_BUCKETS: usize = 60;

/// What was done within one bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateBucket {
    pub partitions: u64,
    pub jobs: u64,
    pub failures: u64,
}

/// What was done lately, in buckets of [`RATE_BUCKET`].
#[derive(Clone, Debug, Default)]
pub struct Rates {
    /// With their numbers since the start, the newest last; one without work may be missing.
    buckets: VecDeque<(u64, RateBucket)>,
}

fn bucket_number(at: Duration) -> u64 {
    at.as_secs() / RATE_BUCKET.as_secs()
}

impl Rates {
    /// The bucket of this moment.
    pub fn at(&mut self, at: Duration) -> &mut RateBucket {
        let number = bucket_number(at);
        if self.buckets.back().is_none_or(|(last, _)| *last < number) {
            if self.buckets.len() == RATE_BUCKETS {
                self.buckets.pop_front();
            }
            self.buckets.push_back((number, RateBucket::default()));
        }
        &mut self.buckets.back_mut().expect("one was just put there").1
    }

    /// The last [`RATE_BUCKETS`] of them, the one of `now` last, with those that had no work.
    pub fn last(&self, now: Duration) -> Vec<RateBucket> {
        let newest = bucket_number(now);
        let mut last = vec![RateBucket::default(); RATE_BUCKETS];
        for (number, bucket) in &self.buckets {
            // Events that were told after `now` was read.
            let age = newest.saturating_sub(*number) as usize;
            if age < RATE_BUCKETS {
                last[RATE_BUCKETS - 1 - age] = *bucket;
            }
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_counts_in_every_class_that_ends_at_it_or_beyond() {
        let mut histogram = Histogram::new(&[1.0, 2.0]);
        for seconds in [0.5, 1.0, 1.5, 9.0] {
            histogram.record(Duration::from_secs_f64(seconds));
        }
        let cumulative: Vec<_> = histogram.cumulative().collect();
        assert_eq!(cumulative, [(1.0, 2), (2.0, 3), (f64::INFINITY, 4)]);
        assert_eq!((histogram.count(), histogram.sum()), (4, 12.0));
    }

    #[test]
    fn rates_forget_and_have_no_holes() {
        let mut rates = Rates::default();
        rates.at(Duration::from_secs(3)).jobs += 1;
        rates.at(Duration::from_secs(9)).jobs += 1;
        rates.at(Duration::from_secs(25)).jobs += 1;
        let last = rates.last(Duration::from_secs(31));
        let jobs: Vec<u64> = last.iter().map(|bucket| bucket.jobs).collect();
        assert_eq!(jobs[RATE_BUCKETS - 4..], [2, 0, 1, 0]);
        for second in 0..10_000 {
            rates.at(Duration::from_secs(second)).partitions += 1;
        }
        assert_eq!(rates.buckets.len(), RATE_BUCKETS);
        let last = rates.last(Duration::from_secs(9_999));
        assert!(last.iter().all(|bucket| bucket.partitions == 10));
        assert_eq!(rates.last(Duration::from_secs(90_000)), [RateBucket::default(); RATE_BUCKETS]);
    }
}
