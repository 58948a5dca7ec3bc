//! Whose fault it is that a proof does not verify: the device's that made it, or the key's.
//!
//! A device is blamed for its first invalid proof and the partition goes elsewhere. If by then no proof of this key
//! has ever verified, a second one is not held against anybody yet: the partition is *suspect*, and the host proves it
//! once itself. If the host's proof verifies, the key is right and the devices were wrong. If it does not, the key is
//! wrong: every job of it ends with that, and what devices were blamed for under it is taken back. The same question
//! is asked before a partition is given up because its attempts are used up.
//!
//! One such proof at a time, in memory that is reserved for it ahead of new witnesses.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use actix::{Context, Handler};

use super::circuits::{path_of, Circuit};
use super::job::{Partition, PartitionState};
use super::memory::Holder;
use super::Scheduler;
use crate::error::{DeviceError, EngineError, SrsError};
use crate::ids::{CircuitId, DeviceId, JobId, PartitionIndex, WorkRef};
use crate::messages::events::AttemptRef;
use crate::messages::synthesis::{CheckKey, KeyChecked, KeyVerdict, MemoryLease};
use crate::policy::health::Failure;
use crate::policy::host_memory::HostPart;

/// What is known about a key since it was loaded.
#[derive(Default)]
pub(super) struct KeyRecord {
    /// A proof made with it has verified.
    pub is_right: bool,
    /// Invalid proofs that were held against devices, and when.
    blamed: Vec<(DeviceId, Duration)>,
}

/// Entries of [`KeyRecord::blamed`] at most. Beyond that the oldest are past any window in which they count.
const MAX_BLAMED: usize = 64;

/// The host's own proof that is being made.
pub(super) struct KeyCheck {
    at: WorkRef,
    num_bytes: u64,
    lease: MemoryLease,
}

impl KeyCheck {
    /// The reservation, and who holds it.
    pub fn into_memory(self) -> (u64, Vec<Holder>) {
        (self.num_bytes, vec![self.lease.watch() as Holder])
    }
}

impl Scheduler {
    /// The proof that waits for its verdict there does not verify.
    pub(super) fn doubt(&mut self, id: JobId, index: PartitionIndex) {
        let max_attempts = self.config.max_attempts;
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let circuit = job.circuit().clone();
        let partition = job.partition(index);
        let last = std::mem::replace(&mut partition.state, PartitionState::Waiting);
        let PartitionState::Proved { attempt, device, witness, .. } = last else {
            unreachable!("a verdict is taken only of a partition that waits for it")
        };
        partition.state = PartitionState::Suspect { attempt, device, witness };
        self.suspects.insert((id, index));
        let is_last = partition.is_exhausted(max_attempts) && !partition.host_checked;
        let is_known = match self.circuits.get(&circuit) {
            Some(Circuit::Ready(ready)) => ready.key.is_right || ready.key.blamed.is_empty(),
            _ => true,
        };
        if is_known && !is_last {
            self.convict(id, index);
        }
    }

    /// Holds a suspect partition's invalid proof against its device, and tries the partition again.
    fn convict(&mut self, id: JobId, index: PartitionIndex) {
        let now = self.now();
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let circuit = job.circuit().clone();
        let PartitionState::Suspect { attempt, device, .. } = &job.partition(index).state else { return };
        let (attempt, device) = (*attempt, device.clone());
        if let Some(entry) = self.devices.get_mut(&device) {
            entry.num_invalid += 1;
            entry.health.record_failure(Failure::InvalidProof, now);
        }
        if let Some(Circuit::Ready(ready)) = self.circuits.get_mut(&circuit) {
            let blamed = &mut ready.key.blamed;
            if blamed.len() == MAX_BLAMED {
                blamed.remove(0);
            }
            blamed.push((device.clone(), now));
        }
        let told = AttemptRef { job: id, partition: index, attempt };
        self.tell_attempt_failed(told, &device, true, "its proof does not verify");
        let at = WorkRef::partition(id, index).with_attempt(attempt).on(device.clone());
        self.retry(id, index, &device, DeviceError::InvalidProof { at });
    }

    /// Has the host prove the most urgent suspect partition. `false`: it waits for memory, which is to go to nobody
    /// else before.
    pub(super) fn check_keys(&mut self) -> bool {
        if self.key_check.is_some() || self.synthesizer.is_none() {
            return true;
        }
        let rank = |(id, index): &&(JobId, PartitionIndex)| {
            (self.jobs[id].spec.priority, Reverse(*id), Reverse(*index))
        };
        let Some(&(id, index)) = self.suspects.iter().max_by_key(rank) else { return true };
        let Some(circuit) = self.prepared(id) else { return true };
        let num_bytes = circuit.host_proof_bytes();
        if !self.memory.reserve(HostPart::Witnesses, num_bytes) {
            if self.releases_memory() {
                return false;
            }
            // Nothing that runs will ever make room: it goes through, as one partition always does.
            self.memory.reserve_beyond(HostPart::Witnesses, num_bytes);
        }
        let Some(job) = self.jobs.get_mut(&id) else { return true };
        let blinding = job.blinding(index);
        let (priority, cancel, span) = (job.spec.priority, job.cancel.clone(), job.spec.span.clone());
        let PartitionState::Suspect { attempt, device, witness } = &job.partition(index).state else {
            unreachable!("it was just found to be suspect")
        };
        let at = WorkRef::partition(id, index).with_attempt(*attempt).on(device.clone());
        tracing::warn!(%at, "whether the device or the key is wrong: the host proves it too");
        let lease = MemoryLease::default();
        self.key_check = Some(KeyCheck { at: at.clone(), num_bytes, lease: lease.clone() });
        let (witness, public_inputs) = (Arc::clone(&witness.values), Arc::clone(&witness.public_inputs));
        if let Some(synthesizer) = &self.synthesizer {
            let command =
                CheckKey { at, circuit, witness, public_inputs, blinding, priority, cancel, lease, span };
            synthesizer.check_key.do_send(command);
        }
        true
    }

    /// Something is under way that gives host memory back when it ends.
    fn releases_memory(&self) -> bool {
        let runs = |partition: &Partition| {
            matches!(
                partition.state,
                PartitionState::Synthesizing { .. }
                    | PartitionState::Proving { .. }
                    | PartitionState::Proved { .. }
            )
        };
        self.memory.lingering_bytes(HostPart::Witnesses) > 0
            || self.jobs.values().any(|job| job.partitions.iter().any(runs))
    }

    /// Every suspect partition whose device is now known to be at fault.
    fn convict_suspects(&mut self, circuit: &CircuitId) {
        let max_attempts = self.config.max_attempts;
        let mut guilty = Vec::new();
        for (id, job) in self.jobs.iter().filter(|(_, job)| job.circuit() == circuit) {
            for (index, partition) in job.partitions.iter().enumerate() {
                let is_suspect = matches!(partition.state, PartitionState::Suspect { .. });
                if is_suspect && (partition.host_checked || !partition.is_exhausted(max_attempts)) {
                    guilty.push((*id, PartitionIndex(index as u32)));
                }
            }
        }
        for (id, index) in guilty {
            self.convict(id, index);
        }
    }

    /// The key is wrong: its jobs end, the circuit is forgotten, and no device was at fault.
    fn condemn(&mut self, id: &CircuitId) {
        let now = self.now();
        let Some(Circuit::Ready(ready)) = self.circuits.get_mut(id) else { return };
        let path = path_of(&ready.circuit.source);
        tracing::error!(circuit = %id, path = %path.display(), "no proof by this key verifies, not the host's either");
        for (device, at) in std::mem::take(&mut ready.key.blamed) {
            if let Some(entry) = self.devices.get_mut(&device) {
                entry.num_invalid -= 1;
                entry.health.forgive(Failure::InvalidProof, at, now);
            }
        }
        for job in self.jobs_of(id) {
            let source = SrsError::Unfit { path: path.clone() };
            self.finish(job, Err(EngineError::Srs { circuit: id.clone(), source }));
        }
        self.drop_key(id);
    }

    /// A proof of this circuit has verified: from now on an invalid one is the device's.
    pub(super) fn vouch_for(&mut self, circuit: &CircuitId) {
        match self.circuits.get_mut(circuit) {
            Some(Circuit::Ready(ready)) if !ready.key.is_right => ready.key.is_right = true,
            _ => return,
        }
        self.convict_suspects(circuit);
    }
}

impl Handler<KeyChecked> for Scheduler {
    type Result = ();

    fn handle(&mut self, checked: KeyChecked, _: &mut Context<Self>) {
        let KeyChecked { at, circuit, verdict, elapsed } = checked;
        // Another: the Synthesizer was rebuilt since, and the question asked again.
        let Some(check) = self.key_check.take_if(|check| check.at == at) else { return };
        let (num_bytes, holders) = check.into_memory();
        self.memory.release_after(HostPart::Witnesses, num_bytes, holders);
        let is_current = match self.circuits.get(&circuit.id) {
            Some(Circuit::Ready(ready)) => Arc::ptr_eq(&ready.circuit, &circuit),
            _ => false,
        };
        if let (Some(index), Some(job)) = (at.partition, self.jobs.get_mut(&at.job)) {
            job.timings.verify += elapsed;
            // Whatever came out: it is not asked twice of one partition.
            job.partition(index).host_checked = true;
        }
        match verdict {
            _ if !is_current => {}
            KeyVerdict::Wrong => self.condemn(&circuit.id),
            KeyVerdict::Right => {
                self.vouch_for(&circuit.id);
                self.convict_suspects(&circuit.id);
            }
            KeyVerdict::Unknown => {
                if let Some(index) = at.partition {
                    self.convict(at.job, index);
                }
            }
        }
        self.pump();
    }
}
