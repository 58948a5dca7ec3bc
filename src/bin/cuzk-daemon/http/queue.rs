//! What waits and runs, by kind and priority.

use std::collections::BTreeMap;

use cuzk::circuits::WorkKind;
use cuzk::messages::job::Priority;
use cuzk::messages::status::EngineStatus;
use serde::Serialize;

/// Jobs of one kind and priority that have not ended, and their partitions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Queue {
    pub kind: WorkKind,
    pub priority: Priority,
    pub num_jobs: u64,
    /// Partitions that are not on a device yet.
    pub pending: u64,
    /// Partitions on a device or being verified.
    pub in_progress: u64,
}

/// Every kind that a daemon takes, at its own priority, and whatever else is there. What is most urgent comes first.
pub fn queues(status: &EngineStatus) -> Vec<Queue> {
    count(status.jobs.iter().map(|job| Counted {
        kind: job.kind,
        priority: job.priority,
        num_partitions: job.num_partitions,
        num_running: job.num_running,
        num_done: job.num_done,
    }))
}

/// What of a job counts.
struct Counted {
    kind: WorkKind,
    priority: Priority,
    num_partitions: u32,
    num_running: u32,
    num_done: u32,
}

fn count(jobs: impl IntoIterator<Item = Counted>) -> Vec<Queue> {
    let empty = |kind, priority| Queue { kind, priority, num_jobs: 0, pending: 0, in_progress: 0 };
    let mut queues: BTreeMap<(std::cmp::Reverse<Priority>, WorkKind), Queue> = BTreeMap::new();
    for kind in super::metrics::KINDS {
        let priority = Priority::of(kind);
        queues.insert((std::cmp::Reverse(priority), kind), empty(kind, priority));
    }
    for job in jobs {
        let key = (std::cmp::Reverse(job.priority), job.kind);
        let queue = queues.entry(key).or_insert_with(|| empty(job.kind, job.priority));
        queue.num_jobs += 1;
        queue.in_progress += u64::from(job.num_running);
        queue.pending += u64::from(job.num_partitions.saturating_sub(job.num_done + job.num_running));
    }
    queues.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_counted_under_their_job_s_kind_and_priority() {
        let job = |priority, num_partitions, num_running, num_done| Counted {
            kind: WorkKind::PorepC2,
            priority,
            num_partitions,
            num_running,
            num_done,
        };
        let jobs =
            [job(Priority::Normal, 10, 2, 3), job(Priority::Normal, 1, 1, 0), job(Priority::Low, 4, 0, 0)];
        let queues = count(jobs);
        let order: Vec<_> = queues.iter().map(|queue| (queue.priority, queue.kind)).collect();
        assert_eq!(
            order,
            [
                (Priority::Critical, WorkKind::WinningPost),
                (Priority::High, WorkKind::WindowPost),
                (Priority::Normal, WorkKind::PorepC2),
                (Priority::Normal, WorkKind::SnapUpdate),
                (Priority::Low, WorkKind::PorepC2),
            ]
        );
        let figures: Vec<_> =
            queues.iter().map(|queue| (queue.num_jobs, queue.pending, queue.in_progress)).collect();
        assert_eq!(figures, [(0, 0, 0), (0, 0, 0), (2, 5, 3), (0, 0, 0), (1, 4, 0)]);
    }
}
