//! Jobs of which nothing has begun, so that a caller is told its place without a look at all of them.

use std::collections::BTreeSet;

use crate::ids::JobId;
use crate::messages::job::Priority;

/// By priority, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct NotBegun([BTreeSet<JobId>; Priority::Critical as usize + 1]);

impl NotBegun {
    pub fn insert(&mut self, priority: Priority, job: JobId) {
        self.0[priority as usize].insert(job);
    }

    /// Nothing if it has begun.
    pub fn remove(&mut self, priority: Priority, job: JobId) {
        self.0[priority as usize].remove(&job);
    }

    /// The job has another priority. Nothing if it has begun.
    pub fn raise(&mut self, former: Priority, priority: Priority, job: JobId) {
        if self.0[former as usize].remove(&job) {
            self.insert(priority, job);
        }
    }

    /// How many there are of a higher priority, or of the same and older than `job`. The newest job's place costs nothing.
    pub fn num_before(&self, priority: Priority, job: JobId) -> u32 {
        let same = &self.0[priority as usize];
        let num_higher: usize = self.0[priority as usize + 1..].iter().map(BTreeSet::len).sum();
        let num_older = same.len() - same.range(job..).count();
        u32::try_from(num_higher + num_older).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PRIORITIES: [Priority; 4] = [Priority::Low, Priority::Normal, Priority::High, Priority::Critical];

    proptest! {
        /// Whatever comes, begins and is raised: a place is what counting gives.
        #[test]
        fn a_place_is_what_counting_gives(
            steps in prop::collection::vec((0u8..3, 0u64..12, 0usize..4), 1..80),
        ) {
            let mut not_begun = NotBegun::default();
            let mut listed: Vec<(Priority, JobId)> = Vec::new();
            for (what, job, level) in steps {
                let (job, priority) = (JobId(job), PRIORITIES[level]);
                let known = listed.iter().position(|(_, other)| *other == job);
                match (what, known) {
                    (0, None) => {
                        not_begun.insert(priority, job);
                        listed.push((priority, job));
                    }
                    (1, Some(index)) => not_begun.remove(listed.swap_remove(index).0, job),
                    (2, Some(index)) => {
                        let former = std::mem::replace(&mut listed[index].0, priority);
                        not_begun.raise(former, priority, job);
                    }
                    _ => not_begun.remove(priority, JobId(99)),
                }
                for priority in PRIORITIES {
                    let goes_before = |(other, id): &&(Priority, JobId)| {
                        *other > priority || (*other == priority && *id < job)
                    };
                    let counted = listed.iter().filter(goes_before).count() as u32;
                    prop_assert_eq!(not_begun.num_before(priority, job), counted);
                }
            }
        }
    }
}
