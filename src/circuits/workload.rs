//! The engine's view of a job.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use blstrs::Scalar;
use serde::{Deserialize, Serialize};

use crate::error::{catch, RequestError, SynthesisError};
use crate::groth16::{PackedWitness, R1csShape, Srs, VerifyingKey};
use crate::ids::{CircuitId, PartitionIndex, RequestDigest};

/// The queue a job belongs to. Names as operators know them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkKind {
    PorepC2,
    SnapUpdate,
    WindowPost,
    WinningPost,
    Custom,
}

impl WorkKind {
    /// The name as operators and manifests write it, such as `porep-c2`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PorepC2 => "porep-c2",
            Self::SnapUpdate => "snap-update",
            Self::WindowPost => "window-post",
            Self::WinningPost => "winning-post",
            Self::Custom => "custom",
        }
    }
}

impl fmt::Display for WorkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Where a circuit's proving key comes from.
#[derive(Clone, Debug)]
pub enum SrsSource {
    /// A parameter file in Filecoin's layout.
    File(ParameterFile),
    /// A key the host already holds.
    Memory(Arc<Srs>),
}

/// A parameter file, and whether it must be one file and no other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterFile {
    pub path: PathBuf,
    /// SHA-256 of the whole file. A host sets it to pin the file: another one is refused before anything is proved.
    /// `None` (what requests decode to): any file whose points are valid and which fits the circuit is used, since
    /// test circuits legitimately have more than one set of parameters.
    pub expected_sha256: Option<[u8; 32]>,
}

impl From<PathBuf> for ParameterFile {
    fn from(path: PathBuf) -> Self {
        Self { path, expected_sha256: None }
    }
}

impl From<&str> for ParameterFile {
    fn from(path: &str) -> Self {
        PathBuf::from(path).into()
    }
}

/// A decoded, validated job. Methods that take CPU time run on the Synthesizer's worker threads; they may panic
/// (library code does on some bad inputs): the worker catches that.
pub trait Workload: Send + Sync + fmt::Debug + 'static {
    /// The queue it belongs to, and its priority where the request says none.
    fn kind(&self) -> WorkKind;

    /// The circuit with its key; jobs of one circuit share shape and SRS.
    fn circuit(&self) -> &CircuitId;

    /// Proofs of this job, at least 1; partitions are numbered from 0.
    fn num_partitions(&self) -> u32;

    /// Digest of kind, circuit and all inputs: equal digests are the same work.
    fn digest(&self) -> RequestDigest;

    /// Where the circuit's proving key comes from. The same for every job of the circuit.
    fn srs(&self) -> SrsSource;

    /// Records the circuit's matrices from its blank circuit. The same for every job of the circuit. Milliseconds to
    /// minutes, by the circuit's size.
    ///
    /// # Errors
    /// [`SynthesisError::Circuit`] if the circuit's code refuses, [`SynthesisError::TooLarge`] if the circuit has no
    /// place in the formats here.
    fn record_shape(&self) -> Result<R1csShape, SynthesisError>;

    /// The witness of one partition, by the classes of `shape`. Whether it satisfies the circuit is checked by the caller.
    ///
    /// # Errors
    /// [`SynthesisError::Circuit`] if there is no such partition or the circuit's code refuses its inputs,
    /// [`SynthesisError::ShapeMismatch`] if the witness is not of the shape, [`SynthesisError::NotABit`] if a value
    /// contradicts the classes.
    fn synthesize(
        &self,
        partition: PartitionIndex,
        shape: &R1csShape,
    ) -> Result<PackedWitness, SynthesisError>;

    /// Holds a witness of one partition against the circuit's own synthesis, variable by variable, in no more memory
    /// than the witness takes; with a `limit` up to so many private variables, after which the synthesis is ended. For
    /// tests and measurements; the Filecoin kinds have it.
    ///
    /// # Errors
    /// [`SynthesisError::Circuit`] says what differs first, or that there is nothing to compare with.
    fn compare_with_library(
        &self,
        partition: PartitionIndex,
        witness: &PackedWitness,
        shape: &R1csShape,
        limit: Option<usize>,
    ) -> Result<(), SynthesisError> {
        let _ = (partition, witness, shape, limit);
        Err(SynthesisError::Circuit("witnesses of this kind are made by the circuit's own synthesis".into()))
    }

    /// What the verifier puts in for one partition, without the leading one: canonical, in the circuit's order.
    ///
    /// # Errors
    /// [`SynthesisError::Circuit`] if there is no such partition or the circuit's library refuses.
    fn public_inputs(&self, partition: PartitionIndex) -> Result<Vec<Scalar>, SynthesisError>;

    /// A last check of the whole job's proof bytes (192 a partition, in their order) by the circuit's own library, where
    /// it has one. The engine calls it once its own verifier has accepted every partition.
    ///
    /// # Errors
    /// Why the library does not accept them. For the engine that is [`crate::error::EngineError::Disputed`], and no fault
    /// of the request.
    fn verify_job(&self, vk: &VerifyingKey, proof: &[u8]) -> Result<(), RequestError> {
        let _ = (vk, proof);
        Ok(())
    }
}

/// Runs library code that may panic on inputs that no check of ours foresaw: the thread survives, whatever was panicked
/// with, and the panic's message becomes the error. (The process's panic hook still prints it.)
///
/// # Errors
/// `work`'s own, or [`SynthesisError::Panicked`].
pub fn catch_panic<T>(work: impl FnOnce() -> Result<T, SynthesisError>) -> Result<T, SynthesisError> {
    catch(work).unwrap_or_else(|what| Err(SynthesisError::Panicked(what)))
}

/// The partition's item, or an error that names both numbers.
pub(super) fn partition_of<T>(items: &[T], partition: PartitionIndex) -> Result<&T, SynthesisError> {
    items.get(partition.0 as usize).ok_or_else(|| {
        SynthesisError::Circuit(format!("no partition {partition}: the job has {} (from 0)", items.len()))
    })
}
