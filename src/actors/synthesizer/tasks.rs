//! What the worker threads run. Every function answers, whatever the work does: a panic becomes a typed error.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Instant;

use group::GroupEncoding;
use sha2::{Digest, Sha256};

use super::SynthesizerConfig;
use crate::circuits::{FilecoinRequest, ParameterFile, SrsSource, Workload};
use crate::error::{panic_text, EngineError, RequestError, SrsError, SynthesisError};
use crate::groth16::prover::check_witness;
use crate::groth16::srs_file::{read_srs, ReadOptions};
use crate::groth16::{PreparedVerifyingKey, R1csShape, Srs, VerifyingKey};
use crate::ids::CircuitId;
use crate::messages::synthesis::{
    CircuitError, CircuitFailed, CircuitPrepared, CircuitProgress, JobVerified, PrepareCircuit,
    PreparedCircuit, ProofsVerified, SynthesisFailed, SynthesizeWitness, SynthesizerPeers, UnverifiedProof,
    VerifyJob, VerifyProofs, WitnessSynthesized,
};

/// Runs `work`; a panic is given back as its text.
fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| panic_text(payload.as_ref()))
}

pub(super) fn decode(request: FilecoinRequest, params_dir: &Path) -> Result<Arc<dyn Workload>, EngineError> {
    caught(|| request.decode(params_dir))
        .unwrap_or_else(|what| Err(RequestError::VanillaProof { at: "request".into(), what }))
        .map_err(EngineError::from)
}

pub(super) fn prepare_circuit(command: PrepareCircuit, config: &SynthesizerConfig, peers: &SynthesizerPeers) {
    let _entered = command.span.enter();
    let begun = Instant::now();
    let circuit = command.workload.circuit().clone();
    let prepared = caught(|| prepare(command.workload.as_ref(), config, peers))
        .unwrap_or_else(|what| Err(SynthesisError::Panicked(what).into()));
    match prepared {
        Ok(circuit) => {
            peers.prepared.do_send(CircuitPrepared { circuit: Arc::new(circuit), elapsed: begun.elapsed() })
        }
        Err(error) => {
            let source = command.workload.srs();
            peers.circuit_failed.do_send(CircuitFailed { circuit, source, error });
        }
    }
}

fn prepare(
    workload: &dyn Workload,
    config: &SynthesizerConfig,
    peers: &SynthesizerPeers,
) -> Result<PreparedCircuit, CircuitError> {
    let id = workload.circuit().clone();
    let source = workload.srs();
    let srs = load_srs(&id, &source, config, peers)?;
    let shape = Arc::new(load_shape(workload, &srs.vk, config, peers)?);
    srs.check_fits(&shape)?;
    let vk = PreparedVerifyingKey::new(&srs.vk);
    let num_bytes = srs.num_bytes() + shape.num_bytes();
    Ok(PreparedCircuit { id, source, shape, srs, vk, num_bytes })
}

fn load_srs(
    circuit: &CircuitId,
    source: &SrsSource,
    config: &SynthesizerConfig,
    peers: &SynthesizerPeers,
) -> Result<Arc<Srs>, SrsError> {
    let ParameterFile { path, expected_sha256 } = match source {
        SrsSource::Memory(srs) => return Ok(Arc::clone(srs)),
        SrsSource::File(file) => file,
    };
    if !path.exists() {
        return Err(SrsError::Missing { circuit: circuit.to_string(), path: path.clone() });
    }
    let options = ReadOptions { expected_sha256: *expected_sha256, verdict_dir: config.verdict_dir.clone() };
    let reported_percent = AtomicU64::new(0);
    let progress = |done: u64, total: u64| {
        let percent = done.saturating_mul(100) / total.max(1);
        // Once per hundredth: progress of a 50 GB file must not become a flood of messages.
        if reported_percent.fetch_max(percent, Ordering::Relaxed) < percent {
            report(peers, circuit, "srs", done, total);
        }
    };
    Ok(Arc::new(read_srs(path, &options, &progress)?.srs))
}

fn report(peers: &SynthesizerPeers, circuit: &CircuitId, what: &'static str, done: u64, total: u64) {
    peers.progress.do_send(CircuitProgress { circuit: circuit.clone(), what, done, total });
}

/// The stored shape if there is a usable one, else a recorded one, which is then stored.
fn load_shape(
    workload: &dyn Workload,
    vk: &VerifyingKey,
    config: &SynthesizerConfig,
    peers: &SynthesizerPeers,
) -> Result<R1csShape, SynthesisError> {
    let path = config.shape_cache_dir.as_ref().map(|dir| shape_path(dir, workload.circuit(), vk));
    if let Some(path) = path.as_ref().filter(|path| path.exists()) {
        match R1csShape::load(path) {
            Ok(shape) => return Ok(shape),
            Err(error) => tracing::warn!(%error, "stored shape is not usable, recording it anew"),
        }
    }
    report(peers, workload.circuit(), "shape", 0, 1);
    let shape = workload.record_shape()?;
    if let Some(path) = path {
        // The next start is slower without it, nothing else.
        if let Err(error) = shape.save(&path) {
            tracing::warn!(%error, "shape could not be stored");
        }
    }
    report(peers, workload.circuit(), "shape", 1, 1);
    Ok(shape)
}

/// The verifying key is in the name: it is made for one circuit only, so a circuit whose code changed, and whose
/// keys were therefore made anew, cannot meet an old shape under the same id.
fn shape_path(dir: &Path, circuit: &CircuitId, vk: &VerifyingKey) -> PathBuf {
    let mut hasher = Sha256::new();
    for point in [&vk.alpha_g1, &vk.beta_g1, &vk.delta_g1].into_iter().chain(&vk.ic) {
        hasher.update(point.to_bytes());
    }
    for point in [&vk.beta_g2, &vk.gamma_g2, &vk.delta_g2] {
        hasher.update(point.to_bytes());
    }
    let is_safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let name: String = circuit.as_str().chars().map(|c| if is_safe(c) { c } else { '_' }).collect();
    dir.join(format!("{name}-{}.shape", hex::encode(&hasher.finalize()[..8])))
}

pub(super) fn synthesize(command: SynthesizeWitness, peers: &SynthesizerPeers) {
    if command.cancel.is_cancelled() {
        return;
    }
    let _entered = command.span.enter();
    let at = command.at.clone();
    let made = caught(|| make_witness(&command)).unwrap_or_else(|what| Err(SynthesisError::Panicked(what)));
    match made {
        Ok(witness) => peers.synthesized.do_send(witness),
        Err(error) => peers.synthesis_failed.do_send(SynthesisFailed { at, error }),
    }
}

fn make_witness(command: &SynthesizeWitness) -> Result<WitnessSynthesized, SynthesisError> {
    let begun = Instant::now();
    let partition = command.at.partition.expect("a witness is asked for a partition");
    let shape = &command.circuit.shape;
    let public_inputs = command.workload.public_inputs(partition)?;
    let assignment = command.workload.synthesize(partition, shape)?;
    let evaluations = check_witness(shape, &assignment, &public_inputs)?;
    Ok(WitnessSynthesized {
        at: command.at.clone(),
        assignment: Arc::new(assignment),
        evaluations,
        public_inputs: public_inputs.into(),
        elapsed: begun.elapsed(),
    })
}

pub(super) fn verify_proofs(command: VerifyProofs, peers: &SynthesizerPeers) {
    let _entered = command.span.enter();
    let begun = Instant::now();
    let vk = &command.circuit.vk;
    let verdicts = caught(|| verdicts(vk, &command.proofs)).unwrap_or_else(|what| {
        tracing::error!(%what, "verification panicked: none of its proofs counts");
        vec![false; command.proofs.len()]
    });
    let verdicts = command.proofs.into_iter().map(|unverified| unverified.at).zip(verdicts).collect();
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

pub(super) fn verify_job(command: VerifyJob, peers: &SynthesizerPeers) {
    let _entered = command.span.enter();
    let begun = Instant::now();
    let vk = &command.circuit.srs.vk;
    let result = caught(|| command.workload.verify_job(vk, &command.proof)).unwrap_or_else(|what| {
        Err(RequestError::VanillaProof { at: "verification by the circuit's library".into(), what })
    });
    let (job, proof) = (command.job, command.proof);
    peers.job_verified.do_send(JobVerified { job, proof, result, elapsed: begun.elapsed() });
}
