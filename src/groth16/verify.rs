//! Verification on the CPU: no proof counts before it.

use blstrs::Scalar;

use crate::groth16::{Proof, VerifyingKey};

/// A verifying key with its pairing precomputed.
pub struct PreparedVerifyingKey {
    vk: VerifyingKey,
}

impl PreparedVerifyingKey {
    pub fn new(vk: &VerifyingKey) -> Self {
        Self { vk: vk.clone() }
    }

    pub fn num_inputs(&self) -> usize {
        self.vk.ic.len()
    }

    /// Whether `proof` holds for `public_inputs` (without the leading one).
    pub fn verify(&self, proof: &Proof, public_inputs: &[Scalar]) -> bool {
        let _ = (proof, public_inputs);
        todo!()
    }

    /// Whether all proofs hold, by one random linear combination (n + 3 Miller loops, one final exponentiation).
    /// A wrong proof passes with probability 2^-128.
    pub fn verify_batch(&self, proofs: &[(&Proof, &[Scalar])]) -> bool {
        let _ = proofs;
        todo!()
    }
}
