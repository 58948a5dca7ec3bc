//! Sums of products of scalars that are reduced once, not once a product.
//!
//! Reducing is half of a multiplication's work, and Poseidon's matrices are nine tenths of its own. Products are added
//! up column by column (product scanning) and the sum is reduced by Montgomery's method, word by word.

use blst::blst_fr;
use blstrs::Scalar;

/// A scalar in blst's form: Montgomery, little-endian words, below the modulus.
pub(super) type Limbs = [u64; 4];

/// The order of the curve's groups (BLS12-381, `r`).
const MODULUS: Limbs =
    [0xffff_ffff_0000_0001, 0x53bd_a402_fffe_5bfe, 0x3339_d808_09a1_d805, 0x73ed_a753_299d_7d48];

/// `-1/r mod 2^64`.
const NEGATED_INVERSE: u64 = 0xffff_fffe_ffff_ffff;

/// Products that [`dot`] can add up: their sum, reduced, is below 8 times the modulus.
const MAX_PRODUCTS: usize = 12;

pub(super) fn limbs(scalar: &Scalar) -> Limbs {
    blst_fr::from(*scalar).l
}

fn scalar(limbs: Limbs) -> Scalar {
    blst_fr { l: limbs }.into()
}

/// `Σ left[i]·right[i]`.
pub(super) fn dot<const N: usize>(left: &[Limbs; N], right: &[Limbs; N]) -> Scalar {
    const { assert!(N <= MAX_PRODUCTS) };
    let mut sum = [0; 9];
    // The column's sum so far, and how often it went beyond 128 bits.
    let (mut low, mut high) = (0_u128, 0_u64);
    let (columns, rest) = sum.split_at_mut(7);
    for (column, word) in columns.iter_mut().enumerate() {
        let rows = column.saturating_sub(3)..=column.min(3);
        for (left, right) in left.iter().zip(right) {
            for row in rows.clone() {
                let product = u128::from(left[row]) * u128::from(right[column - row]);
                let (added, is_over) = low.overflowing_add(product);
                (low, high) = (added, high + u64::from(is_over));
            }
        }
        *word = low as u64;
        (low, high) = (low >> 64 | u128::from(high) << 64, 0);
    }
    rest.copy_from_slice(&[low as u64, (low >> 64) as u64]);
    scalar(reduce(sum))
}

/// Divides by 2^256 modulo the modulus.
fn reduce(mut sum: [u64; 9]) -> Limbs {
    for word in 0..4 {
        let factor = sum[word].wrapping_mul(NEGATED_INVERSE);
        let mut carry = 0;
        for (limb, modulus) in MODULUS.iter().enumerate() {
            let added = u128::from(factor) * u128::from(*modulus) + u128::from(sum[word + limb]) + carry;
            (sum[word + limb], carry) = (added as u64, added >> 64);
        }
        for limb in &mut sum[word + 4..] {
            let added = u128::from(*limb) + carry;
            (*limb, carry) = (added as u64, added >> 64);
        }
    }
    let mut value: [u64; 5] = std::array::from_fn(|limb| sum[4 + limb]);
    for shift in [2, 1, 0] {
        value = subtract_if_above(value, multiple(shift));
    }
    std::array::from_fn(|limb| value[limb])
}

/// The modulus times 2^`shift`.
const fn multiple(shift: u32) -> [u64; 5] {
    let mut multiple = [MODULUS[0], MODULUS[1], MODULUS[2], MODULUS[3], 0];
    let mut doubled = 0;
    while doubled < shift {
        let mut limb = 4;
        while limb > 0 {
            multiple[limb] = multiple[limb] << 1 | multiple[limb - 1] >> 63;
            limb -= 1;
        }
        multiple[0] <<= 1;
        doubled += 1;
    }
    multiple
}

fn subtract_if_above(value: [u64; 5], other: [u64; 5]) -> [u64; 5] {
    let mut borrow = false;
    let difference = std::array::from_fn(|limb| {
        let (first, under) = value[limb].overflowing_sub(other[limb]);
        let (second, under_again) = first.overflowing_sub(u64::from(borrow));
        borrow = under | under_again;
        second
    });
    if borrow {
        value
    } else {
        difference
    }
}

#[cfg(test)]
mod tests {
    use ff::Field;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    fn naive<const N: usize>(left: &[Scalar; N], right: &[Scalar; N]) -> Scalar {
        left.iter().zip(right).fold(Scalar::ZERO, |sum, (left, right)| sum + left * right)
    }

    fn check<const N: usize>(left: &[Scalar; N], right: &[Scalar; N]) {
        let limbs_of = |scalars: &[Scalar; N]| scalars.each_ref().map(limbs);
        assert_eq!(dot(&limbs_of(left), &limbs_of(right)), naive(left, right));
    }

    #[test]
    fn sums_are_those_of_reduced_products() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for _ in 0..1000 {
            check(&[Scalar::random(&mut rng)], &[Scalar::random(&mut rng)]);
            check::<3>(
                &[(); 3].map(|()| Scalar::random(&mut rng)),
                &[(); 3].map(|()| Scalar::random(&mut rng)),
            );
            check::<9>(
                &[(); 9].map(|()| Scalar::random(&mut rng)),
                &[(); 9].map(|()| Scalar::random(&mut rng)),
            );
            check::<12>(
                &[(); 12].map(|()| Scalar::random(&mut rng)),
                &[(); 12].map(|()| Scalar::random(&mut rng)),
            );
        }
    }

    #[test]
    fn the_largest_limbs_are_reduced() {
        // What the largest Montgomery form stands for, and values next to the modulus.
        let largest = scalar([MODULUS[0] - 1, MODULUS[1], MODULUS[2], MODULUS[3]]);
        for left in [largest, -Scalar::ONE, Scalar::ONE, Scalar::ZERO] {
            for right in [largest, -Scalar::ONE, Scalar::ONE, Scalar::ZERO] {
                check(&[left; 12], &[right; 12]);
                check(&[left; 5], &[right; 5]);
                check(&[left], &[right]);
            }
        }
    }
}
