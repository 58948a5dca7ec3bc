//! Any `bellpepper_core::Circuit` with its proving key, as a job like any other.

use std::sync::Arc;

use bellpepper_core::Circuit;
use blstrs::Scalar;
use ff::PrimeField;
use rand::rngs::OsRng;
use rand::RngCore;
use sha2::{Digest, Sha256};

use crate::circuits::workload::partition_of;
use crate::circuits::{SrsSource, WorkKind, Workload};
use crate::error::SynthesisError;
use crate::groth16::{PackedWitness, R1csShape};
use crate::ids::{CircuitId, PartitionIndex, RequestDigest};

/// One job of a host's own circuit: one instance per partition.
///
/// **Identity.** Jobs with one request id, kind and digest are one job to the engine. A circuit's witness cannot be
/// hashed from outside, and two witnesses of one statement may well differ, so by default every `CustomCircuit` has a
/// digest of its own and is proved on its own; its clones through [`Self::into_workload`]'s `Arc` share it. A host
/// that wants retries to attach to a job says what the statement is: [`Self::with_statement`].
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
        let mut nonce = [0; 32];
        OsRng.fill_bytes(&mut nonce);
        let digest = digest(&circuit, &instances, b"unique", &nonce);
        Self { circuit, srs, blank, instances, digest }
    }

    /// Makes jobs of the same circuit, public inputs and `statement` one job. `statement` must determine whatever
    /// of the witness matters to the host: the digest of what the witness was made from, for example.
    pub fn with_statement(mut self, statement: &[u8]) -> Self {
        self.digest = digest(&self.circuit, &self.instances, b"statement", statement);
        self
    }

    /// The job as the engine takes it: `ProofRequest::new(Payload::Workload(…))`.
    pub fn into_workload(self) -> Arc<dyn Workload> {
        Arc::new(self)
    }
}

/// SHA-256 over circuit, all public inputs and `identity`, each with its length.
fn digest<C>(
    circuit: &CircuitId,
    instances: &[(C, Vec<Scalar>)],
    identity_kind: &[u8],
    identity: &[u8],
) -> RequestDigest {
    let mut hasher = Sha256::new();
    let mut feed = |bytes: &[u8]| {
        hasher.update((bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    feed(b"custom-circuit/v1");
    feed(circuit.as_str().as_bytes());
    feed(identity_kind);
    feed(identity);
    feed(&(instances.len() as u64).to_le_bytes());
    for (_, inputs) in instances {
        let inputs: Vec<u8> = inputs.iter().flat_map(|input| input.to_repr()).collect();
        feed(&inputs);
    }
    RequestDigest(hasher.finalize().into())
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

    fn synthesize(
        &self,
        partition: PartitionIndex,
        shape: &R1csShape,
    ) -> Result<PackedWitness, SynthesisError> {
        let (circuit, _) = partition_of(&self.instances, partition)?;
        PackedWitness::synthesize(circuit.clone(), shape)
    }

    fn public_inputs(&self, partition: PartitionIndex) -> Result<Vec<Scalar>, SynthesisError> {
        let (_, inputs) = partition_of(&self.instances, partition)?;
        Ok(inputs.clone())
    }
}
