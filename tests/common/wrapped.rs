//! Workloads that are another one but for what a test needs different.

use std::fmt::Debug;
use std::sync::Arc;

use blstrs::Scalar;
use cuzk::circuits::{SrsSource, WorkKind, Workload};
use cuzk::error::{RequestError, SynthesisError};
use cuzk::groth16::{PackedWitness, R1csShape, VerifyingKey};
use cuzk::ids::{CircuitId, PartitionIndex, RequestDigest};

/// What differs; the rest is the inner workload's.
pub trait Wrapper: Debug + Send + Sync + 'static {
    fn inner(&self) -> &dyn Workload;

    fn kind(&self) -> WorkKind {
        self.inner().kind()
    }

    fn digest(&self) -> RequestDigest {
        self.inner().digest()
    }

    fn synthesize(
        &self,
        partition: PartitionIndex,
        shape: &R1csShape,
    ) -> Result<PackedWitness, SynthesisError> {
        self.inner().synthesize(partition, shape)
    }

    fn verify_job(&self, vk: &VerifyingKey, proof: &[u8]) -> Result<(), RequestError> {
        self.inner().verify_job(vk, proof)
    }
}

/// A [`Wrapper`] as a workload.
#[derive(Debug)]
pub struct Wrapped<W>(pub W);

pub fn wrapped(wrapper: impl Wrapper) -> Arc<dyn Workload> {
    Arc::new(Wrapped(wrapper))
}

impl<W: Wrapper> Workload for Wrapped<W> {
    fn kind(&self) -> WorkKind {
        self.0.kind()
    }

    fn circuit(&self) -> &CircuitId {
        self.0.inner().circuit()
    }

    fn num_partitions(&self) -> u32 {
        self.0.inner().num_partitions()
    }

    fn digest(&self) -> RequestDigest {
        self.0.digest()
    }

    fn srs(&self) -> SrsSource {
        self.0.inner().srs()
    }

    fn record_shape(&self) -> Result<R1csShape, SynthesisError> {
        self.0.inner().record_shape()
    }

    fn synthesize(
        &self,
        partition: PartitionIndex,
        shape: &R1csShape,
    ) -> Result<PackedWitness, SynthesisError> {
        self.0.synthesize(partition, shape)
    }

    fn public_inputs(&self, partition: PartitionIndex) -> Result<Vec<Scalar>, SynthesisError> {
        self.0.inner().public_inputs(partition)
    }

    fn verify_job(&self, vk: &VerifyingKey, proof: &[u8]) -> Result<(), RequestError> {
        self.0.verify_job(vk, proof)
    }
}
