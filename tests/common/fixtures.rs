//! Small circuits with keys, made in a few milliseconds and the same every time.

use std::sync::Arc;

use blstrs::Scalar;
use cuzk::backend::PartitionWork;
use cuzk::groth16::generate::generate_srs;
use cuzk::groth16::{prover, Blinding, PackedWitness, PreparedVerifyingKey, Proof, R1csShape, Srs};
use cuzk::ids::{Attempt, CircuitId, JobId, PartitionIndex, WorkRef};
use rand::SeedableRng;
use rand_chacha::ChaCha20Rng;

use super::synthetic::{Synthetic, Values};

/// A circuit with its key and one witness.
#[derive(Clone)]
pub struct Fixture {
    pub circuit: CircuitId,
    pub shape: Arc<R1csShape>,
    pub srs: Arc<Srs>,
    pub witness: Arc<PackedWitness>,
    pub blinding: Blinding,
}

impl Fixture {
    /// A circuit named `name` of `num_constraints`.
    pub fn new(name: &str, num_constraints: usize) -> Self {
        let mut rng = ChaCha20Rng::seed_from_u64(num_constraints as u64);
        let circuit = Synthetic::new(num_constraints, Values::Bits);
        let shape = R1csShape::record(circuit.clone()).expect("the circuit records");
        let srs = generate_srs(&shape, &mut rng).expect("every variable is constrained");
        let witness = PackedWitness::synthesize(circuit, &shape).expect("the circuit has its witness");
        Self {
            circuit: CircuitId::new(name),
            shape: Arc::new(shape),
            srs: Arc::new(srs),
            witness: Arc::new(witness),
            blinding: Blinding { r: Scalar::from(11), s: Scalar::from(13) },
        }
    }

    /// The same circuit and key under another name: another key for a device's cache.
    pub fn renamed(&self, name: &str) -> Self {
        Self { circuit: CircuitId::new(name), ..self.clone() }
    }

    /// One partition of one job, first attempt.
    pub fn work(&self, job: u64, partition: u32) -> PartitionWork {
        PartitionWork {
            at: WorkRef::partition(JobId(job), PartitionIndex(partition)).with_attempt(Attempt(1)),
            circuit: self.circuit.clone(),
            shape: Arc::clone(&self.shape),
            srs: Arc::clone(&self.srs),
            witness: Arc::clone(&self.witness),
            blinding: self.blinding,
        }
    }

    /// What every backend must answer.
    pub fn expected_proof(&self) -> Proof {
        prover::prove(&self.srs, &self.shape, &self.witness, &self.blinding)
            .expect("key and witness are of this shape")
    }

    pub fn verifies(&self, proof: &Proof) -> bool {
        PreparedVerifyingKey::new(&self.srs.vk).verify(proof, &self.witness.inputs[1..])
    }
}
