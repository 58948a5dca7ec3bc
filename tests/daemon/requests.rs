//! Requests as callers send them, from the recorded jobs.

use std::path::Path;

use cuzk::circuits::manifest::Manifest;
use cuzk::circuits::FilecoinRequest;
use cuzk_wire::v1::{ProveRequest, SubmitProofRequest};

/// One request of a recorded job, under this name.
pub fn recorded(folder: &str, index: usize, request_id: &str) -> SubmitProofRequest {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/filecoin").join(folder);
    let path = path.join("manifest.json");
    let manifest = Manifest::read(&path).unwrap();
    let request = manifest.request(index, &manifest.input_folder(index, &path)).unwrap();
    to_wire(request, request_id)
}

fn to_wire(request: FilecoinRequest, request_id: &str) -> SubmitProofRequest {
    SubmitProofRequest {
        request_id: request_id.to_owned(),
        proof_kind: request.proof_kind.unwrap().number() as i32,
        sector_size: request.sector_size,
        registered_proof: request.registered_proof,
        vanilla_proof: request.vanilla_proof.into(),
        vanilla_proofs: request.vanilla_proofs.into_iter().map(Into::into).collect(),
        sector_number: request.sector_number,
        miner_id: request.miner_id,
        randomness: request.randomness.into(),
        partition_index: request.partition_index,
        comm_r_old: request.comm_r_old.into(),
        comm_r_new: request.comm_r_new.into(),
        comm_d_new: request.comm_d_new.into(),
        ..SubmitProofRequest::default()
    }
}

/// What takes least to prove, for whatever is not about a kind: at 2 KiB a WinningPoSt has five times the constraints.
pub fn window(request_id: &str) -> SubmitProofRequest {
    recorded("window-2k/full-partition", 0, request_id)
}

/// Another statement of the same circuit.
pub fn other_window(request_id: &str) -> SubmitProofRequest {
    recorded("window-2k/two-partitions", 0, request_id)
}

pub fn winning(request_id: &str) -> SubmitProofRequest {
    recorded("winning-2k/sector-1", 0, request_id)
}

pub fn prove(submit: SubmitProofRequest) -> ProveRequest {
    ProveRequest { submit: Some(submit) }
}
