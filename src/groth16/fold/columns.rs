//! `L' = L - F`: columns of C times points, a sparse product over the circuit's rows.

use blst::blst_p1_affine;
use blstrs::{G1Projective, Scalar};
use group::Group;
use rayon::prelude::*;

use super::transform::normalized;
use super::Watch;
use crate::error::FoldError;
use crate::groth16::pippenger::canonical_limbs;
use crate::groth16::shape::Variable;
use crate::groth16::srs_file::RawPoint;
use crate::groth16::R1csShape;

/// Matrix C among a row's three.
const C: usize = 2;
/// Columns whose sums are normalised at a time.
const CHUNK_COLUMNS: usize = 1 << 12;
/// Rows between two looks at whether it is still wanted.
const ROWS_PER_LOOK: usize = 1 << 16;

/// How a coefficient multiplies points.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Multiple {
    /// `±2^k`: the packed sums of many additions have them all, one row `2^0, 2^1, …`, each the double of the one before.
    PowerOfTwo {
        exponent: u32,
        negative: bool,
    },
    General(Scalar),
}

impl Multiple {
    fn of(coefficient: &Scalar) -> Self {
        for (value, negative) in [(*coefficient, false), (-coefficient, true)] {
            let limbs = canonical_limbs(&value);
            if limbs.iter().map(|limb| limb.count_ones()).sum::<u32>() == 1 {
                let limb = limbs.iter().position(|limb| *limb != 0).expect("one bit is set");
                let exponent = 64 * limb as u32 + limbs[limb].trailing_zeros();
                return Self::PowerOfTwo { exponent, negative };
            }
        }
        Self::General(*coefficient)
    }
}

/// One row's point and the last of its doubles.
struct Doubles {
    point: G1Projective,
    double: G1Projective,
    exponent: u32,
}

impl Doubles {
    fn new(point: G1Projective) -> Self {
        Self { point, double: point, exponent: 0 }
    }

    fn power(&mut self, exponent: u32) -> G1Projective {
        if exponent < self.exponent {
            (self.double, self.exponent) = (self.point, 0);
        }
        (self.exponent..exponent).for_each(|_| self.double = self.double.double());
        self.exponent = exponent;
        self.double
    }

    fn times(&mut self, multiple: &Multiple) -> G1Projective {
        match multiple {
            Multiple::PowerOfTwo { exponent, negative: false } => self.power(*exponent),
            Multiple::PowerOfTwo { exponent, negative: true } => -self.power(*exponent),
            Multiple::General(scalar) => self.point * scalar,
        }
    }
}

/// `-F_k` for each input, `L_k - F_k` for each aux variable, `F_k = Σ_j C_jk μ_j`; `l: [num_aux]`, `mu: [n]`.
///
/// Each thread takes a range of columns and passes over all rows for it: a pass over the rows of PoRep of 32 GiB takes two
/// seconds, and no two threads add to the same sum.
pub(super) fn folded_l(
    shape: &R1csShape,
    l: &[blst_p1_affine],
    mu: &[blst_p1_affine],
    watch: Watch<'_>,
) -> Result<Vec<blst_p1_affine>, FoldError> {
    let multiples: Vec<Multiple> = shape.coefficients().iter().map(Multiple::of).collect();
    let num_columns = shape.num_inputs() + shape.num_aux();
    let columns_per_task = num_columns.div_ceil(rayon::current_num_threads()).max(1);
    let of_aux = |column: usize| column.checked_sub(shape.num_inputs()).map(|aux| l[aux].to_affine());
    let mut sums: Vec<G1Projective> = (0..num_columns)
        .into_par_iter()
        .map(|column| of_aux(column).map_or_else(G1Projective::identity, G1Projective::from))
        .collect();
    sums.par_chunks_mut(columns_per_task).enumerate().for_each(|(task, sums)| {
        subtract_columns(shape, &multiples, mu, task * columns_per_task, sums, watch);
    });
    watch.check()?;
    Ok(sums.par_chunks(CHUNK_COLUMNS).flat_map_iter(normalized).collect())
}

/// Subtracts the products of the columns from `first_column` on from `sums`.
fn subtract_columns(
    shape: &R1csShape,
    multiples: &[Multiple],
    mu: &[blst_p1_affine],
    first_column: usize,
    sums: &mut [G1Projective],
    watch: Watch<'_>,
) {
    let (rows, num_inputs) = (shape.rows(), shape.num_inputs());
    for start in (0..rows.num_rows()).step_by(ROWS_PER_LOOK) {
        if (watch.is_stopped)() {
            return;
        }
        rows.for_each(start..rows.num_rows().min(start + ROWS_PER_LOOK), |row, id, anchors| {
            let mut doubles = None;
            for (code, coefficient) in rows.patterns().row(id)[C].iter() {
                let column = match anchors.variable(code) {
                    Variable::Input(input) => input as usize,
                    Variable::Aux(aux) => num_inputs + aux as usize,
                };
                let Some(sum) = column.checked_sub(first_column).and_then(|column| sums.get_mut(column))
                else {
                    continue;
                };
                let doubles =
                    doubles.get_or_insert_with(|| Doubles::new(G1Projective::from(mu[row].to_affine())));
                *sum -= doubles.times(&multiples[coefficient as usize]);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use ff::Field;

    use super::*;

    #[test]
    fn multiples_are_those_of_the_scalars() {
        let generator = G1Projective::generator();
        let mut doubles = Doubles::new(generator);
        let powers = [0u64, 1, 5, 64, 200, 253, 3, 3, 0].map(|k| Scalar::from(2u64).pow_vartime([k]));
        let others = [Scalar::from(3u64), -Scalar::from(10u64), Scalar::from(2u64).invert().unwrap()];
        for scalar in powers.into_iter().flat_map(|power| [power, -power]).chain(others) {
            assert_eq!(doubles.times(&Multiple::of(&scalar)), generator * scalar, "{scalar:?}");
        }
        let of = |scalar| Multiple::of(&scalar);
        assert_eq!(of(-Scalar::ONE), Multiple::PowerOfTwo { exponent: 0, negative: true });
        assert_eq!(of(others[0]), Multiple::General(others[0]));
    }
}
