//! Whether a proof holds, as somebody checks it who has not made it: by our verifier, then by the circuit's library.

use std::time::{Duration, Instant};

use crate::circuits::Workload;
use crate::error::{RequestError, SynthesisError};
use crate::groth16::proof::PROOF_BYTES;
use crate::groth16::{PreparedVerifyingKey, Proof, Scalar, VerifyingKey};
use crate::ids::PartitionIndex;

/// How long each verifier took.
#[derive(Clone, Copy, Debug)]
pub struct Checked {
    pub ours: Duration,
    pub library: Duration,
}

/// Why a proof does not count.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// It is no proof of this statement, or is cut.
    #[error("{0}")]
    Invalid(String),
    /// The statement has no public inputs: it is bad itself.
    #[error("public inputs: {0}")]
    Inputs(#[from] SynthesisError),
    /// Use the key of the statement's circuit.
    #[error("verifying key is of another circuit: takes {takes} inputs, circuit has {has}")]
    OtherCircuit { takes: usize, has: usize },
    /// Ours says yes and the library no.
    #[error("proof does not verify with Filecoin's verifier: {0}")]
    Library(RequestError),
}

/// Checks every partition of the job with our verifier, then the whole job with the circuit's own library. `proof`: 192
/// bytes a partition.
///
/// # Errors
/// [`CheckError`]
pub fn check_proof(workload: &dyn Workload, vk: &VerifyingKey, proof: &[u8]) -> Result<Checked, CheckError> {
    let num_partitions = workload.num_partitions();
    if proof.len() != num_partitions as usize * PROOF_BYTES {
        let needs = num_partitions as usize * PROOF_BYTES;
        return Err(CheckError::Invalid(format!("proof needs {needs} B, has {} B", proof.len())));
    }
    let proofs: Vec<Proof> = proof.chunks(PROOF_BYTES).enumerate().map(parse).collect::<Result<_, _>>()?;
    let inputs: Vec<Vec<Scalar>> = (0..num_partitions)
        .map(|partition| workload.public_inputs(PartitionIndex(partition)))
        .collect::<Result<_, _>>()?;
    if let Some(inputs) = inputs.iter().find(|inputs| inputs.len() + 1 != vk.ic.len()) {
        return Err(CheckError::OtherCircuit { takes: vk.ic.len(), has: inputs.len() + 1 });
    }
    let start = Instant::now();
    let pairs: Vec<(&Proof, &[Scalar])> = proofs.iter().zip(inputs.iter().map(Vec::as_slice)).collect();
    if !PreparedVerifyingKey::new(vk).verify_batch(&pairs) {
        return Err(CheckError::Invalid("proof does not verify".to_owned()));
    }
    let ours = start.elapsed();
    let start = Instant::now();
    workload.verify_job(vk, proof).map_err(CheckError::Library)?;
    Ok(Checked { ours, library: start.elapsed() })
}

fn parse((partition, bytes): (usize, &[u8])) -> Result<Proof, CheckError> {
    Proof::from_bytes(bytes).map_err(|error| CheckError::Invalid(format!("partition {partition}: {error}")))
}
