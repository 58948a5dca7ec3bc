//! Filecoin proof requests, under the wire's field names.

use std::path::Path;
use std::sync::Arc;

use crate::circuits::{ProofKind, Workload};
use crate::error::RequestError;

/// The fields of the wire's `SubmitProofRequest` that describe the statement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilecoinRequest {
    pub proof_kind: Option<ProofKind>,
    /// Bytes; 0: take it from `registered_proof` or the C1.
    pub sector_size: u64,
    pub registered_proof: u64,
    pub vanilla_proof: Vec<u8>,
    pub vanilla_proofs: Vec<Vec<u8>>,
    pub sector_number: u64,
    pub miner_id: u64,
    pub randomness: Vec<u8>,
    pub partition_index: u32,
    pub comm_r_old: Vec<u8>,
    pub comm_r_new: Vec<u8>,
    pub comm_d_new: Vec<u8>,
}

impl FilecoinRequest {
    /// Decodes and validates everything that can be checked without synthesis. `params_dir` is where the circuit's
    /// parameter file is expected (it is not opened here).
    ///
    /// # Errors
    /// [`RequestError`] naming the field and the place in it.
    pub fn decode(self, params_dir: &Path) -> Result<Arc<dyn Workload>, RequestError> {
        let _ = params_dir;
        todo!()
    }
}
