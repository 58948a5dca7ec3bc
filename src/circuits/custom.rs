//! Any `bellpepper_core::Circuit` with its proving key, as a job like any other.

use std::sync::Arc;

use bellpepper_core::Circuit;
use blstrs::Scalar;

use crate::circuits::{SrsSource, WorkKind, Workload};
use crate::error::SynthesisError;
use crate::groth16::{Assignment, R1csShape};
use crate::ids::{CircuitId, PartitionIndex, RequestDigest};

/// One job of a host's own circuit: one instance per partition.
pub struct CustomCircuit<C> {
    circuit: CircuitId,
    srs: SrsSource,
    /// Gives the circuit's matrices; any instance, also one without a witness.
    blank: C,
    instances: Vec<(C, Vec<Scalar>)>,
    digest: RequestDigest,
}

impl<C> CustomCircuit<C>
where
    C: Circuit<Scalar> + Clone + Send + Sync + 'static,
{
    /// `instances`: per partition, the circuit with its witness and the public inputs (without the leading one).
    pub fn new(circuit: CircuitId, srs: SrsSource, blank: C, instances: Vec<(C, Vec<Scalar>)>) -> Self {
        let digest = RequestDigest([0; 32]);
        Self { circuit, srs, blank, instances, digest }
    }

    pub fn into_workload(self) -> Arc<dyn Workload> {
        Arc::new(self)
    }
}

impl<C> std::fmt::Debug for CustomCircuit<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CustomCircuit")
            .field("circuit", &self.circuit)
            .field("partitions", &self.instances.len())
            .finish_non_exhaustive()
    }
}

impl<C> Workload for CustomCircuit<C>
where
    C: Circuit<Scalar> + Clone + Send + Sync + 'static,
{
    fn kind(&self) -> WorkKind {
        WorkKind::Custom
    }

    fn circuit(&self) -> &CircuitId {
        &self.circuit
    }

    fn num_partitions(&self) -> u32 {
        self.instances.len() as u32
    }

    fn digest(&self) -> RequestDigest {
        self.digest
    }

    fn srs(&self) -> SrsSource {
        self.srs.clone()
    }

    fn record_shape(&self) -> Result<R1csShape, SynthesisError> {
        R1csShape::record(self.blank.clone())
    }

    fn synthesize(&self, partition: PartitionIndex, shape: &R1csShape) -> Result<Assignment, SynthesisError> {
        let (circuit, _) = &self.instances[partition.0 as usize];
        Assignment::synthesize(circuit.clone(), shape.num_inputs(), shape.num_aux())
    }

    fn public_inputs(&self, partition: PartitionIndex) -> Result<Vec<Scalar>, SynthesisError> {
        Ok(self.instances[partition.0 as usize].1.clone())
    }
}
