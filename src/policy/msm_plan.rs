//! How a multi-exponentiation on a device is cut up: windows, buckets, segments; the sizes of all it allocates.
//!
//! The launcher (`src/cuda/msm.rs`) allocates and launches by these numbers, so that what is planned is what is used.
//!
//! A scalar is 254 bits and a sign (`kernels/math/digits.cuh`), cut into windows of signed digits whose widths sum to
//! 255 bits and differ by one at most, wide windows first. A window of w bits has 2^(w-1) buckets.

use std::ops::Range;

/// Bits of all windows together.
const SCALAR_BITS: u32 = 255;
pub const MIN_WINDOW_BITS: u32 = 4;
/// Eleven windows; 54.5 M buckets, 10.5 GB in G1.
pub const MAX_WINDOW_BITS: u32 = 24;

/// Terms (non-zero digits) of one [`MsmPlan`] chunk are counted in 32 bits; the rest is room for rounding up.
const MAX_TERMS: u64 = (1 << 32) - (1 << 20);
/// Points of a chunk are numbered in 31 bits, beside a sign.
const MAX_CHUNK_POINTS: u64 = 1 << 31;

/// Most shares that the terms are divided into. More than [`ACCUMULATE_ROUNDS`] times any device's threads at work at a
/// time (H200: 50,688 in G1), since a share costs two slots and gains nothing beyond that.
const MAX_SEGMENTS: u64 = 1 << 18;
/// Blocks that follow each other on a multiprocessor where there is work for so many: its warps do not end together, and
/// the last one alone leaves the multiplier idle. Four take 8 % less time than one (H200, benches/RESULTS.md).
const ACCUMULATE_ROUNDS: u64 = 4;
/// `MIN_SEGMENT` of `kernels/math/msm_accumulate.cuh`.
const MIN_SEGMENT: u64 = 16;
/// `ACCUMULATE_THREADS` there.
pub const ACCUMULATE_THREADS: u32 = 128;
/// `MERGE_THREADS` there: slots that one block merges into two.
pub const MERGE_THREADS: u64 = 64;
/// `PAIR_THREADS` of `kernels/math/msm_affine.cuh`.
pub const PAIR_THREADS: u32 = 32;
/// `MAX_PAIRS` there.
const MAX_PAIRS: u64 = 256;
/// Least terms of a sum with affine additions. In G1 they gain a twentieth at 2^26 terms and nothing at 2^24, in G2 a
/// quarter at 2^24 (benches/RESULTS.md).
const MIN_AFFINE_TERMS_G1: u64 = 1 << 25;
const MIN_AFFINE_TERMS_G2: u64 = 1 << 22;
/// Terms that go through the affine levels together, about: enough for ten rounds of an H200's threads, and 4.6 GB of
/// points in G1.
const AFFINE_TERMS: u64 = 1 << 26;
const MAX_AFFINE_LEVELS: u32 = 6;
/// `SCAN_TILE` of `kernels/math/msm_scan.cuh`.
pub const SCAN_TILE: u64 = 2048;
/// `PARTITION_BUCKETS` of `kernels/msm_sort.cu`.
const PARTITION_BUCKETS: u64 = 2048;
/// A term on its way to its bucket.
pub const RECORD_BYTES: u64 = 8;
/// Groups of buckets that the first step of the reduction makes at least, as far as there are buckets: about the
/// threads of a large device.
const MIN_GROUPS_LOG2: u32 = 15;
const MIN_GROUP_LOG2: u32 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Group {
    G1,
    G2,
}

impl Group {
    /// An affine point.
    pub fn point_bytes(self) -> u64 {
        match self {
            Group::G1 => 96,
            Group::G2 => 192,
        }
    }

    /// A sum in XYZZ coordinates: a bucket, a slot.
    pub fn sum_bytes(self) -> u64 {
        2 * self.point_bytes()
    }

    /// A window's sum in Jacobian coordinates.
    pub fn window_sum_bytes(self) -> u64 {
        self.point_bytes() / 2 * 3
    }

    /// Lanes that hold one sum while terms are added.
    pub fn lanes_per_segment(self) -> u32 {
        match self {
            Group::G1 => 1,
            Group::G2 => 2,
        }
    }
}

/// A sum of points times scalars, of which at most `chunk_points` are added at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MsmPlan {
    pub group: Group,
    pub chunk_points: u64,
    /// Width of the widest windows at most, [`MIN_WINDOW_BITS`] to [`MAX_WINDOW_BITS`]. The fewest windows of that
    /// width are made, then as narrow as their number allows: 21 is the same as 20.
    pub window_bits: u32,
    /// How often the runs of a bucket's terms are halved by affine additions before what is left is accumulated.
    pub affine_levels: u32,
}

/// Device memory of one sum, by what it holds. In bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MsmBytes {
    pub buckets: u64,
    /// Where each bucket's and each partition's terms begin, and sums of it.
    pub offsets: u64,
    /// A digit, which becomes an entry, and a record for each point and window: 12 bytes.
    pub terms: u64,
    /// What affine additions make: points, and where each bucket's begin.
    pub affine: u64,
    /// Partial sums at the borders of segments, with their keys.
    pub slots: u64,
    pub reduction: u64,
}

impl MsmPlan {
    /// A plan with as many affine levels as make it fast for scalars of all sizes, if there is memory for them.
    pub fn new(group: Group, chunk_points: u64, window_bits: u32) -> Self {
        let plan = Self { group, chunk_points, window_bits, affine_levels: 0 };
        Self { affine_levels: plan.best_affine_levels(), ..plan }
    }

    /// The same sum in the least memory: every term is accumulated by itself.
    pub fn without_affine(self) -> Self {
        Self { affine_levels: 0, ..self }
    }

    /// Halvings until a bucket has two or three terms of uniform scalars (in G1, where they gain less: four to six); none
    /// where terms are so few that devices are not kept busy by them.
    fn best_affine_levels(&self) -> u32 {
        let (least_terms, left_log2) = match self.group {
            Group::G1 => (MIN_AFFINE_TERMS_G1, 2),
            Group::G2 => (MIN_AFFINE_TERMS_G2, 1),
        };
        if self.max_terms() < least_terms {
            return 0;
        }
        let terms_per_bucket = self.max_terms() / self.total_buckets();
        terms_per_bucket.checked_ilog2().unwrap_or(0).saturating_sub(left_log2).min(MAX_AFFINE_LEVELS)
    }

    pub fn num_windows(&self) -> u32 {
        SCALAR_BITS.div_ceil(self.window_bits)
    }

    /// Windows that have one bit more than the others. They come first.
    pub fn num_wide(&self) -> u32 {
        SCALAR_BITS % self.num_windows()
    }

    pub fn narrow_bits(&self) -> u32 {
        SCALAR_BITS / self.num_windows()
    }

    /// Bits of window `index`, counted from the lowest.
    pub fn width(&self, index: u32) -> u32 {
        self.narrow_bits() + u32::from(index < self.num_wide())
    }

    /// Per window, in the widest.
    pub fn num_buckets(&self) -> u64 {
        1 << (self.width(0) - 1)
    }

    /// In all windows together.
    pub fn total_buckets(&self) -> u64 {
        u64::from(self.num_windows() + self.num_wide()) << (self.narrow_bits() - 1)
    }

    /// The first bucket of window `index`, or the number of all of them for the one after the last.
    pub fn first_bucket(&self, index: u32) -> u64 {
        u64::from(index + index.min(self.num_wide())) << (self.narrow_bits() - 1)
    }

    /// Non-zero digits of a chunk at most.
    pub fn max_terms(&self) -> u64 {
        self.chunk_points.saturating_mul(self.num_windows().into())
    }

    /// Whether the widths and counts are such as the kernels can number.
    pub fn is_possible(&self) -> bool {
        (MIN_WINDOW_BITS..=MAX_WINDOW_BITS).contains(&self.window_bits)
            && self.chunk_points <= MAX_CHUNK_POINTS
            && self.max_terms() <= MAX_TERMS
    }

    /// The most points of a chunk for windows of this width.
    pub fn max_chunk_points(window_bits: u32) -> u64 {
        (MAX_TERMS / u64::from(SCALAR_BITS.div_ceil(window_bits))).min(MAX_CHUNK_POINTS)
    }

    /// Segments that one block of the accumulating kernel takes.
    pub fn segments_per_block(&self) -> u64 {
        (ACCUMULATE_THREADS / self.group.lanes_per_segment()).into()
    }

    /// Blocks of the accumulating kernel, of equal shares, for `num_terms` terms on a device that runs `resident_blocks`
    /// at a time.
    pub fn accumulate_blocks(&self, num_terms: u64, resident_blocks: u64) -> u64 {
        let useful = num_terms.div_ceil(MIN_SEGMENT).div_ceil(self.segments_per_block());
        useful
            .min(ACCUMULATE_ROUNDS.saturating_mul(resident_blocks))
            .clamp(1, MAX_SEGMENTS / self.segments_per_block())
    }

    /// Slots of the lists that are merged one into the next, for this many accumulating blocks: the last is merged by
    /// one block.
    pub fn slot_lists(&self, accumulate_blocks: u64) -> Vec<u64> {
        let first = 2 * accumulate_blocks * self.segments_per_block();
        let next = |slots: &u64| (*slots > MERGE_THREADS).then(|| 2 * slots.div_ceil(MERGE_THREADS));
        std::iter::successors(Some(first), next).collect()
    }

    /// Slots of all lists together at most; merging the last list writes two more keys.
    pub fn max_slots(&self) -> u64 {
        let blocks = self.accumulate_blocks(self.max_terms(), u64::MAX);
        self.slot_lists(blocks).iter().sum::<u64>() + 2
    }

    /// Buckets of a group in the reduction's first step, log2.
    pub fn group_log2(&self) -> u32 {
        let buckets_log2 = self.total_buckets().ilog2();
        buckets_log2.saturating_sub(MIN_GROUPS_LOG2).clamp(MIN_GROUP_LOG2, self.narrow_bits() - 1)
    }

    pub fn num_groups(&self) -> u64 {
        self.total_buckets() >> self.group_log2()
    }

    /// Steps of the reduction that join nodes by twos, until a narrow window is one and a wide one two. A node is at
    /// first a group.
    pub fn join_levels(&self) -> u32 {
        self.narrow_bits() - 1 - self.group_log2()
    }

    /// Sums that make up the nodes after `level` joins.
    pub fn num_parts(&self, level: u32) -> u64 {
        u64::from(2 + level) * (self.num_groups() >> level)
    }

    /// Sums in the two arrays that the joins go back and forth between: nodes get fewer faster than their parts get more.
    pub fn part_arrays(&self) -> [u64; 2] {
        let joined = if self.join_levels() == 0 { 0 } else { self.num_parts(1) };
        [self.num_parts(0), joined]
    }

    /// The windows whose terms are halved and accumulated together: ranges of their numbers, in order. Their buckets and
    /// terms are neighbours. One range of all if there are no affine levels.
    pub fn window_ranges(&self) -> Vec<Range<u32>> {
        let num_windows = self.num_windows();
        let per_range = if self.affine_levels == 0 {
            num_windows
        } else {
            let most = (AFFINE_TERMS / self.chunk_points.max(1)).clamp(1, num_windows.into()) as u32;
            // As equal as possible.
            num_windows.div_ceil(num_windows.div_ceil(most))
        };
        let starts = (0..num_windows).step_by(per_range as usize);
        starts.map(|start| start..(start + per_range).min(num_windows)).collect()
    }

    /// Points that `level` halvings (at least one) leave of the terms of the widest range of windows at most, and what
    /// fills the last step of a warp: points lie in rows of a step.
    pub fn max_halved(&self, level: u32) -> u64 {
        if level > self.affine_levels {
            return 0;
        }
        let ranges = self.window_ranges();
        let halved = ranges.iter().map(|range| self.halved(range, self.chunk_points, level));
        halved.max().unwrap_or(0).next_multiple_of(PAIR_THREADS.into())
    }

    /// Points that `level` halvings leave of `num_points` points' terms in these windows at most.
    pub fn halved(&self, windows: &Range<u32>, num_points: u64, level: u32) -> u64 {
        let buckets = self.first_bucket(windows.end) - self.first_bucket(windows.start);
        let terms = num_points * u64::from(windows.end - windows.start);
        (0..level).fold(terms, |items, _| halved_items(items, buckets))
    }

    /// Blocks of the pair-adding kernel for `num_results` results at most, in whole rounds of `resident_blocks` at a
    /// time. The kernel divides what there is evenly.
    pub fn pair_blocks(&self, num_results: u64, resident_blocks: u64) -> u64 {
        let per_block = MAX_PAIRS * u64::from(PAIR_THREADS / self.group.lanes_per_segment());
        num_results.div_ceil(per_block).div_ceil(resident_blocks).max(1) * resident_blocks
    }

    /// Partitions that terms are sorted into first, each of neighbouring buckets.
    pub fn num_partitions(&self) -> u64 {
        self.total_buckets().div_ceil(PARTITION_BUCKETS)
    }

    pub fn num_tiles(&self) -> u64 {
        (self.total_buckets() + 1).div_ceil(SCAN_TILE)
    }

    pub fn bytes_by_use(&self) -> MsmBytes {
        let (sum_bytes, word) = (self.group.sum_bytes(), 4);
        let window_sums = u64::from(self.num_windows()) * self.group.window_sum_bytes();
        MsmBytes {
            buckets: self.total_buckets() * sum_bytes,
            offsets: (self.total_buckets() + 1 + self.num_partitions() + 1 + self.num_tiles()) * word,
            terms: self.max_terms().saturating_mul(word + RECORD_BYTES),
            affine: (self.max_halved(1) + self.max_halved(2)) * self.group.point_bytes()
                + u64::from(self.affine_levels) * (self.total_buckets() + 1) * word,
            slots: self.max_slots() * (sum_bytes + word),
            reduction: self.part_arrays().iter().sum::<u64>() * sum_bytes + window_sums,
        }
    }

    /// Of it what a sum keeps between two chunks: buckets, and room for its result. Sums of the same plan that take their
    /// chunks in turns, in one stream, have a set of these each and the rest in common.
    pub fn kept_bytes(&self) -> u64 {
        let window_sums = u64::from(self.num_windows()) * self.group.window_sum_bytes();
        self.total_buckets() * self.group.sum_bytes() + window_sums
    }

    /// Of it what is of use within a chunk alone, or at the end.
    pub fn scratch_bytes(&self) -> u64 {
        self.bytes().saturating_sub(self.kept_bytes())
    }

    /// All device memory of a sum, from its beginning to its end.
    pub fn bytes(&self) -> u64 {
        let MsmBytes { buckets, offsets, terms, affine, slots, reduction } = self.bytes_by_use();
        [buckets, offsets, affine, slots, reduction].iter().sum::<u64>().saturating_add(terms)
    }
}

/// Points that halving the runs of so many items in so many buckets leaves at most: half as many, and half a point for
/// each run of odd length.
fn halved_items(items: u64, buckets: u64) -> u64 {
    (items + items.min(buckets)) / 2
}

/// Time of a bucket over that of a term, in halves, with affine levels on an H200. A bucket costs its part of the reduction
/// and what the levels leave of runs of odd length. In G1: 2^24 points take 91.1 ms in 13 windows and 89.3 ms in 14, which
/// have 17 M terms more and 3.3 M buckets fewer; 2^26 points 332 ms in 12 and 325 ms in 13. In G2: 29 ms for the reduction
/// of 6.8 M buckets, 236 ms for 218 M terms.
const BUCKET_PER_TERM_HALVES: [u64; 2] = [14, 12];

/// The width with the least work for this many points.
pub fn best_window_bits(group: Group, num_points: u64) -> u32 {
    let bucket_halves = BUCKET_PER_TERM_HALVES[group as usize];
    let work = |&window_bits: &u32| {
        let plan = MsmPlan { group, chunk_points: num_points, window_bits, affine_levels: 0 };
        plan.max_terms().saturating_mul(2).saturating_add(plan.total_buckets() * bucket_halves)
    };
    (MIN_WINDOW_BITS..=MAX_WINDOW_BITS).min_by_key(work).expect("the range is not empty")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_plan() -> impl Strategy<Value = MsmPlan> {
        let group = prop_oneof![Just(Group::G1), Just(Group::G2)];
        (group, 0u64..1 << 27, MIN_WINDOW_BITS..=MAX_WINDOW_BITS, any::<bool>())
            .prop_map(|(group, chunk_points, window_bits, is_small)| {
                let plan = MsmPlan::new(group, chunk_points, window_bits);
                if is_small {
                    plan.without_affine()
                } else {
                    plan
                }
            })
            .prop_filter("possible", MsmPlan::is_possible)
    }

    proptest! {
        #[test]
        fn windows_cover_the_scalar_exactly(plan in any_plan()) {
            let widths = (0..plan.num_windows()).map(|index| plan.width(index));
            prop_assert_eq!(widths.clone().sum::<u32>(), SCALAR_BITS);
            prop_assert!(widths.clone().all(|width| width <= plan.window_bits));
            let buckets: u64 = widths.map(|width| 1u64 << (width - 1)).sum();
            prop_assert_eq!(buckets, plan.total_buckets());
            prop_assert!(plan.total_buckets() < 1 << 31);
        }

        #[test]
        fn slot_lists_shrink_to_one_block_and_fit(plan in any_plan(), resident in 1u64..5000, terms in 0u64..1 << 32) {
            let terms = terms.min(plan.max_terms());
            let lists = plan.slot_lists(plan.accumulate_blocks(terms, resident));
            prop_assert!(*lists.last().unwrap() <= MERGE_THREADS);
            prop_assert!(lists.windows(2).all(|pair| pair[1] < pair[0]));
            prop_assert!(lists.iter().sum::<u64>() + 2 <= plan.max_slots());
        }

        #[test]
        fn window_ranges_cover_all_buckets(plan in any_plan()) {
            let ranges = plan.window_ranges();
            prop_assert_eq!(ranges[0].start, 0);
            prop_assert_eq!(ranges.last().unwrap().end, plan.num_windows());
            prop_assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start));
            prop_assert_eq!(plan.first_bucket(plan.num_windows()), plan.total_buckets());
            let widths: u64 = (0..plan.num_windows() / 2).map(|index| 1u64 << (plan.width(index) - 1)).sum();
            prop_assert_eq!(plan.first_bucket(plan.num_windows() / 2), widths);
        }

        #[test]
        fn halved_runs_fit(plan in any_plan(), lengths in prop::collection::vec(0u64..9, 1..60), level in 1u32..5) {
            // Any runs at all, as those of a plan with as many buckets and terms.
            let halve = |lengths: &[u64]| lengths.iter().map(|length| length.div_ceil(2)).collect::<Vec<u64>>();
            let runs = (0..level).fold(lengths.clone(), |lengths, _| halve(&lengths));
            let (buckets, terms) = (lengths.len() as u64, lengths.iter().sum::<u64>());
            let bound = (0..level).fold(terms, |items, _| halved_items(items, buckets));
            prop_assert!(runs.iter().sum::<u64>() <= bound);
            prop_assert!(plan.max_halved(level + 1) <= plan.max_halved(level));
            // Whole steps of a warp.
            prop_assert_eq!(plan.max_halved(level) % u64::from(PAIR_THREADS), 0);
        }

        #[test]
        fn groups_join_to_narrow_windows(plan in any_plan()) {
            let nodes = plan.num_parts(plan.join_levels()) / u64::from(2 + plan.join_levels());
            prop_assert_eq!(nodes, u64::from(plan.num_windows() + plan.num_wide()));
            for level in 0..=plan.join_levels() {
                prop_assert!(plan.num_parts(level) <= plan.part_arrays()[level as usize % 2]);
            }
            prop_assert_eq!(plan.num_groups() << plan.group_log2(), plan.total_buckets());
        }

        #[test]
        fn more_points_never_want_narrower_windows(points in 1u64..1 << 27) {
            prop_assert!(best_window_bits(Group::G1, points) <= best_window_bits(Group::G1, 2 * points));
        }
    }

    #[test]
    fn widths_for_known_sizes() {
        let plan = |log2: u32, window_bits| MsmPlan::new(Group::G1, 1 << log2, window_bits);
        // Twelve windows of 21 and 22 bits: 15.7 M buckets where uniform ones would have 25.2 M.
        let wide = plan(27, 22);
        assert_eq!((wide.num_windows(), wide.num_wide(), wide.narrow_bits()), (12, 3, 21));
        assert_eq!(wide.total_buckets(), 3 * (1 << 21) + 9 * (1 << 20));
        assert_eq!(plan(24, 21).total_buckets(), plan(24, 20).total_buckets());
        assert_eq!(best_window_bits(Group::G1, 1 << 24), 19);
        assert_eq!(best_window_bits(Group::G1, 1 << 26), 20);
        assert_eq!(best_window_bits(Group::G1, 1 << 27), 22);
        assert_eq!(MsmPlan::max_chunk_points(22), ((1 << 32) - (1 << 20)) / 12);
        assert!(plan(27, 22).is_possible() && !plan(29, 22).is_possible() && !plan(10, 25).is_possible());
    }
}
