//! Which aux variables are bits: proved from the constraints, in one pass over the rows.
//!
//! One rule covers a bit's own constraint and the outputs of xor, and, choose and the like. Take a row in which one
//! variable `x` is not known to be a bit and all others are. For each value of the others the row is an equation of
//! degree at most two in `x`; if none of them has a solution other than 0 and 1, `x` is a bit in every satisfied
//! witness. A majority is proved with the row before it: `maj = 2·a·bc - …` holds for bits only where `bc = b·c`, which
//! is the row that makes `bc`, so values of the others that break that row are left out.
//!
//! The rule is about the pattern of a row, so it is worked out once for all rows that look alike, whatever their
//! variables (a *form*), and looked up for every row.
//!
//! A variable that only a later row makes a bit is one from that row on: another row that would need it before is not
//! tried again. That costs memory and no correctness.

use std::collections::HashMap;

use blstrs::Scalar;
use ff::Field;

use super::patterns::{Anchors, Terms, INPUT, ONE};
use super::rows::Rows;
use crate::groth16::density::Density;

/// Most variables of a row that is looked at, and most entries: all gadgets on bits have fewer.
const MAX_VARIABLES: usize = 5;
const MAX_ENTRIES: usize = 16;

/// The dense variables: those that no rule makes a bit.
pub(super) fn dense_variables(rows: &Rows, coefficients: &[Scalar], num_aux: usize) -> Density {
    let mut classifier = Classifier::new(rows, coefficients, num_aux);
    let mut before = None;
    rows.for_each(0..rows.num_rows(), |_, id, anchors| {
        classifier.take_row(id, anchors, before);
        before = Some(id);
    });
    let mut dense = Density::new(num_aux);
    dense.set_all_but(&classifier.bits);
    dense
}

/// A row's entries with its variables numbered by their first occurrence: equal for rows that say the same of their
/// variables. The row before is part of it where that helps.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Form {
    row: [Vec<FormTerm>; 3],
    before: Option<[Vec<FormTerm>; 3]>,
}

/// Number of the variable (`None`: the constant one) and index of the coefficient.
type FormTerm = (Option<u8>, u16);

/// "`variable` is a bit if `operands` are", each by the place of an entry with it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    variable: u8,
    operands: Vec<u8>,
}

/// What a row proves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Rules {
    rules: Vec<Rule>,
    /// Places of the variables that have no rule.
    unruled: Vec<u8>,
}

struct Classifier<'a> {
    rows: &'a Rows,
    coefficients: &'a [Scalar],
    bits: Density,
    /// `[num_patterns]`: index into `rules`.
    rules_of: Vec<u32>,
    rules: Vec<Rules>,
    known: HashMap<Form, u32>,
    /// The same for a row with the row before it.
    rules_of_pairs: HashMap<(u32, u32), u32>,
}

impl<'a> Classifier<'a> {
    fn new(rows: &'a Rows, coefficients: &'a [Scalar], num_aux: usize) -> Self {
        let mut classifier = Self {
            rows,
            coefficients,
            bits: Density::new(num_aux),
            rules_of: Vec::new(),
            // Number 0: nothing to be proved.
            rules: vec![Rules::default()],
            known: HashMap::new(),
            rules_of_pairs: HashMap::new(),
        };
        classifier.rules_of =
            (0..rows.patterns().len()).map(|id| classifier.rules_of_form(id as u32, None)).collect();
        classifier
    }

    fn rules_of_form(&mut self, id: u32, before: Option<Neighbour>) -> u32 {
        let Some((form, places)) = form_of(self.rows, id, before) else { return 0 };
        if let Some(&known) = self.known.get(&form) {
            return known;
        }
        let rules = rules_of(&form, &places, self.coefficients);
        let number = match self.rules.iter().position(|known| *known == rules) {
            Some(number) => number,
            None => {
                self.rules.push(rules);
                self.rules.len() - 1
            }
        } as u32;
        self.known.insert(form, number);
        number
    }

    fn take_row(&mut self, id: u32, anchors: Anchors, before: Option<u32>) {
        let number = self.rules_of[id as usize];
        if number == 0 {
            return;
        }
        let codes = self.rows.patterns().entries(id).codes;
        self.apply(number, codes, anchors);
        let is_open = |&place: &u8| !self.bits.get((anchors.aux - codes[place as usize]) as usize);
        if !self.rules[number as usize].unruled.iter().any(is_open) {
            return;
        }
        let Some(before) = before else { return };
        let number = match self.rules_of_pairs.get(&(before, id)) {
            Some(&number) => number,
            None => {
                let pattern = self.rows.patterns().pattern(id);
                let neighbour = Neighbour { id: before, distance: pattern.aux_step };
                let number = self.rules_of_form(id, Some(neighbour));
                self.rules_of_pairs.insert((before, id), number);
                number
            }
        };
        self.apply(number, codes, anchors);
    }

    fn apply(&mut self, number: u32, codes: &[u32], anchors: Anchors) {
        let Self { rules, bits, .. } = self;
        let variable = |place: u8| (anchors.aux - codes[place as usize]) as usize;
        for Rule { variable: unknown, operands } in &rules[number as usize].rules {
            let unknown = variable(*unknown);
            if !bits.get(unknown) && operands.iter().all(|&place| bits.get(variable(place))) {
                bits.set(unknown);
            }
        }
    }
}

/// The row before: its pattern, and how far its aux anchor lies before the row's own.
#[derive(Clone, Copy)]
struct Neighbour {
    id: u32,
    distance: i32,
}

/// The form of a row, and for each variable the place of an entry with it. `None` if it is too long or about inputs
/// other than one. The row before is left out if it is about other variables.
fn form_of(rows: &Rows, id: u32, before: Option<Neighbour>) -> Option<(Form, Vec<u8>)> {
    let (mut places, mut distances) = (Vec::new(), Vec::new());
    let mut length = 0;
    let row = rows.patterns().row(id);
    if row.iter().map(|terms| terms.codes.len()).sum::<usize>() > MAX_ENTRIES {
        return None;
    }
    let row = try_map(row, |code| {
        length += 1;
        let distance = distance(code, 0)?;
        let Some(distance) = distance else { return Some(None) };
        let number = distances.iter().position(|&known| known == distance);
        let number = number.or_else(|| {
            distances.push(distance);
            places.push(length - 1);
            (distances.len() <= MAX_VARIABLES).then_some(distances.len() - 1)
        })?;
        Some(Some(number as u8))
    })?;
    let before = before.and_then(|before| {
        let terms = rows.patterns().row(before.id);
        if terms.iter().map(|terms| terms.codes.len()).sum::<usize>() > MAX_ENTRIES {
            return None;
        }
        try_map(terms, |code| match distance(code, before.distance)? {
            None => Some(None),
            Some(distance) => {
                distances.iter().position(|&known| known == distance).map(|number| Some(number as u8))
            }
        })
    });
    Some((Form { row, before }, places))
}

/// A variable's distance to the anchor, which lies `more` behind the one that it is measured from. `Some(None)`: the
/// constant one; `None`: another input.
fn distance(code: u32, more: i32) -> Option<Option<i64>> {
    match code {
        ONE => Some(None),
        _ if code & INPUT != 0 => None,
        _ => Some(Some(i64::from(code) + i64::from(more))),
    }
}

fn try_map(
    row: [Terms<'_>; 3],
    mut number: impl FnMut(u32) -> Option<Option<u8>>,
) -> Option<[Vec<FormTerm>; 3]> {
    let [a, b, c] = row.map(|terms| {
        terms.iter().map(|(code, coefficient)| Some((number(code)?, coefficient))).collect::<Option<Vec<_>>>()
    });
    Some([a?, b?, c?])
}

fn rules_of(form: &Form, places: &[u8], coefficients: &[Scalar]) -> Rules {
    let mut rules = Rules::default();
    // The newest variable has most likely been made by this row.
    for (variable, &place) in places.iter().enumerate() {
        if is_decided(form, places.len(), variable, coefficients) {
            let others = (0..places.len()).filter(|&other| other != variable);
            rules.rules.push(Rule { variable: place, operands: others.map(|other| places[other]).collect() });
        } else {
            rules.unruled.push(place);
        }
    }
    rules
}

/// Whether the row makes `variable` a bit if the other `num_variables - 1` are bits.
fn is_decided(form: &Form, num_variables: usize, variable: usize, coefficients: &[Scalar]) -> bool {
    let is_in = |row: &[Vec<FormTerm>; 3]| row.iter().flatten().any(|(of, _)| *of == Some(variable as u8));
    let before = form.before.as_ref().filter(|before| !is_in(before));
    (0..1u32 << num_variables).filter(|values| values >> variable & 1 == 0).all(|values| {
        let breaks_before = before.is_some_and(|before| {
            let [a, b, c] = before.each_ref().map(|terms| linear(terms, values, variable, coefficients)[0]);
            a * b != c
        });
        breaks_before || {
            let [a, b, c] = form.row.each_ref().map(|terms| linear(terms, values, variable, coefficients));
            // (a0 + a1 x)(b0 + b1 x) - (c0 + c1 x), by powers of x
            has_no_roots_but_bits([a[0] * b[0] - c[0], a[0] * b[1] + a[1] * b[0] - c[1], a[1] * b[1]])
        }
    })
}

/// A sum of terms as a constant and a multiple of `variable`; the others have the bits of `values`.
fn linear(terms: &[FormTerm], values: u32, variable: usize, coefficients: &[Scalar]) -> [Scalar; 2] {
    let mut sum = [Scalar::ZERO; 2];
    for &(of, coefficient) in terms {
        let coefficient = coefficients[coefficient as usize];
        match of {
            Some(of) if usize::from(of) == variable => sum[1] += coefficient,
            Some(of) if values >> of & 1 == 0 => {}
            _ => sum[0] += coefficient,
        }
    }
    sum
}

/// Whether every solution of `p0 + p1 x + p2 x² = 0` is 0 or 1. A quadratic equation that is none of `x(x - 1)`, `x²`
/// and `(x - 1)²` is taken to have others.
fn has_no_roots_but_bits([p0, p1, p2]: [Scalar; 3]) -> bool {
    let (is_zero, is_one) = (p0 == Scalar::ZERO, p0 + p1 + p2 == Scalar::ZERO);
    if p2 != Scalar::ZERO {
        // Both roots are bits: 0 and 1, or one of them twice.
        return match (is_zero, is_one) {
            (true, true) => true,
            (true, false) => p1 == Scalar::ZERO,
            (false, true) => p0 == p2,
            (false, false) => false,
        };
    }
    match p1 == Scalar::ZERO {
        false => is_zero || is_one,
        // No solution at all, or any.
        true => !is_zero,
    }
}

#[cfg(test)]
mod tests {
    use bellpepper_core::boolean::{AllocatedBit, Boolean};
    use bellpepper_core::{Circuit, ConstraintSystem, LinearCombination, SynthesisError, Variable};
    use proptest::prelude::*;

    use super::*;
    use crate::groth16::R1csShape;

    type Sum = Vec<(Option<usize>, i64)>;

    /// `num_aux` variables and rows about them; `None` is the constant one.
    #[derive(Clone, Debug)]
    struct Listed {
        num_aux: usize,
        rows: Vec<[Sum; 3]>,
    }

    impl Circuit<Scalar> for Listed {
        fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
            let absent = || Err(SynthesisError::AssignmentMissing);
            let aux = (0..self.num_aux).map(|_| cs.alloc(|| "", absent)).collect::<Result<Vec<_>, _>>()?;
            for row in self.rows {
                let [a, b, c] = row.map(|sum| {
                    sum.iter().fold(LinearCombination::zero(), |lc, &(variable, coefficient)| {
                        let variable: Variable = variable.map_or(CS::one(), |index| aux[index]);
                        lc + (scalar(coefficient), variable)
                    })
                });
                cs.enforce(|| "", |_| a, |_| b, |_| c);
            }
            Ok(())
        }
    }

    fn scalar(value: i64) -> Scalar {
        let magnitude = Scalar::from(value.unsigned_abs());
        if value < 0 {
            -magnitude
        } else {
            magnitude
        }
    }

    /// Classes of a list of rows: `true` where the variable is dense.
    fn dense(num_aux: usize, rows: &[[Sum; 3]]) -> Vec<bool> {
        let shape = R1csShape::record(Listed { num_aux, rows: rows.to_vec() }).unwrap();
        (0..num_aux).map(|aux| shape.classes().is_dense(aux)).collect()
    }

    const ONE: Option<usize> = None;

    fn x(index: usize) -> Option<usize> {
        Some(index)
    }

    /// `x(1 - x) = 0`
    fn bit(index: usize) -> [Sum; 3] {
        [vec![(ONE, 1), (x(index), -1)], vec![(x(index), 1)], vec![]]
    }

    #[test]
    fn a_bit_is_known_by_any_form_of_its_constraint() {
        let forms: [[Sum; 3]; 6] = [
            bit(0),
            [vec![(x(0), 1)], vec![(x(0), 1)], vec![(x(0), 1)]],
            [vec![(x(0), 5)], vec![(ONE, 2), (x(0), -2)], vec![]],
            [vec![(x(0), 1), (ONE, -1)], vec![(x(0), 1), (ONE, -1)], vec![]],
            [vec![(x(0), 3)], vec![(ONE, 1)], vec![(ONE, 3)]],
            [vec![(ONE, 1)], vec![(x(0), 1)], vec![]],
        ];
        for form in forms {
            assert_eq!(dense(1, std::slice::from_ref(&form)), [false], "{form:?}");
        }
    }

    #[test]
    fn what_looks_like_a_bits_constraint_and_is_none() {
        let forms: [[Sum; 3]; 7] = [
            // x(2 - x) = 0, x² = 1, x² = 4x, x(x - 1) = 2, x = 2, 0 = 0, and a factor that is always 0
            [vec![(ONE, 2), (x(0), -1)], vec![(x(0), 1)], vec![]],
            [vec![(x(0), 1)], vec![(x(0), 1)], vec![(ONE, 1)]],
            [vec![(x(0), 1)], vec![(x(0), 1)], vec![(x(0), 4)]],
            [vec![(x(0), 1)], vec![(x(0), 1), (ONE, -1)], vec![(ONE, 2)]],
            [vec![(x(0), 1)], vec![(ONE, 1)], vec![(ONE, 2)]],
            [vec![(x(0), 1), (x(0), -1)], vec![(x(0), 1)], vec![]],
            [vec![], vec![(ONE, 1), (x(0), -1)], vec![]],
        ];
        for form in forms {
            assert_eq!(dense(1, std::slice::from_ref(&form)), [true], "{form:?}");
        }
    }

    #[test]
    fn a_bit_of_two_variables_is_none() {
        // x(1 - y) = 0 and (1 - x - y)x = 0 with y unknown: either may be anything.
        let product = [vec![(x(0), 1)], vec![(ONE, 1), (x(1), -1)], vec![]];
        assert_eq!(dense(2, &[product]), [true, true]);
        let conditional = [vec![(ONE, 1), (x(0), -1), (x(1), -1)], vec![(x(0), 1)], vec![]];
        assert_eq!(dense(2, std::slice::from_ref(&conditional)), [true, true]);
        // With y a bit, x is one: as `AllocatedBit::alloc_conditionally` has it.
        assert_eq!(dense(2, &[bit(1), conditional]), [false, false]);
    }

    #[test]
    fn outputs_of_gates_are_bits_if_their_operands_are() {
        let (a, b, c) = (x(0), x(1), x(2));
        let xor = [vec![(a, 2)], vec![(b, 1)], vec![(a, 1), (b, 1), (c, -1)]];
        let and = [vec![(a, 1)], vec![(b, 1)], vec![(c, 1)]];
        let nor = [vec![(ONE, 1), (a, -1)], vec![(ONE, 1), (b, -1)], vec![(c, 1)]];
        for gate in [xor, and, nor] {
            assert_eq!(dense(3, &[bit(0), bit(1), gate.clone()]), [false; 3], "{gate:?}");
            // b is dense, so c may be anything.
            assert_eq!(dense(3, &[bit(0), gate.clone()]), [false, true, true], "{gate:?}");
            // The bits are proved too late.
            assert_eq!(dense(3, &[gate, bit(0), bit(1)]), [false, false, true]);
        }
    }

    #[test]
    fn sums_of_bits_are_no_bits() {
        let (a, b, c) = (x(0), x(1), x(2));
        let sum = [vec![(a, 1), (b, 1)], vec![(ONE, 1)], vec![(c, 1)]];
        assert_eq!(dense(3, &[bit(0), bit(1), sum]), [false, false, true]);
        let difference = [vec![(a, 1), (b, -1)], vec![(ONE, 1)], vec![(c, 1)]];
        assert_eq!(dense(3, &[bit(0), bit(1), difference]), [false, false, true]);
        // Twice the product: 0 or 2.
        let twice = [vec![(a, 2)], vec![(b, 1)], vec![(c, 1)]];
        assert_eq!(dense(3, &[bit(0), bit(1), twice]), [false, false, true]);
        // Where a = 0 the row says nothing of c.
        let masked = [vec![(a, 1)], vec![(c, 1)], vec![(a, 1), (b, -1)]];
        assert_eq!(dense(3, &[bit(0), bit(1), masked]), [false, false, true]);
    }

    /// bellpepper's majority: `bc = b·c`, then `(2bc - b - c)·a = bc - maj`.
    #[test]
    fn a_majority_needs_the_product_before_it() {
        let [a, b, c, bc, maj] = [0, 1, 2, 3, 4].map(x);
        let product = [vec![(b, 1)], vec![(c, 1)], vec![(bc, 1)]];
        let majority = [vec![(bc, 2), (b, -1), (c, -1)], vec![(a, 1)], vec![(bc, 1), (maj, -1)]];
        let bits = [bit(0), bit(1), bit(2)];
        let with = |rows: &[[Sum; 3]]| dense(5, &[&bits[..], rows].concat());
        assert_eq!(with(&[product.clone(), majority.clone()]), [false; 5]);
        // bc is a bit, but not known to be the product.
        assert_eq!(with(&[bit(3), majority.clone()]), [false, false, false, false, true]);
        // Another gate before it: where b = c = 0 and a = 1, the majority would be -1.
        let other = [vec![(ONE, 1), (b, -1)], vec![(ONE, 1), (c, -1)], vec![(bc, 1)]];
        assert_eq!(with(&[other, majority]), [false, false, false, false, true]);
    }

    /// All gates of bellpepper on two and three bits, and no bit more.
    #[test]
    fn bellpeppers_gates_are_bits() {
        struct Gates;

        impl Circuit<Scalar> for Gates {
            fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
                let bit = |cs: &mut CS| AllocatedBit::alloc(&mut *cs, None).map(Boolean::from);
                let [a, b, c] = [bit(cs)?, bit(cs)?, bit(cs)?];
                for [a, b, c] in [[&a, &b, &c], [&a.not(), &b, &c.not()], [&c, &b.not(), &a.not()]] {
                    Boolean::xor(&mut *cs, a, b)?;
                    Boolean::and(&mut *cs, a, c)?;
                    Boolean::and(&mut *cs, &b.not(), &c.not())?;
                    Boolean::sha256_ch(&mut *cs, a, b, c)?;
                    Boolean::sha256_maj(&mut *cs, a, b, c)?;
                }
                cs.alloc(|| "", || Err(SynthesisError::AssignmentMissing)).map(drop)
            }
        }

        let shape = R1csShape::record(Gates).unwrap();
        assert_eq!(shape.classes().num_dense(), 1, "{:?}", shape.classes());
        assert!(shape.classes().is_dense(shape.num_aux() - 1));
    }

    fn random_sum(num_aux: usize) -> impl Strategy<Value = Sum> {
        let variable = prop_oneof![1 => Just(None), 3 => (0..num_aux).prop_map(Some)];
        proptest::collection::vec((variable, -2i64..3), 0..4)
    }

    const NUM_RANDOM: usize = 4;
    /// Values that a variable is tried with, -1 among them.
    const TRIED: std::ops::Range<i64> = -1..4;

    proptest! {
        /// No witness that satisfies the rows has another value than a bit where one was proved: all witnesses of small
        /// values are tried.
        #[test]
        fn no_satisfied_witness_contradicts_a_class(
            first_bits in 0..=NUM_RANDOM,
            random in proptest::collection::vec([random_sum(NUM_RANDOM), random_sum(NUM_RANDOM), random_sum(NUM_RANDOM)], 1..4),
        ) {
            let rows: Vec<[Sum; 3]> = (0..first_bits).map(bit).chain(random).collect();
            let classes = dense(NUM_RANDOM, &rows);
            let base = TRIED.end - TRIED.start;
            for number in 0..base.pow(NUM_RANDOM as u32) {
                let values: Vec<i64> =
                    (0..NUM_RANDOM as u32).map(|i| TRIED.start + number / base.pow(i) % base).collect();
                let sum = |sum: &Sum| sum.iter().map(|(of, by)| by * of.map_or(1, |of| values[of])).sum::<i64>();
                if rows.iter().all(|[a, b, c]| sum(a) * sum(b) == sum(c)) {
                    let are_bits = classes.iter().zip(&values).all(|(dense, value)| *dense || (0..2).contains(value));
                    prop_assert!(are_bits, "{classes:?} {values:?} {rows:?}");
                }
            }
        }
    }

    #[test]
    fn quadratic_equations_are_judged_by_their_roots() {
        let judged = |p: [i64; 3]| has_no_roots_but_bits(p.map(scalar));
        for bits_only in [[0, 1, -1], [0, 0, 3], [2, -4, 2], [0, 5, 0], [-3, 3, 0], [7, 0, 0]] {
            assert!(judged(bits_only), "{bits_only:?}");
        }
        for others in [[0, 0, 0], [0, 2, -1], [-1, 0, 1], [2, -3, 1], [1, 1, 1], [-2, 1, 0], [6, -5, 1]] {
            assert!(!judged(others), "{others:?}");
        }
    }
}
