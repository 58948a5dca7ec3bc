//! Who waits for a pass and how long, in what memory it begins beside other work, and what is learnt of it.

use std::collections::BTreeMap;

use cuzk::backend::sim::SimCircuit;
use cuzk::policy::batch::BatchPolicy;
use cuzk::policy::plan::EvaluationSummary;
use cuzk::policy::shared_pass::plan_pass;

use super::passes::{card, porep_32g, ready_card, settings, Run, GB, RESERVE, SHORT, TEN};
use super::*;

/// What CRITICAL work of a test is called beside the partitions of the run.
const URGENT: u32 = 77;
const OTHER: u32 = 78;

/// A circuit of which nothing is known but how much of it there is: some gigabytes for every few million variables.
fn filler(num_aux: u64, stage: Duration) -> SimCircuit {
    let shape =
        ShapeSummary { domain_log2: 20, num_rows: 1_000_000, num_inputs: 2, num_aux, evaluation: None };
    let srs = SrsSummary::new([(1 << 20) - 1, num_aux, num_aux, num_aux / 4, num_aux / 4]);
    SimCircuit { shape, srs, stage_durations: [stage; 9] }
}

/// A PoRep of 32 GiB whose shape takes next to nothing, so that the least memory has room for it.
fn porep() -> SimCircuit {
    let mut circuit = porep_32g(SHORT);
    circuit.shape.evaluation = EvaluationSummary::known(Some(1_700_000), Some(1_000_000));
    circuit
}

/// With so many values that are no bits that each member of a pass takes a gigabyte.
fn dense_porep() -> SimCircuit {
    let mut circuit = porep_32g(SHORT);
    circuit.shape.evaluation = EvaluationSummary::known(Some(30_000_000), Some(1_000_000));
    circuit
}

/// Just what one partition needs: beside one that has not reached its sums there is no room for anything else.
fn tight(circuit: &SimCircuit) -> u64 {
    least_budget_bytes(&circuit.shape, &circuit.srs) + RESERVE + 30_000_000
}

/// What a partition takes in all where it may have `budget_bytes`.
fn bytes_of(circuit: &SimCircuit, budget_bytes: u64) -> u64 {
    plan(&circuit.shape, &circuit.srs, budget_bytes).expect("there is room").peak_bytes()
}

/// Whether a pass of so many can be planned where `taken_bytes` of a [`tight`] card are others'.
fn has_pass(circuit: &SimCircuit, num_members: u32, taken_bytes: u64) -> bool {
    let SimCircuit { shape, srs, .. } = circuit;
    let alone = plan(shape, srs, tight(circuit) - RESERVE).expect("a small card streams");
    let work_bytes = tight(circuit) - alone.resident_bytes - taken_bytes;
    plan_pass(shape, srs, alone.resident, num_members, work_bytes).is_some()
}

fn card_of<const N: usize>(fixture: &Fixture, circuits: [(&Fixture, SimCircuit); N]) -> SimConfig {
    let mut config = card(fixture, "", TEN);
    let circuits = circuits.map(|(fixture, circuit)| (fixture.circuit.clone(), circuit));
    config.circuits = Arc::new(BTreeMap::from(circuits));
    config
}

/// A card that is [`tight`] for this circuit.
async fn ready_tight(config: SimConfig, circuit: &SimCircuit, batches: BatchPolicy) -> DeviceRig {
    let device = DeviceConfig { budget_bytes: Some(tight(circuit)), ..settings(batches) };
    DeviceRig::ready(&spawner(config), device).await
}

/// Six partitions, the last of which is on its way, and CRITICAL work that gets memory before the pass of all of them.
async fn six_beside_urgent(rig: DeviceRig, fixture: &Fixture, urgent: &Fixture) -> Run {
    let mut run = Run::up_to(rig, fixture, 6, |run| run.ends_of(Stage::SumH).len() >= 5).await;
    run.send_urgent(urgent.work(2, URGENT));
    run
}

#[test]
fn half_of_a_batch_goes_on_where_not_all_have_memory_beside_what_runs() {
    let fixture = fixture();
    let urgent = fixture.renamed("urgent");
    let circuits = [(&fixture, dense_porep()), (&urgent, filler(2_000_000, Duration::from_secs(20)))];
    let taken_bytes = bytes_of(&circuits[1].1, tight(&circuits[0].1) - GB);
    assert!(has_pass(&circuits[0].1, 3, taken_bytes) && !has_pass(&circuits[0].1, 6, taken_bytes));
    on_paused_arbiter(async {
        let rig = ready_tight(card_of(&fixture, circuits), &dense_porep(), BatchPolicy::default()).await;
        let mut run = six_beside_urgent(rig, &fixture, &urgent).await;
        run.go_on(&fixture, |_| false).await;
        assert_eq!((run.num_proved(), run.num_passes()), (7, 3), "two passes, and one by itself");
        let last = (0..6).map(|index| run.answered_at[&index]).max().expect("there are six");
        assert!(last < run.answered_at[&URGENT] / 4, "none waited for what ran: {:?}", run.answered_at);
        run.end().await;
    });
}

/// Where less than half have memory, the pass waits for what runs, but no longer than a batch may take: and nothing happens
/// then that the device would be woken by.
#[test]
fn whoever_has_memory_goes_on_when_the_batch_has_waited_long_enough() {
    let fixture = fixture();
    let urgent = fixture.renamed("urgent");
    let circuits = [(&fixture, dense_porep()), (&urgent, filler(5_000_000, Duration::from_secs(20)))];
    let taken_bytes = bytes_of(&circuits[1].1, tight(&circuits[0].1) - GB);
    assert!(has_pass(&circuits[0].1, 1, taken_bytes) && !has_pass(&circuits[0].1, 3, taken_bytes));
    let max_time = Duration::from_secs(30);
    let batches = BatchPolicy { max_partitions: 32, max_time };
    on_paused_arbiter(async {
        let rig = ready_tight(card_of(&fixture, circuits), &dense_porep(), batches).await;
        let mut run = six_beside_urgent(rig, &fixture, &urgent).await;
        run.go_on(&fixture, |_| false).await;
        assert_eq!(run.num_proved(), 7);
        let waited = run.ends_of(Stage::SumL)[&0] - run.ends_of(Stage::SumH)[&0];
        assert!((max_time..max_time + 3 * Duration::from_secs(1)).contains(&waited), "{waited:?}");
        run.end().await;
    });
}

/// A gain that is no longer thought to be one: partitions that will be proved by themselves are nobody to wait for.
#[test]
fn who_is_parked_does_not_wait_for_partitions_that_will_not_join() {
    let fixture = fixture();
    let stage = Duration::from_secs(2);
    on_paused_arbiter(async {
        // Sums decide, but the one that was measured by itself was slow by chance: passes seem to pay.
        let mut config = card_of(&fixture, [(&fixture, porep_32g(stage))]);
        config.faults = "delay(12000ms)@4.sum_l".parse().expect("the script is well-formed");
        config.layout.normal = 2;
        let rig = ready_card(config).await;
        let rig = Run::all(rig, &fixture, 3).await.rig;
        let rig = Run::all(rig, &fixture, 1).await.rig;
        let mut run = Run::new(rig, 9);
        run.send(&fixture);
        run.send(&fixture);
        run.go_on(&fixture, |run| run.ends_of(Stage::SumH).len() >= 2).await;
        // It shows what one takes by itself, while three are parked and two more are here.
        run.send_urgent(fixture.work(2, URGENT));
        run.go_on(&fixture, |_| false).await;
        assert_eq!(run.num_proved(), 10);
        let (ended, parked) = (run.ends_of(Stage::SumL), run.ends_of(Stage::SumH));
        assert!(ended[&0] == ended[&1] && ended[&1] == ended[&2], "three go on together: {ended:?}");
        assert!((3..9).all(|index| ended[&2] < parked[&index]), "and first: {ended:?}, {parked:?}");
        assert_eq!(run.num_passes(), 8, "all others by themselves");
        run.end().await;
    });
}

/// A card of which all but 8 GB are for NORMAL work, which other work of that kind has part of for minutes.
fn card_with_a_large_reserve(
    fixture: &Fixture,
    other: &Fixture,
    urgent: &Fixture,
) -> (SimConfig, DeviceConfig) {
    let circuits = [
        (fixture, dense_porep()),
        (other, filler(2_000_000, Duration::from_secs(20))),
        (urgent, filler(5_000_000, SHORT)),
    ];
    let mut config = card_of(fixture, circuits);
    config.memory_bytes = 40 * GB;
    config.layout.normal = 2;
    config.shares_compute = false;
    let mut device = settings(BatchPolicy::default());
    (device.budget_bytes, device.critical_reserve_bytes) = (Some(31_100_000_000), 8 * GB);
    (config, device)
}

/// What an idle key holds may be the critical reserve's: to evict it is no gain, and what was planned with it does not fit.
#[test]
fn a_partition_that_counted_on_the_memory_of_an_idle_key_is_planned_anew() {
    let fixture = fixture();
    let (other, urgent) = (fixture.renamed("other"), fixture.renamed("urgent"));
    on_paused_arbiter(async {
        let (config, device) = card_with_a_large_reserve(&fixture, &other, &urgent);
        let mut rig = DeviceRig::ready(&spawner(config), device).await;
        rig.prove(other.work(2, OTHER));
        rig.prove_as(urgent.work(3, URGENT), Priority::Critical, LaneKind::Critical);
        assert_eq!(rig.proved().await.at.job.0, 3);
        let run = Run::up_to(rig, &fixture, 1, |run| run.answers.contains_key(&0)).await;
        assert!(run.time() < Duration::from_secs(10), "it waited for what ran: {:?}", run.time());
        let mut rig = run.rig;
        assert_eq!(rig.proved().await.at.job.0, 2);
        rig.drain().await;
    });
}

/// Four stages of sums by which a pass is judged must be shared out among those who took part in them.
#[test]
fn a_pass_that_most_members_left_is_not_thought_to_pay() {
    let fixture = fixture();
    on_paused_arbiter(async {
        // Sums decide: in fact nothing is gained.
        let rig = ready_card(card_of(&fixture, [(&fixture, porep_32g(Duration::from_secs(2)))])).await;
        let mut run =
            Run::up_to(rig, &fixture, TEN, |run| run.ends_of(Stage::SumH).len() >= TEN as usize).await;
        (2..TEN).for_each(|index| run.cancels[&index].cancel());
        run.go_on(&fixture, |_| false).await;
        assert_eq!((run.num_proved(), run.num_passes()), (2, 1));
        let after = Run::all(run.rig, &fixture, 7).await;
        assert_eq!((after.num_proved(), after.num_passes()), (7, 7), "each by itself");
        after.end().await;
    });
}

#[test]
fn a_pass_of_one_says_nothing_of_what_a_partition_takes_by_itself() {
    let fixture = fixture();
    on_paused_arbiter(async {
        let rig = ready_card(card(&fixture, "", TEN)).await;
        let mut run = Run::up_to(rig, &fixture, 2, |run| run.ends_of(Stage::SumH).len() == 1).await;
        run.cancels[&1].cancel();
        run.go_on(&fixture, |_| false).await;
        assert_eq!((run.num_proved(), run.num_passes()), (1, 1), "it was parked for nobody");
        let three = Run::all(run.rig, &fixture, 3).await;
        assert_eq!((three.num_proved(), three.num_passes()), (3, 1), "to find out");
        let seven = Run::all(three.rig, &fixture, 7).await;
        assert_eq!((seven.num_proved(), seven.num_passes()), (7, 2), "one by itself, to compare");
        seven.end().await;
    });
}

/// Three parked partitions for whose pass there is no memory, and nothing else of their circuit.
#[test]
fn b29_a_parked_partition_keeps_its_key_and_can_be_cancelled() {
    let fixture = fixture();
    let urgent = fixture.renamed("urgent");
    let circuits = [(&fixture, porep()), (&urgent, filler(20_000_000, Duration::from_secs(3)))];
    assert!(!has_pass(&circuits[0].1, 1, bytes_of(&circuits[1].1, tight(&circuits[0].1) - GB)));
    on_paused_arbiter(async {
        let rig = ready_tight(card_of(&fixture, circuits), &porep(), BatchPolicy::default()).await;
        let mut run = Run::up_to(rig, &fixture, 3, |run| run.ends_of(Stage::SumH).len() >= 2).await;
        run.send_urgent(urgent.work(2, URGENT));
        run.go_on(&fixture, |run| run.ends_of(Stage::Upload).contains_key(&URGENT)).await;
        assert_eq!(run.ends_of(Stage::SumH).len(), 3, "all are parked");

        let evict = |when_idle| EvictSrs { circuit: fixture.circuit.clone(), when_idle };
        let refused = run.rig.handle.address.evict.send(evict(false)).await.expect("the actor lives");
        assert!(matches!(refused, Err(DeviceError::SrsInUse { .. })), "{refused:?}");
        let asked = Instant::now();
        run.cancels[&1].cancel();
        run.go_on(&fixture, |run| !run.answers.is_empty()).await;
        assert!(matches!(run.answers[&1], Err(DeviceError::Cancelled { .. })), "{:?}", run.answers);
        assert!(asked.elapsed() <= 50 * MS, "at once: {:?}", asked.elapsed());
        let later = run.rig.handle.address.evict.send(evict(true)).await.expect("the actor lives");
        assert!(matches!(later, Ok(Eviction::WhenIdle { num_bytes }) if num_bytes > 0), "{later:?}");

        run.go_on(&fixture, |_| false).await;
        assert_eq!(
            (run.num_proved(), run.num_passes()),
            (3, 2),
            "the two that were left, and the urgent one"
        );
        let status = run.rig.status().await;
        assert!(!status.resident_srs.contains(&fixture.circuit.to_string()), "their key went with them");
        run.end().await;
    });
}

/// The first memory that is enough for a pass, but not for the CRITICAL work that waits, is no pass's.
#[test]
fn b09_no_pass_takes_the_memory_that_critical_work_waits_for() {
    let fixture = fixture();
    let [large, long, urgent] = ["large", "long", "urgent"].map(|name| fixture.renamed(name));
    let circuits = [
        (&fixture, porep()),
        (&large, filler(10_000_000, SHORT)),
        (&long, filler(12_000_000, 200 * MS)),
        (&urgent, porep()),
    ];
    // The second of them has what the first leaves: after that there is room for a pass, and not for the third.
    let tight = tight(&circuits[0].1);
    let large_bytes = bytes_of(&circuits[1].1, tight - GB);
    assert!(!has_pass(&circuits[0].1, 1, large_bytes) && has_pass(&circuits[0].1, 3, tight - large_bytes));
    let least_bytes = |index: usize| least_budget_bytes(&circuits[index].1.shape, &circuits[index].1.srs);
    assert!(least_bytes(2) < tight - large_bytes - GB && least_bytes(3) > tight - least_bytes(2));
    on_paused_arbiter(async {
        let mut config = card_of(&fixture, circuits);
        config.layout.critical = 3;
        let rig = ready_tight(config, &porep(), BatchPolicy::default()).await;
        let mut run = Run::up_to(rig, &fixture, 3, |run| run.ends_of(Stage::SumH).len() >= 2).await;
        for (job, fixture) in (URGENT..).zip([&large, &long, &urgent]) {
            run.send_urgent(fixture.work(2, job));
        }
        run.go_on(&fixture, |_| false).await;
        assert_eq!(run.num_proved(), 6);
        let ended = run.ends_of(Stage::SumL);
        let [large, long, urgent] = [0, 1, 2].map(|index| run.answered_at[&(URGENT + index)]);
        assert!(large < long && long < urgent, "{:?}", run.answered_at);
        assert!((0..3).all(|index| ended[&index] > urgent), "{ended:?}, {:?}", run.answered_at);
        run.end().await;
    });
}

/// CRITICAL work by a new key of the same circuit waits until the old one is idle: the sooner its pass begins, the better.
#[test]
fn b09_a_pass_begins_for_critical_work_that_waits_for_its_key() {
    let fixture = fixture();
    let replaced = super::fixture();
    let other = fixture.renamed("other");
    let circuits = [(&fixture, porep()), (&other, filler(200_000, Duration::from_secs(20)))];
    on_paused_arbiter(async {
        let mut config = card_of(&fixture, circuits);
        config.layout.normal = 2;
        config.shares_compute = false;
        let rig = ready_card(config).await;
        rig.prove(other.work(2, OTHER));
        let mut run = Run::up_to(rig, &fixture, 3, |run| run.ends_of(Stage::SumH).len() >= 2).await;
        run.send_urgent(replaced.work(3, URGENT));
        run.num_others += 1;
        run.go_on(&fixture, |_| false).await;
        assert_eq!((run.num_proved(), run.num_passes()), (5, 3), "three of them together");
        let waited = run.answered_at[&URGENT] - run.ends_of(Stage::SumH)[&2];
        assert!(waited < run.answered_at[&OTHER] / 4, "not for what ran: {:?}", run.answered_at);
        run.end().await;
    });
}

#[test]
fn a_device_that_drains_finishes_its_batch_and_invites_nobody() {
    let fixture = fixture();
    on_paused_arbiter(async {
        let rig = ready_card(card(&fixture, "", TEN)).await;
        let mut run = Run::up_to(rig, &fixture, 9, |run| run.ends_of(Stage::SumH).len() >= 2).await;
        run.rig.handle.drain.do_send(Drain);
        assert_eq!((run.num_sent, run.num_freed), (3, 2), "one is on its way to two that are parked");
        run.num_wanted = run.num_sent;
        run.go_on(&fixture, |run| !run.answers.is_empty()).await;
        assert_eq!(run.num_freed, 2, "whoever came would be refused");
        run.go_on(&fixture, |_| false).await;
        assert_eq!((run.num_proved(), run.num_passes()), (3, 1));
        run.rig.drain().await;
    });
}
