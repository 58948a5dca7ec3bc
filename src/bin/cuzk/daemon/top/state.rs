//! What `cuzk top` shows: the last snapshot, the past that bars and rates need, and what the keys chose.

use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::super::snapshot::{Device, Job, Snapshot};
use super::source::Update;

/// Looks that a sparkline can show.
const HISTORY_MAX: usize = 240;
/// Rates are over this long.
const RATE_WINDOW: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    Age,
    Priority,
    Kind,
    Done,
}

impl Sort {
    pub fn next(self) -> Self {
        match self {
            Self::Age => Self::Priority,
            Self::Priority => Self::Kind,
            Self::Kind => Self::Done,
            Self::Done => Self::Age,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Age => "age",
            Self::Priority => "priority",
            Self::Kind => "kind",
            Self::Done => "done",
        }
    }
}

/// Where typed characters go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Typing {
    Nothing,
    Filter,
}

pub struct State {
    pub address: String,
    pub snapshot: Option<Box<Snapshot>>,
    /// Why there is no newer snapshot.
    pub away: Option<String>,
    /// Percent busy at each look, oldest first, by device.
    pub busy: BTreeMap<String, VecDeque<u64>>,
    /// Completed and failed jobs at each look of the last minute.
    counts: VecDeque<(Instant, u64, u64)>,
    pub sort: Sort,
    pub reverse: bool,
    pub filter: String,
    pub typing: Typing,
    pub paused: bool,
    pub help: bool,
    /// Jobs that are scrolled past.
    pub scroll: usize,
}

impl State {
    pub fn new(address: String) -> Self {
        Self {
            address,
            snapshot: None,
            away: None,
            busy: BTreeMap::new(),
            counts: VecDeque::new(),
            sort: Sort::Age,
            reverse: false,
            filter: String::new(),
            typing: Typing::Nothing,
            paused: false,
            help: false,
            scroll: 0,
        }
    }

    /// Takes in what the daemon said at `now`.
    pub fn take(&mut self, update: Update, now: Instant) {
        if self.paused {
            return;
        }
        let snapshot = match update {
            Ok(snapshot) => snapshot,
            Err(why) => {
                self.away = Some(why);
                return;
            }
        };
        self.away = None;
        for device in &snapshot.devices {
            let history = self.busy.entry(device.id.clone()).or_default();
            history.push_back(busy_percent(device));
            if history.len() > HISTORY_MAX {
                history.pop_front();
            }
        }
        self.busy.retain(|id, _| snapshot.devices.iter().any(|device| device.id == *id));
        let totals = &snapshot.totals;
        // A daemon that was started again counts from nothing.
        if self.counts.back().is_some_and(|(_, completed, _)| *completed > totals.completed) {
            self.counts.clear();
        }
        self.counts.push_back((now, totals.completed, totals.failed));
        while self.counts.front().is_some_and(|(at, ..)| now.duration_since(*at) > RATE_WINDOW) {
            self.counts.pop_front();
        }
        self.snapshot = Some(snapshot);
    }

    /// Jobs completed and failed a minute, over the last minute or since this program looks.
    pub fn rates(&self) -> (f64, f64) {
        let (Some(first), Some(last)) = (self.counts.front(), self.counts.back()) else { return (0.0, 0.0) };
        let minutes = last.0.duration_since(first.0).as_secs_f64() / 60.0;
        if minutes == 0.0 {
            return (0.0, 0.0);
        }
        ((last.1 - first.1) as f64 / minutes, (last.2.saturating_sub(first.2)) as f64 / minutes)
    }

    /// The jobs that pass the filter, in the chosen order.
    pub fn jobs(&self) -> Vec<&Job> {
        let Some(snapshot) = &self.snapshot else { return Vec::new() };
        let wanted = self.filter.to_lowercase();
        let is_wanted = |job: &&Job| {
            let texts = [&job.job_id, &job.proof_kind, &job.circuit_id, &job.state];
            let is_in = |text: &str| text.to_lowercase().contains(&wanted);
            texts.into_iter().any(|text| is_in(text))
                || is_in(job.priority)
                || job.devices.iter().any(|d| is_in(d))
        };
        let mut jobs: Vec<&Job> = snapshot.jobs.iter().filter(is_wanted).collect();
        // Stable: equal ones stay oldest first.
        jobs.sort_by(|left, right| self.order(left, right));
        if self.reverse {
            jobs.reverse();
        }
        jobs
    }

    fn order(&self, left: &Job, right: &Job) -> Ordering {
        let rank = |job: &Job| match job.priority {
            "critical" => 0,
            "high" => 1,
            "normal" => 2,
            _ => 3,
        };
        let done = |job: &Job| f64::from(job.partitions_done) / f64::from(job.partitions.max(1));
        match self.sort {
            Sort::Age => right.age_ms.cmp(&left.age_ms),
            Sort::Priority => rank(left).cmp(&rank(right)),
            Sort::Kind => left.proof_kind.cmp(&right.proof_kind),
            Sort::Done => done(right).total_cmp(&done(left)),
        }
    }
}

/// What the driver says, where it does; else the part of its lanes that work.
pub fn busy_percent(device: &Device) -> u64 {
    match device.utilization_percent {
        Some(percent) => percent.into(),
        None => u64::from(device.lanes_busy) * 100 / u64::from(device.lanes.max(1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(job_id: &str, priority: &'static str, age_ms: u64) -> Job {
        Job { job_id: job_id.to_owned(), priority, age_ms, partitions: 2, ..Job::default() }
    }

    fn state(completed: u64) -> Box<Snapshot> {
        let mut snapshot = Snapshot::default();
        snapshot.totals.completed = completed;
        snapshot.jobs = vec![job("old", "normal", 900), job("new", "critical", 100), job("mid", "low", 500)];
        snapshot.devices =
            vec![Device { id: "sim-0".to_owned(), lanes: 2, lanes_busy: 1, ..Device::default() }];
        Box::new(snapshot)
    }

    fn ids(state: &State) -> Vec<&str> {
        state.jobs().iter().map(|job| job.job_id.as_str()).collect()
    }

    #[test]
    fn jobs_are_sorted_reversed_and_filtered() {
        let mut top = State::new(String::new());
        top.take(Ok(state(0)), Instant::now());
        assert_eq!(ids(&top), ["old", "mid", "new"]);
        top.sort = Sort::Priority;
        assert_eq!(ids(&top), ["new", "old", "mid"]);
        top.reverse = true;
        assert_eq!(ids(&top), ["mid", "old", "new"]);
        top.filter = "CRIT".to_owned();
        assert_eq!(ids(&top), ["new"]);
    }

    #[test]
    fn rates_are_over_a_minute_and_begin_anew_with_a_daemon_that_was_restarted() {
        let mut top = State::new(String::new());
        let begin = Instant::now();
        assert_eq!(top.rates(), (0.0, 0.0));
        for second in 0..=120u64 {
            top.take(Ok(state(second * 2)), begin + Duration::from_secs(second));
        }
        assert_eq!(top.rates().0, 120.0);
        assert_eq!(top.busy["sim-0"].len(), 121);
        top.take(Ok(state(1)), begin + Duration::from_secs(121));
        assert_eq!(top.rates().0, 0.0);
        top.take(Err("gone".to_owned()), begin + Duration::from_secs(122));
        assert!(top.snapshot.is_some() && top.away.as_deref() == Some("gone"));
    }
}
