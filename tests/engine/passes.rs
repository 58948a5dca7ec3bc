//! Jobs whose partitions share a pass over what small cards stream.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cuzk::backend::sim::{SimCircuit, SimConfig};
use cuzk::backend::Stage;
use cuzk::engine::{DeviceSpec, EngineConfig, JobEvents};
use cuzk::error::{EngineError, ScheduleError};
use cuzk::ids::CircuitId;
use cuzk::messages::job::{CancelOutcome, JobEvent, Priority};
use cuzk::policy::plan::{EvaluationSummary, ShapeSummary, SrsSummary};
use tokio::time::Instant;

use crate::simulation::{all_ready, config, find, num_on, prove, simulate, submit_all, with_priority};
use crate::squares::{holds, request};

const GB: u64 = 1_000_000_000;
const MS: Duration = Duration::from_millis(1);

/// Cards of 20 GiB behind a link of 25 GB/s, to which the circuit is a partition of a PoRep of 32 GiB, and whose stages take no
/// time to speak of: 0.5 s for `h`, 1.3 s for what a pass copies.
fn cards(num_cards: u32, parking_lanes: u32) -> EngineConfig {
    let num_aux = 130_000_000;
    let evaluation = EvaluationSummary::known(Some(1_700_000), Some(66_000_000));
    let shape = ShapeSummary { domain_log2: 27, num_rows: num_aux, num_inputs: 328, num_aux, evaluation };
    let srs = SrsSummary::new([(1 << 27) - 1, num_aux, num_aux, 33_000_000, 33_000_000]);
    let circuit = SimCircuit { shape, srs, stage_durations: [MS; 9] };
    let circuits = Arc::new(BTreeMap::from([(CircuitId::new("squares"), circuit)]));
    let mut config = config(&format!("sim:{num_cards}"));
    for device in &mut config.devices {
        let DeviceSpec::Sim(sim) = device else { panic!("simulations are of simulated devices") };
        **sim = SimConfig {
            memory_bytes: 20 << 30,
            circuits: Arc::clone(&circuits),
            parking_lanes,
            link_bytes_per_s: Some(25 * GB),
            shares_compute: true,
            ..SimConfig::clone(sim)
        };
    }
    config
}

/// Waits until so many partitions of a job have come as far as they do by themselves.
async fn have_parked(events: &mut JobEvents, num_partitions: usize) {
    for _ in 0..num_partitions {
        let is_parked = |event: &JobEvent| match event {
            JobEvent::StageDone { stage: Stage::SumH, .. } => Some(()),
            _ => None,
        };
        find(events, is_parked).await;
    }
}

#[test]
fn partitions_of_several_jobs_share_a_pass_and_each_job_has_its_own_result() {
    let run = |parking_lanes| {
        simulate(cards(1, parking_lanes), |engine| async move {
            engine.wait_ready().await.unwrap();
            let statements: [&[u64]; 3] = [&[2, 3, 4, 5], &[6, 7, 8], &[9, 10, 11]];
            let begun = Instant::now();
            let jobs = submit_all(&engine, statements.map(|xs| request("", xs))).await;
            for (job, xs) in jobs.iter().zip(statements) {
                let outcome = job.wait().await.unwrap();
                assert!(holds(&outcome.proof, xs), "{xs:?}");
            }
            begun.elapsed()
        })
    };
    let (alone, shared) = (run(0), run(10));
    println!("ten partitions of three jobs: {alone:?} alone, {shared:?} with passes");
    assert!(shared * 2 < alone, "{shared:?} and {alone:?}");
}

#[test]
fn two_small_cards_gather_half_of_a_job_each() {
    simulate(cards(2, 10), |engine| async move {
        engine.wait_ready().await.unwrap();
        all_ready(&engine).await;
        let begun = Instant::now();
        let xs: Vec<u64> = (2..12).collect();
        let outcome = prove(&engine, request("two cards", &xs)).await.unwrap();
        assert!(holds(&outcome.proof, &xs));
        assert!((0..2).all(|index| (4..=6).contains(&num_on(&outcome, index))), "{:?}", outcome.devices);
        // Six times h and one pass at most, against five or more passes.
        assert!(begun.elapsed() < Duration::from_millis(6 * 530 + 1_700), "{:?}", begun.elapsed());
    });
}

#[test]
fn b09_a_critical_job_goes_before_those_who_wait_for_a_pass() {
    simulate(cards(1, 10), |engine| async move {
        engine.wait_ready().await.unwrap();
        let xs: Vec<u64> = (2..12).collect();
        let mut slow = engine.submit(request("slow", &xs)).await.unwrap();
        let mut events = slow.events();
        // Two of it wait, and a third is on its way to them.
        have_parked(&mut events, 2).await;
        let begun = Instant::now();
        let urgent = with_priority(Priority::Critical, request("urgent", &[77]));
        let outcome = prove(&engine, urgent).await.unwrap();
        assert!(holds(&outcome.proof, &[77]));
        assert!(slow.result().is_none(), "it went first");
        // The rest of the one that runs, and all of its own.
        assert!(begun.elapsed() < Duration::from_millis(550 + 2_200), "{:?}", begun.elapsed());
        assert!(holds(&slow.wait().await.unwrap().proof, &xs));
    });
}

#[test]
fn b29_a_job_that_is_cancelled_while_it_waits_for_a_pass_leaves_the_other_its_own() {
    simulate(cards(1, 10), |engine| async move {
        engine.wait_ready().await.unwrap();
        let mut jobs =
            submit_all(&engine, [request("cancelled", &[2, 3]), request("kept", &[5, 7, 11])]).await;
        have_parked(&mut jobs[0].events(), 2).await;
        assert_eq!(jobs[0].cancel().await.unwrap(), CancelOutcome::WasRunning);
        assert!(jobs[0].wait().await.is_err());
        assert!(jobs[1].result().is_none(), "it still waits, or is in the pass");
        assert!(holds(&jobs[1].wait().await.unwrap().proof, &[5, 7, 11]));
    });
}

#[test]
fn a_shutdown_lets_those_finish_who_wait_for_a_pass_and_ends_them_when_it_may_not_wait() {
    for (drain, is_finished) in [(Duration::from_secs(3600), true), (Duration::ZERO, false)] {
        simulate(cards(1, 10), |engine| async move {
            engine.wait_ready().await.unwrap();
            let xs = [2, 3, 4, 5, 6];
            let mut job = engine.submit(request("", &xs)).await.unwrap();
            have_parked(&mut job.events(), 2).await;
            engine.shutdown(drain).await;
            match job.wait().await {
                Ok(outcome) => assert!(is_finished && holds(&outcome.proof, &xs), "after {drain:?}"),
                Err(error) => {
                    assert!(matches!(error, EngineError::Schedule(ScheduleError::Draining)), "{error}");
                    assert!(!is_finished, "after {drain:?}");
                }
            }
        });
    }
}
