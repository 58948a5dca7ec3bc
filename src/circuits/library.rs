//! Glue to Filecoin's libraries that all kinds share: errors, verifying keys, proof bytes.

use bellperson::groth16::{self, PreparedVerifyingKey};
use blstrs::Bls12;
use storage_proofs_core::multi_proof::MultiProof;

use crate::error::{RequestError, SynthesisError};
use crate::groth16::proof::PROOF_BYTES;
use crate::groth16::VerifyingKey;

/// What every job of Filecoin's answers as a [`crate::circuits::Workload`] from its header.
macro_rules! answers_of_header {
    () => {
        fn circuit(&self) -> &crate::ids::CircuitId {
            &self.header.circuit
        }

        fn digest(&self) -> crate::ids::RequestDigest {
            self.header.digest
        }

        fn srs(&self) -> crate::circuits::SrsSource {
            self.header.srs.clone()
        }
    };
}
pub(super) use answers_of_header;

/// How they compare a witness with the library's, which are too large to hold both. `$as_synthesis` makes one of what
/// `library_circuit` gives.
macro_rules! compares_streamed {
    () => {
        compares_streamed!(std::convert::identity);
    };
    ($as_synthesis:path) => {
        fn compare_with_library(
            &self,
            partition: PartitionIndex,
            witness: &PackedWitness,
            shape: &R1csShape,
            limit: Option<usize>,
        ) -> Result<(), SynthesisError> {
            let circuit = $as_synthesis(self.library_circuit(partition)?);
            native::compare_streamed(circuit, witness, shape.classes(), limit)
        }
    };
}
pub(super) use compares_streamed;

/// The library refused to make a circuit or its inputs.
pub(super) fn refused(error: impl std::fmt::Display) -> SynthesisError {
    SynthesisError::Circuit(error.to_string())
}

/// The library refused a request that passed our own checks.
pub(super) fn refused_request(error: impl std::fmt::Display) -> RequestError {
    RequestError::VanillaProof { at: "as a whole".into(), what: error.to_string() }
}

/// The verifying key as the library's own verification wants it.
pub(super) fn prepared_key(vk: &VerifyingKey) -> PreparedVerifyingKey<Bls12> {
    groth16::prepare_verifying_key(&groth16::VerifyingKey::<Bls12> {
        alpha_g1: vk.alpha_g1,
        beta_g1: vk.beta_g1,
        beta_g2: vk.beta_g2,
        gamma_g2: vk.gamma_g2,
        delta_g1: vk.delta_g1,
        delta_g2: vk.delta_g2,
        ic: vk.ic.clone(),
    })
}

/// Reads a job's proof bytes: 192 per partition.
pub(super) fn read_proofs<'a>(
    bytes: &[u8],
    num_partitions: usize,
    key: &'a PreparedVerifyingKey<Bls12>,
) -> Result<MultiProof<'a>, RequestError> {
    let needs = num_partitions * PROOF_BYTES;
    if bytes.len() != needs {
        return Err(proof_error(format!("needs {needs} B, has {} B", bytes.len())));
    }
    MultiProof::new_from_bytes(Some(num_partitions), bytes, key).map_err(proof_error)
}

/// The library's verdict as ours.
pub(super) fn accepted<E: std::fmt::Display>(verdict: Result<bool, E>) -> Result<(), RequestError> {
    match verdict {
        Ok(true) => Ok(()),
        Ok(false) => Err(proof_error("does not verify with Filecoin's own verification")),
        Err(error) => Err(proof_error(error)),
    }
}

fn proof_error(what: impl std::fmt::Display) -> RequestError {
    RequestError::Field { field: "proof".into(), what: what.to_string() }
}
