//! Are all of these points in the prime-order subgroup? Batched, for millions of them.
//!
//! Checking one point takes some 40 µs (G1), so ten million would take minutes. Instead each *round* throws every point
//! into a random cell of a grid of `R` rows and `C` columns and checks only the sums of the rows and of the columns: one
//! group addition per point, and `R + C` checks.
//!
//! **What a round misses.** A point's deviation is its part outside the subgroup; deviations form a group and add up as
//! points do. Let some point deviate by `t != 0`, and fix the cells of all others, however an adversary chose them.
//! Adding this point changes the deviation of one row's sum by `t`. All rows can look clean only if, without the point,
//! exactly one row deviates, by `-t`, and the point falls into it: probability at most `1 / R`. The same holds for
//! columns, and row and column are drawn independently, so that a round misses with probability at most `1 / (R·C)`.
//! (Random *coefficients* would not do: the cofactor of G1 is divisible by 3, and one time in three a coefficient
//! makes a deviation of order 3 vanish.) Rounds are independent and drawn from a generator seeded by the operating
//! system, after the points are fixed; enough of them are made for [`MISS_BITS`].
//!
//! **Cost.** At `R·C = 2^16` four rounds: four batched affine additions per point, some 1.3 µs in G1.

use group::{Curve, Group};
use rand::rngs::OsRng;
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;

use super::point::{RawPoint, BATCH_POINTS};
use super::Stop;

/// A set with a point outside the subgroup passes with probability at most 2^-64.
const MISS_BITS: u32 = 64;

/// Points sorted into cells at a time: bounds the memory beside the points to some 100 MB.
const BLOCK_POINTS: usize = 1 << 24;

/// Group additions that cost as much as one subgroup check.
const ADDITIONS_PER_CHECK: usize = 150;

/// `Err(index)` of the first point, counted through all of `parts`, that is not in the subgroup. Once `is_stopped` says
/// so, it returns soon, and what it returns means nothing.
///
/// # Panics
/// If the operating system gives no random numbers.
pub(super) fn check<P: RawPoint>(parts: &[&[P]], is_stopped: Stop<'_>) -> Result<(), usize> {
    let num_points = parts.iter().map(|part| part.len()).sum();
    let plan = Plan::cheapest(num_points);
    let clean = match plan {
        Plan::Singly => false,
        Plan::Grid { rounds, bits } => (0..rounds).all(|_| round_is_clean(parts, bits, is_stopped)),
    };
    match clean {
        true => Ok(()),
        false => check_singly(parts, is_stopped),
    }
}

fn check_singly<P: RawPoint>(parts: &[&[P]], is_stopped: Stop<'_>) -> Result<(), usize> {
    let mut before = 0;
    for part in parts {
        let first =
            part.par_iter().position_first(|point| is_stopped() || !P::is_in_subgroup(&point.to_affine()));
        if let Some(index) = first {
            return Err(before + index);
        }
        before += part.len();
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    Singly,
    /// `bits` random bits per point and round: the rows' number of bits is half of that, rounded up.
    Grid {
        rounds: u32,
        bits: u32,
    },
}

impl Plan {
    fn cheapest(num_points: usize) -> Self {
        let singly = (num_points * ADDITIONS_PER_CHECK, Self::Singly);
        let grids = (8..=16).map(|bits| {
            let rounds = MISS_BITS.div_ceil(bits);
            let checks = (1 << bits.div_ceil(2)) + (1 << (bits / 2));
            // Each cell's sum goes into its row and its column.
            let additions = num_points + 2 * (1 << bits) + checks * ADDITIONS_PER_CHECK;
            (rounds as usize * additions, Self::Grid { rounds, bits })
        });
        grids.chain([singly]).min_by_key(|(cost, _)| *cost).expect("there are plans").1
    }
}

/// One round over all points; `false` if it was stopped.
fn round_is_clean<P: RawPoint>(parts: &[&[P]], bits: u32, is_stopped: Stop<'_>) -> bool {
    let mut sums = Sums::new(1 << bits.div_ceil(2), 1 << (bits / 2));
    for block in parts.iter().flat_map(|part| part.chunks(BLOCK_POINTS)) {
        if is_stopped() {
            return false;
        }
        sums.add_block(block, is_stopped);
    }
    if is_stopped() {
        return false;
    }
    sums.rows
        .par_iter()
        .chain(&sums.columns)
        .all(|sum: &P::Projective| bool::from(sum.is_identity()) || P::is_in_subgroup(&sum.to_affine()))
}

/// Sums of the grid's rows and columns.
struct Sums<P: RawPoint> {
    rows: Vec<P::Projective>,
    columns: Vec<P::Projective>,
}

impl<P: RawPoint> Sums<P> {
    fn new(num_rows: usize, num_columns: usize) -> Self {
        Self {
            rows: vec![P::Projective::identity(); num_rows],
            columns: vec![P::Projective::identity(); num_columns],
        }
    }

    /// Throws the points of `block` into the grid. Rows that come after it was stopped stay out of it.
    fn add_block(&mut self, block: &[P], is_stopped: Stop<'_>) {
        let num_columns = self.columns.len();
        let cells = Cells::draw(block.len(), self.rows.len() * num_columns);
        let columns = self
            .rows
            .par_iter_mut()
            .enumerate()
            .fold(
                || vec![P::Projective::identity(); num_columns],
                |mut columns, (row, row_sum)| {
                    if is_stopped() {
                        return columns;
                    }
                    for (column, column_sum) in columns.iter_mut().enumerate() {
                        let cell = sum_gathered(block, cells.points_of(row * num_columns + column));
                        *row_sum += cell;
                        *column_sum += cell;
                    }
                    columns
                },
            )
            .reduce(|| vec![P::Projective::identity(); num_columns], add_each);
        self.columns = add_each(std::mem::take(&mut self.columns), columns);
    }
}

fn add_each<G: Group>(mut left: Vec<G>, right: Vec<G>) -> Vec<G> {
    left.iter_mut().zip(right).for_each(|(left, right)| *left += right);
    left
}

/// Sum of the points of `block` at `indices`, brought together in small batches.
fn sum_gathered<P: RawPoint>(block: &[P], indices: &[u32]) -> P::Projective {
    let mut sum = P::Projective::identity();
    let mut batch = Vec::with_capacity(indices.len().min(BATCH_POINTS));
    for indices in indices.chunks(BATCH_POINTS) {
        batch.clear();
        batch.extend(indices.iter().map(|index| block[*index as usize]));
        sum += P::sum(&batch);
    }
    sum
}

/// Which points fell into which cell.
struct Cells {
    /// Indices of the points, sorted by cell.
    sorted: Vec<u32>,
    /// Where each cell ends in `sorted`.
    ends: Vec<u32>,
}

impl Cells {
    /// Throws `num_points` points into `num_cells <= 2^16` cells, a power of two, by a counting sort.
    fn draw(num_points: usize, num_cells: usize) -> Self {
        let cells = draw_cells(num_points, num_cells);
        let mut ends = vec![0u32; num_cells];
        cells.iter().for_each(|cell| ends[*cell as usize] += 1);
        let mut start = 0;
        for count in &mut ends {
            (*count, start) = (start, start + *count);
        }
        // `ends` holds the starts now, and each moves to its end as its cell fills.
        let mut sorted = vec![0; num_points];
        for (point, cell) in cells.iter().enumerate() {
            let end = &mut ends[*cell as usize];
            sorted[*end as usize] = point as u32;
            *end += 1;
        }
        Self { sorted, ends }
    }

    fn points_of(&self, cell: usize) -> &[u32] {
        let start = cell.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.sorted[start as usize..self.ends[cell] as usize]
    }
}

/// A uniform cell for each point, from a generator that the operating system seeds anew for every block.
fn draw_cells(num_points: usize, num_cells: usize) -> Vec<u16> {
    let mut seed = [0; 32];
    OsRng.fill_bytes(&mut seed);
    let mut rng = ChaCha8Rng::from_seed(seed);
    let mask = u16::try_from(num_cells - 1).expect("at most 2^16 cells");
    let mut cells = vec![0u16; num_points];
    for four in cells.chunks_mut(4) {
        let random = rng.next_u64().to_le_bytes();
        for (cell, bytes) in four.iter_mut().zip(random.chunks_exact(2)) {
            *cell = u16::from_le_bytes([bytes[0], bytes[1]]) & mask;
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use blst::{blst_p1_affine, blst_p2_affine};
    use blstrs::{G1Affine, G1Projective, G2Affine, G2Projective};
    use group::prime::PrimeCurveAffine;

    const NEVER: Stop<'static> = &|| false;

    /// Multiples 1, 2, 3 … of a generator.
    fn multiples<P: RawPoint>(num_points: usize) -> Vec<P> {
        let generator = P::Affine::generator();
        let mut sum = P::Projective::identity();
        let mut projective = Vec::with_capacity(num_points);
        for _ in 0..num_points {
            sum += &generator;
            projective.push(sum);
        }
        projective.chunks(BATCH_POINTS).flat_map(P::normalize).collect()
    }

    /// Two points that deviate from the subgroup by opposite amounts.
    fn opposite_deviations() -> (blst_p1_affine, blst_p1_affine) {
        let mut bytes = [0; 48];
        bytes[0] = 0x80;
        let deviating = (1u8..)
            .find_map(|x| {
                bytes[47] = x;
                let point: Option<G1Affine> = G1Affine::from_compressed_unchecked(&bytes).into();
                point.filter(|point| !bool::from(point.is_torsion_free()))
            })
            .expect("half of all x are on the curve");
        let outside = G1Projective::from(deviating);
        let base = G1Projective::from(G1Affine::generator());
        (
            RawPoint::from_affine(&(base + outside).to_affine()),
            RawPoint::from_affine(&(base - outside).to_affine()),
        )
    }

    #[test]
    fn the_plan_misses_with_at_most_2_to_the_minus_64_and_small_sets_are_checked_singly() {
        assert_eq!(Plan::cheapest(0), Plan::Singly);
        assert_eq!(Plan::cheapest(100), Plan::Singly);
        assert_eq!(Plan::cheapest(10_000_000), Plan::Grid { rounds: 4, bits: 16 });
        for num_points in (0..30).map(|log| 1 << log) {
            if let Plan::Grid { rounds, bits } = Plan::cheapest(num_points) {
                assert!(rounds * bits >= MISS_BITS);
            }
        }
    }

    #[test]
    fn every_point_is_in_exactly_one_cell() {
        let cells = Cells::draw(1000, 256);
        let mut seen: Vec<u32> = (0..256).flat_map(|cell| cells.points_of(cell).to_vec()).collect();
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..1000));
    }

    #[test]
    fn b36_a_round_is_clean_for_subgroup_points_and_finds_lone_and_cancelling_deviations() {
        let (plus, minus) = opposite_deviations();
        let mut points = multiples::<blst_p1_affine>(5_000);
        let odd_bits = 13;
        assert!(round_is_clean(&[&points[..2_000], &points[2_000..]], odd_bits, NEVER));
        points[1_000] = plus;
        assert!(!round_is_clean(&[points.as_slice()], odd_bits, NEVER));
        // In one cell together, once in 2^13, they would not be seen.
        points[4_000] = minus;
        assert!((0..5).any(|_| !round_is_clean(&[points.as_slice()], odd_bits, NEVER)));
        assert!(round_is_clean(&[multiples::<blst_p2_affine>(2_000).as_slice()], 8, NEVER));
    }

    #[test]
    fn b36_sets_of_subgroup_points_pass_and_one_point_outside_is_named() {
        let g1 = multiples::<blst_p1_affine>(40_000);
        assert!(matches!(Plan::cheapest(g1.len()), Plan::Grid { .. }));
        assert_eq!(check(&[g1.as_slice()], NEVER), Ok(()));
        assert_eq!(check(&[&g1[..100], &g1[100..150]], NEVER), Ok(()));
        let (outside, _) = opposite_deviations();
        for index in [0, 12_345, 39_999] {
            let mut bad = g1.clone();
            bad[index] = outside;
            assert_eq!(check(&[bad.as_slice()], NEVER), Err(index));
            assert_eq!(check(&[&bad[..20_000], &bad[20_000..]], NEVER), Err(index));
        }
        let g2 = multiples::<blst_p2_affine>(20_000);
        assert_eq!(check(&[g2.as_slice()], NEVER), Ok(()));
    }

    #[test]
    fn a_stopped_check_does_no_more_rounds() {
        let g1 = multiples::<blst_p1_affine>(40_000);
        let num_asked = std::sync::atomic::AtomicUsize::new(0);
        let is_stopped = || num_asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) >= 3;
        assert!(!round_is_clean(&[g1.as_slice()], 16, &is_stopped));
        let _ = check(&[g1.as_slice()], &is_stopped);
        // One question per row, 256 of them in each of four rounds, if it went on.
        assert!(num_asked.into_inner() < 2 * 256 + 16, "it went on");
    }

    #[test]
    fn b36_deviations_that_cancel_in_the_plain_sum_are_found() {
        let (plus, minus) = opposite_deviations();
        let mut points = multiples::<blst_p1_affine>(40_000);
        points[7] = plus;
        points[30_000] = minus;
        assert_eq!(check(&[points.as_slice()], NEVER), Err(7));
        let mut all: Vec<_> = [plus, minus].repeat(20_000);
        all[0] = points[0];
        assert_eq!(check(&[all.as_slice()], NEVER), Err(1));
    }

    #[test]
    fn additions_that_share_an_inversion_are_right_for_every_pair() {
        let g1 = multiples::<blst_p1_affine>(5);
        let mut points: Vec<G1Affine> = g1.iter().map(|point| point.to_affine()).collect();
        points.extend([-points[0], -points[3], G1Affine::identity()]);
        let pairs: Vec<_> =
            points.iter().flat_map(|left| points.iter().map(move |right| (*left, *right))).collect();
        let (mut sums, addends): (Vec<_>, Vec<_>) = pairs.iter().copied().unzip();
        blst_p1_affine::add_each(&mut sums, &addends);
        for (sum, (left, right)) in sums.into_iter().zip(pairs) {
            assert_eq!(sum, (G1Projective::from(left) + right).to_affine());
        }
        blst_p1_affine::add_each(&mut [], &[]);
    }

    #[test]
    fn batched_sums_are_right_for_equal_and_opposite_points() {
        let g1 = multiples::<blst_p1_affine>(40);
        let sum: G1Projective = g1.iter().map(|point| G1Projective::from(point.to_affine())).sum();
        assert_eq!(blst_p1_affine::sum(&g1), sum);
        assert_eq!(blst_p1_affine::sum(&[g1[0]; 100]), G1Affine::generator() * blstrs::Scalar::from(100));
        let opposite: blst_p1_affine = RawPoint::from_affine(&-g1[3].to_affine());
        assert!(bool::from(blst_p1_affine::sum(&[g1[3], opposite].repeat(50)).is_identity()));
        let g2 = multiples::<blst_p2_affine>(40);
        let sum: G2Projective = g2.iter().map(|point| G2Projective::from(point.to_affine())).sum();
        assert_eq!(blst_p2_affine::sum(&g2), sum);
        assert_eq!(g2[0].to_affine(), G2Affine::generator());
    }
}
