//! A device's health from what it did: failures in a window degrade it, then quarantine it, then it is probed.

use std::collections::VecDeque;
use std::time::Duration;

/// In order of preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Health {
    Healthy,
    /// Failed lately; used, but after the healthy ones.
    Degraded,
    /// Its quarantine is over: one partition at a time, until one succeeds.
    Probation,
    /// Left out.
    Quarantined,
}

impl Health {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Degraded => "degraded",
            Self::Probation => "probation",
            Self::Quarantined => "quarantined",
        }
    }
}

/// What counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthPolicy {
    /// Failures older than this are forgotten.
    pub window: Duration,
    /// Penalty points within the window that quarantine a device. One failure is one point, an invalid proof two,
    /// since it is the failure that hides.
    pub quarantine_points: u32,
    /// How long the first quarantine lasts; each one that follows a failed probe lasts twice as long.
    pub quarantine: Duration,
}

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The device said so, or was lost.
    Reported,
    /// It returned a proof that does not verify.
    InvalidProof,
}

impl Failure {
    fn points(self) -> u32 {
        match self {
            Self::Reported => 1,
            Self::InvalidProof => 2,
        }
    }
}

/// The record of one device. Times count from the engine's start.
#[derive(Clone, Debug)]
pub struct HealthRecord {
    policy: HealthPolicy,
    failures: VecDeque<(Duration, u32)>,
    quarantined_until: Option<Duration>,
    num_quarantines: u32,
}

/// Doublings of the quarantine at most: 2^6 times the first.
const MAX_DOUBLINGS: u32 = 6;

impl HealthRecord {
    pub fn new(policy: HealthPolicy) -> Self {
        Self { policy, failures: VecDeque::new(), quarantined_until: None, num_quarantines: 0 }
    }

    pub fn health(&self, now: Duration) -> Health {
        match self.quarantined_until {
            Some(until) if now < until => Health::Quarantined,
            Some(_) => Health::Probation,
            None if self.points(now) > 0 => Health::Degraded,
            None => Health::Healthy,
        }
    }

    fn points(&self, now: Duration) -> u32 {
        let recent = |at: Duration| now.saturating_sub(at) < self.policy.window;
        self.failures.iter().filter(|(at, _)| recent(*at)).map(|(_, points)| points).sum()
    }

    pub fn record_failure(&mut self, failure: Failure, now: Duration) {
        let health = self.health(now);
        self.failures.push_back((now, failure.points()));
        self.forget(now);
        // A failure under quarantine is of work that was given before it: no news.
        let is_enough = self.points(now) >= self.policy.quarantine_points && health != Health::Quarantined;
        if health == Health::Probation || is_enough {
            self.quarantine(now);
        }
    }

    /// A proof that verified.
    pub fn record_success(&mut self, now: Duration) {
        if self.health(now) == Health::Probation {
            self.quarantined_until = None;
            self.num_quarantines = 0;
            self.failures.clear();
        }
        self.forget(now);
    }

    /// Takes a failure back that was not the device's: it counts no more, and a quarantine that rests on it ends.
    /// (One that followed a probe ends as well: what the probe would have found is not known.)
    pub fn forgive(&mut self, failure: Failure, at: Duration, now: Duration) {
        let counted = (at, failure.points());
        let Some(index) = self.failures.iter().position(|known| *known == counted) else { return };
        self.failures.remove(index);
        if self.quarantined_until.is_some() && self.points(now) < self.policy.quarantine_points {
            self.quarantined_until = None;
            self.num_quarantines = self.num_quarantines.saturating_sub(1);
        }
    }

    fn quarantine(&mut self, now: Duration) {
        let factor = 1 << self.num_quarantines.min(MAX_DOUBLINGS);
        self.quarantined_until = Some(now + self.policy.quarantine * factor);
        self.num_quarantines += 1;
    }

    fn forget(&mut self, now: Duration) {
        while self.failures.front().is_some_and(|(at, _)| now.saturating_sub(*at) >= self.policy.window) {
            self.failures.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const POLICY: HealthPolicy = HealthPolicy {
        window: Duration::from_secs(60),
        quarantine_points: 4,
        quarantine: Duration::from_secs(30),
    };

    fn at(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn two_invalid_proofs_quarantine_and_a_good_probe_heals() {
        let mut record = HealthRecord::new(POLICY);
        assert_eq!(record.health(at(0)), Health::Healthy);
        record.record_failure(Failure::InvalidProof, at(1));
        assert_eq!(record.health(at(1)), Health::Degraded);
        record.record_success(at(2));
        assert_eq!(record.health(at(2)), Health::Degraded);
        record.record_failure(Failure::InvalidProof, at(3));
        assert_eq!(record.health(at(3)), Health::Quarantined);
        assert_eq!(record.health(at(33)), Health::Probation);
        record.record_success(at(34));
        assert_eq!(record.health(at(34)), Health::Healthy);
    }

    #[test]
    fn a_failed_probe_doubles_the_quarantine() {
        let mut record = HealthRecord::new(POLICY);
        for _ in 0..2 {
            record.record_failure(Failure::InvalidProof, at(0));
        }
        record.record_failure(Failure::Reported, at(40));
        assert_eq!(record.health(at(99)), Health::Quarantined);
        assert_eq!(record.health(at(100)), Health::Probation);
    }

    #[test]
    fn failures_under_quarantine_do_not_lengthen_it() {
        let mut record = HealthRecord::new(POLICY);
        for secs in [0, 0, 1, 2] {
            record.record_failure(Failure::InvalidProof, at(secs));
        }
        assert_eq!(record.health(at(30)), Health::Probation);
    }

    #[test]
    fn what_is_forgiven_no_longer_counts() {
        let mut record = HealthRecord::new(POLICY);
        for secs in [1, 2] {
            record.record_failure(Failure::InvalidProof, at(secs));
        }
        assert_eq!(record.health(at(3)), Health::Quarantined);
        record.forgive(Failure::InvalidProof, at(7), at(8));
        assert_eq!(record.health(at(8)), Health::Quarantined, "there was none then");
        record.forgive(Failure::InvalidProof, at(1), at(8));
        assert_eq!(record.health(at(8)), Health::Degraded, "the other one still counts");
        record.forgive(Failure::InvalidProof, at(2), at(8));
        assert_eq!(record.health(at(8)), Health::Healthy);
    }

    #[test]
    fn failures_are_forgotten() {
        let mut record = HealthRecord::new(POLICY);
        for secs in [0, 10, 20] {
            record.record_failure(Failure::Reported, at(secs));
        }
        assert_eq!(record.health(at(79)), Health::Degraded);
        assert_eq!(record.health(at(80)), Health::Healthy);
    }

    proptest! {
        /// Whatever happens, a quarantine ends, and the memory stays bounded by the window.
        #[test]
        fn quarantine_is_bounded(events in prop::collection::vec((0u64..20, 0u8..3), 0..200)) {
            let mut record = HealthRecord::new(POLICY);
            let mut now = 0;
            for (gap, event) in events {
                now += gap;
                match event {
                    0 => record.record_success(at(now)),
                    1 => record.record_failure(Failure::Reported, at(now)),
                    _ => record.record_failure(Failure::InvalidProof, at(now)),
                }
            }
            let longest = 30 << MAX_DOUBLINGS;
            prop_assert_ne!(record.health(at(now + longest)), Health::Quarantined);
            record.record_success(at(now + longest + 60));
            prop_assert!(record.failures.is_empty());
        }
    }
}
