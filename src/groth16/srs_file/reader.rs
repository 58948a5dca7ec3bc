//! Reading in order: one thread reads and digests, the others decode.

use std::io::{ErrorKind, Read, Seek};
use std::path::Path;

use blst::{blst_p1_affine, blst_p2_affine};
use crossbeam_channel::{bounded, Receiver, Sender};
use rayon::prelude::*;
use sha2::{Digest, Sha256};

use super::layout::{self, Section, COUNT_BYTES, HEAD, HEAD_BYTES};
use super::point::RawPoint;
use super::{io_error, stopped, Progress, Stop};
use crate::error::SrsError;
use crate::groth16::srs::QuotientBasis;
use crate::groth16::{Srs, VerifyingKey};

/// Bytes read at a time: a multiple of both points' sizes, and small enough to stay in the cache between the
/// reading and the decoding thread.
const CHUNK_BYTES: u64 = 192 * (1 << 13);

/// Chunks that may wait to be decoded: the reading thread is never far ahead.
const CHUNKS_AHEAD: usize = 4;

/// A parameter file being read. Nothing it reads is believed to be in the subgroup yet.
pub(super) struct SrsReader<'a, R> {
    file: R,
    file_bytes: u64,
    path: &'a Path,
}

impl<'a, R: Read + Seek + Send> SrsReader<'a, R> {
    pub fn new(file: R, file_bytes: u64, path: &'a Path) -> Self {
        Self { file, file_bytes, path }
    }

    pub fn read_vk(mut self) -> Result<VerifyingKey, SrsError> {
        let sections = layout::locate(&mut self.file, self.file_bytes, 1, self.path)?;
        self.stream(&sections, &|_, _| (), &|| false, |chunks| chunks.vk(&sections[0])).map(|(vk, _)| vk)
    }

    /// The SRS and the digest of the file.
    pub fn read(mut self, progress: Progress<'_>, is_stopped: Stop<'_>) -> Result<(Srs, [u8; 32]), SrsError> {
        let sections = layout::locate(&mut self.file, self.file_bytes, layout::SECTIONS.len(), self.path)?;
        self.stream(&sections, progress, is_stopped, |chunks| {
            Ok(Srs {
                vk: chunks.vk(&sections[0])?,
                basis: QuotientBasis::Coefficients,
                h: chunks.section(&sections[1])?,
                l: chunks.section(&sections[2])?,
                a: chunks.section(&sections[3])?,
                b_g1: chunks.section(&sections[4])?,
                b_g2: chunks.section(&sections[5])?,
            })
        })
    }

    /// Runs `decode` over the file's bytes while another thread reads and digests them.
    fn stream<T>(
        mut self,
        sections: &[Section],
        progress: Progress<'_>,
        is_stopped: Stop<'_>,
        decode: impl FnOnce(&mut Chunks<'_>) -> Result<T, SrsError>,
    ) -> Result<(T, [u8; 32]), SrsError> {
        let (path, file_bytes) = (self.path, self.file_bytes);
        let (sender, receiver) = bounded(CHUNKS_AHEAD);
        std::thread::scope(|scope| {
            let reading = scope.spawn(move || self.read_all(sections, sender));
            let mut chunks = Chunks { receiver, path, progress, is_stopped, done_bytes: 0, file_bytes };
            let decoded = decode(&mut chunks);
            drop(chunks);
            // When decoding failed it has dropped its receiver, and the reading thread stops at its next chunk.
            let digest = reading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            Ok((decoded?, digest))
        })
    }

    /// Sends the file piece by piece: the head, then each section's count and its points in chunks.
    fn read_all(&mut self, sections: &[Section], sender: Sender<Result<Vec<u8>, SrsError>>) -> [u8; 32] {
        let mut digest = Sha256::new();
        let section_pieces = sections.iter().flat_map(|section| {
            let points = section.num_bytes();
            let full = std::iter::repeat_n(CHUNK_BYTES, (points / CHUNK_BYTES) as usize);
            let rest = Some(points % CHUNK_BYTES).filter(|rest| *rest > 0);
            [COUNT_BYTES].into_iter().chain(full).chain(rest)
        });
        for piece_bytes in [HEAD_BYTES].into_iter().chain(section_pieces) {
            let mut piece = vec![0; piece_bytes as usize];
            let piece = match self.file.read_exact(&mut piece) {
                Ok(()) => {
                    digest.update(&piece);
                    Ok(piece)
                }
                Err(error) => Err(self.read_error(error)),
            };
            let failed = piece.is_err();
            if sender.send(piece).is_err() || failed {
                break;
            }
        }
        digest.finalize().into()
    }

    fn read_error(&self, error: std::io::Error) -> SrsError {
        match error.kind() {
            ErrorKind::UnexpectedEof => changed(self.path),
            _ => io_error(self.path, error),
        }
    }
}

/// The file is not what it was when its length and counts were read.
fn changed(path: &Path) -> SrsError {
    io_error(path, std::io::Error::other("the file changed while it was read"))
}

/// The pieces of a file, in order, on the decoding side.
struct Chunks<'a> {
    receiver: Receiver<Result<Vec<u8>, SrsError>>,
    path: &'a Path,
    progress: Progress<'a>,
    is_stopped: Stop<'a>,
    done_bytes: u64,
    file_bytes: u64,
}

impl Chunks<'_> {
    fn next(&mut self) -> Result<Vec<u8>, SrsError> {
        if (self.is_stopped)() {
            return Err(stopped(self.path));
        }
        self.receiver.recv().expect("the reading thread sends every piece of the layout, or an error")
    }

    fn report(&mut self, piece_bytes: usize) {
        self.done_bytes += piece_bytes as u64;
        (self.progress)(self.done_bytes, self.file_bytes);
    }

    fn vk(&mut self, ic: &Section) -> Result<VerifyingKey, SrsError> {
        let head = self.next()?;
        self.report(head.len());
        let mut points = head.as_slice();
        let mut names = HEAD.into_iter();
        let mut bytes = || {
            let (name, size) = names.next().expect("six points are decoded");
            let (point, rest) = points.split_at(size as usize);
            points = rest;
            (name, point)
        };
        Ok(VerifyingKey {
            alpha_g1: self.head_point::<blst_p1_affine>(bytes())?,
            beta_g1: self.head_point::<blst_p1_affine>(bytes())?,
            beta_g2: self.head_point::<blst_p2_affine>(bytes())?,
            gamma_g2: self.head_point::<blst_p2_affine>(bytes())?,
            delta_g1: self.head_point::<blst_p1_affine>(bytes())?,
            delta_g2: self.head_point::<blst_p2_affine>(bytes())?,
            ic: self.section::<blst_p1_affine>(ic)?.into_iter().map(RawPoint::to_affine).collect(),
        })
    }

    fn head_point<P: RawPoint>(&self, (name, bytes): (&'static str, &[u8])) -> Result<P::Affine, SrsError> {
        P::decode(bytes).map(P::to_affine).map_err(|what| self.point_error(name, 0, what))
    }

    /// Decodes one section's points. Its memory is asked for, not demanded: a sparse file can be longer than memory.
    fn section<P: RawPoint>(&mut self, section: &Section) -> Result<Vec<P>, SrsError> {
        let count = self.next()?;
        if count != section.num_points.to_be_bytes() {
            return Err(changed(self.path));
        }
        self.report(count.len());
        let num_points = section.num_points as usize;
        let mut points = Vec::new();
        points.try_reserve_exact(num_points).map_err(|error| {
            io_error(self.path, std::io::Error::new(ErrorKind::OutOfMemory, error.to_string()))
        })?;
        while points.len() < num_points {
            let chunk = self.next()?;
            let before = points.len();
            points.resize(before + chunk.len() / P::BYTES, P::default());
            if let Some((index, what)) = decode_chunk(&chunk, &mut points[before..]) {
                return Err(self.point_error(section.name, before + index, what));
            }
            self.report(chunk.len());
        }
        Ok(points)
    }

    fn point_error(&self, section: &'static str, index: usize, what: &'static str) -> SrsError {
        SrsError::Point { path: self.path.into(), section, index: index as u64, what }
    }
}

/// Decodes a chunk in parallel; the first point that is refused, and why.
fn decode_chunk<P: RawPoint>(chunk: &[u8], points: &mut [P]) -> Option<(usize, &'static str)> {
    /// Points per task: some 100 µs of work.
    const TASK_POINTS: usize = 256;
    let tasks = chunk.par_chunks(TASK_POINTS * P::BYTES).zip(points.par_chunks_mut(TASK_POINTS));
    let decode_task = |(task, (bytes, points)): (usize, (&[u8], &mut [P]))| {
        let mut refused = None;
        for (index, (bytes, point)) in bytes.chunks_exact(P::BYTES).zip(points).enumerate() {
            match P::decode(bytes) {
                Ok(decoded) => *point = decoded,
                Err(what) => {
                    refused = Some((task * TASK_POINTS + index, what));
                    break;
                }
            }
        }
        refused
    };
    tasks.enumerate().filter_map(decode_task).min_by_key(|(index, _)| *index)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use blst::blst_p1_affine;
    use blstrs::{G1Affine, G2Affine};
    use group::prime::PrimeCurveAffine;

    use super::*;
    use crate::groth16::srs_file::writer::encode_vk;

    /// A file of generators: one input, `num_points` in each query.
    fn file(num_points: u32) -> Vec<u8> {
        let (g1, g2) = (G1Affine::generator(), G2Affine::generator());
        let vk = VerifyingKey {
            alpha_g1: g1,
            beta_g1: g1,
            beta_g2: g2,
            gamma_g2: g2,
            delta_g1: g1,
            delta_g2: g2,
            ic: vec![g1],
        };
        let mut bytes = encode_vk(&vk);
        for (_, point_bytes) in &layout::SECTIONS[1..] {
            let point = match *point_bytes {
                layout::G1_BYTES => g1.to_uncompressed().to_vec(),
                _ => g2.to_uncompressed().to_vec(),
            };
            bytes.extend(num_points.to_be_bytes());
            bytes.extend(point.repeat(num_points as usize));
        }
        bytes
    }

    #[test]
    fn sections_longer_than_a_chunk_come_back_whole_and_in_order() {
        let num_points = CHUNK_BYTES as u32 / 96 + 700;
        let mut bytes = file(num_points);
        let reached = std::sync::atomic::AtomicU64::new(0);
        let progress = |done, _| reached.store(done, std::sync::atomic::Ordering::Relaxed);
        let reader = SrsReader::new(Cursor::new(&bytes), bytes.len() as u64, Path::new("test"));
        let (srs, digest) = reader.read(&progress, &|| false).expect("the file is right");
        let queries = [&srs.h, &srs.l, &srs.a, &srs.b_g1];
        assert!(queries.into_iter().all(|query| *query == vec![srs.h[0]; num_points as usize]));
        assert_eq!(srs.h[0], blst_p1_affine::from_affine(&G1Affine::generator()));
        assert_eq!(srs.b_g2.len(), num_points as usize);
        assert_eq!(reached.into_inner(), bytes.len() as u64);
        assert_eq!(digest, <[u8; 32]>::from(Sha256::digest(&bytes)));

        // Two damaged points in one chunk: the first is named.
        let h = HEAD_BYTES as usize + 4 + 96 + 4;
        for index in [num_points as usize - 3, num_points as usize - 600] {
            bytes[h + index * 96 + 95] ^= 1;
        }
        let reader = SrsReader::new(Cursor::new(&bytes), bytes.len() as u64, Path::new("test"));
        let error = reader.read(&|_, _| (), &|| false).expect_err("two points are damaged");
        assert!(
            matches!(error, SrsError::Point { section: "h", index, .. } if index == u64::from(num_points) - 600),
            "{error}"
        );
    }

    #[test]
    fn reading_stops_where_it_is_when_nobody_wants_it_any_more() {
        let bytes = file(CHUNK_BYTES as u32 / 96 + 700);
        let reached = std::sync::atomic::AtomicU64::new(0);
        let progress = |done, _| reached.store(done, std::sync::atomic::Ordering::Relaxed);
        let is_stopped = || reached.load(std::sync::atomic::Ordering::Relaxed) > CHUNK_BYTES;
        let reader = SrsReader::new(Cursor::new(&bytes), bytes.len() as u64, Path::new("test"));
        let error = reader.read(&progress, &is_stopped).expect_err("it was stopped");
        assert!(matches!(error, SrsError::Stopped { .. }), "{error}");
        assert!(reached.into_inner() < 2 * CHUNK_BYTES, "not another chunk was decoded");
    }

    #[test]
    fn a_file_that_shrinks_while_it_is_read_is_an_error() {
        let bytes = file(100);
        let shorter = &bytes[..bytes.len() - 1000];
        let reader = SrsReader::new(Cursor::new(shorter), bytes.len() as u64, Path::new("test"));
        let error = reader.read(&|_, _| (), &|| false).expect_err("the last points are missing");
        assert!(error.to_string().contains("changed while it was read"), "{error}");
    }
}
