//! What the table makes possible: expiry, dispatch, verification. (Circuits and witnesses: `witnesses.rs`.)

use std::collections::HashMap;
use std::sync::Arc;

use super::circuits::Circuit;
use super::devices::Service;
use super::job::{PartitionState, Witness};
use super::Scheduler;
use crate::backend::PartitionWork;
use crate::error::{EngineError, ScheduleError};
use crate::groth16::Evaluations;
use crate::ids::{Attempt, CircuitId, DeviceId, JobId, PartitionIndex, WorkRef};
use crate::messages::device::{LaneCredit, ProvePartition};
use crate::messages::job::JobEvent;
use crate::messages::synthesis::{UnverifiedProof, VerifyJob, VerifyProofs};
use crate::policy::placement::{place, Choice, DeviceView, Wish};
use crate::policy::role::Role;

impl Scheduler {
    /// Does everything that can be done now. Cheap when there is nothing.
    pub(super) fn pump(&mut self) {
        self.expire();
        self.fail_hopeless();
        self.fail_misplaced();
        self.fail_unplannable();
        self.memory.collect();
        // Before memory is given out again: what is on a device will give its own back.
        self.dispatch();
        self.give_memory();
        self.serve_wants();
        self.report_drained();
        self.publish();
    }

    /// Looks at the time, besides.
    pub(super) fn tick(&mut self) {
        self.let_long_idle_circuits_go();
        self.pump();
    }

    /// Ends jobs whose deadline has passed: before any dispatch, so that expired work never starts.
    fn expire(&mut self) {
        let now = self.now();
        while let Some(&(deadline, job)) = self.deadlines.first().filter(|(deadline, _)| *deadline <= now) {
            self.deadlines.remove(&(deadline, job));
            if self.jobs.contains_key(&job) {
                self.totals.deadline_exceeded += 1;
                self.finish(job, Err(EngineError::DeadlineExceeded { at: WorkRef::job(job) }));
            }
        }
    }

    /// Ends jobs that no device can ever take.
    fn fail_hopeless(&mut self) {
        let Some(reason) = self.devices.all_gone() else { return };
        let jobs: Vec<JobId> = self.jobs.keys().copied().collect();
        for job in jobs {
            self.finish(job, Err(ScheduleError::NoDevice(reason.clone()).into()));
        }
    }

    /// The next partition in queue order: to make a witness for (`without_witness`), or to dispatch.
    pub(super) fn next_of(&self, without_witness: bool) -> Option<(JobId, PartitionIndex)> {
        let now = self.now();
        let list = if without_witness { &self.waiting } else { &self.ready };
        let mut candidates = Vec::with_capacity(list.len());
        let mut under_way = (JobId(0), 0);
        // The same for all partitions of a circuit: made once.
        let mut views: HashMap<&CircuitId, Vec<DeviceView>> = HashMap::new();
        let without_circuit = if without_witness { self.demands_for_memory() } else { Vec::new() };
        for &(job, partition) in list {
            let entry = &self.jobs[&job];
            let possible = if without_witness {
                matches!(self.circuits.get(entry.circuit()), Some(Circuit::Ready(_)))
                    && !self.yields(entry, &without_circuit)
            } else {
                let views = views
                    .entry(entry.circuit())
                    .or_insert_with(|| self.devices.views(entry.circuit(), self.config.batches, now));
                matches!(self.choose(job, partition, views), Choice::Device(_))
            };
            if possible {
                // Partitions of a job are listed together: counted once.
                if under_way.0 != job {
                    under_way = (job, entry.num_under_way());
                }
                candidates.push(entry.as_waiting(partition, under_way.1));
            }
        }
        let at_hand = |circuit: &_| self.devices.is_at_hand(circuit, self.config.batches, now);
        let index = self.config.queue.next(&candidates, now, at_hand)?;
        Some((candidates[index].job, candidates[index].partition))
    }

    fn choose(&self, job: JobId, index: PartitionIndex, views: &[DeviceView]) -> Choice {
        let entry = &self.jobs[&job];
        let partition = &entry.partitions[index.0 as usize];
        let wish = Wish {
            priority: entry.spec.priority,
            placement: &entry.spec.placement,
            avoid: &partition.avoid,
            never: &partition.never,
            needs_fallback: self.devices.needs_fallback(entry.spec.priority, &partition.never),
            num_waiting: self.ready.len() as u32,
        };
        place(&wish, views)
    }

    /// Gives partitions to devices while there are credits.
    fn dispatch(&mut self) {
        if !self.devices.iter().any(|(_, device)| device.free_lanes + device.free_critical_lanes > 0) {
            return;
        }
        while let Some((job, partition)) = self.next_of(false) {
            let views = self.devices.views(self.jobs[&job].circuit(), self.config.batches, self.now());
            let Choice::Device(device) = self.choose(job, partition, &views) else { return };
            self.prove(job, partition, device);
        }
    }

    fn prove(&mut self, job: JobId, index: PartitionIndex, id: DeviceId) {
        let now = self.now();
        let circuit = self.prepared(job).expect("a witness exists only of a prepared circuit");
        self.ready.remove(&(job, index));
        let entry = self.jobs.get_mut(&job).expect("a listed partition's job is in the table");
        let blinding = entry.blinding(index);
        let partition = entry.partition(index);
        partition.attempts += 1;
        let attempt = Attempt(partition.attempts);
        let (witness, evaluations) = take_ready(&mut partition.state);
        partition.state =
            PartitionState::Proving { attempt, device: id.clone(), witness: witness.clone(), since: now };
        let work = PartitionWork {
            at: WorkRef::partition(job, index).with_attempt(attempt).on(id.clone()),
            circuit: circuit.id.clone(),
            shape: Arc::clone(&circuit.shape),
            srs: Arc::clone(&circuit.srs),
            assignment: witness.assignment,
            evaluations,
            blinding,
        };
        let (priority, cancel, span) = (entry.spec.priority, entry.cancel.clone(), entry.spec.span.clone());
        entry.tell(&JobEvent::Placed { partition: index, device: id.clone() });
        self.totals.dispatched += 1;
        let freed = self.own().lane_freed.clone();
        let device = self.devices.get_mut(&id).expect("placement names a device of the table");
        assert_eq!(device.service, Service::Ready, "placement names a device in service");
        device.was_given(&circuit.id, self.config.batches, now);
        self.totals.fallback += u64::from(device.role == Role::Fallback);
        let credit = LaneCredit::new(id, device.life, device.spend(priority), freed);
        let address = device.address.as_ref().expect("a device in service has an address");
        address.prove.do_send(ProvePartition { work, priority, cancel, credit, span });
    }

    /// Has the proofs of a job that wait for their verdict verified, all at once; one batch at a time.
    pub(super) fn verify_waiting(&mut self, job: JobId) {
        let Some(circuit) = self.prepared(job) else { return };
        let Some(entry) = self.jobs.get_mut(&job).filter(|entry| !entry.verifying) else { return };
        let mut proofs = Vec::new();
        for (index, partition) in entry.partitions.iter_mut().enumerate() {
            if let PartitionState::Proved { attempt, device, witness, proof, asked } = &mut partition.state {
                *asked = true;
                let at = WorkRef::partition(job, PartitionIndex(index as u32));
                proofs.push(UnverifiedProof {
                    at: at.with_attempt(*attempt).on(device.clone()),
                    proof: proof.clone(),
                    public_inputs: Arc::clone(&witness.public_inputs),
                });
            }
        }
        if proofs.is_empty() {
            return;
        }
        entry.verifying = true;
        let (priority, span) = (entry.spec.priority, entry.spec.span.clone());
        if let Some(synthesizer) = &self.synthesizer {
            synthesizer.verify.do_send(VerifyProofs { circuit, proofs, priority, span });
        }
    }

    /// Every partition is done: the library's own check of the whole is what is left.
    pub(super) fn check_whole(&mut self, job: JobId) {
        let Some(circuit) = self.prepared(job) else { return };
        let Some(entry) = self.jobs.get_mut(&job) else { return };
        if entry.library_check || entry.num_done() < entry.partitions.len() {
            return;
        }
        entry.library_check = true;
        let mut proof = Vec::new();
        for partition in &entry.partitions {
            if let PartitionState::Done { proof: part, .. } = &partition.state {
                proof.extend_from_slice(&part.to_bytes());
            }
        }
        let (workload, priority) = (Arc::clone(&entry.spec.workload), entry.spec.priority);
        let span = entry.spec.span.clone();
        if let Some(synthesizer) = &self.synthesizer {
            synthesizer.verify_job.do_send(VerifyJob { job, workload, circuit, proof, priority, span });
        }
    }
}

fn take_ready(state: &mut PartitionState) -> (Witness, Option<Evaluations>) {
    match std::mem::replace(state, PartitionState::Waiting) {
        PartitionState::Ready { witness, evaluations } => (witness, evaluations),
        _ => unreachable!("only partitions with a witness are listed as ready"),
    }
}
