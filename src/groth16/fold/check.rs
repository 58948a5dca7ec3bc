//! Whether a fold is what it says, by sums with random scalars.
//!
//! The points of a fold are determined by the key, and every sum over them is one over the key's own points:
//!
//! ```text
//! Σ_j ρ^j Λ_j     = Σ_i (ρⁿ - 1) / (ρ ω^-i - 1) H_i                    for a random ρ
//! Σ_k ρ^k L'_k    = Σ_aux ρ^k L_k - Σ_i i/n² (Σ_j (C·x)_j ω^-ij) H_i   for another, x_k = ρ^k
//! ```
//!
//! If any point is not what it should be, the two sides differ by a polynomial in ρ that is not zero, of a degree below
//! 2^32, and so for all but 2^32 of the 2^255 values of ρ; so long as all points are in the subgroup of prime order, which is
//! checked first.
//!
//! A key may have gigabytes for each of its vectors, and is being loaded: nothing of that length is made. Powers are made
//! where they are wanted, and the transform of `C·x` in parts, each of the outputs that are congruent modulo their number,
//! for which `C·x` is made anew.

use std::borrow::Cow;
use std::path::Path;

use blst::blst_p1_affine;
use blstrs::{G1Projective, Scalar};
use ff::Field;
use group::Group;
use rand::rngs::OsRng;
use rayon::prelude::*;

use super::transform::index_weight;
use super::{Fold, Watch};
use crate::error::{FoldError, SrsError};
use crate::groth16::domain::{intt, root_of_unity};
use crate::groth16::msm::msm_g1_uniform;
use crate::groth16::shape::SPAN;
use crate::groth16::srs_file::{check_sections, invert_each};
use crate::groth16::{Matrix, R1csShape, Srs};

/// Scalars made by one task.
const TASK_SCALARS: usize = 1 << 12;
/// Terms of a sum that are in memory at a time.
const CHUNK_LOG2: u32 = 20;
/// Outputs of the transform that are in memory at a time. Of a domain of 2^27 that is a sixteenth, so that `C·x` is made
/// sixteen times, which takes a tenth of the sums' time.
const PART_LOG2: u32 = 23;

/// Bytes that a check takes beside the key and its fold, but for a few MB of each thread and some 100 MB of the subgroup checks:
/// half a gigabyte at most.
pub(super) fn num_bytes(domain_log2: u32) -> u64 {
    let (part, chunk) = (1u64 << domain_log2.min(PART_LOG2), 1u64 << domain_log2.min(CHUNK_LOG2));
    // A part with its twiddles; a chunk's points, scalars and numbers.
    (32 + 16) * part + (96 + 32 + 4) * chunk
}

pub(super) fn check(
    fold: &Fold,
    srs: &Srs,
    shape: &R1csShape,
    path: &Path,
    watch: Watch<'_>,
) -> Result<(), FoldError> {
    let (n, num_inputs) = (1usize << shape.domain_log2(), shape.num_inputs());
    for (query, has, needs) in [("h", fold.h.len(), n), ("l", fold.l.len(), num_inputs + shape.num_aux())] {
        if has != needs {
            return Err(FoldError::Wrong { query });
        }
    }
    check_subgroup(fold, num_inputs, path, watch)?;
    (watch.progress)(1, 3);
    check_h(fold, srs, watch)?;
    (watch.progress)(2, 3);
    check_l(fold, srs, shape, PART_LOG2, watch)?;
    (watch.progress)(3, 3);
    Ok(())
}

const INPUTS: &str = "fold.l inputs";

/// Identities are in every subgroup; sums of many points are not made for them.
fn check_subgroup(fold: &Fold, num_inputs: usize, path: &Path, watch: Watch<'_>) -> Result<(), FoldError> {
    let (inputs, aux) = fold.l.split_at(num_inputs);
    let present = |points: &[blst_p1_affine]| {
        points.iter().filter(|point| **point != blst_p1_affine::default()).copied().collect::<Vec<_>>()
    };
    let places: Vec<usize> =
        (0..inputs.len()).filter(|at| inputs[*at] != blst_p1_affine::default()).collect();
    let inputs = present(inputs);
    let sections = [(INPUTS, inputs.as_slice()), ("fold.h", fold.h.as_slice()), ("fold.l aux", aux)];
    check_sections(path, sections, watch.is_stopped).map_err(|error| match error {
        SrsError::Point { path, section, index, what } => {
            let index = if section == INPUTS { places[index as usize] as u64 } else { index };
            FoldError::Point { path, section, index, what }
        }
        _ => FoldError::Stopped,
    })
}

fn check_h(fold: &Fold, srs: &Srs, watch: Watch<'_>) -> Result<(), FoldError> {
    let n = fold.h.len();
    let powers = Powers::new(Scalar::random(OsRng), n);
    let left = sum(&fold.h, watch, &|first, scalars| powers.fill(first, scalars))?;
    // Zero, and right folds refused, for one ρ in 2^228.
    let vanishing = powers.base.pow_vartime([n as u64]) - Scalar::ONE;
    let omega_inverse = inverse_root(n.trailing_zeros());
    let right = sum(&srs.h, watch, &|first, scalars| {
        let mut y = powers.base * omega_inverse.pow_vartime([first as u64]);
        for scalar in scalars.iter_mut() {
            *scalar = y - Scalar::ONE;
            y *= omega_inverse;
        }
        invert_each(scalars);
        scalars.iter_mut().for_each(|scalar| *scalar *= vanishing);
    })?;
    if left == right {
        Ok(())
    } else {
        Err(FoldError::Wrong { query: "h" })
    }
}

fn check_l(
    fold: &Fold,
    srs: &Srs,
    shape: &R1csShape,
    part_log2: u32,
    watch: Watch<'_>,
) -> Result<(), FoldError> {
    let x = Powers::new(Scalar::random(OsRng), fold.l.len());
    let left = sum(&fold.l, watch, &|first, scalars| x.fill(first, scalars))?;
    let plain = sum(&srs.l, watch, &|first, scalars| x.fill(shape.num_inputs() + first, scalars))?;
    let right = plain - sum_of_rows(srs, shape, &x, part_log2, watch)?;
    if left == right {
        Ok(())
    } else {
        Err(FoldError::Wrong { query: "l" })
    }
}

/// `Σ_i i/n² (Σ_j (C·x)_j ω^-ij) H_i`, in parts of `2^part_log2` of the `i`.
fn sum_of_rows(
    srs: &Srs,
    shape: &R1csShape,
    x: &Powers,
    part_log2: u32,
    watch: Watch<'_>,
) -> Result<G1Projective, FoldError> {
    let log2 = shape.domain_log2();
    let part_log2 = part_log2.min(log2);
    let num_parts = 1usize << (log2 - part_log2);
    let weight = index_weight(log2);
    let mut values = vec![Scalar::ZERO; 1 << part_log2];
    let mut total = G1Projective::identity();
    for part in 0..num_parts {
        transform_part(shape, x, part, &mut values, watch)?;
        let index_of = |k: usize| part + num_parts * k;
        values.par_iter_mut().enumerate().with_min_len(TASK_SCALARS).for_each(|(k, value)| {
            *value *= weight * Scalar::from(index_of(k) as u64);
        });
        // There is no point for `i = n - 1`.
        let num_points = (srs.h.len() - part).div_ceil(num_parts);
        for (chunk, scalars) in values[..num_points].chunks(1 << CHUNK_LOG2).enumerate() {
            watch.check()?;
            let first = chunk << CHUNK_LOG2;
            let points = match num_parts {
                1 => Cow::Borrowed(&srs.h[first..first + scalars.len()]),
                _ => {
                    let points = (first..first + scalars.len()).into_par_iter();
                    Cow::Owned(points.map(|k| srs.h[index_of(k)]).collect::<Vec<_>>())
                }
            };
            total += msm_g1_uniform(&points, scalars.to_vec());
        }
    }
    watch.check()?;
    Ok(total)
}

/// `Σ_j (C·x)_j ω^-ij` for `i = part + m k`, in `values[k]`, with `m` such parts. With `j = j' + l n/m` it is a transform over the
/// `j'`, `n/m` of them, of `ω^(-part j') Σ_l ω^(-part l n/m) (C·x)_j`.
fn transform_part(
    shape: &R1csShape,
    x: &Powers,
    part: usize,
    values: &mut [Scalar],
    watch: Watch<'_>,
) -> Result<(), FoldError> {
    let (log2, len) = (shape.domain_log2(), values.len());
    let num_parts = (1usize << log2) / len;
    let step = inverse_root(log2).pow_vartime([part as u64]);
    let across = step.pow_vartime([len as u64]);
    watch.check()?;
    values.par_chunks_mut(SPAN).enumerate().for_each(|(task, values)| {
        let first = task * SPAN;
        values.fill(Scalar::ZERO);
        let mut factor = Scalar::ONE;
        for start in (0..num_parts).map(|block| block * len + first) {
            let clipped = |row: usize| row.min(shape.num_rows());
            let rows = clipped(start)..clipped(start + values.len());
            shape.multiply_rows(
                Matrix::C,
                rows,
                |column| x.get(column),
                |row, term| {
                    values[row - start] += term * factor;
                },
            );
            factor *= across;
        }
        let mut twist = step.pow_vartime([first as u64]);
        for value in values {
            *value *= twist;
            twist *= step;
        }
    });
    inverse_sums(values);
    watch.check()
}

fn inverse_root(log2: u32) -> Scalar {
    root_of_unity(log2).invert().expect("a root of unity is not zero")
}

/// `Σ_j v_j ω^-ij` for each `i`, in place.
fn inverse_sums(values: &mut [Scalar]) {
    let n = Scalar::from(values.len() as u64);
    intt(values);
    values.par_iter_mut().with_min_len(1 << 10).for_each(|value| *value *= n);
}

/// The sum of points with scalars that are made a chunk at a time: `scalars(first, to)` makes those from the `first` on.
fn sum(
    points: &[blst_p1_affine],
    watch: Watch<'_>,
    scalars: &(dyn Fn(usize, &mut [Scalar]) + Sync),
) -> Result<G1Projective, FoldError> {
    let mut total = G1Projective::identity();
    for (chunk, points) in points.chunks(1 << CHUNK_LOG2).enumerate() {
        watch.check()?;
        let mut made = vec![Scalar::ZERO; points.len()];
        made.par_chunks_mut(TASK_SCALARS).enumerate().for_each(|(task, made)| {
            scalars((chunk << CHUNK_LOG2) + task * TASK_SCALARS, made);
        });
        total += msm_g1_uniform(points, made);
    }
    watch.check()?;
    Ok(total)
}

/// Powers of one scalar, in any order: a product of two that are kept.
struct Powers {
    base: Scalar,
    low: Vec<Scalar>,
    /// Of `base^2^low_log2`.
    high: Vec<Scalar>,
    low_log2: u32,
}

impl Powers {
    /// Those of exponents below `count`.
    fn new(base: Scalar, count: usize) -> Self {
        let low_log2 = count.max(1).ilog2().div_ceil(2);
        let powers_of = |base: Scalar, count: usize| {
            std::iter::successors(Some(Scalar::ONE), |power| Some(*power * base)).take(count).collect()
        };
        let low = powers_of(base, 1 << low_log2);
        let high = powers_of(base.pow_vartime([1u64 << low_log2]), count.div_ceil(1 << low_log2));
        Self { base, low, high, low_log2 }
    }

    fn get(&self, exponent: usize) -> Scalar {
        self.low[exponent & (self.low.len() - 1)] * self.high[exponent >> self.low_log2]
    }

    /// Those from `first` on.
    fn fill(&self, first: usize, powers: &mut [Scalar]) {
        let mut power = self.get(first);
        for to in powers {
            *to = power;
            power *= self.base;
        }
    }
}

#[cfg(test)]
mod tests {
    use bellpepper_core::{Circuit, ConstraintSystem, SynthesisError};
    use rand_chacha::ChaCha20Rng;
    use rand_core::SeedableRng;

    use super::*;
    use crate::groth16::generate::{fold_from_secrets, generate_srs};

    /// `x_0 = 1`, `x_(k+1) = x_k (x_k + x_0)`: every variable in C, and 2^5 rows with those that hold the inputs.
    struct Chain;

    impl Circuit<Scalar> for Chain {
        fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
            let mut value = Scalar::ONE;
            let first = cs.alloc_input(|| "first", || Ok(value))?;
            let mut last = first;
            for _ in 0..20 {
                let next = value * (value + Scalar::ONE);
                let variable = cs.alloc(|| "next", || Ok(next))?;
                cs.enforce(|| "step", |lc| lc + last, |lc| lc + last + first, |lc| lc + variable);
                (last, value) = (variable, next);
            }
            Ok(())
        }
    }

    #[test]
    fn however_many_parts_are_made_right_points_pass_and_wrong_ones_do_not() {
        let shape = R1csShape::record(Chain).unwrap();
        let rng = || ChaCha20Rng::seed_from_u64(7);
        let srs = generate_srs(&shape, &mut rng()).unwrap();
        let fold = fold_from_secrets(&shape, &mut rng()).unwrap();
        let (log2, num_variables) = (shape.domain_log2(), fold.l.len());
        for part_log2 in 0..=log2 {
            check_l(&fold, &srs, &shape, part_log2, Watch::NONE).unwrap();
            for index in 0..num_variables {
                let mut wrong = fold.clone();
                wrong.l[index] = srs.a[0];
                let error = check_l(&wrong, &srs, &shape, part_log2, Watch::NONE).unwrap_err();
                assert!(matches!(error, FoldError::Wrong { query: "l" }), "2^{part_log2}, {index}: {error}");
            }
        }
        check_h(&fold, &srs, Watch::NONE).unwrap();
        for index in 0..fold.h.len() {
            let mut wrong = fold.clone();
            wrong.h[index] = srs.a[0];
            let error = check_h(&wrong, &srs, Watch::NONE).unwrap_err();
            assert!(matches!(error, FoldError::Wrong { query: "h" }), "{index}: {error}");
        }
    }

    #[test]
    fn powers_are_powers_in_any_order() {
        let base = Scalar::from(3);
        for count in [1usize, 2, 3, 5, 64, 100] {
            let powers = Powers::new(base, count);
            for exponent in 0..count {
                let expected = base.pow_vartime([exponent as u64]);
                assert_eq!(powers.get(exponent), expected, "{exponent} of {count}");
            }
        }
    }

    #[test]
    fn a_check_takes_half_a_gigabyte_at_most_and_little_for_small_keys() {
        assert!(num_bytes(27) < 600 << 20 && num_bytes(31) == num_bytes(27));
        assert!(num_bytes(10) < 200 << 10);
    }
}
