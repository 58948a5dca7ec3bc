//! Floor 3 for `kernels/spmv.cu`: row values of a packed witness, from a shape that lies on the device.

use std::rc::Rc;

use blst::blst_fr;

use super::memory::Pending;
use super::{
    Arguments, Context, CudaError, DeviceBuffer, DeviceSlice, Function, LaunchShape, Module, PinnedBuffer,
    Reservation, Stream,
};
use crate::groth16::shape::{ImageLayout, Table, TILE_ROWS};
use crate::groth16::R1csShape;

const EXPAND_THREADS: u32 = 256;
/// What the device leaves where every row that it looked at holds.
const NO_ROW: u32 = u32::MAX;

/// A shape's image on a device. Clones share its memory.
#[derive(Clone)]
pub struct DeviceShape {
    image: Rc<DeviceBuffer<u8>>,
    layout: ImageLayout,
    num_rows: usize,
    num_inputs: usize,
    num_aux: usize,
    num_dense: usize,
}

impl DeviceShape {
    /// Room for the shape's image, which is to be copied there before anything is launched.
    ///
    /// # Errors
    /// As [`DeviceBuffer::new`].
    pub fn new(reservation: &Reservation, stream: &Stream, shape: &R1csShape) -> Result<Self, CudaError> {
        let layout = shape.image_layout();
        let image = DeviceBuffer::new(reservation, stream, layout.num_bytes())?;
        Ok(Self::of(image, layout, shape))
    }

    /// The shape's image, copied. Blocks.
    ///
    /// # Errors
    /// As [`DeviceBuffer::from_slice`].
    pub fn copied(reservation: &Reservation, stream: &Stream, shape: &R1csShape) -> Result<Self, CudaError> {
        let layout = shape.image_layout();
        let mut bytes = vec![0; layout.num_bytes()];
        shape.fill_image(&layout, 0, &mut bytes);
        let image = DeviceBuffer::from_slice(reservation, stream, &bytes)?;
        Ok(Self::of(image, layout, shape))
    }

    fn of(image: DeviceBuffer<u8>, layout: ImageLayout, shape: &R1csShape) -> Self {
        Self {
            image: Rc::new(image),
            layout,
            num_rows: shape.num_rows(),
            num_inputs: shape.num_inputs(),
            num_aux: shape.num_aux(),
            num_dense: shape.classes().num_dense(),
        }
    }

    /// The whole image, as [`R1csShape::fill_image`] makes it.
    pub(super) fn image(&self) -> &Rc<DeviceBuffer<u8>> {
        &self.image
    }

    pub fn num_rows(&self) -> usize {
        self.num_rows
    }

    fn num_tiles(&self) -> u32 {
        // There are 2^31 rows at most.
        self.num_rows.div_ceil(TILE_ROWS) as u32
    }

    fn table(&self, table: Table) -> Result<DeviceSlice<'_, u8>, CudaError> {
        let range = self.layout.range(table);
        self.image.part(range.start, range.len())
    }
}

/// A packed witness on a device.
pub struct DeviceWitness<'w> {
    /// `[ceil(num_aux / 64)]`
    pub bits: &'w DeviceBuffer<u64>,
    /// Every variable as a scalar, inputs first: `[num_inputs + num_aux]`.
    pub values: &'w DeviceBuffer<blst_fr>,
}

/// Which rows are checked: one tile of [`TILE_ROWS`] in every `every`, drawn from the seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowSample {
    /// At least 1, which is all of them.
    pub every: u32,
    pub seed: u64,
}

impl RowSample {
    /// Tiles up to which all are looked at: that takes microseconds.
    const ALL_TILES: usize = 256;
    /// Of larger circuits one in so many: half a millisecond of a PoRep of 32 GiB.
    const EVERY: u32 = 16;

    /// How many rows of a circuit of `num_rows` are looked at in production.
    pub fn of(num_rows: usize, seed: u64) -> Self {
        let is_small = num_rows.div_ceil(TILE_ROWS) <= Self::ALL_TILES;
        Self { every: if is_small { 1 } else { Self::EVERY }, seed }
    }
}

/// The kernels of a context.
pub struct SpmvKernels {
    expand: Function,
    rows: Function,
    check: Function,
}

impl SpmvKernels {
    /// Loads the kernels. Blocks.
    ///
    /// # Errors
    /// [`CudaError::NoKernels`], or the driver's failure.
    pub fn load(context: &Context) -> Result<Self, CudaError> {
        let module = Module::load(context, "spmv")?;
        Ok(Self {
            expand: module.function(c"spmv_expand")?,
            rows: module.function(c"spmv_rows")?,
            check: module.function(c"spmv_check")?,
        })
    }

    /// Registers and bytes of local memory of the kernel that computes rows.
    ///
    /// # Errors
    /// The driver's failure.
    pub fn rows_registers(&self) -> Result<(u32, u32), CudaError> {
        Ok((self.rows.num_registers()?, self.rows.local_bytes()?))
    }

    /// Enqueues making the aux variables' scalars of bits and dense values, behind the inputs in `witness.values`.
    ///
    /// # Errors
    /// [`CudaError::Shape`] unless all lengths are the shape's; otherwise the driver's failure.
    pub fn expand(
        &self,
        stream: &Stream,
        shape: &DeviceShape,
        witness: &DeviceWitness<'_>,
        dense: &DeviceBuffer<blst_fr>,
    ) -> Result<(), CudaError> {
        require_witness(shape, witness)?;
        require("dense values", shape.num_dense, dense.len())?;
        if shape.num_aux == 0 {
            return Ok(());
        }
        let (num_inputs, num_aux) = (shape.num_inputs as u32, shape.num_aux as u32);
        let arguments = Arguments::new()
            .buffer(witness.bits)
            .buffer(dense)
            .slice(shape.table(Table::DenseVariables)?)
            .slice(shape.table(Table::DenseRanks)?)
            .buffer(witness.values)
            .u32(num_inputs)
            .u32(num_aux);
        let launch = LaunchShape::for_elements(num_aux, EXPAND_THREADS);
        // SAFETY: the kernel's arguments; bits, values and dense have the shape's lengths (checked above), the tables
        // those of its image. Inputs and aux variables are below 2^31 each.
        unsafe { self.expand.launch(stream, launch, arguments) }
    }

    /// Enqueues `A·w` and `B·w` into the first rows of `a` and `b`. What lies beyond them is left as it is.
    ///
    /// # Errors
    /// [`CudaError::Shape`] if a length is not the shape's or there is no room; otherwise the driver's failure.
    pub fn rows(
        &self,
        stream: &Stream,
        shape: &DeviceShape,
        witness: &DeviceWitness<'_>,
        [a, b]: [&DeviceBuffer<blst_fr>; 2],
    ) -> Result<(), CudaError> {
        require_witness(shape, witness)?;
        require_rows(shape, [a, b])?;
        let arguments = shape_arguments(shape, witness)?.buffer(a).buffer(b);
        let launch = tiles(shape.num_tiles());
        // SAFETY: the kernel's arguments; the image is the shape's, whose indices are within their tables; the witness has
        // its lengths and `a` and `b` at least as many elements as there are rows (checked above).
        unsafe { self.rows.launch(stream, launch, arguments) }
    }

    /// Enqueues comparing `a·b` with `C·w` in a sample of the rows.
    ///
    /// # Errors
    /// As [`Self::rows`].
    ///
    /// # Panics
    /// If `sample.every` is 0.
    fn check(
        &self,
        stream: &Stream,
        shape: &DeviceShape,
        witness: &DeviceWitness<'_>,
        [a, b]: [&DeviceBuffer<blst_fr>; 2],
        (sample, first_bad): (RowSample, &DeviceBuffer<u32>),
    ) -> Result<(), CudaError> {
        require_witness(shape, witness)?;
        require_rows(shape, [a, b])?;
        require("rows that may be bad", 1, first_bad.len())?;
        let RowSample { every, seed } = sample;
        assert!(every > 0, "a sample of some rows");
        let arguments = shape_arguments(shape, witness)?.buffer(a).buffer(b);
        let arguments = arguments.u32(every).u64(seed).buffer(first_bad);
        let launch = tiles(shape.num_tiles().div_ceil(every));
        // SAFETY: as for `rows`; `first_bad` has one element, and a block looks at no tile beyond the last.
        unsafe { self.check.launch(stream, launch, arguments) }
    }
}

/// A block per tile; its threads are its rows.
fn tiles(num_tiles: u32) -> LaunchShape {
    LaunchShape { blocks: num_tiles.max(1), threads_per_block: TILE_ROWS as u32, shared_bytes: 0 }
}

/// What both kernels of rows begin with.
fn shape_arguments(shape: &DeviceShape, witness: &DeviceWitness<'_>) -> Result<Arguments, CudaError> {
    const TABLES: [Table; 9] = [
        Table::Places,
        Table::Patterns,
        Table::Coefficients,
        Table::SmallValues,
        Table::DenseVariables,
        Table::Runs,
        Table::Codes,
        Table::Ids,
        Table::Indices,
    ];
    let mut arguments = Arguments::new();
    for table in TABLES {
        arguments = arguments.slice(shape.table(table)?);
    }
    let arguments = arguments.buffer(witness.bits).buffer(witness.values);
    Ok(arguments.u32(shape.num_inputs as u32).u32(shape.num_rows as u32))
}

fn require_witness(shape: &DeviceShape, witness: &DeviceWitness<'_>) -> Result<(), CudaError> {
    require("words of bits", shape.num_aux.div_ceil(64), witness.bits.len())?;
    require("values of variables", shape.num_inputs + shape.num_aux, witness.values.len())
}

fn require_rows(shape: &DeviceShape, rows: [&DeviceBuffer<blst_fr>; 2]) -> Result<(), CudaError> {
    match rows.iter().find(|rows| rows.len() < shape.num_rows) {
        None => Ok(()),
        Some(rows) => {
            Err(CudaError::Shape { what: "room for row values", needs: shape.num_rows, has: rows.len() })
        }
    }
}

fn require(what: &'static str, needs: usize, has: usize) -> Result<(), CudaError> {
    if needs == has {
        Ok(())
    } else {
        Err(CudaError::Shape { what, needs, has })
    }
}

/// Checks rows on one stream, one partition at a time. Its four bytes of device memory are its own for good.
pub struct RowChecker {
    first_bad: DeviceBuffer<u32>,
    stream: Stream,
    reply: Option<PinnedBuffer<u32>>,
}

/// A verdict that is on its way.
pub struct RowVerdict {
    reply: Pending<u32>,
}

impl RowVerdict {
    /// Whether [`RowChecker::take`] would not wait.
    ///
    /// # Errors
    /// The first failure of the stream's work.
    pub fn is_done(&self) -> Result<bool, CudaError> {
        self.reply.is_done()
    }
}

impl RowChecker {
    /// # Errors
    /// The driver's failure.
    pub fn new(stream: &Stream) -> Result<Self, CudaError> {
        let reservation = Reservation::new(stream.context(), size_of::<u32>() as u64);
        let first_bad = DeviceBuffer::new(&reservation, stream, 1)?;
        Ok(Self { first_bad, stream: stream.clone(), reply: None })
    }

    /// Enqueues comparing `a·b` with `C·w` in a sample of the rows: `rows` as [`SpmvKernels::rows`] has made them.
    ///
    /// # Errors
    /// As [`SpmvKernels::rows`].
    ///
    /// # Panics
    /// If `sample.every` is 0.
    pub fn check(
        &mut self,
        kernels: &SpmvKernels,
        shape: &DeviceShape,
        witness: &DeviceWitness<'_>,
        rows: [&DeviceBuffer<blst_fr>; 2],
        sample: RowSample,
    ) -> Result<RowVerdict, CudaError> {
        self.first_bad.fill_bytes(0xff)?;
        kernels.check(&self.stream, shape, witness, rows, (sample, &self.first_bad))?;
        let reply = match self.reply.take() {
            Some(reply) => reply,
            None => PinnedBuffer::new(self.stream.context(), 1)?,
        };
        Ok(RowVerdict { reply: self.first_bad.read_pinned(reply)? })
    }

    /// The first row of the sample whose constraint does not hold. Waits for the device, unless it has passed the check.
    ///
    /// # Errors
    /// The first failure of the stream's work.
    pub fn take(&mut self, verdict: RowVerdict) -> Result<Option<usize>, CudaError> {
        let reply = verdict.reply.wait()?;
        let first_bad = reply[0];
        self.reply = Some(reply);
        Ok((first_bad != NO_ROW).then_some(first_bad as usize))
    }
}
