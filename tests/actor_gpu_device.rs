//! The device actor, message by message, on simulated devices with virtual time and on the host's processor.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::device::{DeviceRig, Fact};
use common::fixtures::Fixture;
use common::{on_arbiter, on_paused_arbiter, stopped};
use cuzk::actors::gpu_device::{DeviceConfig, DeviceSpawner, FactorySpawner};
use cuzk::backend::cpu::{CpuBackend, CpuConfig, CpuFactory};
use cuzk::backend::sim::{FaultScript, SimConfig, SimFactory, SimProver};
use cuzk::backend::{
    BackendEvent, BackendFactory, BackendWaker, DeviceBackend, LaneIndex, LaneLayout, Stage, WatchdogConfig,
};
use cuzk::error::{DeviceError, ErrorClass, PlanError, SrsError};
use cuzk::messages::device::{CancelFlag, EvictSrs, LaneCredit, LaneKind, PartitionFailed};
use cuzk::messages::job::Priority;
use cuzk::messages::lifecycle::Drain;
use cuzk::policy::plan::{least_budget_bytes, plan, ProvePlan, ShapeSummary, SrsSummary};
use tokio::time::Instant;

const MS: Duration = Duration::from_millis(1);
/// Time of every simulated stage.
const STAGE: Duration = Duration::from_millis(10);

fn sim(faults: &str) -> SimConfig {
    SimConfig {
        stage_durations: [STAGE; 9],
        prover: SimProver::Fake,
        faults: faults.parse::<FaultScript>().expect("the script is well-formed"),
        watchdog: WatchdogConfig { floor: 100 * MS, upload_floor: 200 * MS, factor: 3 },
        ..SimConfig::default()
    }
}

fn real(faults: &str) -> SimConfig {
    SimConfig { prover: SimProver::Real, ..sim(faults) }
}

fn spawner(config: SimConfig) -> Arc<dyn DeviceSpawner> {
    FactorySpawner::boxed(SimFactory::new(config))
}

async fn ready(config: SimConfig) -> DeviceRig {
    DeviceRig::ready(&spawner(config), DeviceConfig::default()).await
}

async fn ready_with_budget(config: SimConfig, budget_bytes: u64) -> DeviceRig {
    let device = DeviceConfig { budget_bytes: Some(budget_bytes), ..DeviceConfig::default() };
    DeviceRig::ready(&spawner(config), device).await
}

fn fixture() -> Fixture {
    Fixture::new("small", 31)
}

fn summaries(fixture: &Fixture) -> (ShapeSummary, SrsSummary) {
    (ShapeSummary::of(&fixture.shape), SrsSummary::of(&fixture.srs))
}

/// The plan with all the memory there could be.
fn roomy_plan(fixture: &Fixture) -> ProvePlan {
    let (shape, srs) = summaries(fixture);
    plan(&shape, &srs, u64::MAX / 2).expect("there is room")
}

fn least_bytes(fixture: &Fixture) -> u64 {
    let (shape, srs) = summaries(fixture);
    least_budget_bytes(&shape, &srs)
}

fn is_cancelled(failed: &PartitionFailed) -> bool {
    matches!(failed.error, DeviceError::Cancelled { .. })
}

#[test]
fn a_partition_goes_through_its_stages_and_gives_everything_back() {
    on_paused_arbiter(async {
        let fixture = fixture();
        let mut rig = ready(sim("")).await;
        let begun = Instant::now();
        rig.prove(fixture.work(1, 0));
        let mut labels = Vec::new();
        let proved = loop {
            let fact = rig.facts.next().await;
            labels.push(fact.label());
            if let Fact::Proved(proved) = fact {
                break proved;
            }
        };
        assert_eq!(begun.elapsed(), 9 * STAGE, "no time is lost between stages");
        let mut expected: Vec<String> = Stage::ALL.iter().map(|stage| format!("stage 1/0 {stage}")).collect();
        expected.insert(0, "resident small".to_owned());
        expected.push("proved 1/0".to_owned());
        assert_eq!(labels, expected);
        assert_eq!(proved.timings.0, Stage::ALL.map(|stage| (stage, STAGE)).to_vec());
        assert_eq!(proved.at.to_string(), "job 0001 partition 0 attempt 1 on sim-0");
        let plan = roomy_plan(&fixture);
        assert_eq!(proved.memory_planned_bytes, plan.work_peak_bytes());
        assert_eq!(proved.memory_peak_bytes, plan.work_peak_bytes());
        rig.freed().await;
        let status = rig.status().await;
        assert_eq!((status.lanes_busy, status.partitions_proved), (0, 1));
        assert_eq!(status.reserved_bytes, plan.resident_bytes, "only the key stays");
        assert_eq!(status.in_use_bytes, plan.resident_bytes);
        assert_eq!(status.resident_srs, ["small"]);
        assert_eq!(rig.drain().await, ["drained"]);
    });
}

#[test]
fn given_row_values_are_not_computed_again() {
    on_paused_arbiter(async {
        let fixture = fixture();
        let mut rig = ready(real("")).await;
        let mut work = fixture.work(1, 0);
        work.evaluations = Some(fixture.shape.evaluate(&fixture.assignment).expect("it fits"));
        rig.prove(work);
        let proved = rig.proved().await;
        assert!(proved.timings.0.iter().all(|(stage, _)| *stage != Stage::Evaluate));
        assert_eq!(proved.proof, fixture.expected_proof());
        rig.drain().await;
    });
}

#[test]
fn b35_a_device_proves_tiny_and_odd_sizes_after_a_known_answer() {
    let fixtures = [1, 2, 3, 7, 31, 1025].map(|size| Fixture::new(&format!("size-{size}"), size));
    on_paused_arbiter(async {
        let mut rig = ready(real("")).await;
        let status = rig.status().await;
        assert_eq!(
            (status.health.as_str(), status.reserved_bytes),
            ("ready", 0),
            "the self-test left nothing"
        );
        for fixture in &fixtures {
            rig.prove(fixture.work(1, 0));
            let proved = rig.proved().await;
            assert_eq!(proved.proof, fixture.expected_proof());
            assert!(fixture.verifies(&proved.proof));
            rig.freed().await;
        }
        rig.drain().await;
    });
}

#[test]
fn b35_the_host_proves_tiny_and_odd_sizes_after_a_known_answer() {
    let fixtures = [1, 2, 3, 7, 31, 1025].map(|size| Fixture::new(&format!("size-{size}"), size));
    on_arbiter(async {
        let config = CpuConfig { num_lanes: 1, memory_bytes: 1 << 30, num_threads: None };
        let spawner = FactorySpawner::boxed(CpuFactory::new(config));
        let mut rig = DeviceRig::ready(&spawner, DeviceConfig::default()).await;
        for fixture in &fixtures {
            rig.prove(fixture.work(1, 0));
            let proved = rig.proved().await;
            assert_eq!(proved.proof, fixture.expected_proof());
            assert!(fixture.verifies(&proved.proof));
            assert!(proved.memory_peak_bytes > 0 && proved.memory_peak_bytes <= proved.memory_planned_bytes);
            rig.freed().await;
        }
        let status = rig.status().await;
        assert_eq!((status.reserved_bytes, status.in_use_bytes, status.lanes_busy), (0, 0, 0));
        rig.drain().await;
    });
}

#[test]
fn the_host_gives_a_cancelled_partition_up() {
    on_arbiter(async {
        let fixture = Fixture::new("large", 20_000);
        let config = CpuConfig { num_lanes: 2, memory_bytes: 1 << 30, num_threads: Some(1) };
        let spawner = FactorySpawner::boxed(CpuFactory::new(config));
        let mut rig = DeviceRig::ready(&spawner, DeviceConfig::default()).await;
        rig.prove(fixture.work(1, 0)).cancel();
        assert!(is_cancelled(&rig.failed().await));
        rig.freed().await;
        let cancel = rig.prove(fixture.work(2, 0));
        rig.stage(Stage::Quotient).await;
        cancel.cancel();
        assert!(is_cancelled(&rig.failed().await));
        rig.freed().await;
        // The same lane is good for the next one.
        rig.prove(fixture.work(3, 0));
        assert_eq!(rig.proved().await.proof, fixture.expected_proof());
        rig.drain().await;
    });
}

#[test]
fn b25_cancel_is_defined_in_every_state() {
    on_paused_arbiter(async {
        let fixture = fixture();
        let mut rig = ready(sim("")).await;
        let cancelled = CancelFlag::default();
        cancelled.cancel();
        let credit = rig.credit(LaneKind::Normal);
        rig.send(fixture.work(1, 0), Priority::Normal, cancelled, credit);
        assert!(is_cancelled(&rig.failed().await), "before it began");
        rig.freed().await;

        for (job, stage) in (2..).zip(Stage::ALL) {
            let cancel = rig.prove(fixture.work(job, 0));
            rig.stage(stage).await;
            let at = Instant::now();
            cancel.cancel();
            cancel.cancel();
            if stage == Stage::Assemble {
                rig.proved().await;
            } else {
                assert!(is_cancelled(&rig.failed().await), "after {stage}");
            }
            rig.freed().await;
            assert!(
                at.elapsed() <= STAGE,
                "the lane is free within a stage, after {stage}: {:?}",
                at.elapsed()
            );
            let status = rig.status().await;
            assert_eq!(status.lanes_busy, 0);
            assert_eq!(status.reserved_bytes, roomy_plan(&fixture).resident_bytes);
        }
        rig.prove(fixture.work(99, 0));
        rig.proved().await;
        rig.drain().await;
    });
}

#[test]
fn a_cancelled_stage_that_takes_long_still_ends_first() {
    on_paused_arbiter(async {
        let fixture = fixture();
        let mut config = sim("delay(60ms)@1.sum_h");
        config.stages_ahead = 2;
        let mut rig = ready(config).await;
        let cancel = rig.prove(fixture.work(1, 0));
        rig.stage(Stage::Quotient).await;
        cancel.cancel();
        let at = Instant::now();
        assert!(is_cancelled(&rig.failed().await));
        assert_eq!(at.elapsed(), STAGE + 60 * MS, "two more stages were enqueued, and are dropped");
        rig.freed().await;
        rig.drain().await;
    });
}

#[test]
fn b12_refused_memory_is_planned_anew_with_less() {
    on_paused_arbiter(async {
        let fixture = fixture();
        let mut rig = ready(real("alloc_fail(3)")).await;
        rig.prove(fixture.work(1, 0));
        let proved = rig.proved().await;
        assert_eq!(proved.proof, fixture.expected_proof());
        let roomy = roomy_plan(&fixture);
        let status = rig.status().await;
        assert!(status.reserved_bytes < roomy.resident_bytes, "the second plan keeps less on the device");
        rig.freed().await;
        assert!(rig.handle.address.evict.send(EvictSrs { circuit: fixture.circuit.clone() }).await.is_ok());
        assert_eq!(rig.status().await.reserved_bytes, 0);
        rig.prove(fixture.work(2, 0));
        rig.proved().await;
        rig.drain().await;
    });
}

#[test]
fn b12_the_same_size_is_never_tried_twice() {
    on_paused_arbiter(async {
        let fixture = fixture();
        let least = least_bytes(&fixture);
        // Exactly the least: there is no smaller plan to fall back to.
        let mut rig = ready_with_budget(sim("alloc_fail(3)"), least).await;
        rig.prove(fixture.work(1, 0));
        let failed = rig.failed().await;
        assert!(matches!(failed.error, DeviceError::OutOfVram { .. }), "{failed:?}");
        assert_eq!(failed.error.class(), ErrorClass::Retry);
        rig.freed().await;
        assert_eq!(rig.status().await.reserved_bytes, 0);

        rig.prove(fixture.work(1, 0));
        let again = rig.failed().await;
        let DeviceError::Plan { source: PlanError::InsufficientVram { needs_bytes, has_bytes }, .. } =
            again.error
        else {
            panic!("expected to be refused before any launch: {again:?}")
        };
        assert_eq!((needs_bytes, has_bytes), (least, least - 1));
        rig.freed().await;
        rig.prove(fixture.work(2, 0));
        rig.proved().await;
        rig.drain().await;
    });
}

#[test]
fn b13_refused_memory_never_makes_bytes() {
    let fixture = fixture();
    let expected = fixture.expected_proof();
    let mut num_replanned = 0;
    for ordinal in 1..=50 {
        on_paused_arbiter(async {
            let mut rig = ready(real(&format!("alloc_fail({ordinal})"))).await;
            let mut num_uploads = 0;
            for job in 1..=2 {
                rig.prove(fixture.work(job, 0));
                let answer = rig
                    .facts
                    .find(|fact| match fact {
                        Fact::Proved(proved) => Some(Ok(proved.proof.clone())),
                        Fact::Failed(failed) => Some(Err(failed.error.clone())),
                        _ => None,
                    })
                    .await;
                match answer {
                    Ok(proof) => assert_eq!(proof, expected),
                    Err(error) => assert!(matches!(error, DeviceError::OutOfVram { .. }), "{error:?}"),
                }
                rig.freed().await;
                num_uploads += rig.labels().iter().filter(|label| label.ends_with("upload")).count();
            }
            num_replanned += usize::from(num_uploads > 2);
            rig.drain().await;
        });
    }
    assert!(num_replanned > 5, "the script did strike: {num_replanned}");
}

#[test]
fn b11_too_little_memory_is_refused_before_any_launch() {
    on_paused_arbiter(async {
        let fixture = fixture();
        let least = least_bytes(&fixture);
        let mut rig = ready_with_budget(sim(""), least - 1).await;
        let at = Instant::now();
        rig.prove(fixture.work(1, 0));
        let failed = rig.failed().await;
        let DeviceError::Plan { source: PlanError::InsufficientVram { needs_bytes, has_bytes }, .. } =
            failed.error
        else {
            panic!("expected a plan error: {failed:?}")
        };
        assert_eq!((needs_bytes, has_bytes), (least, least - 1));
        assert_eq!(at.elapsed(), Duration::ZERO);
        assert_eq!(rig.labels(), ["freed"], "nothing was launched");
        rig.drain().await;

        // With the least that does, it streams.
        let mut rig = ready_with_budget(sim(""), least).await;
        rig.prove(fixture.work(1, 0));
        rig.proved().await;
        assert_eq!(rig.status().await.in_use_bytes, 0, "nothing is kept");
        rig.drain().await;
    });
}

#[test]
fn b14_the_least_recently_used_key_goes_and_the_one_in_use_stays() {
    on_paused_arbiter(async {
        let a = fixture();
        let (b, c) = (a.renamed("b"), a.renamed("c"));
        let plan = roomy_plan(&a);
        let room_for_two = 2 * plan.resident_bytes + plan.work_peak_bytes();
        let mut rig = ready_with_budget(sim(""), room_for_two).await;
        let mut job = 0;
        for _ in 0..5 {
            for fixture in [&a, &b, &c] {
                job += 1;
                rig.prove(fixture.work(job, 0));
                rig.proved().await;
                rig.freed().await;
            }
        }
        assert_eq!(rig.status().await.resident_srs, ["b", "c"]);
        rig.prove(b.work(100, 0));
        rig.proved().await;
        rig.prove(a.work(101, 0));
        rig.stage(Stage::Upload).await;
        assert_eq!(rig.status().await.resident_srs, ["b", "small"], "c was used before b");

        let evict =
            |fixture: &Fixture| rig.handle.address.evict.send(EvictSrs { circuit: fixture.circuit.clone() });
        let refused = evict(&a).await.expect("the actor answers");
        assert!(matches!(refused, Err(DeviceError::SrsInUse { .. })), "{refused:?}");
        assert!(matches!(evict(&b).await, Ok(Ok(true))));
        assert!(matches!(evict(&b).await, Ok(Ok(false))));
        rig.proved().await;
        let evict = rig.handle.address.evict.send(EvictSrs { circuit: a.circuit.clone() });
        assert!(matches!(evict.await, Ok(Ok(true))));
        let status = rig.status().await;
        assert_eq!((status.reserved_bytes, status.in_use_bytes), (0, 0), "idle memory is given back");
        rig.drain().await;
    });
}

#[test]
fn b16_a_replaced_key_is_not_taken_for_the_old_one() {
    on_paused_arbiter(async {
        let old = fixture();
        let new = Fixture::new("small", 30);
        let mut rig = ready(real("")).await;
        for fixture in [&old, &new, &old] {
            rig.prove(fixture.work(1, 0));
            assert_eq!(rig.proved().await.proof, fixture.expected_proof());
            rig.freed().await;
            assert_eq!(rig.status().await.reserved_bytes, roomy_plan(fixture).resident_bytes);
        }
        rig.drain().await;
    });
}

#[test]
fn b38_a_key_of_another_circuit_is_refused_before_any_launch() {
    on_paused_arbiter(async {
        let (a, b) = (Fixture::new("a", 31), Fixture::new("b", 64));
        let mut rig = ready(sim("")).await;
        let mut work = a.work(1, 0);
        work.srs = Arc::clone(&b.srs);
        rig.prove(work);
        let failed = rig.failed().await;
        assert!(
            matches!(failed.error, DeviceError::Srs { source: SrsError::Mismatch { .. }, .. }),
            "{failed:?}"
        );
        assert_eq!(failed.error.class(), ErrorClass::Caller);
        assert_eq!(rig.labels(), ["freed"]);

        let mut work = a.work(2, 0);
        work.assignment = Arc::clone(&b.assignment);
        rig.prove(work);
        let failed = rig.failed().await;
        assert!(matches!(failed.error, DeviceError::Witness { .. }), "{failed:?}");
        assert_eq!(rig.labels(), ["freed"]);
        rig.drain().await;
    });
}

#[test]
fn what_breaks_the_credit_rules_is_refused() {
    on_paused_arbiter(async {
        let fixture = fixture();
        let mut rig = ready(sim("")).await;
        rig.prove(fixture.work(1, 0));
        rig.prove(fixture.work(2, 0));
        let failed = rig.failed().await;
        assert_eq!(failed.at.job.0, 2);
        assert!(matches!(failed.error, DeviceError::NotTaking { what: "it has no free lane", .. }));

        rig.prove_as(fixture.work(3, 0), Priority::High, LaneKind::Critical);
        let failed = rig.failed().await;
        assert!(matches!(
            failed.error,
            DeviceError::NotTaking { what: "this lane is for critical work", .. }
        ));

        let (freed, _other) = common::probe::probe();
        let foreign = LaneCredit::new(cuzk::ids::DeviceId::new("sim-7"), LaneKind::Normal, freed);
        rig.send(fixture.work(4, 0), Priority::Normal, CancelFlag::default(), foreign);
        let failed = rig.failed().await;
        assert!(matches!(
            failed.error,
            DeviceError::NotTaking { what: "the credit is of another device", .. }
        ));
        assert_eq!(rig.proved().await.at.job.0, 1, "the first one is not disturbed");
        rig.drain().await;
    });
}

#[test]
fn partitions_share_memory_or_wait_for_it() {
    on_paused_arbiter(async {
        let a = fixture();
        let (b, c) = (a.renamed("b"), a.renamed("c"));
        let mut config = sim("");
        config.layout = LaneLayout { normal: 3, critical: 0, critical_preempts: false };
        // Room for two that stream everything.
        let budget = 2 * least_bytes(&a);
        let mut rig = ready_with_budget(config, budget).await;
        for (job, fixture) in [&a, &b, &c].into_iter().enumerate() {
            rig.prove(fixture.work(job as u64, 0));
        }
        let status = rig.status().await;
        assert_eq!(status.lanes_busy, 3);
        assert!(status.reserved_bytes <= budget);
        let mut order = Vec::new();
        let begun = Instant::now();
        for _ in 0..3 {
            order.push((rig.proved().await.at.job.0, begun.elapsed()));
        }
        order.sort();
        assert_eq!(order[2].1, 18 * STAGE, "the third waited for one of the others: {order:?}");
        assert!(order[0].1 == 9 * STAGE && order[1].1 == 9 * STAGE, "two ran side by side: {order:?}");
        rig.drain().await;
    });
}

#[test]
fn a_waiting_partition_can_be_cancelled() {
    on_paused_arbiter(async {
        let fixture = fixture();
        let mut config = sim("");
        config.layout = LaneLayout { normal: 2, critical: 0, critical_preempts: false };
        let mut rig = ready_with_budget(config, least_bytes(&fixture)).await;
        rig.prove(fixture.work(1, 0));
        let cancel = rig.prove(fixture.work(2, 0));
        rig.stage(Stage::Upload).await;
        cancel.cancel();
        let failed = rig.failed().await;
        assert!(failed.at.job.0 == 2 && is_cancelled(&failed));
        assert_eq!(rig.proved().await.at.job.0, 1);
        rig.drain().await;
    });
}

#[test]
fn b22_critical_work_goes_first_at_the_next_stage() {
    on_paused_arbiter(async {
        let fixture = fixture();
        let mut rig = ready(sim("")).await;
        rig.prove_as(fixture.work(1, 0), Priority::High, LaneKind::Normal);
        rig.stage(Stage::Evaluate).await;
        rig.prove_as(fixture.work(2, 0), Priority::Critical, LaneKind::Critical);
        let mut labels = Vec::new();
        while labels.iter().filter(|label: &&String| label.starts_with("proved")).count() < 2 {
            labels.push(rig.facts.next().await.label());
        }
        let position = |label: &str| {
            labels.iter().position(|other| other == label).unwrap_or_else(|| panic!("{label} in {labels:?}"))
        };
        assert!(position("stage 1/0 quotient") < position("stage 2/0 assemble"), "the running stage ended");
        assert!(position("proved 2/0") < position("stage 1/0 sum_h"), "and no other began: {labels:?}");
        assert!(position("proved 2/0") < position("proved 1/0"));
        rig.drain().await;
    });
}

#[test]
fn the_critical_reserve_is_kept_from_other_work() {
    on_paused_arbiter(async {
        let fixture = fixture();
        let least = least_bytes(&fixture);
        let device = DeviceConfig {
            budget_bytes: Some(2 * least),
            critical_reserve_bytes: least + 1,
            ..DeviceConfig::default()
        };
        let mut rig = DeviceRig::ready(&spawner(sim("")), device).await;
        rig.prove(fixture.work(1, 0));
        let failed = rig.failed().await;
        assert!(matches!(failed.error, DeviceError::Plan { .. }), "{failed:?}");
        rig.prove_as(fixture.work(2, 0), Priority::Critical, LaneKind::Critical);
        rig.proved().await;
        rig.drain().await;
    });
}

#[test]
fn b45_a_hang_loses_the_device_within_its_limit() {
    on_paused_arbiter(async {
        let fixture = fixture();
        let mut config = sim("hang@1.sum_a");
        config.layout.normal = 2;
        let mut rig = ready(config).await;
        rig.prove(fixture.work(1, 0));
        rig.prove(fixture.work(2, 0));
        for _ in 0..2 {
            rig.stage(Stage::SumL).await;
        }
        let at = Instant::now();
        assert_eq!(rig.proved().await.at.job.0, 2, "the other lane is not disturbed");
        let failed = rig.failed().await;
        assert!(
            matches!(failed.error, DeviceError::Hung { stage: "sum_a", limit_ms: 100, .. }),
            "{failed:?}"
        );
        assert_eq!(failed.at.job.0, 1);
        assert!(at.elapsed() >= 100 * MS && at.elapsed() <= 2 * 100 * MS, "{:?}", at.elapsed());
        let lost = rig.lost().await;
        assert!(matches!(lost.error, DeviceError::Hung { .. }));
        let labels = rig.labels();
        assert_eq!(labels.iter().filter(|label| *label == "freed").count(), 1, "of the hung one: {labels:?}");
        stopped(&rig.handle.drain).await;
    });
}

#[test]
fn b45_partitions_beside_a_hang_are_answered_before_the_loss() {
    on_paused_arbiter(async {
        let fixture = fixture();
        let mut config = sim("hang@1.sum_a,hang@2.sum_l");
        config.layout.normal = 2;
        let mut rig = ready(config).await;
        rig.prove(fixture.work(1, 0));
        rig.prove(fixture.work(2, 0));
        rig.lost().await;
        let labels = rig.labels();
        let answers: Vec<&String> = labels.iter().filter(|label| !label.starts_with("stage")).collect();
        assert_eq!(answers, ["resident small", "failed 1/0", "freed", "failed 2/0", "freed"]);
        stopped(&rig.handle.drain).await;
    });
}

#[test]
fn b46_a_slow_circuit_is_not_a_hang_once_it_is_known() {
    on_paused_arbiter(async {
        let fixture = fixture();
        // Within the floor at first; then beyond the floor, but within three times what was seen; an idle hour between.
        let mut rig = ready(sim("delay(80ms)@1.sum_h,delay(200ms)@2.sum_h,delay(150ms)@1.upload")).await;
        rig.prove(fixture.work(1, 0));
        rig.proved().await;
        rig.freed().await;
        tokio::time::sleep(Duration::from_secs(3_600)).await;
        rig.prove(fixture.work(2, 0));
        rig.proved().await;
        rig.drain().await;
    });
}

#[test]
fn b41_a_poisoned_context_is_reported_and_a_new_one_works() {
    on_paused_arbiter(async {
        let fixture = fixture();
        let mut config = sim("sticky@1.sum_b_g1");
        config.layout.normal = 2;
        let spawner = spawner(config);
        let mut rig = DeviceRig::ready(&spawner, DeviceConfig::default()).await;
        rig.prove(fixture.work(1, 0));
        rig.prove(fixture.work(2, 0));
        let failed = rig.failed().await;
        assert!(matches!(failed.error, DeviceError::Fault { stage: "sum_b_g1", .. }), "{failed:?}");
        assert_eq!(failed.error.class(), ErrorClass::DeviceLost);
        let other = rig.failed().await;
        assert_eq!((other.at.job.0, other.error.class()), (2, ErrorClass::DeviceLost));
        assert!(matches!(rig.lost().await.error, DeviceError::Fault { .. }));
        stopped(&rig.handle.drain).await;

        let mut rig = DeviceRig::ready(&spawner, DeviceConfig::default()).await;
        assert_eq!(rig.status().await.resident_srs, [""; 0], "the new context begins empty");
        rig.prove(fixture.work(1, 0));
        rig.proved().await;
        rig.drain().await;
    });
}

#[test]
fn a_device_that_is_gone_stays_gone() {
    on_paused_arbiter(async {
        let fixture = fixture();
        let spawner = spawner(sim("lost@2.upload"));
        let mut rig = DeviceRig::ready(&spawner, DeviceConfig::default()).await;
        rig.prove(fixture.work(1, 0));
        rig.proved().await;
        rig.freed().await;
        rig.prove(fixture.work(2, 0));
        assert!(matches!(rig.failed().await.error, DeviceError::Lost { .. }));
        assert!(matches!(rig.lost().await.error, DeviceError::Lost { .. }));
        stopped(&rig.handle.drain).await;

        let mut rig = DeviceRig::start(&spawner, DeviceConfig::default());
        let lost = rig.lost().await;
        assert_eq!(lost.error.to_string(), "device sim-0: it is gone");
        stopped(&rig.handle.drain).await;
    });
}

#[test]
fn b47_a_panic_gives_the_credits_back_and_the_next_actor_proves() {
    on_paused_arbiter(async {
        let fixture = fixture();
        let mut config = sim("panic@1.sum_h");
        config.layout.normal = 2;
        let spawner = spawner(config);
        let mut rig = DeviceRig::ready(&spawner, DeviceConfig::default()).await;
        rig.prove(fixture.work(1, 0));
        rig.prove(fixture.work(2, 0));
        rig.freed().await;
        rig.freed().await;
        stopped(&rig.handle.drain).await;
        let labels = rig.labels();
        let answers = ["proved", "failed", "lost", "drained"];
        assert!(
            !labels.iter().any(|label| answers.iter().any(|answer| label.starts_with(answer))),
            "a dead actor says nothing: {labels:?}"
        );
        assert!(!rig.handle.connected());

        let mut rig = DeviceRig::ready(&spawner, DeviceConfig::default()).await;
        rig.prove(fixture.work(1, 0));
        rig.proved().await;
        rig.drain().await;
    });
}

#[test]
fn b32_a_corrupt_proof_does_not_verify() {
    on_paused_arbiter(async {
        let fixture = fixture();
        let mut rig = ready(real("corrupt@1")).await;
        rig.prove(fixture.work(1, 0));
        let proved = rig.proved().await;
        assert!(!fixture.verifies(&proved.proof));
        rig.prove(fixture.work(1, 0));
        assert!(fixture.verifies(&rig.proved().await.proof));
        rig.drain().await;
    });
}

#[test]
fn placeholder_proofs_do_not_verify_and_tell_partitions_apart() {
    on_paused_arbiter(async {
        let fixture = fixture();
        let mut rig = ready(sim("")).await;
        rig.prove(fixture.work(1, 0));
        let first = rig.proved().await.proof;
        rig.prove(fixture.work(1, 1));
        let second = rig.proved().await.proof;
        assert_ne!(first, second);
        assert!(!fixture.verifies(&first) && !fixture.verifies(&second));
        rig.drain().await;
    });
}

#[test]
fn a_drain_finishes_what_runs_and_takes_nothing_new() {
    on_paused_arbiter(async {
        let fixture = fixture();
        let mut rig = ready(sim("")).await;
        rig.prove(fixture.work(1, 0));
        rig.stage(Stage::Upload).await;
        rig.handle.drain.do_send(Drain);
        rig.handle.drain.do_send(Drain);
        rig.prove_as(fixture.work(2, 0), Priority::Critical, LaneKind::Critical);
        let failed = rig.failed().await;
        assert!(matches!(failed.error, DeviceError::NotTaking { what: "it is draining", .. }), "{failed:?}");
        rig.proved().await;
        stopped(&rig.handle.drain).await;
        let labels = rig.labels();
        assert_eq!(labels.iter().filter(|label| *label == "drained").count(), 1, "{labels:?}");
    });
}

#[test]
fn stages_ahead_save_the_actor_a_round_trip_but_change_no_result() {
    on_paused_arbiter(async {
        let fixture = fixture();
        let mut config = real("");
        config.stages_ahead = 3;
        config.layout = LaneLayout { normal: 2, critical: 1, critical_preempts: true };
        let mut rig = ready(config).await;
        rig.prove(fixture.work(1, 0));
        rig.prove(fixture.work(2, 0));
        rig.prove_as(fixture.work(3, 0), Priority::Critical, LaneKind::Critical);
        for _ in 0..3 {
            assert_eq!(rig.proved().await.proof, fixture.expected_proof());
        }
        rig.drain().await;
    });
}

#[test]
fn a_panic_of_the_prover_is_a_fault_and_its_thread_lives_on() {
    let fixture = fixture();
    let (wake, woken) = std::sync::mpsc::channel();
    let wake = std::sync::Mutex::new(wake);
    let waker: BackendWaker = Arc::new(move || {
        let wake = wake.lock().expect("no holder panics");
        // The test may have ended.
        let _ = wake.send(());
    });
    let config = CpuConfig { num_lanes: 1, memory_bytes: 1 << 30, num_threads: None };
    let mut backend = CpuFactory::new(config).open(waker).expect("the host is there");
    let lane = LaneIndex(0);
    let plan = roomy_plan(&fixture);
    let next_event = move |backend: &mut CpuBackend| loop {
        if let Some(event) = backend.poll().pop() {
            return event;
        }
        woken.recv().expect("the backend is open");
    };

    // The actor refuses such work; a backend must survive it all the same.
    let mut broken = fixture.work(1, 0);
    let mut assignment = fixture.assignment.as_ref().clone();
    assignment.aux_assignment.pop();
    broken.assignment = Arc::new(assignment);
    backend.begin(lane, broken, &plan).expect("the lane is empty");
    backend.enqueue(lane, Stage::SumL).expect("the lane is idle");
    match next_event(&mut backend) {
        BackendEvent::StageFailed { stage: Stage::SumL, error: DeviceError::Fault { what, .. }, .. } => {
            assert!(what.starts_with("the prover panicked"), "{what}");
        }
        other => panic!("expected a fault, got {other:?}"),
    }

    backend.begin(lane, fixture.work(2, 0), &plan).expect("the lane is empty");
    for stage in Stage::ALL {
        backend.enqueue(lane, stage).expect("the lane is idle");
        let event = next_event(&mut backend);
        assert!(matches!(event, BackendEvent::StageDone { stage: done, .. } if done == stage), "{event:?}");
    }
    let finished = backend.take_proof(lane).expect("it is done");
    assert_eq!(finished.proof, fixture.expected_proof());
    assert!(backend.take_proof(lane).is_err(), "it is taken once");
    assert_eq!(backend.memory_in_use_bytes(), 0);
}
