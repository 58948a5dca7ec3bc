//! Circuits of any size with the features of real ones, for differential tests and benches.
#![allow(dead_code, reason = "each test binary uses a part of this")]

use bellpepper_core::{Circuit, ConstraintSystem, LinearCombination, SynthesisError, Variable};
use blstrs::Scalar;
use ff::Field;
use rand_chacha::ChaCha20Rng;
use rand_core::{RngCore, SeedableRng};

/// What the values of the variables look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    Zeros,
    Ones,
    /// `r - 1`.
    MinusOnes,
    Random,
    /// Nine tenths bits, as in circuits of hash functions; the others general.
    Bits,
}

pub const ALL_VALUES: [Values; 5] =
    [Values::Zeros, Values::Ones, Values::MinusOnes, Values::Random, Values::Bits];

/// A satisfied circuit of `num_constraints`: fresh variables, products, packed sums; inputs and aux variables
/// interleaved; linear combinations with zero coefficients and with a variable added twice.
#[derive(Clone, Debug)]
pub struct Synthetic {
    pub num_constraints: usize,
    pub values: Values,
    pub seed: u64,
    /// Of the same circuit another witness.
    pub witness: u64,
    /// Every so many variables one is a public input.
    pub input_every: usize,
}

impl Synthetic {
    pub fn new(num_constraints: usize, values: Values) -> Self {
        Self { num_constraints, values, seed: 7, witness: 0, input_every: 5 }
    }

    fn fresh_value(&self, rng: &mut ChaCha20Rng) -> Scalar {
        match self.values {
            Values::Zeros => Scalar::ZERO,
            Values::Ones => Scalar::ONE,
            Values::MinusOnes => -Scalar::ONE,
            Values::Random => Scalar::random(rng),
            Values::Bits => Scalar::from(u64::from(rng.next_u32() & 1)),
        }
    }
}

type Known = (Variable, Scalar);

/// Collects what a synthetic circuit has allocated.
struct Pool<'a, CS> {
    cs: &'a mut CS,
    known: Vec<Known>,
    input_every: usize,
}

impl<CS: ConstraintSystem<Scalar>> Pool<'_, CS> {
    fn alloc(&mut self, value: Scalar) -> Result<Known, SynthesisError> {
        let is_input = self.known.len() % self.input_every == self.input_every - 1;
        let variable = if is_input {
            self.cs.alloc_input(|| "", || Ok(value))?
        } else {
            self.cs.alloc(|| "", || Ok(value))?
        };
        self.known.push((variable, value));
        Ok((variable, value))
    }

    fn pick(&self, rng: &mut ChaCha20Rng) -> Known {
        self.known[rng.next_u32() as usize % self.known.len()]
    }
}

impl Circuit<Scalar> for Synthetic {
    fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
        // The circuit's structure has a generator of its own: it must not depend on the values.
        let mut structure = ChaCha20Rng::seed_from_u64(self.seed);
        let mut values = ChaCha20Rng::seed_from_u64(self.seed ^ 0xff ^ (self.witness << 8));
        let sign = if self.values == Values::MinusOnes { -Scalar::ONE } else { Scalar::ONE };
        let mut pool = Pool { cs, known: Vec::new(), input_every: self.input_every };
        for index in 0..self.num_constraints {
            let is_fresh = pool.known.is_empty() || structure.next_u32() % 3 == 0;
            if is_fresh {
                constrain_fresh(&mut pool, self.fresh_value(&mut values), self.values, sign)?;
            } else if self.values == Values::Bits && index % 10 == 9 {
                constrain_packed(&mut pool, &mut structure)?;
            } else {
                constrain_product(&mut pool, &mut structure, sign)?;
            }
        }
        Ok(())
    }
}

/// `(sign·v) · v = v`, or `v · 1 = v` where that does not hold.
fn constrain_fresh<CS: ConstraintSystem<Scalar>>(
    pool: &mut Pool<'_, CS>,
    value: Scalar,
    values: Values,
    sign: Scalar,
) -> Result<(), SynthesisError> {
    let (v, _) = pool.alloc(value)?;
    let factor = if values == Values::Random { CS::one() } else { v };
    pool.cs.enforce(|| "", |lc| lc + (sign, v), |lc| lc + factor, |lc| lc + v);
    Ok(())
}

/// `(sign·x + 0·y) · (2y - y) = z`.
fn constrain_product<CS: ConstraintSystem<Scalar>>(
    pool: &mut Pool<'_, CS>,
    structure: &mut ChaCha20Rng,
    sign: Scalar,
) -> Result<(), SynthesisError> {
    let (x, x_value) = pool.pick(structure);
    let (y, y_value) = pool.pick(structure);
    let (z, _) = pool.alloc(sign * x_value * y_value)?;
    pool.cs.enforce(
        || "",
        |lc| lc + (sign, x) + (Scalar::ZERO, y),
        |lc| lc + (Scalar::from(2), y) - y,
        |lc| lc + z,
    );
    Ok(())
}

/// `(Σ 3^i x_i) · 1 = z`.
fn constrain_packed<CS: ConstraintSystem<Scalar>>(
    pool: &mut Pool<'_, CS>,
    structure: &mut ChaCha20Rng,
) -> Result<(), SynthesisError> {
    let mut sum = LinearCombination::zero();
    let mut value = Scalar::ZERO;
    let mut power = Scalar::ONE;
    for _ in 0..8 {
        let (x, x_value) = pool.pick(structure);
        sum = sum + (power, x);
        value += power * x_value;
        power *= Scalar::from(3);
    }
    let (z, _) = pool.alloc(value)?;
    pool.cs.enforce(|| "", |_| sum, |lc| lc + CS::one(), |lc| lc + z);
    Ok(())
}
