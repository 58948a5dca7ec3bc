//! How a transform is cut into passes, and the order of a quotient's steps on a device. Pure data: the launchers
//! (`cuda/ntt.rs`, `cuda/quotient.rs`) and the tests that run the kernels on the host follow the same lists.

use std::fmt;

/// Largest domain: three passes of nine levels.
pub const MAX_DOMAIN_LOG2: u32 = 27;
/// Elements of a tile: 32 KiB of shared memory, in a block of 128 threads. Twice as large is slower by 4 % (H200,
/// benches/RESULTS.md): fewer blocks of a multiprocessor are then at different steps.
pub const MAX_TILE_LOG2: u32 = 10;
/// A thread holds eight elements in registers.
pub const THREAD_ELEMENTS_LOG2: u32 = 3;
/// Smallest transform that is done in tiles.
pub const MIN_TILED_LOG2: u32 = THREAD_ELEMENTS_LOG2;
/// Twiddles kept as they are, 512 MiB: all of a 2^25 domain's. Of a larger one, the last levels' are products of two: at
/// 2^27 that takes 1.2 ms of 33, and with half the table 1.6 (H200, benches/RESULTS.md).
const MAX_TABLE_LOG2: u32 = 24;
/// Levels done between two exchanges of elements.
const ROUND_LEVELS: u32 = 3;
/// Levels of a pass where there are several: three rounds, and a tile has two columns at least, lines of 64 bytes.
const MAX_PASS_LEVELS: u32 = 9;
const FR_BYTES: u64 = 32;

/// Consecutive levels of a transform that are done in one round trip through memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pass {
    /// Level `l` combines places `2^(domain_log2 - 1 - l)` apart.
    pub first_level: u32,
    /// 3 to 10.
    pub num_levels: u32,
}

/// Entries of a domain's two twiddle tables: every twiddle is a product of one of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableShape {
    pub low_log2: u32,
    pub high_log2: u32,
}

impl TableShape {
    /// Those of a domain of `2^domain_log2`.
    pub fn of(domain_log2: u32) -> Self {
        Self::with_low(domain_log2, MAX_TABLE_LOG2)
    }

    /// With at most `2^max_low_log2` entries that are used as they are.
    fn with_low(domain_log2: u32, max_low_log2: u32) -> Self {
        let low_log2 = domain_log2.saturating_sub(1).min(max_low_log2);
        Self { low_log2, high_log2: domain_log2 - low_log2 }
    }

    pub fn num_entries(self) -> usize {
        (1 << self.low_log2) + (1 << self.high_log2)
    }

    /// Whether a pass needs products of two entries.
    pub fn is_far(self, pass: Pass) -> bool {
        pass.first_level + pass.num_levels - 1 > self.low_log2
    }
}

/// Device bytes of a domain's twiddle tables, exactly.
pub fn domain_table_bytes(domain_log2: u32) -> u64 {
    TableShape::of(domain_log2).num_entries() as u64 * FR_BYTES
}

/// How transforms of one length are done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NttPlan {
    pub domain_log2: u32,
    /// Elements of one tile.
    pub tile_log2: u32,
    /// From natural to bit-reversed order; the other direction takes them from last to first. Empty below
    /// [`MIN_TILED_LOG2`], where one thread does everything.
    pub passes: Vec<Pass>,
    pub table: TableShape,
}

impl NttPlan {
    /// As few passes as possible, of as equal numbers of levels as possible.
    ///
    /// # Panics
    /// Above [`MAX_DOMAIN_LOG2`].
    pub fn of(domain_log2: u32) -> Self {
        assert!(domain_log2 <= MAX_DOMAIN_LOG2, "domain of 2^{domain_log2}, limit 2^{MAX_DOMAIN_LOG2}");
        Self::cut(domain_log2, MAX_TILE_LOG2, &pass_levels(domain_log2), MAX_TABLE_LOG2)
    }

    /// Passes of these many levels, in tiles of at most `2^max_tile_log2` elements, with at most `2^max_low_log2`
    /// twiddles used as they are: what the kernels could do as well. For measurements and tests.
    ///
    /// # Panics
    /// If the kernels could not.
    pub fn cut(domain_log2: u32, max_tile_log2: u32, levels: &[u32], max_low_log2: u32) -> Self {
        let mut first_level = 0;
        let passes = levels
            .iter()
            .map(|&num_levels| {
                first_level += num_levels;
                Pass { first_level: first_level - num_levels, num_levels }
            })
            .collect();
        let tile_log2 = domain_log2.min(max_tile_log2);
        let table = TableShape::with_low(domain_log2, max_low_log2);
        let plan = Self { domain_log2, tile_log2, passes, table };
        assert!(plan.is_possible(), "{plan:?}");
        plan
    }

    /// Whether it keeps to the kernels' limits.
    fn is_possible(&self) -> bool {
        let Self { domain_log2, tile_log2, passes, table } = self;
        if *domain_log2 < MIN_TILED_LOG2 {
            return passes.is_empty();
        }
        let num_levels: u32 = passes.iter().map(|pass| pass.num_levels).sum();
        let fits = |pass: &Pass| {
            // Columns of a tile must lie side by side within a block, unless the rows themselves do.
            let stride_log2 = domain_log2 - pass.first_level - pass.num_levels;
            (ROUND_LEVELS..=*tile_log2).contains(&pass.num_levels)
                && (stride_log2 == 0 || stride_log2 >= tile_log2 - pass.num_levels)
        };
        let ends = [passes.first(), passes.last()].into_iter().flatten();
        // The first pass never multiplies twiddles, and the last one's rows have theirs in the table.
        let has_ends = passes.len() == 1 || ends.into_iter().all(|pass| pass.num_levels <= table.low_log2);
        num_levels == *domain_log2 && *tile_log2 <= MAX_TILE_LOG2 && passes.iter().all(fits) && has_ends
    }
}

fn pass_levels(domain_log2: u32) -> Vec<u32> {
    if domain_log2 < MIN_TILED_LOG2 {
        return Vec::new();
    }
    if domain_log2 <= MAX_TILE_LOG2 {
        return vec![domain_log2];
    }
    let num_passes = domain_log2.div_ceil(MAX_PASS_LEVELS);
    let levels = |pass| domain_log2 / num_passes + u32::from(pass < domain_log2 % num_passes);
    (0..num_passes).map(levels).collect()
}

/// One of the three vectors of a quotient: the rows' values at first, `h` in `B` at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vector {
    A,
    B,
    C,
}

/// The two directions of a transform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Natural order in, bit-reversed order out.
    ToBitReversed,
    /// Bit-reversed order in, natural order out.
    FromBitReversed,
}

/// A step of a quotient: one launch. See `groth16/domain.rs` for the algebra.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// `c = a b` on the rows, and zeros beyond them in all three.
    Products,
    /// A pass and nothing else.
    Pass(Vector, Order, Pass),
    /// A whole transform of fewer than eight values.
    Tiny(Vector, Order),
    /// Coefficients of a polynomial to those of its shift to the coset, in bit-reversed order.
    Shift(Vector),
    /// `a = a b`.
    Multiply,
    /// `b = h` in natural order, from the product's coefficients in `a` and the rows' in `c`.
    Divide,
    /// A first pass to bit-reversed order that takes rows beyond the last as zero; that of `c` makes `c = a b`.
    Rows(Vector, Pass),
    /// The last pass to bit-reversed order, [`Shift`](Self::Shift), and the first pass back.
    TurnAtCoefficients(Vector, Pass),
    /// The last pass of `a` from bit-reversed order, [`Multiply`](Self::Multiply), and the first pass back.
    TurnAtValues(Pass),
    /// The last pass of `c` to bit-reversed order, its part of [`Divide`](Self::Divide) into `b`.
    LastOfRows(Pass),
    /// The last pass of `a` to bit-reversed order, its part of [`Divide`](Self::Divide) added to `b`.
    LastOfProduct(Pass),
}

/// Every step of a quotient, in order.
pub fn quotient_steps(plan: &NttPlan) -> Vec<Step> {
    match plan.passes.as_slice() {
        [first, between @ .., last] => fused_steps(*first, between, *last),
        [] | [_] => separate_steps(plan),
    }
}

/// Six transforms with the pointwise steps between them.
fn separate_steps(plan: &NttPlan) -> Vec<Step> {
    use Order::{FromBitReversed, ToBitReversed};
    let mut steps = vec![Step::Products];
    steps.extend(transform_steps(Vector::C, ToBitReversed, plan));
    for vector in [Vector::A, Vector::B] {
        steps.extend(transform_steps(vector, ToBitReversed, plan));
        steps.push(Step::Shift(vector));
        steps.extend(transform_steps(vector, FromBitReversed, plan));
    }
    steps.push(Step::Multiply);
    steps.extend(transform_steps(Vector::A, ToBitReversed, plan));
    steps.push(Step::Divide);
    steps
}

/// The same with the pointwise steps inside passes, and with two passes in one where a transform ends and the next
/// begins on the same tiles: 15 round trips through memory for three passes per transform, instead of 23.
fn fused_steps(first: Pass, between: &[Pass], last: Pass) -> Vec<Step> {
    use Order::{FromBitReversed, ToBitReversed};
    let to = |vector| between.iter().map(move |pass| Step::Pass(vector, ToBitReversed, *pass));
    let from = |vector| between.iter().rev().map(move |pass| Step::Pass(vector, FromBitReversed, *pass));
    let mut steps = vec![Step::Rows(Vector::C, first)];
    steps.extend(to(Vector::C));
    for vector in [Vector::B, Vector::A] {
        steps.push(Step::Rows(vector, first));
        steps.extend(to(vector));
        steps.push(Step::TurnAtCoefficients(vector, last));
        steps.extend(from(vector));
        if vector == Vector::B {
            steps.push(Step::Pass(vector, FromBitReversed, first));
        }
    }
    steps.push(Step::TurnAtValues(first));
    steps.extend(to(Vector::A));
    steps.extend([Step::LastOfRows(last), Step::LastOfProduct(last)]);
    steps
}

/// The steps of one transform.
pub fn transform_steps(vector: Vector, order: Order, plan: &NttPlan) -> Vec<Step> {
    if plan.passes.is_empty() && plan.domain_log2 > 0 {
        return vec![Step::Tiny(vector, order)];
    }
    let steps = plan.passes.iter().map(|pass| Step::Pass(vector, order, *pass));
    match order {
        Order::ToBitReversed => steps.collect(),
        Order::FromBitReversed => steps.rev().collect(),
    }
}

impl fmt::Display for Vector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::A => "a",
            Self::B => "b",
            Self::C => "c",
        })
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ToBitReversed => "to",
            Self::FromBitReversed => "from",
        })
    }
}

/// `pass:a:to:0:9`: the words of `kernels/host/ntt_harness.cpp`.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Products => f.write_str("products"),
            Self::Pass(vector, order, pass) => {
                write!(f, "pass:{vector}:{order}:{}:{}", pass.first_level, pass.num_levels)
            }
            Self::Tiny(vector, order) => write!(f, "tiny:{vector}:{order}"),
            Self::Shift(vector) => write!(f, "shift:{vector}"),
            Self::Multiply => f.write_str("multiply"),
            Self::Divide => f.write_str("divide"),
            Self::Rows(vector, pass) => write!(f, "rows:{vector}:{}", pass.num_levels),
            Self::TurnAtCoefficients(vector, pass) => write!(f, "turn:{vector}:{}", pass.first_level),
            Self::TurnAtValues(pass) => write!(f, "turn_values:{}", pass.num_levels),
            Self::LastOfRows(pass) => write!(f, "last_of_rows:{}", pass.first_level),
            Self::LastOfProduct(pass) => write!(f, "last_of_product:{}", pass.first_level),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels(plan: &NttPlan) -> Vec<u32> {
        plan.passes.iter().map(|pass| pass.num_levels).collect()
    }

    #[test]
    fn every_length_has_a_plan_within_the_kernels_limits() {
        for domain_log2 in 0..=MAX_DOMAIN_LOG2 {
            // `of` asserts that it is possible.
            let plan = NttPlan::of(domain_log2);
            let is_single = plan.passes.len() <= 1;
            assert_eq!(is_single, domain_log2 <= MAX_TILE_LOG2);
            for pass in &plan.passes {
                assert!(is_single || pass.num_levels <= 9, "lines of fewer than 64 bytes: {pass:?}");
            }
        }
        assert_eq!(levels(&NttPlan::of(27)), [9, 9, 9]);
        assert_eq!(levels(&NttPlan::of(24)), [8, 8, 8]);
        assert_eq!(levels(&NttPlan::of(22)), [8, 7, 7]);
        assert_eq!(levels(&NttPlan::of(11)), [6, 5]);
    }

    #[test]
    fn impossible_cuts_are_told() {
        // Levels missing; a pass of two; one beyond its tile; columns of a tile in several blocks; a short table.
        for (tile_log2, levels, low_log2) in [
            (10, &[6, 6][..], 12),
            (10, &[11, 2], 12),
            (8, &[9, 4], 12),
            (10, &[4, 6, 3], 12),
            (10, &[7, 6], 5),
        ] {
            let cut = std::panic::catch_unwind(|| NttPlan::cut(13, tile_log2, levels, low_log2));
            assert!(cut.is_err(), "{levels:?} in 2^{tile_log2}, table of 2^{low_log2}");
        }
    }

    #[test]
    fn tables_reach_every_twiddle() {
        for domain_log2 in 0..=MAX_DOMAIN_LOG2 {
            let plan = NttPlan::of(domain_log2);
            // Shifting to the coset uses 2^domain_log2 twiddles, the last level half as many.
            assert_eq!(plan.table.low_log2 + plan.table.high_log2, domain_log2);
            let far = plan.passes.iter().any(|pass| plan.table.is_far(*pass));
            assert_eq!(far, domain_log2 > MAX_TABLE_LOG2 + 1, "2^{domain_log2}");
        }
        assert_eq!(domain_table_bytes(20), 32 * ((1 << 19) + 2));
        assert_eq!(domain_table_bytes(27), 32 * ((1 << 24) + (1 << 3)));
    }
}
