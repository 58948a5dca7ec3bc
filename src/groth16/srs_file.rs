//! Filecoin's parameter files: layout, checked reading, writing.
//!
//! A file is read in order by one thread, which also takes its digest, and decoded chunk by chunk by rayon's threads;
//! it is never mapped (a mapped file that is cut short kills the process). Every point is checked: `srs_file/point.rs`
//! for all but the subgroup, `srs_file/subgroup.rs` for that, after all points are in memory.

mod layout;
mod point;
mod reader;
mod subgroup;
mod verdict;
mod writer;

use std::fs::{File, Metadata};
use std::io::{Cursor, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use blst::{blst_p1_affine, blst_p2_affine};

use self::reader::SrsReader;
pub(super) use self::verdict::Verdict;
use crate::error::SrsError;
use crate::groth16::srs::QuotientBasis;
use crate::groth16::{R1csShape, Srs, VerifyingKey};

pub(crate) use self::point::{invert_each, RawPoint, BATCH_POINTS};
pub(crate) use self::writer::SrsWriter;
pub use self::writer::{write_srs, write_vk, WrittenFile};
pub use super::unfinished::{leftovers, remove_leftovers, Leftover};

/// How far reading or checking has come, in bytes of the file.
pub type Progress<'a> = &'a (dyn Fn(u64, u64) + Sync);

/// Whether reading is to be given up.
pub type Stop<'a> = &'a (dyn Fn() -> bool + Sync);

/// How a parameter file is read.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    /// SHA-256 the whole file must have, if known.
    pub expected_sha256: Option<[u8; 32]>,
    /// Folder in which the verdict "digest and every point checked" is kept by inode, size and time, so that the
    /// next reading skips the subgroup checks (three quarters of the time). `None`: check everything every time.
    pub verdict_dir: Option<PathBuf>,
}

/// A parameter file that was read and checked.
#[derive(Debug)]
pub struct LoadedSrs {
    pub srs: Srs,
    pub sha256: [u8; 32],
    pub file_bytes: u64,
    /// Whether a stored verdict took the place of the subgroup checks.
    pub reused_verdict: bool,
}

/// Reads and checks a whole parameter file: lengths, canonical coordinates, on the curve, in the subgroup, not the
/// identity, no trailing bytes, digest. Memory: the SRS itself, and some 100 MB while its points are checked.
///
/// `progress` counts bytes read and decoded; checking the subgroup comes after the last of them.
///
/// # Errors
/// [`SrsError`] naming the section and the index within it. A file of a wrong length is refused before anything is
/// read or allocated, and a damaged point before the digest (it says more).
///
/// # Panics
/// If the operating system gives no random numbers.
pub fn read_srs(path: &Path, options: &ReadOptions, progress: Progress<'_>) -> Result<LoadedSrs, SrsError> {
    read_srs_unless(path, options, progress, &|| false)
}

/// As [`read_srs`], and gives up soon after `is_stopped` says so: it is asked between pieces of some milliseconds.
///
/// # Errors
/// As [`read_srs`], and [`SrsError::Stopped`].
///
/// # Panics
/// As [`read_srs`].
pub fn read_srs_unless(
    path: &Path,
    options: &ReadOptions,
    progress: Progress<'_>,
    is_stopped: Stop<'_>,
) -> Result<LoadedSrs, SrsError> {
    let (file, metadata) = open(path)?;
    let file_bytes = metadata.len();
    let (srs, sha256) = SrsReader::new(file, file_bytes, path).read(progress, is_stopped)?;
    check_digest(path, options.expected_sha256, sha256)?;
    let verdict = Verdict::new(&metadata, &sha256);
    let reused_verdict = options.verdict_dir.as_deref().is_some_and(|dir| verdict.is_stored(dir));
    if !reused_verdict {
        check_subgroup(&srs, path, is_stopped)?;
        if let Some(dir) = &options.verdict_dir {
            if let Err(error) = verdict.store(dir) {
                tracing::warn!(dir = %dir.display(), %error, "verdict not stored; this file is checked again next time");
            }
        }
    }
    Ok(LoadedSrs { srs, sha256, file_bytes, reused_verdict })
}

/// As [`read_srs`], from memory: for parameters that a host application keeps in its own way.
///
/// # Errors
/// As [`read_srs`]; the path in the messages is `<memory>`.
pub fn decode_srs(bytes: &[u8]) -> Result<Srs, SrsError> {
    let path = Path::new("<memory>");
    let (srs, _) =
        SrsReader::new(Cursor::new(bytes), bytes.len() as u64, path).read(&|_, _| (), &|| false)?;
    check_subgroup(&srs, path, &|| false)?;
    Ok(srs)
}

/// Reads and checks a `.vk` file.
///
/// # Errors
/// As [`read_srs`].
pub fn read_vk(path: &Path) -> Result<VerifyingKey, SrsError> {
    let (file, metadata) = open(path)?;
    let vk = SrsReader::new(file, metadata.len(), path).read_vk()?;
    check_vk_subgroup(&vk, path, &|| false)?;
    Ok(vk)
}

/// As [`read_vk`], from memory.
///
/// # Errors
/// As [`read_vk`]; the path in the messages is `<memory>`.
pub fn decode_vk(bytes: &[u8]) -> Result<VerifyingKey, SrsError> {
    let path = Path::new("<memory>");
    let vk = SrsReader::new(Cursor::new(bytes), bytes.len() as u64, path).read_vk()?;
    check_vk_subgroup(&vk, path, &|| false)?;
    Ok(vk)
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

impl SrsCounts {
    /// [`Srs::check_fits`] before the points are read: a file of another circuit is refused at once.
    ///
    /// # Errors
    /// [`SrsError::Mismatch`] naming the first count that differs.
    pub fn check_fits(&self, shape: &R1csShape) -> Result<(), SrsError> {
        let counts = [self.ic, self.h, self.l, self.a, self.b_g1, self.b_g2];
        super::srs::check_counts(shape, QuotientBasis::Coefficients, counts.map(u64::from))
    }
}

/// Reads the counts and holds them against the file's length; no point is read.
///
/// # Errors
/// [`SrsError::Length`] naming the section that is cut, or trailing bytes.
pub fn read_counts(path: &Path) -> Result<SrsCounts, SrsError> {
    let (mut file, metadata) = open(path)?;
    let sections = layout::locate(&mut file, metadata.len(), layout::SECTIONS.len(), path)?;
    let [ic, h, l, a, b_g1, b_g2] =
        <[_; 6]>::try_from(sections).expect("one section each").map(|section| section.num_points);
    Ok(SrsCounts { ic, h, l, a, b_g1, b_g2, file_bytes: metadata.len() })
}

/// The digest that this file had when it was last read with this folder of verdicts, if it seems to be that file still: by
/// inode, size and time. For estimates, which cannot wait for gigabytes to be read.
pub fn likely_sha256(path: &Path, verdict_dir: &Path) -> Option<[u8; 32]> {
    let (_, metadata) = open(path).ok()?;
    Verdict::likely_sha256(&metadata, verdict_dir)
}

fn open(path: &Path) -> Result<(File, Metadata), SrsError> {
    open_regular(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => {
            let circuit = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            SrsError::Missing { circuit, path: path.into(), advice: None }
        }
        _ => io_error(path, error),
    })
}

/// Opens a regular file (opening a pipe would wait for a writer) and takes its metadata from the handle, so that both
/// are of the same file.
pub(super) fn open_regular(path: &Path) -> std::io::Result<(File, Metadata)> {
    let regular = |metadata: Metadata| match metadata.is_file() {
        true => Ok(metadata),
        false => Err(std::io::Error::new(ErrorKind::InvalidInput, "not a regular file")),
    };
    regular(std::fs::metadata(path)?)?;
    let file = File::open(path)?;
    let metadata = regular(file.metadata()?)?;
    Ok((file, metadata))
}

fn io_error(path: &Path, error: std::io::Error) -> SrsError {
    SrsError::Io { path: path.into(), source: Arc::new(error) }
}

fn stopped(path: &Path) -> SrsError {
    SrsError::Stopped { path: path.into() }
}

fn check_digest(path: &Path, needs: Option<[u8; 32]>, has: [u8; 32]) -> Result<(), SrsError> {
    match needs {
        Some(needs) if needs != has => {
            Err(SrsError::Digest { path: path.into(), needs: hex::encode(needs), has: hex::encode(has) })
        }
        _ => Ok(()),
    }
}

/// All points of one group at once: the rounds' fixed cost is paid once.
fn check_subgroup(srs: &Srs, path: &Path, is_stopped: Stop<'_>) -> Result<(), SrsError> {
    check_vk_subgroup(&srs.vk, path, is_stopped)?;
    let in_g1 = [("h", &srs.h), ("l", &srs.l), ("a", &srs.a), ("b_g1", &srs.b_g1)];
    check_sections(path, in_g1.map(|(name, points)| (name, points.as_slice())), is_stopped)?;
    check_sections(path, [("b_g2", srs.b_g2.as_slice())], is_stopped)
}

fn check_vk_subgroup(vk: &VerifyingKey, path: &Path, is_stopped: Stop<'_>) -> Result<(), SrsError> {
    let g1 = |name, point: &blstrs::G1Affine| (name, vec![blst_p1_affine::from_affine(point)]);
    let g2 = |name, point: &blstrs::G2Affine| (name, vec![blst_p2_affine::from_affine(point)]);
    let head_g1 =
        [g1("vk.alpha_g1", &vk.alpha_g1), g1("vk.beta_g1", &vk.beta_g1), g1("vk.delta_g1", &vk.delta_g1)];
    let head_g2 =
        [g2("vk.beta_g2", &vk.beta_g2), g2("vk.gamma_g2", &vk.gamma_g2), g2("vk.delta_g2", &vk.delta_g2)];
    let ic: Vec<_> = vk.ic.iter().map(blst_p1_affine::from_affine).collect();
    check_sections(path, head_g1.each_ref().map(|(name, point)| (*name, point.as_slice())), is_stopped)?;
    check_sections(path, head_g2.each_ref().map(|(name, point)| (*name, point.as_slice())), is_stopped)?;
    check_sections(path, [("vk.ic", ic.as_slice())], is_stopped)
}

pub(super) fn check_sections<P: RawPoint, const N: usize>(
    path: &Path,
    sections: [(&'static str, &[P]); N],
    is_stopped: Stop<'_>,
) -> Result<(), SrsError> {
    let parts = sections.map(|(_, points)| points);
    let checked = subgroup::check(&parts, is_stopped);
    if is_stopped() {
        return Err(stopped(path));
    }
    let Err(mut index) = checked else { return Ok(()) };
    for (section, points) in sections {
        if index < points.len() {
            let what = "not in the subgroup";
            return Err(SrsError::Point { path: path.into(), section, index: index as u64, what });
        }
        index -= points.len();
    }
    unreachable!("the index is that of a point of these sections")
}
