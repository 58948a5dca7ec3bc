//! Row values of recorded circuits, from a packed witness and a shape that are on the device.

use std::error::Error;

use blst::blst_fr;
use blstrs::Scalar;
use cuzk::circuits::CircuitSpec;
use cuzk::cuda::spmv::{DeviceShape, DeviceWitness, RowChecker, RowSample, SpmvKernels};
use cuzk::cuda::{CudaError, DeviceBuffer, Priority, Reservation, Stream, SyntheticSource};
use cuzk::groth16::shape::TILE_ROWS;
use cuzk::groth16::{Matrix, PackedWitness, R1csShape};
use ff::Field;
use rayon::prelude::*;

use crate::check::expect_equal;
use crate::kernels::Bench;
use crate::report::{Row, Work};

/// Of an H200: what its memory gives at most.
const BYTES_PER_MS: f64 = 4.8e9;
const SOURCE: SyntheticSource = SyntheticSource { seed: 0x7370_6d76, bits_of_1024: 0 };
const FR_BYTES: usize = size_of::<blst_fr>();

pub fn measure(bench: &Bench) -> Result<Vec<Row>, Box<dyn Error>> {
    let circuits: &[&str] =
        if bench.is_quick { &["winning-2k"] } else { &["porep-2k", "snap-2k", "porep-32g"] };
    let mut rows = Vec::new();
    for circuit in circuits {
        eprintln!("rows of {circuit}: recording its shape");
        let spec = CircuitSpec::by_id(circuit).ok_or_else(|| format!("no circuit {circuit}"))?;
        rows.extend(measure_circuit(bench, circuit, &spec.record_shape()?)?);
    }
    Ok(rows)
}

/// Any values: which they are makes no difference to the device.
fn any_witness(shape: &R1csShape) -> PackedWitness {
    let dense = shape.classes().dense();
    let word = |index: usize| blst_fr::from(SOURCE.scalar(index)).l[0];
    let mut bits: Vec<u64> =
        dense.words().par_iter().enumerate().map(|(index, dense)| word(index) & !dense).collect();
    if let Some(last) = bits.last_mut() {
        *last &= u64::MAX >> (dense.words().len() * 64 - dense.len());
    }
    let mut inputs: Vec<Scalar> = (0..shape.num_inputs()).map(|index| SOURCE.scalar(index)).collect();
    inputs[0] = Scalar::ONE;
    let dense = (0..dense.num_ones()).into_par_iter().map(|index| SOURCE.scalar(index)).collect();
    PackedWitness { inputs, bits, dense }
}

struct OnDevice {
    shape: DeviceShape,
    bits: DeviceBuffer<u64>,
    dense: DeviceBuffer<blst_fr>,
    values: DeviceBuffer<blst_fr>,
    a: DeviceBuffer<blst_fr>,
    b: DeviceBuffer<blst_fr>,
}

impl OnDevice {
    fn new(
        reservation: &Reservation,
        stream: &Stream,
        shape: &R1csShape,
        witness: &PackedWitness,
    ) -> Result<Self, CudaError> {
        let raw = |scalars: &[Scalar]| -> Vec<blst_fr> { scalars.par_iter().map(|&s| s.into()).collect() };
        // All variables, not the inputs alone: the expansion overwrites what is behind them.
        let mut values = raw(&witness.inputs);
        values.resize(shape.num_inputs() + shape.num_aux(), blst_fr::default());
        Ok(Self {
            shape: DeviceShape::copied(reservation, stream, shape)?,
            bits: DeviceBuffer::from_slice(reservation, stream, &witness.bits)?,
            dense: DeviceBuffer::from_slice(reservation, stream, &raw(&witness.dense))?,
            values: DeviceBuffer::from_slice(reservation, stream, &values)?,
            a: DeviceBuffer::new(reservation, stream, 1 << shape.domain_log2())?,
            b: DeviceBuffer::new(reservation, stream, 1 << shape.domain_log2())?,
        })
    }

    fn witness(&self) -> DeviceWitness<'_> {
        DeviceWitness { bits: &self.bits, values: &self.values }
    }

    fn rows(&self) -> [&DeviceBuffer<blst_fr>; 2] {
        [&self.a, &self.b]
    }
}

/// Every row is compared with the host's.
fn measure_circuit(bench: &Bench, circuit: &str, shape: &R1csShape) -> Result<Vec<Row>, Box<dyn Error>> {
    let kernels = SpmvKernels::load(&bench.context)?;
    let stream = Stream::new(&bench.context, Priority::Normal)?;
    let reservation = bench.reservation();
    let witness = any_witness(shape);
    let on_device = OnDevice::new(&reservation, &stream, shape, &witness)?;
    let OnDevice { shape: image, dense, .. } = &on_device;
    let packed = on_device.witness();
    let mut checker = RowChecker::new(&stream)?;
    let sample = RowSample::of(shape.num_rows(), 1);
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    for repeat in 0..=bench.repeats {
        let expanded = bench.time(&stream, || kernels.expand(&stream, image, &packed, dense))?;
        let made = bench.time(&stream, || kernels.rows(&stream, image, &packed, on_device.rows()))?;
        let mut verdict = None;
        let checked = bench.time(&stream, || {
            verdict = Some(checker.check(&kernels, image, &packed, on_device.rows(), sample)?);
            Ok(())
        })?;
        checker.take(verdict.expect("set when it succeeded"))?;
        // The first ones find cold caches.
        if repeat > 0 {
            times.iter_mut().zip([expanded, made, checked]).for_each(|(times, time)| times.push(time));
        }
    }
    check_rows(circuit, shape, &witness, &on_device)?;

    let (num_rows, num_aux) = (shape.num_rows() as f64, shape.num_aux() as f64);
    let packed_bytes = witness.num_bytes() as f64;
    let shape_bytes = shape.image_layout().num_bytes() as f64;
    let row_bytes = FR_BYTES as f64;
    let share = 1.0 / f64::from(sample.every);
    // What has to cross the memory's bus at least: entries, bits and coefficients come out of caches.
    let bytes = [
        packed_bytes + row_bytes * num_aux,
        shape_bytes + packed_bytes + 2.0 * row_bytes * num_rows,
        share * (shape_bytes + 2.0 * row_bytes * num_rows),
    ];
    let names = ["expand a witness", "rows of A and B", "check of rows"];
    let counts = [(num_aux, "value"), (2.0 * num_rows, "row"), (share * num_rows, "row")];
    let registers = kernels.rows_registers()?;
    let rows = names.into_iter().zip(&times).zip(bytes).zip(counts);
    Ok(rows
        .map(|(((name, times), bytes), (operations, unit))| {
            let work = Work { operations, unit, wide_each: 0.0 };
            let row = Row::new(name, circuit, times, &work, bench.wide_per_second);
            let row = row.floor_ms(bytes / BYTES_PER_MS).peak_vram_bytes(reservation.peak_bytes());
            if name.starts_with("rows") {
                row.registers(registers.0, registers.1)
            } else {
                row
            }
        })
        .collect())
}

fn check_rows(
    circuit: &str,
    shape: &R1csShape,
    witness: &PackedWitness,
    on_device: &OnDevice,
) -> Result<(), Box<dyn Error>> {
    for (matrix, rows) in [Matrix::A, Matrix::B].into_iter().zip(on_device.rows()) {
        let made = rows.read()?;
        let expected = shape.evaluate(matrix, witness)?;
        let wrong =
            (0..expected.len()).into_par_iter().find_first(|&row| Scalar::from(made[row]) != expected[row]);
        let what = format!("{matrix:?} of {circuit}, {} tiles", expected.len().div_ceil(TILE_ROWS));
        expect_equal(&format!("the first row that differs, {what}"), &wrong, &None)?;
    }
    Ok(())
}
