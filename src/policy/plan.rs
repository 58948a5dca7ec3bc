//! How one partition is proved within a memory budget: what stays resident, what is streamed, in which portions.
//!
//! It is what the CUDA backend allocates, to the byte; a stage frees what later ones do not need. Sizes in bytes; group
//! elements are affine in Montgomery form (96 B in G1, 192 B in G2), scalars 32 B, and each point of A and B comes with
//! the number of its variable (4 B).
//!
//! Row values are computed on the device if the circuit's shape is resident there and the packed witness has room beside
//! them; else by the host, which copies them.
//!
//! ```text
//! stage      working memory
//! upload     witness + two vectors of the domain's size (row values a, b; c is their product)
//!            + where the device evaluates: the witness packed
//! evaluate   the same
//! quotient   held + three vectors of the domain's size + the domain's tables, in either basis
//! sum_h      held + quotient + sum(h)
//! sum_l      witness + sum(l) + where the device evaluates: the witness packed, of which the scalars are made anew
//! sum_x      witness + sum(x)                    for a, b_g1, b_g2
//! assemble   nothing
//!
//! held       the witness packed where the device evaluates; else its scalars
//! sum(q)     MsmPlan::bytes(window, chunk) + (q resident ? 0 : two chunks of points, at most all of q)
//! ```

use crate::backend::Stage;
use crate::error::PlanError;
use crate::groth16::domain::{lagrange_quotient_bytes, quotient_bytes};
use crate::groth16::srs::QuotientBasis;
use crate::groth16::{R1csShape, Srs};
use crate::policy::msm_plan::{best_window_bits, Group, MsmPlan, MIN_WINDOW_BITS};
use crate::policy::ntt_plan::domain_table_bytes;

const SCALAR_BYTES: u64 = 32;
/// Of 64 bits of a packed witness.
const WORD_BYTES: u64 = 8;
/// Affine, as in `Srs`.
const G1_POINT_BYTES: u64 = 96;
const G2_POINT_BYTES: u64 = 192;
/// The variable of a point of A or B.
const INDEX_BYTES: u64 = 4;

/// A shape that is an eighth of what sums could take beyond the least is worth more than that to them.
const SPARE_PER_SHAPE: u64 = 8;
/// Fewest points of a chunk. Smaller ones are all launch overhead.
const MIN_CHUNK_POINTS: u64 = 1 << 10;
/// Most points that are added at a time: more no longer make the buckets' share smaller in a way that shows.
pub(super) const MAX_CHUNK_POINTS: u64 = 1 << 26;
/// Most points that are streamed at a time: larger chunks no longer hide more of the transfer.
pub(super) const MAX_STREAMED_CHUNK_POINTS: u64 = 1 << 24;

/// One of an SRS's queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Query {
    H,
    L,
    A,
    BG1,
    BG2,
}

impl Query {
    /// In the order in which room is given to them: `h` is by far the longest, and the others' witness is small
    /// enough that several partitions can share one pass over them ([`crate::policy::shared_pass`]).
    pub const ALL: [Query; 5] = [Query::H, Query::L, Query::A, Query::BG1, Query::BG2];

    pub fn stage(self) -> Stage {
        match self {
            Query::H => Stage::SumH,
            Query::L => Stage::SumL,
            Query::A => Stage::SumA,
            Query::BG1 => Stage::SumBG1,
            Query::BG2 => Stage::SumBG2,
        }
    }

    /// The query that a stage sums up, if it is one of sums.
    pub fn of_stage(stage: Stage) -> Option<Self> {
        Self::ALL.into_iter().find(|query| query.stage() == stage)
    }

    pub(super) fn point_bytes(self) -> u64 {
        match self {
            Query::H | Query::L => G1_POINT_BYTES,
            Query::A | Query::BG1 => G1_POINT_BYTES + INDEX_BYTES,
            Query::BG2 => G2_POINT_BYTES + INDEX_BYTES,
        }
    }

    pub fn group(self) -> Group {
        match self {
            Query::BG2 => Group::G2,
            Query::H | Query::L | Query::A | Query::BG1 => Group::G1,
        }
    }
}

/// A set of queries, and whether the shape is with them: what of a circuit is on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct QuerySet(u8);

/// Its place behind the queries.
const SHAPE_BIT: u8 = 1 << Query::ALL.len();

impl QuerySet {
    pub const NONE: QuerySet = QuerySet(0);
    /// The shape alone.
    pub const SHAPE: QuerySet = QuerySet(SHAPE_BIT);

    pub fn has_shape(self) -> bool {
        self.0 & SHAPE_BIT != 0
    }

    pub fn contains(self, query: Query) -> bool {
        self.0 >> (query as u8) & 1 == 1
    }

    #[must_use]
    pub fn with(self, query: Query) -> Self {
        Self(self.0 | 1 << (query as u8))
    }

    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Neither queries nor the shape.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The queries, without the shape.
    pub fn iter(self) -> impl Iterator<Item = Query> {
        Query::ALL.into_iter().filter(move |query| self.contains(*query))
    }
}

/// What of a circuit's shape decides its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ShapeSummary {
    pub domain_log2: u32,
    /// Rows, the input rows included: at most `2^domain_log2`.
    pub num_rows: u64,
    /// The leading one included.
    pub num_inputs: u64,
    pub num_aux: u64,
    /// `None`: the rows are the host's business. So it is where the shape is not known yet, only its counts.
    pub evaluation: Option<EvaluationSummary>,
}

/// What of a shape decides the memory of its evaluation on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EvaluationSummary {
    /// Of the shape itself: [`crate::groth16::shape::ImageLayout::num_bytes`].
    pub shape_bytes: u64,
    /// Variables whose values travel as scalars.
    pub num_dense: u64,
}

impl EvaluationSummary {
    /// Of a circuit of which both are known; `None`: the host evaluates.
    pub fn known(num_dense: Option<u64>, shape_bytes: Option<u64>) -> Option<Self> {
        Some(Self { shape_bytes: shape_bytes?, num_dense: num_dense? })
    }
}

impl ShapeSummary {
    pub fn of(shape: &R1csShape) -> Self {
        Self {
            domain_log2: shape.domain_log2(),
            num_rows: shape.num_rows() as u64,
            num_inputs: shape.num_inputs() as u64,
            num_aux: shape.num_aux() as u64,
            evaluation: Some(EvaluationSummary {
                shape_bytes: shape.image_layout().num_bytes() as u64,
                num_dense: shape.classes().num_dense() as u64,
            }),
        }
    }

    /// Device memory that the shape occupies; 0 where it never does.
    pub fn shape_bytes(&self) -> u64 {
        self.evaluation.map_or(0, |evaluation| evaluation.shape_bytes)
    }

    /// Inputs, bits and dense values on the device.
    pub(super) fn packed_bytes(&self) -> u64 {
        let num_dense = self.evaluation.map_or(0, |evaluation| evaluation.num_dense);
        SCALAR_BYTES * (self.num_inputs + num_dense) + WORD_BYTES * self.num_aux.div_ceil(64)
    }

    /// On the device, where each variable has its scalar.
    pub(super) fn witness_bytes(&self) -> u64 {
        SCALAR_BYTES * (self.num_inputs + self.num_aux)
    }

    /// One vector of the domain's size.
    fn vector_bytes(&self) -> u64 {
        SCALAR_BYTES << self.domain_log2
    }
}

/// What of an SRS decides its memory: points per query, and where they lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SrsSummary {
    num_points: [u64; 5],
    /// Decides the host's memory for the quotient; on a device it takes three vectors either way.
    basis: QuotientBasis,
    /// Queries and witness are read where the host holds them: nothing is copied, nothing is charged.
    in_place: bool,
}

impl SrsSummary {
    /// Points of `h`, `l`, `a`, `b_g1`, `b_g2`, to be copied to the device.
    pub fn new(num_points: [u64; 5]) -> Self {
        Self { num_points, basis: QuotientBasis::Coefficients, in_place: false }
    }

    /// The same of a key that is used in this basis, with its numbers of points.
    #[must_use]
    pub fn in_basis(mut self, basis: QuotientBasis) -> Self {
        self.basis = basis;
        self
    }

    pub fn of(srs: &Srs) -> Self {
        let num_points = [srs.h.len(), srs.l.len(), srs.a.len(), srs.b_g1.len(), srs.b_g2.len()];
        Self::new(num_points.map(|len| len as u64)).in_basis(srs.basis)
    }

    /// The same for a device that reads host memory.
    #[must_use]
    pub fn in_place(mut self) -> Self {
        self.in_place = true;
        self
    }

    pub fn num_points(&self, query: Query) -> u64 {
        self.num_points[query as usize]
    }

    fn query_bytes(&self, query: Query) -> u64 {
        if self.in_place {
            0
        } else {
            self.num_points(query) * query.point_bytes()
        }
    }

    /// Device memory the given queries occupy, without the shape.
    pub fn resident_bytes(&self, queries: QuerySet) -> u64 {
        queries.iter().map(|query| self.query_bytes(query)).sum()
    }
}

/// Host memory that the quotient is computed in.
pub fn host_quotient_bytes(basis: QuotientBasis, domain_log2: u32) -> u64 {
    match basis {
        QuotientBasis::Coefficients => quotient_bytes(domain_log2),
        QuotientBasis::Lagrange => lagrange_quotient_bytes(domain_log2),
    }
}

/// Device memory that all of a set occupies.
pub fn resident_bytes(shape: &ShapeSummary, srs: &SrsSummary, resident: QuerySet) -> u64 {
    let shape_bytes = if resident.has_shape() && !srs.in_place { shape.shape_bytes() } else { 0 };
    shape_bytes + srs.resident_bytes(resident)
}

/// Where row values are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evaluation {
    /// By the host, which copies them to the device.
    Host,
    /// On the device, from the resident shape and the packed witness.
    Device,
}

/// How one query's sum is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SumPlan {
    /// Bits of one window.
    pub window_bits: u32,
    /// Points taken at a time.
    pub chunk_points: u64,
    /// Halvings by affine additions, which take memory; 0: none.
    pub affine_levels: u32,
    /// The points of each chunk are copied to the device when it is their turn.
    pub streamed: bool,
}

impl SumPlan {
    /// The sum itself, without the points.
    pub fn msm(&self, query: Query) -> MsmPlan {
        let Self { chunk_points, window_bits, affine_levels, .. } = *self;
        MsmPlan { group: query.group(), chunk_points, window_bits, affine_levels }
    }

    /// The same sum in less memory.
    #[must_use]
    fn without_affine(self) -> Self {
        Self { affine_levels: 0, ..self }
    }

    /// The same sum when only `num_dense` of its scalars are neither 0 nor 1: with windows that suit these, in no more
    /// memory. Narrower windows have fewer buckets to add up, but more digits per scalar, so chunks may get smaller.
    #[must_use]
    pub fn for_dense_scalars(&self, query: Query, num_dense: u64) -> Self {
        let best = best_window_bits(query.group(), num_dense);
        let window_bits = best.clamp(MIN_WINDOW_BITS, self.window_bits);
        let limit_bytes = self.msm(query).bytes();
        // Among bits there are too few terms per bucket for affine additions to pay, but for one bucket.
        let has_many = num_dense >= self.chunk_points / 4;
        let affine_levels = if has_many { self.affine_levels } else { 0 };
        let mut sum = Self { window_bits, affine_levels, ..*self };
        while sum.msm(query).bytes() > limit_bytes || !sum.msm(query).is_possible() {
            if sum.chunk_points <= MIN_CHUNK_POINTS {
                return *self;
            }
            sum.chunk_points = sum.chunk_points / 8 * 7;
        }
        sum
    }
}

/// How one partition is proved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProvePlan {
    /// Queries that are on the device, all of the time, and the shape.
    pub resident: QuerySet,
    pub resident_bytes: u64,
    pub evaluation: Evaluation,
    /// Per query, in the order of [`Query::ALL`].
    pub sums: [SumPlan; 5],
    /// Working memory of each stage, in the order of [`Stage::ALL`], without resident queries.
    pub stage_bytes: [u64; 9],
}

impl ProvePlan {
    /// Highest working memory of any stage: what is reserved for the partition.
    pub fn work_peak_bytes(&self) -> u64 {
        self.stage_bytes.into_iter().max().unwrap_or(0)
    }

    /// Working memory and resident queries together: at most the budget.
    pub fn peak_bytes(&self) -> u64 {
        self.resident_bytes + self.work_peak_bytes()
    }

    pub fn sum(&self, query: Query) -> &SumPlan {
        &self.sums[query as usize]
    }
}

/// The smallest budget with which [`plan`] succeeds.
pub fn least_budget_bytes(shape: &ShapeSummary, srs: &SrsSummary) -> u64 {
    match Layout::light(shape, srs) {
        Some(evaluating) => shape.shape_bytes() + evaluating.floor_bytes(),
        None => Layout::least(shape, srs).floor_bytes(),
    }
}

/// Plans one partition for a device on which nothing of this circuit is loaded.
///
/// # Errors
/// [`PlanError::InsufficientVram`] naming the smallest budget that would do.
pub fn plan(shape: &ShapeSummary, srs: &SrsSummary, budget_bytes: u64) -> Result<ProvePlan, PlanError> {
    let floor_bytes = least_budget_bytes(shape, srs);
    if floor_bytes > budget_bytes {
        return Err(PlanError::InsufficientVram { needs_bytes: floor_bytes, has_bytes: budget_bytes });
    }
    let resident = choose_resident(shape, srs, budget_bytes);
    plan_with_resident(shape, srs, resident, budget_bytes)
}

/// Plans one partition for a device on which exactly `resident` is (to be) loaded. The budget covers both.
///
/// # Errors
/// [`PlanError::InsufficientVram`] naming the smallest budget that would do with these queries resident.
pub fn plan_with_resident(
    shape: &ShapeSummary,
    srs: &SrsSummary,
    resident: QuerySet,
    budget_bytes: u64,
) -> Result<ProvePlan, PlanError> {
    let resident_bytes = resident_bytes(shape, srs, resident);
    let by_host = Layout { resident, ..Layout::least(shape, srs) };
    let evaluating = Layout::evaluating(shape, srs, resident);
    let layouts = || evaluating.iter().chain([&by_host]);
    let floor_bytes = layouts().map(Layout::floor_bytes).min().expect("the host always can");
    let insufficient =
        PlanError::InsufficientVram { needs_bytes: resident_bytes + floor_bytes, has_bytes: budget_bytes };
    let work_bytes = budget_bytes.checked_sub(resident_bytes).ok_or(insufficient.clone())?;
    // The device, if what it evaluates from has room.
    let layout = layouts().find(|layout| layout.floor_bytes() <= work_bytes).ok_or(insufficient)?;
    let sums = Query::ALL.map(|query| layout.largest_sum_within(query, work_bytes));
    let mut stage_bytes = layout.fixed_stage_bytes();
    for query in Query::ALL {
        stage_bytes[query.stage().index()] += layout.sum_bytes(query, &sums[query as usize]);
    }
    let plan = ProvePlan { resident, resident_bytes, evaluation: layout.evaluation, sums, stage_bytes };
    debug_assert!(plan.peak_bytes() <= budget_bytes, "a plan never exceeds its budget");
    Ok(plan)
}

/// Queries that find room beside comfortable working memory; if there is none to spare, none. The shape comes before
/// them: it is small, and saves the host more than any query does.
fn choose_resident(shape: &ShapeSummary, srs: &SrsSummary, budget_bytes: u64) -> QuerySet {
    let shape_bytes = shape.shape_bytes();
    let (mut resident, mut room) = if let Some(evaluating) = Layout::light(shape, srs) {
        let needs_bytes = shape_bytes + evaluating.comfortable_bytes();
        (QuerySet::SHAPE, budget_bytes.saturating_sub(needs_bytes))
    } else {
        let least = Layout::least(shape, srs);
        let evaluating = Layout::evaluating(shape, srs, QuerySet::SHAPE);
        let comfortable_bytes =
            evaluating.iter().map(Layout::comfortable_bytes).fold(least.comfortable_bytes(), u64::max);
        let room = budget_bytes.saturating_sub(comfortable_bytes);
        let spare = budget_bytes.saturating_sub(least.floor_bytes()) / SPARE_PER_SHAPE;
        if evaluating.is_some() && shape_bytes <= room.max(spare) {
            (QuerySet::SHAPE, room.saturating_sub(shape_bytes))
        } else {
            (QuerySet::NONE, room)
        }
    };
    for query in Query::ALL {
        let bytes = srs.query_bytes(query);
        if bytes <= room {
            room -= bytes;
            resident = resident.with(query);
        }
    }
    resident
}

/// One choice of resident queries, and the arithmetic of the module's table.
struct Layout<'a> {
    shape: &'a ShapeSummary,
    srs: &'a SrsSummary,
    resident: QuerySet,
    evaluation: Evaluation,
}

impl<'a> Layout<'a> {
    /// Nothing resident, rows by the host.
    fn least(shape: &'a ShapeSummary, srs: &'a SrsSummary) -> Self {
        Self { shape, srs, resident: QuerySet::NONE, evaluation: Evaluation::Host }
    }

    /// Rows by the device. `None`: not with what is resident, or not of this circuit.
    fn evaluating(shape: &'a ShapeSummary, srs: &'a SrsSummary, resident: QuerySet) -> Option<Self> {
        let is_possible = resident.has_shape() && shape.evaluation.is_some() && !srs.in_place;
        is_possible.then_some(Self { shape, srs, resident, evaluation: Evaluation::Device })
    }

    /// Only the shape resident and rows by the device, where that takes less memory than rows by the host. So it is wherever
    /// most variables are bits: the scalars that are not there during the quotient outweigh the shape.
    fn light(shape: &'a ShapeSummary, srs: &'a SrsSummary) -> Option<Self> {
        let by_host_bytes = Self::least(shape, srs).floor_bytes();
        Self::evaluating(shape, srs, QuerySet::SHAPE).filter(|evaluating| {
            shape.shape_bytes().saturating_add(evaluating.floor_bytes()) <= by_host_bytes
        })
    }

    /// Working memory of each stage without the sums' own.
    fn fixed_stage_bytes(&self) -> [u64; 9] {
        if self.srs.in_place {
            return self.host_stage_bytes();
        }
        let (witness, vector) = (self.shape.witness_bytes(), self.shape.vector_bytes());
        let (packed, held) = match self.evaluation {
            Evaluation::Host => (0, witness),
            Evaluation::Device => (self.shape.packed_bytes(), self.shape.packed_bytes()),
        };
        Stage::ALL.map(|stage| match stage {
            Stage::Upload | Stage::Evaluate => witness + packed + 2 * vector,
            Stage::Quotient => held + 3 * vector + domain_table_bytes(self.shape.domain_log2),
            Stage::SumH => held + vector,
            Stage::SumL => witness + packed,
            Stage::SumA | Stage::SumBG1 | Stage::SumBG2 => witness,
            Stage::Assemble => 0,
        })
    }

    /// The same where the witness too is read where the host holds it, packed and accounted for.
    fn host_stage_bytes(&self) -> [u64; 9] {
        Stage::ALL.map(|stage| match stage {
            Stage::Evaluate => 2 * self.shape.vector_bytes(),
            Stage::Quotient => host_quotient_bytes(self.srs.basis, self.shape.domain_log2),
            Stage::SumH => self.shape.vector_bytes(),
            Stage::Upload | Stage::SumL | Stage::SumA | Stage::SumBG1 | Stage::SumBG2 | Stage::Assemble => 0,
        })
    }

    fn sum_bytes(&self, query: Query, sum: &SumPlan) -> u64 {
        let points = if sum.streamed {
            // A query of a single chunk needs no second buffer.
            query.point_bytes() * self.srs.num_points(query).min(2 * sum.chunk_points)
        } else {
            0
        };
        sum.msm(query).bytes() + points
    }

    fn sum(&self, query: Query, window_bits: u32, chunk_points: u64) -> SumPlan {
        let streamed = !self.srs.in_place && !self.resident.contains(query);
        let affine_levels = MsmPlan::new(query.group(), chunk_points, window_bits).affine_levels;
        SumPlan { window_bits, chunk_points, affine_levels, streamed }
    }

    fn max_chunk_points(&self, query: Query) -> u64 {
        if self.sum(query, MIN_WINDOW_BITS, 0).streamed {
            MAX_STREAMED_CHUNK_POINTS
        } else {
            MAX_CHUNK_POINTS
        }
    }

    /// The least that any choice of windows and chunks needs.
    fn floor_bytes(&self) -> u64 {
        self.peak_bytes(|query| {
            let sums = self.windows(query).map(|window_bits| {
                let chunk_points = least_chunk_points(self.srs.num_points(query), window_bits);
                self.sum(query, window_bits, chunk_points).without_affine()
            });
            sums.min_by_key(|sum| self.sum_bytes(query, sum)).expect("there is a window")
        })
    }

    /// Windows that may be worth while, the widest first.
    fn windows(&self, query: Query) -> impl Iterator<Item = u32> {
        (MIN_WINDOW_BITS..=best_window_bits(query.group(), self.srs.num_points(query))).rev()
    }

    /// Working memory beyond which nothing gets faster.
    fn comfortable_bytes(&self) -> u64 {
        self.peak_bytes(|query| {
            let num_points = self.srs.num_points(query);
            let window_bits = best_window_bits(query.group(), num_points);
            self.sum(query, window_bits, num_points.min(self.max_chunk_points(query)))
        })
    }

    fn peak_bytes(&self, sum: impl Fn(Query) -> SumPlan) -> u64 {
        let mut stage_bytes = self.fixed_stage_bytes();
        for query in Query::ALL {
            stage_bytes[query.stage().index()] += self.sum_bytes(query, &sum(query));
        }
        stage_bytes.into_iter().max().unwrap_or(0)
    }

    /// The widest window, and then the largest chunk, that fit.
    fn largest_sum_within(&self, query: Query, work_bytes: u64) -> SumPlan {
        let num_points = self.srs.num_points(query);
        let room = work_bytes - self.fixed_stage_bytes()[query.stage().index()];
        for window_bits in self.windows(query) {
            let least_points = least_chunk_points(num_points, window_bits);
            let mut chunk_points = num_points.min(self.max_chunk_points(query));
            loop {
                let sum = self.sum(query, window_bits, chunk_points);
                let fits = |sum: &SumPlan| sum.msm(query).is_possible() && self.sum_bytes(query, sum) <= room;
                if let Some(sum) = [sum, sum.without_affine()].into_iter().find(fits) {
                    return sum;
                }
                if chunk_points == least_points {
                    break;
                }
                chunk_points = (chunk_points / 2).max(least_points);
            }
        }
        unreachable!("some window and its smallest chunk fit: the caller compared them with the budget")
    }
}

/// As many points as one window has buckets, so that sorting them is worth while.
pub(super) fn least_chunk_points(num_points: u64, window_bits: u32) -> u64 {
    num_points.min(MIN_CHUNK_POINTS.max(1 << window_bits))
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    const GIB: u64 = 1 << 30;

    pub fn shapes() -> impl Strategy<Value = (ShapeSummary, SrsSummary)> {
        let counts = (1u32..28).prop_flat_map(|domain_log2| {
            let n = 1u64 << domain_log2;
            (Just(domain_log2), 1..=n, 1u64..500, 0..=n, 0..=n, any::<bool>(), evaluations(n))
        });
        counts.prop_map(|(domain_log2, num_rows, num_inputs, num_aux, b_aux, in_place, evaluation)| {
            let evaluation = evaluation.map(|evaluation| EvaluationSummary {
                num_dense: evaluation.num_dense.min(num_aux),
                ..evaluation
            });
            let shape = ShapeSummary { domain_log2, num_rows, num_inputs, num_aux, evaluation };
            let b = b_aux.min(num_aux);
            let srs = if num_rows.is_multiple_of(2) {
                SrsSummary::new([(1 << domain_log2) - 1, num_aux, num_inputs + num_aux, b, b])
            } else {
                let num_l = num_inputs + num_aux;
                SrsSummary::new([1 << domain_log2, num_l, num_inputs + num_aux, b, b])
                    .in_basis(QuotientBasis::Lagrange)
            };
            (shape, if in_place { srs.in_place() } else { srs })
        })
    }

    /// Shapes from a byte to a hundred a row: of circuits that repeat themselves, and that do not.
    fn evaluations(n: u64) -> impl Strategy<Value = Option<EvaluationSummary>> {
        let sizes = (1..=100 * n, 0..=n);
        proptest::option::weighted(
            0.8,
            sizes.prop_map(|(shape_bytes, num_dense)| EvaluationSummary { shape_bytes, num_dense }),
        )
    }

    fn resident_within(plan: &ProvePlan, srs: &SrsSummary) -> bool {
        Query::ALL
            .into_iter()
            .all(|query| plan.sum(query).streamed != (plan.resident.contains(query) || srs.in_place))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn a_plan_stays_within_any_budget_or_names_the_least((shape, srs) in shapes(), budget in 0u64..200 * GIB) {
            let needs = least_budget_bytes(&shape, &srs);
            match plan(&shape, &srs, budget) {
                Ok(plan) => {
                    prop_assert!(budget >= needs);
                    prop_assert!(plan.peak_bytes() <= budget);
                    let resident = resident_bytes(&shape, &srs, plan.resident);
                    prop_assert_eq!(plan.peak_bytes(), resident + plan.work_peak_bytes());
                    let is_possible = plan.resident.has_shape() && shape.evaluation.is_some() && !srs.in_place;
                    prop_assert!(plan.evaluation == Evaluation::Host || is_possible);
                    prop_assert!(resident_within(&plan, &srs));
                }
                Err(PlanError::InsufficientVram { needs_bytes, has_bytes }) => {
                    prop_assert_eq!((needs_bytes, has_bytes), (needs, budget));
                    prop_assert!(budget < needs);
                }
            }
        }

        #[test]
        fn the_named_budget_does_and_one_byte_less_does_not((shape, srs) in shapes()) {
            let needs = least_budget_bytes(&shape, &srs);
            prop_assert!(plan(&shape, &srs, needs).is_ok());
            prop_assert!(plan(&shape, &srs, needs - 1).is_err());
        }

        #[test]
        fn more_budget_never_keeps_less_resident((shape, srs) in shapes(), extra in 0u64..8 * GIB) {
            let needs = least_budget_bytes(&shape, &srs);
            let small = plan(&shape, &srs, needs + extra).expect("it covers the least");
            let large = plan(&shape, &srs, needs + 4 * extra).expect("it covers the least");
            prop_assert!(small.resident_bytes <= large.resident_bytes);
        }

        #[test]
        fn any_resident_set_is_planned_within_budget_or_refused_exactly(
            (shape, srs) in shapes(), bits in 0u8..64, budget in 0u64..200 * GIB,
        ) {
            let resident = QuerySet(bits);
            match plan_with_resident(&shape, &srs, resident, budget) {
                Ok(plan) => prop_assert!(plan.peak_bytes() <= budget && plan.resident == resident),
                Err(PlanError::InsufficientVram { needs_bytes, .. }) => {
                    prop_assert!(needs_bytes > budget);
                    prop_assert!(plan_with_resident(&shape, &srs, resident, needs_bytes).is_ok());
                    prop_assert!(plan_with_resident(&shape, &srs, resident, needs_bytes - 1).is_err());
                }
            }
        }
    }

    /// PoRep 32 GiB, roughly: a domain of 2^27, 105 million variables that occur in A, half as many in B.
    pub fn porep_32g() -> (ShapeSummary, SrsSummary) {
        let num_aux = 130_000_000;
        let evaluation = Some(EvaluationSummary { shape_bytes: 66_000_000, num_dense: 1_699_102 });
        let shape =
            ShapeSummary { domain_log2: 27, num_rows: 130_278_869, num_inputs: 312, num_aux, evaluation };
        let srs = SrsSummary::new([(1 << 27) - 1, num_aux, 105_000_000, 52_000_000, 52_000_000]);
        (shape, srs)
    }

    #[test]
    fn b11_too_little_memory_names_both_numbers() {
        let (shape, srs) = porep_32g();
        let error = plan(&shape, &srs, 8 * GIB).expect_err("three vectors of 2^27 scalars alone are 12 GiB");
        let PlanError::InsufficientVram { needs_bytes, has_bytes } = error;
        assert_eq!(has_bytes, 8 * GIB);
        assert!((12 * GIB..20 * GIB).contains(&needs_bytes), "{needs_bytes}");
    }

    #[test]
    fn a_small_card_streams_and_a_large_one_keeps_everything() {
        let (shape, srs) = porep_32g();
        let small = plan(&shape, &srs, 20 * GIB).expect("a 20 GiB card can do it by streaming");
        assert_eq!(small.resident, QuerySet::SHAPE, "{small:?}");
        assert!(small.sum(Query::H).streamed && small.evaluation == Evaluation::Device, "{small:?}");
        let large = plan(&shape, &srs, 130 * GIB).expect("a large card can do it");
        assert_eq!(large.resident.iter().count(), 5, "{large:?}");
        assert_eq!(large.sum(Query::H).window_bits, best_window_bits(Group::G1, (1 << 27) - 1));
    }

    /// What a partition takes with room for all: three vectors of the domain's size, its tables and the witness, packed
    /// where the device evaluates.
    #[test]
    fn scalars_are_not_there_during_the_quotient_where_the_device_evaluates() {
        let (shape, srs) = porep_32g();
        let queries = Query::ALL.into_iter().fold(QuerySet::NONE, QuerySet::with);
        let plan_of =
            |resident| plan_with_resident(&shape, &srs, resident, 130 * GIB).expect("there is room");
        let (without, with) = (plan_of(queries), plan_of(queries.union(QuerySet::SHAPE)));
        assert_eq!((without.evaluation, with.evaluation), (Evaluation::Host, Evaluation::Device));
        assert_eq!(with.resident_bytes - without.resident_bytes, shape.shape_bytes());
        let witness = 32 * (312 + 130_000_000);
        let packed = 32 * (312 + 1_699_102) + 8 * 130_000_000u64.div_ceil(64);
        let bytes_at = |plan: &ProvePlan, stage: Stage| plan.stage_bytes[stage.index()];
        for stage in [Stage::Evaluate, Stage::SumL] {
            assert_eq!(bytes_at(&with, stage) - bytes_at(&without, stage), packed);
        }
        for stage in [Stage::Quotient, Stage::SumH] {
            assert_eq!(bytes_at(&without, stage) - bytes_at(&with, stage), witness - packed);
        }
        assert_eq!(bytes_at(&with, Stage::SumA), bytes_at(&without, Stage::SumA));
    }

    #[test]
    fn the_least_budget_is_that_of_the_lighter_evaluation() {
        let (shape, srs) = porep_32g();
        let least = least_budget_bytes(&shape, &srs);
        let tight = plan(&shape, &srs, least).expect("it is the least");
        assert_eq!((tight.evaluation, tight.resident), (Evaluation::Device, QuerySet::SHAPE));
        assert!(least <= 16 * GIB / 10 * 9, "a card of 16 GiB does: {least}");
        // All dense, and a small domain: what is packed is as large as what it is unpacked to.
        let evaluation = Some(EvaluationSummary { shape_bytes: 100, num_dense: 4000 });
        let dense = ShapeSummary { domain_log2: 5, num_rows: 20, num_inputs: 1, num_aux: 4000, evaluation };
        let srs = SrsSummary::new([31, 4000, 10, 10, 10]);
        let least = least_budget_bytes(&dense, &srs);
        let tight = plan(&dense, &srs, least).expect("it is the least");
        assert_eq!((tight.evaluation, tight.resident), (Evaluation::Host, QuerySet::NONE));
        let evaluating = Layout::evaluating(&dense, &srs, QuerySet::SHAPE).expect("a shape that is known");
        let least_evaluating = 100 + evaluating.floor_bytes();
        assert!(least_evaluating > least, "{least_evaluating} and {least}");
        let evaluation_at =
            |budget| plan_with_resident(&dense, &srs, QuerySet::SHAPE, budget).map(|plan| plan.evaluation);
        assert_eq!(evaluation_at(least_evaluating), Ok(Evaluation::Device));
        assert_eq!(evaluation_at(least_evaluating - 1), Ok(Evaluation::Host));
    }
}
