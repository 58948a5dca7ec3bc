//! Row values of a witness: `A·w`, `B·w`, `C·w`, from packed bits.
//!
//! Most rows are about bits alone and have small coefficients: their values are machine integers, and so are both sides
//! of `a·b = c`. The others, of Poseidon and of sums that fill a field element, are computed in the field.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use blstrs::Scalar;
use ff::{Field, PrimeField};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;

use super::patterns::{Anchors, Terms, Variable, INPUT, ONE};
use super::rows::Rows;
use super::{R1csShape, COEFFICIENT_MINUS_ONE, COEFFICIENT_ONE};
use crate::error::SynthesisError;
use crate::groth16::{PackedWitness, VariableClasses};

/// Coefficients up to this magnitude are small.
const MAX_SMALL: u64 = 1 << 32;
/// Terms of a row that is computed in machine integers: its sums stay below 2^52, its product below 2^104.
const MAX_SMALL_TERMS: usize = 1 << 20;
/// Row values up to this magnitude are looked up.
const MAX_LISTED: i64 = 256;

/// One of the three constraint matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Matrix {
    A,
    B,
    C,
}

/// Which rows can be computed in machine integers.
#[derive(Clone)]
pub(super) struct SmallCoefficients {
    /// `[num_coefficients]`: 0 where the coefficient is not small.
    values: Vec<i64>,
    /// `[num_patterns]`: small coefficients, and no variables but one and bits.
    is_small: Vec<bool>,
}

impl SmallCoefficients {
    pub fn new(rows: &Rows, coefficients: &[Scalar], classes: &VariableClasses) -> Self {
        let values: Vec<i64> = coefficients.iter().map(|value| small_value(value).unwrap_or(0)).collect();
        let is_small = |id: usize| {
            let terms = rows.patterns().entries(id as u32);
            let of_bits = |(code, coefficient): (u32, u16)| {
                values[coefficient as usize] != 0 && (code == ONE || code & INPUT == 0)
            };
            AtomicBool::new(terms.codes.len() <= MAX_SMALL_TERMS && terms.iter().all(of_bits))
        };
        let is_small: Vec<AtomicBool> = (0..rows.patterns().len()).into_par_iter().map(is_small).collect();
        // A pattern's variables may be bits in one row and not in another.
        super::spans(rows.num_rows()).for_each(|span| {
            rows.for_each(span, |_, id, anchors| {
                let flag = &is_small[id as usize];
                if flag.load(Ordering::Relaxed) {
                    let codes = rows.patterns().entries(id).codes;
                    let is_bit =
                        |&code: &u32| code == ONE || !classes.is_dense((anchors.aux - code) as usize);
                    if !codes.iter().all(is_bit) {
                        flag.store(false, Ordering::Relaxed);
                    }
                }
            });
        });
        Self { values, is_small: is_small.into_iter().map(AtomicBool::into_inner).collect() }
    }

    /// `[num_coefficients]`: 0 where the coefficient is not small.
    pub fn values(&self) -> &[i64] {
        &self.values
    }

    /// Whether all rows of a pattern can be computed in machine integers.
    pub fn is_small(&self, id: usize) -> bool {
        self.is_small[id]
    }

    pub fn num_bytes(&self) -> u64 {
        (8 * self.values.len() + self.is_small.len()) as u64
    }
}

/// The coefficient as a signed integer of at most [`MAX_SMALL`].
fn small_value(coefficient: &Scalar) -> Option<i64> {
    let magnitude = |scalar: &Scalar| {
        let bytes = scalar.to_repr();
        let low = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
        (bytes[8..].iter().all(|&byte| byte == 0) && low <= MAX_SMALL).then_some(low as i64)
    };
    magnitude(coefficient).or_else(|| magnitude(&-coefficient).map(|value| -value))
}

/// A shape and one of its witnesses.
struct Evaluator<'a> {
    shape: &'a R1csShape,
    witness: &'a PackedWitness,
    /// Scalars from `-MAX_LISTED` to `MAX_LISTED`.
    listed: Vec<Scalar>,
}

impl<'a> Evaluator<'a> {
    fn new(shape: &'a R1csShape, witness: &'a PackedWitness) -> Self {
        let listed = (-MAX_LISTED..=MAX_LISTED).map(scalar_of).collect();
        Self { shape, witness, listed }
    }

    /// Of a row whose pattern is small.
    #[inline(always)]
    fn small_sum(&self, terms: Terms<'_>, anchors: Anchors) -> i64 {
        let bits = self.witness.bits.as_slice();
        let mut sum = 0;
        for (code, coefficient) in terms.iter() {
            let value = self.shape.small.values[coefficient as usize];
            let is_set = code == ONE || {
                let aux = (anchors.aux - code) as usize;
                bits[aux / 64] >> (aux % 64) & 1 == 1
            };
            sum += if is_set { value } else { 0 };
        }
        sum
    }

    /// Of any row. Most coefficients are 1 or -1 and most values bits: only what is left needs a multiplication.
    fn sum(&self, terms: Terms<'_>, anchors: Anchors) -> Scalar {
        let classes = self.shape.classes();
        let mut sum = Scalar::ZERO;
        for (code, coefficient) in terms.iter() {
            let value = match anchors.variable(code) {
                Variable::Aux(aux) if classes.is_dense(aux as usize) => {
                    &self.witness.dense[classes.dense_rank(aux as usize)]
                }
                Variable::Aux(aux) => {
                    if self.witness.bit(aux as usize) {
                        sum += &self.shape.coefficients[coefficient as usize];
                    }
                    continue;
                }
                Variable::Input(input) => &self.witness.inputs[input as usize],
            };
            match coefficient {
                COEFFICIENT_ONE => sum += value,
                COEFFICIENT_MINUS_ONE => sum -= value,
                _ => sum += self.shape.coefficients[coefficient as usize] * value,
            }
        }
        sum
    }

    #[inline(always)]
    fn is_small(&self, id: u32) -> bool {
        self.shape.small.is_small[id as usize]
    }

    fn value(&self, matrix: Matrix, id: u32, anchors: Anchors) -> Scalar {
        let terms = self.shape.rows.patterns().row(id)[matrix as usize];
        if self.is_small(id) {
            let value = self.small_sum(terms, anchors);
            match self.listed.get((value + MAX_LISTED) as usize) {
                Some(listed) => *listed,
                None => scalar_of(value),
            }
        } else {
            self.sum(terms, anchors)
        }
    }

    fn is_satisfied(&self, id: u32, anchors: Anchors) -> bool {
        let row = self.shape.rows.patterns().row(id);
        if self.is_small(id) {
            // Below 2^104 on both sides: equal as integers if and only if equal in the field.
            let [a, b, c] = row.map(|terms| i128::from(self.small_sum(terms, anchors)));
            a * b == c
        } else {
            let [a, b, c] = row.map(|terms| self.sum(terms, anchors));
            a * b == c
        }
    }

    fn first_unsatisfied(&self, rows: Range<usize>) -> Option<usize> {
        let mut first_bad = None;
        self.shape.rows.for_each(rows, |row, id, anchors| {
            if first_bad.is_none() && !self.is_satisfied(id, anchors) {
                first_bad = Some(row);
            }
        });
        first_bad
    }
}

fn scalar_of(value: i64) -> Scalar {
    let magnitude = Scalar::from(value.unsigned_abs());
    if value < 0 {
        -magnitude
    } else {
        magnitude
    }
}

impl R1csShape {
    /// The matrix's row values: `[num_rows]`, with room for the whole domain, to which the quotient pads them in place.
    ///
    /// # Errors
    /// [`SynthesisError::ShapeMismatch`] if the witness has another number of variables.
    pub fn evaluate(&self, matrix: Matrix, witness: &PackedWitness) -> Result<Vec<Scalar>, SynthesisError> {
        let mut values = Vec::with_capacity(1 << self.domain_log2());
        values.resize(self.num_rows(), Scalar::ZERO);
        self.evaluate_into(matrix, witness, &mut values)?;
        Ok(values)
    }

    /// As [`Self::evaluate`], into `values`: `[num_rows]`.
    ///
    /// # Errors
    /// As [`Self::evaluate`].
    ///
    /// # Panics
    /// If there is room for another number of values.
    pub fn evaluate_into(
        &self,
        matrix: Matrix,
        witness: &PackedWitness,
        values: &mut [Scalar],
    ) -> Result<(), SynthesisError> {
        self.check_fits(witness)?;
        assert_eq!(values.len(), self.num_rows(), "room for a value of each row");
        let evaluator = Evaluator::new(self, witness);
        self.spans().zip(values.par_chunks_mut(super::SPAN)).for_each(|(span, values)| {
            evaluator.fill(matrix, span, values);
        });
        Ok(())
    }

    /// The row values of `rows` alone, on the calling thread. Starting at a multiple of 4096 is quickest.
    ///
    /// # Errors
    /// As [`Self::evaluate`].
    ///
    /// # Panics
    /// If there are fewer rows, or `values` has another length than the range.
    pub fn evaluate_rows(
        &self,
        matrix: Matrix,
        witness: &PackedWitness,
        rows: Range<usize>,
        values: &mut [Scalar],
    ) -> Result<(), SynthesisError> {
        self.check_lengths(witness)?;
        assert_eq!(values.len(), rows.len(), "room for a value of each row");
        Evaluator::new(self, witness).fill(matrix, rows, values);
        Ok(())
    }

    /// `Ok` if every constraint holds. Nothing is kept but the verdict.
    ///
    /// # Errors
    /// [`SynthesisError::Unsatisfied`] naming the first constraint that does not;
    /// [`SynthesisError::ShapeMismatch`] if the witness has another number of variables.
    pub fn check_satisfied(&self, witness: &PackedWitness) -> Result<(), SynthesisError> {
        self.check_fits(witness)?;
        let evaluator = Evaluator::new(self, witness);
        let first_bad = self.spans().find_map_first(|span| evaluator.first_unsatisfied(span));
        self.verdict(first_bad)
    }

    /// As [`Self::check_satisfied`] of a sample, on the calling thread: 4096 rows on end in `every` times as many, drawn from
    /// the seed. The first that does not hold is named.
    ///
    /// # Errors
    /// As [`Self::check_satisfied`].
    ///
    /// # Panics
    /// If `every` is 0.
    pub fn check_sample(
        &self,
        witness: &PackedWitness,
        every: usize,
        seed: u64,
    ) -> Result<(), SynthesisError> {
        self.check_lengths(witness)?;
        let evaluator = Evaluator::new(self, witness);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let num_rows = self.num_rows();
        let mut spans = (0..num_rows.div_ceil(super::SPAN)).step_by(every).filter_map(|group| {
            let start = (group + rng.gen_range(0..every)) * super::SPAN;
            (start < num_rows).then(|| start..num_rows.min(start + super::SPAN))
        });
        self.verdict(spans.find_map(|span| evaluator.first_unsatisfied(span)))
    }

    /// `Ok` if the constraint of this row holds.
    ///
    /// # Errors
    /// [`SynthesisError::Unsatisfied`], or [`SynthesisError::ShapeMismatch`] if the witness has another number of variables.
    ///
    /// # Panics
    /// If there are not so many rows.
    pub fn check_row(&self, witness: &PackedWitness, row: usize) -> Result<(), SynthesisError> {
        self.check_lengths(witness)?;
        self.verdict(Evaluator::new(self, witness).first_unsatisfied(row..row + 1))
    }

    fn verdict(&self, first_bad: Option<usize>) -> Result<(), SynthesisError> {
        match first_bad {
            None => Ok(()),
            Some(index) => {
                Err(SynthesisError::Unsatisfied { index, num_constraints: self.num_constraints() })
            }
        }
    }

    /// Whether the witness is of this circuit's variables.
    ///
    /// # Errors
    /// [`SynthesisError::ShapeMismatch`] naming the first difference.
    pub fn check_fits(&self, witness: &PackedWitness) -> Result<(), SynthesisError> {
        self.check_lengths(witness)?;
        if !witness.fits(self.classes()) {
            let what = "bits of dense variables or beyond the last";
            let dense = self.classes().dense().words();
            let stray =
                witness.bits.iter().zip(dense).map(|(bits, dense)| (bits & dense).count_ones() as usize);
            return Err(SynthesisError::ShapeMismatch { what, needs: 0, has: stray.sum::<usize>().max(1) });
        }
        Ok(())
    }

    fn check_lengths(&self, witness: &PackedWitness) -> Result<(), SynthesisError> {
        let needs_has = [
            ("inputs", self.num_inputs(), witness.inputs.len()),
            ("words of bits", self.num_aux().div_ceil(64), witness.bits.len()),
            ("dense aux variables", self.classes().num_dense(), witness.dense.len()),
        ];
        let is_led_by_one = witness.inputs.first() == Some(&Scalar::ONE);
        let leading = ("leading inputs that are one", 1, usize::from(is_led_by_one));
        match needs_has.into_iter().chain([leading]).find(|(_, needs, has)| needs != has) {
            Some((what, needs, has)) => Err(SynthesisError::ShapeMismatch { what, needs, has }),
            None => Ok(()),
        }
    }
}

impl Evaluator<'_> {
    fn fill(&self, matrix: Matrix, rows: Range<usize>, values: &mut [Scalar]) {
        let start = rows.start;
        self.shape.rows.for_each(rows, |row, id, anchors| {
            values[row - start] = self.value(matrix, id, anchors);
        });
    }
}

#[cfg(test)]
mod tests {
    use bellpepper_core::{Circuit, ConstraintSystem, LinearCombination, SynthesisError as CircuitError};
    use proptest::prelude::*;

    use super::*;
    use crate::groth16::Assignment;

    #[test]
    fn small_coefficients_are_told_from_others() {
        for value in [1, -1, 5, -(1 << 31), 1 << 32, -(1 << 32)] {
            assert_eq!(small_value(&scalar_of(value)), Some(value));
        }
        let large = Scalar::from(1u64 << 32) + Scalar::ONE;
        for value in [large, -large, Scalar::from(2u64).pow([64u64]), Scalar::from(2u64).invert().unwrap()] {
            assert_eq!(small_value(&value), None);
        }
    }

    /// Bits, fields elements that are made of them, and rows about both.
    #[derive(Clone, Debug)]
    struct Mixed {
        /// A value, and whether it is constrained to be a bit.
        variables: Vec<(u64, bool)>,
        /// Terms of A and B: variables by number, coefficients.
        rows: Vec<[Vec<(usize, i64)>; 2]>,
    }

    impl Circuit<Scalar> for Mixed {
        fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), CircuitError> {
            let mut variables = vec![(CS::one(), Scalar::ONE)];
            for (index, &(value, is_bit)) in self.variables.iter().enumerate() {
                let value = Scalar::from(if is_bit { value % 2 } else { value });
                let variable = match index % 7 {
                    3 => cs.alloc_input(|| "", || Ok(value))?,
                    _ => cs.alloc(|| "", || Ok(value))?,
                };
                if is_bit {
                    cs.enforce(|| "", |lc| lc + variable, |lc| lc + CS::one() - variable, |lc| lc);
                }
                variables.push((variable, value));
            }
            for row in &self.rows {
                let sums = row.each_ref().map(|terms| {
                    let mut sum = (LinearCombination::zero(), Scalar::ZERO);
                    for &(of, coefficient) in terms {
                        let (variable, value) = variables[of % variables.len()];
                        // Now and then a coefficient that is not small.
                        let coefficient =
                            scalar_of(coefficient) * Scalar::from(1u64 << (of % 3 * 20)).square();
                        sum = (sum.0 + (coefficient, variable), sum.1 + coefficient * value);
                    }
                    sum
                });
                let [(a, a_value), (b, b_value)] = sums;
                let product = cs.alloc(|| "", || Ok(a_value * b_value))?;
                cs.enforce(|| "", |_| a, |_| b, |lc| lc + product);
            }
            Ok(())
        }
    }

    fn mixed() -> impl Strategy<Value = Mixed> {
        let terms = || proptest::collection::vec((0usize..500, -300i64..300), 0..6);
        let variables = proptest::collection::vec((any::<u64>(), prop::bool::weighted(0.8)), 1..80);
        let rows = proptest::collection::vec([terms(), terms()], 0..40);
        (variables, rows).prop_map(|(variables, rows)| Mixed { variables, rows })
    }

    /// The textbook's sums.
    fn expected(shape: &R1csShape, matrix: Matrix, assignment: &Assignment) -> Vec<Scalar> {
        let values = [&assignment.input_assignment[..], &assignment.aux_assignment].concat();
        let mut sums = vec![Scalar::ZERO; shape.num_rows()];
        shape.for_each_entry(matrix as usize, &mut |row, column, coefficient| {
            sums[row] += values[column] * coefficient;
        });
        sums
    }

    proptest! {
        #[test]
        fn row_values_are_sums_of_products(circuit in mixed(), place: prop::sample::Index) {
            let shape = R1csShape::record(circuit.clone()).unwrap();
            let assignment = Assignment::synthesize(circuit, 0, 0).unwrap();
            let witness = PackedWitness::pack(&assignment, shape.classes()).unwrap();
            for matrix in [Matrix::A, Matrix::B, Matrix::C] {
                let expected = expected(&shape, matrix, &assignment);
                prop_assert_eq!(&shape.evaluate(matrix, &witness).unwrap(), &expected);
                let start = place.index(expected.len());
                let mut values = vec![Scalar::ZERO; expected.len() - start];
                shape.evaluate_rows(matrix, &witness, start..expected.len(), &mut values).unwrap();
                prop_assert_eq!(&values, &expected[start..]);
            }
            prop_assert_eq!(shape.check_satisfied(&witness), Ok(()));
        }

        #[test]
        fn the_first_broken_row_is_named(circuit in mixed(), place: prop::sample::Index) {
            let shape = R1csShape::record(circuit.clone()).unwrap();
            let mut assignment = Assignment::synthesize(circuit, 0, 0).unwrap();
            let aux = place.index(assignment.aux_assignment.len());
            let value = &mut assignment.aux_assignment[aux];
            *value = if shape.classes().is_dense(aux) { *value + Scalar::ONE } else { Scalar::ONE - *value };
            let [a, b, c] = [Matrix::A, Matrix::B, Matrix::C].map(|matrix| expected(&shape, matrix, &assignment));
            let first = (0..shape.num_rows()).find(|&row| a[row] * b[row] != c[row]);
            let witness = PackedWitness::pack(&assignment, shape.classes()).unwrap();
            let num_constraints = shape.num_constraints();
            let verdict = first.map_or(Ok(()), |index| {
                Err(SynthesisError::Unsatisfied { index, num_constraints })
            });
            prop_assert_eq!(shape.check_satisfied(&witness), verdict);
            for row in 0..shape.num_rows() {
                prop_assert_eq!(shape.check_row(&witness, row).is_ok(), a[row] * b[row] == c[row]);
            }
        }
    }

    #[test]
    fn a_sample_is_every_row_or_so_many_of_them_and_names_the_one_that_is_broken() {
        // As many constraints as eleven spans have rows, and one.
        let num_constraints = 11 * super::super::SPAN + 1;
        let rows = vec![[vec![(0, 2)], vec![(0, 1)]]; num_constraints - 1];
        let circuit = Mixed { variables: vec![(1, true)], rows };
        let shape = R1csShape::record(circuit.clone()).unwrap();
        let assignment = Assignment::synthesize(circuit, 0, 0).unwrap();
        let witness = PackedWitness::pack(&assignment, shape.classes()).unwrap();
        let finds = |broken_row: usize, every: usize, seed: u64| {
            let mut broken = witness.clone();
            // The first constraint is that of the bit; each other one has its product, which is none.
            broken.dense[broken_row - 1] += Scalar::ONE;
            assert!(shape.check_row(&broken, broken_row).is_err());
            match shape.check_sample(&broken, every, seed) {
                Ok(()) => false,
                Err(SynthesisError::Unsatisfied { index, .. }) => index == broken_row,
                Err(other) => panic!("{other}"),
            }
        };
        for seed in 0..8 {
            assert_eq!(shape.check_sample(&witness, 1, seed), Ok(()));
            assert_eq!(shape.check_sample(&witness, 4, seed), Ok(()));
            for row in [1, super::super::SPAN, num_constraints - 1] {
                assert!(finds(row, 1, seed), "row {row}, seed {seed}");
            }
        }
        let found = (0..200).filter(|&seed| finds(5000, 4, seed)).count();
        assert!((25..100).contains(&found), "one in four of 200: {found}");
    }

    #[test]
    fn a_witness_of_another_size_or_with_stray_bits_is_refused() {
        let circuit = Mixed { variables: vec![(1, true), (5, false), (0, true)], rows: vec![] };
        let shape = R1csShape::record(circuit.clone()).unwrap();
        let assignment = Assignment::synthesize(circuit, 0, 0).unwrap();
        let witness = PackedWitness::pack(&assignment, shape.classes()).unwrap();
        let refusal = |spoil: fn(&mut PackedWitness)| {
            let mut spoilt = witness.clone();
            spoil(&mut spoilt);
            match shape.check_satisfied(&spoilt).unwrap_err() {
                SynthesisError::ShapeMismatch { what, needs, has } => (what, needs, has),
                other => panic!("{other}"),
            }
        };
        assert_eq!(refusal(|witness| witness.inputs.clear()), ("inputs", 1, 0));
        assert_eq!(refusal(|witness| witness.bits.push(0)), ("words of bits", 1, 2));
        assert_eq!(refusal(|witness| witness.dense.clear()), ("dense aux variables", 1, 0));
        let leading = ("leading inputs that are one", 1, 0);
        assert_eq!(refusal(|witness| witness.inputs[0] = Scalar::from(2)), leading);
        let stray = "bits of dense variables or beyond the last";
        assert_eq!(refusal(|witness| witness.bits[0] |= 2), (stray, 0, 1));
        assert_eq!(refusal(|witness| witness.bits[0] |= 8), (stray, 0, 1));
    }
}
