//! Which partition is served next: priority with aging, deadlines, affinity to a resident SRS, fairness.
//!
//! The order, first difference decides:
//!
//! 1. work that has waited so long that it is *overdue* (three aging steps) goes before everything that is not,
//!    oldest first: this alone bounds every wait;
//! 2. the level: the priority, lifted by one for every aging step waited;
//! 3. within a level, work whose SRS is resident on a free device, unless the oldest work of that level has waited
//!    longer than the affinity limit;
//! 4. the earlier deadline; none is the latest;
//! 5. the job with fewer partitions under way, so that a large job does not shut a small one out;
//! 6. the older one.

use std::cmp::Reverse;
use std::time::Duration;

use crate::ids::{CircuitId, JobId, PartitionIndex};
use crate::messages::job::Priority;

/// Levels that aging adds up to before work is overdue.
const OVERDUE_STEPS: u32 = 3;

/// How waiting counts. Both must be greater than zero to have an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePolicy {
    pub aging_step: Duration,
    pub affinity_limit: Duration,
}

/// A partition that waits. Times count from the engine's start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub job: JobId,
    pub partition: PartitionIndex,
    pub circuit: CircuitId,
    pub priority: Priority,
    pub since: Duration,
    pub deadline: Option<Duration>,
    /// Partitions of the same job that are being made a witness for, proved or verified.
    pub job_under_way: u32,
}

type Rank = (
    bool,
    Reverse<Duration>,
    u32,
    bool,
    Reverse<Duration>,
    Reverse<u32>,
    Reverse<(Duration, JobId, PartitionIndex)>,
);

impl QueuePolicy {
    fn steps(&self, since: Duration, now: Duration) -> u32 {
        if self.aging_step.is_zero() {
            return 0;
        }
        let waited = now.saturating_sub(since);
        u32::try_from(waited.as_nanos() / self.aging_step.as_nanos()).unwrap_or(u32::MAX)
    }

    /// In how many steps something has aged, as far as it matters, and when it will in the next one. `None`: it is
    /// overdue, or nothing ages.
    pub fn age(&self, since: Duration, now: Duration) -> (u32, Option<Duration>) {
        let steps = self.steps(since, now).min(OVERDUE_STEPS);
        let ages_again = steps < OVERDUE_STEPS && !self.aging_step.is_zero();
        let next = self.aging_step.saturating_mul(steps + 1);
        (steps, ages_again.then(|| since.saturating_add(next)))
    }

    /// The priority with its aging, CRITICAL at most.
    fn level(&self, waiting: &Waiting, now: Duration) -> u32 {
        (waiting.priority as u32)
            .saturating_add(self.steps(waiting.since, now))
            .min(Priority::Critical as u32)
    }

    fn is_overdue(&self, waiting: &Waiting, now: Duration) -> bool {
        self.steps(waiting.since, now) >= OVERDUE_STEPS
    }

    fn rank(&self, waiting: &Waiting, now: Duration, prefer: bool) -> Rank {
        let overdue = self.is_overdue(waiting, now);
        (
            overdue,
            Reverse(if overdue { waiting.since } else { Duration::ZERO }),
            self.level(waiting, now),
            prefer,
            Reverse(waiting.deadline.unwrap_or(Duration::MAX)),
            Reverse(waiting.job_under_way),
            Reverse((waiting.since, waiting.job, waiting.partition)),
        )
    }

    /// The one to serve next, by index; `None` if nothing waits. `resident` tells whether a circuit's SRS is
    /// resident where the work could start at once.
    pub fn next(
        &self,
        waiting: &[Waiting],
        now: Duration,
        resident: impl Fn(&CircuitId) -> bool,
    ) -> Option<usize> {
        // Per level, whether affinity still counts: only while its oldest work has not waited too long for it.
        let mut affine = [true; Priority::Critical as usize + 1];
        for item in waiting {
            if now.saturating_sub(item.since) > self.affinity_limit {
                affine[self.level(item, now) as usize] = false;
            }
        }
        (0..waiting.len()).max_by_key(|&index| {
            let item = &waiting[index];
            let prefer = affine[self.level(item, now) as usize] && resident(&item.circuit);
            self.rank(item, now, prefer)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const POLICY: QueuePolicy =
        QueuePolicy { aging_step: Duration::from_secs(10), affinity_limit: Duration::from_secs(2) };

    fn item(job: u64, priority: Priority, since_secs: u64) -> Waiting {
        Waiting {
            job: JobId(job),
            partition: PartitionIndex(0),
            circuit: CircuitId::new(format!("c{}", job % 3)),
            priority,
            since: Duration::from_secs(since_secs),
            deadline: None,
            job_under_way: 0,
        }
    }

    fn next(items: &[Waiting], now_secs: u64) -> u64 {
        let index = POLICY.next(items, Duration::from_secs(now_secs), |_| false).expect("not empty");
        items[index].job.0
    }

    #[test]
    fn nothing_waits() {
        assert_eq!(POLICY.next(&[], Duration::ZERO, |_| true), None);
    }

    #[test]
    fn priority_goes_before_age_and_age_lifts() {
        let items = [item(1, Priority::Low, 0), item(2, Priority::Normal, 5), item(3, Priority::Critical, 6)];
        assert_eq!(next(&items, 6), 3);
        assert_eq!(next(&items[..2], 6), 2);
        // After one step LOW counts as NORMAL, and is older.
        assert_eq!(next(&items[..2], 11), 1);
        // Overdue goes before CRITICAL.
        assert_eq!(next(&items, 30), 1);
    }

    #[test]
    fn deadline_then_fairness_then_age() {
        let mut items =
            [item(1, Priority::Normal, 0), item(2, Priority::Normal, 1), item(3, Priority::Normal, 1)];
        assert_eq!(next(&items, 1), 1);
        items[0].job_under_way = 2;
        assert_eq!(next(&items, 1), 2);
        items[2].deadline = Some(Duration::from_secs(9));
        assert_eq!(next(&items, 1), 3);
    }

    #[test]
    fn affinity_counts_for_a_bounded_time() {
        let items = [item(1, Priority::Normal, 0), item(2, Priority::Normal, 1)];
        let resident = |circuit: &CircuitId| circuit.as_str() == "c2";
        assert_eq!(POLICY.next(&items, Duration::from_secs(1), resident), Some(1));
        assert_eq!(POLICY.next(&items, Duration::from_secs(3), resident), Some(0));
    }

    fn any_priority() -> impl Strategy<Value = Priority> {
        prop_oneof![
            Just(Priority::Low),
            Just(Priority::Normal),
            Just(Priority::High),
            Just(Priority::Critical)
        ]
    }

    proptest! {
        /// One server, one item a second, at most one arrival a second, of any priority: whatever arrives, nothing
        /// waits longer than being overdue takes plus everything that was there before it.
        #[test]
        fn nothing_starves(
            backlog in prop::collection::vec(any_priority(), 0..40),
            arrivals in prop::collection::vec(prop::option::of(any_priority()), 1..300),
            resident in 0u64..3,
        ) {
            let mut waiting: Vec<Waiting> =
                backlog.iter().enumerate().map(|(i, p)| item(i as u64, *p, 0)).collect();
            let bound = 30 + backlog.len() as u64 + 31;
            let mut job = 1000;
            for (now, arrival) in (0u64..).zip(arrivals) {
                if let Some(priority) = arrival {
                    job += 1;
                    waiting.push(item(job, priority, now));
                }
                let hot = CircuitId::new(format!("c{resident}"));
                if let Some(index) = POLICY.next(&waiting, Duration::from_secs(now), |c| *c == hot) {
                    let served = waiting.swap_remove(index);
                    prop_assert!(now - served.since.as_secs() <= bound);
                }
                for left in &waiting {
                    prop_assert!(now - left.since.as_secs() <= bound, "{left:?} at {now} s");
                }
            }
        }

        /// The choice is one of the best level, and does not depend on the order in which things are listed.
        #[test]
        fn order_of_the_list_does_not_matter(
            priorities in prop::collection::vec((any_priority(), 0u64..40), 1..20), now in 40u64..60,
        ) {
            let mut items: Vec<Waiting> =
                priorities.iter().enumerate().map(|(i, (p, since))| item(i as u64, *p, *since)).collect();
            let first = next(&items, now);
            items.reverse();
            prop_assert_eq!(first, next(&items, now));
        }
    }
}
