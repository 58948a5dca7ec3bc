//! Circuits on the worker threads: what one takes, and loading it.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Instant;

use super::SynthesizerConfig;
use crate::circuits::{CircuitSpec, ParameterFile, SrsSource, Workload};
use crate::error::{catch, FoldError, SrsError, SynthesisError};
use crate::groth16::fold::{self, FoldSizes, LoadOptions, Watch};
use crate::groth16::srs::QuotientBasis;
use crate::groth16::srs_file::{likely_sha256, read_counts, read_srs_unless, LoadedSrs, ReadOptions};
use crate::groth16::{shape_cache, PreparedVerifyingKey, R1csShape, Srs};
use crate::ids::CircuitId;
use crate::messages::device::CancelFlag;
use crate::messages::synthesis::{
    CircuitError, CircuitFailed, CircuitMeasured, CircuitNeeds, CircuitPrepared, CircuitProgress,
    MeasureCircuit, PartitionNeeds, PrepareCircuit, PreparedCircuit, SynthesizerPeers,
};
use crate::policy::plan::{Query, ShapeSummary, SrsSummary};

/// Bytes of a shape per row of its circuit, where it was never recorded: Filecoin's circuits take 0.7 to 4.4 by
/// `MemoryNeeds`, one that repeats no row about 60; the memory that it really takes is booked once it is loaded.
const SHAPE_BYTES_PER_ROW: u64 = 8;

pub(super) fn measure_circuit(
    command: &MeasureCircuit,
    config: &SynthesizerConfig,
    peers: &SynthesizerPeers,
) {
    let measured = command.span.in_scope(|| measure(&command.circuit, &command.source, config));
    let (circuit, source) = (command.circuit.clone(), command.source.clone());
    match measured {
        Ok(needs) => peers.measured.do_send(CircuitMeasured { circuit, source, needs }),
        Err(error) => peers.circuit_failed.do_send(CircuitFailed { circuit, source, error: error.into() }),
    }
}

/// By the counts of its key: the verifying key has a point per input, `l` one per aux variable, `h` one less than the
/// domain, and of rows there are more than half the domain. While a folded key is loaded, both are in memory, and what its
/// check works in.
fn measure(
    circuit: &CircuitId,
    source: &SrsSource,
    config: &SynthesizerConfig,
) -> Result<CircuitNeeds, SrsError> {
    let shape_bytes =
        |domain_log2: u32| shape_bytes(circuit, config).unwrap_or(SHAPE_BYTES_PER_ROW << domain_log2);
    let (num_inputs, num_aux, srs, srs_bytes) = match source {
        SrsSource::Memory(srs) => {
            let num_inputs = srs.vk.ic.len() as u64;
            let num_aux = match srs.basis {
                QuotientBasis::Coefficients => srs.l.len() as u64,
                // A key with fewer points is refused when it is held against the circuit.
                QuotientBasis::Lagrange => (srs.l.len() as u64).saturating_sub(num_inputs),
            };
            (num_inputs, num_aux, SrsSummary::of(srs), srs.num_bytes())
        }
        SrsSource::File(file) => {
            let counts = read_counts(&file.path).map_err(|error| named(error, circuit))?;
            let (num_inputs, num_aux) = (u64::from(counts.ic), u64::from(counts.l));
            let mut queries = [counts.h, counts.l, counts.a, counts.b_g1, counts.b_g2].map(u64::from);
            let (mut basis, mut fold_bytes) = (QuotientBasis::Coefficients, 0);
            let domain_log2 = (queries[0] + 1).ilog2();
            let sizes = FoldSizes { domain_log2, num_inputs, num_aux };
            let plain_bytes = counts.file_bytes + shape_bytes(domain_log2);
            if has_room_for_fold(sizes, plain_bytes, config) && may_be_folded(file, config, sizes) {
                queries[0] += 1;
                queries[1] += num_inputs;
                (basis, fold_bytes) = (QuotientBasis::Lagrange, sizes.load_bytes());
            }
            let srs = SrsSummary::new(queries).in_basis(basis);
            (num_inputs, num_aux, srs, counts.file_bytes + fold_bytes)
        }
    };
    let domain_log2 = (srs.num_points(Query::H) + 1).ilog2();
    let num_rows = (1 << domain_log2) / 2 + 1;
    let shape = ShapeSummary { domain_log2, num_rows, num_inputs, num_aux, evaluation: None };
    Ok(CircuitNeeds { num_bytes: srs_bytes + shape_bytes(domain_log2), shape, srs })
}

/// Whether folds are wanted, and one of these sizes can be loaded beside a key and a shape of so many bytes.
fn has_room_for_fold(sizes: FoldSizes, plain_bytes: u64, config: &SynthesizerConfig) -> bool {
    config.fold_limit_bytes.is_some_and(|limit| plain_bytes.saturating_add(sizes.load_bytes()) <= limit)
}

/// Whether there is a fold that will be used. Another key's, left from before, is not to make this one look larger than it is.
fn may_be_folded(file: &ParameterFile, config: &SynthesizerConfig, sizes: FoldSizes) -> bool {
    let seen = || likely_sha256(&file.path, config.verdict_dir.as_deref()?);
    fold::may_be_used(&file.path, sizes, file.expected_sha256.or_else(seen))
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

/// A missing file's error says whose it is, and how to come by it.
fn named(error: SrsError, circuit: &CircuitId) -> SrsError {
    let spec = CircuitSpec::by_id(circuit.as_str());
    error.for_circuit(circuit, spec.map(|spec| spec.how_to_get_params()))
}

/// The file of a key, for messages.
fn path_of(source: &SrsSource) -> &Path {
    match source {
        SrsSource::File(file) => &file.path,
        SrsSource::Memory(_) => Path::new("<memory>"),
    }
}

pub(super) fn prepare_circuit(
    command: &PrepareCircuit,
    config: &SynthesizerConfig,
    peers: &SynthesizerPeers,
) {
    let begun = Instant::now();
    let prepared = command
        .span
        .in_scope(|| catch(|| prepare(command, config, peers)))
        .unwrap_or_else(|what| Err(SynthesisError::PreparationPanicked(what).into()));
    match prepared {
        Ok(circuit) => {
            let (circuit, lease) = (Arc::new(circuit), command.lease.clone());
            peers.prepared.do_send(CircuitPrepared { circuit, lease, elapsed: begun.elapsed() })
        }
        Err(error) => {
            let (circuit, source) = (command.circuit.clone(), command.source.clone());
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
    let (id, source) = (command.circuit.clone(), command.source.clone());
    let key = load_srs(&id, &source, &command.cancel, config, peers)?;
    if command.cancel.is_cancelled() {
        // The shape may take a minute to record, and cannot be stopped.
        return Err(SrsError::Stopped { path: path_of(&source).to_owned() }.into());
    }
    let shape = load_shape(workload, key.srs(), config, peers).map_err(|error| match (error, &source) {
        (CircuitError::Srs(error), SrsSource::File(file)) => error.of_file(&file.path).into(),
        (error, _) => error,
    })?;
    let shape = Arc::new(shape);
    let srs = key.folded(&id, &source, &shape, &command.cancel, config, peers)?;
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
) -> Result<Key, SrsError> {
    let ParameterFile { path, expected_sha256 } = match source {
        SrsSource::Memory(srs) => return Ok(Key::Given(Arc::clone(srs))),
        SrsSource::File(file) => file,
    };
    let options = ReadOptions { expected_sha256: *expected_sha256, verdict_dir: config.verdict_dir.clone() };
    let progress = in_hundredths(peers, circuit, "srs");
    let is_stopped = || cancel.is_cancelled();
    let loaded = read_srs_unless(path, &options, &progress, &is_stopped);
    Ok(Key::Read(Box::new(loaded.map_err(|error| named(error, circuit))?)))
}

/// Reports once per hundredth: progress of a 50 GB file must not become a flood of messages.
fn in_hundredths<'a>(
    peers: &'a SynthesizerPeers,
    circuit: &'a CircuitId,
    what: &'static str,
) -> impl Fn(u64, u64) + Sync + 'a {
    let reported_percent = AtomicU64::new(0);
    move |done, total| {
        let percent = done.saturating_mul(100) / total.max(1);
        if reported_percent.fetch_max(percent, Ordering::Relaxed) < percent {
            report(peers, circuit, what, done, total);
        }
    }
}

/// A proving key as it came.
enum Key {
    /// In memory: used as it is.
    Given(Arc<Srs>),
    Read(Box<LoadedSrs>),
}

impl Key {
    fn srs(&self) -> &Srs {
        match self {
            Self::Given(srs) => srs,
            Self::Read(loaded) => &loaded.srs,
        }
    }

    /// The key, folded if its fold is there. One that is not to be used costs time, and no proof.
    fn folded(
        self,
        circuit: &CircuitId,
        source: &SrsSource,
        shape: &R1csShape,
        cancel: &CancelFlag,
        config: &SynthesizerConfig,
        peers: &SynthesizerPeers,
    ) -> Result<Arc<Srs>, SrsError> {
        let LoadedSrs { srs, sha256, .. } = match self {
            Self::Given(srs) => return Ok(srs),
            Self::Read(loaded) => *loaded,
        };
        let (path, sizes) = (path_of(source), FoldSizes::of(shape));
        let plain_bytes = srs.num_bytes() + shape.num_bytes();
        if !has_room_for_fold(sizes, plain_bytes, config) {
            if let Some(limit_bytes) = config.fold_limit_bytes.filter(|_| fold::is_beside(path)) {
                let needs_bytes = plain_bytes + sizes.load_bytes();
                tracing::warn!(%circuit, needs_bytes, limit_bytes, "no memory for a fold: proofs take longer");
            }
            return Ok(Arc::new(srs));
        }
        let progress = in_hundredths(peers, circuit, "fold");
        let watch = Watch { progress: &progress, is_stopped: &|| cancel.is_cancelled() };
        let options = LoadOptions { verdict_dir: config.verdict_dir.as_deref() };
        match fold::load_fold(path, sha256, &srs, shape, options, watch) {
            Ok(None) => Ok(Arc::new(srs)),
            Ok(Some(fold)) => {
                tracing::info!(%circuit, "the proving key is used folded");
                Ok(Arc::new(fold.apply(srs)))
            }
            Err(FoldError::Stopped) => Err(SrsError::Stopped { path: path.to_owned() }),
            Err(error) => {
                tracing::warn!(%circuit, %error, "the fold is not used: proofs take longer");
                Ok(Arc::new(srs))
            }
        }
    }
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

#[cfg(test)]
mod tests {
    use bellpepper_core::{Circuit, ConstraintSystem};
    use blstrs::Scalar;
    use ff::Field;
    use rand_chacha::ChaCha20Rng;
    use rand_core::SeedableRng;

    use super::*;
    use crate::groth16::fold::{Fold, FoldKey};
    use crate::groth16::generate::{fold_from_secrets, generate_srs};
    use crate::groth16::srs_file::{read_srs, write_srs};

    /// As many ones as that, each the square of the one before.
    struct Ones(usize);

    impl Circuit<Scalar> for Ones {
        fn synthesize<CS: ConstraintSystem<Scalar>>(
            self,
            cs: &mut CS,
        ) -> Result<(), bellpepper_core::SynthesisError> {
            let mut last = cs.alloc_input(|| "first", || Ok(Scalar::ONE))?;
            for _ in 0..self.0 {
                let next = cs.alloc(|| "next", || Ok(Scalar::ONE))?;
                cs.enforce(|| "square", |lc| lc + last, |lc| lc + last, |lc| lc + next);
                last = next;
            }
            Ok(())
        }
    }

    fn rng(seed: u64) -> ChaCha20Rng {
        ChaCha20Rng::seed_from_u64(seed)
    }

    /// Beside `params`, the fold of the key that this seed makes, as one of `params_sha256`.
    fn save_fold(params: &Path, params_sha256: [u8; 32], shape: &R1csShape, seed: u64) -> Fold {
        let fold = fold_from_secrets(shape, &mut rng(seed)).unwrap();
        let key = FoldKey::new(params_sha256, shape);
        let path = fold::fold_path(params, &key);
        fold.save(&path, &key, shape, LoadOptions::default(), Watch::NONE).unwrap();
        fold
    }

    #[test]
    fn a_circuit_is_measured_with_the_fold_that_will_be_used_and_with_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let params = dir.path().join("ones.params");
        let config = SynthesizerConfig {
            params_dir: dir.path().to_owned(),
            shape_cache_dir: None,
            verdict_dir: Some(dir.path().join("verdicts")),
            fold_limit_bytes: Some(u64::MAX),
            decoders: Vec::new(),
            max_waiting_decodes: 1,
        };
        let (shape, other_shape) =
            (R1csShape::record(Ones(20)).unwrap(), R1csShape::record(Ones(21)).unwrap());
        let written = write_srs(&params, &generate_srs(&shape, &mut rng(1)).unwrap()).unwrap();
        let measured = |source: &SrsSource| measure(&CircuitId::new("ones"), source, &config).unwrap();
        let source = SrsSource::File(ParameterFile::from(params.clone()));
        let plain = measured(&source);
        // Of a circuit of another size, which had the name before.
        save_fold(&params, [7; 32], &other_shape, 2);
        assert_eq!(measured(&source), plain);

        // Of another key of this circuit: told by the file's digest, which is known once it was read, or if it is pinned.
        save_fold(&params, [8; 32], &shape, 3);
        let pinned = ParameterFile { path: params.clone(), expected_sha256: Some(written.sha256) };
        assert_eq!(measured(&SrsSource::File(pinned)), plain);
        assert_ne!(measured(&source), plain, "it cannot be told yet");
        let options = ReadOptions { expected_sha256: None, verdict_dir: config.verdict_dir.clone() };
        read_srs(&params, &options, &|_, _| ()).unwrap();
        assert_eq!(measured(&source), plain);

        // Its own: with its points, and what its check takes.
        let fold = save_fold(&params, written.sha256, &shape, 1);
        let folded = measured(&source);
        assert_eq!(folded.srs, plain.srs_with_fold(&fold));
        let check_bytes = fold::check_bytes(shape.domain_log2());
        assert_eq!(folded.num_bytes, plain.num_bytes + fold.num_bytes() + check_bytes);

        // Where that is more than there is, it will not be used.
        let measured_within = |limit_bytes: u64| {
            let config = SynthesizerConfig { fold_limit_bytes: Some(limit_bytes), ..config.clone() };
            measure(&CircuitId::new("ones"), &source, &config).unwrap()
        };
        assert_eq!(measured_within(folded.num_bytes), folded);
        assert_eq!(measured_within(folded.num_bytes - 1), plain);
    }

    impl CircuitNeeds {
        fn srs_with_fold(&self, fold: &Fold) -> SrsSummary {
            let [a, b_g1, b_g2] = [Query::A, Query::BG1, Query::BG2].map(|query| self.srs.num_points(query));
            let [h, l] = [&fold.h, &fold.l].map(|points| points.len() as u64);
            SrsSummary::new([h, l, a, b_g1, b_g2]).in_basis(QuotientBasis::Lagrange)
        }
    }
}
