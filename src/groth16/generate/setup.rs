//! The secrets of a setup and the scalars of its points.

use blstrs::{G1Projective, G2Projective, Scalar};
use ff::{Field, PrimeField};
use group::Group;
use rand_core::RngCore;
use rayon::prelude::*;

use super::{refused, Chunks};
use crate::error::SrsError;
use crate::groth16::srs_file::invert_each;
use crate::groth16::R1csShape;

/// Scalars of one task: some hundred microseconds.
const TASK_SCALARS: usize = 1 << 12;
/// Fewest variables whose polynomials are one task: each task reads all rows.
const TASK_COLUMNS: usize = 1 << 16;

/// What nobody may know of parameters that are to be trusted: who does can forge proofs.
pub(super) struct Secrets {
    pub g1: G1Projective,
    pub g2: G2Projective,
    pub alpha: Scalar,
    pub beta: Scalar,
    pub gamma: Scalar,
    pub delta: Scalar,
    pub tau: Scalar,
}

impl Secrets {
    /// Draws in bellperson's order (0.27, `groth16/generator.rs`): the same generator gives the same parameters.
    pub fn draw(rng: &mut impl RngCore) -> Self {
        Self {
            g1: G1Projective::random(&mut *rng),
            g2: G2Projective::random(&mut *rng),
            alpha: Scalar::random(&mut *rng),
            beta: Scalar::random(&mut *rng),
            gamma: Scalar::random(&mut *rng),
            delta: Scalar::random(&mut *rng),
            tau: Scalar::random(&mut *rng),
        }
    }
}

/// The queries of a proving key, in the order of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Query {
    H,
    L,
    A,
    BG1,
    BG2,
}

/// The scalar of every point. Vectors are over all variables: inputs, then aux.
pub(super) struct Setup {
    pub secrets: Secrets,
    num_inputs: usize,
    domain_size: u64,
    /// A, B: `A_j(tau)`, `B_j(tau)`.
    a: Vec<Scalar>,
    b: Vec<Scalar>,
    /// `beta · A_j(tau) + alpha · B_j(tau) + C_j(tau)`.
    ext: Vec<Scalar>,
    gamma_inverse: Scalar,
    delta_inverse: Scalar,
    /// `tau^m - 1`, the domain's vanishing polynomial.
    vanishing: Scalar,
}

impl Setup {
    /// # Errors
    /// [`SrsError::Generate`] for a variable that no constraint holds, as bellperson refuses it, and for secrets of
    /// which a division by zero would come (never, with random ones).
    pub fn new(shape: &R1csShape, secrets: Secrets) -> Result<Self, SrsError> {
        let domain_size = 1u64 << shape.domain_log2();
        let invert =
            |secret: Scalar| Option::from(secret.invert()).ok_or_else(|| refused("a secret is zero"));
        let gamma_inverse = invert(secrets.gamma)?;
        let delta_inverse = invert(secrets.delta)?;
        let vanishing = secrets.tau.pow_vartime([domain_size]) - Scalar::ONE;
        if vanishing.is_zero_vartime() {
            return Err(refused("tau is in the evaluation domain"));
        }
        let lagrange = lagrange_at(secrets.tau, vanishing, shape.domain_log2(), shape.num_rows());
        let evaluate = |matrix| evaluate_columns(shape, matrix, &lagrange);
        let (a, (b, mut ext)) = rayon::join(|| evaluate(0), || rayon::join(|| evaluate(1), || evaluate(2)));
        drop(lagrange);
        ext.par_iter_mut()
            .zip(a.par_iter().zip(&b))
            .for_each(|(ext, (a, b))| *ext += secrets.beta * a + secrets.alpha * b);
        let num_inputs = shape.num_inputs();
        if let Some(variable) = ext.par_iter().position_first(Field::is_zero_vartime) {
            let what = match variable.checked_sub(num_inputs) {
                Some(aux) => format!("aux variable {aux} is unconstrained"),
                None => format!("input {variable} vanishes"),
            };
            return Err(refused(what));
        }
        Ok(Self { secrets, num_inputs, domain_size, a, b, ext, gamma_inverse, delta_inverse, vanishing })
    }

    /// Scalars of the verifying key's `ic`.
    pub fn ic(&self) -> Vec<Scalar> {
        self.ext[..self.num_inputs].iter().map(|ext| ext * self.gamma_inverse).collect()
    }

    /// Points of a query: those that would be the identity are left out.
    pub fn num_points(&self, query: Query) -> usize {
        let nonzero =
            |scalars: &[Scalar]| scalars.par_iter().filter(|scalar| !scalar.is_zero_vartime()).count();
        match query {
            Query::H => self.domain_size as usize - 1,
            Query::L => self.ext.len() - self.num_inputs,
            Query::A => nonzero(&self.a),
            Query::BG1 | Query::BG2 => nonzero(&self.b),
        }
    }

    /// `Z(tau) / delta`: what the powers of tau in `h` are multiplied by.
    pub fn h_scale(&self) -> Scalar {
        self.vanishing * self.delta_inverse
    }

    /// A query's scalars, `chunk_scalars` at a time.
    pub fn scalars(&self, query: Query, chunk_scalars: usize) -> Chunks<'_> {
        match query {
            Query::H => Box::new(self.h_scalars(chunk_scalars)),
            Query::L => {
                let divided = move |aux: &[Scalar]| -> Vec<Scalar> {
                    let aux = aux.par_iter().with_min_len(TASK_SCALARS);
                    aux.map(|ext| ext * self.delta_inverse).collect()
                };
                Box::new(self.ext[self.num_inputs..].chunks(chunk_scalars).map(divided))
            }
            Query::A => Box::new(nonzero(&self.a, chunk_scalars)),
            Query::BG1 | Query::BG2 => Box::new(nonzero(&self.b, chunk_scalars)),
        }
    }

    /// `tau^i · (tau^m - 1) / delta` for `i` below `m - 1`.
    fn h_scalars(&self, chunk_scalars: usize) -> impl Iterator<Item = Vec<Scalar>> + '_ {
        let first = self.h_scale();
        let num_points = self.num_points(Query::H);
        (0..num_points).step_by(chunk_scalars).map(move |start| {
            let mut scalars = vec![Scalar::ZERO; chunk_scalars.min(num_points - start)];
            scalars.par_chunks_mut(TASK_SCALARS).enumerate().for_each(|(task, scalars)| {
                let mut next = first * self.secrets.tau.pow_vartime([(start + task * TASK_SCALARS) as u64]);
                for scalar in scalars {
                    *scalar = next;
                    next *= self.secrets.tau;
                }
            });
            scalars
        })
    }
}

/// Those that are not zero, `chunk_scalars` at a time.
fn nonzero(scalars: &[Scalar], chunk_scalars: usize) -> impl Iterator<Item = Vec<Scalar>> + '_ {
    let mut rest = scalars.iter().filter(|scalar| !scalar.is_zero_vartime()).copied();
    std::iter::from_fn(move || {
        let chunk: Vec<Scalar> = rest.by_ref().take(chunk_scalars).collect();
        (!chunk.is_empty()).then_some(chunk)
    })
}

/// `L_i(tau) = (tau^m - 1) · w^i / (m · (tau - w^i))` for the first `num_rows` rows of the domain: what an inverse NTT of
/// the powers of tau yields, without an NTT.
fn lagrange_at(tau: Scalar, vanishing: Scalar, domain_log2: u32, num_rows: usize) -> Vec<Scalar> {
    let mut omega = Scalar::ROOT_OF_UNITY;
    (domain_log2..Scalar::S).for_each(|_| omega = omega.square());
    let size_inverse = Scalar::TWO_INV.pow_vartime([u64::from(domain_log2)]);
    let mut values = vec![Scalar::ZERO; num_rows];
    values.par_chunks_mut(TASK_SCALARS).enumerate().for_each(|(chunk, values)| {
        let mut root = omega.pow_vartime([(chunk * TASK_SCALARS) as u64]);
        let mut numerators = Vec::with_capacity(values.len());
        for value in values.iter_mut() {
            *value = tau - root;
            numerators.push(root);
            root *= omega;
        }
        invert_each(values);
        let factor = vanishing * size_inverse;
        values.iter_mut().zip(numerators).for_each(|(value, numerator)| *value *= numerator * factor);
    });
    values
}

/// Each variable's polynomial at tau: `sum over rows of entry(row, variable) · L_row(tau)`.
///
/// Each task sums the entries of some of the variables. All tasks walk all rows, which takes a tenth of what the
/// multiplications do, and no two write to the same place.
fn evaluate_columns(shape: &R1csShape, matrix: usize, lagrange: &[Scalar]) -> Vec<Scalar> {
    let num_columns = shape.num_inputs() + shape.num_aux();
    let task_columns = num_columns.div_ceil(rayon::current_num_threads()).max(TASK_COLUMNS);
    let mut columns = vec![Scalar::ZERO; num_columns];
    columns.par_chunks_mut(task_columns).enumerate().for_each(|(task, columns)| {
        let first = task * task_columns;
        shape.for_each_entry(matrix, &mut |row, column, coefficient| {
            // Wraps for a variable before the first: beyond the last, then.
            if let Some(sum) = columns.get_mut(column.wrapping_sub(first)) {
                *sum += lagrange[row] * coefficient;
            }
        });
    });
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lagrange_coefficients_interpolate_every_polynomial_of_the_domain() {
        let tau = Scalar::from(123_456_789);
        for domain_log2 in [0, 1, 5] {
            let size = 1u64 << domain_log2;
            let vanishing = tau.pow_vartime([size]) - Scalar::ONE;
            let lagrange = lagrange_at(tau, vanishing, domain_log2, size as usize);
            let mut omega = Scalar::ROOT_OF_UNITY;
            (domain_log2..Scalar::S).for_each(|_| omega = omega.square());
            for degree in 0..size {
                let sum: Scalar =
                    (0..size).zip(&lagrange).map(|(i, l)| omega.pow_vartime([i * degree]) * l).sum();
                assert_eq!(sum, tau.pow_vartime([degree]));
            }
        }
    }
}
