//! Proof bytes: A 48, B 96, C 48, compressed, in the zcash form.

use blstrs::{G1Affine, G2Affine};

/// Bytes of one proof (one partition).
pub const PROOF_BYTES: usize = 192;

/// A Groth16 proof.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    pub a: G1Affine,
    pub b: G2Affine,
    pub c: G1Affine,
}

/// Why 192 bytes are not a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProofBytesError {
    #[error("proof needs {PROOF_BYTES} B per partition, has {has}")]
    Length { has: usize },
    #[error("proof element {0} is not a valid point of the subgroup")]
    Point(&'static str),
}

impl Proof {
    pub fn to_bytes(&self) -> [u8; PROOF_BYTES] {
        todo!()
    }

    /// # Errors
    /// [`ProofBytesError`] if a point is not canonical, not on the curve, not in the subgroup, or the identity.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ProofBytesError> {
        let _ = bytes;
        todo!()
    }
}
