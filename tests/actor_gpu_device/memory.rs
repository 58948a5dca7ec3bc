//! Plans, refusals, evictions, and who waits for whom.

use super::*;

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
        assert!(rig
            .handle
            .address
            .evict
            .send(EvictSrs { circuit: fixture.circuit.clone(), when_idle: false })
            .await
            .is_ok());
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

        let evict = |fixture: &Fixture| {
            rig.handle.address.evict.send(EvictSrs { circuit: fixture.circuit.clone(), when_idle: false })
        };
        let refused = evict(&a).await.expect("the actor answers");
        assert!(matches!(refused, Err(DeviceError::SrsInUse { .. })), "{refused:?}");
        let freed = Eviction::Freed { num_bytes: plan.resident_bytes };
        assert!(matches!(evict(&b).await, Ok(Ok(done)) if done == freed));
        assert!(matches!(evict(&b).await, Ok(Ok(Eviction::Absent))));
        rig.proved().await;
        let evict = rig.handle.address.evict.send(EvictSrs { circuit: a.circuit.clone(), when_idle: false });
        assert!(matches!(evict.await, Ok(Ok(done)) if done == freed));
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
fn a_key_that_is_no_longer_wanted_goes_with_its_last_user_unless_it_is_wanted_again() {
    on_paused_arbiter(async {
        let fixture = fixture();
        let mut config = sim("");
        config.layout.normal = 2;
        let mut rig = ready(config).await;
        let evict = EvictSrs { circuit: fixture.circuit.clone(), when_idle: true };
        let cancel = rig.prove(fixture.work(1, 0));
        rig.stage(Stage::Upload).await;
        assert!(matches!(rig.handle.address.evict.send(evict).await, Ok(Ok(Eviction::WhenIdle { .. }))));
        assert_eq!(rig.status().await.resident_srs, ["small"], "it is in use");
        cancel.cancel();
        rig.failed().await;
        rig.freed().await;
        let status = rig.status().await;
        assert_eq!((status.resident_srs.len(), status.reserved_bytes, status.in_use_bytes), (0, 0, 0));

        rig.prove(fixture.work(2, 0));
        rig.stage(Stage::Upload).await;
        let evict = EvictSrs { circuit: fixture.circuit.clone(), when_idle: true };
        assert!(matches!(rig.handle.address.evict.send(evict).await, Ok(Ok(Eviction::WhenIdle { .. }))));
        rig.prove(fixture.work(3, 0));
        rig.proved().await;
        rig.proved().await;
        assert_eq!(rig.status().await.resident_srs, ["small"], "the third wanted it again");
        rig.drain().await;
    });
}
