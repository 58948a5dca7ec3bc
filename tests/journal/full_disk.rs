//! An engine whose journal cannot be written, or whose disk does not answer, and then can again.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use cuzk::engine::{Deadlines, Engine, EngineConfig};
use cuzk::error::{EngineError, ErrorClass, JournalError};
use cuzk::ids::JobId;
use cuzk::journal::{Medium, MemoryDisk, OpenBackend, StorageBackend, Store};
use cuzk::messages::job::{CancelOutcome, ProofRequest};
use cuzk::messages::status::EngineStatus;

use crate::encoded::encoded;
use crate::engine::{contents, with_medium};
use crate::model::KEEP_ALL;
use crate::simulation::simulate;
use crate::squares::{self, holds};

/// A disk that may be full, or hang.
#[derive(Clone, Debug, Default)]
struct FullDisk {
    disk: MemoryDisk,
    is_full: Arc<AtomicBool>,
    /// The one that fails, counted from now; 0: none does.
    failing_sync: Arc<AtomicU64>,
    num_syncs: Arc<AtomicU64>,
    hangs: Arc<(Mutex<bool>, Condvar)>,
}

/// It hangs until this is dropped, however the test ends: the engine waits for its threads.
struct Hang<'d>(&'d FullDisk);

impl Drop for Hang<'_> {
    fn drop(&mut self) {
        let (hangs, changed) = &*self.0.hangs;
        *hangs.lock().unwrap() = false;
        changed.notify_all();
    }
}

impl FullDisk {
    fn hang(&self) -> Hang<'_> {
        *self.hangs.0.lock().unwrap() = true;
        Hang(self)
    }

    fn check(&self) -> io::Result<()> {
        let (hangs, changed) = &*self.hangs;
        drop(changed.wait_while(hangs.lock().unwrap(), |hangs| *hangs).unwrap());
        if self.is_full.load(Ordering::SeqCst) {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        Ok(())
    }

    fn set_full(&self, is_full: bool) {
        self.is_full.store(is_full, Ordering::SeqCst);
    }
}

impl OpenBackend for FullDisk {
    fn name(&self) -> String {
        "<full>".to_owned()
    }

    fn open(&self) -> io::Result<Box<dyn StorageBackend>> {
        Ok(Box::new(self.clone()))
    }
}

impl StorageBackend for FullDisk {
    fn len(&self) -> io::Result<u64> {
        self.disk.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.disk.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.check()?;
        self.disk.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.num_syncs.fetch_add(1, Ordering::SeqCst);
        let count = |left: u64| left.checked_sub(1);
        if self.failing_sync.fetch_update(Ordering::SeqCst, Ordering::SeqCst, count) == Ok(1) {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        self.check()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check()?;
        self.disk.write(offset, data)
    }
}

async fn wait_ready(engine: &Engine, ready: bool) -> Vec<String> {
    engine.wait_status(|status| status.ready == ready).await.unwrap().reasons.clone()
}

#[test]
fn a_journal_that_cannot_be_written_refuses_new_jobs_and_proves_on() {
    let disk = FullDisk::default();
    let medium = Medium::Backend(Arc::new(disk.clone()));
    let journal = disk.disk.clone();
    simulate(with_medium("sim:1;stage=1s", medium), |engine| async move {
        let running = engine.submit(encoded("running", &[2])).await.unwrap();
        let waiting = engine.submit(encoded("waiting", &[3])).await.unwrap();
        wait_ready(&engine, true).await;
        disk.set_full(true);
        let error = engine.submit(encoded("refused", &[4])).await.unwrap_err();
        assert!(matches!(error, EngineError::Journal(JournalError::Unwritable { .. })), "{error}");
        assert_eq!(error.class(), ErrorClass::Retry);
        assert!(error.to_string().starts_with("journal <full> cannot be written"), "{error}");
        let reasons = wait_ready(&engine, false).await;
        assert!(reasons[0].starts_with("journal <full> cannot be written"), "{reasons:?}");
        // Refused at once now, and nothing of it is left.
        engine.submit(encoded("refused", &[4])).await.unwrap_err();
        assert_eq!(engine.status().jobs.len(), 2);
        // What needs no journal is accepted.
        let object = engine.submit(squares::request("object", &[5])).await.unwrap();
        assert!(holds(&running.wait().await.unwrap().proof, &[2]));
        assert!(holds(&waiting.wait().await.unwrap().proof, &[3]));
        assert!(holds(&object.wait().await.unwrap().proof, &[5]));
        disk.set_full(false);
        // Without anybody asking.
        let reasons = wait_ready(&engine, true).await;
        assert!(reasons.is_empty(), "{reasons:?}");
        // What ended meanwhile is written by now.
        let stored = contents(&journal);
        assert!(stored.jobs.is_empty(), "{:?}", stored.jobs);
        assert_eq!(stored.results.len(), 2);
        let accepted = engine.submit(encoded("refused", &[4])).await.unwrap();
        assert!(accepted.is_durable() && !accepted.is_attached());
        assert!(holds(&accepted.wait().await.unwrap().proof, &[4]));
    });
}

#[test]
fn a_disk_that_does_not_answer_refuses_new_jobs_and_keeps_no_proof_back() {
    let disk = FullDisk::default();
    let medium = Medium::Backend(Arc::new(disk.clone()));
    let deadlines = Deadlines { journal: Duration::from_millis(200), ..Deadlines::default() };
    let config = EngineConfig { synthesis_threads: 1, deadlines, ..with_medium("sim:1;stage=300ms", medium) };
    let engine = Engine::start(config).unwrap();
    let running = engine.submit_blocking(encoded("running", &[2])).unwrap();
    let hang = disk.hang();
    let submitter = std::thread::spawn({
        let engine = engine.clone();
        move || engine.submit_blocking(encoded("meanwhile", &[7]))
    });
    assert!(holds(&running.wait_blocking().unwrap().proof, &[2]), "its result is stored nowhere");
    // Nor does who submits wait longer than the job takes, which nobody promises to outlive a kill.
    let meanwhile = submitter.join().unwrap().unwrap();
    assert!(!meanwhile.is_durable());
    assert!(holds(&meanwhile.wait_blocking().unwrap().proof, &[7]));
    let is_stalled =
        |reason: &String| reason.contains("cannot be written: its disk has not answered for 200 ms");
    let status = engine.wait_status_blocking(|status| status.reasons.iter().any(is_stalled)).unwrap();
    assert!(!status.ready);
    // At once, and nothing more waits for the disk.
    let error = engine.submit_blocking(encoded("refused", &[3])).unwrap_err();
    assert!(matches!(error, EngineError::Journal(JournalError::Unwritable { .. })), "{error}");
    assert_eq!(error.class(), ErrorClass::Retry);
    drop(hang);
    // Without anybody asking.
    engine.wait_status_blocking(|status: &EngineStatus| status.ready).unwrap();
    let accepted = engine.submit_blocking(encoded("refused", &[3])).unwrap();
    assert!(accepted.is_durable() && !accepted.is_attached());
    assert!(holds(&accepted.wait_blocking().unwrap().proof, &[3]));
    drop((running, meanwhile, accepted));
    engine.shutdown_blocking(Duration::from_secs(60));
    let stored = contents(&disk.disk);
    assert!(stored.jobs.is_empty(), "{:?}", stored.jobs);
    assert_eq!(stored.results.len(), 3, "what ended meanwhile is written");
}

#[test]
fn b25_a_cancel_is_answered_once_no_later_process_will_prove_its_job() {
    let disk = FullDisk::default();
    let medium = Medium::Backend(Arc::new(disk.clone()));
    // A device that is never ready: jobs wait.
    let config = EngineConfig { synthesis_threads: 1, ..with_medium("sim:1;stage=3600s", medium) };
    let engine = Engine::start(config).unwrap();
    let [first, second] = [2, 3].map(|x| engine.submit_blocking(encoded("unwanted", &[x])).unwrap().detach());
    let hang = disk.hang();
    let canceller = std::thread::spawn({
        let engine = engine.clone();
        move || engine.cancel_blocking(first)
    });
    engine.wait_status_blocking(|status| status.jobs.len() == 1).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    assert!(!canceller.is_finished(), "a kill now would bring the job back");
    drop(hang);
    assert_ne!(canceller.join().unwrap().unwrap(), CancelOutcome::Unknown);
    assert_eq!(contents(&disk.disk).jobs.len(), 1);

    disk.set_full(true);
    let error = engine.cancel_blocking(second).unwrap_err();
    assert!(matches!(error, EngineError::Journal(JournalError::NotForgotten { .. })), "{error}");
    assert!(engine.status().jobs.is_empty(), "it is cancelled all the same");
    // As often as it is asked; what it does not concern is answered.
    let again = engine.cancel_blocking(second).unwrap_err();
    assert!(matches!(again, EngineError::Journal(JournalError::NotForgotten { job, .. }) if job == second));
    assert_eq!(engine.cancel_blocking(first).unwrap(), CancelOutcome::AlreadyEnded);
    assert_eq!(engine.cancel_blocking(JobId(999)).unwrap(), CancelOutcome::Unknown);
    let cannot_write = |status: &EngineStatus| status.reasons.iter().any(|reason| reason.contains("written"));
    engine.wait_status_blocking(cannot_write).unwrap();
    disk.set_full(false);
    // With the next look whether it can be.
    engine.wait_status_blocking(|status| !cannot_write(status)).unwrap();
    assert_eq!(engine.cancel_blocking(second).unwrap(), CancelOutcome::AlreadyEnded);
    assert!(contents(&disk.disk).jobs.is_empty());
    engine.shutdown_blocking(Duration::ZERO);
}

#[test]
fn b49_who_submits_what_ends_at_once_is_answered_when_it_is_written_all_the_same() {
    let disk = FullDisk::default();
    let medium = Medium::Backend(Arc::new(disk.clone()));
    let config = EngineConfig { synthesis_threads: 1, ..with_medium("sim:1;stage=3600s", medium) };
    let engine = Engine::start(config).unwrap();
    let hang = disk.hang();
    let submitter = std::thread::spawn({
        let engine = engine.clone();
        let deadline = Some(Duration::from_millis(20));
        move || engine.submit_blocking(ProofRequest { deadline, ..encoded("short", &[2]) })
    });
    engine.wait_status_blocking(|status| status.totals.deadline_exceeded == 1).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    assert!(!submitter.is_finished(), "after a kill now nobody would know it");
    drop(hang);
    let job = submitter.join().unwrap().unwrap();
    assert!(job.is_durable());
    let error = job.wait_blocking().unwrap_err();
    assert!(matches!(error, EngineError::DeadlineExceeded { .. }), "{error}");
    engine.shutdown_blocking(Duration::ZERO);
    assert_eq!(contents(&disk.disk).results.len(), 1);
}

/// What an opened journal holds can be read, and its last change at the opening, which notes the process, not be written.
#[test]
fn an_engine_that_starts_on_a_full_disk_says_so_before_anybody_asks() {
    let disk = FullDisk::default();
    let medium = Medium::Backend(Arc::new(disk.clone()));
    drop(Store::open(medium.clone(), KEEP_ALL).unwrap());
    let before = disk.num_syncs.load(Ordering::SeqCst);
    let (store, contents) = Store::open(medium.clone(), KEEP_ALL).unwrap();
    assert_eq!(contents.unwritable, None);
    let syncs_of_opening = disk.num_syncs.load(Ordering::SeqCst) - before;
    drop(store);
    disk.failing_sync.store(syncs_of_opening, Ordering::SeqCst);
    simulate(with_medium("sim:1", medium), |engine| async move {
        let cannot_write =
            |status: &EngineStatus| status.reasons.iter().any(|reason| reason.contains("cannot be written"));
        assert_eq!(disk.failing_sync.load(Ordering::SeqCst), 0, "it was opened");
        let known = tokio::time::timeout(Duration::from_secs(60), engine.wait_status(cannot_write)).await;
        assert!(!known.expect("it is not said").unwrap().ready);
        // Without anybody asking.
        wait_ready(&engine, true).await;
        let accepted = engine.submit(encoded("later", &[2])).await.unwrap();
        assert!(accepted.is_durable());
    });
}
