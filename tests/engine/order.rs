//! Priority, deadlines, cancel.

use std::time::Duration;

use cuzk::engine::EngineConfig;
use cuzk::error::{EngineError, ScheduleError};
use cuzk::ids::JobId;
use cuzk::messages::job::{CancelOutcome, JobEvent, Placement, Priority, ProofRequest};
use tokio::time::Instant;

use crate::simulation::{config, device, find, placed, simulate, submit_all, with_priority, NUM_STAGES};
use crate::squares::{holds, request};

fn stage_done(event: &JobEvent) -> Option<()> {
    matches!(event, JobEvent::StageDone { .. }).then_some(())
}

#[test]
fn b21_high_waits_at_most_for_one_running_partition() {
    simulate(config("sim:1;stage=25ms"), |engine| async move {
        let mut normal = submit_all(&engine, (2..22).map(|x| request("", &[x]))).await;
        // One is half done.
        let mut events = normal[0].events();
        for _ in 0..NUM_STAGES / 2 {
            find(&mut events, stage_done).await;
        }
        let submitted = Instant::now();
        let mut high = engine.submit(with_priority(Priority::High, request("", &[30]))).await.unwrap();
        find(&mut high.events(), placed).await;
        assert!(submitted.elapsed() <= Duration::from_millis(250), "{:?}", submitted.elapsed());
        for job in normal {
            job.wait().await.unwrap();
        }
    });
}

#[test]
fn b22_critical_overtakes_a_running_high() {
    simulate(config("sim:1;stage=1000ms"), |engine| async move {
        let mut high = engine.submit(with_priority(Priority::High, request("", &[2]))).await.unwrap();
        let mut running = engine.submit(with_priority(Priority::Low, request("", &[4]))).await.unwrap();
        find(&mut high.events(), stage_done).await;
        let submitted = Instant::now();
        let critical = engine.submit(with_priority(Priority::Critical, request("", &[3]))).await.unwrap();
        critical.wait().await.unwrap();
        // Its own stages, and at most what was left of the one that ran.
        assert!(
            submitted.elapsed() <= Duration::from_secs(u64::from(NUM_STAGES) + 1),
            "{:?}",
            submitted.elapsed()
        );
        assert!(high.result().is_none());
        high.wait().await.unwrap();
        find(&mut running.events(), placed).await;
    });
}

#[test]
fn b25_cancel_is_defined_in_every_state_and_idempotent() {
    let stage = Duration::from_millis(100);
    simulate(config("sim:1;stage=100ms"), |engine| async move {
        let mut running = engine.submit(request("", &[2])).await.unwrap();
        find(&mut running.events(), stage_done).await;
        let queued = engine.submit(request("", &[3])).await.unwrap();
        let mut next = engine.submit(request("", &[4])).await.unwrap();

        assert_eq!(queued.cancel().await.unwrap(), CancelOutcome::WasQueued);
        assert_eq!(queued.cancel().await.unwrap(), CancelOutcome::AlreadyEnded);
        assert!(matches!(queued.wait().await, Err(EngineError::Cancelled { .. })));

        let cancelled = Instant::now();
        assert_eq!(running.cancel().await.unwrap(), CancelOutcome::WasRunning);
        assert!(matches!(running.wait().await, Err(EngineError::Cancelled { .. })));
        find(&mut next.events(), placed).await;
        assert!(cancelled.elapsed() <= stage + Duration::from_millis(20), "{:?}", cancelled.elapsed());
        assert_eq!(running.cancel().await.unwrap(), CancelOutcome::AlreadyEnded);

        next.wait().await.unwrap();
        assert_eq!(next.cancel().await.unwrap(), CancelOutcome::AlreadyEnded);
        assert_eq!(engine.cancel(JobId(77)).await.unwrap(), CancelOutcome::Unknown);
        let status = engine.status();
        assert_eq!((status.totals.cancelled, status.host_memory_reserved_bytes), (2, 0));
    });
}

#[test]
fn b26_a_caller_that_goes_away_cancels_unless_another_waits() {
    simulate(config("sim:1;stage=600ms"), |engine| async move {
        let long = || request("again", &[2]);
        let first = engine.submit(long()).await.unwrap();
        let id = first.id();
        // Gives up after a second, before the five are over.
        let limited = tokio::time::timeout(Duration::from_secs(1), first.wait()).await;
        assert!(limited.is_err());
        drop(first);
        let retry = engine.submit(long()).await.unwrap();
        assert_ne!(retry.id(), id, "the first was cancelled");
        let also = engine.submit(long()).await.unwrap();
        assert!(also.is_attached() && also.id() == retry.id());
        drop(also);
        assert!(holds(&retry.wait().await.unwrap().proof, &[2]));
    });
}

#[test]
fn b27_critical_is_accepted_when_the_queue_is_full_of_normal() {
    simulate(EngineConfig { max_queued_jobs: 64, ..config("sim:1;stage=10ms") }, |engine| async move {
        let normal = submit_all(&engine, (2..66).map(|x| request("", &[x]))).await;
        let error = engine.submit(with_priority(Priority::High, request("", &[70]))).await.unwrap_err();
        assert!(matches!(error, EngineError::Schedule(ScheduleError::QueueFull { jobs: 64, .. })), "{error}");
        let critical = engine.submit(with_priority(Priority::Critical, request("", &[70]))).await.unwrap();
        critical.wait().await.unwrap();
        let num_before = normal.iter().filter(|job| job.result().is_some()).count();
        assert!(num_before <= 1, "{num_before} went before it");
    });
}

#[test]
fn b29_expired_work_is_never_dispatched() {
    simulate(config("sim:1;stage=125ms"), |engine| async move {
        let long = engine.submit(request("", &[2])).await.unwrap();
        engine.wait_ready().await.unwrap();
        let deadline = Some(Duration::from_millis(100));
        let late = engine.submit(ProofRequest { deadline, ..request("", &[3]) }).await.unwrap();
        let begun = Instant::now();
        assert!(matches!(late.wait().await, Err(EngineError::DeadlineExceeded { .. })));
        assert!(begun.elapsed() <= Duration::from_millis(200), "{:?}", begun.elapsed());
        long.wait().await.unwrap();
        let totals = engine.status().totals;
        assert_eq!((totals.deadline_exceeded, totals.dispatched), (1, 1));
    });
}

#[test]
fn the_latest_deadline_counts_for_shared_work() {
    simulate(config("sim:1;stage=125ms"), |engine| async move {
        let millis = |millis| Some(Duration::from_millis(millis));
        let cases = [
            (millis(100), millis(60_000), true),
            (millis(100), None, true),
            (None, millis(100), true),
            (millis(200), millis(100), false),
        ];
        for (index, (first, second, is_proved)) in cases.into_iter().enumerate() {
            let by = |deadline| ProofRequest { deadline, ..request(&format!("shared-{index}"), &[2]) };
            let one = engine.submit(by(first)).await.unwrap();
            let two = engine.submit(by(second)).await.unwrap();
            assert!(two.is_attached() && one.id() == two.id());
            let elsewhere = ProofRequest { placement: Placement::Device(device(0)), ..by(None) };
            assert!(!engine.submit(elsewhere).await.unwrap().is_attached());
            assert_eq!(one.wait().await.is_ok(), is_proved, "{first:?}, {second:?}");
        }
    });
}
