//! Writing parameter files, streamed and atomic.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use crossbeam_channel::{bounded, Sender};
use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;

use super::io_error;
use super::layout::SECTIONS;
use super::point::RawPoint;
use crate::error::SrsError;
use crate::groth16::srs::QuotientBasis;
use crate::groth16::{unfinished, Srs, VerifyingKey};

/// A file being written under a temporary name beside its place, with its digest. Dropped without
/// [`DigestedFile::finish`], it is removed; a process that is killed leaves a hidden file (`groth16/unfinished.rs`).
struct DigestedFile {
    path: PathBuf,
    file: BufWriter<NamedTempFile>,
    digest: Digester,
    num_bytes: u64,
}

/// Takes a digest on a thread of its own: of 47 GB that takes half a minute, and writing them as long.
struct Digester {
    /// `None` once all is given.
    pieces: Option<Sender<Vec<u8>>>,
    thread: JoinHandle<[u8; 32]>,
}

impl Digester {
    /// Pieces that may wait; of parameters that a GPU makes each has 100 MB.
    const MAX_WAITING: usize = 2;

    fn start() -> std::io::Result<Self> {
        let (pieces, received) = bounded::<Vec<u8>>(Self::MAX_WAITING);
        let thread = std::thread::Builder::new().name("cuzk-digest".to_owned()).spawn(move || {
            let mut digest = Sha256::new();
            received.iter().for_each(|piece| digest.update(piece));
            digest.finalize().into()
        })?;
        Ok(Self { pieces: Some(pieces), thread })
    }

    fn update(&self, bytes: &[u8]) {
        let pieces = self.pieces.as_ref().expect("taken only at the end");
        pieces.send(bytes.to_vec()).expect("the thread takes pieces as long as there may be more");
    }

    fn finish(mut self) -> [u8; 32] {
        self.pieces = None;
        self.thread.join().expect("a digest of bytes in memory cannot fail")
    }
}

impl DigestedFile {
    fn create(path: &Path) -> Result<Self, SrsError> {
        let dir = unfinished::folder(path);
        std::fs::create_dir_all(dir).map_err(|error| io_error(dir, error))?;
        let file = unfinished::create(dir).map_err(|error| io_error(dir, error))?;
        let file = BufWriter::with_capacity(1 << 20, file);
        let digest = Digester::start().map_err(|error| io_error(path, error))?;
        Ok(Self { path: path.into(), file, digest, num_bytes: 0 })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), SrsError> {
        self.digest.update(bytes);
        self.num_bytes += bytes.len() as u64;
        self.file.write_all(bytes).map_err(|error| io_error(&self.path, error))
    }

    /// Makes the bytes durable and gives them their name.
    fn finish(self) -> Result<WrittenFile, SrsError> {
        let Self { path, file, digest, num_bytes } = self;
        let file = file.into_inner().map_err(|error| io_error(&path, error.into_error()))?;
        file.as_file().sync_all().map_err(|error| io_error(&path, error))?;
        make_readable(&file).map_err(|error| io_error(&path, error))?;
        file.persist(&path).map_err(|error| io_error(&path, error.error))?;
        Ok(WrittenFile { num_bytes, sha256: digest.finish() })
    }
}

/// A temporary file is its owner's alone; parameter files hold nothing secret and are shared between services.
fn make_readable(file: &NamedTempFile) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.as_file().set_permissions(std::fs::Permissions::from_mode(0o644))
}

/// Size and digest of a file that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrittenFile {
    pub num_bytes: u64,
    pub sha256: [u8; 32],
}

/// Writes a parameter file section by section: the verifying key, then `h`, `l`, `a`, `b_g1` and `b_g2`, each with its
/// count known before its points.
pub(crate) struct SrsWriter {
    file: DigestedFile,
    /// Sections begun, `vk.ic` included.
    num_sections: usize,
    /// Points that the section begun last still needs.
    missing_points: u32,
    encoded: Vec<u8>,
}

impl SrsWriter {
    /// Begins the file that will replace `path`, and writes `vk`.
    ///
    /// # Errors
    /// [`SrsError::Io`] if the folder cannot be written.
    pub fn create(path: &Path, vk: &VerifyingKey) -> Result<Self, SrsError> {
        let mut file = DigestedFile::create(path)?;
        file.write(&encode_vk(vk))?;
        Ok(Self { file, num_sections: 1, missing_points: 0, encoded: Vec::new() })
    }

    /// Begins the next section.
    ///
    /// # Panics
    /// If the section before it lacks points, or there is no such section.
    pub fn begin_section(&mut self, num_points: u32) -> Result<(), SrsError> {
        assert_eq!(self.missing_points, 0, "a section is begun when the one before it is full");
        assert!(self.num_sections < SECTIONS.len(), "a parameter file has no further section");
        self.num_sections += 1;
        self.missing_points = num_points;
        self.file.write(&num_points.to_be_bytes())
    }

    pub(crate) fn write_points<P: RawPoint>(&mut self, points: &[P]) -> Result<(), SrsError> {
        let mut encoded = std::mem::take(&mut self.encoded);
        encoded.clear();
        points.iter().for_each(|point| point.encode(&mut encoded));
        let written = self.write_encoded::<P>(&encoded);
        self.encoded = encoded;
        written
    }

    /// Points as the file holds them.
    ///
    /// # Panics
    /// If they are of another group than the section, not whole, or more than it lacks.
    pub(crate) fn write_encoded<P: RawPoint>(&mut self, points: &[u8]) -> Result<(), SrsError> {
        assert_eq!(P::BYTES as u64, SECTIONS[self.num_sections - 1].1, "points are of the section's group");
        assert_eq!(points.len() % P::BYTES, 0, "points are whole");
        let num_points = u32::try_from(points.len() / P::BYTES).expect("callers write in chunks");
        self.missing_points = self
            .missing_points
            .checked_sub(num_points)
            .expect("no more points than the section was begun with");
        self.file.write(points)
    }

    /// Gives the file its name.
    ///
    /// # Errors
    /// [`SrsError::Io`]; nothing is left under the file's name then that was not there before.
    ///
    /// # Panics
    /// If a section or a point is missing.
    pub fn finish(self) -> Result<WrittenFile, SrsError> {
        assert_eq!((self.num_sections, self.missing_points), (SECTIONS.len(), 0), "all sections are written");
        self.file.finish()
    }
}

/// Writes a `.vk` file, atomically.
///
/// # Errors
/// [`SrsError::Io`].
pub fn write_vk(path: &Path, vk: &VerifyingKey) -> Result<WrittenFile, SrsError> {
    let mut file = DigestedFile::create(path)?;
    file.write(&encode_vk(vk))?;
    file.finish()
}

/// Writes an SRS that is in memory as a parameter file, atomically.
///
/// # Errors
/// [`SrsError::Io`].
///
/// # Panics
/// If a query has 2^32 points or more, or the key is folded: the format has no place that would say so, and whoever read the
/// file would take it for another circuit's.
pub fn write_srs(path: &Path, srs: &Srs) -> Result<WrittenFile, SrsError> {
    assert_eq!(srs.basis, QuotientBasis::Coefficients, "a folded key is no parameter file");
    let mut writer = SrsWriter::create(path, &srs.vk)?;
    for query in [&srs.h, &srs.l, &srs.a, &srs.b_g1] {
        write_query(&mut writer, query)?;
    }
    write_query(&mut writer, &srs.b_g2)?;
    writer.finish()
}

fn write_query<P: RawPoint>(writer: &mut SrsWriter, query: &[P]) -> Result<(), SrsError> {
    writer.begin_section(u32::try_from(query.len()).expect("the format counts in 32 bits"))?;
    query.chunks(1 << 13).try_for_each(|points| writer.write_points(points))
}

pub(super) fn encode_vk(vk: &VerifyingKey) -> Vec<u8> {
    let num_inputs = u32::try_from(vk.ic.len()).expect("the format counts inputs in 32 bits");
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&vk.alpha_g1.to_uncompressed());
    bytes.extend_from_slice(&vk.beta_g1.to_uncompressed());
    bytes.extend_from_slice(&vk.beta_g2.to_uncompressed());
    bytes.extend_from_slice(&vk.gamma_g2.to_uncompressed());
    bytes.extend_from_slice(&vk.delta_g1.to_uncompressed());
    bytes.extend_from_slice(&vk.delta_g2.to_uncompressed());
    bytes.extend_from_slice(&num_inputs.to_be_bytes());
    vk.ic.iter().for_each(|point| bytes.extend_from_slice(&point.to_uncompressed()));
    bytes
}
