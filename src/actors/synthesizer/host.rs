//! What the Synthesizer's workers do, behind one trait: so that a simulation can put a host of its own in place of this
//! machine's cores, as the `sim` backend does for a device.

use std::sync::Arc;
use std::time::Duration;

use super::{circuits, tasks, SynthesizerConfig, TaskClass};
use crate::circuits::SrsSource;
use crate::error::{catch, SynthesisError};
use crate::ids::{CircuitId, JobId, WorkRef};
use crate::messages::job::Priority;
use crate::messages::synthesis::{
    CheckKey, CircuitFailed, JobVerified, KeyChecked, KeyVerdict, MeasureCircuit, PrepareCircuit,
    PreparedCircuit, ProofsVerified, SynthesisFailed, SynthesizeWitness, SynthesizerPeers, VerifyJob,
    VerifyProofs,
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

/// What a worker does with a task. Every task is answered to its peer once; one that unwinds instead is answered for.
pub trait HostWork: Send + Sync + 'static {
    fn run(&self, task: HostTask, peers: &SynthesizerPeers);

    /// How long a simulated worker takes; real ones take what they take.
    fn duration(&self, task: &HostTask) -> Duration {
        let _ = task;
        Duration::ZERO
    }
}

/// This machine.
pub struct RealHost {
    pub config: SynthesizerConfig,
}

impl HostWork for RealHost {
    fn run(&self, task: HostTask, peers: &SynthesizerPeers) {
        match &task {
            HostTask::Measure(command) => circuits::measure_circuit(command, &self.config, peers),
            HostTask::Prepare(command) => circuits::prepare_circuit(command, &self.config, peers),
            HostTask::Witness(command) => tasks::synthesize(command, peers),
            HostTask::Verify(command) => tasks::verify_proofs(command, peers),
            HostTask::CheckKey(command) => tasks::check_key(command, peers),
            HostTask::VerifyJob(command) => tasks::verify_job(command, peers),
        }
        // Answered: what the host's own types do when they are dropped is no part of the work any more.
        if let Err(what) = catch(|| drop(task)) {
            tracing::error!(%what, "what a task was made of panicked when it was dropped");
        }
    }
}

/// The answer to a task that ended in a panic where none was to be expected, instead of its own: nobody may wait for
/// ever.
pub(super) enum Unanswered {
    Circuit { circuit: CircuitId, source: SrsSource },
    Witness(WorkRef),
    Verdicts(Vec<WorkRef>),
    Key { at: WorkRef, circuit: Arc<PreparedCircuit> },
    Job { job: JobId, proof: Vec<u8> },
}

impl Unanswered {
    /// In the Synthesizer's handler: by the command alone, without a call of anything that a host has written.
    pub fn of(task: &HostTask) -> Self {
        match task {
            HostTask::Measure(command) => {
                Self::Circuit { circuit: command.circuit.clone(), source: command.source.clone() }
            }
            HostTask::Prepare(command) => {
                Self::Circuit { circuit: command.circuit.clone(), source: command.source.clone() }
            }
            HostTask::Witness(command) => Self::Witness(command.at.clone()),
            HostTask::Verify(command) => {
                Self::Verdicts(command.proofs.iter().map(|unverified| unverified.at.clone()).collect())
            }
            HostTask::CheckKey(command) => {
                Self::Key { at: command.at.clone(), circuit: Arc::clone(&command.circuit) }
            }
            HostTask::VerifyJob(command) => Self::Job { job: command.job, proof: command.proof.clone() },
        }
    }

    /// `what`: the panic's text.
    pub fn answer(self, what: String, peers: &SynthesizerPeers) {
        tracing::error!(%what, "a worker's task ended in a panic");
        let elapsed = Duration::ZERO;
        match self {
            Self::Circuit { circuit, source } => {
                let error = SynthesisError::PreparationPanicked(what).into();
                peers.circuit_failed.do_send(CircuitFailed { circuit, source, error });
            }
            Self::Witness(at) => {
                let error = SynthesisError::Panicked(what);
                peers.synthesis_failed.do_send(SynthesisFailed { at, error });
            }
            Self::Verdicts(proofs) => {
                let verdicts = proofs.into_iter().map(|at| (at, false)).collect();
                peers.verified.do_send(ProofsVerified { verdicts, elapsed });
            }
            Self::Key { at, circuit } => {
                let verdict = KeyVerdict::Unknown;
                peers.key_checked.do_send(KeyChecked { at, circuit, verdict, elapsed });
            }
            Self::Job { job, proof } => {
                let result = Err(format!("its verification panicked: {what}"));
                peers.job_verified.do_send(JobVerified { job, proof, result, elapsed });
            }
        }
    }
}
