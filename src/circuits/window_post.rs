//! WindowPoSt: the proof that a partition's sectors are still stored.

use crate::circuits::catalogue::{ProofVersion, RegisteredProof};
use crate::circuits::{post, ProofKind, SectorSize};
use crate::error::SynthesisError;
use crate::groth16::R1csShape;

/// Records the matrices from the blank circuit. They are the same for both versions.
pub(crate) fn record_shape(sector_size: SectorSize) -> Result<R1csShape, SynthesisError> {
    let kind = ProofKind::WindowPostPartition;
    post::record_shape(&RegisteredProof { kind, sector_size, version: ProofVersion::V1_2 })
}
