//! A key that is made on the GPU and stays in memory, and jobs that are proved by it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use blstrs::Scalar;
use cuzk::circuits::{CircuitSpec, SrsSource, WorkKind, Workload};
use cuzk::cuda::generate::ParameterMaker;
use cuzk::error::{RequestError, SynthesisError};
use cuzk::groth16::{PackedWitness, R1csShape, Srs, VerifyingKey};
use cuzk::ids::{CircuitId, PartitionIndex, RequestDigest};

use crate::Failure;

/// The circuit's test parameters.
pub struct KeyInMemory {
    pub srs: Arc<Srs>,
}

impl KeyInMemory {
    /// On the first GPU, whose memory is free again afterwards; folded or plain.
    pub fn make(spec: &CircuitSpec, shape: &R1csShape, folded: bool) -> Result<Self, Failure> {
        let maker = ParameterMaker::first().map_err(Failure::failed)?;
        let tenths = AtomicU64::new(0);
        let progress = |done: u64, total: u64| {
            let now = 10 * done / total.max(1);
            if tenths.fetch_max(now, Ordering::Relaxed) < now {
                eprintln!("key: {done} of {total} points");
            }
        };
        let mut rng = spec.test_params_rng();
        let srs = match folded {
            true => maker.folded_in_memory(shape, &mut rng, &progress),
            false => maker.in_memory(shape, &mut rng, &progress),
        };
        Ok(Self { srs: Arc::new(srs.map_err(Failure::failed)?) })
    }
}

/// A job with another source of its key, and its circuit's shape at hand.
#[derive(Debug)]
pub struct Keyed {
    inner: Arc<dyn Workload>,
    source: SrsSource,
    shape: Arc<R1csShape>,
}

impl Keyed {
    pub fn new(inner: Arc<dyn Workload>, source: SrsSource, shape: Arc<R1csShape>) -> Self {
        Self { inner, source, shape }
    }
}

impl Workload for Keyed {
    fn kind(&self) -> WorkKind {
        self.inner.kind()
    }

    fn circuit(&self) -> &CircuitId {
        self.inner.circuit()
    }

    fn num_partitions(&self) -> u32 {
        self.inner.num_partitions()
    }

    fn digest(&self) -> RequestDigest {
        self.inner.digest()
    }

    fn srs(&self) -> SrsSource {
        self.source.clone()
    }

    fn record_shape(&self) -> Result<R1csShape, SynthesisError> {
        Ok(R1csShape::clone(&self.shape))
    }

    fn synthesize(
        &self,
        partition: PartitionIndex,
        shape: &R1csShape,
    ) -> Result<PackedWitness, SynthesisError> {
        self.inner.synthesize(partition, shape)
    }

    fn public_inputs(&self, partition: PartitionIndex) -> Result<Vec<Scalar>, SynthesisError> {
        self.inner.public_inputs(partition)
    }

    fn verify_job(&self, vk: &VerifyingKey, proof: &[u8]) -> Result<(), RequestError> {
        self.inner.verify_job(vk, proof)
    }
}
