//! Proof bytes: A 48, B 96, C 48, compressed, in the zcash form.

use blstrs::{G1Affine, G2Affine};
use group::prime::PrimeCurveAffine;

/// Bytes of one proof (one partition).
pub const PROOF_BYTES: usize = 192;

const G1_BYTES: usize = 48;
const G2_BYTES: usize = 96;

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
    /// The bytes every verifier reads: A, B, C one after the other.
    pub fn to_bytes(&self) -> [u8; PROOF_BYTES] {
        let mut bytes = [0; PROOF_BYTES];
        let (a, rest) = bytes.split_at_mut(G1_BYTES);
        let (b, c) = rest.split_at_mut(G2_BYTES);
        a.copy_from_slice(&self.a.to_compressed());
        b.copy_from_slice(&self.b.to_compressed());
        c.copy_from_slice(&self.c.to_compressed());
        bytes
    }

    /// Reads exactly one proof. Every proof has one encoding only: what is accepted comes out of
    /// [`Proof::to_bytes`] unchanged.
    ///
    /// # Errors
    /// [`ProofBytesError`] if a point is not canonical, not on the curve, not in the subgroup, or the identity.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ProofBytesError> {
        let bytes: &[u8; PROOF_BYTES] =
            bytes.try_into().map_err(|_| ProofBytesError::Length { has: bytes.len() })?;
        let (a, rest) = bytes.split_at(G1_BYTES);
        let (b, c) = rest.split_at(G2_BYTES);
        Ok(Self { a: read_g1(a, "A")?, b: read_g2(b, "B")?, c: read_g1(c, "C")? })
    }
}

fn read_g1(bytes: &[u8], name: &'static str) -> Result<G1Affine, ProofBytesError> {
    let bytes = bytes.try_into().expect("split at the size of a compressed point");
    Option::from(G1Affine::from_compressed(bytes))
        .filter(|point: &G1Affine| !bool::from(point.is_identity()))
        .ok_or(ProofBytesError::Point(name))
}

fn read_g2(bytes: &[u8], name: &'static str) -> Result<G2Affine, ProofBytesError> {
    let bytes = bytes.try_into().expect("split at the size of a compressed point");
    Option::from(G2Affine::from_compressed(bytes))
        .filter(|point: &G2Affine| !bool::from(PrimeCurveAffine::is_identity(point)))
        .ok_or(ProofBytesError::Point(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generators() -> Proof {
        Proof { a: G1Affine::generator(), b: G2Affine::generator(), c: G1Affine::generator() }
    }

    #[test]
    fn bytes_come_back_and_other_lengths_are_refused() {
        let bytes = generators().to_bytes();
        assert_eq!(Proof::from_bytes(&bytes), Ok(generators()));
        assert_eq!(Proof::from_bytes(&bytes[..191]), Err(ProofBytesError::Length { has: 191 }));
        assert_eq!(
            Proof::from_bytes(&[bytes.as_slice(), &[0]].concat()),
            Err(ProofBytesError::Length { has: 193 })
        );
    }

    #[test]
    fn identity_flags_and_non_canonical_coordinates_are_refused_by_name() {
        for (start, name) in [(0, "A"), (48, "B"), (144, "C")] {
            let size = if start == 48 { 96 } else { 48 };
            let refused = |change: &dyn Fn(&mut [u8])| {
                let mut bytes = generators().to_bytes();
                change(&mut bytes[start..start + size]);
                assert_eq!(Proof::from_bytes(&bytes), Err(ProofBytesError::Point(name)));
            };
            refused(&|point| {
                point.fill(0);
                point[0] = 0xc0;
            });
            refused(&|point| point[0] &= 0x7f);
            refused(&|point| point[0] |= 0x40);
            refused(&|point| {
                point.fill(0xff);
                point[0] = 0x9f;
            });
        }
    }

    #[test]
    fn points_outside_the_subgroup_are_refused() {
        // The smallest x with a point on the curve whose order is not r.
        let outside = (1u8..)
            .map(|x| {
                let mut bytes = [0; 48];
                bytes[0] = 0x80;
                bytes[47] = x;
                bytes
            })
            .find(|bytes| {
                Option::<G1Affine>::from(G1Affine::from_compressed_unchecked(bytes))
                    .is_some_and(|point| !bool::from(point.is_torsion_free()))
            })
            .expect("half of all x are on the curve, almost none of those in the subgroup");
        let mut bytes = generators().to_bytes();
        bytes[144..].copy_from_slice(&outside);
        assert_eq!(Proof::from_bytes(&bytes), Err(ProofBytesError::Point("C")));
    }
}
