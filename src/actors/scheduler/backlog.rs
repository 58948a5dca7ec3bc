//! Partitions that wait, kept so that the next one is found without looking at all of them.
//!
//! Jobs of one circuit, one priority and one age (in aging steps) are ranked among themselves by things that do not
//! change with time, so each such class keeps its jobs in order, and only the first of each class can be the next of all.
//! [`Backlog::shortlist`] names those, and [`QueuePolicy`] decides among them: what it decides is the same as if it had
//! seen everything, which the property below proves.
//!
//! A job changes its class when it has waited another step; it is looked at then, at most three times in its life.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use crate::ids::{CircuitId, JobId, PartitionIndex};
use crate::messages::job::Priority;
use crate::policy::queue::{QueuePolicy, Waiting};

/// What jobs have in common that are ranked by [`OrderKey`] alone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Class {
    circuit: CircuitId,
    priority: Priority,
    steps: u32,
}

/// The order within a class; the smallest goes first. The first field is zero but for overdue work, whose age goes
/// before everything.
type OrderKey = (Duration, Duration, u32, Duration, JobId);

#[derive(Debug, Default)]
struct ClassQueue {
    by_order: BTreeSet<OrderKey>,
    /// The oldest decides how long affinity counts.
    by_age: BTreeSet<(Duration, JobId)>,
}

#[derive(Debug)]
struct Entry {
    class: Class,
    key: OrderKey,
    ages_at: Option<Duration>,
    partitions: BTreeSet<PartitionIndex>,
}

/// Partitions of any number of jobs.
#[derive(Debug)]
pub(super) struct Backlog {
    policy: QueuePolicy,
    jobs: HashMap<JobId, Entry>,
    classes: BTreeMap<Class, ClassQueue>,
    /// When a job is to be put into its next class.
    aging: BTreeSet<(Duration, JobId)>,
    num_partitions: usize,
}

impl Backlog {
    pub fn new(policy: QueuePolicy) -> Self {
        Self {
            policy,
            jobs: HashMap::new(),
            classes: BTreeMap::new(),
            aging: BTreeSet::new(),
            num_partitions: 0,
        }
    }

    /// Partitions.
    pub fn len(&self) -> usize {
        self.num_partitions
    }

    /// Adds the partition that `waiting` names, and takes over what it says of its job.
    pub fn insert(&mut self, waiting: &Waiting, now: Duration) {
        let mut partitions = self.take(waiting.job).map(|entry| entry.partitions).unwrap_or_default();
        partitions.insert(waiting.partition);
        self.put(waiting, partitions, now);
    }

    /// The job's priority, deadline or number of partitions under way has changed. Nothing if none of it waits here.
    pub fn update(&mut self, waiting: &Waiting, now: Duration) {
        if let Some(entry) = self.take(waiting.job) {
            self.put(waiting, entry.partitions, now);
        }
    }

    /// `false`: it was not here.
    pub fn remove(&mut self, job: JobId, partition: PartitionIndex) -> bool {
        let Some(entry) = self.jobs.get_mut(&job) else { return false };
        let was_there = entry.partitions.remove(&partition);
        self.num_partitions -= usize::from(was_there);
        if entry.partitions.is_empty() {
            self.take(job);
        }
        was_there
    }

    pub fn remove_job(&mut self, job: JobId) {
        self.take(job);
    }

    /// Some of the work that waits is CRITICAL by itself, not by its age.
    pub fn has_critical(&self) -> bool {
        self.classes.keys().any(|class| class.priority == Priority::Critical)
    }

    /// One of these is the next of all, whichever circuits are left out or preferred.
    pub fn shortlist(&mut self, now: Duration) -> Vec<(JobId, PartitionIndex)> {
        self.age(now);
        let mut jobs = Vec::with_capacity(2 * self.classes.len());
        for queue in self.classes.values() {
            let first = queue.by_order.first().map(|key| key.4);
            let oldest = queue.by_age.first().map(|(_, job)| *job).filter(|job| Some(*job) != first);
            jobs.extend(first.into_iter().chain(oldest));
        }
        jobs.into_iter().filter_map(|job| Some((job, *self.jobs[&job].partitions.first()?))).collect()
    }

    /// Everything, for decisions that depend on more than a class tells.
    pub fn all(&self) -> Vec<(JobId, PartitionIndex)> {
        let all =
            self.jobs.iter().flat_map(|(job, entry)| entry.partitions.iter().map(|index| (*job, *index)));
        let mut all: Vec<_> = all.collect();
        all.sort_unstable();
        all
    }

    fn age(&mut self, now: Duration) {
        while let Some(&(_, job)) = self.aging.first().filter(|(at, _)| *at <= now) {
            let entry = self.take(job).expect("a job that ages is in the table");
            let (_, deadline, job_under_way, since, _) = entry.key;
            let Class { circuit, priority, .. } = entry.class;
            let waiting = Waiting {
                job,
                partition: PartitionIndex(0),
                circuit,
                priority,
                since,
                deadline: Some(deadline).filter(|deadline| *deadline != Duration::MAX),
                job_under_way,
            };
            self.put(&waiting, entry.partitions, now);
        }
    }

    fn put(&mut self, waiting: &Waiting, partitions: BTreeSet<PartitionIndex>, now: Duration) {
        let (steps, ages_at) = self.policy.age(waiting.since, now);
        let class = Class { circuit: waiting.circuit.clone(), priority: waiting.priority, steps };
        let overdue_since = if ages_at.is_none() && steps > 0 { waiting.since } else { Duration::ZERO };
        let deadline = waiting.deadline.unwrap_or(Duration::MAX);
        let key = (overdue_since, deadline, waiting.job_under_way, waiting.since, waiting.job);
        let queue = self.classes.entry(class.clone()).or_default();
        queue.by_order.insert(key);
        queue.by_age.insert((waiting.since, waiting.job));
        self.aging.extend(ages_at.map(|at| (at, waiting.job)));
        self.num_partitions += partitions.len();
        self.jobs.insert(waiting.job, Entry { class, key, ages_at, partitions });
    }

    fn take(&mut self, job: JobId) -> Option<Entry> {
        let entry = self.jobs.remove(&job)?;
        self.num_partitions -= entry.partitions.len();
        let queue = self.classes.get_mut(&entry.class).expect("a job's class is in the table");
        queue.by_order.remove(&entry.key);
        queue.by_age.remove(&(entry.key.3, job));
        if queue.by_order.is_empty() {
            self.classes.remove(&entry.class);
        }
        if let Some(at) = entry.ages_at {
            self.aging.remove(&(at, job));
        }
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const POLICY: QueuePolicy =
        QueuePolicy { aging_step: Duration::from_secs(10), affinity_limit: Duration::from_secs(7) };

    fn waiting(
        job: u64,
        partition: u32,
        priority: u8,
        deadline: u64,
        job_under_way: u32,
        now: u64,
    ) -> Waiting {
        let priorities = [Priority::Low, Priority::Normal, Priority::High, Priority::Critical];
        Waiting {
            job: JobId(job),
            partition: PartitionIndex(partition),
            circuit: CircuitId::new(["a", "b", "c"][(job % 3) as usize]),
            priority: priorities[usize::from(priority % 4)],
            since: Duration::from_secs(now),
            deadline: (deadline < 50).then(|| Duration::from_secs(now + deadline)),
            job_under_way,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        /// Whatever comes, goes and changes: the next of the shortlist is the next of all.
        #[test]
        fn the_shortlist_holds_the_next_of_all(
            steps in prop::collection::vec((0u8..5, 0u64..12, 0u8..4, 0u64..100, 0u32..3, 0u64..6), 1..120),
        ) {
            let mut backlog = Backlog::new(POLICY);
            let mut model: BTreeMap<(JobId, PartitionIndex), Waiting> = BTreeMap::new();
            let mut now = 0;
            for (what, job, priority, deadline, under_way, gap) in steps {
                now += gap;
                let at = Duration::from_secs(now);
                let fresh = waiting(job, under_way, priority, deadline, under_way, now);
                let known = model.values().find(|known| known.job == JobId(job)).cloned();
                match (what, known) {
                    (0 | 1, known) => {
                        // A job's partitions share all but their index.
                        let base = known.unwrap_or(fresh);
                        let added = Waiting { partition: PartitionIndex(under_way), ..base };
                        backlog.insert(&added, at);
                        model.insert((added.job, added.partition), added);
                    }
                    (2, Some(known)) => {
                        prop_assert!(backlog.remove(known.job, known.partition));
                        model.remove(&(known.job, known.partition));
                    }
                    (3, Some(known)) => {
                        let priority = known.priority.max(fresh.priority);
                        let changed = Waiting { priority, job_under_way: under_way, ..known };
                        backlog.update(&changed, at);
                        for value in model.values_mut().filter(|value| value.job == changed.job) {
                            *value = Waiting { partition: value.partition, ..changed.clone() };
                        }
                    }
                    _ => prop_assert!(!backlog.remove(JobId(77), PartitionIndex(0))),
                }
                prop_assert_eq!(backlog.all(), model.keys().copied().collect::<Vec<_>>());
                prop_assert_eq!(backlog.len(), model.len());
                let shortlist = backlog.shortlist(at);
                for preferred in ["a", "b", "none"] {
                    for left_out in ["c", "none"] {
                        let next = |items: Vec<Waiting>| {
                            let items: Vec<_> =
                                items.into_iter().filter(|item| item.circuit.as_str() != left_out).collect();
                            let is_preferred = |circuit: &CircuitId| circuit.as_str() == preferred;
                            let index = POLICY.next(&items, at, is_preferred);
                            index.map(|index| (items[index].job, items[index].partition))
                        };
                        let of_all = next(model.values().cloned().collect());
                        let of_few = next(shortlist.iter().map(|id| model[id].clone()).collect());
                        prop_assert_eq!(of_few, of_all);
                    }
                }
            }
            let jobs: BTreeSet<JobId> = model.keys().map(|(job, _)| *job).collect();
            jobs.iter().for_each(|job| backlog.remove_job(*job));
            prop_assert!(backlog.classes.is_empty() && backlog.aging.is_empty() && backlog.jobs.is_empty());
        }
    }
}
