//! Circuits that are wanted although no job may need them now: preloaded, kept, evicted.
//!
//! ```text
//! PreloadCircuit, warmup list --> Wanted --(circuits.rs)--> on the host --PreloadSrs--> each device --SrsPreloaded--> answer
//! ```
//!
//! A want is a demand for the circuit like a job's. When the host and every device in service have it, or have said why
//! not, whoever asked is answered; a want that is pinned then stays, so that a device which is rebuilt gets the key again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use actix::{Context, Handler, ResponseFuture};
use tokio::sync::oneshot;

use super::circuits::{least_vram_bytes, Circuit};
use super::devices::{Device, Service};
use super::memory::Holder;
use super::Scheduler;
use crate::backend::{MemoryModel, PartitionWork};
use crate::circuits::Workload;
use crate::error::{DeviceError, EngineError, ScheduleError};
use crate::groth16::{Blinding, PackedWitness, R1csShape};
use crate::ids::{CircuitId, DeviceId, JobId, PartitionIndex, WorkRef};
use crate::messages::device::{EvictSrs, LaneCredit};
use crate::messages::job::{Placement, Priority};
use crate::messages::srs::{
    CircuitEvicted, CircuitLoaded, EvictCircuit, PreloadCircuit, PreloadSrs, Residence, SrsPreloaded,
};
use crate::messages::synthesis::{CircuitNeeds, PreparedCircuit};
use crate::policy::health::Health;
use crate::policy::host_memory::HostPart;
use crate::policy::queue::Waiting;
use crate::policy::role::Role;

/// Who needs a circuit most: a job, or a want.
pub(super) struct Demand {
    pub workload: Arc<dyn Workload>,
    /// Its place in the queue.
    pub waiting: Waiting,
    pub span: tracing::Span,
}

/// A circuit that is to be loaded, or to stay.
pub(super) struct Wanted {
    workload: Arc<dyn Workload>,
    priority: Priority,
    since: Duration,
    span: tracing::Span,
    pinned: bool,
    on_devices: bool,
    is_warmup: bool,
    was_loaded: bool,
    callers: Vec<oneshot::Sender<Result<CircuitLoaded, EngineError>>>,
    devices: BTreeMap<DeviceId, Asked>,
    /// Whoever asked was answered.
    settled: bool,
}

/// What one life of a device was asked, and said.
struct Asked {
    life: u64,
    residence: Option<Residence>,
    /// The witness that only fills the place of one.
    filler: Option<(u64, Holder)>,
}

impl Wanted {
    fn as_waiting(&self) -> Waiting {
        Waiting {
            // Behind every job that came at the same time.
            job: JobId(u64::MAX),
            partition: PartitionIndex(0),
            circuit: self.workload.circuit().clone(),
            priority: self.priority,
            since: self.since,
            deadline: None,
            job_under_way: 0,
        }
    }

    fn answer_of(&self, id: &DeviceId, device: &Device) -> Option<&Residence> {
        self.devices.get(id).filter(|asked| asked.life == device.life)?.residence.as_ref()
    }
}

/// Whether keys are loaded there ahead of work. A fallback reads them where the host has them.
fn is_to_be_asked(device: &Device, now: Duration) -> bool {
    device.service == Service::Ready
        && device.role != Role::Fallback
        && device.health.health(now) != Health::Quarantined
}

impl Scheduler {
    /// At the start: what is to be there before the engine counts as ready.
    pub(super) fn want_warmup(&mut self) {
        for workload in self.config.warmup.clone() {
            let priority = Priority::of(workload.kind());
            self.want(workload, priority, true, true, tracing::Span::none()).is_warmup = true;
        }
    }

    fn want(
        &mut self,
        workload: Arc<dyn Workload>,
        priority: Priority,
        pinned: bool,
        on_devices: bool,
        span: tracing::Span,
    ) -> &mut Wanted {
        let id = workload.circuit().clone();
        let was_loaded = matches!(self.circuits.get(&id), Some(Circuit::Ready(_)));
        let since = self.now();
        self.ensure_circuit(workload.as_ref(), priority, span.clone());
        let wanted = self.wanted.entry(id.clone()).or_insert_with(|| Wanted {
            workload,
            priority,
            since,
            span,
            pinned: false,
            on_devices: false,
            is_warmup: false,
            was_loaded,
            callers: Vec::new(),
            devices: BTreeMap::new(),
            settled: false,
        });
        wanted.priority = wanted.priority.max(priority);
        wanted.pinned |= pinned;
        wanted.on_devices |= on_devices;
        wanted.settled = false;
        self.pin_if_wanted(&id);
        self.wanted.get_mut(&id).expect("it was just put there")
    }

    /// What a circuit is needed for most urgently; `None`: nobody needs it.
    pub(super) fn demand_for(&self, id: &CircuitId) -> Option<Demand> {
        let job = self.most_urgent_of(id).map(|job| &self.jobs[&job]);
        let wanted = self.wanted.get(id);
        let of_job = || {
            job.map(|job| Demand {
                workload: Arc::clone(&job.spec.workload),
                waiting: job.as_waiting(PartitionIndex(0), 0),
                span: job.spec.span.clone(),
            })
        };
        match (job, wanted) {
            (Some(job), Some(wanted)) if job.spec.priority >= wanted.priority => of_job(),
            (_, Some(wanted)) => Some(Demand {
                workload: Arc::clone(&wanted.workload),
                waiting: wanted.as_waiting(),
                span: wanted.span.clone(),
            }),
            (_, None) => of_job(),
        }
    }

    /// A circuit that has just been loaded, or is wanted from now on, stays if somebody wants that.
    pub(super) fn pin_if_wanted(&mut self, id: &CircuitId) {
        let Some(Circuit::Ready(ready)) = self.circuits.get_mut(id) else { return };
        if self.wanted.get(id).is_some_and(|wanted| wanted.pinned) && !ready.pinned {
            ready.pinned = true;
            self.memory.pin(ready.circuit.num_bytes);
        }
    }

    /// It takes more than the budget can ever give: waiting would have no end.
    pub(super) fn fail_want_that_never_fits(&mut self, id: &CircuitId, needs_bytes: u64) {
        let budget = self.memory.budget();
        if budget.could_fit(needs_bytes) {
            return;
        }
        let has_bytes = budget.limit_bytes().saturating_sub(budget.pinned_bytes());
        self.fail_want(id, |id| {
            ScheduleError::HostMemory { circuit: id.clone(), needs_bytes, has_bytes }.into()
        });
    }

    /// No device could ever prove it.
    pub(super) fn fail_unplannable_want(&mut self, id: &CircuitId, needs: &CircuitNeeds) {
        let Some(wanted) = self.wanted.get(id).filter(|wanted| wanted.on_devices) else { return };
        let least = |model: MemoryModel| least_vram_bytes(needs, model);
        let Some(source) = self.devices.shortfall(&Placement::Any, wanted.priority, least) else { return };
        self.fail_want(id, |_| {
            DeviceError::Plan { at: WorkRef::job(JobId(0)), source: source.clone() }.into()
        });
    }

    /// Gives a want up. Jobs of the circuit are not concerned.
    pub(super) fn fail_want(&mut self, id: &CircuitId, error: impl Fn(&CircuitId) -> EngineError) {
        let Some(wanted) = self.forget_want(id) else { return };
        let error = error(id);
        if !wanted.settled {
            tracing::warn!(circuit = %id, %error, "circuit is not preloaded");
        }
        if wanted.is_warmup {
            self.warmup_failures.insert(id.clone(), error.to_string());
        }
        for caller in wanted.callers {
            // It may have gone away.
            let _ = caller.send(Err(error.clone()));
        }
    }

    fn release_filler(&mut self, filler: Option<(u64, Holder)>) {
        if let Some((num_bytes, holder)) = filler {
            self.memory.release_after(HostPart::Witnesses, num_bytes, vec![holder]);
        }
    }

    /// Has wanted keys loaded on devices that have a free lane, and answers where all is done.
    pub(super) fn serve_wants(&mut self) {
        self.forget_lives_that_ended();
        let ids: Vec<CircuitId> = self.wanted.keys().cloned().collect();
        for id in ids {
            let Some(Circuit::Ready(ready)) = self.circuits.get(&id) else { continue };
            let circuit = Arc::clone(&ready.circuit);
            if self.wanted[&id].on_devices {
                self.load_on_devices(&id, &circuit);
            }
            self.settle(&id, &circuit);
        }
    }

    /// What was asked of an actor that is no more gets no answer.
    fn forget_lives_that_ended(&mut self) {
        let mut fillers = Vec::new();
        for asked in self.wanted.values_mut().flat_map(|wanted| wanted.devices.iter_mut()) {
            let (id, asked) = asked;
            let device = self.devices.get(id);
            let lives = device.is_some_and(|d| d.life == asked.life && d.service == Service::Ready);
            if !lives && asked.filler.is_some() {
                fillers.push(asked.filler.take());
            }
        }
        for filler in fillers {
            self.release_filler(filler);
        }
    }

    fn load_on_devices(&mut self, id: &CircuitId, circuit: &Arc<PreparedCircuit>) {
        let now = self.now();
        let devices: Vec<DeviceId> = self
            .devices
            .iter()
            .filter(|(_, device)| is_to_be_asked(device, now) && device.free_lanes > 0)
            .map(|(device, _)| device.clone())
            .collect();
        for device in devices {
            let entry = self.devices.get(&device).expect("it was just listed");
            let wanted = self.wanted.get_mut(id).expect("the caller has found it");
            if wanted.devices.get(&device).is_some_and(|asked| asked.life == entry.life) {
                continue;
            }
            let (life, model) = (entry.life, entry.memory.as_ref().map(|memory| memory.model));
            if let Some(former) = wanted.devices.remove(&device) {
                self.release_filler(former.filler);
            }
            if model == Some(MemoryModel::SharedWithHost) {
                let asked = Asked { life, residence: Some(Residence::InPlace), filler: None };
                self.wanted.get_mut(id).expect("as above").devices.insert(device, asked);
            } else if !self.ask_device(id, circuit, device) {
                return;
            }
        }
    }

    /// `false`: there is no memory for it now.
    fn ask_device(&mut self, id: &CircuitId, circuit: &Arc<PreparedCircuit>, device: DeviceId) -> bool {
        let num_bytes = circuit.witness_bytes();
        if !self.memory.reserve(HostPart::Witnesses, num_bytes) {
            return false;
        }
        let (freed, answer) = (self.own().lane_freed.clone(), self.own().srs_preloaded.clone());
        let entry = self.devices.get_mut(&device).expect("the caller has found it");
        let (address, life) = (entry.address.clone(), entry.life);
        let address = address.expect("a device in service has an address");
        let wanted = self.wanted.get_mut(id).expect("the caller has found it");
        let filler = Arc::new(zeros(&circuit.shape));
        let holder = Arc::downgrade(&filler) as Holder;
        wanted
            .devices
            .insert(device.clone(), Asked { life, residence: None, filler: Some((num_bytes, holder)) });
        address.preload.do_send(PreloadSrs {
            work: PartitionWork {
                at: WorkRef::job(JobId(0)).on(device.clone()),
                circuit: circuit.id.clone(),
                shape: Arc::clone(&circuit.shape),
                srs: Arc::clone(&circuit.srs),
                witness: filler,
                blinding: no_blinding(),
            },
            priority: Priority::Normal,
            credit: LaneCredit::new(device, life, entry.spend(Priority::Normal), freed),
            answer,
            span: wanted.span.clone(),
        });
        true
    }

    /// Answers whoever asked, once the host has it and every device in service has said what it has.
    fn settle(&mut self, id: &CircuitId, circuit: &Arc<PreparedCircuit>) {
        let now = self.now();
        let wanted = &self.wanted[id];
        if wanted.settled {
            return;
        }
        let mut devices = Vec::new();
        if wanted.on_devices {
            for (id, device) in self.devices.iter() {
                let may_come = device.service == Service::Starting && device.role != Role::Fallback;
                match wanted.answer_of(id, device) {
                    Some(residence) if is_to_be_asked(device, now) => {
                        devices.push((id.clone(), residence.clone()));
                    }
                    _ if may_come || is_to_be_asked(device, now) => return,
                    _ => {}
                }
            }
        }
        let loaded = CircuitLoaded {
            circuit: id.clone(),
            was_loaded: wanted.was_loaded,
            host_bytes: circuit.num_bytes,
            pinned: wanted.pinned,
            devices,
            elapsed: now.saturating_sub(wanted.since),
        };
        let wanted = self.wanted.get_mut(id).expect("it was just there");
        wanted.settled = true;
        for caller in wanted.callers.drain(..) {
            // It may have gone away.
            let _ = caller.send(Ok(loaded.clone()));
        }
        if !wanted.pinned {
            // A device that was lost meanwhile was asked and will not answer.
            self.forget_want(id);
        }
    }

    /// Nobody wants it any more. Whoever still waits is not answered.
    fn forget_want(&mut self, id: &CircuitId) -> Option<Wanted> {
        let mut wanted = self.wanted.remove(id)?;
        for asked in std::mem::take(&mut wanted.devices).into_values() {
            self.release_filler(asked.filler);
        }
        Some(wanted)
    }

    /// Circuits of the warmup list that are not where they should be yet.
    pub(super) fn warming(&self) -> impl Iterator<Item = &CircuitId> {
        self.wanted.iter().filter(|(_, wanted)| wanted.is_warmup && !wanted.settled).map(|(id, _)| id)
    }

    fn evict_from_host(&mut self, id: &CircuitId) -> Result<u64, EngineError> {
        let jobs = self.jobs_of(id).len();
        if jobs > 0 {
            return Err(ScheduleError::CircuitInUse { circuit: id.clone(), jobs }.into());
        }
        self.fail_want(id, |id| ScheduleError::LetGo { circuit: id.clone() }.into());
        self.warmup_failures.remove(id);
        let host_bytes = self.circuits.get(id).map_or(0, |circuit| circuit.as_status().1);
        self.remove_circuit(id);
        Ok(host_bytes)
    }
}

/// A witness of the right size that satisfies nothing.
fn zeros(shape: &R1csShape) -> PackedWitness {
    PackedWitness {
        inputs: vec![Default::default(); shape.num_inputs()],
        bits: vec![0; shape.num_aux().div_ceil(64)],
        dense: vec![Default::default(); shape.classes().num_dense()],
    }
}

/// No proof is made.
fn no_blinding() -> Blinding {
    Blinding { r: Default::default(), s: Default::default() }
}

impl Handler<PreloadCircuit> for Scheduler {
    type Result = ResponseFuture<Result<CircuitLoaded, EngineError>>;

    fn handle(&mut self, preload: PreloadCircuit, _: &mut Context<Self>) -> Self::Result {
        let PreloadCircuit { workload, pinned, on_devices, priority, span } = preload;
        let id = workload.circuit().clone();
        if self.draining {
            return Box::pin(async { Err(ScheduleError::Draining.into()) });
        }
        if let Service::Gone { reason } = &self.synthesizer_service {
            let error = ScheduleError::NoSynthesizer(reason.clone());
            return Box::pin(async move { Err(error.into()) });
        }
        if let Err(error) = self.make_room_for_key(workload.as_ref()) {
            return Box::pin(async move { Err(error.into()) });
        }
        let (reply, answer) = oneshot::channel();
        let wanted = self.want(workload, priority, pinned, on_devices, span);
        wanted.callers.push(reply);
        if let Some(Circuit::Waiting { needs, .. }) = self.circuits.get(&id) {
            let needs_bytes = needs.num_bytes;
            self.fail_want_that_never_fits(&id, needs_bytes);
        }
        self.pump();
        Box::pin(async move {
            // Dropped unanswered: the engine stops.
            answer.await.unwrap_or_else(|_| Err(ScheduleError::Draining.into()))
        })
    }
}

impl Handler<EvictCircuit> for Scheduler {
    type Result = ResponseFuture<Result<CircuitEvicted, EngineError>>;

    fn handle(&mut self, evict: EvictCircuit, _: &mut Context<Self>) -> Self::Result {
        let EvictCircuit { circuit } = evict;
        let host_bytes = match self.evict_from_host(&circuit) {
            Ok(host_bytes) => host_bytes,
            Err(error) => return Box::pin(async move { Err(error) }),
        };
        let addresses = self.devices.iter().filter_map(|(id, device)| {
            let evict = EvictSrs { circuit: circuit.clone(), when_idle: true };
            Some((id.clone(), device.address.as_ref()?.evict.send(evict)))
        });
        let asked: Vec<_> = addresses.collect();
        self.pump();
        Box::pin(async move {
            let mut devices = Vec::new();
            for (id, answer) in asked {
                // A device that died meanwhile has nothing any more.
                if let Ok(Ok(eviction)) = answer.await {
                    devices.push((id, eviction));
                }
            }
            Ok(CircuitEvicted { circuit, host_bytes, devices })
        })
    }
}

impl Handler<SrsPreloaded> for Scheduler {
    type Result = ();

    fn handle(&mut self, preloaded: SrsPreloaded, _: &mut Context<Self>) {
        let SrsPreloaded { device, life, circuit, residence } = preloaded;
        if let Residence::Failed(error) = &residence {
            tracing::warn!(%circuit, %device, %error, "key is not preloaded there");
        }
        let asked = self.wanted.get_mut(&circuit).and_then(|wanted| wanted.devices.get_mut(&device));
        if let Some(asked) = asked.filter(|asked| asked.life == life) {
            asked.residence = Some(residence);
            let filler = asked.filler.take();
            self.release_filler(filler);
        }
        self.pump();
    }
}
