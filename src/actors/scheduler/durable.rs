//! The journal's part in the job table: what is written when, and what comes back after a restart.
//!
//! - A job is acknowledged once it is written. It may begin before: nothing is lost by that.
//! - A finished job stays in the table until its result is stored, or the disk fails or does not answer; whatever else would end it meanwhile (a cancel, a
//!   deadline, a drain) comes too late and gets the proof.
//! - A cancelled job is forgotten, and the cancel answered once it is. One that ends because the *engine* does (drain, no
//!   device left) stays in the journal and is proved after a restart; any other failure is stored with its reason.
//! - After a restart jobs are decoded by priority and in the order in which they were accepted, and keep their numbers.
//!   A caller who submits the same request meanwhile brings the decoded job along: its record is adopted.

mod recovery;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use actix::{Addr, Context, Handler, Recipient};
use tokio::sync::{oneshot, watch};

use super::job::Job;
use super::Scheduler;
use crate::error::{EngineError, JournalError, ScheduleError};
use crate::ids::JobId;
use crate::journal::{JobRecord, JournalWriter, Op, Recovery, ResultRecord};
use crate::messages::job::{BlindingSource, CancelOutcome, JobResult, ProofOutcome, SubmitJob};
use crate::messages::journal::{Durability, JournalWritten, RecoveredDecoded, WrittenOp};

/// How long a journal that cannot be written is left alone before it is tried again: at first, and at last. Opening it
/// anew may take long where it is large.
const PROBE_AFTER: Duration = Duration::from_secs(1);
const PROBE_AFTER_MAX: Duration = Duration::from_secs(30);

/// What the Scheduler keeps of the journal.
#[derive(Default)]
pub(super) struct Durable {
    journal: Option<JournalWriter>,
    time_of_start: Duration,
    recovery: Option<watch::Sender<Recovery>>,
    /// Jobs of an earlier process that are not in the table yet.
    undecoded: BTreeMap<JobId, JobRecord>,
    /// Those of them that processes ended over, and how many did: each waits until all others have ended.
    held_back: BTreeMap<JobId, u32>,
    /// Those that were, and are being decoded.
    late: BTreeSet<JobId>,
    /// One that was, until the journal knows that it is worked on.
    released: Option<JobId>,
    /// Jobs of an earlier process that are in the table.
    in_hand: BTreeSet<JobId>,
    /// Those of `undecoded` that a worker decodes.
    decoding: BTreeSet<JobId>,
    /// None is asked for before: the Synthesizer was dead or busy.
    decode_again_at: Duration,
    /// Of the last request to write something.
    last_number: u64,
    unanswered: Unanswered,
    failing: Option<Failing>,
    ends: Ends,
    /// Jobs that have ended because the engine does, and are for the next process.
    left: BTreeSet<JobId>,
    /// Who waits for a job to be written that has ended meanwhile, by the number of the request that is to be answered.
    orphans: Vec<(u64, Waiter)>,
    written: Option<Recipient<JournalWritten>>,
    decoded: Option<Recipient<RecoveredDecoded>>,
}

/// What the journal was asked to write, and has not answered.
#[derive(Default)]
struct Unanswered {
    num_ops: usize,
    /// When it answered last, or was asked while it had nothing to do.
    since: Duration,
}

/// Jobs that have ended and may come back all the same: the journal has not written that. A cancel of one is answered when it
/// has.
#[derive(Default)]
struct Ends {
    unwritten: BTreeMap<JobId, UnwrittenEnd>,
    waiting: Vec<(u64, Waiter)>,
}

/// `number`: of the request to write it.
struct UnwrittenEnd {
    number: u64,
    /// It could not be. The journal writes it with the next change that can be.
    has_failed: bool,
}

impl Ends {
    /// The journal has answered everything up to this number.
    fn answered(&mut self, number: u64, verdict: &Result<(), JournalError>) {
        match verdict {
            Ok(()) => self.unwritten.retain(|_, end| end.number > number),
            Err(_) => {
                let failed = self.unwritten.values_mut().filter(|end| end.number <= number);
                failed.for_each(|end| end.has_failed = true);
            }
        }
        tell(&mut self.waiting, number, verdict);
    }

    /// Something was written: before it, what could not be until then.
    fn caught_up(&mut self) {
        self.unwritten.retain(|_, end| !end.has_failed);
    }
}

/// The journal could not be written the last time.
struct Failing {
    error: JournalError,
    probe_at: Duration,
    /// Doubles with each try.
    probe_after: Duration,
}

/// What a job has in the journal.
#[derive(Default)]
pub(super) struct JobDurability {
    /// `None`: it is not journalled.
    record: Option<JobRecord>,
    /// It is done: its result is being stored.
    storing: Option<Arc<ProofOutcome>>,
    /// Number of the last request to write its record, and of those that are not answered who waits for them.
    written_by: u64,
    unacknowledged: Vec<(u64, Waiter)>,
    /// Callers need not wait: what they were promised is on the disk.
    is_written: bool,
}

/// Who waits for something to be written.
type Waiter = oneshot::Sender<Result<(), JournalError>>;

/// Who waits for a request to be answered, or for an earlier one, is told.
fn tell(waiting: &mut Vec<(u64, Waiter)>, number: u64, verdict: &Result<(), JournalError>) {
    for (_, sender) in waiting.extract_if(.., |(needs, _)| *needs <= number) {
        // The caller may have gone away; its ticket then does the rest.
        let _ = sender.send(verdict.clone());
    }
}

impl JobDurability {
    pub fn is_journalled(&self) -> bool {
        self.record.is_some()
    }

    pub fn is_storing(&self) -> bool {
        self.storing.is_some()
    }

    /// Tells those who waited for this request or an earlier one.
    fn acknowledge(&mut self, number: u64, result: &Result<(), JournalError>) {
        self.is_written = number >= self.written_by;
        tell(&mut self.unacknowledged, number, result);
    }
}

impl Durable {
    pub fn start(&mut self, address: &Addr<Scheduler>) {
        self.written = Some(address.clone().recipient());
        self.decoded = Some(address.clone().recipient());
    }

    /// Lets go of the journal: it is closed once everything is written.
    pub fn close(&mut self) {
        self.journal = None;
    }

    /// Without those that are held back.
    pub fn num_recovering(&self) -> usize {
        self.undecoded.len() - self.held_back.len()
    }

    pub fn num_held_back(&self) -> usize {
        self.held_back.len()
    }

    /// Why it cannot be written: work that would have to be is refused meanwhile.
    pub fn failure(&self) -> Option<String> {
        self.failing.as_ref().map(|failing| failing.error.to_string())
    }

    /// Work that would have to be written is refused while nothing can be.
    pub fn admit(&self, submit: &SubmitJob) -> Result<(), JournalError> {
        match &self.failing {
            Some(failing) if self.can_keep(submit.encoded.is_some(), &submit.blinding) => {
                Err(failing.error.clone())
            }
            _ => Ok(()),
        }
    }

    /// Blinding values are not written, and without them a proof would be another one.
    fn can_keep(&self, has_bytes: bool, blinding: &BlindingSource) -> bool {
        self.journal.is_some() && has_bytes && matches!(blinding, BlindingSource::OsRandom)
    }

    fn take_undecoded(&mut self, job: JobId) -> Option<JobRecord> {
        self.held_back.remove(&job);
        self.late.remove(&job);
        self.undecoded.remove(&job)
    }

    fn write(&mut self, op: Op, now: Duration) -> u64 {
        self.last_number += 1;
        if let (Some(journal), Some(answer)) = (&self.journal, &self.written) {
            if self.unanswered.num_ops == 0 {
                self.unanswered.since = now;
            }
            self.unanswered.num_ops += 1;
            if let Op::Forget { job }
            | Op::Finish { record: ResultRecord { job: JobRecord { job, .. }, .. } } = &op
            {
                let end = UnwrittenEnd { number: self.last_number, has_failed: false };
                self.ends.unwritten.insert(*job, end);
            }
            journal.write(op, self.last_number, self.unix_ms(now), answer.clone());
        }
        self.last_number
    }

    /// To be told when no later process will prove a job that has ended; `None`: none will.
    ///
    /// # Errors
    /// The journal could not write that, and has not been written since.
    pub fn until_gone(
        &mut self,
        job: JobId,
    ) -> Result<Option<oneshot::Receiver<Result<(), JournalError>>>, JournalError> {
        let Some(end) = self.ends.unwritten.get(&job) else { return Ok(None) };
        if let Some(failing) = self.failing.as_ref().filter(|_| end.has_failed) {
            return Err(failing.error.clone());
        }
        let (sender, written) = oneshot::channel();
        self.ends.waiting.push((end.number, sender));
        Ok(Some(written))
    }

    fn answered(&mut self, num_ops: usize, now: Duration) {
        self.unanswered = Unanswered { num_ops: self.unanswered.num_ops.saturating_sub(num_ops), since: now };
    }

    /// The disk takes too long over a write. It may hang for ever, and what waits for it is in memory.
    fn stalled(&self, limit: Duration, now: Duration) -> Option<JournalError> {
        let Unanswered { num_ops, since } = self.unanswered;
        if num_ops == 0 || now.saturating_sub(since) < limit {
            return None;
        }
        let path = self.journal.as_ref()?.reader().path();
        let what = format!("its disk has not answered for {} ms", limit.as_millis());
        Some(JournalError::Unwritable { path, what })
    }

    /// Milliseconds since 1970 of a time since the start.
    fn unix_ms(&self, now: Duration) -> u64 {
        millis(self.time_of_start.saturating_add(now))
    }

    /// Time left until a moment of the day, counted from now; `None`: it has passed.
    fn time_until(&self, unix_ms: u64, now: Duration) -> Option<Duration> {
        Duration::from_millis(unix_ms).checked_sub(self.time_of_start.saturating_add(now))
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Scheduler {
    /// A job was put into the table: writes it. `encoded`: its request, if it can be journalled.
    pub(super) fn journal_accepted(&mut self, id: JobId, encoded: Option<Arc<[u8]>>) {
        let now = self.now();
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let can_keep = self.durable.can_keep(encoded.is_some(), &job.spec.blinding);
        let Some(request) = encoded.filter(|_| can_keep) else { return };
        let record = JobRecord {
            job: id,
            request_id: job.spec.request_id.clone(),
            has_identity: job.spec.identity.is_some(),
            name_marks: job.spec.name_marks,
            kind: job.spec.workload.kind(),
            circuit: job.circuit().clone(),
            num_partitions: job.spec.workload.num_partitions(),
            digest: job.spec.workload.digest(),
            priority: job.spec.priority,
            placement: job.spec.placement.clone(),
            accepted_unix_ms: self.durable.unix_ms(now),
            deadline_unix_ms: job.spec.deadline.map(|deadline| self.durable.unix_ms(deadline)),
        };
        job.durable.record = Some(record.clone());
        job.durable.written_by = self.durable.write(Op::Accept { record, request }, now);
    }

    /// What one more caller of a job is to wait for. If the job is now to live longer or to go first for it, that is
    /// written too.
    pub(super) fn durability_of(&mut self, id: JobId) -> Durability {
        let now = self.now();
        let Some(job) = self.jobs.get_mut(&id) else {
            let is_durable = self.ended.get(&id).is_some_and(|ended| ended.is_durable);
            return if is_durable { Durability::Written } else { Durability::NotJournalled };
        };
        let Some(record) = &mut job.durable.record else { return Durability::NotJournalled };
        let deadline_unix_ms = job.spec.deadline.map(|deadline| self.durable.unix_ms(deadline));
        if record.priority != job.spec.priority || record.deadline_unix_ms != deadline_unix_ms {
            record.priority = job.spec.priority;
            record.deadline_unix_ms = deadline_unix_ms;
            let record = record.clone();
            job.durable.written_by = self.durable.write(Op::Update { record }, now);
            job.durable.is_written = false;
        }
        if job.durable.is_written {
            return Durability::Written;
        }
        let (sender, written) = oneshot::channel();
        job.durable.unacknowledged.push((job.durable.written_by, sender));
        Durability::Writing(written)
    }

    /// The job is done. It ends once its result is stored, or cannot be.
    pub(super) fn finish_once_stored(&mut self, id: JobId, outcome: Arc<ProofOutcome>) {
        let now = self.now();
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let Some(record) = job.durable.record.clone() else {
            self.finish(id, Ok(outcome));
            return;
        };
        let record = ResultRecord::new(record, self.durable.unix_ms(now), &Ok(Arc::clone(&outcome)));
        job.durable.storing = Some(outcome);
        // It has met its deadline.
        if let Some(deadline) = job.spec.deadline {
            self.deadlines.remove(&(deadline, id));
        }
        self.durable.write(Op::Finish { record }, now);
    }

    /// A job ends: writes what is to be written of that. The result that it ends with: a proof that is being stored
    /// counts before anything that came later.
    pub(super) fn journal_ended(&mut self, job: &mut Job, result: JobResult) -> JobResult {
        self.durable.in_hand.remove(&job.spec.id);
        // Whoever was promised a job that a kill does not lose is told once it is one, also if it had no long life.
        self.durable.orphans.append(&mut job.durable.unacknowledged);
        if let Some(outcome) = job.durable.storing.take() {
            return Ok(outcome);
        }
        let Some(record) = &job.durable.record else { return result };
        let now = self.now();
        match &result {
            // Stored already: `finish_once_stored`.
            Ok(_) => {}
            // The engine's end, not the job's.
            Err(EngineError::Schedule(
                ScheduleError::Draining | ScheduleError::NoDevice(_) | ScheduleError::NoSynthesizer(_),
            )) => {
                self.durable.left.insert(record.job);
            }
            Err(EngineError::Cancelled { .. } | EngineError::Journal(_)) => {
                self.durable.write(Op::Forget { job: record.job }, now);
            }
            Err(_) => {
                let record = ResultRecord::new(record.clone(), self.durable.unix_ms(now), &result);
                self.durable.write(Op::Finish { record }, now);
            }
        }
        result
    }

    /// A cancel of a job that is not in the table yet, or is as good as ended. `None`: of any other.
    pub(super) fn cancel_durable(&mut self, id: JobId) -> Option<CancelOutcome> {
        if self.jobs.get(&id).is_some_and(|job| job.durable.is_storing()) {
            return Some(CancelOutcome::AlreadyEnded);
        }
        let now = self.now();
        if self.durable.left.remove(&id) {
            self.durable.write(Op::Forget { job: id }, now);
            return Some(CancelOutcome::AlreadyEnded);
        }
        let record = self.durable.take_undecoded(id)?;
        self.forget_name(&record.name(), id);
        self.durable.write(Op::Forget { job: id }, now);
        // It is taken up only to be let go.
        self.totals.recovered += 1;
        self.totals.cancelled += 1;
        self.report_recovered();
        Some(CancelOutcome::WasQueued)
    }

    /// What is due: a look whether the journal can be written again, and jobs to decode.
    pub(super) fn tend_journal(&mut self) {
        let now = self.now();
        if let Some(error) = self.durable.stalled(self.config.journal_limit, now) {
            self.wait_for_no_disk(&error);
        } else if let Some(failing) = self.durable.failing.as_mut().filter(|failing| failing.probe_at <= now)
        {
            failing.probe_after = (failing.probe_after * 2).min(PROBE_AFTER_MAX);
            failing.probe_at = now + failing.probe_after;
            self.durable.write(Op::Probe, now);
        }
        if self.draining {
            // What is left is for the next process; who waits for the recovery is told that this one ends.
            self.durable.recovery = None;
        } else {
            self.decode_recovered();
        }
    }
}

impl Handler<JournalWritten> for Scheduler {
    type Result = ();

    fn handle(&mut self, written: JournalWritten, _: &mut Context<Self>) {
        let JournalWritten { ops, result } = written;
        let now = self.now();
        self.durable.answered(ops.len(), now);
        let verdict = match &result {
            Ok(_) => Ok(()),
            Err(error) => Err(error.clone()),
        };
        self.judge_journal(&verdict);
        if verdict.is_ok() {
            self.durable.ends.caught_up();
        }
        for op in ops {
            match op {
                WrittenOp::Accepted { job, number } => self.accepted_written(job, number, &verdict),
                WrittenOp::Updated { job, number } => {
                    tell(&mut self.durable.orphans, number, &verdict);
                    if let Some(job) = self.jobs.get_mut(&job) {
                        job.durable.acknowledge(number, &verdict);
                    }
                }
                WrittenOp::Finished { job, number } => {
                    self.durable.ends.answered(number, &verdict);
                    self.result_written(job, &verdict);
                }
                WrittenOp::TakenInHand { job } => self.taken_in_hand(job),
                WrittenOp::Forgotten { number } => self.durable.ends.answered(number, &verdict),
                WrittenOp::Other => {}
            }
        }
        for job in result.iter().flat_map(|surplus| surplus.iter()) {
            self.forget_ended(*job);
        }
        self.pump();
    }
}

impl Scheduler {
    /// It does not answer: new jobs are refused as if it could not be written, and who waits for a proof gets it.
    fn wait_for_no_disk(&mut self, error: &JournalError) {
        self.judge_journal(&Err(error.clone()));
        // The ends themselves may still be written.
        tell(&mut self.durable.ends.waiting, u64::MAX, &Err(error.clone()));
        let stored = self.jobs.iter().filter(|(_, job)| job.durable.is_storing());
        let stored: Vec<JobId> = stored.map(|(id, _)| *id).collect();
        for job in stored {
            self.result_written(job, &Err(error.clone()));
        }
        // Their jobs have ended: they are told how.
        self.durable.orphans.clear();
    }

    pub(super) fn judge_journal(&mut self, verdict: &Result<(), JournalError>) {
        let now = self.now();
        match verdict {
            Ok(()) if self.durable.failing.take().is_some() => {
                tracing::info!("the journal can be written again")
            }
            Ok(()) => {}
            Err(error) => {
                if self.durable.failing.is_none() {
                    tracing::error!(%error, "new jobs are refused");
                }
                let (probe_at, probe_after) = match &self.durable.failing {
                    Some(known) => (known.probe_at, known.probe_after),
                    None => (now + PROBE_AFTER, PROBE_AFTER),
                };
                self.durable.failing = Some(Failing { error: error.clone(), probe_at, probe_after });
            }
        }
    }

    fn accepted_written(&mut self, id: JobId, number: u64, verdict: &Result<(), JournalError>) {
        tell(&mut self.durable.orphans, number, verdict);
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.durable.acknowledge(number, verdict);
        if let Err(error) = verdict {
            // Everybody who waits for it attached before it was acknowledged.
            job.durable.acknowledge(u64::MAX, verdict);
            self.finish(id, Err(error.clone().into()));
        }
    }

    /// The proof is given all the same if it could not be stored: somebody waits for it, and it may be late as it is.
    fn result_written(&mut self, id: JobId, verdict: &Result<(), JournalError>) {
        let Some(outcome) = self.jobs.get(&id).and_then(|job| job.durable.storing.clone()) else { return };
        if let Err(error) = verdict {
            tracing::error!(job = %id, %error, "the result is not stored: it does not survive a kill");
        }
        self.finish(id, Ok(outcome));
    }
}
