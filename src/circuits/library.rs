//! Glue to Filecoin's libraries that all kinds share: errors, verifying keys, proof bytes.

use std::sync::{Arc, Mutex, PoisonError};

use bellperson::groth16::{self, PreparedVerifyingKey};
use blst::blst_p1_affine;
use blstrs::{Bls12, Scalar};
use group::Curve;
use storage_proofs_core::multi_proof::MultiProof;

use crate::error::{RequestError, SynthesisError};
use crate::groth16::msm::msm_g1;
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

/// Public inputs up to which a key is prepared as the library's own verification wants it. It makes a table of 255 points for each,
/// one inversion a point: for the 25,839 of a WindowPoSt of 32 GiB sectors 600 MB and a minute of a core.
pub(super) const MAX_TABLE_INPUTS: usize = 1024;

/// Prepared keys that are kept: as many as a machine has circuits.
const MAX_KEPT_KEYS: usize = 8;

/// Prepared keys, the last used first.
struct KeptKeys(Mutex<Vec<(VerifyingKey, Arc<PreparedVerifyingKey<Bls12>>)>>);

/// The verifying key as the library's own verification wants it. Made once: it takes longer than a verification.
pub(super) fn prepared_key(vk: &VerifyingKey) -> Arc<PreparedVerifyingKey<Bls12>> {
    static KEPT: KeptKeys = KeptKeys::new();
    KEPT.prepared(vk)
}

impl KeptKeys {
    const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    fn prepared(&self, vk: &VerifyingKey) -> Arc<PreparedVerifyingKey<Bls12>> {
        if let Some(prepared) = self.take_first(vk) {
            return prepared;
        }
        // Not under the lock: others' keys are there.
        let prepared = Arc::new(groth16::prepare_verifying_key(&library_key(vk)));
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.insert(0, (vk.clone(), Arc::clone(&prepared)));
        kept.truncate(MAX_KEPT_KEYS);
        prepared
    }

    /// The prepared form of `vk`, which then is the last used.
    fn take_first(&self, vk: &VerifyingKey) -> Option<Arc<PreparedVerifyingKey<Bls12>>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = kept.iter().position(|(own, _)| own == vk)?;
        kept[..=place].rotate_right(1);
        Some(Arc::clone(&kept[0].1))
    }
}

fn library_key(vk: &VerifyingKey) -> groth16::VerifyingKey<Bls12> {
    groth16::VerifyingKey {
        alpha_g1: vk.alpha_g1,
        beta_g1: vk.beta_g1,
        beta_g2: vk.beta_g2,
        gamma_g2: vk.gamma_g2,
        delta_g1: vk.delta_g1,
        delta_g2: vk.delta_g2,
        ic: vk.ic.clone(),
    }
}

/// Fails unless bellperson takes the one proof in `bytes` for `inputs`, which go into the key first: their sum is one point, and
/// a key of no other inputs needs no tables.
pub(super) fn verify_with_inputs_summed(
    vk: &VerifyingKey,
    bytes: &[u8],
    inputs: &[Scalar],
) -> Result<(), RequestError> {
    let Some((one, bases)) = vk.ic.split_first().filter(|(_, bases)| bases.len() == inputs.len()) else {
        return Err(proof_error(format!("is of {} public inputs, the key of another number", inputs.len())));
    };
    let bases: Vec<blst_p1_affine> = bases.iter().map(|base| *base.as_ref()).collect();
    let sum = (msm_g1(&bases, inputs) + one).to_affine();
    let key = groth16::prepare_verifying_key(&library_key(&VerifyingKey { ic: vec![sum], ..vk.clone() }));
    let proofs = read_proofs(bytes, 1, &key)?;
    accepted(groth16::verify_proof(&key, &proofs.circuit_proofs[0], &[]))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::groth16::verify::tests::key_and_prover;

    #[test]
    fn a_proof_holds_for_its_own_inputs_summed_and_for_no_others() {
        let (vk, prove) = key_and_prover();
        let inputs = [Scalar::from(1), Scalar::from(2)];
        let bytes = prove(6, 7, &inputs).to_bytes();
        verify_with_inputs_summed(&vk, &bytes, &inputs).unwrap();
        let swapped = [inputs[1], inputs[0]];
        let others = [swapped.as_slice(), &inputs[..1], &[]];
        for other in others {
            verify_with_inputs_summed(&vk, &bytes, other).unwrap_err();
        }
        verify_with_inputs_summed(&vk, &bytes[..191], &inputs).unwrap_err();
    }

    #[test]
    fn a_prepared_key_is_kept_until_many_others_were_used() {
        let (vk, _) = key_and_prover();
        let other = |number: usize| VerifyingKey { ic: vec![vk.ic[0]; number], ..vk.clone() };
        let keys = KeptKeys::new();
        let kept: Vec<_> = (0..MAX_KEPT_KEYS).map(|number| keys.prepared(&other(10 + number))).collect();
        // All were kept, and the first is the last used now.
        assert!(Arc::ptr_eq(&kept[0], &keys.prepared(&other(10))));
        keys.prepared(&other(9));
        assert!(Arc::ptr_eq(&kept[0], &keys.prepared(&other(10))));
        assert!(!Arc::ptr_eq(&kept[1], &keys.prepared(&other(11))), "it made room");
    }
}
