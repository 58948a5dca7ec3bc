//! Jobs of any kind, and with any verdict of their library, from the same small circuit.

use std::sync::Arc;

use blstrs::Scalar;
use cuzk::circuits::{SrsSource, WorkKind, Workload};
use cuzk::error::{RequestError, SynthesisError};
use cuzk::groth16::{PackedWitness, R1csShape, VerifyingKey};
use cuzk::ids::{CircuitId, PartitionIndex, RequestDigest};
use cuzk::messages::job::{Payload, ProofRequest};

use crate::squares::{workload, Squares};

pub const ALL_KINDS: [WorkKind; 5] =
    [WorkKind::PorepC2, WorkKind::SnapUpdate, WorkKind::WindowPost, WorkKind::WinningPost, WorkKind::Custom];

/// What a job's library says of its proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Accepts,
    Refuses,
    Panics,
}

/// A workload that says it is of another kind, and whose library says what the test wants.
#[derive(Debug)]
struct Posing {
    kind: WorkKind,
    verdict: Verdict,
    workload: Arc<dyn Workload>,
}

fn posing(kind: WorkKind, verdict: Verdict, xs: &[u64]) -> Arc<dyn Workload> {
    let workload = workload(xs.iter().map(|&x| Squares::of(x)).collect());
    Arc::new(Posing { kind, verdict, workload })
}

pub fn of_kind(kind: WorkKind, request_id: &str, xs: &[u64]) -> ProofRequest {
    let payload = Payload::Workload(posing(kind, Verdict::Accepts, xs));
    ProofRequest { request_id: request_id.into(), ..ProofRequest::new(payload) }
}

/// A job whose proofs hold, whatever its library says of them.
pub fn judged(verdict: Verdict, xs: &[u64]) -> Arc<dyn Workload> {
    posing(WorkKind::Custom, verdict, xs)
}

impl Workload for Posing {
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

    fn verify_job(&self, _: &VerifyingKey, _: &[u8]) -> Result<(), RequestError> {
        match self.verdict {
            Verdict::Accepts => Ok(()),
            Verdict::Refuses => {
                Err(RequestError::Field { field: "proof".into(), what: "is not liked".into() })
            }
            Verdict::Panics => panic!("this library panics on purpose"),
        }
    }
}
