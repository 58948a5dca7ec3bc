//! Fold files.
//!
//! ```text
//! "CUZKFOLD"  version u32  domain_log2 u32  num_inputs u64  num_aux u64        little-endian
//! SHA-256 of the parameter file | SHA-256 of the compact shape                32 B each
//! h: [n] points | l: [num_inputs + num_aux] points                            96 B each
//! SHA-256 of all before                                                       32 B
//! ```
//!
//! Points are uncompressed as in parameter files; the identity has its flag. A file is beside the parameter file, under
//! its name and the beginning of a digest of both digests. It is refused on any difference: of length, version, key,
//! circuit, digest, or a coordinate that is none. Whoever can write the folder could make a file with a right digest and
//! wrong points, hence [`Fold::check`], whose verdict is kept as that of parameter files is.

use std::fs::File;
use std::io::{BufReader, BufWriter, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use blst::blst_p1_affine;
use rayon::prelude::*;
use sha2::{Digest, Sha256};

use super::{Fold, Watch};
use crate::error::FoldError;
use crate::groth16::srs_file::{open_regular, RawPoint, Verdict};
use crate::groth16::{unfinished, R1csShape, Srs};

const MAGIC: [u8; 8] = *b"CUZKFOLD";
/// It changes with the layout and with what the points are.
const VERSION: u32 = 1;
const HEADER_BYTES: u64 = 96;
const DIGEST_BYTES: u64 = 32;
const POINT_BYTES: u64 = 96;
/// Points read, digested and decoded at a time.
const CHUNK_POINTS: usize = 1 << 16;
/// First byte of the identity; all others are zero.
const IDENTITY_FLAG: u8 = 0x40;

/// What a fold is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoldKey {
    /// Of the whole parameter file.
    pub params_sha256: [u8; 32],
    /// [`R1csShape::compact_sha256`].
    pub shape_sha256: [u8; 32],
}

impl FoldKey {
    pub fn new(params_sha256: [u8; 32], shape: &R1csShape) -> Self {
        Self { params_sha256, shape_sha256: shape.compact_sha256() }
    }
}

/// Where the fold of the key in `params` is.
pub fn fold_path(params: &Path, key: &FoldKey) -> PathBuf {
    let digest = Sha256::new().chain_update(key.params_sha256).chain_update(key.shape_sha256).finalize();
    let stem = params.file_stem().unwrap_or_default().to_string_lossy();
    params.with_file_name(format!("{stem}.{}.fold", hex::encode(&digest[..8])))
}

/// How a fold file is read.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoadOptions<'a> {
    /// Folder in which the verdict "checked" is kept, as [`crate::groth16::srs_file::ReadOptions::verdict_dir`].
    pub verdict_dir: Option<&'a Path>,
}

/// The fold beside a parameter file, read, and checked against the key unless that was done before. `None`: there is none.
///
/// # Errors
/// [`FoldError`]: the file is there and not to be used. The plain key is.
pub fn load_fold(
    params: &Path,
    params_sha256: [u8; 32],
    srs: &Srs,
    shape: &R1csShape,
    options: LoadOptions<'_>,
    watch: Watch<'_>,
) -> Result<Option<Fold>, FoldError> {
    if !is_beside(params) {
        return Ok(None);
    }
    let key = FoldKey::new(params_sha256, shape);
    let path = fold_path(params, &key);
    if !path.exists() {
        return Ok(None);
    }
    let (fold, verdict) = Fold::read(&path, &key, shape, watch)?;
    if options.verdict_dir.is_some_and(|dir| verdict.is_stored(dir)) {
        return Ok(Some(fold));
    }
    fold.check(srs, shape, &path, watch)?;
    store_verdict(&verdict, options);
    Ok(Some(fold))
}

/// Whether a fold of this file's name is there, of whatever key: the digests need not be taken otherwise.
pub fn is_beside(params: &Path) -> bool {
    beside(params).next().is_some()
}

/// The numbers of points of a fold, as its header says them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoldSizes {
    pub domain_log2: u32,
    pub num_inputs: u64,
    pub num_aux: u64,
}

impl FoldSizes {
    pub fn of(shape: &R1csShape) -> Self {
        Self {
            domain_log2: shape.domain_log2(),
            num_inputs: shape.num_inputs() as u64,
            num_aux: shape.num_aux() as u64,
        }
    }

    fn num_points(self) -> u64 {
        (1u64 << self.domain_log2) + self.num_inputs + self.num_aux
    }

    /// Bytes of the whole file.
    pub fn file_bytes(self) -> u64 {
        HEADER_BYTES + POINT_BYTES * self.num_points() + DIGEST_BYTES
    }

    /// Bytes in memory, beside the key, while it is loaded: its points, and what [`Fold::check`] works in.
    pub fn load_bytes(self) -> u64 {
        POINT_BYTES * self.num_points() + super::check_bytes(self.domain_log2)
    }
}

/// Whether a fold beside a parameter file may be this key's, by headers alone: sizes, length, name, and the parameter file's
/// digest if that is known. One that is left of another key is none.
pub fn may_be_used(params: &Path, sizes: FoldSizes, params_sha256: Option<[u8; 32]>) -> bool {
    beside(params).any(|path| {
        let Some(key) = key_of(&path, sizes) else { return false };
        path == fold_path(params, &key) && params_sha256.is_none_or(|digest| digest == key.params_sha256)
    })
}

/// What a whole file of these sizes says it is of.
fn key_of(path: &Path, sizes: FoldSizes) -> Option<FoldKey> {
    let (mut file, metadata) = open_regular(path).ok()?;
    let mut has = [0; HEADER_BYTES as usize];
    file.read_exact(&mut has).ok()?;
    let digest = |at: usize| <[u8; 32]>::try_from(&has[at..at + 32]).expect("32 bytes");
    let key = FoldKey { params_sha256: digest(32), shape_sha256: digest(64) };
    let is_whole = metadata.len() == sizes.file_bytes();
    (is_whole && has == header(&key, sizes)).then_some(key)
}

/// Files that have the name of a fold of this parameter file, of whatever key.
fn beside(params: &Path) -> impl Iterator<Item = PathBuf> {
    let prefix = format!("{}.", params.file_stem().unwrap_or_default().to_string_lossy());
    let entries = std::fs::read_dir(unfinished::folder(params)).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let folds = names.filter(move |name| name.starts_with(&prefix) && name.ends_with(".fold"));
    let params = params.to_owned();
    folds.map(move |name| params.with_file_name(name))
}

fn store_verdict(verdict: &Verdict, options: LoadOptions<'_>) {
    if let Some(dir) = options.verdict_dir {
        if let Err(error) = verdict.store(dir) {
            tracing::warn!(dir = %dir.display(), %error, "verdict not stored; this fold is checked again next time");
        }
    }
}

impl Fold {
    /// Writes a fold that was checked, atomically, and keeps that verdict. `progress` counts bytes.
    ///
    /// # Errors
    /// [`FoldError::Io`], [`FoldError::Stopped`]; nothing is left under the name then that was not there before.
    pub fn save(
        &self,
        path: &Path,
        key: &FoldKey,
        shape: &R1csShape,
        options: LoadOptions<'_>,
        watch: Watch<'_>,
    ) -> Result<u64, FoldError> {
        let failed = |error| io_error(path, error);
        let dir = unfinished::folder(path);
        std::fs::create_dir_all(dir).map_err(failed)?;
        let mut file = BufWriter::with_capacity(1 << 20, unfinished::create(dir).map_err(failed)?);
        let mut digest = Sha256::new();
        let mut write = |bytes: &[u8]| {
            digest.update(bytes);
            file.write_all(bytes)
        };
        let sizes = FoldSizes::of(shape);
        write(&header(key, sizes)).map_err(failed)?;
        let total = sizes.file_bytes();
        let mut done = HEADER_BYTES;
        for points in self.h.chunks(CHUNK_POINTS).chain(self.l.chunks(CHUNK_POINTS)) {
            watch.check()?;
            write(&encode(points)).map_err(failed)?;
            done += POINT_BYTES * points.len() as u64;
            (watch.progress)(done, total);
        }
        let digest: [u8; 32] = digest.finalize().into();
        file.write_all(&digest).map_err(failed)?;
        let file = file.into_inner().map_err(|error| failed(error.into_error()))?;
        file.as_file().sync_all().map_err(failed)?;
        set_readable(file.as_file()).map_err(failed)?;
        let file = file.persist(path).map_err(|error| failed(error.error))?;
        let metadata = file.metadata().map_err(failed)?;
        store_verdict(&Verdict::new(&metadata, &digest), options);
        Ok(metadata.len())
    }

    /// Reads a fold of this key and circuit, all but checked, and what its verdict is kept under.
    fn read(
        path: &Path,
        key: &FoldKey,
        shape: &R1csShape,
        watch: Watch<'_>,
    ) -> Result<(Self, Verdict), FoldError> {
        let failed = |error: std::io::Error| io_error(path, error);
        let (file, metadata) = open_regular(path).map_err(failed)?;
        let mut file = BufReader::with_capacity(1 << 20, file);
        let mut digest = Sha256::new();
        let mut has = [0; HEADER_BYTES as usize];
        file.read_exact(&mut has).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => foreign(path),
            _ => failed(error),
        })?;
        let sizes = FoldSizes::of(shape);
        check_header(path, &has, &header(key, sizes))?;
        let (needs_bytes, has_bytes) = (sizes.file_bytes(), metadata.len());
        if needs_bytes != has_bytes {
            return Err(FoldError::Length { path: path.into(), needs_bytes, has_bytes });
        }
        digest.update(has);
        let mut reader = PointReader { path, file, digest, done: HEADER_BYTES, total: needs_bytes, watch };
        let h = reader.points("h", 1 << shape.domain_log2())?;
        let l = reader.points("l", shape.num_inputs() + shape.num_aux())?;
        let PointReader { mut file, digest, .. } = reader;
        let (mut needs, has) = ([0; DIGEST_BYTES as usize], <[u8; 32]>::from(digest.finalize()));
        file.read_exact(&mut needs).map_err(failed)?;
        if needs != has {
            let [needs, has] = [needs, has].map(hex::encode);
            return Err(FoldError::Digest { path: path.into(), needs, has });
        }
        Ok((Self { h, l }, Verdict::new(&metadata, &has)))
    }
}

struct PointReader<'a> {
    path: &'a Path,
    file: BufReader<File>,
    digest: Sha256,
    done: u64,
    total: u64,
    watch: Watch<'a>,
}

impl PointReader<'_> {
    /// The file's length was seen to hold so many.
    fn points(&mut self, section: &'static str, count: usize) -> Result<Vec<blst_p1_affine>, FoldError> {
        let failed = |error| io_error(self.path, error);
        let mut points = Vec::new();
        points
            .try_reserve_exact(count)
            .map_err(|error| failed(std::io::Error::new(ErrorKind::OutOfMemory, error.to_string())))?;
        points.resize(count, blst_p1_affine::default());
        let mut bytes = vec![0; POINT_BYTES as usize * CHUNK_POINTS.min(count)];
        for (chunk, points) in points.chunks_mut(CHUNK_POINTS).enumerate() {
            self.watch.check()?;
            let bytes = &mut bytes[..POINT_BYTES as usize * points.len()];
            self.file.read_exact(bytes).map_err(failed)?;
            let bytes = &*bytes;
            let (_, refused) = rayon::join(|| self.digest.update(bytes), || decode(bytes, points));
            if let Some((index, what)) = refused {
                let index = (chunk * CHUNK_POINTS + index) as u64;
                return Err(FoldError::Point { path: self.path.into(), section, index, what });
            }
            self.done += bytes.len() as u64;
            (self.watch.progress)(self.done, self.total);
        }
        Ok(points)
    }
}

fn header(key: &FoldKey, sizes: FoldSizes) -> [u8; HEADER_BYTES as usize] {
    let mut bytes = Vec::with_capacity(HEADER_BYTES as usize);
    bytes.extend(MAGIC);
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend(sizes.domain_log2.to_le_bytes());
    bytes.extend(sizes.num_inputs.to_le_bytes());
    bytes.extend(sizes.num_aux.to_le_bytes());
    bytes.extend(key.params_sha256);
    bytes.extend(key.shape_sha256);
    bytes.try_into().expect("the fields are as long as the header")
}

/// The first field that differs.
fn check_header(path: &Path, has: &[u8], needs: &[u8]) -> Result<(), FoldError> {
    if has[..8] != needs[..8] {
        return Err(foreign(path));
    }
    let version = u32::from_le_bytes(has[8..12].try_into().expect("four bytes"));
    if version != VERSION {
        return Err(FoldError::Version { path: path.into(), needs: VERSION, has: version });
    }
    for (what, range) in [("parameter file", 32..64), ("circuit", 64..96), ("size of the circuit", 12..32)] {
        if has[range.clone()] != needs[range.clone()] {
            let [needs, has] = [needs, has].map(|bytes| hex::encode(&bytes[range.clone()]));
            return Err(FoldError::Mismatch { path: path.into(), what, needs, has });
        }
    }
    Ok(())
}

fn encode(points: &[blst_p1_affine]) -> Vec<u8> {
    let batch = |points: &[blst_p1_affine]| {
        let mut bytes = Vec::with_capacity(POINT_BYTES as usize * points.len());
        points.iter().for_each(|point| point.encode(&mut bytes));
        bytes
    };
    points.par_chunks(256).flat_map_iter(batch).collect()
}

/// The first point that is refused, and why.
fn decode(bytes: &[u8], points: &mut [blst_p1_affine]) -> Option<(usize, &'static str)> {
    let pairs = bytes.par_chunks_exact(POINT_BYTES as usize).zip(points).enumerate().with_min_len(64);
    let refused = pairs.filter_map(|(index, (bytes, point))| {
        if bytes[0] == IDENTITY_FLAG && bytes[1..].iter().all(|byte| *byte == 0) {
            *point = blst_p1_affine::default();
            return None;
        }
        match blst_p1_affine::decode(bytes) {
            Ok(decoded) => *point = decoded,
            Err(what) => return Some((index, what)),
        }
        None
    });
    refused.min_by_key(|(index, _)| *index)
}

/// A temporary file is its owner's alone; a fold holds nothing secret.
fn set_readable(file: &File) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.set_permissions(std::fs::Permissions::from_mode(0o644))
}

fn foreign(path: &Path) -> FoldError {
    FoldError::Foreign { path: path.into() }
}

fn io_error(path: &Path, source: std::io::Error) -> FoldError {
    FoldError::Io { path: path.into(), source: Arc::new(source) }
}
