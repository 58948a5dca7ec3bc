//! The kernels of `spmv.cu`, run thread by thread, against the host's evaluation.

use std::io::Write;
use std::ops::Range;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use blst::blst_fr;
use blstrs::Scalar;
use cuzk::circuits::CircuitSpec;
use cuzk::error::SynthesisError;
use cuzk::groth16::shape::{Table, TILE_ROWS};
use cuzk::groth16::{Matrix, PackedWitness, R1csShape};
use ff::Field;

use crate::harness;
use crate::spmv_cases;
use crate::synthetic::{Synthetic, Values};

static HARNESS: LazyLock<PathBuf> = LazyLock::new(|| harness::build("spmv_harness"));

/// What the kernels made.
struct Made {
    a: Vec<Scalar>,
    b: Vec<Scalar>,
    first_bad: Option<usize>,
    values: Vec<Scalar>,
}

/// Which rows to make, and to check.
struct Setting {
    falling: bool,
    tiles: Range<usize>,
    /// One tile in so many; 0: none.
    every: u32,
    seed: u64,
}

fn num_tiles(shape: &R1csShape) -> usize {
    shape.num_rows().div_ceil(TILE_ROWS)
}

fn raw(scalars: &[Scalar]) -> impl Iterator<Item = u8> + '_ {
    scalars.iter().flat_map(|scalar| blst_fr::from(*scalar).l).flat_map(u64::to_le_bytes)
}

fn run(shape: &R1csShape, witness: &PackedWitness, setting: &Setting) -> Made {
    let Setting { falling, tiles, every, seed } = setting;
    let layout = shape.image_layout();
    let mut image = vec![0; layout.num_bytes()];
    shape.fill_image(&layout, 0, &mut image);
    let num_dense = shape.classes().num_dense();
    let mut numbers: Vec<u64> = [shape.num_inputs(), shape.num_aux(), num_dense, shape.num_rows()]
        .into_iter()
        .chain([tiles.start, tiles.len(), *every as usize])
        .map(|number| number as u64)
        .collect();
    numbers.push(*seed);
    let mut input = Vec::new();
    for table in Table::ALL {
        let range = layout.range(table);
        numbers.push(range.len() as u64);
        input.extend_from_slice(&image[range]);
    }
    input.extend(witness.bits.iter().flat_map(|word| word.to_le_bytes()));
    input.extend(raw(&witness.dense).chain(raw(&witness.inputs)));

    let mut child = Command::new(&*HARNESS)
        .arg(if *falling { "falling" } else { "rising" })
        .args(numbers.iter().map(u64::to_string))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It reads all of its input before it writes, so this cannot deadlock.
    let sent = child.stdin.take().unwrap().write_all(&input);
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{errors}", output.status);
    sent.unwrap();

    let num_rows = shape.num_rows().min(tiles.end * TILE_ROWS) - tiles.start * TILE_ROWS;
    let (a, rest) = output.stdout.split_at(32 * num_rows);
    let (b, rest) = rest.split_at(32 * num_rows);
    let (first_bad, values) = rest.split_at(4);
    let first_bad = u32::from_le_bytes(first_bad.try_into().unwrap());
    let [a, b, values] = [a, b, values].map(scalars);
    Made { a, b, first_bad: (first_bad != u32::MAX).then_some(first_bad as usize), values }
}

fn scalars(bytes: &[u8]) -> Vec<Scalar> {
    let limbs: Vec<u64> =
        bytes.chunks_exact(8).map(|limb| u64::from_le_bytes(limb.try_into().unwrap())).collect();
    limbs.chunks_exact(4).map(|limbs| Scalar::from(blst_fr { l: limbs.try_into().unwrap() })).collect()
}

fn assert_same(what: &str, made: &[Scalar], expected: &[Scalar]) {
    assert_eq!(made.len(), expected.len(), "{what}");
    let wrong = made.iter().zip(expected).position(|(made, expected)| made != expected);
    assert_eq!(wrong, None, "{what}: the first place that differs");
}

/// All that the kernels make, in tiles of `tiles`; returns what the check of all rows would name.
fn check(what: &str, shape: &R1csShape, tiles: Range<usize>) {
    let witness = spmv_cases::any_witness(shape, shape.num_rows() as u64);
    let unpacked = witness.unpack(shape.classes());
    let values = [unpacked.input_assignment, unpacked.aux_assignment].concat();
    let every = u32::from(tiles == (0..num_tiles(shape)));
    let rows = tiles.start * TILE_ROWS..shape.num_rows().min(tiles.end * TILE_ROWS);
    let expected = |matrix| {
        let mut values = vec![Scalar::ZERO; rows.len()];
        shape.evaluate_rows(matrix, &witness, rows.clone(), &mut values).unwrap();
        values
    };
    let [a, b, c] = [Matrix::A, Matrix::B, Matrix::C].map(expected);
    for falling in [false, true] {
        let made = run(shape, &witness, &Setting { falling, tiles: tiles.clone(), every, seed: 1 });
        assert_same(&format!("{what}: a"), &made.a, &a);
        assert_same(&format!("{what}: b"), &made.b, &b);
        assert_same(&format!("{what}: values"), &made.values, &values);
        if every == 1 {
            let first_bad = (0..a.len()).find(|&row| a[row] * b[row] != c[row]);
            assert_eq!(made.first_bad, first_bad, "{what}");
        }
    }
}

#[test]
fn every_kind_of_row_is_the_hosts() {
    for (name, circuit) in spmv_cases::circuits() {
        let shape = R1csShape::record(circuit).unwrap();
        check(&name, &shape, 0..num_tiles(&shape));
    }
}

#[test]
fn circuits_without_repetition_and_with_many_coefficients_are_the_hosts() {
    let shape = R1csShape::record(spmv_cases::many_coefficients()).unwrap();
    check("many coefficients", &shape, 0..num_tiles(&shape));
    for num_constraints in [1, 300, 5000] {
        for values in [Values::Bits, Values::Random] {
            let shape = R1csShape::record(Synthetic::new(num_constraints, values)).unwrap();
            check(&format!("{num_constraints} {values:?}"), &shape, 0..num_tiles(&shape));
        }
    }
}

/// The small recorded circuits whole; of the others some tiles, from the first to the last.
#[test]
fn recorded_circuits_are_the_hosts() {
    for (circuit, num_checked) in
        [("wpost-2k", usize::MAX), ("winning-2k", 60), ("snap-2k", 12), ("porep-2k", 12)]
    {
        let shape = CircuitSpec::by_id(circuit).unwrap().record_shape().unwrap();
        let num_tiles = num_tiles(&shape);
        if num_checked >= num_tiles {
            check(circuit, &shape, 0..num_tiles);
            continue;
        }
        let width = num_checked / 6;
        for part in 0..6 {
            let first = (num_tiles - width) * part / 5;
            check(&format!("{circuit} from tile {first}"), &shape, first..first + width);
        }
    }
}

#[test]
fn a_broken_constraint_is_named_by_the_check_and_a_sound_witness_passes() {
    let circuit = Synthetic::new(3000, Values::Bits);
    let shape = R1csShape::record(circuit.clone()).unwrap();
    let mut witness = PackedWitness::synthesize(circuit, &shape).unwrap();
    let tiles = 0..num_tiles(&shape);
    let check = |witness: &PackedWitness, every, seed| {
        run(&shape, witness, &Setting { falling: false, tiles: tiles.clone(), every, seed }).first_bad
    };
    for every in [1, 2, 5, 1000] {
        assert_eq!(check(&witness, every, 7), None, "one tile in {every}");
    }
    let middle = witness.dense.len() / 2;
    witness.dense[middle] += Scalar::ONE;
    let Err(SynthesisError::Unsatisfied { index, .. }) = shape.check_satisfied(&witness) else {
        panic!("a constraint is broken")
    };
    assert_eq!(check(&witness, 1, 7), Some(index));
    // A sample names a broken row or none; over many seeds it looks everywhere.
    let named: Vec<_> = (0..40).map(|seed| check(&witness, 4, seed)).collect();
    assert!(named.contains(&Some(index)), "{named:?}");
    for row in named.into_iter().flatten() {
        assert!(shape.check_row(&witness, row).is_err(), "row {row} holds");
    }
}
