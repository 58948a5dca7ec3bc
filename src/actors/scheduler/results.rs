//! What devices tell: proofs, failures, lanes. A result counts only for the attempt that was asked for.

use actix::{Context, Handler};

use super::job::PartitionState;
use super::Scheduler;
use crate::backend::Stage;
use crate::error::{DeviceError, EngineError, ErrorClass};
use crate::ids::{DeviceId, PartitionIndex, WorkRef};
use crate::messages::device::{LaneFreed, PartitionFailed, PartitionProved, StageFinished};
use crate::messages::events::AttemptRef;
use crate::messages::job::JobEvent;
use crate::messages::lifecycle::ResidencyChanged;
use crate::policy::health::Failure;

impl Handler<PartitionProved> for Scheduler {
    type Result = ();

    fn handle(&mut self, proved: PartitionProved, _: &mut Context<Self>) {
        let now = self.now();
        self.device_answered(&proved.device);
        let Some(index) = self.expected(&proved.at, &proved.device) else {
            self.totals.late_results += 1;
            return;
        };
        let id = proved.at.job;
        let job = self.jobs.get_mut(&id).expect("an expected result has a job");
        job.add_stage_times(&proved.timings.0);
        let circuit = job.circuit().clone();
        let partition = job.partition(index);
        let PartitionState::Proving { attempt, device, witness, since } =
            std::mem::replace(&mut partition.state, PartitionState::Waiting)
        else {
            unreachable!("a result is expected only of a partition that is on a device")
        };
        partition.state =
            PartitionState::Proved { attempt, device, witness, proof: proved.proof, asked: false };
        if let Some(device) = self.devices.get_mut(&proved.device) {
            let there = now.saturating_sub(since);
            device.record_time(&circuit, there.saturating_sub(proved.waited_for_others));
            device.record_memory(proved.memory_planned_bytes, proved.memory_peak_bytes);
        }
        self.verify_waiting(id);
        self.pump();
    }
}

impl Scheduler {
    fn device_answered(&mut self, id: &DeviceId) {
        if let Some(device) = self.devices.get_mut(id) {
            device.answered();
        }
    }

    /// The partition that `at` answers, if this very attempt was given to this very device.
    fn expected(&self, at: &WorkRef, from: &DeviceId) -> Option<PartitionIndex> {
        let index = at.partition?;
        match &self.jobs.get(&at.job)?.partitions.get(index.0 as usize)?.state {
            PartitionState::Proving { attempt, device, .. }
                if Some(*attempt) == at.attempt && device == from =>
            {
                Some(index)
            }
            _ => None,
        }
    }
}

impl Handler<PartitionFailed> for Scheduler {
    type Result = ();

    fn handle(&mut self, failed: PartitionFailed, _: &mut Context<Self>) {
        let now = self.now();
        let PartitionFailed { at, device: id, error } = failed;
        self.device_answered(&id);
        let Some(index) = self.expected(&at, &id) else {
            self.totals.late_results += u64::from(!matches!(error, DeviceError::Cancelled { .. }));
            return;
        };
        if let DeviceError::Witness { at, source } = error {
            // What the Synthesizer would have said, had it looked at the rows: neither this device nor another is to blame.
            if let Some(attempt) = AttemptRef::of(&at) {
                self.tell_attempt_failed(attempt, &id, false, &source.to_string());
            }
            self.finish(at.job, Err(EngineError::Synthesis { at, source }));
            self.pump();
            return;
        }
        if let Some(device) = self.devices.get_mut(&id) {
            match &error {
                DeviceError::NotTaking { .. } => device.rests_until = now + super::REST,
                // Not the device's fault.
                DeviceError::Srs { .. }
                | DeviceError::Plan { .. }
                | DeviceError::Unsupported { .. }
                | DeviceError::Cancelled { .. } => {}
                _ => {
                    device.num_failed += 1;
                    device.health.record_failure(Failure::Reported, now);
                    if error.class() == ErrorClass::DeviceLost {
                        // `DeviceLost` follows; until then its free lanes are worth nothing.
                        device.rests_until = now + super::REST;
                    }
                }
            }
        }
        if let Some(at) = AttemptRef::of(&at) {
            self.tell_attempt_failed(at, &id, false, &error.to_string());
        }
        self.retry(at.job, index, &id, error);
        self.pump();
    }
}

impl Handler<StageFinished> for Scheduler {
    type Result = ();

    fn handle(&mut self, finished: StageFinished, _: &mut Context<Self>) {
        let Some(partition) = self.expected(&finished.at, &finished.device) else { return };
        let StageFinished { at, device, stage, elapsed } = finished;
        if let Some(job) = self.jobs.get_mut(&at.job) {
            if let Some(next) = Stage::ALL.get(stage.index() + 1) {
                job.partition(partition).stage = *next;
            }
            job.tell(&JobEvent::StageDone { partition, device, stage, elapsed });
        }
    }
}

impl Handler<LaneFreed> for Scheduler {
    type Result = ();

    fn handle(&mut self, freed: LaneFreed, _: &mut Context<Self>) {
        if let Some(device) = self.devices.get_mut(&freed.device) {
            device.freed(freed.life, freed.kind);
        }
        self.pump();
    }
}

impl Handler<ResidencyChanged> for Scheduler {
    type Result = ();

    fn handle(&mut self, changed: ResidencyChanged, _: &mut Context<Self>) {
        let Some(device) = self.devices.get_mut(&changed.device) else { return };
        if changed.resident {
            device.resident.insert(changed.circuit);
        } else {
            device.resident.remove(&changed.circuit);
        }
    }
}
