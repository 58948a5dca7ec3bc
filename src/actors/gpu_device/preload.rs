//! Loading a key without proving: the upload of a partition that then ends.
//!
//! It goes through the same admission as any partition, so that memory is planned, reserved and made room for in the one
//! way there is; and every backend can do it. It is no partition of a job: no fault script, no count, no proof.

use actix::{Context, Handler};

use super::lanes::{Job, Origin};
use super::srs_cache::Presence;
use super::GpuDevice;
use crate::backend::{DeviceBackend, MemoryModel};
use crate::error::DeviceError;
use crate::messages::srs::{PreloadSrs, Residence, SrsPreloaded};

impl<B: DeviceBackend> Handler<PreloadSrs> for GpuDevice<B> {
    type Result = ();

    fn handle(&mut self, message: PreloadSrs, ctx: &mut Context<Self>) {
        let PreloadSrs { work, priority, credit, answer, span } = message;
        let lane = self.lane_for(&credit, priority);
        let origin = Origin::Preload { answer, _credit: credit };
        let mut job = Job::new(work, priority, origin, span);
        job.at = job.at.on(self.id.clone());
        match (lane, self.known_residence(&job)) {
            (Err(what), _) => {
                let error = DeviceError::NotTaking { at: job.at.clone(), what };
                self.answer_failed(job, error);
            }
            (Ok(_), Some(residence)) => self.answer_preloaded(job, residence),
            (Ok(lane), None) => {
                self.place(lane, job, ctx);
                self.pump(ctx);
            }
        }
    }
}

impl<B: DeviceBackend> GpuDevice<B> {
    /// What can be said of a key without loading anything.
    fn known_residence(&self, job: &Job) -> Option<Residence> {
        let device = self.device.as_ref()?;
        if device.memory_model == MemoryModel::SharedWithHost {
            return Some(Residence::InPlace);
        }
        if let Err(source) = job.srs.check_fits(&job.shape) {
            return Some(Residence::Failed(DeviceError::Srs { at: job.at.clone(), source }));
        }
        if let Presence::Here { bytes, .. } = device.cache.presence(&job.circuit, &job.srs) {
            return Some(Residence::Resident { num_bytes: bytes });
        }
        // On an empty device nothing of it would stay: then nothing will on a busy one.
        let budget_bytes = device.ledger.limit_bytes(job.claim());
        let (shape, srs) = device.sizes(job);
        match self.plans.plan(&shape, &srs, budget_bytes) {
            Ok(plan) if plan.resident.is_empty() => Some(Residence::Streamed),
            _ => None,
        }
    }

    /// Its upload has ended and its lane is empty: what stayed.
    pub(super) fn preload_ended(&mut self, job: Job) {
        let presence = self.device.as_ref().map(|device| device.cache.presence(&job.circuit, &job.srs));
        let residence = match presence {
            Some(Presence::Here { bytes, .. }) => Residence::Resident { num_bytes: bytes },
            _ => Residence::Streamed,
        };
        self.answer_preloaded(job, residence);
    }

    pub(super) fn answer_preloaded(&mut self, job: Job, residence: Residence) {
        let Origin::Preload { answer, _credit } = job.origin else {
            unreachable!("only a preload is answered so")
        };
        let (device, life) = (self.id.clone(), self.peers.life);
        answer.do_send(SrsPreloaded { device, life, circuit: job.circuit, residence });
    }
}
