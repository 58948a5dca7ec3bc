//! How partitions and jobs end, or are tried again.

use std::sync::Arc;

use super::circuits::Circuit;
use super::devices::Service;
use super::job::{Job, Partition, PartitionState, MAX_REFUSALS};
use super::{EndedJob, Scheduler};
use crate::error::{DeviceError, EngineError, ErrorClass, ScheduleError};
use crate::ids::{DeviceId, JobId, PartitionIndex, WorkRef};
use crate::messages::events::AttemptRef;
use crate::messages::job::{CancelOutcome, JobEvent, JobResult, Placement, Priority, ProofOutcome};
use crate::messages::lifecycle::{ActorName, Drained};

impl Scheduler {
    /// The one way out of the table: everything the job holds is let go, and everybody who waits is answered.
    pub(super) fn finish(&mut self, id: JobId, result: JobResult) {
        let Some(mut job) = self.jobs.remove(&id) else { return };
        let result = self.journal_ended(&mut job, result);
        job.cancel.cancel();
        self.let_go(&mut job);
        match &result {
            Ok(_) => self.totals.completed += 1,
            Err(EngineError::Cancelled { .. }) => self.totals.cancelled += 1,
            Err(_) => self.totals.failed += 1,
        }
        let entered = job.spec.span.enter();
        match &result {
            Ok(outcome) => tracing::info!(job = %id, retries = outcome.retries, "job completed"),
            Err(error) => tracing::warn!(job = %id, %error, "job ended without a proof"),
        }
        drop(entered);
        job.tell(&JobEvent::Finished(result.clone()));
        job.result.send_replace(Some(result.clone()));
        self.tell_ended(&job, &result);
        let now = self.now();
        if let Some(Circuit::Ready(ready)) = self.circuits.get_mut(job.circuit()) {
            ready.used_at = now;
        }
        self.retain(id, job, result);
        self.let_idle_circuits_go(0);
    }

    fn let_go(&mut self, job: &mut Job) {
        let id = job.spec.id;
        self.num_critical -= usize::from(job.spec.priority == Priority::Critical);
        self.not_begun.remove(job.spec.priority, id);
        self.waiting.remove_job(id);
        self.ready.remove_job(id);
        for (index, partition) in job.partitions.iter_mut().enumerate() {
            let index = PartitionIndex(index as u32);
            self.ready_particular.remove(&(id, index));
            self.suspects.remove(&(id, index));
            // Its thread may still be at it; the result will be late.
            let is_synthesizing = matches!(partition.state, PartitionState::Synthesizing { .. });
            self.num_synthesizing -= usize::from(is_synthesizing);
            partition.let_go(PartitionState::Waiting, &mut self.memory);
        }
        if let Some(deadline) = job.spec.deadline {
            self.deadlines.remove(&(deadline, id));
        }
    }

    /// Keeps a proof for whoever asks again; a failure is not kept, so that asking again tries again.
    fn retain(&mut self, id: JobId, job: Job, result: JobResult) {
        let (accepted, name) = (job.accepted_event(), job.name());
        let identity = job.spec.identity;
        if let Some(identity) = identity.as_ref().filter(|_| result.is_err()) {
            self.identities.remove(identity, id);
        }
        // What the journal keeps it also lets go.
        if !(job.durable.is_journalled() && result.is_ok()) {
            self.ended_order.push_back(id);
        }
        let is_durable = job.durable.is_journalled();
        let request_id = job.spec.request_id;
        self.ended.insert(id, EndedJob { name, request_id, identity, accepted, result, is_durable });
        while self.ended_order.len() > self.config.retained_results {
            let oldest = self.ended_order.pop_front().expect("longer than a number that is not negative");
            self.forget_ended(oldest);
        }
    }

    pub(super) fn forget_ended(&mut self, id: JobId) {
        let Some(EndedJob { identity, name, .. }) = self.ended.remove(&id) else { return };
        self.forget_name(&name, id);
        if let Some(identity) = identity {
            self.identities.remove(&identity, id);
        }
    }

    pub(super) fn cancel(&mut self, id: JobId) -> CancelOutcome {
        if let Some(outcome) = self.cancel_durable(id) {
            return outcome;
        }
        let Some(job) = self.jobs.get(&id) else {
            let was_given_out = (1..self.next_job).contains(&id.0);
            return if was_given_out { CancelOutcome::AlreadyEnded } else { CancelOutcome::Unknown };
        };
        let has_run = job.partitions.iter().any(Partition::has_run);
        self.finish(id, Err(EngineError::Cancelled { at: WorkRef::job(id) }));
        if has_run {
            CancelOutcome::WasRunning
        } else {
            CancelOutcome::WasQueued
        }
    }

    /// The library has agreed: the job is complete.
    pub(super) fn complete(&mut self, id: JobId, proof: Vec<u8>) {
        let now = self.now();
        let Some(job) = self.jobs.get_mut(&id).filter(|job| !job.durable.is_storing()) else { return };
        job.timings.total = now.saturating_sub(job.spec.accepted_at);
        let done_on = |partition: &Partition| match &partition.state {
            PartitionState::Done { device, .. } => device.clone(),
            _ => unreachable!("a job is checked as a whole only when every partition is done"),
        };
        let outcome = ProofOutcome {
            job: id,
            request_id: job.spec.request_id.clone(),
            kind: job.spec.workload.kind(),
            circuit: job.circuit().clone(),
            proof,
            timings: job.timings.clone(),
            devices: job.partitions.iter().map(done_on).collect(),
            retries: job.retries,
        };
        self.finish_once_stored(id, Arc::new(outcome));
    }

    /// An attempt failed. The partition goes to another device, or the job ends with the reason.
    ///
    /// # Panics
    /// If the partition has no witness to try again with: it was not on a device.
    pub(super) fn retry(&mut self, id: JobId, index: PartitionIndex, device: &DeviceId, error: DeviceError) {
        let max_attempts = self.config.max_attempts;
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let (placement, priority) = (job.spec.placement.clone(), job.spec.priority);
        let partition = job.partition(index);
        let gives_up = match &error {
            DeviceError::NotTaking { .. } => {
                partition.refusals += 1;
                partition.refusals > MAX_REFUSALS
            }
            DeviceError::Plan { .. } | DeviceError::Unsupported { .. } | DeviceError::OutOfVram { .. } => {
                partition.never.insert(device.clone());
                let never = &partition.never;
                !self
                    .devices
                    .may_serve(|id| !never.contains(id) && self.devices.is_allowed(&placement, priority, id))
            }
            _ => {
                partition.avoid.insert(device.clone());
                error.class() == ErrorClass::Caller
            }
        };
        if gives_up || partition.is_exhausted(max_attempts) {
            self.finish(id, Err(error.into()));
            return;
        }
        let witness = match std::mem::replace(&mut partition.state, PartitionState::Waiting) {
            PartitionState::Proving { witness, .. } | PartitionState::Suspect { witness, .. } => witness,
            _ => panic!("only an attempt that was made can fail"),
        };
        partition.state = PartitionState::Ready { witness };
        self.suspects.remove(&(id, index));
        // It may be for a device that went for good while this was under way.
        self.placements_changed = true;
        if !matches!(error, DeviceError::NotTaking { .. }) {
            job.retries += 1;
            self.totals.retried += 1;
            tracing::warn!(%error, "partition is tried again");
            job.tell(&JobEvent::PartitionRetried { partition: index, reason: error.to_string() });
        }
        self.now_ready(id, index);
    }

    /// Takes a device out of service and gives what it held to others.
    pub(super) fn withdraw(&mut self, id: &DeviceId, service: Service, what: &str) {
        let Some(device) = self.devices.get_mut(id) else { return };
        let gone = matches!(service, Service::Gone { .. });
        self.placements_changed |= gone;
        device.withdraw(service);
        self.tell_device_down(id, gone, what);
        let mut held = Vec::new();
        for (job, entry) in &self.jobs {
            for (index, partition) in entry.partitions.iter().enumerate() {
                match &partition.state {
                    PartitionState::Proving { device, attempt, .. } if device == id => {
                        let index = PartitionIndex(index as u32);
                        held.push((*job, index, WorkRef::partition(*job, index).with_attempt(*attempt)));
                    }
                    _ => {}
                }
            }
        }
        for (job, index, at) in held {
            if let Some(at) = AttemptRef::of(&at) {
                self.tell_attempt_failed(at, id, false, what);
            }
            let error = DeviceError::Lost { at: at.on(id.clone()), what: what.to_owned() };
            self.retry(job, index, id, error);
        }
    }

    /// Ends jobs with a partition that only devices could take which are gone for good.
    pub(super) fn fail_misplaced(&mut self) {
        if !std::mem::take(&mut self.placements_changed) {
            return;
        }
        let gone: Vec<String> = self.devices.iter().filter_map(|(id, _)| self.devices.gone(id)).collect();
        if gone.is_empty() {
            return;
        }
        let hopeless: Vec<JobId> = self
            .jobs
            .iter()
            .filter(|(_, entry)| {
                let (placement, priority) = (&entry.spec.placement, entry.spec.priority);
                entry.partitions.iter().filter(|partition| partition.needs_device()).any(|partition| {
                    !self.devices.may_serve(|id| {
                        self.devices.is_allowed(placement, priority, id) && !partition.never.contains(id)
                    })
                })
            })
            .map(|(job, _)| *job)
            .collect();
        for job in hopeless {
            let reason = format!("none is left that could take all of it; gone are {}", gone.join("; "));
            self.finish(job, Err(ScheduleError::NoDevice(reason).into()));
        }
    }

    /// Says once that nothing is left to do, after a `Drain`.
    pub(super) fn report_drained(&mut self) {
        if self.draining && self.jobs.is_empty() && !self.reported_drained {
            self.reported_drained = true;
            self.stop_loading();
            self.drained.do_send(Drained { actor: ActorName::Scheduler });
        }
    }
}

pub(super) fn is_allowed(placement: &Placement, device: &DeviceId) -> bool {
    match placement {
        Placement::Any => true,
        Placement::Device(wanted) => wanted == device,
    }
}
