//! Row values made on the first GPU against the host's evaluation. Needs a GPU and kernels: a missing one fails, it does
//! not skip. `CUZK_GPU_LARGE=1` adds the recorded circuits of 8 MiB.

#[path = "common/spmv_cases.rs"]
mod spmv_cases;
#[path = "common/synthetic.rs"]
mod synthetic;

use std::sync::Arc;

use blst::blst_fr;
use blstrs::Scalar;
use cuzk::backend::Stage;
use cuzk::circuits::CircuitSpec;
use cuzk::cuda::spmv::{DeviceShape, DeviceWitness, RowChecker, RowSample, SpmvKernels};
use cuzk::cuda::{devices, Context, CudaError, DeviceBuffer, Priority, Reservation, Stream};
use cuzk::error::SynthesisError;
use cuzk::groth16::shape::TILE_ROWS;
use cuzk::groth16::{Matrix, PackedWitness, R1csShape};
use cuzk::policy::plan::{plan_with_resident, Evaluation, QuerySet, ShapeSummary, SrsSummary};
use ff::Field;
use rayon::prelude::*;
use synthetic::{Synthetic, Values};

struct Gpu {
    context: Context,
    stream: Stream,
    kernels: SpmvKernels,
}

impl Gpu {
    fn first() -> Self {
        let devices = devices().expect("this test needs a CUDA driver");
        let context = Context::new(devices.first().expect("this test needs a GPU")).unwrap();
        let stream = Stream::new(&context, Priority::Normal).unwrap();
        let kernels = SpmvKernels::load(&context).unwrap();
        Self { context, stream, kernels }
    }
}

fn to_raw(scalars: &[Scalar]) -> Vec<blst_fr> {
    scalars.iter().map(|&scalar| scalar.into()).collect()
}

fn assert_same(what: &str, made: &[blst_fr], expected: &[Scalar]) {
    assert_eq!(made.len(), expected.len(), "{what}");
    let wrong = (0..made.len()).into_par_iter().find_first(|&i| Scalar::from(made[i]) != expected[i]);
    assert_eq!(wrong, None, "{what}: the first place that differs");
}

/// A shape and one of its witnesses on the device, and rows of the domain's size.
struct OnDevice {
    shape: DeviceShape,
    bits: DeviceBuffer<u64>,
    dense: DeviceBuffer<blst_fr>,
    /// A proof has them beside the values too, which it makes anew of what is packed.
    _inputs: DeviceBuffer<blst_fr>,
    values: DeviceBuffer<blst_fr>,
    rows: [DeviceBuffer<blst_fr>; 2],
}

/// What rows hold before: no canonical value.
const UNTOUCHED: blst_fr = blst_fr { l: [u64::MAX; 4] };

impl OnDevice {
    /// Everything copied, nothing launched.
    fn new(gpu: &Gpu, reservation: &Reservation, shape: &R1csShape, witness: &PackedWitness) -> Self {
        let Gpu { stream, .. } = gpu;
        let scalars = |values: &[blst_fr]| DeviceBuffer::from_slice(reservation, stream, values).unwrap();
        let mut values = vec![UNTOUCHED; shape.num_inputs() + shape.num_aux()];
        values[..shape.num_inputs()].copy_from_slice(&to_raw(&witness.inputs));
        let rows = [(); 2].map(|()| scalars(&vec![UNTOUCHED; 1 << shape.domain_log2()]));
        Self {
            shape: DeviceShape::copied(reservation, stream, shape).unwrap(),
            bits: DeviceBuffer::from_slice(reservation, stream, &witness.bits).unwrap(),
            dense: scalars(&to_raw(&witness.dense)),
            _inputs: scalars(&to_raw(&witness.inputs)),
            values: scalars(&values),
            rows,
        }
    }

    fn witness(&self) -> DeviceWitness<'_> {
        DeviceWitness { bits: &self.bits, values: &self.values }
    }

    fn rows(&self) -> [&DeviceBuffer<blst_fr>; 2] {
        self.rows.each_ref()
    }

    fn evaluate(&self, gpu: &Gpu) {
        gpu.kernels.expand(&gpu.stream, &self.shape, &self.witness(), &self.dense).unwrap();
        gpu.kernels.rows(&gpu.stream, &self.shape, &self.witness(), self.rows()).unwrap();
    }

    fn first_bad(&self, gpu: &Gpu, checker: &mut RowChecker, sample: RowSample) -> Option<usize> {
        let verdict = checker.check(&gpu.kernels, &self.shape, &self.witness(), self.rows(), sample);
        checker.take(verdict.unwrap()).unwrap()
    }
}

/// Values, rows and the check of all rows, for a witness that satisfies nothing; in the bytes of a plan and no more.
fn check(gpu: &Gpu, what: &str, shape: &R1csShape) {
    let witness = spmv_cases::any_witness(shape, shape.num_rows() as u64);
    let summary = ShapeSummary::of(shape);
    let srs = SrsSummary::new([1; 5]);
    let plan = plan_with_resident(&summary, &srs, QuerySet::SHAPE, 1 << 40).expect("there is room");
    assert_eq!(plan.evaluation, Evaluation::Device);
    let bytes = plan.resident_bytes + plan.stage_bytes[Stage::Evaluate.index()];
    let reservation = Reservation::new(&gpu.context, bytes);
    let device = OnDevice::new(gpu, &reservation, shape, &witness);
    assert_eq!(reservation.used_bytes(), bytes, "{what}: what is planned is what is taken");
    device.evaluate(gpu);

    let unpacked = witness.unpack(shape.classes());
    let values = [unpacked.input_assignment, unpacked.aux_assignment].concat();
    assert_same(&format!("{what}: values"), &device.values.read().unwrap(), &values);
    let [a, b, c] = [Matrix::A, Matrix::B, Matrix::C].map(|matrix| shape.evaluate(matrix, &witness).unwrap());
    for (name, made, expected) in [("a", &device.rows[0], &a), ("b", &device.rows[1], &b)] {
        let made = made.read().unwrap();
        let (made, beyond) = made.split_at(shape.num_rows());
        assert_same(&format!("{what}: {name}"), made, expected);
        assert!(beyond.iter().all(|value| *value == UNTOUCHED), "{what}: {name} beyond the last row");
    }
    let mut checker = RowChecker::new(&gpu.stream).unwrap();
    let first_bad = (0..a.len()).into_par_iter().find_first(|&row| a[row] * b[row] != c[row]);
    assert_eq!(device.first_bad(gpu, &mut checker, RowSample { every: 1, seed: 3 }), first_bad, "{what}");
}

#[test]
fn every_kind_of_row_is_the_hosts() {
    let gpu = Gpu::first();
    for (name, circuit) in spmv_cases::circuits() {
        check(&gpu, &name, &R1csShape::record(circuit).unwrap());
    }
}

#[test]
fn circuits_without_repetition_and_with_many_coefficients_are_the_hosts() {
    let gpu = Gpu::first();
    check(&gpu, "many coefficients", &R1csShape::record(spmv_cases::many_coefficients()).unwrap());
    for num_constraints in [1, 2, 255, 256, 257, 5000, 100_000] {
        for values in [Values::Bits, Values::Random] {
            let shape = R1csShape::record(Synthetic::new(num_constraints, values)).unwrap();
            check(&gpu, &format!("{num_constraints} {values:?}"), &shape);
        }
    }
}

#[test]
fn recorded_circuits_are_the_hosts() {
    let gpu = Gpu::first();
    let is_large = std::env::var_os("CUZK_GPU_LARGE").is_some();
    let small = ["wpost-2k", "winning-2k", "snap-2k", "porep-2k"];
    let large: &[&str] = if is_large { &["porep-8m", "snap-8m"] } else { &[] };
    for circuit in small.iter().chain(large) {
        check(&gpu, circuit, &CircuitSpec::by_id(circuit).unwrap().record_shape().unwrap());
    }
}

#[test]
fn a_sample_passes_a_sound_witness_and_names_broken_rows_alone() {
    let gpu = Gpu::first();
    let circuit = Synthetic::new(40_000, Values::Bits);
    let shape = R1csShape::record(circuit.clone()).unwrap();
    let sound = PackedWitness::synthesize(circuit, &shape).unwrap();
    let mut broken = sound.clone();
    let middle = broken.dense.len() / 2;
    broken.dense[middle] += Scalar::ONE;
    let Err(SynthesisError::Unsatisfied { index, .. }) = shape.check_satisfied(&broken) else {
        panic!("a constraint is broken")
    };
    let reservation = Reservation::new(&gpu.context, u64::MAX);
    let mut checker = RowChecker::new(&gpu.stream).unwrap();
    let mut named = |witness: &PackedWitness, every| -> Vec<Option<usize>> {
        let device = OnDevice::new(&gpu, &reservation, &shape, witness);
        device.evaluate(&gpu);
        (0..60).map(|seed| device.first_bad(&gpu, &mut checker, RowSample { every, seed })).collect()
    };
    for every in [1, 7, 16, 100_000] {
        assert!(named(&sound, every).iter().all(Option::is_none), "one tile in {every}");
    }
    assert!(named(&broken, 1).iter().all(|row| *row == Some(index)));
    let sampled = named(&broken, 5);
    assert!(sampled.contains(&Some(index)), "{sampled:?}");
    assert!(sampled.into_iter().flatten().all(|row| shape.check_row(&broken, row).is_err()));
    // The first tile and the last are found by some seed.
    assert!(shape.num_rows() > 100 * TILE_ROWS);
}

#[test]
fn lengths_that_do_not_fit_are_refused_before_anything_is_launched() {
    let gpu = Gpu::first();
    let shape = Arc::new(R1csShape::record(Synthetic::new(500, Values::Bits)).unwrap());
    let witness = spmv_cases::any_witness(&shape, 1);
    let reservation = Reservation::new(&gpu.context, u64::MAX);
    let device = OnDevice::new(&gpu, &reservation, &shape, &witness);
    let short_rows = DeviceBuffer::new(&reservation, &gpu.stream, shape.num_rows() - 1).unwrap();
    let short_bits = DeviceBuffer::new(&reservation, &gpu.stream, witness.bits.len() - 1).unwrap();
    let [a, _] = device.rows();
    let refused = |done: Result<(), CudaError>| matches!(done, Err(CudaError::Shape { .. }));
    let kernels = &gpu.kernels;
    assert!(refused(kernels.rows(&gpu.stream, &device.shape, &device.witness(), [a, &short_rows])));
    let short = DeviceWitness { bits: &short_bits, values: &device.values };
    assert!(refused(kernels.rows(&gpu.stream, &device.shape, &short, device.rows())));
    assert!(refused(kernels.expand(&gpu.stream, &device.shape, &short, &device.dense)));
    assert!(refused(kernels.expand(&gpu.stream, &device.shape, &device.witness(), a)));
}
