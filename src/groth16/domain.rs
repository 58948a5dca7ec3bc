//! The QAP's evaluation domain: NTT, coset NTT and the quotient.

use blstrs::Scalar;

use crate::groth16::Evaluations;

/// Coefficients of `h = (a·b - c) / Z` on the domain of size `n = 2^domain_log2`: `[n - 1]`
/// (the last coefficient is zero for a satisfied witness and is dropped, as bellperson does).
/// `evaluations` is consumed: its buffers are reused.
pub fn quotient(evaluations: Evaluations, domain_log2: u32) -> Vec<Scalar> {
    let _ = (evaluations, domain_log2);
    todo!()
}

/// In-place inverse NTT over the domain of `values.len()` points (natural order in and out).
/// Used by the parameter generator for the Lagrange coefficients at tau.
pub fn intt(values: &mut [Scalar]) {
    let _ = values;
    todo!()
}
