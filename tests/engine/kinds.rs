//! Jobs of any kind, and with any verdict of their library, from the same small circuit.

use std::sync::Arc;

use cuzk::circuits::{WorkKind, Workload};
use cuzk::error::RequestError;
use cuzk::groth16::VerifyingKey;
use cuzk::messages::job::{Payload, ProofRequest};

use crate::common::wrapped::{wrapped, Wrapper};
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
    wrapped(Posing { kind, verdict, workload })
}

pub fn of_kind(kind: WorkKind, request_id: &str, xs: &[u64]) -> ProofRequest {
    let payload = Payload::Workload(posing(kind, Verdict::Accepts, xs));
    ProofRequest { request_id: request_id.into(), ..ProofRequest::new(payload) }
}

/// A job whose proofs hold, whatever its library says of them.
pub fn judged(verdict: Verdict, xs: &[u64]) -> Arc<dyn Workload> {
    posing(WorkKind::Custom, verdict, xs)
}

impl Wrapper for Posing {
    fn inner(&self) -> &dyn Workload {
        self.workload.as_ref()
    }

    fn kind(&self) -> WorkKind {
        self.kind
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
