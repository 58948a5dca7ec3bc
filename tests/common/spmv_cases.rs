//! Circuits and witnesses for evaluations: every kind of row, and witnesses that need not satisfy anything.
#![allow(dead_code, reason = "each test binary uses a part of this")]

use bellpepper_core::{Circuit, ConstraintSystem, LinearCombination, SynthesisError, Variable};
use blstrs::Scalar;
use cuzk::groth16::{PackedWitness, R1csShape};
use ff::Field;
use rand_chacha::ChaCha20Rng;
use rand_core::{RngCore, SeedableRng};

/// A matrix's part of a row: variables by number, coefficients.
type Terms = Vec<(usize, Scalar)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Input,
    /// Constrained to be a bit.
    Bit,
    Dense,
}

/// Variables, the rows that make some of them bits, and any rows about them. Nothing but the shape is meant.
#[derive(Clone, Default)]
pub struct AnyRows {
    pub variables: Vec<Kind>,
    pub rows: Vec<[Terms; 3]>,
}

impl Circuit<Scalar> for AnyRows {
    fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
        let mut known: Vec<Variable> = Vec::new();
        for &kind in &self.variables {
            known.push(match kind {
                Kind::Input => cs.alloc_input(|| "", || Ok(Scalar::ZERO))?,
                Kind::Bit | Kind::Dense => cs.alloc(|| "", || Ok(Scalar::ZERO))?,
            });
            if kind == Kind::Bit {
                let bit = known[known.len() - 1];
                cs.enforce(|| "", |lc| lc + bit, |lc| lc + CS::one() - bit, |lc| lc);
            }
        }
        for row in &self.rows {
            let [a, b, c] = row.each_ref().map(|terms| {
                let one = known.len();
                let add = |lc: LinearCombination<Scalar>, &(variable, coefficient): &(usize, Scalar)| {
                    lc + (coefficient, if variable == one { CS::one() } else { known[variable] })
                };
                terms.iter().fold(LinearCombination::zero(), add)
            });
            cs.enforce(|| "", |_| a, |_| b, |_| c);
        }
        Ok(())
    }
}

/// Draws rows.
pub struct Draw {
    rng: ChaCha20Rng,
    num_variables: usize,
    coefficients: Vec<Scalar>,
}

impl Draw {
    pub fn new(num_variables: usize, coefficients: Vec<Scalar>) -> Self {
        Self { rng: ChaCha20Rng::seed_from_u64(num_variables as u64), num_variables, coefficients }
    }

    fn below(&mut self, limit: usize) -> usize {
        self.rng.next_u32() as usize % limit
    }

    /// So many terms; one in a few is the constant one. A variable that comes twice is added up by the circuit.
    fn terms(&mut self, length: usize) -> Terms {
        let term = |_| {
            let (variable, coefficient) =
                (self.below(self.num_variables + 1), self.below(self.coefficients.len()));
            (variable, self.coefficients[coefficient])
        };
        (0..length).map(term).collect()
    }

    pub fn row(&mut self, lengths: [usize; 3]) -> [Terms; 3] {
        lengths.map(|length| self.terms(length))
    }
}

/// 1, -1, small ones of both signs, the limits of what is small, powers of two of any size, and general ones.
pub fn all_coefficients() -> Vec<Scalar> {
    let small = [1u64, 2, 3, 255, 256, 257, 65_537, (1 << 32) - 1, 1 << 32, (1 << 32) + 1, u64::MAX];
    let powers = (0..255).step_by(6).map(|exponent| Scalar::from(2).pow_vartime([exponent]));
    let positive: Vec<Scalar> = small.into_iter().map(Scalar::from).chain(powers).collect();
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    let general = (0..10).map(|_| Scalar::random(&mut rng));
    positive.iter().copied().chain(positive.iter().map(|value| -value)).chain(general).collect()
}

fn small_coefficients() -> Vec<Scalar> {
    (1..40u64).flat_map(|value| [Scalar::from(value), -Scalar::from(value * value)]).collect()
}

fn kinds(pattern: &[Kind], count: usize) -> Vec<Kind> {
    pattern.iter().copied().cycle().take(count).collect()
}

fn of_lengths(variables: Vec<Kind>, coefficients: Vec<Scalar>, lengths: &[[usize; 3]]) -> AnyRows {
    let mut draw = Draw::new(variables.len(), coefficients);
    let rows = lengths.iter().map(|&lengths| draw.row(lengths)).collect();
    AnyRows { variables, rows }
}

/// A template of rows about its own variables, so many times; one in 300 rows is a stranger.
fn repeated(num_repetitions: usize) -> AnyRows {
    let template = [Kind::Bit, Kind::Bit, Kind::Dense, Kind::Bit, Kind::Bit, Kind::Input, Kind::Bit];
    let variables = kinds(&template, template.len() * num_repetitions);
    let mut draw = Draw::new(variables.len(), all_coefficients());
    let mut rows = Vec::new();
    for repetition in 0..num_repetitions {
        let first = repetition * template.len();
        for place in 0..template.len() - 1 {
            let two = Scalar::from(2 + place as u64);
            let (here, next) = (first + place, first + place + 1);
            rows.push([
                vec![(here, two), (next, Scalar::ONE)],
                vec![(next, -Scalar::ONE)],
                vec![(here, two)],
            ]);
        }
        if repetition % 50 == 49 {
            rows.push(draw.row([3, 40, 2]));
        }
    }
    AnyRows { variables, rows }
}

/// Every kind of circuit, by name. Some tens of tiles in all.
pub fn circuits() -> Vec<(String, AnyRows)> {
    use Kind::{Bit, Dense, Input};
    let mixed = |count| kinds(&[Bit, Bit, Bit, Dense, Bit, Input, Bit, Bit], count);
    let mut cases = vec![
        ("nothing but the leading input".to_owned(), AnyRows::default()),
        ("inputs alone".to_owned(), of_lengths(kinds(&[Input], 9), all_coefficients(), &[[2, 1, 3]; 20])),
        ("no bits".to_owned(), of_lengths(kinds(&[Dense], 70), all_coefficients(), &[[2, 3, 4]; 90])),
        ("bits alone".to_owned(), of_lengths(kinds(&[Bit], 130), small_coefficients(), &[[3, 1, 2]; 300])),
        ("empty rows".to_owned(), of_lengths(mixed(20), all_coefficients(), &[[0, 0, 0]; 300])),
        ("half empty".to_owned(), {
            let lengths: Vec<_> = (0..600).map(|row| [row % 2, row / 2 % 2, row / 4 % 2]).collect();
            of_lengths(mixed(64), all_coefficients(), &lengths)
        }),
        ("repetitions".to_owned(), repeated(800)),
        ("long rows of bits".to_owned(), {
            let lengths: Vec<_> = [31, 32, 33, 34, 63, 64, 65, 1000, 5000].map(|n| [n, 1, n / 2]).to_vec();
            of_lengths(kinds(&[Bit], 6000), small_coefficients(), &lengths)
        }),
        ("long rows side by side".to_owned(), {
            let lengths: Vec<_> = (0..100).map(|row| [30 + row % 7, 300 - row, row]).collect();
            of_lengths(mixed(3000), all_coefficients(), &lengths)
        }),
        (
            "thousands of terms".to_owned(),
            of_lengths(mixed(9000), all_coefficients(), &[[4000, 2000, 7000]; 3]),
        ),
    ];
    // The last tile's end: the leading input's row comes on top.
    for num_rows in [254, 255, 256, 511, 512] {
        let lengths: Vec<_> = (0..num_rows).map(|row| [1 + row % 3, 1, row % 2]).collect();
        // Dense variables have no rows of their own.
        let circuit = of_lengths(kinds(&[Dense], 65), all_coefficients(), &lengths);
        cases.push((format!("{} rows", num_rows + 1), circuit));
    }
    cases
}

/// As many distinct coefficients as there can be, nearly, in rows none of which is like another.
pub fn many_coefficients() -> AnyRows {
    let mut rng = ChaCha20Rng::seed_from_u64(5);
    let coefficients: Vec<Scalar> = (0..60_000).map(|_| Scalar::random(&mut rng)).collect();
    let variables = kinds(&[Kind::Bit, Kind::Dense, Kind::Bit], 3000);
    let rows = coefficients.chunks(6).enumerate().map(|(index, chunk)| {
        let terms = |part: &[Scalar]| {
            let of = |(place, &value): (usize, &Scalar)| ((index * 7 + place * 11) % variables.len(), value);
            part.iter().enumerate().map(of).collect()
        };
        [terms(&chunk[..2]), terms(&chunk[2..4]), terms(&chunk[4..])]
    });
    let rows = rows.collect();
    AnyRows { variables, rows }
}

/// Any values: bits where there must be, else 0, 1, -1 or general ones. The constraints do not hold.
pub fn any_witness(shape: &R1csShape, seed: u64) -> PackedWitness {
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    let dense = shape.classes().dense();
    let mut bits: Vec<u64> = dense.words().iter().map(|dense| rng.next_u64() & !dense).collect();
    let spare = bits.len() * 64 - shape.num_aux();
    if let Some(last) = bits.last_mut() {
        *last &= u64::MAX >> spare;
    }
    let mut scalar = || match rng.next_u32() % 8 {
        0 => Scalar::ZERO,
        1 => Scalar::ONE,
        2 => -Scalar::ONE,
        _ => Scalar::random(&mut rng),
    };
    let dense = (0..dense.num_ones()).map(|_| scalar()).collect();
    let mut inputs: Vec<Scalar> = (0..shape.num_inputs()).map(|_| scalar()).collect();
    inputs[0] = Scalar::ONE;
    PackedWitness { inputs, bits, dense }
}
