//! What the Synthesizer tells: witnesses and verdicts. (Of circuits: `circuits.rs`, of keys: `blame.rs`.)

use actix::{Context, Handler};

use super::devices::Service;
use super::job::{PartitionState, Witness};
use super::Scheduler;
use crate::error::EngineError;
use crate::ids::{JobId, PartitionIndex, WorkRef};
use crate::messages::job::JobEvent;
use crate::messages::synthesis::{
    JobVerified, ProofsVerified, SynthesisFailed, SynthesizerReady, WitnessSynthesized,
};
use crate::policy::host_memory::HostPart;

impl Handler<SynthesizerReady> for Scheduler {
    type Result = ();

    /// The first, or the successor of one that died: whatever that one was asked for is asked for again.
    fn handle(&mut self, ready: SynthesizerReady, _: &mut Context<Self>) {
        self.synthesizer = Some(ready.address);
        self.synthesizer_service = Service::Ready;
        let mut asked = Vec::new();
        for (id, job) in &mut self.jobs {
            job.verifying = false;
            job.library_check = false;
            for (index, partition) in job.partitions.iter_mut().enumerate() {
                if let PartitionState::Synthesizing { .. } = partition.state {
                    // A thread may still be at it: its memory counts until then.
                    partition.let_go(PartitionState::Waiting, &mut self.memory);
                    self.num_synthesizing -= 1;
                    asked.push((*id, PartitionIndex(index as u32)));
                }
            }
        }
        for (job, index) in asked {
            self.now_waiting(job, index);
            self.rank_changed(job);
        }
        if let Some(check) = self.key_check.take() {
            let (num_bytes, holders) = check.into_memory();
            self.memory.release_after(HostPart::Witnesses, num_bytes, holders);
        }
        self.ask_for_circuits_again();
        let jobs: Vec<JobId> = self.jobs.keys().copied().collect();
        for job in jobs {
            self.verify_waiting(job);
            self.check_whole(job);
        }
        self.pump();
    }
}

impl Handler<WitnessSynthesized> for Scheduler {
    type Result = ();

    fn handle(&mut self, made: WitnessSynthesized, _: &mut Context<Self>) {
        let Some(index) = made.at.partition else { return };
        let Some(job) = self.jobs.get_mut(&made.at.job) else { return };
        let partition = job.partition(index);
        let rows = match &partition.state {
            PartitionState::Synthesizing { lease, rows } if lease.is_same(&made.lease) => *rows,
            // Late, or of a thread that was asked by an earlier Synthesizer: the other answer comes.
            _ => return,
        };
        let witness = Witness { values: made.witness, public_inputs: made.public_inputs, rows };
        partition.state = PartitionState::Ready { witness };
        job.timings.synthesis += made.elapsed;
        job.tell(&JobEvent::WitnessReady { partition: index, elapsed: made.elapsed });
        self.num_synthesizing -= 1;
        self.now_ready(made.at.job, index);
        self.tell_witness_made(made.at.job, index, made.elapsed);
        self.pump();
    }
}

impl Handler<SynthesisFailed> for Scheduler {
    type Result = ();

    fn handle(&mut self, failed: SynthesisFailed, _: &mut Context<Self>) {
        let SynthesisFailed { at, error } = failed;
        let (Some(index), Some(job)) = (at.partition, self.jobs.get_mut(&at.job)) else { return };
        match &job.partition(index).state {
            PartitionState::Synthesizing { .. } => {}
            // Its proof does not verify, and it is the witness's fault.
            PartitionState::Proved { attempt, asked: true, .. } if Some(*attempt) == at.attempt => {
                tracing::error!(%at, %error, "a proof does not verify, since its witness does not satisfy the circuit");
            }
            // Asked twice after a restart: the other answer came first.
            _ => return,
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
        let circuit = job.circuit().clone();
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
        if !holds {
            tracing::error!(%at, "proof does not verify");
            self.totals.invalid_proofs += 1;
            self.doubt(at.job, index);
            return;
        }
        partition.let_go(PartitionState::Done { device: device.clone(), proof }, &mut self.memory);
        job.tell(&JobEvent::PartitionVerified { partition: index, device: device.clone() });
        self.rank_changed(at.job);
        if let Some(entry) = self.devices.get_mut(&device) {
            entry.num_proved += 1;
            entry.health.record_success(now);
        }
        self.tell_verified(&at, &device);
        self.vouch_for(&circuit);
    }
}

impl Handler<JobVerified> for Scheduler {
    type Result = ();

    fn handle(&mut self, verified: JobVerified, _: &mut Context<Self>) {
        let Some(job) = self.jobs.get_mut(&verified.job) else { return };
        job.timings.verify += verified.elapsed;
        match verified.result {
            Ok(()) => self.complete(verified.job, verified.proof),
            Err(what) => {
                tracing::error!(job = %verified.job, %what, "the circuit's library refuses a proof that verifies");
                self.finish(
                    verified.job,
                    Err(EngineError::Disputed { at: WorkRef::job(verified.job), what }),
                );
            }
        }
        self.pump();
    }
}
