//! Partitions that share a pass over streamed queries: each has the CPU's bytes, within the memory of the pass.

use std::collections::BTreeMap;

use cuzk::policy::batch::BatchPolicy;
use cuzk::policy::plan::ProvePlan;
use cuzk::policy::shared_pass::{max_members, plan_pass, PASS_QUERIES};

use super::*;

/// Partitions of a batch.
const MEMBERS: u32 = 4;

fn sharing_factory() -> CudaFactory {
    factories().swap_remove(0).with_parking_lanes(MEMBERS)
}

/// A device without an actor, so that who is in a pass and what in no test depends on the time.
struct Bare {
    backend: CudaBackend,
    wakes: Receiver<()>,
    failed: Vec<(LaneIndex, DeviceError)>,
    aborted: Vec<LaneIndex>,
}

impl Bare {
    fn open() -> Self {
        let (woke, wakes) = crossbeam_channel::unbounded();
        let waker: BackendWaker = Arc::new(move || {
            let _ = woke.send(());
        });
        let backend = sharing_factory().open(waker).expect("a GPU");
        Self { backend, wakes, failed: Vec::new(), aborted: Vec::new() }
    }

    /// The events of the next poll that has any.
    fn poll(&mut self) -> Vec<(LaneIndex, Stage)> {
        for _ in 0..10_000 {
            let events = self.backend.poll();
            if events.is_empty() {
                let _ = self.wakes.recv_timeout(Duration::from_millis(20));
                continue;
            }
            let mut done = Vec::new();
            for event in events {
                match event {
                    BackendEvent::StageDone { lane, stage, .. } => done.push((lane, stage)),
                    BackendEvent::StageFailed { lane, error, .. } => self.failed.push((lane, error)),
                    BackendEvent::Aborted { lane } => self.aborted.push(lane),
                }
            }
            return done;
        }
        panic!("nothing happens for minutes");
    }

    /// Runs these stages of a lane, one after the other.
    fn run(&mut self, lane: LaneIndex, stages: &[Stage]) {
        for &stage in stages {
            self.backend.enqueue(lane, stage).expect("it is enqueued");
            while !self.poll().contains(&(lane, stage)) {
                assert!(self.failed.is_empty(), "{:?}", self.failed);
            }
        }
    }

    /// Brings a partition to where it waits for others.
    fn park(&mut self, lane: LaneIndex, case: &Case, plan: &ProvePlan) {
        self.backend.begin(lane, case.work(lane.0), plan).expect("it begins");
        self.run(lane, &[Stage::Upload, Stage::Evaluate, Stage::Quotient, Stage::SumH]);
        self.backend.park(lane);
    }

    /// Runs the sums of a pass of these lanes, of which some may be aborted behind a stage.
    fn run_pass(&mut self, lanes: &mut Vec<LaneIndex>, abort: Option<(Stage, LaneIndex)>) {
        for query in PASS_QUERIES {
            let stage = query.stage();
            for &lane in lanes.iter() {
                self.backend.enqueue(lane, stage).expect("it is enqueued");
            }
            if let Some((_, lane)) = abort.filter(|(when, _)| *when == stage) {
                self.backend.abort(lane);
                lanes.retain(|other| *other != lane);
            }
            let mut left: Vec<LaneIndex> = lanes.clone();
            while !left.is_empty() {
                let done = self.poll();
                left.retain(|lane| !done.contains(&(*lane, stage)));
                assert!(self.failed.is_empty(), "{:?}", self.failed);
            }
        }
    }
}

fn lanes(count: u32) -> Vec<LaneIndex> {
    (0..count).map(LaneIndex).collect()
}

/// Any of the four queries streamed or resident, few members and many, chunks that are whole queries and small ones.
#[test]
fn members_of_any_pass_have_the_cpus_bytes() {
    let _gpu = alone();
    let mut device = Bare::open();
    for (num_constraints, values) in [(3_000, Values::Bits), (40_000, Values::Bits), (5_000, Values::Random)]
    {
        let plain = Case::new(Synthetic::new(num_constraints, values));
        for case in [plain.folded(), plain] {
            let (shape, srs) = case.summaries();
            let expected: Vec<Proof> = (0..MEMBERS).map(|index| case.expected(index)).collect();
            for kept in [0u32, 1, 6, 8, 15] {
                let kept = PASS_QUERIES.into_iter().filter(|query| kept >> (*query as u32 - 1) & 1 == 1);
                let resident = kept.fold(QuerySet::SHAPE, QuerySet::with);
                let plan = plan_with_resident(&shape, &srs, resident, GIB).expect("there is room");
                assert_eq!(plan.evaluation, Evaluation::Device);
                for num_members in [1, MEMBERS] {
                    // As roomy as there is need, and as tight as can be.
                    let roomy = plan_pass(&shape, &srs, resident, num_members, GIB).expect("there is room");
                    let tight = (1..=64).find_map(|parts| {
                        plan_pass(&shape, &srs, resident, num_members, roomy.peak_bytes() * parts / 64)
                    });
                    for pass in [Some(roomy), tight].into_iter().flatten() {
                        let mut members = lanes(num_members);
                        for &lane in &members {
                            device.park(lane, &case, &plan);
                        }
                        let keys = device.backend.memory_in_use_bytes();
                        assert_eq!(keys, plan.resident_bytes, "of what is parked nothing is there");
                        device.backend.begin_pass(&members, &pass);
                        let used = device.backend.memory_in_use_bytes() - keys;
                        assert!(used <= pass.peak_bytes(), "{used} B of {}", pass.peak_bytes());
                        device.run_pass(&mut members, None);
                        assert_eq!(device.backend.memory_in_use_bytes(), keys, "the pass leaves nothing");
                        for lane in members {
                            device.run(lane, &[Stage::Assemble]);
                            let finished = device.backend.take_proof(lane).expect("it is there");
                            assert_eq!(
                                finished.proof, expected[lane.0 as usize],
                                "{}: {resident:?}",
                                case.name
                            );
                        }
                    }
                }
                device.backend.evict_srs(&case.name);
            }
        }
    }
}

#[test]
fn a_member_that_is_aborted_leaves_the_others_right() {
    let _gpu = alone();
    let mut device = Bare::open();
    let case = Case::new(Synthetic::new(40_000, Values::Bits));
    let (shape, srs) = case.summaries();
    let plan = plan_with_resident(&shape, &srs, QuerySet::SHAPE, GIB).expect("there is room");
    let pass = plan_pass(&shape, &srs, QuerySet::SHAPE, MEMBERS, GIB).expect("there is room");
    for stage in PASS_QUERIES.map(Query::stage) {
        for aborted in [LaneIndex(0), LaneIndex(2), LaneIndex(MEMBERS - 1)] {
            let mut members = lanes(MEMBERS);
            for &lane in &members {
                device.park(lane, &case, &plan);
            }
            device.backend.begin_pass(&members, &pass);
            device.run_pass(&mut members, Some((stage, aborted)));
            for lane in members {
                device.run(lane, &[Stage::Assemble]);
                let finished = device.backend.take_proof(lane).expect("it is there");
                assert_eq!(finished.proof, case.expected(lane.0), "beside one that was aborted in {stage}");
            }
            while device.aborted.is_empty() {
                device.poll();
            }
            assert_eq!(std::mem::take(&mut device.aborted), [aborted]);
            assert_eq!(device.backend.memory_in_use_bytes(), plan.resident_bytes);
        }
    }
    // All of them: the pass goes with the last.
    let members = lanes(MEMBERS);
    for &lane in &members {
        device.park(lane, &case, &plan);
    }
    device.backend.begin_pass(&members, &pass);
    for &lane in &members {
        device.backend.enqueue(lane, Stage::SumL).expect("it is enqueued");
    }
    members.iter().for_each(|lane| device.backend.abort(*lane));
    while device.aborted.len() < members.len() {
        device.poll();
    }
    assert_eq!(device.backend.memory_in_use_bytes(), plan.resident_bytes);
    device.park(LaneIndex(0), &case, &plan);
    device.backend.begin_pass(&[LaneIndex(0)], &pass);
    device.run_pass(&mut lanes(1), None);
    device.run(LaneIndex(0), &[Stage::Assemble]);
    assert_eq!(device.backend.take_proof(LaneIndex(0)).expect("it is there").proof, case.expected(0));
}

/// The least budget, about, with which so many partitions share a pass.
fn sharing_budget(case: &Case) -> Option<u64> {
    let (shape, srs) = case.summaries();
    let least = least_budget_bytes(&shape, &srs);
    (0..400).map(|step| least + least / 100 * step).find(|&budget| {
        plan(&shape, &srs, budget).is_ok_and(|plan| max_members(&shape, &srs, &plan, MEMBERS) == MEMBERS)
    })
}

/// Through the actor, which is given partitions as it gives its credits back.
#[test]
fn partitions_at_a_small_budget_share_passes_and_have_the_cpus_bytes() {
    let _gpu = alone();
    on_arbiter(async {
        let num_constraints = if large() { 1 << 20 } else { 1 << 17 };
        let case = Case::new(Synthetic::new(num_constraints, Values::Bits));
        let budget = sharing_budget(&case).expect("a circuit of bits has such a budget");
        let expected: Vec<Proof> = (0..12).map(|index| case.expected(index)).collect();
        let batches = BatchPolicy { max_partitions: MEMBERS, ..BatchPolicy::default() };
        let config = DeviceConfig { batches, ..with_budget(Some(budget)) };
        let mut rig = DeviceRig::ready(&FactorySpawner::boxed(sharing_factory()), config).await;
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
                    num_waiting +=
                        i32::from(stage.stage == Stage::SumH) - i32::from(stage.stage == Stage::SumL);
                    most_waiting = most_waiting.max(num_waiting);
                }
                _ => {}
            }
            let status = rig.board.get(&rig.handle.id).expect("it writes when it is ready").clone();
            assert!(
                status.in_use_bytes <= status.reserved_bytes && status.reserved_bytes <= budget,
                "{status:?}"
            );
        }
        println!("{most_waiting} partitions at a time waited for a pass, within {budget} B");
        assert!(most_waiting > 1, "passes were shared");
        for (index, expected) in (0..).zip(&expected) {
            assert_eq!(proofs[&index], *expected, "partition {index}");
        }
    });
}
