//! The fold of a test key, by its secrets.

use blst::blst_p1_affine;
use blstrs::Scalar;
use ff::Field;
use rand_core::RngCore;
use rayon::prelude::*;

use super::setup::Setup;
use super::{Generator, PointMaker, Query};
use crate::error::SrsError;
use crate::groth16::domain::{inverse_of_power_of_two, root_of_unity};
use crate::groth16::fold::Fold;
use crate::groth16::srs_file::invert_each;
use crate::groth16::R1csShape;

/// Rows done by one task.
const TASK_ROWS: usize = 1 << 12;

/// Scalars of `l` made at a time.
const L_CHUNK_SCALARS: usize = 1 << 20;

/// The fold of the key that [`super::generate_srs`] makes from the same `rng`, without a transform of points: the logarithm of
/// each of its points is known. Some 16 additions for each point.
///
/// With `y = τ ω^-j` the sums over `i ≤ n - 2` are geometric:
///
/// ```text
/// Λ_j = Z(τ)/δ · Σ yⁱ              Σ yⁱ = (y^m - 1) / (y - 1),  m = n - 1
/// μ_j = Z(τ)/δ / n² · Σ i yⁱ       Σ i yⁱ = (m y^m - y (y^m - 1) / (y - 1)) / (y - 1)
/// ```
///
/// # Errors
/// As [`super::generate_srs`].
pub fn fold_from_secrets<R: RngCore>(shape: &R1csShape, rng: &mut R) -> Result<Fold, SrsError> {
    let generator = Generator::new(shape, rng)?;
    let mut g1 = &generator.g1;
    generator.fold(shape, &mut g1)
}

impl Generator {
    /// The fold of the key of this generator, whose shape is `shape`.
    pub fn fold(&self, shape: &R1csShape, g1: &mut dyn PointMaker<blst_p1_affine>) -> Result<Fold, SrsError> {
        let setup = &self.setup;
        let (h, mu) = logarithms(setup, shape.domain_log2());
        let mut l = vec![Scalar::ZERO; shape.num_inputs()];
        l.extend(setup.scalars(Query::L, L_CHUNK_SCALARS).flatten());
        shape.for_each_entry(2, &mut |row, column, coefficient| l[column] -= mu[row] * coefficient);
        drop(mu);
        Ok(Fold { h: multiply(g1, &h)?, l: multiply(g1, &l)? })
    }
}

/// Of `Λ` and `μ`, to the base of the key.
fn logarithms(setup: &Setup, domain_log2: u32) -> (Vec<Scalar>, Vec<Scalar>) {
    let n = 1usize << domain_log2;
    let (tau, scale) = (setup.secrets.tau, setup.h_scale());
    let mu_scale = scale * inverse_of_power_of_two(2 * domain_log2);
    let omega_inverse = root_of_unity(domain_log2).invert().expect("a root of unity is not zero");
    let m = Scalar::from(n as u64 - 1);
    let (mut h, mut mu) = (vec![Scalar::ZERO; n], vec![Scalar::ZERO; n]);
    h.par_chunks_mut(TASK_ROWS).zip(mu.par_chunks_mut(TASK_ROWS)).enumerate().for_each(|(task, (h, mu))| {
        let mut y = tau * omega_inverse.pow_vartime([(task * TASK_ROWS) as u64]);
        let ys: Vec<Scalar> = std::iter::repeat_with(|| {
            let this = y;
            y *= omega_inverse;
            this
        })
        .take(h.len())
        .collect();
        // y = 1 would have tau in the domain, which a setup refuses.
        let mut inverses: Vec<Scalar> = ys.iter().map(|y| y - Scalar::ONE).collect();
        invert_each(&mut inverses);
        for (((y, inverse), h), mu) in ys.iter().zip(inverses).zip(h).zip(mu) {
            let power = y.pow_vartime([n as u64 - 1]);
            let sum = (power - Scalar::ONE) * inverse;
            *h = sum * scale;
            *mu = (m * power - y * sum) * inverse * mu_scale;
        }
    });
    (h, mu)
}

/// Zero gives the identity, which tables do not.
fn multiply(
    maker: &mut dyn PointMaker<blst_p1_affine>,
    scalars: &[Scalar],
) -> Result<Vec<blst_p1_affine>, SrsError> {
    let chunk_scalars = maker.chunk_scalars();
    let mut nonzero = scalars.iter().filter(|scalar| !scalar.is_zero_vartime()).copied();
    let chunks = std::iter::from_fn(move || {
        let chunk: Vec<Scalar> = nonzero.by_ref().take(chunk_scalars).collect();
        (!chunk.is_empty()).then_some(chunk)
    });
    let mut points = Vec::with_capacity(scalars.len());
    // Where the next point goes is behind the identities that come before it.
    let mut zeros = scalars.iter().map(Scalar::is_zero_vartime);
    let identity = blst_p1_affine::default();
    maker.points(Box::new(chunks), &mut |made| {
        for point in made {
            while zeros.next() == Some(true) {
                points.push(identity);
            }
            points.push(*point);
        }
        Ok(())
    })?;
    points.resize(scalars.len(), identity);
    Ok(points)
}
