//! An engine whose journal cannot be written, and then can again.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use cuzk::engine::Engine;
use cuzk::error::{EngineError, ErrorClass, JournalError};
use cuzk::journal::{Medium, MemoryDisk, OpenBackend, StorageBackend};

use crate::encoded::encoded;
use crate::engine::{contents, with_medium};
use crate::simulation::simulate;
use crate::squares::{self, holds};

/// A disk that may be full.
#[derive(Clone, Debug, Default)]
struct FullDisk {
    disk: MemoryDisk,
    is_full: Arc<AtomicBool>,
}

impl FullDisk {
    fn check(&self) -> io::Result<()> {
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
