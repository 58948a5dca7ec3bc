//! Devices as events tell of them: which attempts run, in which stage, and those that ended lately.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use cuzk::backend::Stage;
use cuzk::circuits::WorkKind;
use cuzk::ids::CircuitId;
use cuzk::messages::events::AttemptRef;

/// Attempts of a device that are kept after their end. Too low: a fast device's timeline is short. Too high: `/status` is
/// large.
const MAX_ENDED: usize = 96;

const NUM_STAGES: usize = Stage::ALL.len();

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptEnd {
    Proved,
    Failed,
    /// Its proof was wrong.
    Invalid,
    /// The job ended meanwhile.
    Dropped,
}

impl AttemptEnd {
    /// Stable name, for the status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Proved => "proved",
            Self::Failed => "failed",
            Self::Invalid => "invalid",
            Self::Dropped => "dropped",
        }
    }
}

/// One attempt on a device.
#[derive(Clone, Debug)]
pub struct Attempt {
    pub at: AttemptRef,
    pub kind: WorkKind,
    pub circuit: CircuitId,
    /// Attempts that overlap are in different rows, from 0.
    pub row: usize,
    pub begun_at: Duration,
    /// Of the stages that are done, by [`Stage::index`].
    pub stages: [Option<Duration>; NUM_STAGES],
    /// When the last of them was.
    pub stage_begun_at: Duration,
    pub end: Option<(Duration, AttemptEnd)>,
}

impl Attempt {
    /// What runs now: the first stage that is not done.
    pub fn stage(&self) -> Option<Stage> {
        Stage::ALL.into_iter().find(|stage| self.stages[stage.index()].is_none())
    }
}

/// One device.
#[derive(Clone, Debug, Default)]
pub struct DeviceTrack {
    pub running: Vec<Attempt>,
    /// The newest last.
    pub ended: VecDeque<Attempt>,
    /// Time of all stages together: more than what passed, if lanes ran side by side.
    pub busy: Duration,
    /// Runs of partitions of one circuit.
    pub num_batches: u64,
    pub num_placed: u64,
    last_circuit: Option<CircuitId>,
    /// Moving averages of stage times.
    means: BTreeMap<CircuitId, [Option<Duration>; NUM_STAGES]>,
}

impl DeviceTrack {
    pub fn place(&mut self, at: AttemptRef, kind: WorkKind, circuit: CircuitId, now: Duration) {
        self.num_placed += 1;
        if self.last_circuit.as_ref() != Some(&circuit) {
            self.num_batches += 1;
            self.last_circuit = Some(circuit.clone());
        }
        let is_taken = |row: usize| self.running.iter().any(|attempt| attempt.row == row);
        let row = (0..).find(|&row| !is_taken(row)).expect("the rows that are taken are few");
        self.running.push(Attempt {
            at,
            kind,
            circuit,
            row,
            begun_at: now,
            stages: [None; NUM_STAGES],
            stage_begun_at: now,
            end: None,
        });
    }

    /// Gives the attempt's circuit, if it is known.
    pub fn stage_done(
        &mut self,
        at: AttemptRef,
        stage: Stage,
        elapsed: Duration,
        now: Duration,
    ) -> Option<CircuitId> {
        self.busy += elapsed;
        let attempt = self.running.iter_mut().find(|attempt| attempt.at == at)?;
        attempt.stages[stage.index()] = Some(elapsed);
        attempt.stage_begun_at = now;
        let mean = &mut self.means.entry(attempt.circuit.clone()).or_default()[stage.index()];
        // As the Scheduler's: the newest counts a quarter.
        *mean = Some(mean.map_or(elapsed, |mean| (mean * 3 + elapsed) / 4));
        Some(attempt.circuit.clone())
    }

    /// An attempt that has ended already stays as it is, but for one whose proof turns out to be wrong.
    pub fn end(&mut self, at: AttemptRef, end: AttemptEnd, now: Duration) -> Option<&Attempt> {
        let Some(index) = self.running.iter().position(|attempt| attempt.at == at) else {
            let attempt = self.ended.iter_mut().rev().find(|attempt| attempt.at == at)?;
            if let Some((_, before)) = &mut attempt.end {
                *before = end;
            }
            return None;
        };
        let mut attempt = self.running.swap_remove(index);
        attempt.end = Some((now, end));
        if self.ended.len() == MAX_ENDED {
            self.ended.pop_front();
        }
        self.ended.push_back(attempt);
        self.ended.back()
    }

    pub fn end_all(&mut self, mut ends: impl FnMut(&Attempt) -> bool, end: AttemptEnd, now: Duration) {
        let gone: Vec<AttemptRef> =
            self.running.iter().filter(|attempt| ends(attempt)).map(|attempt| attempt.at).collect();
        for at in gone {
            self.end(at, end, now);
        }
    }

    /// How much of a running attempt is done, from 0 to 1, by the times of those before; `None` before there are any.
    pub fn progress(&self, attempt: &Attempt, now: Duration) -> Option<f64> {
        let means = self.means.get(&attempt.circuit)?;
        let total: Duration = means.iter().copied().sum::<Option<Duration>>()?;
        let current = attempt.stage();
        let done: Duration = Stage::ALL
            .into_iter()
            .zip(means.iter().flatten())
            .map(|(stage, &mean)| match attempt.stages[stage.index()] {
                Some(_) => mean,
                None if Some(stage) == current => now.saturating_sub(attempt.stage_begun_at).min(mean),
                None => Duration::ZERO,
            })
            .sum();
        Some(if total.is_zero() { 1.0 } else { done.as_secs_f64() / total.as_secs_f64() })
    }
}

#[cfg(test)]
mod tests {
    use cuzk::ids::{Attempt as AttemptNumber, JobId, PartitionIndex};

    use super::*;

    fn at(job: u64) -> AttemptRef {
        AttemptRef { job: JobId(job), partition: PartitionIndex(0), attempt: AttemptNumber(1) }
    }

    fn place(track: &mut DeviceTrack, job: u64, circuit: &str, second: u64) {
        track.place(at(job), WorkKind::PorepC2, CircuitId::new(circuit), Duration::from_secs(second));
    }

    #[test]
    fn overlapping_attempts_have_rows_of_their_own_and_runs_of_a_circuit_are_counted() {
        let mut track = DeviceTrack::default();
        place(&mut track, 1, "a", 0);
        place(&mut track, 2, "a", 1);
        assert!(track.end(at(1), AttemptEnd::Proved, Duration::from_secs(2)).is_some());
        place(&mut track, 3, "b", 3);
        let rows: Vec<usize> = track.running.iter().map(|attempt| attempt.row).collect();
        assert_eq!(rows, [1, 0]);
        assert_eq!((track.num_batches, track.num_placed), (2, 3));
        // Its proof turns out to be wrong.
        assert!(track.end(at(1), AttemptEnd::Invalid, Duration::from_secs(4)).is_none());
        assert_eq!(track.ended[0].end, Some((Duration::from_secs(2), AttemptEnd::Invalid)));
    }

    #[test]
    fn progress_is_known_once_a_partition_of_the_circuit_went_through() {
        let mut track = DeviceTrack::default();
        place(&mut track, 1, "a", 0);
        assert_eq!(track.progress(&track.running[0], Duration::from_secs(1)), None);
        for (stage, second) in Stage::ALL.into_iter().zip(1..) {
            track.stage_done(at(1), stage, Duration::from_secs(1), Duration::from_secs(second));
        }
        assert_eq!(track.running[0].stage(), None);
        track.end(at(1), AttemptEnd::Proved, Duration::from_secs(9));
        place(&mut track, 2, "a", 10);
        track.stage_done(at(2), Stage::Upload, Duration::from_secs(1), Duration::from_secs(11));
        let progress = track.progress(&track.running[0], Duration::from_millis(11_500)).unwrap();
        assert!((progress - 1.5 / 9.0).abs() < 1e-9, "{progress}");
        // A stage that takes longer than ever is not done for that.
        let progress = track.progress(&track.running[0], Duration::from_secs(600)).unwrap();
        assert!((progress - 2.0 / 9.0).abs() < 1e-9, "{progress}");
        assert_eq!(track.busy, Duration::from_secs(10));
    }

    #[test]
    fn what_has_ended_is_forgotten_in_time() {
        let mut track = DeviceTrack::default();
        for job in 0..1000 {
            place(&mut track, job, "a", job);
            track.end(at(job), AttemptEnd::Proved, Duration::from_secs(job));
        }
        assert_eq!((track.running.len(), track.ended.len()), (0, MAX_ENDED));
        assert_eq!(track.ended.back().unwrap().at, at(999));
    }
}
