//! Batches: partitions of one circuit, of whichever jobs, that a device proves one after the other.
//!
//! A device that keeps part of a proving key, or none of it, reads the rest anew for every partition; changing circuits
//! costs it what it keeps as well. So once it has begun a circuit it goes on with it, for a bounded number of partitions
//! and a bounded time, and only while nothing more urgent waits: a batch changes the order within a priority level, never
//! between levels (see [`crate::policy::queue`]).
//!
//! What a batch shares: the queries that are resident, which are loaded once; and on a device that can do so, one pass over
//! those that are streamed ([`crate::policy::shared_pass`]): the partitions wait for each other there, for no longer than
//! a batch may take, and never where no other is on its way. Every partition has a result of its own, whatever it was batched
//! with.

use std::time::Duration;

use crate::ids::CircuitId;

/// Bounds of a batch. A batch of one partition is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchPolicy {
    pub max_partitions: u32,
    /// From the batch's first partition on.
    pub max_time: Duration,
}

impl Default for BatchPolicy {
    /// Three sectors' partitions, and two minutes.
    fn default() -> Self {
        Self { max_partitions: 32, max_time: Duration::from_secs(120) }
    }
}

/// What one device is in the middle of. Times count from the engine's start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchRecord {
    batch: Option<Batch>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Batch {
    circuit: CircuitId,
    since: Duration,
    num_partitions: u32,
}

impl BatchRecord {
    /// A partition of `circuit` was given to the device. It goes on with the batch, or begins another.
    pub fn began(&mut self, circuit: &CircuitId, policy: BatchPolicy, now: Duration) {
        let goes_on = self.is_open_for(circuit, policy, now);
        match &mut self.batch {
            Some(batch) if goes_on => batch.num_partitions += 1,
            _ => self.batch = Some(Batch { circuit: circuit.clone(), since: now, num_partitions: 1 }),
        }
    }

    /// Whether work of `circuit` may go before other work of its level on this device.
    pub fn is_open_for(&self, circuit: &CircuitId, policy: BatchPolicy, now: Duration) -> bool {
        self.batch.as_ref().is_some_and(|batch| {
            batch.circuit == *circuit
                && batch.num_partitions < policy.max_partitions
                && now.saturating_sub(batch.since) < policy.max_time
        })
    }

    /// Whether the device has had its fill of `circuit`: other work of the level goes first now, even if the key is
    /// resident.
    pub fn is_full_of(&self, circuit: &CircuitId, policy: BatchPolicy, now: Duration) -> bool {
        let is_current = self.batch.as_ref().is_some_and(|batch| batch.circuit == *circuit);
        is_current && !self.is_open_for(circuit, policy, now)
    }

    /// The device is another now: nothing of what it had begun is left.
    pub fn clear(&mut self) {
        self.batch = None;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ids::{JobId, PartitionIndex};
    use crate::messages::job::Priority;
    use crate::policy::queue::{QueuePolicy, Waiting};

    const POLICY: BatchPolicy = BatchPolicy { max_partitions: 4, max_time: Duration::from_secs(30) };
    const QUEUE: QueuePolicy =
        QueuePolicy { aging_step: Duration::from_secs(300), affinity_limit: Duration::from_secs(100) };

    fn circuit(index: u64) -> CircuitId {
        CircuitId::new(format!("c{index}"))
    }

    #[test]
    fn a_batch_ends_by_count_and_by_time() {
        let (a, b) = (circuit(0), circuit(1));
        let secs = Duration::from_secs;
        let mut record = BatchRecord::default();
        assert!(!record.is_open_for(&a, POLICY, secs(0)) && !record.is_full_of(&a, POLICY, secs(0)));
        for second in 0..4 {
            record.began(&a, POLICY, secs(second));
            assert_eq!(record.is_open_for(&a, POLICY, secs(second)), second < 3);
            assert!(!record.is_open_for(&b, POLICY, secs(second)));
        }
        assert!(record.is_full_of(&a, POLICY, secs(3)));
        record.began(&b, POLICY, secs(10));
        assert!(record.is_open_for(&b, POLICY, secs(39)) && !record.is_open_for(&b, POLICY, secs(40)));
        assert!(record.is_full_of(&b, POLICY, secs(40)) && !record.is_full_of(&a, POLICY, secs(40)));
        // Nothing else was there: the next of the same is another batch.
        record.began(&b, POLICY, secs(50));
        assert!(record.is_open_for(&b, POLICY, secs(50)));
    }

    fn waiting(job: u64, circuit_index: u64, since: u64, priority: Priority) -> Waiting {
        Waiting {
            job: JobId(job),
            partition: PartitionIndex(0),
            circuit: circuit(circuit_index),
            priority,
            since: Duration::from_secs(since),
            deadline: None,
            job_under_way: 0,
        }
    }

    /// One device that takes a second a partition and serves `items` in the queue's order; the order of their jobs.
    fn served(mut items: Vec<Waiting>, policy: BatchPolicy) -> Vec<Waiting> {
        let (mut record, mut order) = (BatchRecord::default(), Vec::new());
        let mut now = Duration::ZERO;
        while !items.is_empty() {
            let next = QUEUE.next(&items, now, |circuit| record.is_open_for(circuit, policy, now));
            let item = items.swap_remove(next.expect("something waits"));
            record.began(&item.circuit, policy, now);
            order.push(item);
            now += Duration::from_secs(1);
        }
        order
    }

    fn num_changes(order: &[Waiting]) -> usize {
        order.windows(2).filter(|pair| pair[0].circuit != pair[1].circuit).count()
    }

    proptest! {
        /// Every partition is served once; no level is served before a higher one; fewer than a batch in a row go before
        /// older work of the level.
        #[test]
        fn batches_are_bounded_and_lose_nothing(
            circuits in prop::collection::vec((0u64..3, any::<bool>()), 1..40),
            max_partitions in 1u32..6,
        ) {
            let policy = BatchPolicy { max_partitions, ..POLICY };
            let items: Vec<Waiting> = (0u64..)
                .zip(&circuits)
                .map(|(job, &(circuit, is_high))| {
                    waiting(job, circuit, 0, if is_high { Priority::High } else { Priority::Normal })
                })
                .collect();
            let order = served(items.clone(), policy);
            let mut jobs: Vec<JobId> = order.iter().map(|item| item.job).collect();
            prop_assert!(order.windows(2).all(|pair| pair[0].priority >= pair[1].priority));
            for level in [Priority::High, Priority::Normal] {
                let of_level: Vec<&Waiting> = order.iter().filter(|item| item.priority == level).collect();
                let mut num_passes = 0;
                for (index, item) in of_level.iter().enumerate() {
                    let passes_older = of_level[index + 1..]
                        .iter()
                        .any(|later| later.circuit != item.circuit && later.job < item.job);
                    num_passes = if passes_older { num_passes + 1 } else { 0 };
                    prop_assert!(num_passes < max_partitions, "{} in a row pass older work", num_passes);
                }
            }
            jobs.sort();
            prop_assert_eq!(jobs, items.iter().map(|item| item.job).collect::<Vec<_>>());
        }

        /// What it is for: never more changes of circuit than without it.
        #[test]
        fn batches_change_circuits_less_often(circuits in prop::collection::vec(0u64..3, 1..40)) {
            let items: Vec<Waiting> =
                (0u64..).zip(&circuits).map(|(job, &c)| waiting(job, c, 0, Priority::Normal)).collect();
            let alone = BatchPolicy { max_partitions: 1, ..POLICY };
            prop_assert!(num_changes(&served(items.clone(), POLICY)) <= num_changes(&served(items, alone)));
        }
    }
}
