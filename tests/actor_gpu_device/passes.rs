//! Partitions that share a pass over what a small card streams: how much that saves, who waits for whom, and that each has
//! its own answer whatever becomes of the others.

use std::collections::{BTreeMap, HashMap};

use blstrs::Scalar;
use cuzk::backend::sim::SimCircuit;
use cuzk::backend::PartitionWork;
use cuzk::groth16::{prover, Blinding, Proof};
use cuzk::ids::CircuitId;
use cuzk::policy::batch::BatchPolicy;
use cuzk::policy::plan::{EvaluationSummary, QuerySet};
use cuzk::policy::shared_pass::{max_members, plan_pass, PASS_QUERIES};

use super::*;

pub const GB: u64 = 1_000_000_000;
const CARD: u64 = 20 << 30;
pub const BUDGET: u64 = CARD / 10 * 9;
/// For CRITICAL work alone.
pub const RESERVE: u64 = 64 << 20;
const LINK_BYTES_PER_S: u64 = 25 * GB;
/// Of a stage, beside which copies are what counts.
pub const SHORT: Duration = Duration::from_millis(1);
pub const TEN: u32 = 10;

/// A partition of a PoRep of 32 GiB.
pub fn porep_32g(stage: Duration) -> SimCircuit {
    let num_aux = 130_000_000;
    let evaluation = EvaluationSummary::known(Some(1_700_000), Some(66_000_000));
    let shape = ShapeSummary { domain_log2: 27, num_rows: num_aux, num_inputs: 328, num_aux, evaluation };
    let srs = SrsSummary::new([(1 << 27) - 1, num_aux, 105_000_000, 33_000_000, 33_000_000]);
    SimCircuit { shape, srs, stage_durations: [stage; 9] }
}

/// A card of 20 GiB with one lane, to which the fixture's circuit is a PoRep of 32 GiB.
pub fn card(fixture: &Fixture, faults: &str, parking_lanes: u32) -> SimConfig {
    let mut config = sim(faults);
    config.memory_bytes = CARD;
    config.layout = LaneLayout { normal: 1, critical: 1, critical_preempts: true };
    config.parking_lanes = parking_lanes;
    config.stages_ahead = 1;
    config.shares_compute = true;
    config.link_bytes_per_s = Some(LINK_BYTES_PER_S);
    config.circuits = Arc::new(BTreeMap::from([(fixture.circuit.clone(), porep_32g(SHORT))]));
    config.watchdog = WatchdogConfig { floor: 100_000 * MS, upload_floor: 100_000 * MS, factor: 3 };
    config
}

pub fn settings(batches: BatchPolicy) -> DeviceConfig {
    DeviceConfig {
        budget_bytes: Some(BUDGET),
        critical_reserve_bytes: RESERVE,
        batches,
        ..DeviceConfig::default()
    }
}

pub async fn ready_card(config: SimConfig) -> DeviceRig {
    DeviceRig::ready(&spawner(config), settings(BatchPolicy::default())).await
}

/// Partition `index` of job 1, with a blinding of its own: its proof is no other's.
fn work(fixture: &Fixture, index: u32) -> PartitionWork {
    PartitionWork { blinding: blinding(index), ..fixture.work(1, index) }
}

fn blinding(index: u32) -> Blinding {
    Blinding { r: Scalar::from(100 + u64::from(index)), s: Scalar::from(7) }
}

fn expected(fixture: &Fixture, index: u32) -> Proof {
    prover::prove(&fixture.srs, &fixture.shape, &fixture.witness, &blinding(index)).expect("the key fits")
}

/// What became of the partitions that were given out one for each credit, as the Scheduler does.
pub struct Run {
    pub rig: DeviceRig,
    pub num_sent: u32,
    pub num_wanted: u32,
    /// Of other work, that was sent besides.
    pub num_others: u32,
    /// Credits that came back.
    pub num_freed: u32,
    pub answers: BTreeMap<u32, Result<Proof, DeviceError>>,
    pub answered_at: BTreeMap<u32, Duration>,
    pub cancels: HashMap<u32, CancelFlag>,
    /// Stages as they ended: of which partition, and when.
    stages: Vec<(u32, Stage, Duration)>,
    begun: Instant,
    peak_reserved_bytes: u64,
    lost: Option<DeviceError>,
}

impl Run {
    pub fn new(rig: DeviceRig, num_wanted: u32) -> Self {
        Self {
            rig,
            num_sent: 0,
            num_wanted,
            num_others: 0,
            num_freed: 0,
            answers: BTreeMap::new(),
            answered_at: BTreeMap::new(),
            cancels: HashMap::new(),
            stages: Vec::new(),
            begun: Instant::now(),
            peak_reserved_bytes: 0,
            lost: None,
        }
    }

    pub fn send(&mut self, fixture: &Fixture) {
        if self.num_sent < self.num_wanted {
            let index = self.num_sent;
            self.num_sent += 1;
            let cancel = self.rig.prove(work(fixture, index));
            self.cancels.insert(index, cancel);
        }
    }

    /// Until all are answered, or `until` says so.
    pub async fn go_on(&mut self, fixture: &Fixture, until: impl Fn(&Run) -> bool) {
        while self.answers.len() < (self.num_wanted + self.num_others) as usize && !until(&*self) {
            let fact = self.rig.facts.next().await;
            let now = self.begun.elapsed();
            match fact {
                Fact::Proved(proved) => self.answer(&proved.at, Ok(proved.proof), now),
                Fact::Failed(failed) => self.answer(&failed.at, Err(failed.error), now),
                Fact::Stage(stage) => {
                    let index = stage.at.partition.expect("of a partition").0;
                    self.stages.push((index, stage.stage, now));
                }
                Fact::Freed(freed) if freed.kind == LaneKind::Normal => {
                    self.num_freed += 1;
                    self.send(fixture);
                }
                Fact::Lost(lost) => self.lost = Some(lost.error),
                _ => {}
            }
            if let Some(status) = self.rig.board.get(&self.rig.handle.id) {
                assert!(status.in_use_bytes <= status.reserved_bytes, "{:?}", *status);
                assert!(status.reserved_bytes <= status.budget_bytes, "{:?}", *status);
                self.peak_reserved_bytes = self.peak_reserved_bytes.max(status.reserved_bytes);
            }
        }
    }

    /// Of a circuit of its own or of the same one, beside the partitions that are counted.
    pub fn send_urgent(&mut self, work: PartitionWork) {
        self.rig.prove_as(work, Priority::Critical, LaneKind::Critical);
        self.num_others += 1;
    }

    fn answer(&mut self, at: &cuzk::ids::WorkRef, answer: Result<Proof, DeviceError>, now: Duration) {
        let index = at.partition.expect("of a partition").0;
        assert!(self.answers.insert(index, answer).is_none(), "{at} is answered twice");
        self.answered_at.insert(index, now);
    }

    pub async fn all(rig: DeviceRig, fixture: &Fixture, num_wanted: u32) -> Self {
        Self::up_to(rig, fixture, num_wanted, |_| false).await
    }

    /// Until all are answered, or `until` says so.
    pub async fn up_to(
        rig: DeviceRig,
        fixture: &Fixture,
        num_wanted: u32,
        until: impl Fn(&Run) -> bool,
    ) -> Self {
        let mut run = Self::new(rig, num_wanted);
        run.send(fixture);
        run.go_on(fixture, until).await;
        run
    }

    /// When a stage ended, of each partition.
    pub fn ends_of(&self, stage: Stage) -> BTreeMap<u32, Duration> {
        let ends = self.stages.iter().filter(|(_, ended, _)| *ended == stage);
        ends.map(|(index, _, at)| (*index, *at)).collect()
    }

    /// Passes that there were: sums over `l` that ended at different times.
    pub fn num_passes(&self) -> usize {
        let mut ends: Vec<Duration> =
            self.stages.iter().filter(|(_, stage, _)| *stage == Stage::SumL).map(|s| s.2).collect();
        ends.sort();
        ends.dedup();
        ends.len()
    }

    pub fn time(&self) -> Duration {
        *self.answered_at.values().max().expect("there is an answer")
    }

    fn proof(&self, index: u32) -> &Proof {
        match &self.answers[&index] {
            Ok(proof) => proof,
            Err(error) => panic!("partition {index}: {error}"),
        }
    }

    pub fn num_proved(&self) -> usize {
        self.answers.values().filter(|answer| answer.is_ok()).count()
    }

    /// Everything came back, and the device drains.
    pub async fn end(self) {
        let status = self.rig.status().await;
        assert_eq!(status.lanes_busy, 0, "{status:?}");
        let keys: u64 = status.srs_bytes.values().sum();
        assert_eq!((status.reserved_bytes, status.in_use_bytes), (keys, keys), "only keys are kept");
        self.rig.drain().await;
    }
}

/// How long the queries of a pass take over the link, once.
fn one_pass() -> Duration {
    let queries = PASS_QUERIES.into_iter().fold(QuerySet::NONE, QuerySet::with);
    let bytes = porep_32g(SHORT).srs.resident_bytes(queries);
    Duration::from_secs_f64(bytes as f64 / LINK_BYTES_PER_S as f64)
}

#[test]
fn ten_partitions_take_one_pass_instead_of_ten() {
    let fixture = fixture();
    let run = |parking_lanes| {
        on_paused_arbiter(async {
            let rig = ready_card(card(&fixture, "", parking_lanes)).await;
            let run = Run::all(rig, &fixture, TEN).await;
            let figures = (run.num_passes(), run.time(), run.num_proved());
            run.end().await;
            figures
        })
    };
    let (alone, shared) = (run(0), run(TEN));
    println!("ten partitions: {alone:?} alone, {shared:?} with passes; one pass {:?}", one_pass());
    assert_eq!((alone.0, alone.2), (10, 10));
    assert_eq!((shared.0, shared.2), (1, 10), "all went together");
    let saved = alone.1 - shared.1;
    assert!(saved > one_pass() * 87 / 10, "nine of ten passes: {saved:?}");
    assert!(saved < one_pass() * 93 / 10, "and no more than there is to save: {saved:?}");
    assert!(shared.1 * 2 < alone.1);
}

/// Where sums take longer than copies, partitions are proved by themselves once that is known.
#[test]
fn passes_that_gain_nothing_are_given_up_and_those_that_do_go_on() {
    let fixture = fixture();
    let passes = |stage| {
        on_paused_arbiter(async {
            let mut config = card(&fixture, "", TEN);
            config.circuits = Arc::new(BTreeMap::from([(fixture.circuit.clone(), porep_32g(stage))]));
            let rig = ready_card(config).await;
            let first = Run::all(rig, &fixture, 3).await;
            assert_eq!((first.num_proved(), first.num_passes()), (3, 1), "to find out");
            let second = Run::all(first.rig, &fixture, 7).await;
            let figures = (second.num_proved(), second.num_passes());
            second.end().await;
            figures
        })
    };
    assert_eq!(passes(Duration::from_secs(2)), (7, 7), "sums decide: each by itself");
    assert_eq!(passes(SHORT), (7, 2), "copies decide: one by itself, to compare, and then six together");
}

#[test]
fn each_member_has_its_own_proof_the_hosts_to_the_byte() {
    let fixture = fixture();
    on_paused_arbiter(async {
        let rig = ready_card(SimConfig { prover: SimProver::Real, ..card(&fixture, "", TEN) }).await;
        let run = Run::all(rig, &fixture, 4).await;
        assert_eq!(run.num_passes(), 1);
        for index in 0..4 {
            assert_eq!(*run.proof(index), expected(&fixture, index), "partition {index}");
        }
        assert_ne!(expected(&fixture, 0), expected(&fixture, 1));
        run.end().await;
    });
}

#[test]
fn a_single_partition_waits_for_nobody() {
    let fixture = fixture();
    let time = |parking_lanes| {
        on_paused_arbiter(async {
            let rig = ready_card(card(&fixture, "", parking_lanes)).await;
            let run = Run::all(rig, &fixture, 1).await;
            let time = run.time();
            run.end().await;
            time
        })
    };
    assert_eq!(time(TEN), time(0), "as if there were no passes");
}

#[test]
fn nobody_waits_longer_than_a_batch_may_take() {
    let fixture = fixture();
    on_paused_arbiter(async {
        let max_time = Duration::from_secs(2);
        let batches = BatchPolicy { max_partitions: 32, max_time };
        let rig = DeviceRig::ready(&spawner(card(&fixture, "", TEN)), settings(batches)).await;
        let run = Run::all(rig, &fixture, TEN).await;
        assert_eq!(run.num_proved(), 10);
        assert!((2..10).contains(&run.num_passes()), "{}", run.num_passes());
        let (parked, summed) = (run.ends_of(Stage::SumH), run.ends_of(Stage::SumL));
        // What runs when the time is over goes first: the stages up to the sum over h, which streams h.
        let one_partition = Duration::from_millis(600) + one_pass();
        for (index, at) in &parked {
            let waited = summed[index] - *at;
            assert!(waited <= max_time + one_partition + one_pass(), "partition {index} waited {waited:?}");
        }
        run.end().await;
    });
}

#[test]
fn a_batch_without_time_or_of_one_partition_shares_nothing() {
    let fixture = fixture();
    for batches in [
        BatchPolicy { max_partitions: 32, max_time: Duration::ZERO },
        BatchPolicy { max_partitions: 1, max_time: Duration::from_secs(100) },
    ] {
        on_paused_arbiter(async {
            let rig = DeviceRig::ready(&spawner(card(&fixture, "", TEN)), settings(batches)).await;
            let run = Run::all(rig, &fixture, 3).await;
            assert_eq!((run.num_proved(), run.num_passes()), (3, 3));
            run.end().await;
        });
    }
}

#[test]
fn b29_a_member_that_is_cancelled_leaves_the_others_as_they_are() {
    let fixture = fixture();
    // While it is parked, within the pass, and behind it.
    for (stage, num_ended) in [(Stage::SumH, 2), (Stage::SumL, 1), (Stage::SumBG1, 1), (Stage::SumBG2, 5)] {
        on_paused_arbiter(async {
            let rig = ready_card(SimConfig { prover: SimProver::Real, ..card(&fixture, "", TEN) }).await;
            let mut run = Run::up_to(rig, &fixture, 5, |run| run.ends_of(stage).len() >= num_ended).await;
            run.cancels[&1].cancel();
            run.go_on(&fixture, |_| false).await;
            for index in [0, 2, 3, 4] {
                assert_eq!(*run.proof(index), expected(&fixture, index), "{stage}: partition {index}");
            }
            match &run.answers[&1] {
                Err(DeviceError::Cancelled { .. }) => {}
                // The last sum had ended: its proof may have been on its way.
                Ok(proof) if stage == Stage::SumBG2 => assert_eq!(*proof, expected(&fixture, 1)),
                other => panic!("{stage}: cancelled, and {other:?}"),
            }
            run.end().await;
        });
    }
}

#[test]
fn b29_a_pass_whose_members_are_all_cancelled_is_gone() {
    let fixture = fixture();
    on_paused_arbiter(async {
        let rig = ready_card(card(&fixture, "", TEN)).await;
        let mut run = Run::up_to(rig, &fixture, 3, |run| !run.ends_of(Stage::SumA).is_empty()).await;
        run.cancels.values().for_each(CancelFlag::cancel);
        run.go_on(&fixture, |_| false).await;
        assert!(run.answers.values().all(|answer| matches!(answer, Err(DeviceError::Cancelled { .. }))));
        run.end().await;
    });
}

#[test]
fn b13_memory_that_is_refused_to_a_pass_never_makes_bytes() {
    let fixture = fixture();
    let expected: Vec<Proof> = (0..3).map(|index| expected(&fixture, index)).collect();
    let mut num_again = 0;
    for ordinal in 1..=70 {
        on_paused_arbiter(async {
            let faults = format!("alloc_fail({ordinal})");
            let rig = ready_card(SimConfig { prover: SimProver::Real, ..card(&fixture, &faults, TEN) }).await;
            let run = Run::all(rig, &fixture, 3).await;
            for (index, answer) in &run.answers {
                match answer {
                    Ok(proof) => assert_eq!(*proof, expected[*index as usize], "{faults}: partition {index}"),
                    Err(error) => {
                        assert!(matches!(error, DeviceError::OutOfVram { .. }), "{faults}: {error}")
                    }
                }
            }
            // Refused in the pass, it is begun again by itself, with less.
            let summed_again =
                run.ends_of(Stage::SumH).len() < run.stages.iter().filter(|s| s.1 == Stage::SumH).count();
            num_again += usize::from(summed_again && run.num_proved() == 3);
            run.end().await;
        });
    }
    println!("{num_again} of 70 refusals struck a pass");
    assert!(num_again >= 3, "the script did strike members of passes: {num_again}");
}

#[test]
fn b45_a_device_that_is_lost_in_a_pass_answers_each_member() {
    let fixture = fixture();
    for faults in ["sticky@2.sum_a", "lost@3.sum_b_g1", "hang@1.sum_l"] {
        on_paused_arbiter(async {
            let mut config = card(&fixture, faults, TEN);
            config.watchdog = WatchdogConfig { floor: 5_000 * MS, upload_floor: 5_000 * MS, factor: 3 };
            let rig = ready_card(config).await;
            let mut run = Run::all(rig, &fixture, 4).await;
            assert_eq!(run.num_passes(), usize::from(!faults.contains("sum_l")), "{faults}");
            assert!(
                run.answers.values().all(|answer| {
                    answer.as_ref().is_err_and(|error| error.class() == ErrorClass::DeviceLost)
                }),
                "{faults}: {:?}",
                run.answers
            );
            if run.lost.is_none() {
                run.rig.lost().await;
            }
            stopped(&run.rig.handle.drain).await;
        });
    }
}

#[test]
fn b46_a_pass_may_take_as_many_times_as_long_as_it_has_members() {
    let fixture = fixture();
    on_paused_arbiter(async {
        // 400 ms of work for each sum, where one partition may take a second.
        let mut config = card(&fixture, "", TEN);
        config.circuits = Arc::new(BTreeMap::from([(fixture.circuit.clone(), porep_32g(400 * MS))]));
        config.watchdog = WatchdogConfig { floor: 1_000 * MS, upload_floor: 5_000 * MS, factor: 1 };
        let rig = ready_card(config).await;
        let run = Run::all(rig, &fixture, TEN).await;
        assert_eq!((run.num_proved(), run.num_passes()), (10, 1), "ten times 400 ms is no hang");
        run.end().await;
    });
}

#[test]
fn b09_critical_work_waits_for_no_batch_and_no_pass() {
    let fixture = fixture();
    let small = fixture.renamed("critical");
    for (kind, stage) in [
        (LaneKind::Critical, Stage::SumH),
        (LaneKind::Critical, Stage::SumL),
        (LaneKind::Critical, Stage::Quotient),
    ] {
        on_paused_arbiter(async {
            let rig = ready_card(card(&fixture, "", TEN)).await;
            let mut run = Run::up_to(rig, &fixture, 6, |run| run.ends_of(stage).len() >= 3).await;
            let asked = Instant::now();
            run.rig.prove_as(small.work(2, 0), Priority::Critical, kind);
            let is_proved = |fact: &Fact| match fact {
                Fact::Proved(proved) => (proved.at.job.0 == 2).then_some(()),
                _ => None,
            };
            run.rig.facts.find(is_proved).await;
            let took = asked.elapsed();
            assert!(took <= 9 * STAGE + 10 * MS, "behind {stage}: {took:?}");
            run.go_on(&fixture, |_| false).await;
            assert_eq!(run.num_proved(), 6);
            run.end().await;
        });
    }
}

#[test]
fn b09_critical_work_of_the_circuit_itself_is_proved_by_itself() {
    let fixture = fixture();
    on_paused_arbiter(async {
        let rig = ready_card(card(&fixture, "", TEN)).await;
        let mut run = Run::up_to(rig, &fixture, 4, |run| run.ends_of(Stage::SumH).len() >= 2).await;
        run.rig.prove_as(fixture.work(2, 77), Priority::Critical, LaneKind::Critical);
        run.num_wanted += 1;
        run.go_on(&fixture, |run| run.answers.contains_key(&77)).await;
        let parked = run.ends_of(Stage::SumH).len();
        assert!(
            run.answers.len() == 1 && parked >= 3,
            "it went before those who wait: {:?}",
            run.answers.keys()
        );
        let ends = |stage| run.ends_of(stage)[&77];
        // From its sum over h straight to the next one, which streams for it alone.
        assert!(ends(Stage::SumBG2) - ends(Stage::SumH) <= one_pass() + 20 * MS);
        run.go_on(&fixture, |_| false).await;
        assert_eq!(run.num_proved(), 5);
        run.end().await;
    });
}

#[test]
fn work_of_another_circuit_lets_the_batch_go_on() {
    let fixture = fixture();
    let other = fixture.renamed("other");
    on_paused_arbiter(async {
        let mut config = card(&fixture, "", TEN);
        let circuits = [&fixture, &other].map(|fixture| (fixture.circuit.clone(), porep_32g(SHORT)));
        config.circuits = Arc::new(circuits.into_iter().collect::<BTreeMap<CircuitId, SimCircuit>>());
        let rig = ready_card(config).await;
        // Three of one circuit, and then only of another.
        let mut run = Run::up_to(rig, &fixture, 3, |run| run.num_sent == 3).await;
        run.num_wanted = 6;
        run.go_on(&other, |_| false).await;
        assert_eq!(run.num_proved(), 6);
        assert_eq!(run.num_passes(), 2, "three and three");
        run.end().await;
    });
}

#[test]
fn a_card_that_keeps_the_whole_key_is_as_it_was() {
    let fixture = fixture();
    let facts = |parking_lanes| {
        on_paused_arbiter(async {
            let mut config = card(&fixture, "delay(3ms)@2.sum_a", parking_lanes);
            config.memory_bytes = 140 * GB;
            config.layout.normal = 2;
            let device = DeviceConfig { budget_bytes: Some(126 * GB), ..DeviceConfig::default() };
            let mut rig = DeviceRig::ready(&spawner(config), device).await;
            let mut num_sent = 0;
            let mut log = Vec::new();
            let begun = Instant::now();
            for _ in 0..2 {
                rig.prove(work(&fixture, num_sent));
                num_sent += 1;
            }
            while log.iter().filter(|(label, _): &&(String, Duration)| label.starts_with("proved")).count()
                < 6
            {
                let fact = rig.facts.next().await;
                log.push((fact.label(), begun.elapsed()));
                if matches!(fact, Fact::Freed(_)) && num_sent < 6 {
                    rig.prove(work(&fixture, num_sent));
                    num_sent += 1;
                }
            }
            rig.drain().await;
            log
        })
    };
    assert_eq!(facts(TEN), facts(0));
}

/// What is reserved for a pass is what the plan of it says.
#[test]
fn a_pass_is_charged_as_planned_and_no_more_than_a_partition() {
    let fixture = fixture();
    let SimCircuit { shape, srs, .. } = porep_32g(SHORT);
    let plan = plan(&shape, &srs, BUDGET - RESERVE).expect("a small card streams");
    assert!(max_members(&shape, &srs, &plan, TEN) == TEN);
    on_paused_arbiter(async {
        let rig = ready_card(card(&fixture, "", TEN)).await;
        let mut run = Run::up_to(rig, &fixture, TEN, |run| !run.ends_of(Stage::SumL).is_empty()).await;
        let status = run.rig.status().await;
        let work_bytes = BUDGET - RESERVE - plan.resident_bytes;
        let pass = plan_pass(&shape, &srs, plan.resident, TEN, work_bytes).expect("it fits");
        assert_eq!(status.reserved_bytes, plan.resident_bytes + pass.peak_bytes());
        run.go_on(&fixture, |_| false).await;
        assert!(run.peak_reserved_bytes <= BUDGET);
        run.end().await;
    });
}
