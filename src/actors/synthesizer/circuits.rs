//! Circuits on the worker threads: what one takes, and loading it.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Instant;

use super::tasks::caught;
use super::SynthesizerConfig;
use crate::circuits::{CircuitSpec, ParameterFile, SrsSource, Workload};
use crate::error::{SrsError, SynthesisError};
use crate::groth16::srs_file::{read_counts, read_srs_unless, ReadOptions};
use crate::groth16::{shape_cache, PreparedVerifyingKey, R1csShape, Srs};
use crate::ids::CircuitId;
use crate::messages::device::CancelFlag;
use crate::messages::synthesis::{
    CircuitError, CircuitFailed, CircuitMeasured, CircuitNeeds, CircuitPrepared, CircuitProgress,
    MeasureCircuit, PartitionNeeds, PrepareCircuit, PreparedCircuit, SynthesizerPeers,
};
use crate::policy::plan::{ShapeSummary, SrsSummary};

/// Bytes of a shape per row of its circuit, where it was never recorded: Filecoin's circuits take 0.7 to 4.4 by
/// `MemoryNeeds`, one that repeats no row about 60; the memory that it really takes is booked once it is loaded.
const SHAPE_BYTES_PER_ROW: u64 = 8;

pub(super) fn measure_circuit(command: MeasureCircuit, config: &SynthesizerConfig, peers: &SynthesizerPeers) {
    let _entered = command.span.enter();
    let MeasureCircuit { circuit, source, .. } = command;
    match measure(&circuit, &source, config) {
        Ok(needs) => peers.measured.do_send(CircuitMeasured { circuit, source, needs }),
        Err(error) => peers.circuit_failed.do_send(CircuitFailed { circuit, source, error: error.into() }),
    }
}

/// By the counts of its key: the verifying key has a point per input, `l` one per aux variable, `h` one less than the
/// domain, and of rows there are more than half the domain.
fn measure(
    circuit: &CircuitId,
    source: &SrsSource,
    config: &SynthesizerConfig,
) -> Result<CircuitNeeds, SrsError> {
    let (num_inputs, counts, srs_bytes) = match source {
        SrsSource::Memory(srs) => {
            let counts = [srs.h.len(), srs.l.len(), srs.a.len(), srs.b_g1.len(), srs.b_g2.len()];
            (srs.vk.ic.len() as u64, counts.map(|count| count as u64), srs.num_bytes())
        }
        SrsSource::File(file) => {
            let counts = read_counts(&file.path).map_err(|error| error.for_circuit(circuit))?;
            let queries = [counts.h, counts.l, counts.a, counts.b_g1, counts.b_g2];
            (u64::from(counts.ic), queries.map(u64::from), counts.file_bytes)
        }
    };
    let domain_log2 = (counts[0] + 1).ilog2();
    let num_rows = (1 << domain_log2) / 2 + 1;
    let shape = ShapeSummary { domain_log2, num_rows, num_inputs, num_aux: counts[1], evaluation: None };
    let num_bytes = srs_bytes + shape_bytes(circuit, config).unwrap_or(SHAPE_BYTES_PER_ROW << domain_log2);
    Ok(CircuitNeeds { num_bytes, shape, srs: SrsSummary::new(counts) })
}

/// From the catalogue, where the circuit's entries were counted, else from the largest stored shape of its name.
fn shape_bytes(circuit: &CircuitId, config: &SynthesizerConfig) -> Option<u64> {
    let known = CircuitSpec::by_id(circuit.as_str()).and_then(|spec| spec.memory()?.shape_bytes);
    let stored = || {
        let prefix = format!("{}-", shape_cache::file_name(circuit));
        let entries = std::fs::read_dir(config.shape_cache_dir.as_ref()?).ok()?;
        let of_circuit = entries.filter_map(|entry| {
            let entry = entry.ok()?;
            let is_its = entry.file_name().to_str().is_some_and(|name| name.starts_with(&prefix));
            is_its.then(|| entry.metadata().ok().map(|metadata| metadata.len())).flatten()
        });
        of_circuit.max()
    };
    known.or_else(stored)
}

/// The file of a key, for messages.
fn path_of(source: &SrsSource) -> &Path {
    match source {
        SrsSource::File(file) => &file.path,
        SrsSource::Memory(_) => Path::new("<memory>"),
    }
}

pub(super) fn prepare_circuit(command: PrepareCircuit, config: &SynthesizerConfig, peers: &SynthesizerPeers) {
    let _entered = command.span.enter();
    let begun = Instant::now();
    let circuit = command.workload.circuit().clone();
    let prepared = caught(|| prepare(&command, config, peers))
        .unwrap_or_else(|what| Err(SynthesisError::PreparationPanicked(what).into()));
    match prepared {
        Ok(circuit) => {
            let (circuit, lease) = (Arc::new(circuit), command.lease.clone());
            peers.prepared.do_send(CircuitPrepared { circuit, lease, elapsed: begun.elapsed() })
        }
        Err(error) => {
            let source = command.workload.srs();
            peers.circuit_failed.do_send(CircuitFailed { circuit, source, error });
        }
    }
}

fn prepare(
    command: &PrepareCircuit,
    config: &SynthesizerConfig,
    peers: &SynthesizerPeers,
) -> Result<PreparedCircuit, CircuitError> {
    let workload = command.workload.as_ref();
    let id = workload.circuit().clone();
    let source = workload.srs();
    let srs = load_srs(&id, &source, &command.cancel, config, peers)?;
    if command.cancel.is_cancelled() {
        // The shape may take a minute to record, and cannot be stopped.
        return Err(SrsError::Stopped { path: path_of(&source).to_owned() }.into());
    }
    let shape = load_shape(workload, &srs, config, peers).map_err(|error| match (error, &source) {
        (CircuitError::Srs(error), SrsSource::File(file)) => error.of_file(&file.path).into(),
        (error, _) => error,
    })?;
    let shape = Arc::new(shape);
    let vk = PreparedVerifyingKey::new(&srs.vk);
    let num_bytes = srs.num_bytes() + shape.num_bytes();
    let needs = PartitionNeeds::of(&shape);
    Ok(PreparedCircuit { id, source, shape, srs, vk, needs, num_bytes })
}

fn load_srs(
    circuit: &CircuitId,
    source: &SrsSource,
    cancel: &CancelFlag,
    config: &SynthesizerConfig,
    peers: &SynthesizerPeers,
) -> Result<Arc<Srs>, SrsError> {
    let ParameterFile { path, expected_sha256 } = match source {
        SrsSource::Memory(srs) => return Ok(Arc::clone(srs)),
        SrsSource::File(file) => file,
    };
    let options = ReadOptions { expected_sha256: *expected_sha256, verdict_dir: config.verdict_dir.clone() };
    let reported_percent = AtomicU64::new(0);
    let progress = |done: u64, total: u64| {
        let percent = done.saturating_mul(100) / total.max(1);
        // Once per hundredth: progress of a 50 GB file must not become a flood of messages.
        if reported_percent.fetch_max(percent, Ordering::Relaxed) < percent {
            report(peers, circuit, "srs", done, total);
        }
    };
    let is_stopped = || cancel.is_cancelled();
    let loaded = read_srs_unless(path, &options, &progress, &is_stopped);
    Ok(Arc::new(loaded.map_err(|error| error.for_circuit(circuit))?.srs))
}

fn report(peers: &SynthesizerPeers, circuit: &CircuitId, what: &'static str, done: u64, total: u64) {
    peers.progress.do_send(CircuitProgress { circuit: circuit.clone(), what, done, total });
}

/// The stored shape if there is a usable one, else a recorded one, which is then stored; it fits the SRS.
fn load_shape(
    workload: &dyn Workload,
    srs: &Srs,
    config: &SynthesizerConfig,
    peers: &SynthesizerPeers,
) -> Result<R1csShape, CircuitError> {
    let circuit = workload.circuit();
    shape_cache::load_or_record(config.shape_cache_dir.as_deref(), circuit, srs, || {
        report(peers, circuit, "shape", 0, 1);
        let shape = workload.record_shape()?;
        report(peers, circuit, "shape", 1, 1);
        Ok(shape)
    })
}
