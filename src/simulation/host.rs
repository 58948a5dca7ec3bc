//! The simulated host: what its workers answer, and how long they take.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use blstrs::Scalar;

use super::scenario::{seconds, CircuitScenario, Scenario};
use super::workload::StandIn;
use crate::actors::synthesizer::host::{HostTask, HostWork};
use crate::backend::sim::{token_proof, SimCircuit};
use crate::groth16::PreparedVerifyingKey;
use crate::ids::{CircuitId, JobId, PartitionIndex};
use crate::messages::synthesis::{
    CheckKey, CircuitMeasured, CircuitNeeds, CircuitPrepared, JobVerified, KeyChecked, KeyVerdict,
    MeasureCircuit, PartitionNeeds, PrepareCircuit, PreparedCircuit, ProofsVerified, SynthesizeWitness,
    SynthesizerPeers, VerifyJob, VerifyProofs, WitnessSynthesized,
};

/// Bytes of one proof.
const PROOF_BYTES: usize = 192;

/// A circuit, as this host knows it.
struct Known {
    stand_in: Arc<StandIn>,
    simulated: SimCircuit,
    host_bytes: u64,
    load: Duration,
    witness: Duration,
    verify: Duration,
    host_proof: Duration,
    needs: PartitionNeeds,
    public_inputs: Arc<[Scalar]>,
}

/// Answers every task as a host would whose inputs are all in order.
pub(super) struct SimulatedHost {
    circuits: BTreeMap<CircuitId, Known>,
    num_wrong: AtomicU64,
}

impl Known {
    fn new(circuit: &CircuitScenario, read_gib_per_s: f64) -> Self {
        let stand_in = Arc::new(StandIn::new(&circuit.id, circuit.kind));
        let host_bytes = circuit.host_bytes();
        Self {
            simulated: circuit.simulated(),
            host_bytes,
            load: seconds(host_bytes as f64 / (read_gib_per_s * f64::from(1 << 30))),
            witness: seconds(circuit.witness_s),
            verify: seconds(circuit.verify_ms / 1000.0),
            host_proof: seconds(circuit.host_proof_s),
            needs: circuit.partition_needs(),
            public_inputs: stand_in.witness.inputs[1..].into(),
            stand_in,
        }
    }
}

impl SimulatedHost {
    pub fn new(scenario: &Scenario) -> Self {
        let known = |circuit: &CircuitScenario| {
            (CircuitId::new(circuit.id.as_str()), Known::new(circuit, scenario.host.read_gib_per_s))
        };
        Self { circuits: scenario.circuits.iter().map(known).collect(), num_wrong: AtomicU64::new(0) }
    }

    /// What jobs of a circuit share.
    ///
    /// # Panics
    /// If the scenario does not have this circuit: it was validated.
    pub fn stand_in(&self, circuit: &str) -> Arc<StandIn> {
        Arc::clone(&self.known(&CircuitId::new(circuit)).stand_in)
    }

    /// What devices take the circuits for.
    pub fn simulated_circuits(&self) -> BTreeMap<CircuitId, SimCircuit> {
        self.circuits.iter().map(|(id, known)| (id.clone(), known.simulated.clone())).collect()
    }

    /// Jobs that were about to be answered with a wrong proof.
    pub fn num_wrong(&self) -> u64 {
        self.num_wrong.load(Ordering::Relaxed)
    }

    fn known(&self, id: &CircuitId) -> &Known {
        self.circuits.get(id).expect("every job of a simulation is of one of its circuits")
    }

    fn measure(&self, command: MeasureCircuit, peers: &SynthesizerPeers) {
        let known = self.known(&command.circuit);
        let needs = CircuitNeeds {
            num_bytes: known.host_bytes,
            shape: known.simulated.shape,
            srs: known.simulated.srs,
        };
        let MeasureCircuit { circuit, source, .. } = command;
        peers.measured.do_send(CircuitMeasured { circuit, source, needs });
    }

    fn prepare(&self, command: PrepareCircuit, peers: &SynthesizerPeers) {
        let known = self.known(command.workload.circuit());
        let circuit = PreparedCircuit {
            id: command.workload.circuit().clone(),
            source: command.workload.srs(),
            shape: Arc::clone(&known.stand_in.shape),
            srs: Arc::clone(&known.stand_in.srs),
            vk: PreparedVerifyingKey::new(&known.stand_in.srs.vk),
            needs: known.needs,
            num_bytes: known.host_bytes,
        };
        let (circuit, elapsed) = (Arc::new(circuit), known.load);
        peers.prepared.do_send(CircuitPrepared { circuit, lease: command.lease, elapsed });
    }

    fn witness(&self, command: SynthesizeWitness, peers: &SynthesizerPeers) {
        if command.cancel.is_cancelled() {
            return;
        }
        let known = self.known(&command.circuit.id);
        peers.synthesized.do_send(WitnessSynthesized {
            at: command.at,
            witness: Arc::new(known.stand_in.witness.clone()),
            public_inputs: Arc::clone(&known.public_inputs),
            lease: command.lease,
            elapsed: known.witness,
        });
    }

    fn verify(&self, command: VerifyProofs, peers: &SynthesizerPeers) {
        let elapsed = self.known(&command.circuit.id).verify * command.proofs.len() as u32;
        let verdicts = command.proofs.into_iter().map(|unverified| {
            let partition = unverified.at.partition.unwrap_or(PartitionIndex(0));
            let holds = unverified.proof == token_proof(unverified.at.job, partition);
            (unverified.at, holds)
        });
        peers.verified.do_send(ProofsVerified { verdicts: verdicts.collect(), elapsed });
    }

    fn check_key(&self, command: CheckKey, peers: &SynthesizerPeers) {
        let elapsed = self.known(&command.circuit.id).host_proof;
        let CheckKey { at, circuit, .. } = command;
        peers.key_checked.do_send(KeyChecked { at, circuit, verdict: KeyVerdict::Right, elapsed });
    }

    /// The last look at what a caller is about to get.
    fn verify_job(&self, command: VerifyJob, peers: &SynthesizerPeers) {
        let elapsed = self.known(&command.circuit.id).verify;
        if !is_right(command.job, command.workload.num_partitions(), &command.proof) {
            self.num_wrong.fetch_add(1, Ordering::Relaxed);
        }
        let VerifyJob { job, proof, .. } = command;
        peers.job_verified.do_send(JobVerified { job, proof, result: Ok(()), elapsed });
    }
}

/// A job's bytes are the right proofs of its partitions, in their order.
fn is_right(job: JobId, num_partitions: u32, proof: &[u8]) -> bool {
    let parts = proof.chunks(PROOF_BYTES);
    parts.len() == num_partitions as usize
        && parts.zip(0..).all(|(part, index)| part == token_proof(job, PartitionIndex(index)).to_bytes())
}

impl HostWork for SimulatedHost {
    fn run(&self, task: HostTask, peers: &SynthesizerPeers) {
        match task {
            HostTask::Measure(command) => self.measure(command, peers),
            HostTask::Prepare(command) => self.prepare(command, peers),
            HostTask::Witness(command) => self.witness(command, peers),
            HostTask::Verify(command) => self.verify(command, peers),
            HostTask::CheckKey(command) => self.check_key(command, peers),
            HostTask::VerifyJob(command) => self.verify_job(command, peers),
        }
    }

    fn duration(&self, task: &HostTask) -> Duration {
        match task {
            HostTask::Measure(_) => Duration::ZERO,
            HostTask::Prepare(command) => self.known(command.workload.circuit()).load,
            HostTask::Witness(command) => self.known(&command.circuit.id).witness,
            HostTask::Verify(command) => self.known(&command.circuit.id).verify * command.proofs.len() as u32,
            HostTask::CheckKey(command) => self.known(&command.circuit.id).host_proof,
            HostTask::VerifyJob(command) => self.known(&command.circuit.id).verify,
        }
    }
}
