//! Sums of products of scalars.

use blstrs::Scalar;
use ff::Field;

/// `Σ left[i]·right[i]`.
pub(super) fn dot<const N: usize>(left: &[Scalar; N], right: &[Scalar; N]) -> Scalar {
    left.iter().zip(right).fold(Scalar::ZERO, |sum, (left, right)| sum + left * right)
}

/// `left·right + add`.
pub(super) fn dot_then_add(left: &Scalar, right: &Scalar, add: &Scalar) -> Scalar {
    left * right + add
}
