//! The prover's steps, and the whole of them in one call.

use std::fmt;

use blstrs::{G1Projective, G2Projective, Scalar};
use ff::Field;
use group::Curve;
use rand_core::{CryptoRng, RngCore};

use crate::error::{SrsError, SynthesisError};
use crate::groth16::density::Density;
use crate::groth16::domain::{lagrange_quotient, quotient};
use crate::groth16::msm::{msm_g1, msm_g1_packed, msm_g1_uniform, msm_g2, msm_g2_packed, PackedScalars};
use crate::groth16::srs::QuotientBasis;
use crate::groth16::{Matrix, PackedWitness, Proof, R1csShape, Srs, VerifyingKey};

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

/// Sum over the H query; `quotient` is [`divide`]'s result in the key's basis.
///
/// # Panics
/// This and the other sums panic if the SRS has another number of points than the circuit needs
/// ([`Srs::check_fits`] comes first), or the witness is of another circuit.
pub fn sum_h(srs: &Srs, quotient: Vec<Scalar>) -> G1Projective {
    match srs.basis {
        QuotientBasis::Coefficients => msm_g1_uniform(&srs.h, quotient),
        // Rows whose values of A and B are zero are not even looked at.
        QuotientBasis::Lagrange => msm_g1(&srs.h, &quotient),
    }
}

/// Sum over the L query: all aux variables, and of a folded key the inputs too.
pub fn sum_l(srs: &Srs, shape: &R1csShape, witness: &PackedWitness) -> G1Projective {
    let num_inputs = match srs.basis {
        QuotientBasis::Coefficients => 0,
        QuotientBasis::Lagrange => shape.num_inputs(),
    };
    let (inputs, aux) = srs.l.split_at(num_inputs);
    msm_g1(inputs, &witness.inputs[..num_inputs])
        + msm_g1_packed(aux, PackedScalars { density: None, classes: shape.classes(), witness })
}

/// Sum over the A query: all inputs, and the aux variables that occur in A.
pub fn sum_a(srs: &Srs, shape: &R1csShape, witness: &PackedWitness) -> G1Projective {
    let (inputs, aux) = srs.a.split_at(shape.num_inputs());
    let density: Option<&Density> = Some(shape.a_aux_density());
    msm_g1(inputs, &witness.inputs)
        + msm_g1_packed(aux, PackedScalars { density, classes: shape.classes(), witness })
}

/// Sum over the B query in G1: the inputs and the aux variables that occur in B.
pub fn sum_b_g1(srs: &Srs, shape: &R1csShape, witness: &PackedWitness) -> G1Projective {
    let (inputs, aux) = srs.b_g1.split_at(shape.b_input_density().num_ones());
    let density: Option<&Density> = Some(shape.b_aux_density());
    msm_g1(inputs, &inputs_of_b(shape, witness))
        + msm_g1_packed(aux, PackedScalars { density, classes: shape.classes(), witness })
}

/// As [`sum_b_g1`], in G2.
pub fn sum_b_g2(srs: &Srs, shape: &R1csShape, witness: &PackedWitness) -> G2Projective {
    let (inputs, aux) = srs.b_g2.split_at(shape.b_input_density().num_ones());
    let density: Option<&Density> = Some(shape.b_aux_density());
    msm_g2(inputs, &inputs_of_b(shape, witness))
        + msm_g2_packed(aux, PackedScalars { density, classes: shape.classes(), witness })
}

fn inputs_of_b(shape: &R1csShape, witness: &PackedWitness) -> Vec<Scalar> {
    shape.b_input_density().iter_ones().map(|input| witness.inputs[input]).collect()
}

/// Row values and the coefficients of their quotient: two vectors of the domain's size at a time, since the values of C are
/// made once those of B are not needed any more.
///
/// # Errors
/// [`SynthesisError::ShapeMismatch`] if the witness is of another shape.
pub fn quotient_of(shape: &R1csShape, witness: &PackedWitness) -> Result<Vec<Scalar>, SynthesisError> {
    let [a, b] = evaluate(shape, witness)?;
    divide(shape, witness, QuotientBasis::Coefficients, a, b)
}

/// The row values of A and B: what of a witness the quotient starts from.
///
/// # Errors
/// As [`quotient_of`].
pub fn evaluate(shape: &R1csShape, witness: &PackedWitness) -> Result<[Vec<Scalar>; 2], SynthesisError> {
    Ok([shape.evaluate(Matrix::A, witness)?, shape.evaluate(Matrix::B, witness)?])
}

/// The quotient as a key of this basis needs it, from [`evaluate`]'s row values: its coefficients, or its values on the
/// domain but for what C adds ([`lagrange_quotient`]).
///
/// # Errors
/// As [`quotient_of`].
pub fn divide(
    shape: &R1csShape,
    witness: &PackedWitness,
    basis: QuotientBasis,
    a: Vec<Scalar>,
    b: Vec<Scalar>,
) -> Result<Vec<Scalar>, SynthesisError> {
    shape.check_fits(witness)?;
    Ok(match basis {
        QuotientBasis::Coefficients => quotient(a, b, shape.domain_log2(), |c| {
            shape.evaluate_into(Matrix::C, witness, c).expect("it was just seen to fit");
        }),
        QuotientBasis::Lagrange => lagrange_quotient(a, b, shape.domain_log2()),
    })
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

/// Everything in one call: the reference of every backend. For a witness that [`check_witness`] has passed; another one
/// gives a proof that does not verify.
///
/// # Errors
/// [`ProveError::Srs`] if the SRS is of another circuit, [`ProveError::Witness`] if the witness is.
pub fn prove(
    srs: &Srs,
    shape: &R1csShape,
    witness: &PackedWitness,
    blinding: &Blinding,
) -> Result<Proof, ProveError> {
    srs.check_fits(shape)?;
    let [a, b] = evaluate(shape, witness)?;
    let sums = QuerySums {
        h: sum_h(srs, divide(shape, witness, srs.basis, a, b)?),
        l: sum_l(srs, shape, witness),
        a: sum_a(srs, shape, witness),
        b_g1: sum_b_g1(srs, shape, witness),
        b_g2: sum_b_g2(srs, shape, witness),
    };
    Ok(assemble(&srs.vk, &sums, blinding))
}

/// Key, shape and witness are not of one circuit.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ProveError {
    #[error(transparent)]
    Srs(#[from] SrsError),
    #[error(transparent)]
    Witness(#[from] SynthesisError),
}

/// Checks a witness against shape and verifier before any proving: sizes, public inputs, every constraint.
/// `public_inputs` are without the leading one.
///
/// # Errors
/// [`SynthesisError::ShapeMismatch`], [`SynthesisError::PublicInput`] or [`SynthesisError::Unsatisfied`], the first
/// that applies; the last two name the first input or constraint that is wrong.
pub fn check_witness(
    shape: &R1csShape,
    witness: &PackedWitness,
    public_inputs: &[Scalar],
) -> Result<(), SynthesisError> {
    check_inputs(shape, witness, public_inputs)?;
    shape.check_satisfied(witness)
}

/// As [`check_witness`] without the constraints, which take the time: seconds of a core for PoRep of 32 GiB.
///
/// # Errors
/// [`SynthesisError::ShapeMismatch`] or [`SynthesisError::PublicInput`].
pub fn check_inputs(
    shape: &R1csShape,
    witness: &PackedWitness,
    public_inputs: &[Scalar],
) -> Result<(), SynthesisError> {
    let (needs, has) = (shape.num_inputs() - 1, public_inputs.len());
    if needs != has {
        return Err(SynthesisError::ShapeMismatch { what: "public inputs of the verifier", needs, has });
    }
    shape.check_fits(witness)?;
    let own_inputs = &witness.inputs[1..];
    match own_inputs.iter().zip(public_inputs).position(|(own, needed)| own != needed) {
        Some(index) => Err(SynthesisError::PublicInput { index }),
        None => Ok(()),
    }
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
