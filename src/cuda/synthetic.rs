//! Floor 3 for `kernels/synthetic.cu`: scalars and points for measurements, made on the device from a seed. The host
//! can recompute each from its index, which is how results are checked. Not for proofs: nothing here is random.

use blst::{blst_fr, blst_p1_affine, blst_p2_affine};
use blstrs::{G1Affine, G2Affine, Scalar};
use ff::Field;
use group::prime::PrimeCurveAffine;
use group::Curve;

use super::{Arguments, Context, CudaError, DeviceBuffer, DeviceData, Function, LaunchShape, Module};
use super::{Reservation, Stream};

/// Inputs without pattern. The same arithmetic as `kernels/math/synthetic.cuh`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyntheticSource {
    pub seed: u64,
    /// Of 1024 scalars about so many are 0 or 1, half of them each.
    pub bits_of_1024: u32,
}

impl SyntheticSource {
    /// Scalars none of which is meant to be a bit.
    pub fn uniform(seed: u64) -> Self {
        Self { seed, bits_of_1024: 0 }
    }

    fn word(self, index: usize, word: u64) -> u64 {
        let x = self.seed.wrapping_add(8 * index as u64 + word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// Scalar `index`.
    pub fn scalar(self, index: usize) -> Scalar {
        let kind = self.word(index, 4);
        if (kind & 1023) < u64::from(self.bits_of_1024) {
            return if kind >> 63 == 1 { Scalar::ONE } else { Scalar::ZERO };
        }
        // Below 2^252, hence below r.
        let words = [self.word(index, 0), self.word(index, 1), self.word(index, 2), self.word(index, 3) >> 4];
        Scalar::from(blst_fr { l: words })
    }

    /// Point `index` is the group's generator times this.
    pub fn logarithm(self, index: usize) -> u64 {
        self.word(index, 0)
    }
}

/// Windows of 8 bits of a 64-bit logarithm, and the digits of each.
const NUM_WINDOWS: usize = 8;
const NUM_DIGITS: usize = 256;
const SCALAR_THREADS: u32 = 256;
const POINT_THREADS: u32 = 128;

/// The generator's multiples `d 2^(8 j)`, `j` by `j`: what the kernels build points from.
pub fn generator_multiples<C: PrimeCurveAffine>() -> Vec<C>
where
    C::Curve: Curve<AffineRepr = C>,
{
    let mut multiples = Vec::with_capacity(NUM_WINDOWS * NUM_DIGITS);
    let mut base = C::generator().to_curve();
    for _ in 0..NUM_WINDOWS {
        let mut multiple = C::identity().to_curve();
        for _ in 0..NUM_DIGITS {
            multiples.push(multiple);
            multiple += base;
        }
        base = multiple;
    }
    let mut affine = vec![C::identity(); multiples.len()];
    C::Curve::batch_normalize(&multiples, &mut affine);
    affine
}

/// The generators of inputs in a context.
pub struct SyntheticKernels {
    scalars: Function,
    points_g1: Function,
    points_g2: Function,
}

impl SyntheticKernels {
    /// Loads the kernels. Blocks.
    ///
    /// # Errors
    /// [`CudaError::NoKernels`], or the driver's failure.
    pub fn load(context: &Context) -> Result<Self, CudaError> {
        let module = Module::load(context, "synthetic")?;
        Ok(Self {
            scalars: module.function(c"synthetic_scalars")?,
            points_g1: module.function(c"synthetic_points_g1")?,
            points_g2: module.function(c"synthetic_points_g2")?,
        })
    }

    /// `num_scalars` scalars in Montgomery form. Does not wait.
    ///
    /// # Errors
    /// [`CudaError::Shape`] for 2^32 and more; [`CudaError::OverReservation`], or the driver's failure.
    pub fn scalars(
        &self,
        reservation: &Reservation,
        stream: &Stream,
        source: SyntheticSource,
        num_scalars: usize,
    ) -> Result<DeviceBuffer<blst_fr>, CudaError> {
        let count = count_of("scalars to make", num_scalars)?;
        let out = DeviceBuffer::new(reservation, stream, num_scalars)?;
        let arguments = Arguments::new().buffer(&out).u64(source.seed).u32(source.bits_of_1024).u32(count);
        let shape = LaunchShape::for_elements(count, SCALAR_THREADS);
        // SAFETY: the kernel's arguments; it writes below `count`, the buffer's length.
        unsafe { self.scalars.launch(stream, shape, arguments) }?;
        Ok(out)
    }

    /// Points of G1, affine, with the source's logarithms. Waits for the upload of a table of 192 KiB.
    ///
    /// # Errors
    /// As [`scalars`](Self::scalars).
    pub fn g1_points(
        &self,
        reservation: &Reservation,
        stream: &Stream,
        source: SyntheticSource,
        num_points: usize,
    ) -> Result<DeviceBuffer<blst_p1_affine>, CudaError> {
        let table: Vec<blst_p1_affine> =
            generator_multiples::<G1Affine>().iter().map(|point| *point.as_ref()).collect();
        self.points(&self.points_g1, reservation, stream, source, &table, num_points)
    }

    /// Points of G2, likewise, from a table of 384 KiB.
    ///
    /// # Errors
    /// As [`scalars`](Self::scalars).
    pub fn g2_points(
        &self,
        reservation: &Reservation,
        stream: &Stream,
        source: SyntheticSource,
        num_points: usize,
    ) -> Result<DeviceBuffer<blst_p2_affine>, CudaError> {
        let table: Vec<blst_p2_affine> =
            generator_multiples::<G2Affine>().iter().map(|point| *point.as_ref()).collect();
        self.points(&self.points_g2, reservation, stream, source, &table, num_points)
    }

    fn points<P: DeviceData>(
        &self,
        function: &Function,
        reservation: &Reservation,
        stream: &Stream,
        source: SyntheticSource,
        table: &[P],
        num_points: usize,
    ) -> Result<DeviceBuffer<P>, CudaError> {
        let count = count_of("points to make", num_points)?;
        let table = DeviceBuffer::from_slice(reservation, stream, table)?;
        let out = DeviceBuffer::new(reservation, stream, num_points)?;
        let arguments = Arguments::new().buffer(&table).buffer(&out).u64(source.seed).u32(count);
        let shape = LaunchShape::for_elements(count, POINT_THREADS);
        // SAFETY: the kernel's arguments; the table has an entry for every digit of every window, and the kernel
        // writes below `count`, the buffer's length. The table is freed in the stream's order.
        unsafe { function.launch(stream, shape, arguments) }?;
        Ok(out)
    }
}

fn count_of(what: &'static str, count: usize) -> Result<u32, CudaError> {
    u32::try_from(count).map_err(|_| CudaError::Shape { what, needs: u32::MAX as usize, has: count })
}
