//! Circuits in host memory: measured, given memory, loaded, used, let go.
//!
//! ```text
//! (none) -> Measuring -> Waiting -> Loading -> Ready -> (none)
//!           file's       memory is  SRS and    jobs     idle, and its memory
//!           counts       reserved   shape               is wanted
//! ```
//!
//! Nothing is read before its memory is reserved. Idle circuits make room for one that waits; circuits in use never do,
//! but jobs that have not begun and come after the one that waits do not begin before it, so that its wait has an end.
//! One is let through whatever it takes if there is no other, so that a small budget is slow and not stuck; and so is
//! one of a CRITICAL job, which must not wait for others to end.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::blame::KeyRecord;
use super::job::Job;
use super::memory::Holder;
use super::srs_store::Demand;
use super::Scheduler;
use crate::backend::MemoryModel;
use crate::circuits::{SrsSource, Workload};
use crate::error::{DeviceError, RequestError};
use crate::ids::{CircuitId, JobId, PartitionIndex, WorkRef};
use crate::messages::device::{CancelFlag, EvictSrs};
use crate::messages::job::Priority;
use crate::messages::synthesis::{
    CircuitNeeds, MeasureCircuit, MemoryLease, PrepareCircuit, PreparedCircuit,
};
use crate::policy::host_memory::HostPart;
use crate::policy::plan::{least_budget_bytes, EvaluationSummary, ShapeSummary};
use crate::policy::queue::Waiting;

/// A circuit in host memory, or on its way there.
pub(super) enum Circuit {
    /// What it takes is being found out.
    Measuring {
        source: SrsSource,
    },
    /// Its memory is not there yet.
    Waiting {
        source: SrsSource,
        needs: CircuitNeeds,
    },
    Loading(LoadingCircuit),
    Ready(ReadyCircuit),
}

pub(super) struct LoadingCircuit {
    pub source: SrsSource,
    pub needs: CircuitNeeds,
    cancel: CancelFlag,
    pub lease: MemoryLease,
}

pub(super) struct ReadyCircuit {
    pub circuit: Arc<PreparedCircuit>,
    /// When a job of it last came in or ended.
    pub used_at: Duration,
    pub key: KeyRecord,
    /// It stays until it is evicted.
    pub pinned: bool,
}

impl Circuit {
    /// The key it was made with, or will be. An answer about an earlier key of the same id must not count for it.
    pub fn source(&self) -> &SrsSource {
        match self {
            Self::Measuring { source } | Self::Waiting { source, .. } => source,
            Self::Loading(loading) => &loading.source,
            Self::Ready(ready) => &ready.circuit.source,
        }
    }

    /// Stops the worker that loads it, if one does. Changes no books.
    pub fn cancel_loading(&self) {
        if let Self::Loading(loading) = self {
            loading.cancel.cancel();
        }
    }

    pub fn is_pinned(&self) -> bool {
        matches!(self, Self::Ready(ReadyCircuit { pinned: true, .. }))
    }

    /// For the status: whether it can be used, and the memory that is reserved for it.
    pub fn as_status(&self) -> (&'static str, u64) {
        match self {
            Self::Measuring { .. } | Self::Waiting { .. } => ("loading", 0),
            Self::Loading(loading) => ("loading", loading.needs.num_bytes),
            Self::Ready(ready) => ("ready", ready.circuit.num_bytes),
        }
    }
}

/// Whether two sources give the same proving key, as far as can be told without reading files.
pub(super) fn is_same_key(a: &SrsSource, b: &SrsSource) -> bool {
    match (a, b) {
        (SrsSource::File(a), SrsSource::File(b)) => a == b,
        (SrsSource::Memory(a), SrsSource::Memory(b)) => {
            Arc::ptr_eq(a, b) || (a.vk == b.vk && a.num_bytes() == b.num_bytes())
        }
        _ => false,
    }
}

/// The file of a key, for messages.
pub(super) fn path_of(source: &SrsSource) -> PathBuf {
    match source {
        SrsSource::File(file) => file.path.clone(),
        SrsSource::Memory(_) => PathBuf::from("<memory>"),
    }
}

/// Everything that keeps a circuit's memory: workers hold the whole, devices its parts. A key that the host gave us
/// is the host's own, and stays.
fn holders_of(circuit: &Arc<PreparedCircuit>) -> Vec<Holder> {
    let mut holders: Vec<Holder> =
        vec![Arc::downgrade(circuit) as Holder, Arc::downgrade(&circuit.shape) as Holder];
    if let SrsSource::File(_) = circuit.source {
        holders.push(Arc::downgrade(&circuit.srs) as Holder);
    }
    holders
}

/// The least that one witness takes on the host: which variables are bits is known once the shape is there.
fn least_witness_bytes(shape: &ShapeSummary) -> u64 {
    32 * shape.num_inputs + 8 * shape.num_aux.div_ceil(64)
}

/// The least memory of a device with which a partition can be planned. Until the shape is there: as if all variables were bits
/// and the matrices took nothing, so that no device is ruled out that may do.
pub(super) fn least_vram_bytes(needs: &CircuitNeeds, model: MemoryModel) -> u64 {
    let lightest = EvaluationSummary { shape_bytes: 0, num_dense: 0 };
    let evaluation = needs.shape.evaluation.or(Some(lightest));
    let srs = match model {
        MemoryModel::Dedicated => needs.srs,
        MemoryModel::SharedWithHost => needs.srs.in_place(),
    };
    least_budget_bytes(&ShapeSummary { evaluation, ..needs.shape }, &srs)
}

impl Scheduler {
    /// Sets a circuit on its way, unless it is.
    pub(super) fn ensure_circuit(
        &mut self,
        workload: &dyn Workload,
        priority: Priority,
        span: tracing::Span,
    ) {
        let now = self.now();
        match self.circuits.get_mut(workload.circuit()) {
            Some(Circuit::Ready(ready)) => {
                ready.used_at = now;
                return;
            }
            Some(_) => return,
            None => {}
        }
        let (circuit, source) = (workload.circuit().clone(), workload.srs());
        self.circuits.insert(circuit.clone(), Circuit::Measuring { source: source.clone() });
        if let Some(synthesizer) = &self.synthesizer {
            synthesizer.measure.do_send(MeasureCircuit { circuit, source, priority, span });
        }
    }

    /// After the Synthesizer was rebuilt: asks again for what is on its way. Circuits that no job needs are forgotten
    /// instead, so that their next job asks for them.
    pub(super) fn ask_for_circuits_again(&mut self) {
        let ids: Vec<CircuitId> = self.circuits.keys().cloned().collect();
        for id in ids {
            if !matches!(self.circuits[&id], Circuit::Measuring { .. } | Circuit::Loading(_)) {
                continue;
            }
            self.remove_circuit(&id);
            self.ask_for_circuit_of_waiting_jobs(&id);
        }
    }

    fn ask_for_circuit_of_waiting_jobs(&mut self, id: &CircuitId) {
        let Some(Demand { workload, waiting, span }) = self.demand_for(id) else { return };
        self.ensure_circuit(workload.as_ref(), waiting.priority, span);
    }

    /// The job of a circuit that decides how urgent it is.
    pub(super) fn most_urgent_of(&self, circuit: &CircuitId) -> Option<JobId> {
        let jobs = self.jobs.iter().filter(|(_, job)| job.circuit() == circuit);
        jobs.max_by_key(|(id, job)| (job.spec.priority, std::cmp::Reverse(**id))).map(|(id, _)| *id)
    }

    pub(super) fn jobs_of(&self, circuit: &CircuitId) -> Vec<JobId> {
        self.jobs.iter().filter(|(_, job)| job.circuit() == circuit).map(|(id, _)| *id).collect()
    }

    /// The circuit that is next to be given memory: of those that wait, the one whose demand comes first in the queue.
    pub(super) fn next_circuit(&self) -> Option<(Demand, CircuitId, CircuitNeeds)> {
        let mut waiting: Vec<(Demand, CircuitId, CircuitNeeds)> = self
            .circuits
            .iter()
            .filter_map(|(id, circuit)| match circuit {
                Circuit::Waiting { needs, .. } => Some((self.demand_for(id)?, id.clone(), *needs)),
                _ => None,
            })
            .collect();
        let ranked: Vec<Waiting> = waiting.iter().map(|(demand, ..)| demand.waiting.clone()).collect();
        let next = self.config.queue.next(&ranked, self.now(), |_| false)?;
        Some(waiting.swap_remove(next))
    }

    /// Gives a circuit its memory and has it loaded. `false`: it has to wait for what others hold.
    pub(super) fn load_circuit(&mut self, demand: Demand, id: CircuitId, needs: CircuitNeeds) -> bool {
        // A circuit without room for a witness would be of no use.
        let wanted_bytes = needs.num_bytes.saturating_add(least_witness_bytes(&needs.shape));
        self.let_idle_circuits_go(wanted_bytes);
        if self.memory.budget().fits(wanted_bytes) {
            self.memory.reserve_beyond(HostPart::Circuits, needs.num_bytes);
        } else if !self.memory.reserve_if_none(HostPart::Circuits, needs.num_bytes) {
            if demand.waiting.priority != Priority::Critical {
                return false;
            }
            let (needs_bytes, limit_bytes) = (needs.num_bytes, self.memory.budget().limit_bytes());
            tracing::warn!(circuit = %id, needs_bytes, limit_bytes, "over budget: a CRITICAL job needs it");
            self.memory.reserve_beyond(HostPart::Circuits, needs_bytes);
        }
        self.load(demand, id, needs);
        true
    }

    fn load(&mut self, demand: Demand, id: CircuitId, needs: CircuitNeeds) {
        let Demand { workload, waiting, span } = demand;
        let (cancel, lease) = (CancelFlag::default(), MemoryLease::default());
        let (circuit, source) = (id.clone(), workload.srs());
        let loading =
            LoadingCircuit { source: source.clone(), needs, cancel: cancel.clone(), lease: lease.clone() };
        let priority = waiting.priority;
        let command = PrepareCircuit { circuit, source, workload, priority, cancel, lease, span };
        self.circuits.insert(id, Circuit::Loading(loading));
        if let Some(synthesizer) = &self.synthesizer {
            synthesizer.prepare.do_send(command);
        }
    }

    /// The demand of each circuit that waits for memory.
    pub(super) fn demands_for_memory(&self) -> Vec<Waiting> {
        let waiting = self.circuits.iter().filter_map(|(id, circuit)| match circuit {
            Circuit::Waiting { .. } => self.demand_for(id),
            _ => None,
        });
        waiting.map(|demand| demand.waiting).collect()
    }

    /// Whether a job has to wait although its circuit is there: another job's is not, has no room because of it, and
    /// that one's turn is first. CRITICAL jobs do not wait for that, nor jobs that have begun.
    pub(super) fn yields(&self, job: &Job, waiting: &[Waiting]) -> bool {
        if waiting.is_empty() || job.began || job.spec.priority == Priority::Critical {
            return false;
        }
        let own = job.as_waiting(PartitionIndex(0), 0);
        let goes_first = |other: &Waiting| {
            other.circuit != own.circuit
                && self.config.queue.next(&[other.clone(), own.clone()], self.now(), |_| false) == Some(0)
        };
        waiting.iter().any(goes_first)
    }

    /// Lets circuits go that no job uses, least recently used first, until `needs_bytes` more fit beside the rest, or
    /// would if all that was let go were free already.
    pub(super) fn let_idle_circuits_go(&mut self, needs_bytes: u64) {
        while !self.memory.will_fit(needs_bytes) {
            let Some(id) = self.least_recently_used() else { return };
            tracing::info!(circuit = %id, needs_bytes, "idle circuit is let go");
            self.remove_circuit(&id);
            self.ask_for_circuit_of_waiting_jobs(&id);
        }
    }

    /// The circuit that has been idle for longest: no job uses it, but for those that have to wait for another circuit,
    /// and nobody wants it to stay.
    fn least_recently_used(&self) -> Option<CircuitId> {
        let waiting = self.demands_for_memory();
        let is_idle = |id: &CircuitId| {
            let mut jobs = self.jobs.values().filter(|job| job.circuit() == id);
            jobs.all(|job| self.yields(job, &waiting)) && !self.wanted.contains_key(id)
        };
        let idle = self.circuits.iter().filter_map(|(id, circuit)| match circuit {
            Circuit::Ready(ready) if !ready.pinned && is_idle(id) => Some((ready.used_at, id)),
            _ => None,
        });
        idle.min().map(|(_, id)| id.clone())
    }

    /// Lets circuits go, here and on the devices, that have been idle for longer than anybody wants them kept.
    pub(super) fn let_long_idle_circuits_go(&mut self) {
        let Some(limit) = self.config.idle_limit else { return };
        let now = self.now();
        while let Some(id) = self.least_recently_used() {
            let Some(Circuit::Ready(ready)) = self.circuits.get(&id) else { return };
            let is_in_use = self.jobs.values().any(|job| *job.circuit() == id);
            if is_in_use || now.saturating_sub(ready.used_at) < limit {
                return;
            }
            tracing::info!(circuit = %id, "circuit was idle for long and is let go");
            self.drop_key(&id);
        }
    }

    /// Forgets a circuit. Its memory is free once nobody holds it any more.
    pub(super) fn remove_circuit(&mut self, id: &CircuitId) {
        match self.circuits.remove(id) {
            Some(Circuit::Loading(loading)) => {
                loading.cancel.cancel();
                let holders: Vec<Holder> = vec![loading.lease.watch() as Holder];
                let num_bytes = loading.needs.num_bytes;
                drop(loading);
                self.memory.release_after(HostPart::Circuits, num_bytes, holders);
            }
            Some(Circuit::Ready(ready)) => {
                let holders = holders_of(&ready.circuit);
                let num_bytes = ready.circuit.num_bytes;
                if ready.pinned {
                    self.memory.unpin(num_bytes);
                }
                drop(ready);
                self.memory.release_after(HostPart::Circuits, num_bytes, holders);
            }
            Some(Circuit::Measuring { .. } | Circuit::Waiting { .. }) | None => {}
        }
    }

    /// Stops loading: nobody will need it.
    pub(super) fn stop_loading(&mut self) {
        let ids: Vec<CircuitId> = self
            .circuits
            .iter()
            .filter(|(_, circuit)| !matches!(circuit, Circuit::Ready(_)))
            .map(|(id, _)| id.clone())
            .collect();
        ids.iter().for_each(|id| self.remove_circuit(id));
    }

    /// One id names one proving key at a time. Another key under the same id takes over once nothing uses the old.
    pub(super) fn make_room_for_key(&mut self, workload: &dyn Workload) -> Result<(), RequestError> {
        let id = workload.circuit();
        match self.circuits.get(id) {
            Some(held) if !is_same_key(held.source(), &workload.srs()) => {}
            _ => return Ok(()),
        }
        if self.wanted.contains_key(id) || self.jobs.values().any(|job| job.circuit() == id) {
            return Err(RequestError::Contradiction {
                left: "circuit".into(),
                left_value: id.to_string(),
                right: "the circuit of that name in use".into(),
                right_value: "another proving key".into(),
            });
        }
        self.drop_key(id);
        Ok(())
    }

    /// Forgets a circuit, here and on every device. A cancelled partition may still use it there.
    pub(super) fn drop_key(&mut self, id: &CircuitId) {
        self.remove_circuit(id);
        for (_, device) in self.devices.iter() {
            if let Some(address) = &device.address {
                address.evict.do_send(EvictSrs { circuit: id.clone(), when_idle: true });
            }
        }
    }

    pub(super) fn prepared(&self, job: JobId) -> Option<Arc<PreparedCircuit>> {
        match self.circuits.get(self.jobs.get(&job)?.circuit()) {
            Some(Circuit::Ready(ready)) => Some(Arc::clone(&ready.circuit)),
            _ => None,
        }
    }

    /// Ends jobs of circuits that are still to be loaded, if no device could ever prove them: before anything of
    /// them is read.
    pub(super) fn fail_unplannable(&mut self) {
        let unloaded: Vec<(CircuitId, CircuitNeeds)> = self
            .circuits
            .iter()
            .filter_map(|(id, circuit)| match circuit {
                Circuit::Waiting { needs, .. } => Some((id.clone(), *needs)),
                _ => None,
            })
            .collect();
        for (id, needs) in unloaded {
            for job in self.jobs_of(&id) {
                let spec = &self.jobs[&job].spec;
                let least = |model: MemoryModel| least_vram_bytes(&needs, model);
                let Some(source) = self.devices.shortfall(&spec.placement, spec.priority, least) else {
                    continue;
                };
                let at = WorkRef::job(job);
                self.finish(job, Err(DeviceError::Plan { at, source }.into()));
            }
            self.fail_unplannable_want(&id, &needs);
            if self.demand_for(&id).is_none() {
                self.remove_circuit(&id);
            }
        }
    }
}
