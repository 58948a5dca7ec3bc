//! What the worker threads run, but for circuits (`circuits.rs`). Every function answers once, as the last thing it does,
//! whatever the work does: a panic becomes a typed error.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use crate::backend::steps::ProofSteps;
use crate::backend::{PartitionWork, Stage};
use crate::circuits::{Undecoded, WorkDecoder};
use crate::error::{catch, DeviceError, EngineError, RequestError, SynthesisError};
use crate::groth16::prover::{check_inputs, check_witness};
use crate::groth16::{PreparedVerifyingKey, Proof};
use crate::journal::encode_request;
use crate::loops;
use crate::messages::synthesis::{
    CheckKey, DecodedRequest, JobVerified, KeyChecked, KeyVerdict, ProofsVerified, RowsCheck,
    SynthesisFailed, SynthesizeWitness, SynthesizerPeers, UnverifiedProof, VerifyJob, VerifyProofs,
    WitnessSynthesized,
};

pub(super) fn decode(
    request: Undecoded,
    keep_bytes: bool,
    params_dir: &Path,
    decoders: &[Arc<dyn WorkDecoder>],
) -> Result<DecodedRequest, EngineError> {
    let decoded = catch(|| {
        let request = request.read()?;
        let workload = request.decode_here(params_dir, decoders)?;
        // Only now: a request that is no good is never held twice.
        let encoded = keep_bytes.then(|| encode_request(&request)).flatten();
        Ok(DecodedRequest { workload, encoded })
    });
    decoded.unwrap_or_else(|what| Err(RequestError::VanillaProof { at: "request".into(), what }.into()))
}

pub(super) fn synthesize(command: &SynthesizeWitness, peers: &SynthesizerPeers) {
    if command.cancel.is_cancelled() {
        return;
    }
    let made = command.span.in_scope(|| catch(|| make_witness(command)));
    match made.unwrap_or_else(|what| Err(SynthesisError::Panicked(what))) {
        Ok(witness) => peers.synthesized.do_send(witness),
        Err(error) => peers.synthesis_failed.do_send(SynthesisFailed { at: command.at.clone(), error }),
    }
}

fn make_witness(command: &SynthesizeWitness) -> Result<WitnessSynthesized, SynthesisError> {
    let begun = Instant::now();
    let partition = command.at.partition.expect("a witness is asked for a partition");
    let shape = &command.circuit.shape;
    let public_inputs = command.workload.public_inputs(partition)?;
    let witness = command.workload.synthesize(partition, shape)?;
    match command.rows {
        RowsCheck::All => loops::run(|| check_witness(shape, &witness, &public_inputs))?,
        RowsCheck::ByDevice => check_inputs(shape, &witness, &public_inputs)?,
    }
    Ok(WitnessSynthesized {
        at: command.at.clone(),
        witness: Arc::new(witness),
        public_inputs: public_inputs.into(),
        lease: command.lease.clone(),
        elapsed: begun.elapsed(),
    })
}

pub(super) fn verify_proofs(command: &VerifyProofs, peers: &SynthesizerPeers) {
    let begun = Instant::now();
    let vk = &command.circuit.vk;
    let verdicts = command.span.in_scope(|| {
        catch(|| verdicts(vk, &command.proofs)).unwrap_or_else(|what| {
            tracing::error!(%what, "verification panicked: none of its proofs counts");
            vec![false; command.proofs.len()]
        })
    });
    for (unverified, _) in command.proofs.iter().zip(&verdicts).filter(|(_, holds)| !**holds) {
        let Some(witness) = &unverified.unchecked else { continue };
        // Neither device nor key is to blame for a proof of what is not so.
        if let Err(error) = command.circuit.shape.check_satisfied(witness) {
            peers.synthesis_failed.do_send(SynthesisFailed { at: unverified.at.clone(), error });
        }
    }
    let proofs = command.proofs.iter().map(|unverified| unverified.at.clone());
    let verdicts = proofs.zip(verdicts).collect();
    peers.verified.do_send(ProofsVerified { verdicts, elapsed: begun.elapsed() });
}

/// All at once; only if that fails, one by one to find the bad ones.
fn verdicts(vk: &PreparedVerifyingKey, proofs: &[UnverifiedProof]) -> Vec<bool> {
    let batch: Vec<_> = proofs.iter().map(|u| (&u.proof, u.public_inputs.as_ref())).collect();
    if batch.len() > 1 && vk.verify_batch(&batch) {
        return vec![true; batch.len()];
    }
    batch.iter().map(|(proof, public_inputs)| vk.verify(proof, public_inputs)).collect()
}

pub(super) fn verify_job(command: &VerifyJob, peers: &SynthesizerPeers) {
    let begun = Instant::now();
    let vk = &command.circuit.srs.vk;
    // Whatever the library has against a proof that our verifier accepts, the request is not to blame.
    let verdict = command.span.in_scope(|| catch(|| command.workload.verify_job(vk, &command.proof)));
    let result = match verdict {
        Ok(verdict) => verdict.map_err(|error| error.to_string()),
        Err(what) => Err(format!("its verification panicked: {what}")),
    };
    let proof = command.proof.clone();
    peers.job_verified.do_send(JobVerified { job: command.job, proof, result, elapsed: begun.elapsed() });
}

pub(super) fn check_key(command: &CheckKey, peers: &SynthesizerPeers) {
    let begun = Instant::now();
    let verdict = command.span.in_scope(|| judge_key(command));
    let (at, circuit) = (command.at.clone(), Arc::clone(&command.circuit));
    peers.key_checked.do_send(KeyChecked { at, circuit, verdict, elapsed: begun.elapsed() });
}

fn judge_key(command: &CheckKey) -> KeyVerdict {
    match catch(|| prove_on_host(command)) {
        Ok(Ok(Some(proof))) if command.circuit.vk.verify(&proof, &command.public_inputs) => KeyVerdict::Right,
        Ok(Ok(Some(_))) => KeyVerdict::Wrong,
        Ok(Ok(None)) => KeyVerdict::Unknown,
        Ok(Err(error)) => {
            tracing::error!(at = %command.at, %error, "the host's own proof failed");
            KeyVerdict::Unknown
        }
        Err(what) => {
            tracing::error!(at = %command.at, %what, "the host's own proof panicked");
            KeyVerdict::Unknown
        }
    }
}

/// `None`: cancelled.
fn prove_on_host(command: &CheckKey) -> Result<Option<Proof>, DeviceError> {
    let mut steps = ProofSteps::new(PartitionWork {
        at: command.at.clone(),
        circuit: command.circuit.id.clone(),
        shape: Arc::clone(&command.circuit.shape),
        srs: Arc::clone(&command.circuit.srs),
        witness: Arc::clone(&command.witness),
        blinding: command.blinding,
    });
    for stage in Stage::ALL {
        if command.cancel.is_cancelled() {
            return Ok(None);
        }
        steps.run(stage)?;
    }
    Ok(steps.take_proof())
}
