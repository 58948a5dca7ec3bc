//! WinningPoSt: the proof that a miner who may make a block holds the sector it was asked for.

use crate::circuits::catalogue::{ProofVersion, RegisteredProof};
use crate::circuits::{post, ProofKind, SectorSize};
use crate::error::SynthesisError;
use crate::groth16::R1csShape;

/// Records the matrices from the blank circuit.
pub(crate) fn record_shape(sector_size: SectorSize) -> Result<R1csShape, SynthesisError> {
    post::record_shape(&RegisteredProof {
        kind: ProofKind::WinningPost,
        sector_size,
        version: ProofVersion::V1,
    })
}
