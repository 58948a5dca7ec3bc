//! An engine with a journal: killed, restarted, drained. On a paused clock; a kill is a copy
//! of the journal's bytes at that instant, which another engine is started from.

use std::sync::Arc;
use std::time::Duration;

use cuzk::circuits::{Undecoded, WorkKind};
use cuzk::engine::EngineConfig;
use cuzk::error::{EngineError, ErrorClass, ScheduleError};
use cuzk::ids::{DeviceId, JobId};
use cuzk::journal::{Contents, JournalConfig, Medium, MemoryDisk, Op, Retention, Store, StoredEnd};
use cuzk::messages::job::{BlindingSource, CancelOutcome, Placement, Priority, ProofRequest};

use crate::encoded::{encoded, SquaresDecoder};
use crate::model::KEEP_ALL;
use crate::records;
use crate::simulation::{find, placed, prove, simulate, submit_all, with_priority};
use crate::squares::{self, holds};

/// When the first engine starts, since 1970.
const START: Duration = Duration::from_secs(1_000_000);

pub fn with_medium(fleet: &str, medium: Medium) -> EngineConfig {
    let journal = JournalConfig { time_of_start: Some(START), ..JournalConfig::on(medium) };
    let decoders = vec![SquaresDecoder::small()];
    EngineConfig { journal: Some(journal), decoders, ..crate::simulation::config(fleet) }
}

fn with_journal(fleet: &str, disk: &MemoryDisk) -> EngineConfig {
    with_medium(fleet, Medium::Backend(Arc::new(disk.clone())))
}

/// What is in the journal.
pub fn contents(disk: &MemoryDisk) -> Contents {
    Store::open(Medium::Backend(Arc::new(disk.fork())), KEEP_ALL).unwrap().1
}

fn unfinished(disk: &MemoryDisk) -> Vec<String> {
    contents(disk).jobs.into_iter().map(|record| record.request_id).collect()
}

#[test]
fn b49_an_acknowledged_job_is_proved_after_a_kill() {
    let disk = MemoryDisk::default();
    let (id, left) = simulate(with_journal("sim:1;stage=50ms", &disk), |engine| async move {
        let mut job = engine.submit(encoded("kept", &[2, 3])).await.unwrap();
        assert!(job.is_durable() && !job.is_attached());
        let left = disk.fork();
        find(&mut job.events(), placed).await;
        (job.id(), left)
    });
    simulate(with_journal("sim:1", &left), |engine| async move {
        let recovered = engine.recovered();
        assert_eq!(recovered.len(), 1);
        assert_eq!((recovered[0].job, recovered[0].request_id.as_str()), (id, "kept"));
        assert_eq!(recovered[0].kind, WorkKind::Custom);
        let again = engine.submit(encoded("kept", &[2, 3])).await.unwrap();
        assert!(again.is_attached() && again.is_durable());
        assert_eq!(again.id(), id);
        assert!(holds(&again.wait().await.unwrap().proof, &[2, 3]));
        // By its number too.
        let attached = engine.attach(id).await.unwrap().expect("it has just ended");
        assert_eq!(attached.wait().await.unwrap().proof, again.wait().await.unwrap().proof);
        // A new job has a number of its own.
        assert!(engine.submit(encoded("new", &[4])).await.unwrap().id() > id);
        assert_eq!(engine.status().totals.recovered, 1);
    });
}

/// Nobody comes back for it: it is proved all the same, and its result is there for whoever does later.
#[test]
fn b49_a_recovered_job_needs_nobody_to_wait_for_it() {
    let disk = MemoryDisk::default();
    let left = simulate(with_journal("sim:1;stage=50ms", &disk), |engine| async move {
        let _job = engine.submit(encoded("kept", &[2])).await.unwrap();
        disk.fork()
    });
    let disk = left.clone();
    simulate(with_journal("sim:1", &left), |engine| async move {
        engine.wait_status(|status| status.totals.completed == 1).await.unwrap();
    });
    let contents = contents(&disk);
    assert!(contents.jobs.is_empty());
    assert!(matches!(&contents.results[0].end, StoredEnd::Proved(stored) if holds(&stored.proof, &[2])));
}

/// What kills the process would do so for ever, and no other job would ever end.
#[test]
fn b49_a_job_that_processes_ended_over_is_worked_on_alone_and_last() {
    let fleet = "sim:2;stage=50ms";
    let disk = MemoryDisk::default();
    let left = simulate(with_journal(fleet, &disk), |engine| async move {
        let _a = engine.submit(encoded("a", &[2])).await.unwrap();
        let _b = engine.submit(encoded("b", &[3])).await.unwrap();
        disk.fork()
    });
    let disk = left.clone();
    let left = simulate(with_journal(fleet, &left), |engine| async move {
        let _c = engine.submit(encoded("c", &[4])).await.unwrap();
        disk.fork()
    });
    let disk = left.clone();
    simulate(with_journal(fleet, &left), |engine| async move {
        let known: Vec<_> =
            engine.recovered().iter().map(|job| (job.request_id.clone(), job.process_ends)).collect();
        assert_eq!(known, [("a".into(), 2), ("b".into(), 2), ("c".into(), 1)]);
        // Who asks for one that is held back waits with it; new work does not.
        let new = prove(&engine, encoded("new", &[5])).await.unwrap();
        assert!(holds(&new.proof, &[5]));
        let b = engine.recovered()[1].job;
        let attached = engine.attach(b).await.unwrap().expect("it has not ended");
        assert!(holds(&attached.wait().await.unwrap().proof, &[3]));
        engine.wait_status(|status| status.totals.completed == 4).await.unwrap();
    });
    let contents = contents(&disk);
    assert!(contents.jobs.is_empty() && contents.process_ends.is_empty());
    let order: Vec<_> = contents.results.iter().map(|result| result.job.request_id.as_str()).collect();
    let position = |id| order.iter().position(|known| *known == id).unwrap();
    assert!(position("c") < position("a") && position("a") < position("b"), "{order:?}");
}

/// A process that closes its journal says nothing against the jobs that it leaves, and neither does one against a job that
/// it had not begun.
#[test]
fn only_kills_count_against_a_job_and_only_if_it_was_in_hand() {
    let disk = MemoryDisk::default();
    let open = |disk: &MemoryDisk| Store::open(Medium::Backend(Arc::new(disk.clone())), KEEP_ALL).unwrap();
    let ends = |disk: &MemoryDisk| contents(disk).process_ends.get(&JobId(1)).copied().unwrap_or_default();
    let (mut store, _) = open(&disk);
    store.commit(vec![records::accept(1, 64)], 1).unwrap();
    let killed = disk.fork();
    drop(store);
    assert_eq!(ends(&disk), 0, "closed");
    assert_eq!(ends(&killed), 1, "killed");
    // Each opening is a process that is killed in its turn: from the second on the job was not in hand.
    for _ in 0..3 {
        let (store, _) = open(&killed);
        std::mem::forget(store);
    }
    assert_eq!(ends(&killed), 2);
    let (mut store, _) = open(&killed);
    store.commit(vec![Op::TakeInHand { job: JobId(1) }], 2).unwrap();
    std::mem::forget(store);
    assert_eq!(ends(&killed), 3);
}

#[test]
fn b49_a_finished_result_is_served_without_device_work() {
    let disk = MemoryDisk::default();
    let left = disk.clone();
    let first = simulate(with_journal("sim:1", &disk), |engine| async move {
        prove(&engine, encoded("done", &[2, 3])).await.unwrap()
    });
    simulate(with_journal("sim:1", &left), |engine| async move {
        assert!(engine.recovered().is_empty());
        let again = engine.submit(encoded("done", &[2, 3])).await.unwrap();
        assert!(again.is_attached());
        let outcome = again.wait().await.unwrap();
        // Its r and s are random: the same bytes are the same proof.
        assert_eq!(outcome.proof, first.proof);
        assert_eq!((outcome.job, &outcome.devices), (first.job, &first.devices));
        assert_eq!(engine.status().totals.dispatched, 0);
        // Other inputs under the same request id are other work.
        assert!(holds(&prove(&engine, encoded("done", &[5])).await.unwrap().proof, &[5]));
    });
}

/// A result is on the disk before anybody is told of it.
#[test]
fn b49_a_result_is_stored_before_it_is_given() {
    let disk = MemoryDisk::default();
    let journal = disk.clone();
    simulate(with_journal("sim:1", &disk), |engine| async move {
        for x in 2..6 {
            let outcome = prove(&engine, encoded("", &[x])).await.unwrap();
            let stored = contents(&journal);
            assert!(stored.jobs.is_empty());
            let of_job = stored.results.iter().find(|result| result.job.job == outcome.job).unwrap();
            assert!(matches!(&of_job.end, StoredEnd::Proved(stored) if stored.proof == outcome.proof));
        }
    });
}

#[test]
fn recovered_jobs_are_served_in_their_order_and_before_new_ones() {
    let disk = MemoryDisk::default();
    let left = simulate(with_journal("sim:1;stage=1s", &disk), |engine| async move {
        let ids = ["a", "b", "c", "d"];
        let _jobs = submit_all(&engine, ids.iter().map(|id| encoded(id, &[2]))).await;
        let high = with_priority(Priority::High, encoded("high", &[2]));
        let _high = engine.submit(high).await.unwrap();
        disk.fork()
    });
    simulate(with_journal("sim:1;stage=10ms", &left), |engine| async move {
        let new = engine.submit(encoded("new", &[3])).await.unwrap();
        let recovered = engine.recovered();
        let mut jobs = Vec::new();
        for job in recovered.iter() {
            jobs.push(engine.attach(job.job).await.unwrap().unwrap());
        }
        let names = |status: &cuzk::messages::status::EngineStatus| -> Vec<String> {
            status.jobs.iter().map(|job| job.request_id.clone()).collect()
        };
        assert_eq!(names(&engine.status()), ["a", "b", "c", "d", "high", "new"]);
        // HIGH first, then by age; the new one last.
        let mut left_of = 6;
        for expected in ["high", "a", "b", "c", "d", "new"] {
            let status = engine.wait_status(|status| status.jobs.len() < left_of).await.unwrap();
            left_of -= 1;
            assert_eq!(status.jobs.len(), left_of);
            assert!(!names(&status).contains(&expected.to_owned()), "{expected} in {:?}", names(&status));
        }
        assert!(holds(&new.wait().await.unwrap().proof, &[3]));
    });
}

/// A CRITICAL caller does not wait until others' jobs are decoded.
#[test]
fn b27_critical_work_does_not_wait_for_the_recovery() {
    let disk = MemoryDisk::default();
    let left = simulate(with_journal("sim:1;stage=1s", &disk), |engine| async move {
        let _jobs = submit_all(&engine, (0..20).map(|index| encoded(&format!("{index}"), &[2]))).await;
        disk.fork()
    });
    simulate(with_journal("sim:1;stage=10ms", &left), |engine| async move {
        let critical = with_priority(Priority::Critical, encoded("critical", &[3]));
        let critical = engine.submit(critical).await.unwrap();
        let outcome = critical.wait().await.unwrap();
        assert!(holds(&outcome.proof, &[3]));
        let status = engine.wait_status(|status| status.totals.completed > 0).await.unwrap();
        assert_eq!(status.totals.completed, 1, "nothing was proved before it");
    });
}

#[test]
fn a_job_that_no_longer_decodes_has_failed_and_the_reason_is_kept() {
    let disk = MemoryDisk::default();
    let left = simulate(with_journal("sim:1;stage=1s", &disk), |engine| async move {
        let _jobs = submit_all(&engine, [encoded("a", &[2]), encoded("b", &[3])]).await;
        disk.fork()
    });
    let journal = left.clone();
    let no_decoder = EngineConfig { decoders: Vec::new(), ..with_journal("sim:1", &left) };
    simulate(no_decoder, |engine| async move {
        engine.wait_recovered().await.unwrap();
        let job = engine.attach(JobId(1)).await.unwrap().unwrap();
        let error = job.wait().await.unwrap_err();
        assert!(error.to_string().contains("no decoder of that name"), "{error}");
        assert_eq!(error.class(), ErrorClass::Caller);
        assert_eq!(engine.status().totals.dispatched, 0);
    });
    assert_eq!(contents(&journal).results.len(), 2);
    // The next engine knows it, and the same request tries again.
    simulate(with_journal("sim:1", &journal), |engine| async move {
        assert!(engine.recovered().is_empty());
        let error = engine.attach(JobId(2)).await.unwrap().unwrap().wait().await.unwrap_err();
        assert!(matches!(error, EngineError::FailedBefore { .. }), "{error}");
        let again = engine.submit(encoded("b", &[3])).await.unwrap();
        assert!(!again.is_attached());
        assert!(holds(&again.wait().await.unwrap().proof, &[3]));
    });
}

/// What cannot be written is accepted, and said to be so: host objects, and blinding values, which are secrets.
#[test]
fn work_that_cannot_be_journalled_says_so() {
    let disk = MemoryDisk::default();
    let journal = disk.clone();
    simulate(with_journal("sim:1;stage=1s", &disk), |engine| async move {
        let object = engine.submit(squares::request("object", &[2])).await.unwrap();
        let seeded = ProofRequest { blinding: BlindingSource::Seeded([7; 32]), ..encoded("seeded", &[3]) };
        let seeded = engine.submit(seeded).await.unwrap();
        assert!(!object.is_durable() && !seeded.is_durable());
        assert!(unfinished(&journal).is_empty());
        let kept = engine.submit(encoded("kept", &[4])).await.unwrap();
        assert!(kept.is_durable());
        assert_eq!(unfinished(&journal), ["kept"]);
        for job in [object, seeded, kept] {
            job.wait().await.unwrap();
        }
    });
    let no_journal =
        EngineConfig { decoders: vec![SquaresDecoder::small()], ..crate::simulation::config("sim:1") };
    simulate(no_journal, |engine| async move {
        assert!(!engine.submit(encoded("a", &[2])).await.unwrap().is_durable());
        assert!(engine.recovered().is_empty());
    });
}

#[test]
fn b25_a_cancelled_job_does_not_come_back() {
    let disk = MemoryDisk::default();
    let journal = disk.clone();
    let left = simulate(with_journal("sim:1;stage=1s", &disk), |engine| async move {
        let jobs = submit_all(&engine, ["a", "b", "c"].map(|id| encoded(id, &[2]))).await;
        assert_eq!(engine.cancel(jobs[1].id()).await.unwrap(), CancelOutcome::WasQueued);
        assert_eq!(unfinished(&journal), ["a", "c"]);
        journal.fork()
    });
    let journal = left.clone();
    simulate(with_journal("sim:1;stage=1s", &left), |engine| async move {
        // Before it is queued again, or after.
        assert_eq!(engine.cancel(JobId(3)).await.unwrap(), CancelOutcome::WasQueued);
        engine.wait_recovered().await.unwrap();
        assert_eq!(engine.cancel(JobId(3)).await.unwrap(), CancelOutcome::AlreadyEnded);
        assert_eq!(unfinished(&journal), ["a"]);
        assert!(holds(&engine.attach(JobId(1)).await.unwrap().unwrap().wait().await.unwrap().proof, &[2]));
    });
}

/// B26: a caller that goes away cancels its work, in the journal too; a detached job and a recovered one go on.
#[test]
fn b26_a_caller_that_goes_away_takes_its_job_out_of_the_journal() {
    let disk = MemoryDisk::default();
    let journal = disk.clone();
    let left = simulate(with_journal("sim:1;stage=1s", &disk), |engine| async move {
        drop(engine.submit(encoded("dropped", &[2])).await.unwrap());
        let shared = engine.submit(encoded("shared", &[3])).await.unwrap();
        drop(engine.submit(encoded("shared", &[3])).await.unwrap());
        engine.submit(encoded("detached", &[4])).await.unwrap().detach();
        // Behind the drops.
        engine.cancel(JobId(u64::MAX)).await.unwrap();
        assert_eq!(unfinished(&journal), ["shared", "detached"]);
        let left = journal.fork();
        drop(shared);
        left
    });
    let journal = left.clone();
    simulate(with_journal("sim:1;stage=1s", &left), |engine| async move {
        // Whoever it was acknowledged to may still come back.
        drop(engine.submit(encoded("shared", &[3])).await.unwrap());
        engine.cancel(JobId(u64::MAX)).await.unwrap();
        assert_eq!(unfinished(&journal), ["shared", "detached"]);
        // Its retry is clean.
        assert!(holds(&prove(&engine, encoded("shared", &[3])).await.unwrap().proof, &[3]));
    });
}

#[test]
fn b29_work_that_expired_while_nobody_ran_is_never_dispatched() {
    let disk = MemoryDisk::default();
    let left = simulate(with_journal("sim:1;stage=1s", &disk), |engine| async move {
        let hurried = ProofRequest { deadline: Some(Duration::from_secs(100)), ..encoded("hurried", &[2]) };
        let patient = ProofRequest { deadline: Some(Duration::from_secs(900)), ..encoded("patient", &[3]) };
        let _jobs = submit_all(&engine, [hurried, patient]).await;
        disk.fork()
    });
    let journal = left.clone();
    let mut later = with_journal("sim:1;stage=1s", &left);
    later.journal.as_mut().unwrap().time_of_start = Some(START + Duration::from_secs(500));
    simulate(later, |engine| async move {
        let patient = engine.attach(JobId(2)).await.unwrap().unwrap();
        assert!(holds(&patient.wait().await.unwrap().proof, &[3]));
        let hurried = engine.attach(JobId(1)).await.unwrap().unwrap();
        let error = hurried.wait().await.unwrap_err();
        assert!(error.to_string().contains("deadline passed"), "{error}");
        let totals = engine.status().totals;
        assert_eq!((totals.dispatched, totals.deadline_exceeded), (1, 1));
    });
    assert!(unfinished(&journal).is_empty());
}

/// The latest deadline counts for whoever attached, after a restart too.
#[test]
fn b29_a_later_deadline_of_a_second_caller_is_kept() {
    let disk = MemoryDisk::default();
    let left = simulate(with_journal("sim:1;stage=1s", &disk), |engine| async move {
        let hurried = ProofRequest { deadline: Some(Duration::from_secs(100)), ..encoded("same", &[2]) };
        let _first = engine.submit(hurried.clone()).await.unwrap();
        let deadline = Some(Duration::from_secs(900));
        let _second = engine.submit(ProofRequest { deadline, ..hurried }).await.unwrap();
        disk.fork()
    });
    let mut later = with_journal("sim:1;stage=1s", &left);
    later.journal.as_mut().unwrap().time_of_start = Some(START + Duration::from_secs(500));
    simulate(later, |engine| async move {
        let job = engine.attach(JobId(1)).await.unwrap().unwrap();
        assert!(holds(&job.wait().await.unwrap().proof, &[2]));
    });
}

/// B19: finished and failed jobs are let go, in memory and on the disk.
#[test]
fn b19_finished_jobs_are_let_go_by_count_and_by_age() {
    let disk = MemoryDisk::default();
    let journal = disk.clone();
    let mut config = with_journal("sim:1", &disk);
    config.journal.as_mut().unwrap().retention = Retention { count: 5, age: Duration::from_secs(1_000) };
    simulate(config, |engine| async move {
        let mut sizes = Vec::new();
        for index in 0..60 {
            prove(&engine, encoded(&format!("{index}"), &[2])).await.unwrap();
            sizes.push(journal.fork().num_bytes());
        }
        assert_eq!(contents(&journal).results.len(), 5);
        assert_eq!(sizes[20], sizes[59], "the file does not grow");
        // The newest are served, the oldest are proved again.
        let dispatched = engine.status().totals.dispatched;
        prove(&engine, encoded("59", &[2])).await.unwrap();
        assert_eq!(engine.status().totals.dispatched, dispatched);
        prove(&engine, encoded("0", &[2])).await.unwrap();
        assert_eq!(engine.status().totals.dispatched, dispatched + 1);
        tokio::time::sleep(Duration::from_secs(1_001)).await;
        prove(&engine, encoded("late", &[2])).await.unwrap();
        assert_eq!(contents(&journal).results.len(), 1);
    });
}

/// The engine's end is not the job's: what a drain cuts off is proved by the next process.
#[test]
fn b44_what_a_drain_ends_is_proved_after_the_restart() {
    let disk = MemoryDisk::default();
    let journal = disk.clone();
    simulate(with_journal("sim:1;stage=3600s", &disk), |engine| async move {
        let job = engine.submit(encoded("long", &[2])).await.unwrap();
        engine.shutdown(Duration::from_secs(10)).await;
        let error = job.wait().await.unwrap_err();
        assert!(matches!(error, EngineError::Schedule(ScheduleError::Draining)), "{error}");
    });
    assert_eq!(unfinished(&journal), ["long"]);
    simulate(with_journal("sim:1", &journal), |engine| async move {
        assert!(holds(&prove(&engine, encoded("long", &[2])).await.unwrap().proof, &[2]));
        assert_eq!(engine.status().totals.recovered, 1);
    });
}

/// The want of any device is the engine's end too.
#[test]
fn b43_jobs_that_no_device_was_left_for_are_proved_after_the_restart() {
    let disk = MemoryDisk::default();
    let journal = disk.clone();
    let left = simulate(with_journal("sim:1;0:lost", &disk), |engine| async move {
        let names = ["a", "b", "c"];
        let jobs = submit_all(&engine, names.map(|id| encoded(id, &[2]))).await;
        let mut left = Vec::new();
        for (name, job) in names.into_iter().zip(&jobs) {
            let error = job.wait().await.unwrap_err();
            if matches!(error, EngineError::Schedule(ScheduleError::NoDevice(_))) {
                left.push(name);
            }
        }
        left
    });
    assert!(!left.is_empty());
    assert_eq!(unfinished(&journal), left);
    simulate(with_journal("sim:1", &journal), |engine| async move {
        for name in left {
            let job = engine.submit(encoded(name, &[2])).await.unwrap();
            assert!(job.is_attached());
            assert!(holds(&job.wait().await.unwrap().proof, &[2]));
        }
    });
}

/// A device that is no more is a reason to fail; the engine's being without any is none.
#[test]
fn a_recovered_job_for_a_device_that_is_gone_has_failed() {
    let disk = MemoryDisk::default();
    let left = simulate(with_journal("sim:2;stage=1s", &disk), |engine| async move {
        let placement = Placement::Device(DeviceId::new("sim-1"));
        let _job = engine.submit(ProofRequest { placement, ..encoded("bound", &[2]) }).await.unwrap();
        disk.fork()
    });
    simulate(with_journal("sim:1", &left), |engine| async move {
        let error = engine.attach(JobId(1)).await.unwrap().unwrap().wait().await.unwrap_err();
        assert!(error.to_string().contains("sim-1 is not one of this engine's"), "{error}");
    });
}

/// Every request reads back as it was submitted, and is decoded by whatever engine there is.
#[test]
fn jobs_are_recovered_whatever_they_are_decoded_by() {
    let disk = MemoryDisk::default();
    let left = simulate(with_journal("sim:1;stage=1s", &disk), |engine| async move {
        let _jobs = submit_all(&engine, (2..9).map(|x| encoded(&format!("{x}"), &[x]))).await;
        disk.fork()
    });
    // The request reads back as it was submitted.
    let (store, found) = Store::open(Medium::Backend(Arc::new(left.fork())), KEEP_ALL).unwrap();
    assert_eq!(found.jobs.len(), 7);
    for (job, x) in found.jobs.iter().zip(2u64..) {
        match store.reader().request(job.job).unwrap() {
            Undecoded::Encoded(work) => assert_eq!(work.bytes, x.to_le_bytes()),
            other => panic!("{other:?}"),
        }
    }
    let config = EngineConfig { max_queued_jobs: 1, ..with_journal("sim:2", &left) };
    // More than would be accepted now: they were.
    simulate(config, |engine| async move {
        for x in 2..9 {
            let job = engine.attach(JobId(x - 1)).await.unwrap().unwrap();
            assert!(holds(&job.wait().await.unwrap().proof, &[x]));
        }
    });
}
