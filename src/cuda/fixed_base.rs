//! Floor 3 for `kernels/fixed_base.cu`: many multiples of one point, and points as parameter files hold them.

use blst::{blst_fr, blst_p1_affine, blst_p2_affine};

use super::ntt::ordered_after;
use super::{
    Arguments, Context, CudaError, DeviceBuffer, DeviceData, Function, LaunchShape, Module, Reservation,
    Stream,
};

/// Bits of the scalar field's modulus.
const SCALAR_BITS: usize = 255;
const POINT_THREADS: u32 = 128;
const ENCODE_THREADS: u32 = 256;
/// A scalar's highest bits, and with them the last table's length, stay within a word.
const MAX_WINDOW_BITS: usize = 24;
/// Multiples of one thread, which share an inversion: `FIXED_BASE_POINTS` in the kernels.
const POINTS_PER_THREAD: usize = 8;
/// Bytes of a coordinate in the base field.
const COORDINATE_BYTES: usize = 48;

/// Affine points of a group.
pub trait FixedBasePoint: DeviceData + private::Kernels {}

impl FixedBasePoint for blst_p1_affine {}
impl FixedBasePoint for blst_p2_affine {}

mod private {
    use super::{blst_p1_affine, blst_p2_affine, FixedBaseKernels, Function};

    pub trait Kernels {
        /// Parameter files hold a coordinate's second half first.
        const IS_SWAPPED: bool;
        /// Elements of the base field in a coordinate.
        const FIELD_DEGREE: usize;
        fn multiples(kernels: &FixedBaseKernels) -> &Function;
    }

    impl Kernels for blst_p1_affine {
        const IS_SWAPPED: bool = false;
        const FIELD_DEGREE: usize = 1;
        fn multiples(kernels: &FixedBaseKernels) -> &Function {
            &kernels.g1
        }
    }

    impl Kernels for blst_p2_affine {
        const IS_SWAPPED: bool = true;
        const FIELD_DEGREE: usize = 2;
        fn multiples(kernels: &FixedBaseKernels) -> &Function {
            &kernels.g2
        }
    }
}

/// Tables of one base on a device, as [`crate::groth16::generate`] makes them.
pub struct FixedBaseTable<P: DeviceData> {
    points: DeviceBuffer<P>,
    window_bits: u32,
    num_windows: u32,
}

impl<P: FixedBasePoint> FixedBaseTable<P> {
    /// `tables`: one for each window of `window_bits`, lowest first, with `1 · 2^(wi) · base` … in affine form: half as many
    /// as the window has values, and in the last window, which has no sign, all that a scalar's highest bits can be. Waits for
    /// the copy.
    ///
    /// # Errors
    /// [`CudaError::Shape`] unless the windows hold a scalar and the tables have these lengths; otherwise as
    /// [`DeviceBuffer::from_slice`].
    pub fn copied(
        reservation: &Reservation,
        stream: &Stream,
        tables: &[Vec<P>],
        window_bits: usize,
    ) -> Result<Self, CudaError> {
        if !(2..=MAX_WINDOW_BITS).contains(&window_bits) {
            return Err(CudaError::Shape {
                what: "bits of a window",
                needs: MAX_WINDOW_BITS,
                has: window_bits,
            });
        }
        require("windows of a scalar", SCALAR_BITS.div_ceil(window_bits), tables.len())?;
        for (window, table) in tables.iter().enumerate() {
            let is_last = window + 1 == tables.len();
            let bits = if is_last { SCALAR_BITS - window * window_bits } else { window_bits - 1 };
            require("points of a window", 1 << bits, table.len())?;
        }
        let points = DeviceBuffer::from_slice(reservation, stream, &tables.concat())?;
        Ok(Self { points, window_bits: window_bits as u32, num_windows: tables.len() as u32 })
    }
}

fn require(what: &'static str, needs: usize, has: usize) -> Result<(), CudaError> {
    if needs == has {
        return Ok(());
    }
    Err(CudaError::Shape { what, needs, has })
}

/// The kernels of a context.
pub struct FixedBaseKernels {
    g1: Function,
    g2: Function,
    encode: Function,
}

impl FixedBaseKernels {
    /// Loads the kernels. Blocks.
    ///
    /// # Errors
    /// [`CudaError::NoKernels`], or the driver's failure.
    pub fn load(context: &Context) -> Result<Self, CudaError> {
        let module = Module::load(context, "fixed_base")?;
        Ok(Self {
            g1: module.function(c"fixed_base_g1")?,
            g2: module.function(c"fixed_base_g2")?,
            encode: module.function(c"fixed_base_encode")?,
        })
    }

    /// Enqueues `scalars[i] · base` for each (Montgomery form), affine; the identity for a scalar that is zero. Besides the
    /// result it takes 144 B of memory a point in G1 and 288 in G2 while it runs.
    ///
    /// # Errors
    /// [`CudaError::Shape`] for 2^31 scalars and more; [`CudaError::OverReservation`], or the driver's failure.
    pub fn multiply<P: FixedBasePoint>(
        &self,
        reservation: &Reservation,
        stream: &Stream,
        table: &FixedBaseTable<P>,
        scalars: &DeviceBuffer<blst_fr>,
    ) -> Result<DeviceBuffer<P>, CudaError> {
        let count = count_of("scalars to multiply by", scalars.len())?;
        let out = DeviceBuffer::<P>::new(reservation, stream, scalars.len())?;
        // Three coordinates a point.
        let scratch_bytes = 3 * COORDINATE_BYTES * P::FIELD_DEGREE * scalars.len();
        let scratch = DeviceBuffer::<u8>::new(reservation, stream, scratch_bytes)?;
        let arguments = Arguments::new()
            .buffer(&table.points)
            .buffer(scalars)
            .buffer(&scratch)
            .buffer(&out)
            .u32(table.window_bits)
            .u32(table.num_windows)
            .u32(count);
        let num_threads = scalars.len().div_ceil(POINTS_PER_THREAD) as u32;
        let shape = LaunchShape::for_elements(num_threads, POINT_THREADS);
        let table_lent = ordered_after(stream, &[&table.points])?;
        let scalars_lent = ordered_after(stream, &[scalars])?;
        // SAFETY: the kernel's arguments; the table has a point for every digit of every window (checked when it was
        // made), scratch and out have one element for each scalar. The scratch memory is freed in the stream's order, table and
        // scalars after it in their own.
        unsafe { P::multiples(self).launch(stream, shape, arguments) }?;
        table_lent.release(&[&table.points])?;
        scalars_lent.release(&[scalars])?;
        Ok(out)
    }

    /// Enqueues points as parameter files hold them, uncompressed: 96 B each in G1, 192 in G2. None may be the identity.
    ///
    /// # Errors
    /// As [`multiply`](Self::multiply).
    pub fn encode<P: FixedBasePoint>(
        &self,
        reservation: &Reservation,
        stream: &Stream,
        points: &DeviceBuffer<P>,
    ) -> Result<DeviceBuffer<u8>, CudaError> {
        let out = DeviceBuffer::<u8>::new(reservation, stream, points.size_bytes())?;
        let count = count_of("coordinates to encode", points.size_bytes() / COORDINATE_BYTES)?;
        let arguments = Arguments::new().buffer(points).buffer(&out).u32(P::IS_SWAPPED.into()).u32(count);
        let shape = LaunchShape::for_elements(count, ENCODE_THREADS);
        let lent = ordered_after(stream, &[points])?;
        // SAFETY: the kernel's arguments; it reads and writes below `count` coordinates, which both buffers have, an even
        // number where they are swapped.
        unsafe { self.encode.launch(stream, shape, arguments) }?;
        lent.release(&[points])?;
        Ok(out)
    }
}

fn count_of(what: &'static str, count: usize) -> Result<u32, CudaError> {
    let limit = i32::MAX as usize;
    if count > limit {
        return Err(CudaError::Shape { what, needs: limit, has: count });
    }
    Ok(count as u32)
}
