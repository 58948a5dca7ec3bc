//! What the Synthesizer tells of circuits: their sizes, how far loading is, and how it ended.

use actix::{Context, Handler};

use super::blame::KeyRecord;
use super::circuits::{is_same_key, Circuit, ReadyCircuit};
use super::Scheduler;
use crate::error::{EngineError, SrsError};
use crate::ids::{CircuitId, JobId, WorkRef};
use crate::messages::events::EventKind;
use crate::messages::job::JobEvent;
use crate::messages::synthesis::{
    CircuitError, CircuitFailed, CircuitMeasured, CircuitPrepared, CircuitProgress,
};
use crate::policy::host_memory::HostPart;

impl Handler<CircuitMeasured> for Scheduler {
    type Result = ();

    fn handle(&mut self, measured: CircuitMeasured, _: &mut Context<Self>) {
        let CircuitMeasured { circuit, source, needs } = measured;
        match self.circuits.get_mut(&circuit) {
            Some(entry @ Circuit::Measuring { .. }) if is_same_key(entry.source(), &source) => {
                *entry = Circuit::Waiting { source, needs };
            }
            // Measured twice after a restart, or an earlier key of this id.
            _ => return,
        }
        self.fail_want_that_never_fits(&circuit, needs.num_bytes);
        if self.demand_for(&circuit).is_none() {
            self.remove_circuit(&circuit);
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
        let CircuitPrepared { circuit, lease, elapsed } = prepared;
        let now = self.now();
        let id = circuit.id.clone();
        let num_bytes = circuit.num_bytes;
        let reserved_bytes = match self.circuits.get_mut(&id) {
            Some(entry) => match entry {
                Circuit::Loading(loading) if loading.lease.is_same(&lease) => {
                    let reserved_bytes = loading.needs.num_bytes;
                    let key = KeyRecord::default();
                    *entry = Circuit::Ready(ReadyCircuit { circuit, used_at: now, key, pinned: false });
                    reserved_bytes
                }
                // Prepared twice after a restart, or an earlier key of this id.
                _ => return,
            },
            // No longer wanted.
            None => return,
        };
        // The shape's part was an estimate.
        self.memory.reserve_beyond(HostPart::Circuits, num_bytes);
        self.memory.release(HostPart::Circuits, reserved_bytes);
        self.config.events.emit(|| EventKind::CircuitReady {
            circuit: id.clone(),
            num_bytes,
            elapsed_us: elapsed.as_micros() as u64,
        });
        for job in self.jobs.values_mut().filter(|job| *job.circuit() == id) {
            job.timings.circuit_load = now.saturating_sub(job.spec.accepted_at).min(elapsed);
            job.tell(&JobEvent::CircuitReady { circuit: id.clone() });
        }
        self.pin_if_wanted(&id);
        self.let_idle_circuits_go(0);
        self.pump();
    }
}

impl Handler<CircuitFailed> for Scheduler {
    type Result = ();

    fn handle(&mut self, failed: CircuitFailed, _: &mut Context<Self>) {
        let CircuitFailed { circuit, source, error } = failed;
        if let CircuitError::Srs(SrsError::Stopped { .. }) = error {
            // Whoever stopped it had forgotten it before: what is there under this id now is another load, of the same
            // key perhaps (after an eviction, or a Synthesizer's restart), and none of its jobs is concerned.
            return;
        }
        match self.circuits.get(&circuit) {
            Some(Circuit::Measuring { source: asked }) if is_same_key(asked, &source) => {}
            Some(Circuit::Loading(loading)) if is_same_key(&loading.source, &source) => {}
            _ => return,
        }
        self.remove_circuit(&circuit);
        for job in self.jobs_of(&circuit) {
            self.finish(job, Err(circuit_error(job, &circuit, &error)));
        }
        let at = WorkRef::job(JobId(0));
        self.fail_want(&circuit, |id| match error.clone() {
            CircuitError::Srs(source) => EngineError::Srs { circuit: id.clone(), source },
            CircuitError::Synthesis(source) => EngineError::Synthesis { at: at.clone(), source },
        });
        self.pump();
    }
}

fn circuit_error(job: JobId, circuit: &CircuitId, error: &CircuitError) -> EngineError {
    match error.clone() {
        CircuitError::Srs(source) => EngineError::Srs { circuit: circuit.clone(), source },
        CircuitError::Synthesis(source) => EngineError::Synthesis { at: WorkRef::job(job), source },
    }
}
