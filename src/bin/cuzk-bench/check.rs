//! Right answers on the host.

use std::error::Error;
use std::fmt::Debug;

use blst::blst_fr;
use blstrs::Scalar;
use ff::{Field, PrimeField};
use rayon::prelude::*;

/// An error that names both values, unless they are equal.
pub fn expect_equal<T: PartialEq + Debug>(
    what: &str,
    result: &T,
    expected: &T,
) -> Result<(), Box<dyn Error>> {
    if result == expected {
        return Ok(());
    }
    Err(format!("{what}: wrong result {result:?}, must be {expected:?}").into())
}

/// 32 bytes, Montgomery, little-endian.
pub fn scalar_of(bytes: &[u8]) -> Scalar {
    let mut words =
        bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
    Scalar::from(blst_fr { l: std::array::from_fn(|_| words.next().expect("32 bytes")) })
}

pub fn root_of_unity(log2: u32) -> Scalar {
    (log2..Scalar::S).fold(Scalar::ROOT_OF_UNITY, |root, _| root.square())
}

const CHUNK: usize = 1 << 13;

/// `Σ coefficient(i) x^i` over `i < n`, on all cores.
pub fn evaluate(n: usize, coefficient: impl Fn(usize) -> Scalar + Sync, x: Scalar) -> Scalar {
    let step = x.pow_vartime([CHUNK as u64]);
    let chunk_sum = |chunk: usize| {
        let indices = (chunk * CHUNK..((chunk + 1) * CHUNK).min(n)).rev();
        indices.fold(Scalar::ZERO, |sum, index| sum * x + coefficient(index))
    };
    let sums: Vec<Scalar> = (0..n.div_ceil(CHUNK)).into_par_iter().map(chunk_sum).collect();
    sums.iter().rev().fold(Scalar::ZERO, |sum, chunk| sum * step + chunk)
}

/// The polynomials of degree below `n = 2^domain_log2` through `a`, `b` and `a b` on the domain, at `x`:
/// `(x^n - 1)/n Σ_j a_j ω^j / (x - ω^j)`. Rows from `num_rows` on are zero.
pub fn interpolated_at(
    x: Scalar,
    domain_log2: u32,
    num_rows: usize,
    rows: impl Fn(usize) -> (Scalar, Scalar) + Sync,
) -> [Scalar; 3] {
    let omega = root_of_unity(domain_log2);
    let chunk_sums = |chunk: usize| {
        let indices = chunk * CHUNK..((chunk + 1) * CHUNK).min(num_rows);
        let mut power = omega.pow_vartime([indices.start as u64]);
        // One inversion for the chunk: running products, and back.
        let mut products = Vec::with_capacity(CHUNK);
        let mut total = Scalar::ONE;
        for _ in indices.clone() {
            products.push((power, total));
            total *= x - power;
            power *= omega;
        }
        let mut inverse = total.invert().expect("the point is not on the domain");
        let mut sums = [Scalar::ZERO; 3];
        for (index, (power, product)) in indices.zip(products).rev() {
            let weight = power * inverse * product;
            inverse *= x - power;
            let (a, b) = rows(index);
            let weighted = a * weight;
            sums = [sums[0] + weighted, sums[1] + b * weight, sums[2] + weighted * b];
        }
        sums
    };
    let add = |left: [Scalar; 3], right: [Scalar; 3]| [0, 1, 2].map(|i| left[i] + right[i]);
    let sums =
        (0..num_rows.div_ceil(CHUNK)).into_par_iter().map(chunk_sums).reduce(|| [Scalar::ZERO; 3], add);
    let vanishing = x.pow_vartime([1u64 << domain_log2]) - Scalar::ONE;
    let scale = vanishing * Scalar::TWO_INV.pow_vartime([u64::from(domain_log2)]);
    sums.map(|sum| sum * scale)
}

/// The base field's modulus, least significant word first.
const P: [u64; 6] = [
    0xb9fe_ffff_ffff_aaab,
    0x1eab_fffe_b153_ffff,
    0x6730_d2a0_f6b0_f624,
    0x6477_4b84_f385_12bf,
    0x4b1b_a7b6_434b_acd7,
    0x1a01_11ea_397f_e69a,
];
/// -1/p mod 2^64.
const MINUS_P_INVERSE: u64 = 0x89f3_fffc_fffc_fffd;

/// `a b / 2^384 mod p`, reduced, for `a b < 2^384 p` (Montgomery's method, word by word).
pub fn montgomery_product(a: &[u64; 6], b: &[u64; 6]) -> [u64; 6] {
    let mut sum = [0u64; 8];
    for word in b {
        add_product(&mut sum, a, *word);
        let factor = sum[0].wrapping_mul(MINUS_P_INVERSE);
        add_product(&mut sum, &P, factor);
        sum.copy_within(1.., 0);
        sum[7] = 0;
    }
    let low = std::array::from_fn(|i| sum[i]);
    FpLimbs(low).canonical()
}

/// `sum += a b`.
fn add_product(sum: &mut [u64; 8], a: &[u64; 6], b: u64) {
    let mut carry = 0u128;
    for i in 0..8 {
        let product = if i < 6 { u128::from(a[i]) * u128::from(b) } else { 0 };
        carry += u128::from(sum[i]) + product;
        sum[i] = carry as u64;
        carry >>= 64;
    }
}

/// A base field value below 4p.
pub struct FpLimbs([u64; 6]);

impl FpLimbs {
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let mut words =
            bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
        Self(std::array::from_fn(|_| words.next().expect("48 bytes")))
    }

    /// The sum of two reduced values.
    pub fn sum(a: &[u64; 6], b: &[u64; 6]) -> Self {
        let mut carry = 0u128;
        Self(std::array::from_fn(|i| {
            carry += u128::from(a[i]) + u128::from(b[i]);
            let word = carry as u64;
            carry >>= 64;
            word
        }))
    }

    /// The value below p.
    pub fn canonical(&self) -> [u64; 6] {
        let mut value = self.0;
        while let Some(less) = less_modulus(&value) {
            value = less;
        }
        value
    }
}

/// `value - p`, unless that is negative.
fn less_modulus(value: &[u64; 6]) -> Option<[u64; 6]> {
    let mut borrow = false;
    let difference = std::array::from_fn(|i| {
        let (word, first) = value[i].overflowing_sub(P[i]);
        let (word, second) = word.overflowing_sub(borrow.into());
        borrow = first || second;
        word
    });
    (!borrow).then_some(difference)
}
