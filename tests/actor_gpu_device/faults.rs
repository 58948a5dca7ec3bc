//! What a device does when it hangs, breaks, vanishes, panics or lies.

use super::*;

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
        let written = rig.board.get(&rig.handle.id).unwrap().clone();
        assert_eq!((written.in_use_bytes, written.reserved_bytes, written.lanes_busy), (0, 0, 0));
        let labels = rig.labels();
        assert_eq!(labels.iter().filter(|label| *label == "freed").count(), 1, "of the hung one: {labels:?}");
        stopped(&rig.handle.drain).await;
    });
}

#[test]
fn a_device_that_does_not_drain_can_be_stopped() {
    on_paused_arbiter(async {
        let fixture = fixture();
        let mut rig = ready(sim("hang@1.sum_a")).await;
        rig.prove(fixture.work(1, 0));
        rig.stage(Stage::SumL).await;
        rig.handle.drain.do_send(Drain);
        rig.handle.stop.do_send(StopActor);
        stopped(&rig.handle.stop).await;
        rig.freed().await;
        assert_eq!(rig.board.get(&rig.handle.id).unwrap().in_use_bytes, 0);
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

/// The end of a lane is told once, whatever came first: a refused allocation of an upload, or the abort.
#[test]
fn b29_a_lane_that_is_aborted_before_its_failure_is_polled_has_one_end() {
    let fixture = fixture();
    on_paused_arbiter(async {
        for (faults, is_aborted) in [("alloc_fail(1)", true), ("lost@1.upload", false)] {
            let waker: BackendWaker = Arc::new(|| {});
            let mut backend = SimFactory::new(sim(faults)).open(waker).expect("it is there");
            let lane = LaneIndex(0);
            backend.begin(lane, fixture.work(1, 0), &roomy_plan(&fixture)).expect("the lane is empty");
            backend.enqueue(lane, Stage::Upload).expect("it fails later");
            backend.abort(lane);
            let events = backend.poll();
            let is_one_end = match &events[..] {
                [BackendEvent::Aborted { .. }] => is_aborted,
                [BackendEvent::StageFailed { error, .. }] => {
                    !is_aborted && error.class() == ErrorClass::DeviceLost
                }
                _ => false,
            };
            assert!(is_one_end, "{faults}: {events:?}");
        }
    });
}
