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

/// What the quotient is given by, and with it what `h` and `l` of an [`Srs`] hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum QuotientBasis {
    /// By its coefficients: a key as parameter files hold it.
    #[default]
    Coefficients,
    /// By its values on the domain: a key that was folded ([`crate::groth16::fold`]). `h` has a point for each row of
    /// the domain, `l` one for each input and then one for each aux variable.
    Lagrange,
}

/// A proving key. Points are affine, in blst's Montgomery form (96 B in G1, 192 B in G2); none is the identity
/// when it came from a file; a folded one has the identity for inputs that it needs no point for.
pub struct Srs {
    pub vk: VerifyingKey,
    pub basis: QuotientBasis,
    /// `tau^i * Z(tau) / delta`: domain - 1 points. Of a folded key, their transform: as many as the domain has.
    pub h: Vec<blst_p1_affine>,
    /// One point per aux variable. Of a folded key, one per input before them.
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
            .field("basis", &self.basis)
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
        check_counts(shape, self.basis, counts.map(|count| count as u64))
    }
}

/// `counts`: points of `ic`, `h`, `l`, `a`, `b_g1`, `b_g2`.
pub(super) fn check_counts(
    shape: &R1csShape,
    basis: QuotientBasis,
    counts: [u64; 6],
) -> Result<(), SrsError> {
    let domain_size = 1 << shape.domain_log2();
    let (num_h, num_l) = match basis {
        QuotientBasis::Coefficients => (domain_size - 1, shape.num_aux()),
        QuotientBasis::Lagrange => (domain_size, shape.num_inputs() + shape.num_aux()),
    };
    let num_b = shape.b_input_density().count_ones() + shape.b_aux_density().count_ones();
    let needs = [
        ("ic", shape.num_inputs()),
        ("h", num_h),
        ("l", num_l),
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
