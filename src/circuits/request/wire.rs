//! The wire's `SubmitProofRequest` as a request: what is not checked here is checked when it is decoded.

use bytes::Bytes;
use cuzk_wire::v1;

use super::{FilecoinRequest, RequestPriority};
use crate::circuits::ProofKind;
use crate::error::RequestError;

/// What a caller asks for, beside the statement itself.
#[derive(Debug)]
pub struct WireRequest {
    /// Not unique; empty: one is made.
    pub request_id: String,
    pub priority: RequestPriority,
    /// Milliseconds; 0: none.
    pub deadline_ms: u64,
    pub request: FilecoinRequest,
}

/// Longest `request_id`, in bytes: it is kept, logged and sent back, and real ones have less than a hundred.
pub const REQUEST_ID_BYTES_MAX: usize = 512;

impl WireRequest {
    /// Takes the fields over. Bulk is moved, and copied only where several fields share one buffer.
    ///
    /// # Errors
    /// [`RequestError::Field`] for an enum's number that is not known, and for a `request_id` that is too long or has
    /// control characters.
    pub fn from_wire(submit: v1::SubmitProofRequest) -> Result<Self, RequestError> {
        let kind = proof_kind(submit.proof_kind)?;
        let priority = priority(submit.priority)?;
        check_request_id(&submit.request_id)?;
        let request = FilecoinRequest {
            proof_kind: Some(kind),
            sector_size: submit.sector_size,
            registered_proof: submit.registered_proof,
            vanilla_proofs: submit.vanilla_proofs.into_iter().map(owned).collect(),
            sector_number: submit.sector_number,
            miner_id: submit.miner_id,
            randomness: owned(submit.randomness),
            partition_index: submit.partition_index,
            comm_r_old: owned(submit.comm_r_old),
            comm_r_new: owned(submit.comm_r_new),
            comm_d_new: owned(submit.comm_d_new),
            // After the small ones, which share its buffer: it is then moved.
            vanilla_proof: owned(submit.vanilla_proof),
            test_scale: None,
        };
        Ok(Self { request_id: submit.request_id, priority, deadline_ms: submit.deadline_ms, request })
    }
}

/// Moves the bytes where nothing else shares their buffer; else copies them.
fn owned(bytes: Bytes) -> Vec<u8> {
    bytes.into()
}

fn field(field: &str, what: String) -> RequestError {
    RequestError::Field { field: field.to_owned(), what }
}

fn proof_kind(number: i32) -> Result<ProofKind, RequestError> {
    use v1::ProofKind as Wire;
    match Wire::try_from(number) {
        Ok(Wire::PorepSealCommit) => Ok(ProofKind::PorepSealCommit),
        Ok(Wire::SnapDealsUpdate) => Ok(ProofKind::SnapDealsUpdate),
        Ok(Wire::WindowPostPartition) => Ok(ProofKind::WindowPostPartition),
        Ok(Wire::WinningPost) => Ok(ProofKind::WinningPost),
        Ok(Wire::Unspecified) => Err(field("proof_kind", "is missing".to_owned())),
        Err(_) => Err(field(
            "proof_kind",
            format!(
                "{number} is none of POREP_SEAL_COMMIT (1), SNAP_DEALS_UPDATE (2), WINDOW_POST_PARTITION (3), \
                 WINNING_POST (4)"
            ),
        )),
    }
}

fn priority(number: i32) -> Result<RequestPriority, RequestError> {
    use v1::Priority as Wire;
    match Wire::try_from(number) {
        Ok(Wire::Unspecified) => Ok(RequestPriority::Unspecified),
        Ok(Wire::Low) => Ok(RequestPriority::Low),
        Ok(Wire::Normal) => Ok(RequestPriority::Normal),
        Ok(Wire::High) => Ok(RequestPriority::High),
        Ok(Wire::Critical) => Ok(RequestPriority::Critical),
        Err(_) => {
            Err(field("priority", format!("{number} is none of LOW (1), NORMAL (2), HIGH (3), CRITICAL (4)")))
        }
    }
}

fn check_request_id(id: &str) -> Result<(), RequestError> {
    if id.len() > REQUEST_ID_BYTES_MAX {
        let what = format!("needs {REQUEST_ID_BYTES_MAX} B at most, has {} B", id.len());
        return Err(field("request_id", what));
    }
    // It would break log lines.
    if id.chars().any(char::is_control) {
        return Err(field("request_id", "has a control character".to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bulk_is_moved_and_not_copied() {
        let mut buffer = bytes::BytesMut::zeroed(1 << 20);
        let small = buffer.split_to(32).freeze();
        let bulk = buffer.freeze();
        let place = bulk.as_ptr() as usize;
        let submit = v1::SubmitProofRequest {
            proof_kind: 1,
            vanilla_proof: bulk,
            comm_r_old: small,
            ..Default::default()
        };
        let request = WireRequest::from_wire(submit).unwrap().request;
        assert_eq!(request.vanilla_proof.len(), (1 << 20) - 32);
        // Moved within its own buffer: at most the small field before it was cut off.
        assert!(place - request.vanilla_proof.as_ptr() as usize <= 32);
    }

    #[test]
    fn numbers_that_mean_nothing_are_named() {
        let of = |submit| WireRequest::from_wire(submit).unwrap_err().to_string();
        assert_eq!(of(v1::SubmitProofRequest::default()), "proof_kind: is missing");
        let unknown = v1::SubmitProofRequest { proof_kind: 9, ..Default::default() };
        assert!(of(unknown).starts_with("proof_kind: 9 is none of"));
        let unknown = v1::SubmitProofRequest { proof_kind: 4, priority: -1, ..Default::default() };
        assert!(of(unknown).starts_with("priority: -1 is none of"));
        let id = v1::SubmitProofRequest { proof_kind: 4, request_id: "a\nb".into(), ..Default::default() };
        assert_eq!(of(id), "request_id: has a control character");
    }
}
