//! Generated parameters equal bellperson's, byte for byte.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bellpepper_core::{Circuit, ConstraintSystem, LinearCombination, SynthesisError, Variable};
use bellperson::groth16::generate_random_parameters;
use blstrs::{Bls12, Scalar};
use cuzk::circuits::catalogue::CircuitSpec;
use cuzk::error::SrsError;
use cuzk::groth16::generate::{generate_params, generate_srs};
use cuzk::groth16::srs_file::{read_counts, read_srs, read_vk, write_srs, ReadOptions};
use cuzk::groth16::{R1csShape, Srs};
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use sha2::{Digest, Sha256};

/// Products of neighbours, of a few sorts: variables in A alone, in B alone, in C alone, in several rows, with
/// coefficients other than one; some inputs in B.
#[derive(Clone, Copy)]
struct Products {
    num_products: usize,
    num_inputs: usize,
}

impl Circuit<Scalar> for Products {
    fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
        let no_value = || Err(SynthesisError::AssignmentMissing);
        let mut inputs = vec![];
        for index in 0..self.num_inputs {
            inputs.push(cs.alloc_input(|| format!("input {index}"), no_value)?);
        }
        let mut last = cs.alloc(|| "first", no_value)?;
        cs.enforce(|| "first row", |lc| lc + last, |lc| lc + CS::one(), |lc| lc + last);
        for index in 0..self.num_products {
            let product = cs.alloc(|| format!("product {index}"), no_value)?;
            let weighted = |lc: LinearCombination<Scalar>, variable: Variable| {
                lc + (Scalar::from(index as u64 + 2), variable)
            };
            let input = inputs.get(index).copied().unwrap_or(CS::one());
            match index % 3 {
                0 => cs.enforce(|| "a", |lc| lc + last, |lc| weighted(lc, input), |lc| lc + product),
                1 => cs.enforce(|| "b", |lc| lc - input, |lc| lc + last, |lc| weighted(lc, product)),
                _ => cs.enforce(|| "c", |lc| lc + last + product, |lc| lc + last - input, |lc| lc),
            }
            last = product;
        }
        Ok(())
    }
}

fn seed() -> ChaCha20Rng {
    ChaCha20Rng::from_seed([7; 32])
}

fn bellperson_bytes(circuit: Products) -> Vec<u8> {
    let params = generate_random_parameters::<Bls12, _, _>(circuit, &mut seed()).unwrap();
    let mut bytes = vec![];
    params.write(&mut bytes).unwrap();
    bytes
}

fn assert_equal(left: &Srs, right: &Srs) {
    assert_eq!(left.vk, right.vk);
    assert!(left.h == right.h && left.l == right.l && left.a == right.a);
    assert!(left.b_g1 == right.b_g1 && left.b_g2 == right.b_g2);
}

#[test]
fn files_equal_bellpersons_at_every_size() {
    let dir = tempfile::tempdir().unwrap();
    let [params_path, vk_path] = ["circuit.params", "circuit.vk"].map(|name| dir.path().join(name));
    for (num_products, num_inputs) in
        [(0, 0), (1, 0), (1, 1), (2, 3), (7, 2), (31, 5), (62, 0), (63, 1), (400, 9)]
    {
        let circuit = Products { num_products, num_inputs };
        let expected = bellperson_bytes(circuit);
        let shape = R1csShape::record(circuit).unwrap();
        let generated = generate_params(&shape, &mut seed(), &params_path, &vk_path, &|_, _| ()).unwrap();
        let bytes = std::fs::read(&params_path).unwrap();
        assert!(bytes == expected, "{num_products} products, {num_inputs} inputs");
        assert_eq!(generated.params_bytes, bytes.len() as u64);
        assert_eq!(generated.params_sha256, <[u8; 32]>::from(Sha256::digest(&bytes)));
        let vk_bytes = std::fs::read(&vk_path).unwrap();
        assert!(bytes.starts_with(&vk_bytes));
        assert_eq!(generated.vk_bytes, vk_bytes.len() as u64);
        assert_eq!(generated.vk_sha256, <[u8; 32]>::from(Sha256::digest(&vk_bytes)));

        let loaded = read_srs(&params_path, &ReadOptions::default(), &|_, _| ()).unwrap();
        assert_eq!(loaded.sha256, generated.params_sha256);
        loaded.srs.check_fits(&shape).unwrap();
        assert_eq!(read_vk(&vk_path).unwrap(), loaded.srs.vk);
        assert_equal(&generate_srs(&shape, &mut seed()).unwrap(), &loaded.srs);
        let copy = dir.path().join("copy.params");
        assert_eq!(write_srs(&copy, &loaded.srs).unwrap().sha256, generated.params_sha256);
    }
}

#[test]
fn progress_counts_every_point_once() {
    let dir = tempfile::tempdir().unwrap();
    let shape = R1csShape::record(Products { num_products: 40, num_inputs: 2 }).unwrap();
    let last = AtomicU64::new(0);
    let total = AtomicU64::new(0);
    let progress = |done, of| {
        assert!(last.swap(done, Ordering::Relaxed) < done);
        total.store(of, Ordering::Relaxed);
    };
    generate_params(&shape, &mut seed(), &dir.path().join("p"), &dir.path().join("v"), &progress).unwrap();
    assert_eq!(last.into_inner(), total.into_inner());
}

struct Unconstrained;

impl Circuit<Scalar> for Unconstrained {
    fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
        let used = cs.alloc(|| "used", || Ok(Scalar::from(1)))?;
        cs.alloc(|| "unused", || Ok(Scalar::from(2)))?;
        cs.enforce(|| "row", |lc| lc + used, |lc| lc + used, |lc| lc + used);
        Ok(())
    }
}

#[test]
fn an_unconstrained_variable_is_refused_by_name_and_nothing_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let shape = R1csShape::record(Unconstrained).unwrap();
    let error =
        generate_params(&shape, &mut seed(), &dir.path().join("p"), &dir.path().join("v"), &|_, _| ())
            .unwrap_err();
    assert!(
        matches!(&error, SrsError::Generate { what } if what == "aux variable 1 is unconstrained"),
        "{error}"
    );
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    assert!(generate_random_parameters::<Bls12, _, _>(Unconstrained, &mut seed()).is_err());
}

#[test]
fn a_failed_write_leaves_no_file_that_looks_like_parameters() {
    let dir = tempfile::tempdir().unwrap();
    let shape = R1csShape::record(Products { num_products: 40, num_inputs: 2 }).unwrap();
    let params_path = dir.path().join("circuit.params");
    // The key's name is taken by a folder: its file cannot be put there, after all points were written.
    let vk_path = dir.path().join("circuit.vk");
    std::fs::create_dir_all(vk_path.join("occupied")).unwrap();
    let error = generate_params(&shape, &mut seed(), &params_path, &vk_path, &|_, _| ()).unwrap_err();
    assert!(matches!(error, SrsError::Io { .. }), "{error}");
    let left: Vec<_> =
        std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["circuit.vk"]);
}

#[test]
fn a_panic_while_writing_leaves_no_file_that_looks_like_parameters() {
    let dir = tempfile::tempdir().unwrap();
    let shape = R1csShape::record(Products { num_products: 40, num_inputs: 2 }).unwrap();
    let [params_path, vk_path] = ["circuit.params", "circuit.vk"].map(|name| dir.path().join(name));
    let panicking = |_, _| panic!("the caller's progress display failed");
    let outcome = std::panic::catch_unwind(|| {
        generate_params(&shape, &mut seed(), &params_path, &vk_path, &panicking).map(|_| ())
    });
    assert!(outcome.is_err());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// `groth16.params_sha256` of a manifest, and the `.vk` file of the fixtures.
fn check_fixture_params(circuit: &str, folder: &str) {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/filecoin");
    let manifest = std::fs::read(data.join(folder).join("manifest.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
    let expected = &manifest["groth16"];
    let spec = CircuitSpec::by_id(circuit).unwrap();
    let shape = spec.record_shape().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let [params_path, vk_path] = [spec.params_file(), spec.vk_file()].map(|name| dir.path().join(name));
    let begun = Instant::now();
    let generated =
        generate_params(&shape, &mut spec.test_params_rng(), &params_path, &vk_path, &|_, _| ()).unwrap();
    println!("{circuit}: generated in {:.1?}", begun.elapsed());
    assert_eq!(expected["params_file"], spec.params_file());
    assert_eq!(expected["params_bytes"], generated.params_bytes);
    assert_eq!(expected["params_sha256"], hex::encode(generated.params_sha256));
    assert_eq!(expected["vk_sha256"], hex::encode(generated.vk_sha256));
    let fixture_vk = std::fs::read(data.join("params").join(spec.vk_file())).unwrap();
    assert!(std::fs::read(&vk_path).unwrap() == fixture_vk);

    let options = ReadOptions {
        expected_sha256: Some(generated.params_sha256),
        verdict_dir: Some(dir.path().join("verdicts")),
    };
    for reused in [false, true] {
        let begun = Instant::now();
        let loaded = read_srs(&params_path, &options, &|_, _| ()).unwrap();
        println!("{circuit}: loaded in {:.1?}, verdict reused: {reused}", begun.elapsed());
        assert_eq!(loaded.reused_verdict, reused);
        loaded.srs.check_fits(&shape).unwrap();
    }
    read_counts(&params_path).unwrap().check_fits(&shape).unwrap();
}

#[test]
fn window_2k_params_are_the_recorded_ones() {
    check_fixture_params("wpost-2k", "window-2k/full-partition");
}

#[test]
fn winning_2k_params_are_the_recorded_ones() {
    check_fixture_params("winning-2k", "winning-2k/sector-1");
}
