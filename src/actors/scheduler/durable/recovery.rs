//! What comes back after a restart: results at once, jobs as they are decoded.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use actix::{Context, Handler, MessageResult};

use super::super::devices::Service;
use super::super::job::JobSpec;
use super::super::{EndedJob, Scheduler};
use crate::circuits::{Undecoded, Workload};
use crate::error::{EngineError, JournalError, ScheduleError};
use crate::ids::{JobId, WorkRef};
use crate::journal::{Op, OpenJournal, ResultRecord, SUSPECT_AFTER};
use crate::messages::job::{BlindingSource, JobEvent, Priority};
use crate::messages::journal::{AttachJob, RecoveredDecoded};
use crate::messages::synthesis::DecodeRequest;
use crate::policy::admission::WorkIdentity;

impl Scheduler {
    /// Before it starts: with what a journal held.
    pub fn with_journal(mut self, journal: OpenJournal) -> Self {
        let OpenJournal { writer, contents, time_of_start, recovery } = journal;
        self.next_job = self.next_job.max(contents.next_job);
        for result in &contents.results {
            self.remember(result);
        }
        for record in &contents.jobs {
            self.names.insert(record.name(), record.job);
        }
        self.durable.undecoded = contents.jobs.into_iter().map(|record| (record.job, record)).collect();
        self.durable.time_of_start = time_of_start;
        if let Some(what) = contents.unwritable {
            self.judge_journal(&Err(JournalError::Unwritable { path: writer.reader().path(), what }));
        }
        self.durable.journal = Some(writer);
        let mut held_back = contents.process_ends;
        held_back.retain(|_, count| *count >= SUSPECT_AFTER);
        if !held_back.is_empty() {
            tracing::warn!(jobs = ?held_back, "processes ended over these jobs: they wait for all others");
        }
        self.durable.held_back = held_back;
        self.durable.recovery = Some(recovery);
        self.report_recovered();
        self
    }

    /// A result of an earlier process: it is given again without being proved again. A failure is only found by its
    /// job's number, so that asking again tries again.
    fn remember(&mut self, result: &ResultRecord) {
        let record = &result.job;
        let end = result.result();
        let identity = record.identity().filter(|_| end.is_ok());
        if let Some(identity) = &identity {
            self.identities.insert(identity.clone(), record.job);
        }
        self.names.insert(record.name(), record.job);
        let ended = EndedJob {
            name: record.name(),
            request_id: record.request_id.clone(),
            identity,
            accepted: JobEvent::Accepted {
                job: record.job,
                kind: record.kind,
                circuit: record.circuit.clone(),
                num_partitions: record.num_partitions,
            },
            result: end,
            is_durable: true,
        };
        self.ended.insert(record.job, ended);
    }

    pub(in super::super) fn report_recovered(&self) {
        if let Some(recovery) = &self.durable.recovery {
            let is_done = self.durable.num_recovering() == 0;
            let hindered = match &self.synthesizer_service {
                Service::Gone { reason } => Some(reason.clone()),
                _ => None,
            };
            recovery.send_modify(|recovery| {
                // For good: new jobs do not wait for one that is taken in hand late.
                recovery.is_done |= is_done;
                recovery.held_back =
                    self.durable.held_back.keys().chain(&self.durable.late).copied().collect();
                recovery.hindered = hindered;
            });
        }
    }

    /// Has the jobs of an earlier process decoded, the most urgent first and then the oldest, a few at a time.
    pub(super) fn decode_recovered(&mut self) {
        if self.durable.undecoded.is_empty() || self.now() < self.durable.decode_again_at {
            return;
        }
        let room = self.config.max_synthesizing.max(1).saturating_sub(self.durable.decoding.len());
        if room == 0 {
            return;
        }
        if self.durable.num_recovering() == 0 {
            self.release_held_back();
            return;
        }
        let waiting = self.durable.undecoded.values().filter(|record| {
            let job = &record.job;
            !self.durable.decoding.contains(job) && !self.durable.held_back.contains_key(job)
        });
        let mut waiting: Vec<_> = waiting.map(|record| (Reverse(record.priority), record.job)).collect();
        waiting.sort_unstable();
        for (_, job) in waiting.into_iter().take(room) {
            if self.end_if_expired(job) {
                continue;
            }
            self.ask_to_decode(job);
        }
    }

    /// Once every other job has ended, takes one of those that processes ended over in hand: the least suspicious, of equal ones
    /// the most urgent. The journal is told first: if this process ends over it too, that counts.
    fn release_held_back(&mut self) {
        let is_alone = self.durable.in_hand.is_empty() && self.durable.released.is_none();
        let next = self.durable.held_back.iter().min_by_key(|&(job, count)| {
            let priority = self.durable.undecoded.get(job).map(|record| record.priority);
            (*count, Reverse(priority), *job)
        });
        let Some((&job, &count)) = next.filter(|_| is_alone) else { return };
        if self.end_if_expired(job) {
            return;
        }
        tracing::warn!(%job, process_ends = count, "a job that processes ended over is taken in hand, alone");
        self.durable.released = Some(job);
        let now = self.now();
        self.durable.write(Op::TakeInHand { job }, now);
    }

    /// The journal knows it, or cannot be written.
    pub(super) fn taken_in_hand(&mut self, job: JobId) {
        self.durable.released = None;
        // It counts as any other from now on: nothing else is released until it is decoded and has ended.
        if self.durable.held_back.remove(&job).is_some() {
            // Who asks for it waits until it is in the table: it is known.
            self.durable.late.insert(job);
        }
        self.report_recovered();
    }

    fn ask_to_decode(&mut self, job: JobId) {
        let Some(synthesizer) = &self.synthesizer else { return };
        let (Some(journal), Some(own)) = (&self.durable.journal, self.durable.decoded.clone()) else {
            return;
        };
        let Some(record) = self.durable.undecoded.get(&job) else { return };
        let reader = journal.reader();
        let request = Undecoded::Stored(Box::new(move || Ok(reader.request(job)?)));
        let priority = record.priority;
        let decode = DecodeRequest { request, priority, keep_bytes: false, caller: None };
        let asked = synthesizer.decode.send(decode);
        self.durable.decoding.insert(job);
        actix_rt::spawn(async move {
            // An error: the Synthesizer died. Its successor is asked again.
            own.do_send(RecoveredDecoded { job, decoded: asked.await.ok() });
        });
    }

    /// Work whose time is over is not even decoded.
    fn end_if_expired(&mut self, job: JobId) -> bool {
        let now = self.now();
        let deadline = self.durable.undecoded.get(&job).and_then(|record| record.deadline_unix_ms);
        let has_expired = deadline.is_some_and(|at| self.durable.time_until(at, now).is_none());
        if has_expired {
            self.totals.deadline_exceeded += 1;
            self.end_undecoded(job, EngineError::DeadlineExceeded { at: WorkRef::job(job) });
        }
        has_expired
    }

    /// A job of an earlier process that cannot be queued again has failed; the reason is stored.
    fn end_undecoded(&mut self, job: JobId, error: EngineError) {
        let Some(record) = self.durable.take_undecoded(job) else { return };
        let now = self.now();
        tracing::warn!(%job, %error, "a job of the journal ended without a proof");
        let result = ResultRecord::new(record, self.durable.unix_ms(now), &Err(error));
        self.remember(&result);
        self.durable.write(Op::Finish { record: result }, now);
        // It is taken up only to be let go.
        self.totals.recovered += 1;
        self.totals.failed += 1;
        self.report_recovered();
    }

    /// Puts a job of an earlier process into the table again, under its number.
    fn requeue(&mut self, job: JobId, workload: Arc<dyn Workload>) -> Result<(), EngineError> {
        let Some(record) = self.durable.undecoded.get(&job).cloned() else { return Ok(()) };
        let now = self.now();
        if let Some(reason) = self.devices.none_for(&record.placement, record.priority) {
            return Err(ScheduleError::NoDevice(reason).into());
        }
        self.make_room_for_key(workload.as_ref())?;
        let left = record.deadline_unix_ms.map(|at| self.durable.time_until(at, now).unwrap_or_default());
        // By the digest that requests have now: a later version may make another one of the same inputs.
        let identity =
            record.identity().map(|identity| WorkIdentity { digest: workload.digest(), ..identity });
        let span = tracing::error_span!("job", %job, request_id = %record.request_id);
        self.enter(JobSpec {
            id: job,
            request_id: record.request_id.clone(),
            name_marks: record.name_marks,
            identity,
            workload,
            priority: record.priority,
            // All as old as the engine: their numbers order them, and they are before every new job.
            accepted_at: Duration::ZERO,
            deadline: left.map(|left| now.saturating_add(left)),
            blinding: BlindingSource::OsRandom,
            placement: record.placement.clone(),
            span,
        });
        let entry = self.jobs.get_mut(&job).expect("the job was just put into the table");
        // Acknowledged to somebody who may come back for it: it goes on until it is cancelled by its number.
        entry.kept = true;
        entry.durable.is_written = true;
        entry.durable.record = Some(record);
        self.durable.take_undecoded(job);
        self.durable.in_hand.insert(job);
        self.totals.recovered += 1;
        self.report_recovered();
        Ok(())
    }

    /// A caller submits what an earlier process had accepted and this one has not decoded yet: the job it brings is
    /// that one.
    pub(in super::super) fn adopt(
        &mut self,
        identity: Option<&WorkIdentity>,
        workload: &Arc<dyn Workload>,
    ) -> Option<JobId> {
        let identity = identity?;
        let mut records = self.durable.undecoded.iter();
        let job = *records.find(|(_, record)| record.identity().as_ref() == Some(identity))?.0;
        if self.end_if_expired(job) {
            return None;
        }
        match self.requeue(job, Arc::clone(workload)) {
            Ok(()) => Some(job),
            Err(error) => {
                self.end_undecoded(job, error);
                None
            }
        }
    }
}

impl Handler<RecoveredDecoded> for Scheduler {
    type Result = ();

    fn handle(&mut self, answer: RecoveredDecoded, _: &mut Context<Self>) {
        let RecoveredDecoded { job, decoded } = answer;
        self.durable.decoding.remove(&job);
        if self.draining {
            return;
        }
        let requeued = match decoded {
            Some(Ok(decoded)) if !self.end_if_expired(job) => self.requeue(job, decoded.workload),
            Some(Ok(_)) => Ok(()),
            // Nobody's fault: it is asked for again. Not at once, which an arbiter whose Synthesizer is dead would
            // never get out of.
            None
            | Some(Err(EngineError::Schedule(_) | EngineError::Journal(JournalError::Unreadable { .. }))) => {
                self.durable.decode_again_at = self.now() + self.config.pace.scheduler_tick;
                Ok(())
            }
            Some(Err(error)) => Err(error),
        };
        if let Err(error) = requeued {
            self.end_undecoded(job, error);
        }
        self.pump();
    }
}

impl Handler<AttachJob> for Scheduler {
    type Result = MessageResult<AttachJob>;

    fn handle(&mut self, attach: AttachJob, _: &mut Context<Self>) -> Self::Result {
        // Neither longer nor more urgent than it is.
        let deadline = self.jobs.get(&attach.job).and_then(|job| job.spec.deadline);
        MessageResult(self.attach(attach.job, Priority::Low, deadline))
    }
}
