//! The prover's steps, and the whole of them in one call.

use std::fmt;

use blstrs::{G1Projective, G2Projective, Scalar};
use ff::Field;
use group::Curve;
use rand_core::{CryptoRng, RngCore};

use crate::error::{SrsError, SynthesisError};
use crate::groth16::domain::quotient;
use crate::groth16::msm::{msm_g1, msm_g1_dense, msm_g2_dense};
use crate::groth16::{Assignment, Evaluations, Proof, R1csShape, Srs, VerifyingKey};

/// The proof's blinding values. A secret: `Debug` prints neither.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Blinding {
    pub r: Scalar,
    pub s: Scalar,
}

impl fmt::Debug for Blinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Blinding(..)")
    }
}

impl Blinding {
    /// `r`, then `s`.
    pub fn random(rng: &mut (impl RngCore + CryptoRng)) -> Self {
        let r = Scalar::random(&mut *rng);
        let s = Scalar::random(&mut *rng);
        Self { r, s }
    }
}

/// The five sums of a proof: one per query. Before they are blinded they tell of the witness: `Debug` prints none.
#[derive(Clone, PartialEq, Eq)]
pub struct QuerySums {
    pub h: G1Projective,
    pub l: G1Projective,
    pub a: G1Projective,
    pub b_g1: G1Projective,
    pub b_g2: G2Projective,
}

impl fmt::Debug for QuerySums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("QuerySums(..)")
    }
}

/// Sum over the H query; `quotient` is [`crate::groth16::domain::quotient`]'s result.
///
/// # Panics
/// This and the other sums panic if the SRS has another number of points than the circuit needs:
/// [`Srs::check_fits`] comes first.
pub fn sum_h(srs: &Srs, quotient: &[Scalar]) -> G1Projective {
    msm_g1(&srs.h, quotient)
}

/// Sum over the L query: all aux variables.
pub fn sum_l(srs: &Srs, assignment: &Assignment) -> G1Projective {
    msm_g1(&srs.l, &assignment.aux_assignment)
}

/// Sum over the A query: all inputs, and the aux variables that occur in A.
pub fn sum_a(srs: &Srs, shape: &R1csShape, assignment: &Assignment) -> G1Projective {
    let (inputs, aux) = srs.a.split_at(shape.num_inputs());
    msm_g1(inputs, &assignment.input_assignment)
        + msm_g1_dense(aux, shape.a_aux_density(), &assignment.aux_assignment)
}

/// Sum over the B query in G1: the inputs and the aux variables that occur in B.
pub fn sum_b_g1(srs: &Srs, shape: &R1csShape, assignment: &Assignment) -> G1Projective {
    let (inputs, aux) = srs.b_g1.split_at(shape.b_input_density().count_ones());
    msm_g1_dense(inputs, shape.b_input_density(), &assignment.input_assignment)
        + msm_g1_dense(aux, shape.b_aux_density(), &assignment.aux_assignment)
}

/// As [`sum_b_g1`], in G2.
pub fn sum_b_g2(srs: &Srs, shape: &R1csShape, assignment: &Assignment) -> G2Projective {
    let (inputs, aux) = srs.b_g2.split_at(shape.b_input_density().count_ones());
    msm_g2_dense(inputs, shape.b_input_density(), &assignment.input_assignment)
        + msm_g2_dense(aux, shape.b_aux_density(), &assignment.aux_assignment)
}

/// Puts the proof together (Groth16, section 3.2; bellperson `prover/native.rs`):
///
/// ```text
/// A = α + Σa + rδ      B = β + Σb + sδ      C = s·A + r·B - rs·δ + Σh + Σl
/// ```
pub fn assemble(vk: &VerifyingKey, sums: &QuerySums, blinding: &Blinding) -> Proof {
    let Blinding { r, s } = *blinding;
    let a = sums.a + vk.alpha_g1 + vk.delta_g1 * r;
    let b_g1 = sums.b_g1 + vk.beta_g1 + vk.delta_g1 * s;
    let b_g2 = sums.b_g2 + vk.beta_g2 + vk.delta_g2 * s;
    let c = a * s + b_g1 * r - vk.delta_g1 * (r * s) + sums.h + sums.l;
    Proof { a: a.to_affine(), b: b_g2.to_affine(), c: c.to_affine() }
}

/// Everything in one call: the reference of every backend. `evaluations` as [`R1csShape::evaluate`] gives them.
///
/// # Errors
/// [`SrsError::Mismatch`] if the SRS is of another circuit.
///
/// # Panics
/// If `assignment` or `evaluations` are not of `shape`.
pub fn prove(
    srs: &Srs,
    shape: &R1csShape,
    assignment: &Assignment,
    evaluations: Evaluations,
    blinding: &Blinding,
) -> Result<Proof, SrsError> {
    srs.check_fits(shape)?;
    let sums = QuerySums {
        h: sum_h(srs, &quotient(evaluations, shape.domain_log2())),
        l: sum_l(srs, assignment),
        a: sum_a(srs, shape, assignment),
        b_g1: sum_b_g1(srs, shape, assignment),
        b_g2: sum_b_g2(srs, shape, assignment),
    };
    Ok(assemble(&srs.vk, &sums, blinding))
}

/// Checks a witness against shape and verifier before any proving: sizes, public inputs, every constraint.
/// `public_inputs` are without the leading one. Returns the row values, which the prover needs next.
///
/// # Errors
/// [`SynthesisError::ShapeMismatch`], [`SynthesisError::PublicInput`] or [`SynthesisError::Unsatisfied`], the first
/// that applies; the last two name the first input or constraint that is wrong.
pub fn check_witness(
    shape: &R1csShape,
    assignment: &Assignment,
    public_inputs: &[Scalar],
) -> Result<Evaluations, SynthesisError> {
    let (needs, has) = (shape.num_inputs() - 1, public_inputs.len());
    if needs != has {
        return Err(SynthesisError::ShapeMismatch { what: "public inputs of the verifier", needs, has });
    }
    let evaluations = shape.evaluate(assignment)?;
    let own_inputs = &assignment.input_assignment[1..];
    if let Some(index) = own_inputs.iter().zip(public_inputs).position(|(own, needed)| own != needed) {
        return Err(SynthesisError::PublicInput { index });
    }
    shape.check_satisfied(&evaluations)?;
    Ok(evaluations)
}

#[cfg(test)]
mod tests {
    use group::Group;

    use super::*;

    #[test]
    fn unblinded_sums_are_not_printed() {
        let (g1, g2) = (G1Projective::identity(), G2Projective::identity());
        let sums = QuerySums { h: g1, l: g1, a: g1, b_g1: g1, b_g2: g2 };
        assert_eq!(format!("{sums:?}"), "QuerySums(..)");
    }
}
