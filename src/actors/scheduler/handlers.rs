//! What the Scheduler is told, and what it does about it: change the table, then pump.

use std::sync::Arc;

use actix::{ActorContext, Context, Handler, MessageResult};
use tokio::sync::{mpsc, watch};

use super::devices::Service;
use super::job::{blinding_identity, Job, JobSpec, PartitionState, Witness};
use super::outcome::release_evaluations;
use super::{Circuit, Scheduler};
use crate::circuits::{SrsSource, Workload};
use crate::error::{DeviceError, EngineError, ErrorClass, RequestError, ScheduleError};
use crate::ids::{CircuitId, DeviceId, JobId, PartitionIndex, WorkRef};
use crate::messages::device::{EvictSrs, LaneFreed, PartitionFailed, PartitionProved, StageFinished};
use crate::messages::job::{
    BlindingSource, CancelJob, JobAccepted, JobEvent, JobTicket, Placement, Priority, ReleaseTicket,
    SubmitJob,
};
use crate::messages::lifecycle::{
    ActorDied, DeviceLost, DeviceReady, DeviceWithdrawn, Drain, EndJobs, ResidencyChanged, StopActor,
};
use crate::messages::synthesis::{
    CircuitError, CircuitFailed, CircuitPrepared, CircuitProgress, JobVerified, PrepareCircuit,
    ProofsVerified, SynthesisFailed, SynthesizerReady, WitnessSynthesized,
};
use crate::policy::admission::{admit, WorkIdentity};
use crate::policy::health::Failure;

impl Handler<SubmitJob> for Scheduler {
    type Result = MessageResult<SubmitJob>;

    fn handle(&mut self, submit: SubmitJob, _: &mut Context<Self>) -> Self::Result {
        let answer = self.submit(submit);
        self.totals.refused += u64::from(answer.is_err());
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
        });
        let priority = submit.priority.unwrap_or_else(|| Priority::of(submit.workload.kind()));
        if let Some(known) = identity.as_ref().and_then(|identity| self.identities.find(identity)) {
            if let Some(accepted) = self.attach(known, priority) {
                self.totals.attached += 1;
                return Ok(accepted);
            }
        }
        if let Some(reason) = self.devices.all_gone() {
            return Err(ScheduleError::NoDevice(reason).into());
        }
        admit(self.draining, self.jobs.len(), self.config.max_queued_jobs, priority)?;
        self.make_room_for_circuit(submit.workload.as_ref())?;
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
        match &submit.placement {
            Placement::Device(id) if !self.devices.contains(id) => {
                Err(ScheduleError::NoDevice(format!("{id} is not one of this engine's")).into())
            }
            _ => Ok(()),
        }
    }

    /// One id names one proving key at a time. Another key under the same id takes over once nothing uses the old.
    fn make_room_for_circuit(&mut self, workload: &dyn Workload) -> Result<(), RequestError> {
        let id = workload.circuit();
        let held = match self.circuits.get(id) {
            None => return Ok(()),
            Some(Circuit::Loading { source }) => source,
            Some(Circuit::Ready(circuit)) => &circuit.source,
        };
        if is_same_key(held, &workload.srs()) {
            return Ok(());
        }
        if self.jobs.values().any(|job| job.circuit() == id) {
            return Err(RequestError::Contradiction {
                left: "circuit".into(),
                left_value: id.to_string(),
                right: "the circuit of that name in use".into(),
                right_value: "another proving key".into(),
            });
        }
        self.circuits.remove(id);
        for (_, device) in self.devices.iter() {
            if let Some(address) = &device.address {
                address.evict.do_send(EvictSrs { circuit: id.clone() });
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
        let id = JobId(self.next_job);
        self.next_job += 1;
        let now = self.now();
        let spec = JobSpec {
            id,
            request_id: if submit.request_id.is_empty() { format!("job-{id}") } else { submit.request_id },
            identity: identity.clone(),
            workload: submit.workload,
            priority,
            accepted_at: now,
            deadline: submit.deadline.map(|limit| now.saturating_add(limit)),
            blinding: submit.blinding,
            placement: submit.placement,
            span: submit.span,
        };
        if let Some(identity) = identity {
            self.identities.insert(identity, id);
        }
        self.deadlines.extend(spec.deadline.map(|deadline| (deadline, id)));
        self.waiting.extend((0..spec.workload.num_partitions()).map(|index| (id, PartitionIndex(index))));
        self.totals.accepted += 1;
        self.ensure_circuit(&spec.workload, &spec.span);
        self.jobs.insert(id, Job::new(spec));
        let mut accepted = self.attach(id, priority).expect("the job was just put into the table");
        accepted.attached = false;
        accepted
    }

    /// One more caller waits for this job. `None`: it is not known any more.
    fn attach(&mut self, id: JobId, priority: Priority) -> Option<JobAccepted> {
        let number = self.next_ticket;
        self.next_ticket += 1;
        let (sender, events) = mpsc::unbounded_channel();
        let (request_id, result) = if let Some(job) = self.jobs.get_mut(&id) {
            // Somebody needs it more urgently than the first caller did.
            job.spec.priority = job.spec.priority.max(priority);
            job.tickets.insert(number);
            send(&sender, job.accepted_event());
            job.listeners.push(sender);
            (job.spec.request_id.clone(), job.result.subscribe())
        } else {
            let ended = self.ended.get(&id)?;
            send(&sender, ended.accepted.clone());
            send(&sender, JobEvent::Finished(ended.result.clone()));
            (ended.request_id.clone(), watch::channel(Some(ended.result.clone())).1)
        };
        let ticket = JobTicket::new(id, number, self.own().ticket_released.clone());
        Some(JobAccepted { request_id, attached: true, ticket, events, result })
    }
}

/// The receiving end is in this same function's hands: it cannot be closed yet.
fn send(sender: &mpsc::UnboundedSender<JobEvent>, event: JobEvent) {
    sender.send(event).expect("the receiver is alive");
}

fn is_same_key(a: &SrsSource, b: &SrsSource) -> bool {
    match (a, b) {
        (SrsSource::File(a), SrsSource::File(b)) => a == b,
        (SrsSource::Memory(a), SrsSource::Memory(b)) => {
            Arc::ptr_eq(a, b) || (a.vk == b.vk && a.num_bytes() == b.num_bytes())
        }
        _ => false,
    }
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

impl Handler<CancelJob> for Scheduler {
    type Result = MessageResult<CancelJob>;

    fn handle(&mut self, cancel: CancelJob, _: &mut Context<Self>) -> Self::Result {
        let outcome = self.cancel(cancel.job);
        self.pump();
        MessageResult(outcome)
    }
}

// ---- Synthesizer ----

impl Handler<SynthesizerReady> for Scheduler {
    type Result = ();

    /// The first, or the successor of one that died: whatever that one was asked for is asked for again.
    fn handle(&mut self, ready: SynthesizerReady, _: &mut Context<Self>) {
        self.synthesizer = Some(ready.address.clone());
        for (id, job) in &mut self.jobs {
            job.verifying = false;
            job.library_check = false;
            for (index, partition) in job.partitions.iter_mut().enumerate() {
                if let PartitionState::Synthesizing = partition.state {
                    partition.state = PartitionState::Waiting;
                    self.budget.release(std::mem::take(&mut partition.witness_bytes));
                    release_evaluations(partition, &mut self.budget);
                    self.num_synthesizing -= 1;
                    self.waiting.insert((*id, PartitionIndex(index as u32)));
                }
            }
            if let Some(Circuit::Loading { .. }) = self.circuits.get(job.circuit()) {
                let (workload, span) = (Arc::clone(&job.spec.workload), job.spec.span.clone());
                ready.address.prepare.do_send(PrepareCircuit { workload, span });
            }
        }
        let jobs: Vec<JobId> = self.jobs.keys().copied().collect();
        for job in jobs {
            self.verify_waiting(job);
            self.check_whole(job);
        }
        self.pump();
    }
}

impl Handler<CircuitProgress> for Scheduler {
    type Result = ();

    fn handle(&mut self, progress: CircuitProgress, _: &mut Context<Self>) {
        let CircuitProgress { circuit, what, done, total } = progress;
        let event = JobEvent::CircuitLoading { circuit: circuit.clone(), what, done, total };
        self.jobs.values_mut().filter(|job| *job.circuit() == circuit).for_each(|job| job.tell(&event));
    }
}

impl Handler<CircuitPrepared> for Scheduler {
    type Result = ();

    fn handle(&mut self, prepared: CircuitPrepared, _: &mut Context<Self>) {
        let now = self.now();
        let id = prepared.circuit.id.clone();
        match self.circuits.get_mut(&id) {
            Some(entry @ Circuit::Loading { .. }) => *entry = Circuit::Ready(prepared.circuit),
            // Prepared twice after a restart, or no longer wanted.
            _ => return,
        }
        for job in self.jobs.values_mut().filter(|job| *job.circuit() == id) {
            job.timings.circuit_load = now.saturating_sub(job.spec.accepted_at).min(prepared.elapsed);
            job.tell(&JobEvent::CircuitReady { circuit: id.clone() });
        }
        self.pump();
    }
}

impl Handler<CircuitFailed> for Scheduler {
    type Result = ();

    fn handle(&mut self, failed: CircuitFailed, _: &mut Context<Self>) {
        let CircuitFailed { circuit, error } = failed;
        if !matches!(self.circuits.get(&circuit), Some(Circuit::Loading { .. })) {
            return;
        }
        self.circuits.remove(&circuit);
        let jobs: Vec<JobId> = self.jobs_of(&circuit);
        for job in jobs {
            self.finish(job, Err(circuit_error(job, &circuit, &error)));
        }
        self.pump();
    }
}

impl Scheduler {
    fn jobs_of(&self, circuit: &CircuitId) -> Vec<JobId> {
        self.jobs.iter().filter(|(_, job)| job.circuit() == circuit).map(|(id, _)| *id).collect()
    }
}

fn circuit_error(job: JobId, circuit: &CircuitId, error: &CircuitError) -> EngineError {
    match error.clone() {
        CircuitError::Srs(source) => EngineError::Srs { circuit: circuit.clone(), source },
        CircuitError::Synthesis(source) => EngineError::Synthesis { at: WorkRef::job(job), source },
    }
}

impl Handler<WitnessSynthesized> for Scheduler {
    type Result = ();

    fn handle(&mut self, made: WitnessSynthesized, _: &mut Context<Self>) {
        let Some(index) = made.at.partition else { return };
        let Some(job) = self.jobs.get_mut(&made.at.job) else { return };
        let partition = job.partition(index);
        if !matches!(partition.state, PartitionState::Synthesizing) {
            return;
        }
        let witness = Witness { assignment: made.assignment, public_inputs: made.public_inputs };
        partition.state = PartitionState::Ready { witness, evaluations: Some(made.evaluations) };
        job.timings.synthesis += made.elapsed;
        job.tell(&JobEvent::WitnessReady { partition: index, elapsed: made.elapsed });
        self.num_synthesizing -= 1;
        self.ready.insert((made.at.job, index));
        self.pump();
    }
}

impl Handler<SynthesisFailed> for Scheduler {
    type Result = ();

    fn handle(&mut self, failed: SynthesisFailed, _: &mut Context<Self>) {
        let SynthesisFailed { at, error } = failed;
        self.finish(at.job, Err(EngineError::Synthesis { at, source: error }));
        self.pump();
    }
}

impl Handler<ProofsVerified> for Scheduler {
    type Result = ();

    fn handle(&mut self, verified: ProofsVerified, _: &mut Context<Self>) {
        let Some(id) = verified.verdicts.first().map(|(at, _)| at.job) else { return };
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.verifying = false;
        job.timings.verify += verified.elapsed;
        for (at, holds) in verified.verdicts {
            self.take_verdict(at, holds);
        }
        self.verify_waiting(id);
        self.check_whole(id);
        self.pump();
    }
}

impl Scheduler {
    fn take_verdict(&mut self, at: WorkRef, holds: bool) {
        let now = self.now();
        let (Some(index), Some(job)) = (at.partition, self.jobs.get_mut(&at.job)) else { return };
        let partition = job.partition(index);
        let (device, proof) = match &partition.state {
            PartitionState::Proved { attempt, device, proof, asked: true, .. }
                if Some(*attempt) == at.attempt =>
            {
                (device.clone(), proof.clone())
            }
            // Asked twice after a restart of the Synthesizer.
            _ => return,
        };
        if holds {
            partition.state = PartitionState::Done { device: device.clone(), proof };
            self.budget.release(std::mem::take(&mut partition.witness_bytes));
            job.tell(&JobEvent::PartitionVerified { partition: index, device: device.clone() });
        } else {
            tracing::error!(%at, "proof does not verify");
            self.totals.invalid_proofs += 1;
            self.retry(at.job, index, &device, DeviceError::InvalidProof { at: at.clone() });
        }
        if let Some(entry) = self.devices.get_mut(&device) {
            if holds {
                entry.num_proved += 1;
                entry.health.record_success(now);
            } else {
                entry.num_invalid += 1;
                entry.health.record_failure(Failure::InvalidProof, now);
            }
        }
    }
}

impl Handler<JobVerified> for Scheduler {
    type Result = ();

    fn handle(&mut self, verified: JobVerified, _: &mut Context<Self>) {
        let Some(job) = self.jobs.get_mut(&verified.job) else { return };
        job.timings.verify += verified.elapsed;
        match verified.result {
            Ok(()) => self.complete(verified.job, verified.proof),
            Err(error) => self.finish(verified.job, Err(error.into())),
        }
        self.pump();
    }
}

// ---- Devices ----

impl Handler<PartitionProved> for Scheduler {
    type Result = ();

    fn handle(&mut self, proved: PartitionProved, _: &mut Context<Self>) {
        let now = self.now();
        let Some(index) = self.expected(&proved.at, &proved.device) else {
            self.totals.late_results += 1;
            return;
        };
        let id = proved.at.job;
        let job = self.jobs.get_mut(&id).expect("an expected result has a job");
        job.add_stage_times(&proved.timings.0);
        let circuit = job.circuit().clone();
        let partition = job.partition(index);
        release_evaluations(partition, &mut self.budget);
        let PartitionState::Proving { attempt, device, witness, since } =
            std::mem::replace(&mut partition.state, PartitionState::Waiting)
        else {
            unreachable!("a result is expected only of a partition that is on a device")
        };
        partition.state =
            PartitionState::Proved { attempt, device, witness, proof: proved.proof, asked: false };
        if let Some(device) = self.devices.get_mut(&proved.device) {
            device.record_time(&circuit, now.saturating_sub(since));
        }
        self.verify_waiting(id);
        self.pump();
    }
}

impl Scheduler {
    /// The partition that `at` answers, if this very attempt was given to this very device.
    fn expected(&self, at: &WorkRef, from: &DeviceId) -> Option<PartitionIndex> {
        let index = at.partition?;
        match &self.jobs.get(&at.job)?.partitions.get(index.0 as usize)?.state {
            PartitionState::Proving { attempt, device, .. }
                if Some(*attempt) == at.attempt && device == from =>
            {
                Some(index)
            }
            _ => None,
        }
    }
}

impl Handler<PartitionFailed> for Scheduler {
    type Result = ();

    fn handle(&mut self, failed: PartitionFailed, _: &mut Context<Self>) {
        let now = self.now();
        let PartitionFailed { at, device: id, error } = failed;
        let Some(index) = self.expected(&at, &id) else {
            self.totals.late_results += u64::from(!matches!(error, DeviceError::Cancelled { .. }));
            return;
        };
        if let Some(device) = self.devices.get_mut(&id) {
            match &error {
                DeviceError::NotTaking { .. } => device.rests_until = now + super::TICK,
                // Not the device's fault.
                DeviceError::Srs { .. } | DeviceError::Plan { .. } | DeviceError::Cancelled { .. } => {}
                _ => {
                    device.num_failed += 1;
                    device.health.record_failure(Failure::Reported, now);
                    if error.class() == ErrorClass::DeviceLost {
                        // `DeviceLost` follows; until then its free lanes are worth nothing.
                        device.rests_until = now + super::TICK;
                    }
                }
            }
        }
        self.retry(at.job, index, &id, error);
        self.pump();
    }
}

impl Handler<StageFinished> for Scheduler {
    type Result = ();

    fn handle(&mut self, finished: StageFinished, _: &mut Context<Self>) {
        let Some(partition) = self.expected(&finished.at, &finished.device) else { return };
        let StageFinished { at, device, stage, elapsed } = finished;
        if let Some(job) = self.jobs.get_mut(&at.job) {
            job.tell(&JobEvent::StageDone { partition, device, stage, elapsed });
        }
    }
}

impl Handler<LaneFreed> for Scheduler {
    type Result = ();

    fn handle(&mut self, freed: LaneFreed, _: &mut Context<Self>) {
        if let Some(device) = self.devices.get_mut(&freed.device) {
            device.freed(freed.kind);
        }
        self.pump();
    }
}

impl Handler<ResidencyChanged> for Scheduler {
    type Result = ();

    fn handle(&mut self, changed: ResidencyChanged, _: &mut Context<Self>) {
        let Some(device) = self.devices.get_mut(&changed.device) else { return };
        if changed.resident {
            device.resident.insert(changed.circuit);
        } else {
            device.resident.remove(&changed.circuit);
        }
    }
}

// ---- Supervisor ----

impl Handler<DeviceReady> for Scheduler {
    type Result = ();

    fn handle(&mut self, ready: DeviceReady, _: &mut Context<Self>) {
        if let Some(device) = self.devices.get_mut(&ready.info.id) {
            device.ready(ready);
        }
        self.pump();
    }
}

impl Handler<DeviceLost> for Scheduler {
    type Result = ();

    fn handle(&mut self, lost: DeviceLost, _: &mut Context<Self>) {
        let reason = lost.error.to_string();
        self.withdraw(&lost.device, Service::Withdrawn { reason: reason.clone() }, &reason);
        self.pump();
    }
}

impl Handler<ActorDied> for Scheduler {
    type Result = ();

    /// A dead Synthesizer is followed by a `SynthesizerReady`, which says it all.
    fn handle(&mut self, died: ActorDied, _: &mut Context<Self>) {
        let now = self.now();
        let Some(id) = died.device else { return };
        let reason = format!("{} died", died.actor);
        if let Some(device) = self.devices.get_mut(&id) {
            device.num_failed += 1;
            device.health.record_failure(Failure::Reported, now);
        }
        self.withdraw(&id, Service::Withdrawn { reason: reason.clone() }, &reason);
        self.pump();
    }
}

impl Handler<DeviceWithdrawn> for Scheduler {
    type Result = ();

    fn handle(&mut self, withdrawn: DeviceWithdrawn, _: &mut Context<Self>) {
        let DeviceWithdrawn { device, reason, returns } = withdrawn;
        let what = reason.clone();
        let service = if returns { Service::Withdrawn { reason } } else { Service::Gone { reason } };
        self.withdraw(&device, service, &what);
        self.pump();
    }
}

impl Handler<Drain> for Scheduler {
    type Result = ();

    fn handle(&mut self, _: Drain, _: &mut Context<Self>) {
        self.draining = true;
        self.pump();
    }
}

impl Handler<EndJobs> for Scheduler {
    type Result = ();

    fn handle(&mut self, _: EndJobs, _: &mut Context<Self>) {
        self.draining = true;
        let jobs: Vec<JobId> = self.jobs.keys().copied().collect();
        for job in jobs {
            self.finish(job, Err(ScheduleError::Draining.into()));
        }
        self.pump();
    }
}

impl Handler<StopActor> for Scheduler {
    type Result = ();

    fn handle(&mut self, _: StopActor, ctx: &mut Context<Self>) {
        ctx.stop();
    }
}
