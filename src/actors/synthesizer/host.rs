//! What the Synthesizer's workers do, behind one trait: so that a simulation can put a host of its own in place of this
//! machine's cores, as the `sim` backend does for a device.

use std::time::Duration;

use super::{circuits, tasks, SynthesizerConfig, TaskClass};
use crate::messages::job::Priority;
use crate::messages::synthesis::{
    CheckKey, MeasureCircuit, PrepareCircuit, SynthesizeWitness, SynthesizerPeers, VerifyJob, VerifyProofs,
};

/// A command, on its way to a worker.
#[derive(Debug)]
pub enum HostTask {
    Measure(MeasureCircuit),
    Prepare(PrepareCircuit),
    Witness(SynthesizeWitness),
    Verify(VerifyProofs),
    CheckKey(CheckKey),
    VerifyJob(VerifyJob),
}

impl HostTask {
    pub(super) fn class(&self) -> TaskClass {
        match self {
            Self::Measure(_) => TaskClass::Measure,
            Self::Prepare(_) => TaskClass::Prepare,
            Self::Witness(_) => TaskClass::Witness,
            Self::Verify(_) | Self::VerifyJob(_) => TaskClass::Verify,
            Self::CheckKey(_) => TaskClass::CheckKey,
        }
    }

    pub(super) fn priority(&self) -> Priority {
        match self {
            Self::Measure(command) => command.priority,
            Self::Prepare(command) => command.priority,
            Self::Witness(command) => command.priority,
            Self::Verify(command) => command.priority,
            Self::CheckKey(command) => command.priority,
            Self::VerifyJob(command) => command.priority,
        }
    }
}

/// What a worker does with a task. Every task is answered to its peer, whatever happens.
pub trait HostWork: Send + Sync + 'static {
    fn run(&self, task: HostTask, peers: &SynthesizerPeers);

    /// How long a simulated worker takes; real ones take what they take.
    fn duration(&self, task: &HostTask) -> Duration {
        let _ = task;
        Duration::ZERO
    }
}

/// This machine.
pub(super) struct RealHost {
    pub config: SynthesizerConfig,
}

impl HostWork for RealHost {
    fn run(&self, task: HostTask, peers: &SynthesizerPeers) {
        match task {
            HostTask::Measure(command) => circuits::measure_circuit(command, &self.config, peers),
            HostTask::Prepare(command) => circuits::prepare_circuit(command, &self.config, peers),
            HostTask::Witness(command) => tasks::synthesize(command, peers),
            HostTask::Verify(command) => tasks::verify_proofs(command, peers),
            HostTask::CheckKey(command) => tasks::check_key(command, peers),
            HostTask::VerifyJob(command) => tasks::verify_job(command, peers),
        }
    }
}
