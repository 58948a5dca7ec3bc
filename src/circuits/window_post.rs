//! WindowPoSt: the proof that a partition's sectors are still stored. A request is one partition of a deadline.

use std::path::Path;
use std::sync::Arc;

use crate::circuits::catalogue::{ProofVersion, RegisteredProof};
use crate::circuits::request::FilecoinRequest;
use crate::circuits::{post, ProofKind, SectorSize, Workload};
use crate::error::{RequestError, SynthesisError};
use crate::groth16::sink::Synthesis;

const KIND: ProofKind = ProofKind::WindowPostPartition;

/// Decodes and checks a WindowPoSt request.
pub(super) fn decode(
    request: &FilecoinRequest,
    params_dir: &Path,
) -> Result<Arc<dyn Workload>, RequestError> {
    post::decode(request, KIND, params_dir)
}

/// The blank circuit. It is the same for both versions.
pub(super) fn blank(sector_size: SectorSize) -> Result<Synthesis<'static>, SynthesisError> {
    post::blank(&RegisteredProof { kind: KIND, sector_size, version: ProofVersion::V1_2 })
}
