//! Journals that are not to be opened: in use, newer, damaged, out of reach. Each is refused by name, and never emptied.

use std::path::Path;

use cuzk::engine::{DeviceSpec, Engine, EngineConfig};
use cuzk::error::{EngineError, ErrorClass, JournalError};
use cuzk::ids::JobId;
use cuzk::journal::{Contents, JournalConfig, Medium, Op, Store};
use rand::Rng;
use redb::{Database, TableDefinition};

use crate::common::seeds;
use crate::model::{Model, KEEP_ALL};
use crate::records::{accept, finish, workload};

const META: TableDefinition<&str, u64> = TableDefinition::new("meta");

/// Of redb's file: what says which pages are the last whole transaction.
const HEAD_BYTES: usize = 320;

fn open(path: &Path) -> Result<(Store, Contents), JournalError> {
    Store::open(Medium::File(path.to_owned()), KEEP_ALL)
}

/// A journal with something in it.
fn filled(path: &Path) -> Model {
    let (mut store, _) = open(path).unwrap();
    let mut model = Model::new();
    for ops in workload() {
        model.apply(&ops);
        store.commit(ops, 0).unwrap();
    }
    model
}

fn refused(path: &Path) -> JournalError {
    open(path).map(|(_, contents)| contents).unwrap_err()
}

#[test]
fn one_process_has_a_journal() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let (store, _) = open(&path).unwrap();
    let error = refused(&path);
    assert_eq!(error, JournalError::InUse { path: path.clone() });
    assert!(error.to_string().contains("in use by another process: stop that one"), "{error}");
    drop(store);
    open(&path).unwrap();
}

#[test]
fn b49_a_journal_whose_file_was_removed_or_replaced_takes_nothing_until_it_is_back() {
    let dir = tempfile::tempdir().unwrap();
    let (path, aside) = (dir.path().join("journal"), dir.path().join("aside"));
    let (mut store, _) = open(&path).unwrap();
    store.commit(vec![accept(1, 10), accept(2, 10)], 0).unwrap();
    let mut refused = |what: &str| {
        let error = store.commit(vec![accept(3, 10), finish(1, 5)], 0).unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
        assert_eq!(error.class(), ErrorClass::Retry);
    };
    std::fs::rename(&path, &aside).unwrap();
    refused("its file is not there any more");
    std::fs::copy(&aside, &path).unwrap();
    refused("another file has been put in its place");
    // What is open can still be read, and is the journal again under its name; what had ended meanwhile is written.
    let request = store.reader().request(JobId(2)).map(drop);
    assert!(!matches!(&request, Err(error) if error.to_string().contains("missing")), "{request:?}");
    assert!(!matches!(request, Err(JournalError::Unreadable { .. })), "{request:?}");
    std::fs::rename(&aside, &path).unwrap();
    store.commit(vec![accept(4, 10)], 0).unwrap();
    drop(store);
    let contents = open(&path).unwrap().1;
    let jobs: Vec<u64> = contents.jobs.iter().map(|record| record.job.0).collect();
    assert_eq!((jobs, contents.results.len()), (vec![2, 4], 1));
}

#[cfg(unix)]
#[test]
fn only_its_owner_reads_it_and_nothing_is_left_beside_it() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    filled(&path);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_journal_of_a_newer_version_says_what_to_do_and_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let model = filled(&path);
    let set_version = |version: u64| {
        let database = Database::open(&path).unwrap();
        let transaction = database.begin_write().unwrap();
        transaction.open_table(META).unwrap().insert("version", version).unwrap();
        transaction.commit().unwrap();
    };
    set_version(3);
    let error = refused(&path);
    assert_eq!(error, JournalError::Newer { path: path.clone(), has: 3, knows: 2 });
    assert!(error.to_string().contains("use the newer program that wrote it"), "{error}");
    assert_eq!(error.class(), ErrorClass::Caller);
    set_version(2);
    assert_eq!(Model::from(open(&path).unwrap().1), model);
}

#[test]
fn what_is_no_journal_is_refused_and_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    for bytes in [&b""[..], b"x", b"#!/bin/sh\necho no journal\n", &[0; 100_000], &[0xa5; 9_000]] {
        std::fs::write(&path, bytes).unwrap();
        let error = refused(&path);
        assert!(matches!(error, JournalError::Damaged { .. }), "{} B: {error}", bytes.len());
        assert!(error.to_string().contains("move it away to begin a new one"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
    }
    // A database of somebody else's.
    std::fs::remove_file(&path).unwrap();
    let database = Database::create(&path).unwrap();
    let transaction = database.begin_write().unwrap();
    transaction.open_table(TableDefinition::<u64, u64>::new("other")).unwrap().insert(1, 2).unwrap();
    transaction.commit().unwrap();
    drop(database);
    let error = refused(&path);
    assert!(error.to_string().contains("it is a database of another program"), "{error}");
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing/journal");
    for path in [missing.as_path(), dir.path()] {
        let error = refused(path);
        assert!(matches!(error, JournalError::Unreachable { .. }), "{error}");
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    }
    // The engine does not start without its journal.
    let journal = Some(JournalConfig::file(&missing));
    let devices = vec![DeviceSpec::Cpu { threads: 1, lanes: 1 }];
    let started = Engine::start(EngineConfig { journal, devices, ..EngineConfig::default() });
    assert!(matches!(started.unwrap_err(), EngineError::Journal(JournalError::Unreachable { .. })));
}

/// Cut short anywhere, or with any byte changed: what was in it, or an error that names it.
#[test]
fn a_damaged_journal_is_refused_or_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let model = filled(&path);
    let whole = std::fs::read(&path).unwrap();
    println!("{} B", whole.len());
    let mut rng = seeds::rng();
    let mut num_refused = 0;
    let mut try_open = |bytes: &[u8], what: &str| {
        std::fs::write(&path, bytes).unwrap();
        match open(&path) {
            Ok((mut store, contents)) => {
                assert_eq!(Model::from(contents), model, "{what}");
                // Inputs are read when they are needed: as they were, or not at all.
                for job in model.jobs.keys() {
                    if let Err(error) = store.reader().request(*job) {
                        assert!(matches!(error, JournalError::Damaged { .. }), "{what}: {error}");
                    }
                }
                // Whether it can be written shows when it is.
                let _ = store.commit(vec![Op::Probe], 0);
            }
            Err(error) => {
                assert!(matches!(error, JournalError::Damaged { .. }), "{what}: {error}");
                assert!(error.to_string().contains(&path.display().to_string()), "{what}: {error}");
                num_refused += 1;
            }
        }
        assert!(std::fs::metadata(&path).unwrap().len() > 0 || bytes.is_empty(), "{what}: it was emptied");
    };
    for _ in 0..60 {
        let len = rng.gen_range(0..whole.len());
        try_open(&whole[..len], &format!("cut to {len} B"));
    }
    for index in 0..HEAD_BYTES + 100 {
        // Every byte of the head, and any of the rest.
        let place = if index < HEAD_BYTES { index } else { rng.gen_range(0..whole.len()) };
        let mut bytes = whole.clone();
        bytes[place] ^= 1 << rng.gen_range(0..8);
        try_open(&bytes, &format!("byte {place} changed"));
    }
    assert!(num_refused > 60, "{num_refused} were noticed");
}

/// A burst of large requests leaves a large file; the next process that opens it has a small one, with all that was kept.
#[test]
fn a_file_that_once_held_much_is_made_smaller() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let (mut store, _) = open(&path).unwrap();
    for number in 1..=12 {
        store.commit(vec![accept(number, 8 << 20)], 1).unwrap();
    }
    store.commit((1..=11).map(|number| finish(number, 2)).collect(), 2).unwrap();
    drop(store);
    let large = std::fs::metadata(&path).unwrap().len();
    assert!(large > 64 << 20, "{large}");
    let (store, contents) = open(&path).unwrap();
    assert_eq!((contents.jobs.len(), contents.results.len()), (1, 11));
    assert!(store.reader().request(contents.jobs[0].job).is_ok());
    drop(store);
    let small = std::fs::metadata(&path).unwrap().len();
    assert!(small < large / 3, "{large} B, then {small} B");
}
