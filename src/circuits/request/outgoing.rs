//! A request as the daemon's clients send it.

use cuzk_wire::v1::SubmitProofRequest;

use super::FilecoinRequest;
use crate::error::RequestError;

impl FilecoinRequest {
    /// The request as a message, without name and priority. (The other way is the daemon's.)
    ///
    /// # Errors
    /// [`RequestError::Unsupported`] for a scaled-down PoRep, for which the wire has no field.
    pub fn into_wire(self) -> Result<SubmitProofRequest, RequestError> {
        if self.test_scale.is_some() {
            return Err(RequestError::Unsupported {
                what: "a scaled-down PoRep cannot be sent to a daemon: `cuzk prove` proves it here".into(),
            });
        }
        Ok(SubmitProofRequest {
            proof_kind: self.proof_kind.map_or(0, |kind| kind.number() as i32),
            sector_size: self.sector_size,
            registered_proof: self.registered_proof,
            vanilla_proof: self.vanilla_proof.into(),
            vanilla_proofs: self.vanilla_proofs.into_iter().map(Into::into).collect(),
            sector_number: self.sector_number,
            miner_id: self.miner_id,
            randomness: self.randomness.into(),
            partition_index: self.partition_index,
            comm_r_old: self.comm_r_old.into(),
            comm_r_new: self.comm_r_new.into(),
            comm_d_new: self.comm_d_new.into(),
            ..SubmitProofRequest::default()
        })
    }
}
