//! One pass over the queries that a small card streams, for several partitions of a circuit: how many, and in what memory.
//!
//! Where `l`, `a`, `b_g1` or `b_g2` is not resident, each partition copies it anew: 34.5 GB of a PoRep of 32 GiB, beside a
//! packed witness of 58 MB. So partitions go one after the other through the stages that take much memory, up to `sum_h`,
//! and are then *parked*: of a parked one nothing is on the device. A *pass* then takes the four sums of all of them together,
//! its *members*: each chunk of points is copied once and added for every member.
//!
//! ```text
//! upload evaluate quotient sum_h   parked
//! upload evaluate quotient sum_h   parked          one after the other, each by its own plan, as without passes
//! upload evaluate quotient sum_h   parked
//!                                        sum_l sum_a sum_b_g1 sum_b_g2     together
//!                                                                     assemble, each
//!
//! stage of a pass, k members             working memory, of all of them together
//! sum(q)     scalars of one witness      expanded from the packed one, for a member and a chunk at a time
//!            two chunks of points        if q is streamed
//!            MsmPlan::scratch_bytes      used by the members in turns
//!            k times MsmPlan::kept_bytes, a packed witness and its inputs
//! ```
//!
//! Whether that helps depends on the card and its link: where adding up takes longer than copying, nothing is gained, and who is
//! parked waits for nothing. So a device compares ([`PassGain`]): its first partitions of a circuit share a pass, the next is
//! proved by itself, and passes go on only where a member took less of the device's time. Each is measured anew now and then.
//!
//! A pass never needs memory that a partition by itself would not have had: partitions are parked only if a pass of two fits
//! into what one of them had reserved. Where nothing is streamed, and where the host evaluates rows (so that no packed witness
//! is ever on the device), there are no passes.

use std::time::Duration;

use crate::policy::batch::BatchPolicy;
use crate::policy::msm_plan::{best_window_bits, MsmPlan, MIN_WINDOW_BITS};
use crate::policy::plan::{
    least_chunk_points, Evaluation, ProvePlan, Query, QuerySet, ShapeSummary, SrsSummary, SumPlan,
    MAX_CHUNK_POINTS, MAX_STREAMED_CHUNK_POINTS,
};

/// Most partitions of one pass, whatever a batch may have. Ten are a sector's; what is copied once for sixteen is a
/// sixteenth for each, and more would gain less than a hundredth of what streaming took.
pub const MAX_MEMBERS: u32 = 16;

/// Bytes of scalars that are written for each byte that is copied from the host, at most: a card writes its memory twenty
/// times as fast as a link of PCIe 4 brings points, so that a chunk of an eighth of the scalars hides their expansion.
const SCALAR_BYTES_PER_COPIED: u64 = 8;

/// The queries of a pass, in the order of their stages.
pub const PASS_QUERIES: [Query; 4] = [Query::L, Query::A, Query::BG1, Query::BG2];

/// A member must take at most so many hundredths of the time that a partition takes by itself: less gained is not worth the
/// waiting.
const MOST_PER_CENT: u32 = 85;

/// Partitions proved the one way after which the other is measured anew: once measured beside other work, it would else count
/// for ever. A pass that gains nothing costs little, one partition by itself less than a hundredth of so many.
const MEASURED_AGAIN_AFTER: u32 = 64;

/// What was measured of a circuit's sums on one device, of those that a pass takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PassGain {
    alone: Option<Duration>,
    /// Of each member.
    shared: Option<Duration>,
    /// Proved the one way since the other was measured.
    num_alone: u32,
    num_shared: u32,
}

impl PassGain {
    /// A partition that streamed had its sums by itself, in this time.
    pub fn learn_alone(&mut self, sums: Duration) {
        self.alone = Some(sums);
        (self.num_shared, self.num_alone) = (0, self.num_alone + 1);
        if self.num_alone >= MEASURED_AGAIN_AFTER {
            (self.shared, self.num_alone) = (None, 0);
        }
    }

    /// Its sums were a pass's, and this is its part of the time that they took: of two members at least, for a pass of one has
    /// another plan than a partition by itself, and shares nothing.
    pub fn learn_shared(&mut self, own_part: Duration) {
        self.shared = Some(own_part);
        (self.num_alone, self.num_shared) = (0, self.num_shared + 1);
        if self.num_shared >= MEASURED_AGAIN_AFTER {
            (self.alone, self.num_shared) = (None, 0);
        }
    }

    /// Whether the next partition is to share a pass: to find out, or because it pays.
    pub fn is_worth_while(&self) -> bool {
        match (self.shared, self.alone) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(shared), Some(alone)) => shared * 100 <= alone * MOST_PER_CENT,
        }
    }
}

/// How the members of one pass are summed up together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassPlan {
    /// Partitions that it is made for; fewer take less.
    pub num_members: u32,
    /// Of one packed witness with its inputs, which is on the device for as long as the pass.
    pub packed_bytes: u64,
    sums: [SumPlan; 4],
    stages: [PassBytes; 4],
}

/// Memory of one stage of a pass, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassBytes {
    /// Of all members together.
    pub common: u64,
    /// Of each member, besides.
    pub per_member: u64,
}

impl PassBytes {
    pub fn of(self, num_members: u32) -> u64 {
        self.common.saturating_add(self.per_member.saturating_mul(num_members.into()))
    }
}

impl PassPlan {
    /// # Panics
    /// For `h`, which is no query of a pass.
    pub fn sum(&self, query: Query) -> &SumPlan {
        &self.sums[position(query)]
    }

    /// # Panics
    /// As [`Self::sum`].
    pub fn bytes(&self, query: Query) -> PassBytes {
        self.stages[position(query)]
    }

    /// Highest working memory of any stage with all members: what is reserved for the pass.
    pub fn peak_bytes(&self) -> u64 {
        self.stages.iter().map(|stage| stage.of(self.num_members)).max().unwrap_or(0)
    }
}

fn position(query: Query) -> usize {
    PASS_QUERIES
        .iter()
        .position(|other| *other == query)
        .expect("h is summed up before a partition is parked")
}

/// Partitions of a batch that one pass may take.
pub fn members_of_batch(policy: BatchPolicy) -> u32 {
    policy.max_partitions.min(MAX_MEMBERS)
}

/// Lanes for partitions that wait for others, beyond those that the engine gives work to: as many as one pass takes, so that
/// the next batch can begin to gather while it runs. 0 where a batch is none.
pub fn parking_lanes(policy: BatchPolicy) -> u32 {
    match members_of_batch(policy) {
        0 | 1 => 0,
        members => members,
    }
}

/// How many of `num_parked` a pass takes at least that has not the memory for all of them beside what runs. What runs will end,
/// and those left behind stream all queries once more: so it waits for half of them, and two, unless the first has waited as
/// long as it may (`is_late`).
pub fn least_members(num_parked: u32, is_late: bool) -> u32 {
    if is_late {
        1
    } else {
        num_parked.div_ceil(2).max(2).min(num_parked)
    }
}

/// Whether partitions of such a plan have anything to share.
pub fn has_shared_queries(plan: &ProvePlan) -> bool {
    plan.evaluation == Evaluation::Device && PASS_QUERIES.iter().any(|query| plan.sum(*query).streamed)
}

/// How many partitions of this plan one pass can take, `most` at most: in memory that one of them has reserved anyway.
/// 0 where that is fewer than two, or there is nothing to share.
pub fn max_members(shape: &ShapeSummary, srs: &SrsSummary, plan: &ProvePlan, most: u32) -> u32 {
    let fits =
        |num_members| plan_pass(shape, srs, plan.resident, num_members, plan.work_peak_bytes()).is_some();
    if !has_shared_queries(plan) || most < 2 || !fits(2) {
        return 0;
    }
    // More members never take less.
    let (mut fitting, mut too_many) = (2, most.saturating_add(1));
    while fitting + 1 < too_many {
        let middle = fitting + (too_many - fitting) / 2;
        if fits(middle) {
            fitting = middle;
        } else {
            too_many = middle;
        }
    }
    fitting
}

/// Plans a pass of `num_members` partitions of a circuit of which exactly `resident` is on the device, and the shape with it.
/// `None`: it does not fit into `work_bytes` with chunks that are worth while.
pub fn plan_pass(
    shape: &ShapeSummary,
    srs: &SrsSummary,
    resident: QuerySet,
    num_members: u32,
    work_bytes: u64,
) -> Option<PassPlan> {
    let num_dense = shape.evaluation?.num_dense + shape.num_inputs;
    let packed_bytes = shape.packed_bytes() + shape.input_bytes();
    let layout = PassLayout { shape, srs, resident, num_dense, packed_bytes, num_members, work_bytes };
    let mut sums = [None; 4];
    for (sum, query) in sums.iter_mut().zip(PASS_QUERIES) {
        *sum = Some(layout.largest_sum(query)?);
    }
    let sums = sums.map(|sum| sum.expect("each was just planned"));
    let stages = PASS_QUERIES.map(|query| layout.bytes(query, &sums[position(query)]));
    let plan = PassPlan { num_members, packed_bytes, sums, stages };
    debug_assert!(plan.peak_bytes() <= work_bytes, "a pass never exceeds what it is given");
    Some(plan)
}

/// One pass that is planned, and the arithmetic of the module's table.
struct PassLayout<'a> {
    shape: &'a ShapeSummary,
    srs: &'a SrsSummary,
    resident: QuerySet,
    /// Scalars that are neither 0 nor 1 at most: the device expands nothing but bits for the others.
    num_dense: u64,
    packed_bytes: u64,
    num_members: u32,
    work_bytes: u64,
}

impl PassLayout<'_> {
    fn bytes(&self, query: Query, sum: &SumPlan) -> PassBytes {
        let msm = sum.msm(query);
        let points = if sum.streamed {
            query.point_bytes() * self.srs.num_points(query).min(2 * sum.chunk_points)
        } else {
            0
        };
        PassBytes {
            common: self.shape.witness_bytes().saturating_add(points).saturating_add(msm.scratch_bytes()),
            per_member: self.packed_bytes.saturating_add(msm.kept_bytes()),
        }
    }

    fn fits(&self, query: Query, sum: &SumPlan) -> bool {
        let bytes = self.bytes(query, sum).of(self.num_members);
        sum.msm(query).is_possible() && bytes <= self.work_bytes
    }

    /// Affine additions pay only where many terms share a bucket: not among bits.
    fn sum(&self, query: Query, window_bits: u32, chunk_points: u64) -> SumPlan {
        let has_many = self.num_dense >= chunk_points / 4;
        let best = MsmPlan::new(query.group(), chunk_points, window_bits);
        let affine_levels = if has_many { best.affine_levels } else { 0 };
        SumPlan { window_bits, chunk_points, affine_levels, streamed: !self.resident.contains(query) }
    }

    /// The windows that suit the scalars, and then the largest chunk, that fit.
    fn largest_sum(&self, query: Query) -> Option<SumPlan> {
        let num_points = self.srs.num_points(query);
        let widest = best_window_bits(query.group(), num_points);
        let best = best_window_bits(query.group(), self.num_dense.max(1)).clamp(MIN_WINDOW_BITS, widest);
        for window_bits in (MIN_WINDOW_BITS..=best).rev() {
            let (least_points, most_points) = self.chunk_range(query, window_bits);
            let mut chunk_points = most_points;
            loop {
                let sum = self.sum(query, window_bits, chunk_points);
                let plain = SumPlan { affine_levels: 0, ..sum };
                if let Some(sum) = [sum, plain].into_iter().find(|sum| self.fits(query, sum)) {
                    return Some(sum);
                }
                if chunk_points == least_points {
                    break;
                }
                chunk_points = (chunk_points / 2).max(least_points);
            }
        }
        None
    }

    /// Fewest and most points of a chunk: all witnesses are expanded anew for each, which must not take longer than the copy
    /// that it saves.
    fn chunk_range(&self, query: Query, window_bits: u32) -> (u64, u64) {
        let num_points = self.srs.num_points(query);
        let limit = if self.resident.contains(query) { MAX_CHUNK_POINTS } else { MAX_STREAMED_CHUNK_POINTS };
        let most = num_points.min(limit);
        let worth_while = self.shape.witness_bytes() / (SCALAR_BYTES_PER_COPIED * query.point_bytes());
        (most.min(least_chunk_points(num_points, window_bits).max(worth_while)), most)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::policy::plan::tests::{porep_32g, shapes};
    use crate::policy::plan::{least_budget_bytes, plan, EvaluationSummary};

    const GB: u64 = 1_000_000_000;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_000))]

        /// Whatever the circuit and the budget: parked partitions and those before it beside them, and then the pass, stay
        /// within the memory of the plan of one partition, which is the plan without any passes.
        #[test]
        fn a_pass_takes_no_more_than_a_partition_had(
            (shape, srs) in shapes(), extra in 0u64..40 * GB, most in 0u32..=MAX_MEMBERS,
        ) {
            let budget = least_budget_bytes(&shape, &srs) + extra;
            let plan = plan(&shape, &srs, budget).expect("it covers the least");
            let num_members = max_members(&shape, &srs, &plan, most);
            prop_assert!(num_members == 0 || (2..=most).contains(&num_members));
            for num_members in 1..=num_members {
                let pass = plan_pass(&shape, &srs, plan.resident, num_members, plan.work_peak_bytes());
                let pass = pass.expect("fewer members fit where more do");
                prop_assert!(plan.resident_bytes + pass.peak_bytes() <= budget);
                for query in PASS_QUERIES {
                    let sum = pass.sum(query);
                    prop_assert_eq!(sum.streamed, plan.sum(query).streamed);
                    prop_assert!(sum.msm(query).is_possible());
                    prop_assert!(sum.chunk_points <= srs.num_points(query));
                    prop_assert!(sum.chunk_points > 0 || srs.num_points(query) == 0);
                }
            }
            if num_members > 0 && num_members < most {
                let more = plan_pass(&shape, &srs, plan.resident, num_members + 1, plan.work_peak_bytes());
                prop_assert!(more.is_none(), "more would have fitted");
            }
        }

        /// Any pass fits into what it is given, and more memory never makes it impossible.
        #[test]
        fn a_pass_stays_within_any_memory(
            (shape, srs) in shapes(), work_bytes in 0u64..40 * GB, num_members in 1u32..=MAX_MEMBERS,
        ) {
            let pass = plan_pass(&shape, &srs, QuerySet::SHAPE, num_members, work_bytes);
            prop_assert!(pass.as_ref().is_none_or(|pass| pass.peak_bytes() <= work_bytes));
            prop_assert!(pass.is_none() || shape.evaluation.is_some());
            let roomier = plan_pass(&shape, &srs, QuerySet::SHAPE, num_members, work_bytes + GB);
            prop_assert!(pass.is_none() || roomier.is_some());
        }

        /// Where nothing that a pass would take is streamed, there is none.
        #[test]
        fn nothing_streamed_nothing_shared((shape, srs) in shapes()) {
            let plan = plan(&shape, &srs, u64::MAX / 2).expect("there is room");
            prop_assert_eq!(max_members(&shape, &srs, &plan, MAX_MEMBERS), 0);
        }
    }

    #[test]
    fn a_sector_of_32_gib_shares_one_pass_on_a_small_card() {
        let (shape, srs) = porep_32g();
        // Nine tenths of cards of 20 and of 24 GiB.
        for budget in [20u64 << 30, 24 << 30].map(|bytes| bytes / 10 * 9) {
            let plan = plan(&shape, &srs, budget).expect("a small card can do it by streaming");
            let num_members = max_members(&shape, &srs, &plan, 10);
            assert_eq!(num_members, 10, "{budget} B: {plan:?}");
            let pass = plan_pass(&shape, &srs, plan.resident, 10, plan.work_peak_bytes()).expect("it fits");
            for query in PASS_QUERIES {
                let chunk_bytes = pass.sum(query).chunk_points * query.point_bytes();
                assert!(chunk_bytes > shape.witness_bytes() / 9, "{budget} B, {query:?}: {pass:?}");
            }
        }
    }

    /// Small circuits, by which passes are tested, have such budgets too.
    #[test]
    fn a_small_circuit_of_bits_shares_at_some_budget() {
        for domain_log2 in [12u32, 17, 20] {
            let num_aux = (1 << domain_log2) - 100;
            let evaluation = EvaluationSummary::known(Some(10), Some(5 * num_aux));
            let shape = ShapeSummary { domain_log2, num_rows: num_aux, num_inputs: 2, num_aux, evaluation };
            let srs = SrsSummary::new([num_aux + 99, num_aux, num_aux, num_aux / 2, num_aux / 2]);
            let least = least_budget_bytes(&shape, &srs);
            let shares = |budget: &u64| {
                plan(&shape, &srs, *budget).is_ok_and(|plan| max_members(&shape, &srs, &plan, 4) == 4)
            };
            let budget = (0..400).map(|step| least + least / 100 * step).find(shares);
            assert!(budget.is_some(), "2^{domain_log2}");
        }
    }

    #[test]
    fn passes_go_on_where_they_pay() {
        let secs = Duration::from_secs;
        let mut copies_decide = PassGain::default();
        assert!(copies_decide.is_worth_while(), "nothing is known: that is found out");
        copies_decide.learn_shared(secs(2) / 10);
        assert!(!copies_decide.is_worth_while(), "what one takes by itself is not known");
        copies_decide.learn_alone(secs(2));
        assert!(copies_decide.is_worth_while());
        copies_decide.learn_shared(secs(1));
        assert!(copies_decide.is_worth_while(), "also of two");
        let mut sums_decide = PassGain::default();
        sums_decide.learn_alone(secs(30));
        assert!(sums_decide.is_worth_while(), "no pass was tried");
        sums_decide.learn_shared(secs(27));
        assert!(!sums_decide.is_worth_while(), "a tenth is not worth the waiting");
    }

    /// A card that was busy with other work while it was measured is not judged by that for ever.
    #[test]
    fn what_was_measured_is_measured_again() {
        let secs = Duration::from_secs;
        let mut gain = PassGain::default();
        gain.learn_alone(secs(2));
        gain.learn_shared(secs(3));
        for num_alone in 0..MEASURED_AGAIN_AFTER {
            assert!(!gain.is_worth_while(), "after {num_alone}");
            gain.learn_alone(secs(2));
        }
        assert!(gain.is_worth_while(), "a pass is tried again");
        gain.learn_shared(secs(1));
        for num_shared in 1..MEASURED_AGAIN_AFTER {
            assert!(gain.is_worth_while(), "after {num_shared}");
            gain.learn_shared(secs(1));
        }
        assert!(!gain.is_worth_while(), "and one by itself");
        gain.learn_alone(secs(2));
        assert!(gain.is_worth_while());
    }

    #[test]
    fn a_pass_that_is_not_late_waits_for_half_of_those_who_wait_for_it() {
        assert_eq!([1, 2, 3, 10].map(|num_parked| least_members(num_parked, false)), [1, 2, 2, 5]);
        assert_eq!([1, 2, 10].map(|num_parked| least_members(num_parked, true)), [1, 1, 1]);
    }

    #[test]
    fn rows_by_the_host_are_proved_alone() {
        let (shape, srs) = porep_32g();
        let tight = plan(&shape, &srs, least_budget_bytes(&shape, &srs)).expect("it is the least");
        assert_eq!(tight.evaluation, Evaluation::Host);
        assert_eq!(max_members(&shape, &srs, &tight, 10), 0);
    }

    #[test]
    fn a_batch_of_one_is_none_and_a_large_one_is_bounded() {
        let of = |max_partitions| BatchPolicy { max_partitions, max_time: Duration::ZERO };
        assert_eq!([0, 1, 10, 1000].map(|most| members_of_batch(of(most))), [0, 1, 10, MAX_MEMBERS]);
        let (shape, srs) = porep_32g();
        let plan = plan(&shape, &srs, 20 * GB).expect("a small card can do it by streaming");
        assert_eq!([0, 1].map(|most| max_members(&shape, &srs, &plan, most)), [0, 0]);
    }
}
