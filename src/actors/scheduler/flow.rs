//! What the table makes possible: expiry, dispatch, verification. (Circuits and witnesses: `witnesses.rs`.)

use std::collections::HashMap;
use std::sync::Arc;

use super::circuits::Circuit;
use super::devices::Service;
use super::job::{PartitionState, Witness};
use super::lifeline::attempt_span;
use super::Scheduler;
use crate::backend::{PartitionWork, Stage};
use crate::error::{EngineError, ScheduleError};
use crate::ids::{Attempt, CircuitId, DeviceId, JobId, PartitionIndex, WorkRef};
use crate::messages::device::{LaneCredit, ProvePartition};
use crate::messages::events::AttemptRef;
use crate::messages::job::{JobEvent, Placement};
use crate::messages::synthesis::{UnverifiedProof, VerifyJob, VerifyProofs};
use crate::policy::placement::{place, Choice, DeviceView, Wish};
use crate::policy::role::Role;

impl Scheduler {
    /// Does everything that can be done now. Cheap when there is nothing.
    pub(super) fn pump(&mut self) {
        // The machine's own clock: on a paused one nothing takes time.
        let begun = std::time::Instant::now();
        self.tend_journal();
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
        self.tell_changes();
        self.publish();
        self.step_times.record(begun.elapsed());
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

    /// Ends jobs that no device can ever take, or nobody can ever verify.
    fn fail_hopeless(&mut self) {
        let error = match (self.devices.all_gone(), &self.synthesizer_service) {
            (Some(reason), _) => ScheduleError::NoDevice(reason),
            (None, Service::Gone { reason }) => ScheduleError::NoSynthesizer(reason.clone()),
            (None, _) => return,
        };
        let jobs: Vec<JobId> = self.jobs.keys().copied().collect();
        for job in jobs {
            self.finish(job, Err(error.clone().into()));
        }
        if let ScheduleError::NoSynthesizer(_) = &error {
            let wanted: Vec<CircuitId> = self.wanted.keys().cloned().collect();
            for circuit in wanted {
                self.fail_want(&circuit, |_| error.clone().into());
            }
        }
    }

    /// The next partition in queue order: to make a witness for (`without_witness`), or to dispatch, and then where to.
    pub(super) fn next_of(
        &mut self,
        without_witness: bool,
    ) -> Option<(JobId, PartitionIndex, Option<DeviceId>)> {
        let now = self.now();
        let without_circuit = if without_witness { self.demands_for_memory() } else { Vec::new() };
        let list = if !without_witness {
            let mut list = self.ready.shortlist(now);
            list.extend(&self.ready_particular);
            list
        } else if without_circuit.is_empty() {
            self.waiting.shortlist(now)
        } else {
            // Whether a job yields to those that wait for a circuit depends on more than its class.
            self.waiting.all()
        };
        if list.is_empty() {
            return None;
        }
        let mut candidates = Vec::with_capacity(list.len());
        let mut places = Vec::with_capacity(list.len());
        let mut under_way = (JobId(0), 0);
        // The same for all partitions of a circuit: made once.
        let mut views: HashMap<&CircuitId, Vec<DeviceView>> = HashMap::new();
        for (job, partition) in list {
            let entry = &self.jobs[&job];
            let place = if without_witness {
                let is_ready = matches!(self.circuits.get(entry.circuit()), Some(Circuit::Ready(_)));
                (is_ready && !self.yields(entry, &without_circuit)).then_some(None)
            } else {
                let views = views
                    .entry(entry.circuit())
                    .or_insert_with(|| self.devices.views(entry.circuit(), self.config.batches, now));
                match self.choose(job, partition, views) {
                    Choice::Device(device) => Some(Some(device)),
                    Choice::Wait | Choice::Nowhere => None,
                }
            };
            let Some(place) = place else { continue };
            // Partitions of a job are listed together: counted once.
            if under_way.0 != job {
                under_way = (job, entry.num_under_way());
            }
            candidates.push(entry.as_waiting(partition, under_way.1));
            places.push(place);
        }
        let at_hand = |circuit: &_| self.devices.is_at_hand(circuit, self.config.batches, now);
        let index = self.config.queue.next(&candidates, now, at_hand)?;
        Some((candidates[index].job, candidates[index].partition, places.swap_remove(index)))
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
            num_waiting: (self.ready.len() + self.ready_particular.len()) as u32,
        };
        place(&wish, views)
    }

    /// Gives partitions to devices while there are credits.
    fn dispatch(&mut self) {
        while self.devices.have_free_lane() {
            let Some((job, partition, Some(device))) = self.next_of(false) else { return };
            self.prove(job, partition, device);
        }
    }

    fn prove(&mut self, job: JobId, index: PartitionIndex, id: DeviceId) {
        let now = self.now();
        let circuit = self.prepared(job).expect("a witness exists only of a prepared circuit");
        self.no_longer_ready(job, index);
        let entry = self.jobs.get_mut(&job).expect("a listed partition's job is in the table");
        let blinding = entry.blinding(index);
        let partition = entry.partition(index);
        partition.attempts += 1;
        let attempt = Attempt(partition.attempts);
        let witness = take_ready(&mut partition.state);
        partition.stage = Stage::ALL[0];
        partition.state =
            PartitionState::Proving { attempt, device: id.clone(), witness: witness.clone(), since: now };
        let work = PartitionWork {
            at: WorkRef::partition(job, index).with_attempt(attempt).on(id.clone()),
            circuit: circuit.id.clone(),
            shape: Arc::clone(&circuit.shape),
            srs: Arc::clone(&circuit.srs),
            witness: witness.values,
            blinding,
        };
        let (priority, cancel) = (entry.spec.priority, entry.cancel.clone());
        let span = attempt_span(&entry.spec.span, job, index, attempt);
        entry.tell(&JobEvent::Placed { partition: index, device: id.clone() });
        self.totals.dispatched += 1;
        let freed = self.own().lane_freed.clone();
        let device = self.devices.get_mut(&id).expect("placement names a device of the table");
        assert_eq!(device.service, Service::Ready, "placement names a device in service");
        device.was_given(&circuit.id, self.config.batches, now);
        self.totals.fallback += u64::from(device.role == Role::Fallback);
        let lane = device.spend(priority);
        let credit = LaneCredit::new(id.clone(), device.life, lane, freed);
        let address = device.address.as_ref().expect("a device in service has an address");
        address.prove.do_send(ProvePartition { work, priority, cancel, credit, span });
        self.tell_placed(AttemptRef { job, partition: index, attempt }, &id, lane);
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
                    unchecked: witness.unchecked(),
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
        if entry.library_check || entry.durable.is_storing() || entry.num_done() < entry.partitions.len() {
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

impl Scheduler {
    /// Lists a partition that has a witness.
    pub(super) fn now_ready(&mut self, job: JobId, index: PartitionIndex) {
        let now = self.now();
        let entry = &self.jobs[&job];
        let partition = &entry.partitions[index.0 as usize];
        let any_will_do = entry.spec.placement == Placement::Any
            && partition.avoid.is_empty()
            && partition.never.is_empty();
        if any_will_do {
            self.ready.insert(&entry.as_waiting(index, entry.num_under_way()), now);
        } else {
            self.ready_particular.insert((job, index));
        }
    }

    fn no_longer_ready(&mut self, job: JobId, index: PartitionIndex) {
        if !self.ready.remove(job, index) {
            self.ready_particular.remove(&(job, index));
        }
    }

    /// Lists a partition that has no witness.
    pub(super) fn now_waiting(&mut self, job: JobId, index: PartitionIndex) {
        let now = self.now();
        let entry = &self.jobs[&job];
        self.waiting.insert(&entry.as_waiting(index, entry.num_under_way()), now);
    }

    /// What a job's rank depends on has changed: its priority, its deadline, or how many of its partitions are under
    /// way.
    pub(super) fn rank_changed(&mut self, job: JobId) {
        let now = self.now();
        let Some(entry) = self.jobs.get(&job) else { return };
        let waiting = entry.as_waiting(PartitionIndex(0), entry.num_under_way());
        self.waiting.update(&waiting, now);
        self.ready.update(&waiting, now);
    }
}

fn take_ready(state: &mut PartitionState) -> Witness {
    match std::mem::replace(state, PartitionState::Waiting) {
        PartitionState::Ready { witness } => witness,
        _ => unreachable!("only partitions with a witness are listed as ready"),
    }
}
