//! Parameters made on the first GPU against the host's and the recorded ones. Needs a GPU and kernels: a missing one fails,
//! it does not skip.

#[path = "common/synthetic.rs"]
mod synthetic;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use blst::{blst_fr, blst_p1_affine, blst_p2_affine};
use blstrs::{G1Projective, G2Projective, Scalar};
use cuzk::circuits::CircuitSpec;
use cuzk::cuda::fixed_base::{FixedBaseKernels, FixedBasePoint, FixedBaseTable};
use cuzk::cuda::generate::ParameterMaker;
use cuzk::cuda::{devices, Context, CudaError, DeviceBuffer, Priority, Reservation, Stream};
use cuzk::groth16::generate::{generate_params, generate_srs};
use cuzk::groth16::R1csShape;
use ff::Field;
use group::{Curve, Group};
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use sha2::{Digest, Sha256};
use synthetic::{Synthetic, Values};

fn rng() -> ChaCha20Rng {
    ChaCha20Rng::from_seed([9; 32])
}

#[test]
fn files_and_keys_in_memory_equal_the_hosts_at_every_size() {
    let maker = ParameterMaker::first().expect("this test needs a GPU");
    let dir = tempfile::tempdir().unwrap();
    let [params, vk] = ["circuit.params", "circuit.vk"].map(|name| dir.path().join(name));
    for num_constraints in [1, 2, 100, 1000, 20_000] {
        let shape = R1csShape::record(Synthetic::new(num_constraints, Values::Bits)).unwrap();
        let expected = generate_params(&shape, &mut rng(), &params, &vk, &|_, _| ()).unwrap();
        let last = AtomicU64::new(0);
        let progress = |done, total| {
            assert!(last.swap(done, Ordering::Relaxed) < done && done <= total);
        };
        let made = maker.write(&shape, &mut rng(), &params, &vk, &progress).unwrap();
        assert_eq!(made, expected, "{num_constraints} constraints");
        let bytes = std::fs::read(&params).unwrap();
        assert_eq!(made.params_sha256, <[u8; 32]>::from(Sha256::digest(&bytes)));

        let expected = generate_srs(&shape, &mut rng()).unwrap();
        let made = maker.in_memory(&shape, &mut rng(), &|_, _| ()).unwrap();
        assert_eq!(made.vk, expected.vk);
        assert!(made.h == expected.h && made.l == expected.l && made.a == expected.a);
        assert!(made.b_g1 == expected.b_g1 && made.b_g2 == expected.b_g2, "{num_constraints} constraints");
    }
}

/// Several chunks of every query from 2^22 constraints on: porep-2k.
#[test]
fn recorded_circuits_have_the_recorded_parameters() {
    let maker = ParameterMaker::first().expect("this test needs a GPU");
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/filecoin");
    for (circuit, folder) in [
        ("wpost-2k", "window-2k/full-partition"),
        ("winning-2k", "winning-2k/sector-1"),
        ("snap-2k", "snap-2k/sector-1"),
        ("porep-2k", "porep-2k/sector-1"),
    ] {
        let manifest = std::fs::read(data.join(folder).join("manifest.json")).unwrap();
        let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
        let spec = CircuitSpec::by_id(circuit).unwrap();
        let shape = spec.record_shape().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let [params, vk] = ["p", "vk"].map(|name| dir.path().join(name));
        let begun = Instant::now();
        let made = maker.write(&shape, &mut spec.test_params_rng(), &params, &vk, &|_, _| ()).unwrap();
        println!("{circuit}: {} B in {:.2?}", made.params_bytes, begun.elapsed());
        let expected = &manifest["groth16"];
        assert_eq!(expected["params_sha256"], hex::encode(made.params_sha256), "{circuit}");
        assert_eq!(expected["vk_sha256"], hex::encode(made.vk_sha256), "{circuit}");
    }
}

struct Gpu {
    stream: Stream,
    reservation: Reservation,
    kernels: FixedBaseKernels,
}

impl Gpu {
    fn first() -> Self {
        let devices = devices().expect("this test needs a CUDA driver");
        let context = Context::new(devices.first().expect("this test needs a GPU")).unwrap();
        let stream = Stream::new(&context, Priority::Normal).unwrap();
        let kernels = FixedBaseKernels::load(&context).unwrap();
        Self { stream, reservation: Reservation::new(&context, u64::MAX), kernels }
    }

    fn table<P: FixedBasePoint>(
        &self,
        tables: &[Vec<P>],
        bits: usize,
    ) -> Result<FixedBaseTable<P>, CudaError> {
        FixedBaseTable::copied(&self.reservation, &self.stream, tables, bits)
    }
}

/// Tables of `base` with windows of four bits.
fn tables<C, P>(base: C, raw: impl Fn(C) -> P) -> Vec<Vec<P>>
where
    C: Group,
{
    let mut window_base = base;
    (0..64)
        .map(|_| {
            let mut multiple = C::identity();
            let table = (0..8)
                .map(|_| {
                    multiple += window_base;
                    raw(multiple)
                })
                .collect();
            (0..4).for_each(|_| window_base = window_base.double());
            table
        })
        .collect()
}

fn raw_g1(point: G1Projective) -> blst_p1_affine {
    *point.to_affine().as_ref()
}

fn raw_g2(point: G2Projective) -> blst_p2_affine {
    *point.to_affine().as_ref()
}

#[test]
fn multiples_of_any_number_are_those_of_plain_multiplication() {
    let gpu = Gpu::first();
    let (g1, g2) = (G1Projective::random(&mut rng()), G2Projective::random(&mut rng()));
    let table_g1 = gpu.table(&tables(g1, raw_g1), 4).unwrap();
    let table_g2 = gpu.table(&tables(g2, raw_g2), 4).unwrap();
    for num_scalars in [1, 7, 8, 9, 1023, 1024, 1025, 3000] {
        let mut rng = rng();
        let mut scalars: Vec<Scalar> = (0..num_scalars).map(|_| Scalar::random(&mut rng)).collect();
        scalars[0] = Scalar::ZERO;
        scalars[num_scalars / 2] = -Scalar::ONE;
        let raw: Vec<blst_fr> = scalars.iter().map(|&scalar| scalar.into()).collect();
        let on_device = DeviceBuffer::from_slice(&gpu.reservation, &gpu.stream, &raw).unwrap();
        let Gpu { kernels, reservation, stream } = &gpu;
        let made = kernels.multiply(reservation, stream, &table_g1, &on_device).unwrap().read().unwrap();
        let expected: Vec<_> = scalars.iter().map(|scalar| raw_g1(g1 * scalar)).collect();
        assert!(made == expected, "{num_scalars} in G1");
        let made = kernels.multiply(reservation, stream, &table_g2, &on_device).unwrap().read().unwrap();
        let expected: Vec<_> = scalars.iter().map(|scalar| raw_g2(g2 * scalar)).collect();
        assert!(made == expected, "{num_scalars} in G2");
    }
}

#[test]
fn tables_that_do_not_hold_every_digit_are_refused() {
    let gpu = Gpu::first();
    let whole = tables(G1Projective::generator(), raw_g1);
    let refused = |tables: &[Vec<blst_p1_affine>], bits| {
        matches!(gpu.table(tables, bits), Err(CudaError::Shape { .. }))
    };
    assert!(gpu.table(&whole, 4).is_ok());
    assert!(refused(&whole, 5) && refused(&whole, 3) && refused(&whole, 0) && refused(&whole, 40));
    assert!(refused(&whole[..63], 4) && refused(&[], 4));
    let mut short = whole.clone();
    short[10].pop();
    assert!(refused(&short, 4));
}
