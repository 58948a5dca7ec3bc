//! When a device that was lost is built again: at once, after a quarantine, or never.

use std::collections::VecDeque;
use std::time::Duration;

/// Bounds of rebuilding one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestartPolicy {
    /// Restarts at once within the window; one more is quarantined.
    pub max_restarts: u32,
    pub window: Duration,
    pub quarantine: Duration,
    /// Quarantines in a row, without a whole window of service between them, after which a device is given up.
    pub max_quarantines: u32,
}

/// What to do about a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Restart,
    Quarantine { until: Duration },
    GiveUp,
}

/// The losses of one device. Times count from the engine's start.
#[derive(Clone, Debug)]
pub struct RestartRecord {
    policy: RestartPolicy,
    losses: VecDeque<Duration>,
    num_quarantines: u32,
    quarantine_ended: Duration,
}

impl RestartRecord {
    pub fn new(policy: RestartPolicy) -> Self {
        Self { policy, losses: VecDeque::new(), num_quarantines: 0, quarantine_ended: Duration::ZERO }
    }

    pub fn lost(&mut self, now: Duration) -> Verdict {
        if self.num_quarantines > 0 && now.saturating_sub(self.quarantine_ended) >= self.policy.window {
            self.num_quarantines = 0;
        }
        self.losses.retain(|at| now.saturating_sub(*at) < self.policy.window);
        self.losses.push_back(now);
        // After a quarantine the device is on probation: one more loss is enough.
        if self.num_quarantines == 0 && self.losses.len() <= self.policy.max_restarts as usize {
            return Verdict::Restart;
        }
        if self.num_quarantines >= self.policy.max_quarantines {
            return Verdict::GiveUp;
        }
        self.num_quarantines += 1;
        self.losses.clear();
        self.quarantine_ended = now + self.policy.quarantine;
        Verdict::Quarantine { until: self.quarantine_ended }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const POLICY: RestartPolicy = RestartPolicy {
        max_restarts: 2,
        window: Duration::from_secs(60),
        quarantine: Duration::from_secs(30),
        max_quarantines: 2,
    };

    fn at(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn restarts_then_quarantines_then_gives_up() {
        let mut record = RestartRecord::new(POLICY);
        assert_eq!(record.lost(at(0)), Verdict::Restart);
        assert_eq!(record.lost(at(1)), Verdict::Restart);
        assert_eq!(record.lost(at(2)), Verdict::Quarantine { until: at(32) });
        assert_eq!(record.lost(at(33)), Verdict::Quarantine { until: at(63) });
        assert_eq!(record.lost(at(64)), Verdict::GiveUp);
    }

    #[test]
    fn a_window_of_service_wipes_the_slate() {
        let mut record = RestartRecord::new(POLICY);
        for secs in 0..3 {
            record.lost(at(secs));
        }
        assert_eq!(record.lost(at(92)), Verdict::Restart);
    }

    proptest! {
        /// However fast it dies, no window sees more rebuilds than allowed.
        #[test]
        fn restarts_per_window_are_bounded(gaps in prop::collection::vec(0u64..20, 1..200)) {
            let mut record = RestartRecord::new(POLICY);
            let (mut now, mut restarts) = (0, VecDeque::new());
            for gap in gaps {
                now += gap;
                match record.lost(at(now)) {
                    Verdict::Restart => restarts.push_back(now),
                    Verdict::Quarantine { until } => now = until.as_secs(),
                    Verdict::GiveUp => return Ok(()),
                }
                restarts.retain(|at| now - at < 60);
                prop_assert!(restarts.len() <= 2);
            }
        }
    }
}
