//! Test parameters made on a GPU: the bytes of [`crate::groth16::generate`], of full-size circuits too.
//!
//! The scalars are the host's (seconds of its cores for the largest circuits); the points are the device's, chunk by chunk:
//!
//! ```text
//! host      scalars of chunk i+2 ----------.          points of chunk i -> file or memory
//! device    chunk i+1: copy, multiples, their encoding, copy into pinned memory
//! ```

use std::collections::VecDeque;
use std::path::Path;

use blst::blst_fr;
use rand_core::RngCore;

use super::fixed_base::{FixedBaseKernels, FixedBasePoint, FixedBaseTable};
use super::memory::Pending;
use super::{
    devices, Context, CudaError, DeviceBuffer, DeviceData, DeviceInfo, PinnedBuffer, Priority, Reservation,
    Stream,
};
use crate::error::SrsError;
use crate::groth16::generate::{
    Chunks, FixedBase, Generated, Generator, PointMaker, PointMakers, PointProgress, Sink,
};
use crate::groth16::srs_file::RawPoint;
use crate::groth16::{R1csShape, Srs};

/// Bytes of points that are made at a time: enough for every multiprocessor, and two of them overlap.
const CHUNK_BYTES: usize = 96 << 20;
/// Chunks on the device while the host takes the one before.
const CHUNKS_AHEAD: usize = 2;

/// A GPU that makes parameters.
pub struct ParameterMaker {
    kernels: FixedBaseKernels,
    /// Chunks take turns.
    streams: [Stream; CHUNKS_AHEAD],
    /// Of the tables: were they of a chunks' stream, each chunk of the other one would wait for the copy of the one before.
    tables: Stream,
    reservation: Reservation,
}

impl ParameterMaker {
    /// The first visible GPU (`CUDA_VISIBLE_DEVICES` chooses). Blocks for half a second.
    ///
    /// # Errors
    /// [`CudaError::NoDriver`], [`CudaError::NoKernels`], [`CudaError::Host`] if no device is visible, or the driver's failure.
    pub fn first() -> Result<Self, CudaError> {
        let device = devices()?.into_iter().next();
        let device = device.ok_or_else(|| CudaError::Host("the CUDA driver shows no device".to_owned()))?;
        Self::open(&device)
    }

    /// # Errors
    /// As [`first`](Self::first).
    pub fn open(device: &DeviceInfo) -> Result<Self, CudaError> {
        let context = Context::new(device)?;
        let stream = || Stream::new(&context, Priority::Normal);
        Ok(Self {
            kernels: FixedBaseKernels::load(&context)?,
            streams: [stream()?, stream()?],
            tables: stream()?,
            reservation: Reservation::new(&context, u64::MAX),
        })
    }

    /// As [`crate::groth16::generate::generate_params`], the same bytes. PoRep of 32 GiB takes 25 GB of host memory for its
    /// scalars, and the time that 47 GB take to be written.
    ///
    /// # Errors
    /// As there; a device's failure is [`SrsError::Generate`].
    pub fn write(
        &self,
        shape: &R1csShape,
        rng: &mut impl RngCore,
        params_path: &Path,
        vk_path: &Path,
        progress: PointProgress<'_>,
    ) -> Result<Generated, SrsError> {
        let generator = Generator::new(shape, rng)?;
        let (mut g1, mut g2) = (self.points_of(&generator.g1)?, self.points_of(&generator.g2)?);
        generator.write(PointMakers { g1: &mut g1, g2: &mut g2 }, params_path, vk_path, progress)
    }

    /// The same key in host memory.
    ///
    /// # Errors
    /// [`SrsError::Generate`].
    pub fn in_memory(
        &self,
        shape: &R1csShape,
        rng: &mut impl RngCore,
        progress: PointProgress<'_>,
    ) -> Result<Srs, SrsError> {
        let generator = Generator::new(shape, rng)?;
        let (mut g1, mut g2) = (self.points_of(&generator.g1)?, self.points_of(&generator.g2)?);
        generator.in_memory(PointMakers { g1: &mut g1, g2: &mut g2 }, progress)
    }

    /// The same key, folded: its quotient by values, C in its points.
    ///
    /// # Errors
    /// [`SrsError::Generate`].
    pub fn folded_in_memory(
        &self,
        shape: &R1csShape,
        rng: &mut impl RngCore,
        progress: PointProgress<'_>,
    ) -> Result<Srs, SrsError> {
        let generator = Generator::new(shape, rng)?;
        let (mut g1, mut g2) = (self.points_of(&generator.g1)?, self.points_of(&generator.g2)?);
        let srs = generator.in_memory(PointMakers { g1: &mut g1, g2: &mut g2 }, progress)?;
        Ok(generator.fold(shape, &mut g1)?.apply(srs))
    }

    fn points_of<P: FixedBasePoint + RawPoint>(
        &self,
        base: &FixedBase<P>,
    ) -> Result<DevicePoints<'_, P>, SrsError> {
        let (tables, window_bits) = (base.tables(), base.window_bits());
        let table = FixedBaseTable::copied(&self.reservation, &self.tables, tables, window_bits);
        Ok(DevicePoints { maker: self, table: table.map_err(refused)? })
    }
}

fn refused(error: CudaError) -> SrsError {
    SrsError::Generate { what: error.to_string() }
}

/// Multiples of one base.
struct DevicePoints<'m, P: DeviceData> {
    maker: &'m ParameterMaker,
    table: FixedBaseTable<P>,
}

impl<P: FixedBasePoint> DevicePoints<'_, P> {
    /// Gives `sink` what `form` makes of each chunk's points, in order.
    fn make<T: DeviceData>(
        &self,
        chunks: Chunks<'_>,
        form: impl Fn(&Stream, DeviceBuffer<P>) -> Result<DeviceBuffer<T>, CudaError>,
        sink: &mut Sink<'_, T>,
    ) -> Result<(), SrsError> {
        let ParameterMaker { kernels, streams, reservation, .. } = self.maker;
        let mut pending: VecDeque<Pending<T>> = VecDeque::new();
        let mut idle: Vec<PinnedBuffer<T>> = Vec::new();
        for (index, scalars) in chunks.enumerate() {
            let stream = &streams[index % streams.len()];
            let begun = begin(stream, &mut idle, || {
                let scalars: Vec<blst_fr> = scalars.into_iter().map(blst_fr::from).collect();
                let scalars = DeviceBuffer::from_slice(reservation, stream, &scalars)?;
                form(stream, kernels.multiply(reservation, stream, &self.table, &scalars)?)
            });
            pending.push_back(begun.map_err(refused)?);
            if pending.len() > CHUNKS_AHEAD {
                take_first(&mut pending, &mut idle, sink)?;
            }
        }
        while !pending.is_empty() {
            take_first(&mut pending, &mut idle, sink)?;
        }
        Ok(())
    }
}

/// Puts a chunk and its way back into the stream.
fn begin<T: DeviceData>(
    stream: &Stream,
    idle: &mut Vec<PinnedBuffer<T>>,
    make: impl FnOnce() -> Result<DeviceBuffer<T>, CudaError>,
) -> Result<Pending<T>, CudaError> {
    let made = make()?;
    // All chunks of a query but the last have one length.
    let fitting = idle.iter().position(|buffer| buffer.len() == made.len());
    let to = match fitting {
        Some(index) => idle.swap_remove(index),
        None => PinnedBuffer::new(stream.context(), made.len())?,
    };
    made.read_pinned(to)
}

fn take_first<T: DeviceData>(
    pending: &mut VecDeque<Pending<T>>,
    idle: &mut Vec<PinnedBuffer<T>>,
    sink: &mut Sink<'_, T>,
) -> Result<(), SrsError> {
    let Some(first) = pending.pop_front() else { return Ok(()) };
    let made = first.wait().map_err(refused)?;
    sink(&made)?;
    idle.push(made);
    Ok(())
}

impl<P: FixedBasePoint + RawPoint> PointMaker<P> for DevicePoints<'_, P> {
    fn chunk_scalars(&self) -> usize {
        CHUNK_BYTES / P::BYTES
    }

    fn points(&mut self, chunks: Chunks<'_>, sink: &mut Sink<'_, P>) -> Result<(), SrsError> {
        self.make(chunks, |_, points| Ok(points), sink)
    }

    fn encoded(&mut self, chunks: Chunks<'_>, sink: &mut Sink<'_, u8>) -> Result<(), SrsError> {
        let ParameterMaker { kernels, reservation, .. } = self.maker;
        self.make(chunks, |stream, points| kernels.encode(reservation, stream, &points), sink)
    }
}
