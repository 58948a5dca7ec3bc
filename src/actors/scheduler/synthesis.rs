//! What the Synthesizer tells: circuits, witnesses, verdicts.

use std::sync::Arc;

use actix::{Context, Handler};

use super::job::{PartitionState, Witness};
use super::outcome::release_evaluations;
use super::{Circuit, Scheduler};
use crate::error::{DeviceError, EngineError};
use crate::ids::{CircuitId, JobId, PartitionIndex, WorkRef};
use crate::messages::job::JobEvent;
use crate::messages::synthesis::{
    CircuitError, CircuitFailed, CircuitPrepared, CircuitProgress, JobVerified, PrepareCircuit,
    ProofsVerified, SynthesisFailed, SynthesizerReady, WitnessSynthesized,
};
use crate::policy::health::Failure;

impl Handler<SynthesizerReady> for Scheduler {
    type Result = ();

    /// The first, or the successor of one that died: whatever that one was asked for is asked for again.
    fn handle(&mut self, ready: SynthesizerReady, _: &mut Context<Self>) {
        self.synthesizer = Some(ready.address);
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
        }
        self.ask_for_loading_circuits();
        let jobs: Vec<JobId> = self.jobs.keys().copied().collect();
        for job in jobs {
            self.verify_waiting(job);
            self.check_whole(job);
        }
        self.pump();
    }
}

impl Scheduler {
    /// Once per circuit. One that no job needs is forgotten instead, so that its next job asks for it.
    fn ask_for_loading_circuits(&mut self) {
        let Some(synthesizer) = &self.synthesizer else { return };
        let jobs = &self.jobs;
        self.circuits.retain(|id, circuit| {
            if let Circuit::Ready { .. } = circuit {
                return true;
            }
            let most_urgent =
                jobs.values().filter(|job| job.circuit() == id).max_by_key(|job| job.spec.priority);
            if let Some(job) = most_urgent {
                synthesizer.prepare.do_send(PrepareCircuit {
                    workload: Arc::clone(&job.spec.workload),
                    priority: job.spec.priority,
                    span: job.spec.span.clone(),
                });
            }
            most_urgent.is_some()
        });
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
            Some(entry) if entry.is_loading(&prepared.circuit.source) => {
                *entry = Circuit::Ready { circuit: prepared.circuit, used_at: now };
            }
            // Prepared twice after a restart, no longer wanted, or an earlier key of this id.
            _ => return,
        }
        for job in self.jobs.values_mut().filter(|job| *job.circuit() == id) {
            job.timings.circuit_load = now.saturating_sub(job.spec.accepted_at).min(prepared.elapsed);
            job.tell(&JobEvent::CircuitReady { circuit: id.clone() });
        }
        self.evict_idle_circuits();
        self.pump();
    }
}

impl Handler<CircuitFailed> for Scheduler {
    type Result = ();

    fn handle(&mut self, failed: CircuitFailed, _: &mut Context<Self>) {
        let CircuitFailed { circuit, source, error } = failed;
        if !self.circuits.get(&circuit).is_some_and(|entry| entry.is_loading(&source)) {
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
        let (Some(index), Some(job)) = (at.partition, self.jobs.get_mut(&at.job)) else { return };
        // Asked twice after a restart: the other answer came first.
        if !matches!(job.partition(index).state, PartitionState::Synthesizing) {
            return;
        }
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
