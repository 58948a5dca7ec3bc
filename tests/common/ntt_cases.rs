//! Inputs and right answers for the transforms, from `groth16::domain`. Used on the host (`kernels_host/ntt.rs`) and
//! on GPUs (`gpu_ntt.rs`).

#![allow(dead_code, reason = "each test binary uses a part of this")]

use blst::blst_fr;
use blstrs::Scalar;
use cuzk::groth16::domain;
use ff::{Field, PrimeField};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

pub fn random_scalars(count: usize, seed: u64) -> Vec<Scalar> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..count).map(|_| Scalar::random(&mut rng)).collect()
}

/// Named inputs of `2^log2` values.
pub fn inputs(log2: u32) -> Vec<(&'static str, Vec<Scalar>)> {
    let n = 1usize << log2;
    let with = |index: usize, value: Scalar| {
        let mut values = vec![Scalar::ZERO; n];
        values[index] = value;
        values
    };
    let alternating = (0..n).map(|i| if i % 2 == 0 { Scalar::ONE } else { -Scalar::ONE }).collect();
    vec![
        ("the first", with(0, Scalar::ONE)),
        ("the last", with(n - 1, -Scalar::ONE)),
        ("constant", vec![-Scalar::ONE; n]),
        ("alternating", alternating),
        ("random", random_scalars(n, 1000 + u64::from(log2))),
    ]
}

/// `X_k = Σ_j x_j ω^jk`, natural order: `n` times the inverse transform at negated indices.
pub fn transformed(values: &[Scalar]) -> Vec<Scalar> {
    let mut result = values.to_vec();
    domain::intt(&mut result);
    result[1..].reverse();
    let n = Scalar::from(values.len() as u64);
    result.iter_mut().for_each(|value| *value *= n);
    result
}

pub fn bit_reversed(values: &[Scalar]) -> Vec<Scalar> {
    let shift = usize::BITS - values.len().trailing_zeros();
    let place = |i: usize| i.reverse_bits().checked_shr(shift).unwrap_or(0);
    (0..values.len()).map(|i| values[place(i)]).collect()
}

/// `W[b]`, the root of unity whose angle is half of b's bits read backwards behind the point.
pub fn twiddle(b: usize) -> Scalar {
    let bits = usize::BITS - b.leading_zeros();
    (0..bits).filter(|bit| b >> bit & 1 == 1).fold(Scalar::ONE, |product, bit| {
        let root = (bit + 2..Scalar::S).fold(Scalar::ROOT_OF_UNITY, |root, _| root.square());
        product * root
    })
}

/// The quotient's coefficients for rows `a` and `b` with `c = a b`.
pub fn quotient(a: &[Scalar], b: &[Scalar], domain_log2: u32) -> Vec<Scalar> {
    let c: Vec<Scalar> = a.iter().zip(b).map(|(a, b)| a * b).collect();
    domain::quotient(a.to_vec(), b.to_vec(), domain_log2, |rows| rows.copy_from_slice(&c))
}

pub fn to_raw(values: &[Scalar]) -> Vec<blst_fr> {
    values.iter().map(|value| blst_fr::from(*value)).collect()
}

pub fn from_raw(values: &[blst_fr]) -> Vec<Scalar> {
    values.iter().map(|value| Scalar::from(*value)).collect()
}

/// Panics at the first difference.
pub fn assert_same(what: &str, result: &[Scalar], expected: &[Scalar]) {
    assert_eq!(result.len(), expected.len(), "{what}");
    if let Some(index) = result.iter().zip(expected).position(|(result, expected)| result != expected) {
        panic!("{what}: index {index} is {:?}, not {:?}", result[index], expected[index]);
    }
}
