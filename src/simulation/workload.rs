//! Jobs of a simulated circuit. They hold no statement: the host that would read it is simulated too.

use std::sync::Arc;

use bellpepper_core::{Circuit, ConstraintSystem, SynthesisError as CircuitError};
use blstrs::Scalar;
use ff::Field;
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;

use crate::circuits::{SrsSource, WorkKind, Workload};
use crate::error::SynthesisError;
use crate::groth16::generate::generate_srs;
use crate::groth16::{PackedWitness, R1csShape, Srs};
use crate::ids::{CircuitId, PartitionIndex, RequestDigest};

/// The smallest circuit that has every query: `x · x = y`. It stands in for the simulated one wherever the engine
/// wants to see one; its sizes are then those of [`crate::backend::sim::SimCircuit`].
#[derive(Clone)]
struct Square;

impl Circuit<Scalar> for Square {
    fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), CircuitError> {
        let x = cs.alloc(|| "x", || Ok(Scalar::ONE))?;
        let y = cs.alloc_input(|| "y", || Ok(Scalar::ONE))?;
        cs.enforce(|| "x^2 = y", |lc| lc + x, |lc| lc + x, |lc| lc + y);
        Ok(())
    }
}

/// What all jobs of a simulated circuit share.
pub(super) struct StandIn {
    pub id: CircuitId,
    pub kind: WorkKind,
    pub shape: Arc<R1csShape>,
    pub srs: Arc<Srs>,
    pub witness: PackedWitness,
}

impl StandIn {
    pub fn new(id: &str, kind: WorkKind) -> Self {
        const REASON: &str = "the circuit is fixed and satisfied";
        let shape = R1csShape::record(Square).expect(REASON);
        // Nothing depends on its points, but that each circuit has a key of its own.
        let srs = generate_srs(&shape, &mut ChaCha20Rng::seed_from_u64(0)).expect(REASON);
        let witness = PackedWitness::synthesize(Square, &shape).expect(REASON);
        let (shape, srs) = (Arc::new(shape), Arc::new(srs));
        Self { id: CircuitId::new(id), kind, shape, srs, witness }
    }
}

/// A job of `num_partitions` partitions.
pub(super) struct SimulatedJob {
    pub circuit: Arc<StandIn>,
    pub num_partitions: u32,
}

impl std::fmt::Debug for SimulatedJob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimulatedJob")
            .field("circuit", &self.circuit.id)
            .field("num_partitions", &self.num_partitions)
            .finish()
    }
}

impl Workload for SimulatedJob {
    fn kind(&self) -> WorkKind {
        self.circuit.kind
    }

    fn circuit(&self) -> &CircuitId {
        &self.circuit.id
    }

    fn num_partitions(&self) -> u32 {
        self.num_partitions
    }

    fn digest(&self) -> RequestDigest {
        RequestDigest([0; 32])
    }

    fn srs(&self) -> SrsSource {
        SrsSource::Memory(Arc::clone(&self.circuit.srs))
    }

    fn record_shape(&self) -> Result<R1csShape, SynthesisError> {
        Ok(R1csShape::clone(&self.circuit.shape))
    }

    fn synthesize(&self, _: PartitionIndex, _: &R1csShape) -> Result<PackedWitness, SynthesisError> {
        Ok(self.circuit.witness.clone())
    }

    fn public_inputs(&self, _: PartitionIndex) -> Result<Vec<Scalar>, SynthesisError> {
        Ok(self.circuit.witness.inputs[1..].to_vec())
    }
}
