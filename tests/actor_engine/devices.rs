//! Credits, lives, and results that were not asked for.

use cuzk::error::SynthesisError;
use cuzk::ids::{Attempt, JobId, PartitionIndex, WorkRef};
use cuzk::messages::device::{LaneFreed, LaneKind};
use cuzk::messages::lifecycle::{DeviceLost, DeviceWithdrawn, Withdrawal};
use cuzk::messages::synthesis::SynthesisFailed;

use super::*;
use crate::rig::{circuit, circuit_with, device, host_proof, result};
use crate::squares::{srs_of, NUM_SQUARINGS};

#[test]
fn as_many_partitions_as_credits_are_given_out_and_one_more_for_each_that_comes_back() {
    on_paused_arbiter(async {
        let mut rig = Rig::start(Settings { num_devices: 1, ..Settings::default() });
        rig.device_ready(0, 1);
        let workload = circuit("squares", &[2, 3, 4, 5]);
        let _job = rig.submit(&workload).await;
        rig.load(60).await;
        let (first, second) = (rig.witness().await, rig.witness().await);
        rig.synthesized(first);
        let first = rig.next_placed().await;
        let third = rig.witness().await;
        rig.synthesized(second);
        let second = rig.next_placed().await;
        let _fourth = rig.witness().await;
        rig.synthesized(third);
        rig.nothing_asked().await;
        assert_eq!(rig.device_status(0).await.lanes_busy, 2);

        // CRITICAL work has a lane of its own.
        let _critical = rig.submit_as(&circuit("squares", &[6]), Priority::Critical).await.unwrap();
        let critical = rig.placed().await;
        assert_eq!(critical.credit.kind(), LaneKind::Critical);

        // A credit of another life, or beyond what there is, is none.
        for (life, kind) in [(7, LaneKind::Normal), (0, LaneKind::Normal), (1, LaneKind::Critical)] {
            rig.scheduler.do_send(LaneFreed { device: device(0), life, kind });
        }
        assert_eq!(rig.device_status(0).await.lanes_busy, 2, "the critical lane came back, and no other");
        drop(first);
        let _third = rig.next_placed().await;
        assert_eq!(rig.device_status(0).await.lanes_busy, 2);
        drop((second, critical));
        rig.end().await;
    });
}

#[test]
fn a_result_of_a_device_that_was_not_asked_is_refused() {
    on_paused_arbiter(async {
        let mut rig = Rig::start(Settings::default());
        rig.device_ready(0, 1);
        rig.device_ready(1, 1);
        let mut job = rig.submit(&circuit("squares", &[2])).await;
        rig.load(60).await;
        let command = rig.placed().await;
        let (asked, proof) = (command.credit.device().clone(), host_proof(&command));
        let other = if asked == device(0) { device(1) } else { device(0) };
        rig.proved_by(&command, other, proof.clone());
        rig.nothing_asked().await;
        assert_eq!(rig.status().await.totals.late_results, 1);

        rig.proved_by(&command, asked.clone(), proof.clone());
        let verify = rig.verify().await;
        assert_eq!(verify.proofs.len(), 1);
        // The same once more: it is not waited for any longer.
        rig.proved_by(&command, asked, proof);
        rig.nothing_asked().await;
        assert_eq!(rig.status().await.totals.late_results, 2);
        drop(command);
        rig.verdict(verify, true);
        rig.agree().await;
        result(&mut job).await.unwrap();
        let status = rig.status().await;
        assert_eq!((status.host_memory_reserved_bytes, status.jobs.len()), (0, 0));
        let used = status.devices.iter().find(|device| device.partitions_proved == 1).unwrap();
        assert_eq!((used.partition_planned_bytes, used.partition_peak_bytes), (80, 70));
        rig.end().await;
    });
}

#[test]
fn what_an_earlier_life_of_a_device_says_is_void() {
    on_paused_arbiter(async {
        let mut rig = Rig::start(Settings { num_devices: 1, ..Settings::default() });
        rig.device_ready(0, 1);
        let _job = rig.submit(&circuit("squares", &[2])).await;
        rig.load(60).await;
        let first = rig.placed().await;
        let lost = DeviceError::Lost { at: first.work.at.clone(), what: "unplugged".into() };
        let lost = |life| DeviceLost { device: device(0), life, error: lost.clone() };
        rig.scheduler.do_send(lost(1));
        rig.nothing_asked().await;
        rig.device_ready(0, 2);
        let second = rig.next_placed().await;
        assert_eq!(second.work.at.attempt, Some(Attempt(2)));
        // The first life comes late with all it has: a loss, a proof, its credit.
        rig.scheduler.do_send(lost(1));
        rig.proved(first);
        rig.nothing_asked().await;
        let status = rig.device_status(0).await;
        assert_eq!((status.state.as_str(), status.lanes_busy, status.restarts), ("ready", 1, 1));
        assert_eq!(rig.status().await.totals.late_results, 1);
        rig.proved(second);
        rig.verify().await;
        rig.end().await;
    });
}

#[test]
fn a_device_that_opens_after_all_is_used_whichever_message_comes_first() {
    on_paused_arbiter(async {
        let rig = Rig::start(Settings { num_devices: 1, ..Settings::default() });
        let not_open = |life| DeviceWithdrawn {
            device: device(0),
            life,
            cause: Withdrawal::NotOpen,
            reason: "did not open within 1 ms".into(),
        };
        rig.scheduler.do_send(not_open(1));
        assert_eq!(rig.device_status(0).await.state, "withdrawn");
        rig.device_ready(0, 1);
        assert_eq!(rig.device_status(0).await.state, "ready");
        // Sent before the device was ready, and overtaken.
        rig.scheduler.do_send(not_open(1));
        assert_eq!(rig.device_status(0).await.state, "ready");
        // Of its successor, which takes the place of this one.
        rig.scheduler.do_send(not_open(2));
        assert_eq!(rig.device_status(0).await.state, "withdrawn");
        rig.device_ready(0, 2);
        // Of its predecessor.
        let cause = Withdrawal::Quarantined;
        rig.scheduler.do_send(DeviceWithdrawn { cause, ..not_open(1) });
        assert_eq!(rig.device_status(0).await.state, "ready");
        rig.scheduler.do_send(DeviceWithdrawn { cause, ..not_open(2) });
        assert_eq!(rig.device_status(0).await.state, "withdrawn");
        rig.end().await;
    });
}

#[test]
fn facts_about_jobs_that_nobody_knows_change_nothing() {
    on_paused_arbiter(async {
        let mut rig = Rig::start(Settings::default());
        rig.device_ready(0, 1);
        let mut job = rig.submit(&circuit("squares", &[2])).await;
        rig.load(60).await;
        let failed = |at| SynthesisFailed { at, error: SynthesisError::Circuit("unasked".into()) };
        rig.scheduler.do_send(failed(WorkRef::partition(JobId(99), PartitionIndex(0))));
        rig.scheduler.do_send(failed(WorkRef::job(job.ticket.job())));
        let command = rig.placed().await;
        // It has its witness: nobody waits for a failure to make it.
        rig.scheduler.do_send(failed(WorkRef::partition(job.ticket.job(), PartitionIndex(0))));
        rig.proved(command);
        let verify = rig.verify().await;
        rig.verdict(verify, true);
        rig.agree().await;
        result(&mut job).await.unwrap();
        rig.end().await;
    });
}

#[test]
fn a_synthesizer_that_was_rebuilt_is_asked_again_and_late_witnesses_do_not_count() {
    on_paused_arbiter(async {
        let mut rig = Rig::start(Settings::default());
        rig.device_ready(0, 1);
        let job = rig.submit(&circuit("squares", &[2])).await;
        let lost = rig.measure().await;
        rig.synthesizer_ready();
        rig.load(60).await;
        drop(lost);
        let first = rig.witness().await;
        rig.synthesizer_ready();
        let second = rig.witness().await;
        assert_eq!(first.at, second.at);
        rig.synthesized(first);
        rig.nothing_asked().await;
        rig.synthesized(second);
        let command = rig.next_placed().await;
        assert_eq!(command.work.at.job, job.ticket.job());
        rig.proved(command);
        rig.verify().await;
        rig.synthesizer_ready();
        let verify = rig.verify().await;
        rig.verdict(verify, true);
        rig.agree().await;
        rig.end().await;
    });
}

#[test]
fn another_key_of_the_same_name_has_the_old_one_evicted_as_soon_as_it_is_idle() {
    on_paused_arbiter(async {
        let mut rig = Rig::start(Settings { num_devices: 1, ..Settings::default() });
        rig.device_ready(0, 1);
        let job = rig.submit(&circuit("squares", &[2])).await;
        rig.load(60).await;
        let running = rig.placed().await;
        rig.cancel(job.ticket.job()).await;
        let other = std::sync::Arc::new(srs_of(NUM_SQUARINGS + 1));
        let _next = rig.submit(&circuit_with("squares", &other, &[3])).await;
        let evict = rig.evictions.recv().await.unwrap();
        assert!(evict.when_idle && evict.circuit.as_str() == "squares");
        drop(running);
        rig.end().await;
    });
}
