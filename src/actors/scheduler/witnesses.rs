//! Host memory is given to whoever waits for it, circuits and witnesses alike, in the queue's order: what is released
//! next goes to the first of them.
//!
//! The first that does not fit holds the others back, so that it does not starve behind smaller ones; but one witness is
//! always let through, since only jobs that go on release what they hold. CRITICAL work waits neither for a thread nor for
//! memory: there is a thread for it, and it goes over the budget if need be.

use std::sync::Arc;

use super::job::PartitionState;
use super::Scheduler;
use crate::ids::{JobId, PartitionIndex, WorkRef};
use crate::messages::job::Priority;
use crate::messages::synthesis::{MemoryLease, PreparedCircuit, RowsCheck, SynthesizeWitness};
use crate::policy::host_memory::HostPart;
use crate::policy::queue::Waiting;

impl Scheduler {
    /// As far ahead as the budget and, for witnesses, the threads allow.
    pub(super) fn give_memory(&mut self) {
        // The host's own proof goes before new witnesses.
        let may_synthesize = self.check_keys();
        while self.synthesizer.is_some() && self.give_memory_once(may_synthesize) {}
    }

    /// `false`: nobody waits, or whoever is first has to go on waiting.
    fn give_memory_once(&mut self, may_synthesize: bool) -> bool {
        let circuit = self.next_circuit();
        let witness = if may_synthesize { self.next_witness() } else { None };
        match (circuit, witness) {
            (None, None) => false,
            (None, Some((job, partition))) => self.make_witness(job, partition, true),
            (Some((demand, id, needs)), None) => self.load_circuit(demand, id, needs),
            (Some((demand, id, needs)), Some((job, partition))) => {
                if self.goes_before(&demand.waiting, job, partition) {
                    self.load_circuit(demand, id, needs) || self.make_witness(job, partition, false)
                } else {
                    self.make_witness(job, partition, true)
                }
            }
        }
    }

    /// The partition that is next to have a witness made, if there is a thread for it. There always is one for CRITICAL
    /// work: the pool has one more than are given out here.
    fn next_witness(&mut self) -> Option<(JobId, PartitionIndex)> {
        let is_full = self.num_synthesizing >= self.config.max_synthesizing.max(1);
        if is_full && !self.waiting.has_critical() {
            return None;
        }
        let (job, partition, _) = self.next_of(true)?;
        (!is_full || self.is_critical(job)).then_some((job, partition))
    }

    fn is_critical(&self, job: JobId) -> bool {
        self.jobs[&job].spec.priority == Priority::Critical
    }

    fn goes_before(&self, circuit: &Waiting, job: JobId, partition: PartitionIndex) -> bool {
        let entry = &self.jobs[&job];
        let pair = [circuit.clone(), entry.as_waiting(partition, entry.num_under_way())];
        self.config.queue.next(&pair, self.now(), |_| false) == Some(0)
    }

    /// Has a witness made, if there is memory for it. `takes_free`: what is free may be taken; else only the one witness
    /// that is always let through is made. CRITICAL work does not wait for memory that others hold.
    fn make_witness(&mut self, job: JobId, partition: PartitionIndex, takes_free: bool) -> bool {
        let circuit = self.prepared(job).expect("only jobs whose circuit is ready are listed");
        let num_bytes = circuit.witness_bytes();
        let has_memory = if takes_free {
            self.let_idle_circuits_go(num_bytes);
            self.memory.reserve(HostPart::Witnesses, num_bytes)
        } else {
            self.memory.reserve_if_none(HostPart::Witnesses, num_bytes)
        };
        if !has_memory {
            if !self.is_critical(job) {
                return false;
            }
            self.memory.reserve_beyond(HostPart::Witnesses, num_bytes);
        }
        self.ask_for_witness(job, partition, circuit);
        true
    }

    fn ask_for_witness(&mut self, job: JobId, index: PartitionIndex, circuit: Arc<PreparedCircuit>) {
        let now = self.now();
        self.waiting.remove(job, index);
        self.num_synthesizing += 1;
        let entry = self.jobs.get_mut(&job).expect("a listed partition's job is in the table");
        if !std::mem::replace(&mut entry.began, true) {
            self.not_begun.remove(entry.spec.priority, job);
            entry.timings.queue_wait =
                now.saturating_sub(entry.spec.accepted_at + entry.timings.circuit_load);
        }
        let lease = MemoryLease::default();
        let rows = if self.devices.check_rows() { RowsCheck::ByDevice } else { RowsCheck::All };
        let command = SynthesizeWitness {
            at: WorkRef::partition(job, index),
            workload: Arc::clone(&entry.spec.workload),
            priority: entry.spec.priority,
            cancel: entry.cancel.clone(),
            span: entry.spec.span.clone(),
            circuit: Arc::clone(&circuit),
            rows,
            lease: lease.clone(),
        };
        let partition = entry.partition(index);
        partition.state = PartitionState::Synthesizing { lease, rows };
        partition.witness_bytes = circuit.witness_bytes();
        if let Some(synthesizer) = &self.synthesizer {
            synthesizer.witness.do_send(command);
        }
        self.rank_changed(job);
        self.tell_witness_begun(job, index, circuit.witness_bytes());
    }
}
