//! Partitions that share a pass over streamed queries: each has the CPU's bytes, within the memory of the pass.

use cuzk::policy::batch::BatchPolicy;
use cuzk::policy::plan::resident_bytes;
use cuzk::policy::shared_pass::{max_members, plan_pass, PassPlan, MAX_MEMBERS, PASS_QUERIES};

use super::*;

/// Partitions of a batch.
const MEMBERS: u32 = 4;
const BEFORE_PARKING: [Stage; 4] = [Stage::Upload, Stage::Evaluate, Stage::Quotient, Stage::SumH];

fn sharing_factory(num_members: u32) -> CudaFactory {
    factories().swap_remove(0).with_parking_lanes(num_members)
}

fn lanes(count: u32) -> Vec<LaneIndex> {
    (0..count).map(LaneIndex).collect()
}

/// As roomy as there is need, and as tight as can be.
fn plans(case: &Case, resident: QuerySet, num_members: u32) -> [PassPlan; 2] {
    let (shape, srs) = case.summaries();
    let within = |bytes| plan_pass(&shape, &srs, resident, num_members, bytes);
    let roomy = within(GIB).expect("there is room");
    let tight = (1..=64).find_map(|parts| within(roomy.peak_bytes() * parts / 64));
    [roomy, tight.expect("at least all of it will do")]
}

/// Partitions of one circuit on a bare device, and how they go through a pass.
struct Members<'c> {
    device: Bare,
    case: &'c Case,
    resident: QuerySet,
    plan: ProvePlan,
}

impl<'c> Members<'c> {
    fn new(device: Bare, case: &'c Case, resident: QuerySet) -> Self {
        let (shape, srs) = case.summaries();
        let plan = plan_with_resident(&shape, &srs, resident, GIB).expect("there is room");
        assert_eq!(plan.evaluation, Evaluation::Device);
        Self { device, case, resident, plan }
    }

    /// Brings partitions to where they wait for others: of what is parked nothing is on the device.
    fn park(&mut self, members: &[LaneIndex]) {
        for &lane in members {
            self.device.backend.begin(lane, self.case.work(lane.0), &self.plan).expect("it begins");
            self.device.run_all(lane, &BEFORE_PARKING);
            self.device.backend.park(lane);
        }
        self.assert_nothing_is_left();
    }

    fn assert_nothing_is_left(&self) {
        assert_eq!(self.device.backend.memory_in_use_bytes(), self.plan.resident_bytes);
    }

    fn enqueue(&mut self, members: &[LaneIndex], stage: Stage) {
        for &lane in members {
            self.device.backend.enqueue(lane, stage).expect("it is enqueued");
        }
    }

    /// Until the stage is done for all of these.
    fn finish(&mut self, members: &[LaneIndex], stage: Stage) {
        let mut left = members.to_vec();
        while !left.is_empty() {
            let done = self.device.poll();
            assert!(done.iter().all(|(_, of)| *of == stage), "{done:?}");
            left.retain(|lane| !done.contains(&(*lane, stage)));
            assert!(self.device.failed.is_empty(), "{:?}", self.device.failed);
        }
    }

    fn run_sums(&mut self, members: &[LaneIndex]) {
        for stage in PASS_QUERIES.map(Query::stage) {
            self.enqueue(members, stage);
            self.finish(members, stage);
        }
    }

    /// What is left to do after the pass.
    fn assemble(&mut self, members: &[LaneIndex], what: &str) {
        for &lane in members {
            self.device.run_all(lane, &[Stage::Assemble]);
            let finished = self.device.backend.take_proof(lane).expect("it is there");
            assert_eq!(finished.proof, self.case.expected(lane.0), "{}, {lane:?}: {what}", self.case.name);
        }
        self.assert_nothing_is_left();
    }

    fn run_pass(&mut self, members: &[LaneIndex], pass: &PassPlan) {
        self.park(members);
        self.device.backend.begin_pass(members, pass);
        let used = self.device.backend.memory_in_use_bytes() - self.plan.resident_bytes;
        assert!(used <= pass.peak_bytes(), "{used} B of {}", pass.peak_bytes());
        self.run_sums(members);
        self.assert_nothing_is_left();
        let what = format!("{:?} within {} B", self.resident, pass.peak_bytes());
        self.assemble(members, &what);
    }

    /// Until so many aborts have taken effect.
    fn wait_for_aborts(&mut self, aborted: &[LaneIndex]) {
        while self.device.aborted.len() < aborted.len() {
            assert_eq!(self.device.poll(), [], "of nobody else anything was wanted");
        }
        let mut heard = std::mem::take(&mut self.device.aborted);
        heard.sort();
        assert_eq!(heard, aborted);
        assert!(self.device.failed.is_empty(), "{:?}", self.device.failed);
    }
}

/// Any of the four queries streamed or resident, few members and many, chunks that are whole queries and small ones. Each
/// member has another witness.
#[test]
fn members_of_any_pass_have_the_cpus_bytes() {
    let _gpu = alone();
    let mut device = Bare::open(&sharing_factory(MEMBERS));
    for (num_constraints, values) in [(3_000, Values::Bits), (40_000, Values::Bits), (5_000, Values::Random)]
    {
        let plain = Case::with_witnesses(Synthetic::new(num_constraints, values), MEMBERS.into());
        for case in [plain.folded(), plain] {
            for kept in [0u32, 1, 6, 8, 15] {
                let kept = PASS_QUERIES.into_iter().filter(|query| kept >> (*query as u32 - 1) & 1 == 1);
                let resident = kept.fold(QuerySet::SHAPE, QuerySet::with);
                let mut all = Members::new(device, &case, resident);
                for num_members in [1, MEMBERS] {
                    for pass in plans(&case, resident, num_members) {
                        all.run_pass(&lanes(num_members), &pass);
                    }
                }
                device = all.device;
                device.backend.evict_srs(&case.name);
            }
        }
    }
}

/// As many as a pass takes, with more launches than a driver queues: all have the CPU's bytes, and nobody waits for the
/// device.
#[test]
fn a_full_pass_never_waits_for_the_device() {
    let _gpu = alone();
    let case = Case::with_witnesses(Synthetic::new(1 << 16, Values::Random), 3);
    let everything = PASS_QUERIES.into_iter().fold(QuerySet::SHAPE, QuerySet::with);
    for resident in [QuerySet::SHAPE, everything] {
        let device = Bare::open(&sharing_factory(MAX_MEMBERS));
        let mut all = Members::new(device, &case, resident);
        let members = lanes(MAX_MEMBERS);
        for pass in plans(&case, resident, MAX_MEMBERS) {
            // What is made once is there then: lanes, pinned memory, the pool's.
            all.run_pass(&members, &pass);
            all.park(&members);
            all.device.backend.begin_pass(&members, &pass);
            let begun = Instant::now();
            let (mut longest, mut num_polls) = (Duration::ZERO, 0);
            for stage in PASS_QUERIES.map(Query::stage) {
                let mut left = members.clone();
                let call = Instant::now();
                all.enqueue(&members, stage);
                longest = longest.max(call.elapsed());
                while !left.is_empty() {
                    let call = Instant::now();
                    let done = all.device.poll_once();
                    longest = longest.max(call.elapsed());
                    num_polls += 1;
                    left.retain(|lane| !done.contains(&(*lane, stage)));
                    assert!(all.device.failed.is_empty(), "{:?}", all.device.failed);
                    if done.is_empty() {
                        all.device.wait();
                    }
                }
            }
            let took = begun.elapsed();
            println!("{resident:?}: {took:?} in {num_polls} polls, {longest:?} the longest call");
            assert!(longest < Duration::from_millis(20).max(took / 4), "{longest:?} of {took:?} in one call");
            all.assemble(&members, "of a full pass");
        }
    }
}

/// When somebody leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    Parked,
    /// Witnesses are on their way.
    Begun,
    /// After so many polls of a stage that all have enqueued.
    Under(Stage, u32),
    /// Wholly in the stream, its memory given back, and the device is still at it.
    LastSumLaunched,
}

#[test]
fn a_member_that_is_aborted_leaves_the_others_right() {
    let _gpu = alone();
    let used_bytes = used_bytes_of_device();
    let case = Case::with_witnesses(Synthetic::new(40_000, Values::Bits), MEMBERS.into());
    let members = lanes(MEMBERS);
    let mut all = Members::new(Bare::open(&sharing_factory(MEMBERS)), &case, QuerySet::SHAPE);
    let [roomy, tight] = plans(&case, QuerySet::SHAPE, MEMBERS);
    // All lanes, and what the driver makes for itself, are there then.
    all.run_pass(&members, &roomy);
    all.device.backend.trim();
    let before = used_bytes();
    let mut instants = vec![Moment::Parked, Moment::Begun, Moment::LastSumLaunched];
    for stage in PASS_QUERIES.map(Query::stage) {
        instants.extend([0, 1, 2, 5, 9].map(|num_polls| Moment::Under(stage, num_polls)));
    }
    for (when, pass) in instants.iter().flat_map(|when| [(*when, &roomy), (*when, &tight)]) {
        for aborted in [LaneIndex(0), LaneIndex(2), LaneIndex(MEMBERS - 1)] {
            abort_one(&mut all, pass, when, aborted);
        }
    }
    // All of them: the pass goes with the last, and the next one is as any other.
    for when in instants {
        all.park(&members);
        if when != Moment::Parked {
            all.device.backend.begin_pass(&members, &tight);
            go_on_until(&mut all, &members, when);
        }
        members.iter().for_each(|lane| all.device.backend.abort(*lane));
        wait_for_aborts_beside_stages(&mut all, &members);
        all.assert_nothing_is_left();
    }
    all.run_pass(&members, &tight);
    all.device.backend.trim();
    let after = used_bytes();
    assert!(after <= before + (64 << 20), "{after} B in use, {before} B before anything was aborted");
}

/// One lane is aborted at that moment. The others go on as they would have, and have their bytes.
fn abort_one(all: &mut Members, pass: &PassPlan, when: Moment, aborted: LaneIndex) {
    let members = lanes(MEMBERS);
    let others: Vec<LaneIndex> = members.iter().copied().filter(|lane| *lane != aborted).collect();
    all.park(&members);
    if when == Moment::Parked {
        all.device.backend.abort(aborted);
        all.wait_for_aborts(&[aborted]);
        all.device.backend.begin_pass(&others, pass);
        all.run_sums(&others);
        return all.assemble(&others, "beside one that was aborted before the pass");
    }
    all.device.backend.begin_pass(&members, pass);
    let done_of = go_on_until(all, &members, when);
    all.device.backend.abort(aborted);
    let misused = all.device.backend.enqueue(aborted, Stage::Assemble);
    assert!(matches!(misused, Err(DeviceError::Fault { .. })), "{misused:?}");
    for stage in PASS_QUERIES.map(Query::stage) {
        let done = done_of.get(&stage).cloned().unwrap_or_default();
        let left: Vec<LaneIndex> = others.iter().copied().filter(|lane| !done.contains(lane)).collect();
        if !done_of.contains_key(&stage) {
            all.enqueue(&others, stage);
        }
        all.finish(&left, stage);
    }
    all.assemble(&others, &format!("beside {aborted:?}, which was aborted {when:?}"));
    while all.device.aborted.is_empty() {
        assert_eq!(all.device.poll(), []);
    }
    all.wait_for_aborts(&[aborted]);
    all.assert_nothing_is_left();
}

/// Brings a pass to that moment. Says for whom each stage that was enqueued is done already.
fn go_on_until(all: &mut Members, members: &[LaneIndex], when: Moment) -> BTreeMap<Stage, Vec<LaneIndex>> {
    let mut done_of: BTreeMap<Stage, Vec<LaneIndex>> = BTreeMap::new();
    let last = match when {
        Moment::Parked | Moment::Begun => return done_of,
        Moment::Under(stage, _) => stage,
        Moment::LastSumLaunched => Stage::SumBG2,
    };
    for stage in PASS_QUERIES.map(Query::stage).into_iter().filter(|stage| *stage < last) {
        all.enqueue(members, stage);
        all.finish(members, stage);
        done_of.insert(stage, members.to_vec());
    }
    all.enqueue(members, last);
    let mut done = Vec::new();
    let mut num_polls = 0;
    loop {
        let is_there = match when {
            Moment::Under(_, polls) => num_polls >= polls,
            _ => all.device.backend.memory_in_use_bytes() == all.plan.resident_bytes,
        };
        if is_there || done.len() == members.len() {
            break;
        }
        let events = all.device.poll_once();
        num_polls += 1;
        if events.is_empty() {
            all.device.wait();
        }
        done.extend(events.into_iter().map(|(lane, _)| lane));
    }
    done_of.insert(last, done);
    done_of
}

/// As [`Members::wait_for_aborts`], where a stage may have ended before it was known.
fn wait_for_aborts_beside_stages(all: &mut Members, aborted: &[LaneIndex]) {
    while all.device.aborted.len() < aborted.len() {
        all.device.poll();
    }
    all.wait_for_aborts(aborted);
}

/// The device is at the last sums for a while, and whoever aborts one of their members does not wait for it.
#[test]
fn aborting_behind_the_last_sum_does_not_wait_for_it() {
    let _gpu = alone();
    let case = Case::with_witnesses(Synthetic::new(1 << 18, Values::Random), 2);
    let members = lanes(MEMBERS);
    let mut all = Members::new(Bare::open(&sharing_factory(MEMBERS)), &case, QuerySet::SHAPE);
    let (shape, srs) = case.summaries();
    let pass = plan_pass(&shape, &srs, QuerySet::SHAPE, MEMBERS, 8 * GIB).expect("there is room");
    all.park(&members);
    all.device.backend.begin_pass(&members, &pass);
    let done_of = go_on_until(&mut all, &members, Moment::LastSumLaunched);
    let mut is_done = done_of[&Stage::SumBG2].contains(&members[0]);
    let begun = Instant::now();
    let mut longest = Duration::ZERO;
    for &lane in &members[1..] {
        let call = Instant::now();
        all.device.backend.abort(lane);
        longest = longest.max(call.elapsed());
    }
    while all.device.aborted.len() + 1 < members.len() {
        let call = Instant::now();
        let done = all.device.poll_once();
        longest = longest.max(call.elapsed());
        is_done |= done.contains(&(members[0], Stage::SumBG2));
        if all.device.aborted.len() + 1 < members.len() {
            all.device.wait();
        }
    }
    let took = begun.elapsed();
    println!("aborted within {took:?}, {longest:?} the longest call");
    assert!(longest < Duration::from_millis(5).max(took / 4), "{longest:?} of {took:?} in one call");
    if !is_done {
        all.finish(&members[..1], Stage::SumBG2);
    }
    all.device.aborted.sort();
    assert_eq!(all.device.aborted, members[1..]);
    all.assemble(&members[..1], "beside three that were aborted");
}

/// A pass that is planned too small fails for each of its members, once, and as memory that was refused: what comes after is
/// as if it had not been.
#[test]
fn a_pass_without_memory_fails_for_each_member_and_leaves_nothing() {
    let _gpu = alone();
    let case = Case::with_witnesses(Synthetic::new(40_000, Values::Random), MEMBERS.into());
    let members = lanes(MEMBERS);
    let mut all = Members::new(Bare::open(&sharing_factory(MEMBERS)), &case, QuerySet::SHAPE);
    // Not even the scalars of one witness find room; or not the sums of all.
    let [_, of_a_small_one] = plans(&Case::new(Synthetic::new(100, Values::Bits)), QuerySet::SHAPE, 1);
    let [_, of_one] = plans(&case, QuerySet::SHAPE, 1);
    let [roomy, tight] = plans(&case, QuerySet::SHAPE, MEMBERS);
    for (too_small, fails_at_once) in [(of_a_small_one, true), (of_one, false)] {
        all.park(&members);
        all.device.backend.begin_pass(&members, &too_small);
        let failed_in = PASS_QUERIES.map(Query::stage).into_iter().find(|stage| {
            // A failure that is not said yet: the stage is taken, and dropped with the others.
            all.enqueue(&members, *stage);
            let mut num_done = 0;
            while num_done < members.len() && all.device.failed.len() < members.len() {
                num_done += all.device.poll().len();
            }
            !all.device.failed.is_empty()
        });
        let mut failed = std::mem::take(&mut all.device.failed);
        failed.sort_by_key(|(lane, ..)| *lane);
        assert_eq!(failed.iter().map(|(lane, ..)| *lane).collect::<Vec<_>>(), members);
        for (_, stage, error) in failed {
            assert_eq!(Some(stage), failed_in);
            assert!(!fails_at_once || stage == Stage::SumL, "{stage}");
            assert!(matches!(error, DeviceError::OutOfVram { .. }), "{error:?}");
        }
        all.assert_nothing_is_left();
    }
    for pass in [tight, roomy] {
        all.run_pass(&members, &pass);
    }
}

/// The least budget, about, with which so many partitions share a pass.
fn sharing_budget(case: &Case) -> Option<u64> {
    let (shape, srs) = case.summaries();
    let least = least_budget_bytes(&shape, &srs);
    (0..400).map(|step| least + least / 100 * step).find(|&budget| {
        plan(&shape, &srs, budget).is_ok_and(|plan| max_members(&shape, &srs, &plan, MEMBERS) == MEMBERS)
    })
}

/// Proves so many partitions through the actor, which is given them as it gives its credits back. Returns how many at a time
/// waited for a pass.
async fn prove_within(case: &Case, budget: u64, expected: &[Proof]) -> i32 {
    let batches = BatchPolicy { max_partitions: MEMBERS, ..BatchPolicy::default() };
    let config = DeviceConfig { batches, ..with_budget(Some(budget)) };
    let mut rig = DeviceRig::ready(&FactorySpawner::boxed(sharing_factory(MEMBERS)), config).await;
    let mut num_sent = 0u32;
    let mut sends = |rig: &DeviceRig| {
        if (num_sent as usize) < expected.len() {
            rig.prove(case.work(num_sent));
            num_sent += 1;
        }
    };
    for _ in 0..LANES {
        sends(&rig);
    }
    let mut proofs = BTreeMap::new();
    // Partitions that have their sum over h and not yet the next one: more than one of them wait for a pass.
    let (mut num_waiting, mut most_waiting) = (0i32, 0);
    while proofs.len() < expected.len() {
        match rig.facts.next().await {
            Fact::Proved(proved) => {
                assert!(proved.memory_peak_bytes <= proved.memory_planned_bytes);
                proofs.insert(proved.at.partition.expect("a partition").0, proved.proof);
            }
            Fact::Failed(failed) => panic!("{failed:?}"),
            Fact::Lost(lost) => panic!("{lost:?}"),
            Fact::Freed(_) => sends(&rig),
            Fact::Stage(stage) => {
                num_waiting += i32::from(stage.stage == Stage::SumH) - i32::from(stage.stage == Stage::SumL);
                most_waiting = most_waiting.max(num_waiting);
            }
            _ => {}
        }
        let status = rig.board.get(&rig.handle.id).expect("it writes when it is ready").clone();
        let is_within = status.in_use_bytes <= status.reserved_bytes && status.reserved_bytes <= budget;
        assert!(is_within, "{status:?}");
    }
    println!("{most_waiting} partitions at a time waited for a pass, within {budget} B");
    for (index, expected) in (0..).zip(expected) {
        assert_eq!(proofs[&index], *expected, "partition {index} within {budget} B");
    }
    most_waiting
}

#[test]
fn partitions_at_a_small_budget_share_passes_and_have_the_cpus_bytes() {
    let _gpu = alone();
    on_arbiter(async {
        let num_constraints = if large() { 1 << 20 } else { 1 << 17 };
        let case = Case::with_witnesses(Synthetic::new(num_constraints, Values::Bits), 5);
        let budget = sharing_budget(&case).expect("a circuit of bits has such a budget");
        let expected: Vec<Proof> = (0..12).map(|index| case.expected(index)).collect();
        assert!(prove_within(&case, budget, &expected).await > 1, "passes were shared");
    });
}

/// Of the key of a 32 GiB PoRep, cards of 12, 16, 20 and 24 GB hold such parts, in hundredths.
#[test]
fn keys_that_are_several_times_a_cards_memory_give_the_cpus_bytes() {
    let _gpu = alone();
    on_arbiter(async {
        let num_constraints = if large() { 1 << 20 } else { 1 << 16 };
        let plain = Case::with_witnesses(Synthetic::new(num_constraints, Values::Bits), 3);
        for case in [plain.folded(), plain] {
            let (shape, srs) = case.summaries();
            let all_queries = Query::ALL.into_iter().fold(QuerySet::SHAPE, QuerySet::with);
            let key_bytes = resident_bytes(&shape, &srs, all_queries);
            let expected: Vec<Proof> = (0..6).map(|index| case.expected(index)).collect();
            for hundredths in [22, 30, 37, 45] {
                let budget = (key_bytes * hundredths / 100).max(least_budget_bytes(&shape, &srs));
                prove_within(&case, budget, &expected).await;
            }
        }
    });
}
