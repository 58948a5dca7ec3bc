//! Proving keys in memory: the queries and the verifying key.

use std::fmt;

use blst::{blst_p1_affine, blst_p2_affine};
use blstrs::{G1Affine, G2Affine};

use crate::error::SrsError;
use crate::groth16::R1csShape;

/// A Groth16 verifying key (`.vk`, and the head of a parameter file).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyingKey {
    pub alpha_g1: G1Affine,
    pub beta_g1: G1Affine,
    pub beta_g2: G2Affine,
    pub gamma_g2: G2Affine,
    pub delta_g1: G1Affine,
    pub delta_g2: G2Affine,
    /// One point per public input, the leading one included.
    pub ic: Vec<G1Affine>,
}

/// A proving key. Points are affine, in blst's Montgomery form (96 B in G1, 192 B in G2); none is the identity
/// when it came from a file.
pub struct Srs {
    pub vk: VerifyingKey,
    /// `tau^i * Z(tau) / delta`: domain - 1 points.
    pub h: Vec<blst_p1_affine>,
    /// One point per aux variable.
    pub l: Vec<blst_p1_affine>,
    /// All inputs, then the aux variables that occur in A.
    pub a: Vec<blst_p1_affine>,
    /// The inputs that occur in B, then the aux variables that do.
    pub b_g1: Vec<blst_p1_affine>,
    /// The same variables as `b_g1`.
    pub b_g2: Vec<blst_p2_affine>,
}

impl fmt::Debug for Srs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Srs")
            .field("h", &self.h.len())
            .field("l", &self.l.len())
            .field("a", &self.a.len())
            .field("b_g1", &self.b_g1.len())
            .field("b_g2", &self.b_g2.len())
            .finish_non_exhaustive()
    }
}

impl Srs {
    /// Bytes of all queries in memory.
    pub fn num_bytes(&self) -> u64 {
        let g1 = self.h.len() + self.l.len() + self.a.len() + self.b_g1.len() + self.vk.ic.len();
        (96 * g1 + 192 * self.b_g2.len()) as u64
    }

    /// `Ok` if the verifying key and every query have as many points as `shape` needs. Equal counts do not prove that
    /// the SRS was made for this circuit (only a digest does), but they keep every sum within its query.
    ///
    /// # Errors
    /// [`SrsError::Mismatch`] naming the first one that differs, in the order of the file.
    pub fn check_fits(&self, shape: &R1csShape) -> Result<(), SrsError> {
        let counts =
            [self.vk.ic.len(), self.h.len(), self.l.len(), self.a.len(), self.b_g1.len(), self.b_g2.len()];
        check_counts(shape, counts.map(|count| count as u64))
    }
}

/// `counts`: points of `ic`, `h`, `l`, `a`, `b_g1`, `b_g2`.
pub(super) fn check_counts(shape: &R1csShape, counts: [u64; 6]) -> Result<(), SrsError> {
    let num_b = shape.b_input_density().count_ones() + shape.b_aux_density().count_ones();
    let needs = [
        ("ic", shape.num_inputs()),
        ("h", (1 << shape.domain_log2()) - 1),
        ("l", shape.num_aux()),
        ("a", shape.num_inputs() + shape.a_aux_density().count_ones()),
        ("b_g1", num_b),
        ("b_g2", num_b),
    ];
    for ((what, needs), has) in needs.into_iter().zip(counts) {
        if needs as u64 != has {
            return Err(SrsError::Mismatch { path: None, what, needs: needs as u64, has });
        }
    }
    Ok(())
}
