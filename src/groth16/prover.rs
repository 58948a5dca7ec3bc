//! The prover's steps, and the whole of them in one call.

use std::fmt;

use blstrs::{G1Projective, G2Projective, Scalar};
use rand_core::{CryptoRng, RngCore};

use crate::error::{SrsError, SynthesisError};
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
    pub fn random(rng: &mut (impl RngCore + CryptoRng)) -> Self {
        let _ = rng;
        todo!()
    }
}

/// The five sums of a proof: one per query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuerySums {
    pub h: G1Projective,
    pub l: G1Projective,
    pub a: G1Projective,
    pub b_g1: G1Projective,
    pub b_g2: G2Projective,
}

/// Sum over the H query; `quotient` is [`crate::groth16::domain::quotient`]'s result.
pub fn sum_h(srs: &Srs, quotient: &[Scalar]) -> G1Projective {
    let _ = (srs, quotient);
    todo!()
}

pub fn sum_l(srs: &Srs, assignment: &Assignment) -> G1Projective {
    let _ = (srs, assignment);
    todo!()
}

pub fn sum_a(srs: &Srs, shape: &R1csShape, assignment: &Assignment) -> G1Projective {
    let _ = (srs, shape, assignment);
    todo!()
}

pub fn sum_b_g1(srs: &Srs, shape: &R1csShape, assignment: &Assignment) -> G1Projective {
    let _ = (srs, shape, assignment);
    todo!()
}

pub fn sum_b_g2(srs: &Srs, shape: &R1csShape, assignment: &Assignment) -> G2Projective {
    let _ = (srs, shape, assignment);
    todo!()
}

/// Puts the proof together (Groth16, section 3.2; bellperson `prover/native.rs`).
pub fn assemble(vk: &VerifyingKey, sums: &QuerySums, blinding: &Blinding) -> Proof {
    let _ = (vk, sums, blinding);
    todo!()
}

/// Everything in one call: the reference of every backend. `evaluations` as [`R1csShape::evaluate`] gives them.
///
/// # Errors
/// [`SrsError::Mismatch`] if the SRS is of another circuit.
pub fn prove(
    srs: &Srs,
    shape: &R1csShape,
    assignment: &Assignment,
    evaluations: Evaluations,
    blinding: &Blinding,
) -> Result<Proof, SrsError> {
    let _ = (srs, shape, assignment, evaluations, blinding);
    todo!()
}

/// Checks a witness against shape and verifier before any proving: sizes, public inputs, every constraint.
/// `public_inputs` are without the leading one. Returns the row values, which the prover needs next.
pub fn check_witness(
    shape: &R1csShape,
    assignment: &Assignment,
    public_inputs: &[Scalar],
) -> Result<Evaluations, SynthesisError> {
    let _ = (shape, assignment, public_inputs);
    todo!()
}
