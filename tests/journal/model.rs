//! The journal against a map, over any history of changes and reopenings.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cuzk::circuits::Undecoded;
use cuzk::ids::JobId;
use cuzk::journal::{Contents, JobRecord, Medium, MemoryDisk, Op, ResultRecord, Retention, Store};
use cuzk::messages::job::Priority;
use proptest::prelude::*;

use crate::records::{accept, job, result};

/// What a journal is to hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Model {
    pub jobs: BTreeMap<JobId, JobRecord>,
    pub results: BTreeMap<JobId, ResultRecord>,
    pub next_job: u64,
}

impl Model {
    pub fn new() -> Self {
        Self { next_job: 1, ..Self::default() }
    }

    pub fn apply(&mut self, ops: &[Op]) {
        for op in ops {
            match op {
                Op::Accept { record, .. } => {
                    self.jobs.insert(record.job, record.clone());
                    self.next_job = self.next_job.max(record.job.0 + 1);
                }
                Op::Update { record } => {
                    if let Some(known) = self.jobs.get_mut(&record.job) {
                        known.clone_from(record);
                    }
                }
                Op::Finish { record } => {
                    self.jobs.remove(&record.job.job);
                    self.results.insert(record.job.job, record.clone());
                }
                Op::Forget { job } => {
                    self.jobs.remove(job);
                    self.results.remove(job);
                }
                Op::Probe | Op::TakeInHand { .. } => {}
            }
        }
    }

    /// The results that must go, oldest first.
    fn prune(&mut self, retention: Retention, now_unix_ms: u64) -> Vec<JobId> {
        let mut by_age: Vec<(u64, JobId)> =
            self.results.values().map(|result| (result.finished_unix_ms, result.job.job)).collect();
        by_age.sort_unstable();
        let surplus = by_age.len().saturating_sub(retention.count);
        let age_ms = retention.age.as_millis() as u64;
        let is_surplus = |(index, (time, _)): &(usize, (u64, JobId))| {
            *index < surplus || now_unix_ms.saturating_sub(*time) > age_ms
        };
        let gone: Vec<JobId> =
            by_age.into_iter().enumerate().filter(is_surplus).map(|(_, (_, job))| job).collect();
        for job in &gone {
            self.results.remove(job);
        }
        gone
    }
}

impl From<Contents> for Model {
    fn from(contents: Contents) -> Self {
        let Contents { jobs, results, next_job, process_ends: _, unwritable: _ } = contents;
        Self {
            jobs: jobs.into_iter().map(|record| (record.job, record)).collect(),
            results: results.into_iter().map(|result| (result.job.job, result)).collect(),
            next_job,
        }
    }
}

pub const KEEP_ALL: Retention = Retention { count: 1_000, age: Duration::from_secs(1 << 40) };

#[derive(Clone, Debug)]
enum Step {
    Accept {
        num_bytes: usize,
    },
    /// Of one of the jobs there are, if there are any.
    Update {
        pick: usize,
    },
    Finish {
        pick: usize,
    },
    Forget {
        pick: usize,
    },
    Probe,
    /// The changes so far as one transaction, and time goes on.
    Commit {
        ms: u64,
    },
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0usize..3_000).prop_map(|num_bytes| Step::Accept { num_bytes }),
        1 => any::<usize>().prop_map(|pick| Step::Update { pick }),
        3 => any::<usize>().prop_map(|pick| Step::Finish { pick }),
        1 => any::<usize>().prop_map(|pick| Step::Forget { pick }),
        1 => Just(Step::Probe),
        4 => (0u64..40).prop_map(|ms| Step::Commit { ms }),
        1 => Just(Step::Reopen),
    ]
}

/// The journal, its model, and changes that are not committed yet.
struct Subject {
    disk: MemoryDisk,
    retention: Retention,
    store: Store,
    model: Model,
    pending: Vec<Op>,
    next: u64,
    now_unix_ms: u64,
}

impl Subject {
    fn new(retention: Retention) -> Self {
        let disk = MemoryDisk::default();
        let (store, contents) = Store::open(Medium::Backend(Arc::new(disk.clone())), retention).unwrap();
        let model = Model::new();
        assert_eq!(Model::from(contents), model);
        Self { disk, retention, store, model, pending: Vec::new(), next: 1, now_unix_ms: 10_000 }
    }

    /// One of the jobs, with those that are pending.
    fn pick(&self, pick: usize) -> Option<u64> {
        let mut model = self.model.clone();
        model.apply(&self.pending);
        let jobs: Vec<u64> = model.jobs.keys().chain(model.results.keys()).map(|job| job.0).collect();
        (!jobs.is_empty()).then(|| jobs[pick % jobs.len()])
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Accept { num_bytes } => {
                self.pending.push(accept(self.next, num_bytes));
                self.next += 1;
            }
            Step::Update { pick } => self.pending.extend(self.pick(pick).map(|number| Op::Update {
                record: JobRecord { priority: Priority::High, deadline_unix_ms: Some(7), ..job(number) },
            })),
            Step::Finish { pick } => self.pending.extend(
                self.pick(pick).map(|number| Op::Finish { record: result(number, self.now_unix_ms) }),
            ),
            Step::Forget { pick } => {
                self.pending.extend(self.pick(pick).map(|number| Op::Forget { job: JobId(number) }));
            }
            Step::Probe => self.pending.push(Op::Probe),
            Step::Commit { ms } => {
                let ops = std::mem::take(&mut self.pending);
                self.model.apply(&ops);
                let gone = self.model.prune(self.retention, self.now_unix_ms);
                assert_eq!(self.store.commit(ops, self.now_unix_ms).unwrap(), gone);
                self.now_unix_ms += ms;
            }
            Step::Reopen => {
                // As a kill would leave it; what is pending was never acknowledged.
                self.pending.clear();
                self.disk = self.disk.fork();
                let medium = Medium::Backend(Arc::new(self.disk.clone()));
                let (store, contents) = Store::open(medium, self.retention).unwrap();
                self.store = store;
                assert_eq!(Model::from(contents), self.model);
                for job in self.model.jobs.keys() {
                    let request = self.store.reader().request(*job).unwrap();
                    assert!(matches!(request, Undecoded::Encoded(_)), "{request:?}");
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_journal_is_a_map_that_outlives_its_process(
        steps in prop::collection::vec(step(), 1..60),
        count in 1usize..6,
        age_ms in 0u64..120,
    ) {
        let mut subject = Subject::new(Retention { count, age: Duration::from_millis(age_ms) });
        for step in steps {
            subject.take(step);
        }
        subject.take(Step::Reopen);
    }
}
