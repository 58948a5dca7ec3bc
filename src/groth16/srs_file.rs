//! Filecoin's parameter files: layout, checked reading, writing.

use std::path::{Path, PathBuf};

use crate::error::SrsError;
use crate::groth16::{Srs, VerifyingKey};

/// How far reading or checking has come, in bytes of the file.
pub type Progress<'a> = &'a (dyn Fn(u64, u64) + Sync);

/// How a parameter file is read.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    /// SHA-256 the whole file must have, if known.
    pub expected_sha256: Option<[u8; 32]>,
    /// Folder in which the verdict "digest and every point checked" is kept by inode, size and time, so that the
    /// next reading skips the subgroup checks. `None`: check everything every time.
    pub verdict_dir: Option<PathBuf>,
}

/// A parameter file that was read and checked.
#[derive(Debug)]
pub struct LoadedSrs {
    pub srs: Srs,
    pub sha256: [u8; 32],
    pub file_bytes: u64,
}

/// Reads and checks a whole parameter file: lengths, canonical coordinates, on the curve, in the subgroup, not the
/// identity, no trailing bytes, digest.
///
/// # Errors
/// [`SrsError`] naming the section and the index within it.
pub fn read_srs(path: &Path, options: &ReadOptions, progress: Progress<'_>) -> Result<LoadedSrs, SrsError> {
    let _ = (path, options, progress);
    todo!()
}

/// Reads and checks a `.vk` file.
pub fn read_vk(path: &Path) -> Result<VerifyingKey, SrsError> {
    let _ = path;
    todo!()
}

/// Number of points of each section, read from the counts alone (for `cuzk inspect`): fast at any size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SrsCounts {
    pub ic: u32,
    pub h: u32,
    pub l: u32,
    pub a: u32,
    pub b_g1: u32,
    pub b_g2: u32,
    pub file_bytes: u64,
}

pub fn read_counts(path: &Path) -> Result<SrsCounts, SrsError> {
    let _ = path;
    todo!()
}
