//! Jobs of any kind, from the same small circuit.

use std::sync::Arc;

use blstrs::Scalar;
use cuzk::circuits::{SrsSource, WorkKind, Workload};
use cuzk::error::SynthesisError;
use cuzk::groth16::{PackedWitness, R1csShape};
use cuzk::ids::{CircuitId, PartitionIndex, RequestDigest};
use cuzk::messages::job::{Payload, ProofRequest};

use crate::squares::{workload, Squares};

pub const ALL_KINDS: [WorkKind; 5] =
    [WorkKind::PorepC2, WorkKind::SnapUpdate, WorkKind::WindowPost, WorkKind::WinningPost, WorkKind::Custom];

/// A workload that says it is of another kind.
#[derive(Debug)]
struct OfKind {
    kind: WorkKind,
    workload: Arc<dyn Workload>,
}

pub fn of_kind(kind: WorkKind, request_id: &str, xs: &[u64]) -> ProofRequest {
    let workload = workload(xs.iter().map(|&x| Squares::of(x)).collect());
    let payload = Payload::Workload(Arc::new(OfKind { kind, workload }));
    ProofRequest { request_id: request_id.into(), ..ProofRequest::new(payload) }
}

impl Workload for OfKind {
    fn kind(&self) -> WorkKind {
        self.kind
    }

    fn circuit(&self) -> &CircuitId {
        self.workload.circuit()
    }

    fn num_partitions(&self) -> u32 {
        self.workload.num_partitions()
    }

    fn digest(&self) -> RequestDigest {
        self.workload.digest()
    }

    fn srs(&self) -> SrsSource {
        self.workload.srs()
    }

    fn record_shape(&self) -> Result<R1csShape, SynthesisError> {
        self.workload.record_shape()
    }

    fn synthesize(
        &self,
        partition: PartitionIndex,
        shape: &R1csShape,
    ) -> Result<PackedWitness, SynthesisError> {
        self.workload.synthesize(partition, shape)
    }

    fn public_inputs(&self, partition: PartitionIndex) -> Result<Vec<Scalar>, SynthesisError> {
        self.workload.public_inputs(partition)
    }
}
