//! What the Supervisor tells: devices come and go, the engine drains.

use actix::{ActorContext, Context, Handler};

use super::devices::Service;
use super::Scheduler;
use crate::error::ScheduleError;
use crate::ids::JobId;
use crate::messages::lifecycle::{
    ActorDied, ActorName, DeviceLost, DeviceReady, DeviceWithdrawn, Drain, EndJobs, Reconfigure,
    RuntimeSettings, StopActor, SynthesizerWithdrawn, Withdrawal,
};
use crate::policy::health::Failure;

impl Handler<DeviceReady> for Scheduler {
    type Result = ();

    fn handle(&mut self, ready: DeviceReady, _: &mut Context<Self>) {
        match self.devices.get_mut(&ready.info.id) {
            Some(device) if device.is_current(ready.life) => device.ready(ready.clone()),
            _ => return,
        }
        self.tell_device_ready(&ready);
        self.pump();
    }
}

impl Handler<Reconfigure> for Scheduler {
    type Result = ();

    fn handle(&mut self, command: Reconfigure, _: &mut Context<Self>) {
        // Without `..`: a new setting does not compile before it is decided what becomes of it.
        let RuntimeSettings {
            max_queued_jobs,
            max_attempts,
            retained_results,
            affinity_limit,
            batches,
            idle_limit,
            host_memory_budget_bytes,
        } = command.settings;
        self.config.max_queued_jobs = max_queued_jobs;
        self.config.max_attempts = max_attempts.max(1);
        self.config.retained_results = retained_results;
        self.config.queue.affinity_limit = affinity_limit;
        self.config.batches = batches;
        self.config.idle_limit = idle_limit;
        self.memory.set_limit(host_memory_budget_bytes);
        self.pump();
    }
}

impl Handler<DeviceLost> for Scheduler {
    type Result = ();

    fn handle(&mut self, lost: DeviceLost, _: &mut Context<Self>) {
        match self.devices.get_mut(&lost.device) {
            Some(device) if device.is_current(lost.life) => device.life = lost.life,
            // Its successor is there already.
            _ => return,
        }
        let reason = lost.error.to_string();
        self.withdraw(&lost.device, Service::Withdrawn { reason: reason.clone() }, &reason);
        self.pump();
    }
}

impl Handler<ActorDied> for Scheduler {
    type Result = ();

    fn handle(&mut self, died: ActorDied, _: &mut Context<Self>) {
        let now = self.now();
        let reason = format!("{} died", died.actor);
        let id = match died.actor {
            ActorName::Device(id) => id,
            // What it was asked for is asked for again once its successor is there.
            ActorName::Synthesizer => {
                self.synthesizer = None;
                self.synthesizer_service = Service::Withdrawn { reason };
                return self.pump();
            }
            // Nobody is left to hear of its own death.
            ActorName::Scheduler => return,
        };
        if let Some(device) = self.devices.get_mut(&id) {
            device.num_failed += 1;
            device.health.record_failure(Failure::Reported, now);
        }
        self.withdraw(&id, Service::Withdrawn { reason: reason.clone() }, &reason);
        self.pump();
    }
}

impl Handler<SynthesizerWithdrawn> for Scheduler {
    type Result = ();

    fn handle(&mut self, withdrawn: SynthesizerWithdrawn, _: &mut Context<Self>) {
        let SynthesizerWithdrawn { is_permanent, reason } = withdrawn;
        self.synthesizer_service =
            if is_permanent { Service::Gone { reason } } else { Service::Withdrawn { reason } };
        self.report_recovered();
        self.pump();
    }
}

impl Handler<DeviceWithdrawn> for Scheduler {
    type Result = ();

    fn handle(&mut self, withdrawn: DeviceWithdrawn, _: &mut Context<Self>) {
        let DeviceWithdrawn { device: id, life, cause, reason } = withdrawn;
        match (self.devices.get_mut(&id), cause) {
            (None, _) => return,
            (Some(device), Withdrawal::NotOpen) if device.has_opened(life) => return,
            // Its successor is there already.
            (Some(device), _) if !device.is_current(life) => return,
            (Some(_), _) => {}
        }
        let what = reason.clone();
        let service = match cause {
            Withdrawal::NotOpen | Withdrawal::Quarantined => Service::Withdrawn { reason },
            Withdrawal::GivenUp => Service::Gone { reason },
        };
        self.withdraw(&id, service, &what);
        self.pump();
    }
}

impl Handler<Drain> for Scheduler {
    type Result = ();

    fn handle(&mut self, _: Drain, _: &mut Context<Self>) {
        self.draining = true;
        self.pump();
    }
}

impl Handler<EndJobs> for Scheduler {
    type Result = ();

    fn handle(&mut self, _: EndJobs, _: &mut Context<Self>) {
        self.draining = true;
        let jobs: Vec<JobId> = self.jobs.keys().copied().collect();
        for job in jobs {
            self.finish(job, Err(ScheduleError::Draining.into()));
        }
        self.pump();
    }
}

impl Handler<StopActor> for Scheduler {
    type Result = ();

    fn handle(&mut self, _: StopActor, ctx: &mut Context<Self>) {
        self.durable.close();
        ctx.stop();
    }
}
