//! Transforms of points.

use std::sync::atomic::{AtomicBool, Ordering};

use blst::blst_p1_affine;
use blstrs::{G1Projective, Scalar};
use ff::Field;
use group::{Curve, Group};
use rayon::prelude::*;

use super::Watch;
use crate::error::FoldError;
use crate::groth16::domain::{bit_reverse, bit_reversed_powers, inverse_of_power_of_two, root_of_unity};
use crate::groth16::srs_file::{RawPoint, BATCH_POINTS};

/// Butterflies per task: a tenth of a millisecond each.
const TASK_BUTTERFLIES: usize = 16;

/// What each point is multiplied by before it is transformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weights {
    None,
    /// `i / n²`, point `i`.
    Indices,
}

/// Whoever can transform points: the host, or a device.
pub trait PointTransform {
    /// What a transform of `2^domain_log2` points reports as its total.
    fn num_steps(&self, domain_log2: u32) -> u64;

    /// `Σ_i weight_i ω^-ij points_i` for each `j` below `n`, affine and in natural order. `points: [n - 1]`; the last one
    /// counts as the identity.
    ///
    /// # Errors
    /// [`FoldError::Stopped`], [`FoldError::Device`].
    fn run(
        &mut self,
        points: &[blst_p1_affine],
        weights: Weights,
        watch: Watch<'_>,
    ) -> Result<Vec<blst_p1_affine>, FoldError>;
}

/// The weight of point `i` is this times `i`.
pub(crate) fn index_weight(domain_log2: u32) -> Scalar {
    inverse_of_power_of_two(2 * domain_log2)
}

/// On rayon's threads, in place over Jacobian points: 144 B each. A multiplication takes about 0.1 ms of a core, so that
/// 2^15 points take half a minute of one, and 2^20 half an hour.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostTransform;

impl PointTransform for HostTransform {
    fn num_steps(&self, domain_log2: u32) -> u64 {
        u64::from(domain_log2) + 1
    }

    fn run(
        &mut self,
        points: &[blst_p1_affine],
        weights: Weights,
        watch: Watch<'_>,
    ) -> Result<Vec<blst_p1_affine>, FoldError> {
        let n = points.len() + 1;
        let log2 = n.trailing_zeros();
        assert!(n.is_power_of_two(), "{n} points");
        let total = self.num_steps(log2);
        let weight = index_weight(log2);
        let stopped = AtomicBool::new(false);
        let mut values: Vec<G1Projective> = points
            .par_iter()
            .enumerate()
            .with_min_len(TASK_BUTTERFLIES)
            .map(|(index, point)| {
                let point = G1Projective::from(point.to_affine());
                match weights {
                    Weights::None => point,
                    Weights::Indices if is_stopped(&stopped, &watch) => point,
                    Weights::Indices => point * (weight * Scalar::from(index as u64)),
                }
            })
            .collect();
        values.push(G1Projective::identity());
        watch.check()?;
        (watch.progress)(1, total);

        let omega = root_of_unity(log2).invert().expect("a root of unity is not zero");
        let twiddles = bit_reversed_powers(Scalar::ONE, omega, log2.saturating_sub(1));
        for level in 0..log2 {
            let half = n >> (level + 1);
            values.par_chunks_exact_mut(2 * half).enumerate().for_each(|(block, values)| {
                let (low, high) = values.split_at_mut(half);
                let pairs = low.par_iter_mut().zip(high).with_min_len(TASK_BUTTERFLIES);
                pairs.for_each(|(x, y)| {
                    if !is_stopped(&stopped, &watch) {
                        scale_then_add(x, y, (block != 0).then(|| &twiddles[block]));
                    }
                });
            });
            watch.check()?;
            (watch.progress)(2 + u64::from(level), total);
        }
        for place in 0..n {
            let index = bit_reverse(place, log2);
            if place < index {
                values.swap(place, index);
            }
        }
        Ok(normalized(&values))
    }
}

/// Once it was stopped, the rest of a level is skipped.
fn is_stopped(stopped: &AtomicBool, watch: &Watch<'_>) -> bool {
    if !stopped.load(Ordering::Relaxed) && (watch.is_stopped)() {
        stopped.store(true, Ordering::Relaxed);
    }
    stopped.load(Ordering::Relaxed)
}

/// `(x + wy, x - wy)`.
fn scale_then_add(x: &mut G1Projective, y: &mut G1Projective, w: Option<&Scalar>) {
    if let Some(w) = w.filter(|_| !bool::from(y.is_identity())) {
        *y *= w;
    }
    let difference = *x - *y;
    *x += *y;
    *y = difference;
}

/// Affine, with an inversion for each batch.
pub(super) fn normalized(points: &[G1Projective]) -> Vec<blst_p1_affine> {
    let batch = |points: &[G1Projective]| {
        if points.iter().any(|point| point.is_identity().into()) {
            points.iter().map(|point| blst_p1_affine::from_affine(&point.to_affine())).collect()
        } else {
            blst_p1_affine::normalize(points)
        }
    };
    points.par_chunks(BATCH_POINTS).flat_map_iter(batch).collect()
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha20Rng;
    use rand_core::SeedableRng;

    use super::*;

    #[test]
    fn a_transform_is_what_its_definition_says() {
        let mut rng = ChaCha20Rng::seed_from_u64(3);
        for log2 in 0..5u32 {
            let n = 1usize << log2;
            let mut points: Vec<G1Projective> = (1..n).map(|_| G1Projective::random(&mut rng)).collect();
            if let Some(point) = points.get_mut(3) {
                *point = G1Projective::identity();
            }
            let affine = normalized(&points);
            let omega = root_of_unity(log2).invert().unwrap();
            for weights in [Weights::None, Weights::Indices] {
                let result = HostTransform.run(&affine, weights, Watch::NONE).unwrap();
                let expected: Vec<G1Projective> = (0..n)
                    .map(|j| {
                        let term = |(i, point): (usize, &G1Projective)| {
                            let weight = match weights {
                                Weights::None => Scalar::ONE,
                                Weights::Indices => Scalar::from(i as u64) * index_weight(log2),
                            };
                            *point * (omega.pow_vartime([(i * j) as u64]) * weight)
                        };
                        points.iter().enumerate().map(term).sum()
                    })
                    .collect();
                assert!(result == normalized(&expected), "2^{log2}, {weights:?}");
            }
        }
    }

    #[test]
    fn it_stops_when_nobody_wants_it_any_more() {
        let points = normalized(&vec![G1Projective::generator(); 63]);
        let seen = std::sync::atomic::AtomicU64::new(0);
        let progress = |done, _| seen.store(done, Ordering::Relaxed);
        let is_stopped = || seen.load(Ordering::Relaxed) == 3;
        let watch = Watch { progress: &progress, is_stopped: &is_stopped };
        let result = HostTransform.run(&points, Weights::None, watch);
        assert!(matches!(result, Err(FoldError::Stopped)), "{result:?}");
        assert_eq!(seen.into_inner(), 3);
    }
}
