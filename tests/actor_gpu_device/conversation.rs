//! What a device is told and what it answers while nothing goes wrong.

use super::*;

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
        work.witness = Arc::clone(&b.witness);
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
        let foreign = LaneCredit::new(cuzk::ids::DeviceId::new("sim-7"), 1, LaneKind::Normal, freed);
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
