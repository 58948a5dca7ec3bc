//! Callers: jobs come in, are attached to, let go of, cancelled.

use std::time::Duration;

use actix::{Context, Handler, MessageResult, ResponseFuture};
use tokio::sync::{mpsc, watch};

use super::devices::Service;
use super::job::{blinding_identity, Job, JobSpec};
use super::Scheduler;
use crate::error::{EngineError, JournalError, RequestError, ScheduleError};
use crate::ids::{JobId, PartitionIndex};
use crate::messages::job::{
    job_name, BlindingSource, CancelJob, CancelOutcome, FindJob, JobAccepted, JobEvent, JobTicket, Priority,
    ReleaseTicket, SubmitJob, NAME_MARKS_MAX,
};
use crate::policy::admission::{admit, WorkIdentity};
use crate::policy::queue::Waiting;

impl Handler<SubmitJob> for Scheduler {
    type Result = MessageResult<SubmitJob>;

    fn handle(&mut self, submit: SubmitJob, _: &mut Context<Self>) -> Self::Result {
        let kind = submit.workload.kind();
        let answer = self.submit(submit);
        if let Err(error) = &answer {
            self.totals.refused += 1;
            self.tell_refused(kind, error);
        }
        self.pump();
        MessageResult(answer)
    }
}

impl Scheduler {
    fn submit(&mut self, submit: SubmitJob) -> Result<JobAccepted, EngineError> {
        self.validate(&submit)?;
        let identity = (!submit.request_id.is_empty()).then(|| WorkIdentity {
            request_id: submit.request_id.clone(),
            kind: submit.workload.kind(),
            digest: submit.workload.digest(),
            blinding: blinding_identity(&submit.blinding),
            placement: submit.placement.clone(),
        });
        let priority = submit.priority.unwrap_or_else(|| Priority::of(submit.workload.kind()));
        let deadline = submit.deadline.map(|limit| self.now().saturating_add(limit));
        let known = identity.as_ref().and_then(|identity| self.identities.find(identity));
        if let Some(known) = known.or_else(|| self.adopt(identity.as_ref(), &submit.workload)) {
            if let Some(accepted) = self.attach(known, priority, deadline) {
                self.totals.attached += 1;
                return Ok(accepted);
            }
        }
        if let Some(reason) = self.devices.none_for(&submit.placement, priority) {
            return Err(ScheduleError::NoDevice(reason).into());
        }
        if let Service::Gone { reason } = &self.synthesizer_service {
            return Err(ScheduleError::NoSynthesizer(reason.clone()).into());
        }
        admit(self.draining, self.jobs.len(), self.num_critical, self.config.max_queued_jobs, priority)?;
        self.durable.admit(&submit)?;
        self.make_room_for_key(submit.workload.as_ref())?;
        Ok(self.accept(submit, identity, priority))
    }

    fn validate(&self, submit: &SubmitJob) -> Result<(), EngineError> {
        let num_partitions = submit.workload.num_partitions();
        let field = |field: &str, what: String| RequestError::Field { field: field.into(), what };
        if num_partitions == 0 {
            return Err(field("partitions", "needs 1 at least, has 0".into()).into());
        }
        if let BlindingSource::Fixed(pairs) = &submit.blinding {
            if pairs.len() != num_partitions as usize {
                let what = format!("needs {num_partitions} pairs, has {}", pairs.len());
                return Err(field("blinding", what).into());
            }
        }
        Ok(())
    }

    fn accept(
        &mut self,
        submit: SubmitJob,
        identity: Option<WorkIdentity>,
        priority: Priority,
    ) -> JobAccepted {
        let encoded = submit.encoded;
        let id = JobId(self.next_job);
        self.next_job += 1;
        let now = self.now();
        let request_id = if submit.request_id.is_empty() { format!("job-{id}") } else { submit.request_id };
        let spec = JobSpec {
            id,
            name_marks: self.free_name(&request_id, id),
            request_id,
            identity,
            workload: submit.workload,
            priority,
            accepted_at: now,
            deadline: submit.deadline.map(|limit| now.saturating_add(limit)),
            blinding: submit.blinding,
            placement: submit.placement,
            span: submit.span,
        };
        let deadline = spec.deadline;
        self.totals.accepted += 1;
        self.enter(spec);
        self.journal_accepted(id, encoded);
        let mut accepted = self.attach(id, priority, deadline).expect("the job was just put into the table");
        accepted.attached = false;
        accepted
    }

    /// Puts a job into the table.
    pub(super) fn enter(&mut self, spec: JobSpec) {
        let id = spec.id;
        if let Some(identity) = spec.identity.clone() {
            self.identities.insert(identity, id);
        }
        self.deadlines.extend(spec.deadline.map(|deadline| (deadline, id)));
        self.ensure_circuit(spec.workload.as_ref(), spec.priority, spec.span.clone());
        let num_partitions = spec.workload.num_partitions();
        self.num_critical += usize::from(spec.priority == Priority::Critical);
        spec.span.record("job", tracing::field::display(id));
        self.names.insert(job_name(&spec.request_id, spec.name_marks, id), id);
        self.not_begun.insert(spec.priority, id);
        self.jobs.insert(id, Job::new(spec));
        let (now, waiting) = (self.now(), self.jobs[&id].as_waiting(PartitionIndex(0), 0));
        for index in 0..num_partitions {
            self.waiting.insert(&Waiting { partition: PartitionIndex(index), ..waiting.clone() }, now);
        }
        self.tell_accepted(id);
    }

    /// The marks that make a job's name one that no other job has.
    fn free_name(&self, request_id: &str, id: JobId) -> u8 {
        let is_free = |marks: &u8| !self.names.contains_key(&job_name(request_id, *marks, id));
        (0..NAME_MARKS_MAX).find(is_free).unwrap_or(NAME_MARKS_MAX)
    }

    /// The name is free again, unless another job has it.
    pub(super) fn forget_name(&mut self, name: &str, id: JobId) {
        if self.names.get(name) == Some(&id) {
            self.names.remove(name);
        }
    }

    /// Jobs that go before this one and have not begun.
    fn queue_position(&self, id: JobId) -> u32 {
        self.jobs.get(&id).map_or(0, |own| self.not_begun.num_before(own.spec.priority, id))
    }

    /// One more caller waits for this job. `None`: it is not known any more.
    pub(super) fn attach(
        &mut self,
        id: JobId,
        priority: Priority,
        deadline: Option<Duration>,
    ) -> Option<JobAccepted> {
        let number = self.next_ticket;
        self.next_ticket += 1;
        let (sender, events) = mpsc::unbounded_channel();
        let (request_id, name, result) = if let Some(job) = self.jobs.get_mut(&id) {
            // Somebody needs it more urgently than the first caller did.
            let former = job.spec.priority;
            job.spec.priority = former.max(priority);
            self.not_begun.raise(former, job.spec.priority, id);
            if former != Priority::Critical && job.spec.priority == Priority::Critical {
                self.num_critical += 1;
            }
            // It must not end while somebody has time left to wait for it.
            let latest = job.spec.deadline.zip(deadline).map(|(a, b)| a.max(b));
            if let Some(former) = std::mem::replace(&mut job.spec.deadline, latest) {
                self.deadlines.remove(&(former, id));
            }
            self.deadlines.extend(latest.map(|deadline| (deadline, id)));
            job.tickets.insert(number);
            send(&sender, job.accepted_event());
            job.listeners.push(sender);
            (job.spec.request_id.clone(), job.name(), job.result.subscribe())
        } else {
            let ended = self.ended.get(&id)?;
            send(&sender, ended.accepted.clone());
            send(&sender, JobEvent::Finished(ended.result.clone()));
            (ended.request_id.clone(), ended.name.clone(), watch::channel(Some(ended.result.clone())).1)
        };
        self.rank_changed(id);
        let ticket = JobTicket::new(id, number, self.own().ticket_released.clone());
        let durability = self.durability_of(id);
        let queue_position = self.queue_position(id);
        Some(JobAccepted {
            request_id,
            name,
            queue_position,
            attached: true,
            ticket,
            events,
            result,
            durability,
        })
    }
}

/// The receiving end is in this same function's hands: it cannot be closed yet.
fn send(sender: &mpsc::UnboundedSender<JobEvent>, event: JobEvent) {
    sender.send(event).expect("the receiver is alive");
}

impl Handler<ReleaseTicket> for Scheduler {
    type Result = ();

    fn handle(&mut self, released: ReleaseTicket, _: &mut Context<Self>) {
        let Some(job) = self.jobs.get_mut(&released.job) else { return };
        job.tickets.remove(&released.number);
        job.kept |= released.keep_job;
        if job.tickets.is_empty() && !job.kept {
            self.cancel(released.job);
            self.pump();
        }
    }
}

impl Handler<FindJob> for Scheduler {
    type Result = MessageResult<FindJob>;

    fn handle(&mut self, find: FindJob, _: &mut Context<Self>) -> Self::Result {
        MessageResult(self.names.get(&find.name).copied())
    }
}

impl Handler<CancelJob> for Scheduler {
    type Result = ResponseFuture<Result<CancelOutcome, EngineError>>;

    fn handle(&mut self, cancel: CancelJob, _: &mut Context<Self>) -> Self::Result {
        let CancelJob { job } = cancel;
        let outcome = self.cancel(job);
        let until_gone = self.durable.until_gone(job);
        self.pump();
        Box::pin(async move {
            let gone = match until_gone {
                Ok(None) => Ok(()),
                // An error: the Scheduler has ended, and the journal may yet write it before it closes.
                Ok(Some(gone)) => gone.await.map_err(|_| ScheduleError::Stopped)?,
                Err(error) => Err(error),
            };
            match gone {
                Err(JournalError::Unwritable { path, what }) => {
                    Err(JournalError::NotForgotten { job, path, what }.into())
                }
                other => Ok(other.map(|()| outcome)?),
            }
        })
    }
}
