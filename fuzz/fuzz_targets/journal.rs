//! Journals whose pages are whole and whose records are not: opening one gives what it holds or says what is wrong with
//! it, and so does reading a request. (Pages that are not whole are told by their checksums: `tests/journal/damage.rs`.)
//!
//! An input is three bodies, each behind its length (u16, little-endian): a job, its request, a result.
#![no_main]

use std::sync::Arc;
use std::time::Duration;

use cuzk::journal::{Medium, MemoryDisk, Retention, Store};
use libfuzzer_sys::fuzz_target;
use redb::{Database, TableDefinition};
use sha2::{Digest, Sha256};

const RETENTION: Retention = Retention { count: 10, age: Duration::from_secs(1) };
const VERSION: u16 = 2;
const META: TableDefinition<&str, u64> = TableDefinition::new("meta");
const TABLES: [&str; 3] = ["jobs", "requests", "results"];

/// With a checksum that is right: what a program with an error, or of another version, would have written.
fn frame(body: &[u8]) -> Vec<u8> {
    [&VERSION.to_le_bytes()[..], &Sha256::digest(body)[..8], body].concat()
}

fn take<'a>(data: &mut &'a [u8]) -> &'a [u8] {
    let Some((length, rest)) = data.split_first_chunk() else { return &[] };
    let length = usize::from(u16::from_le_bytes(*length)).min(rest.len());
    let (body, rest) = rest.split_at(length);
    *data = rest;
    body
}

fn journal_of(mut data: &[u8]) -> MemoryDisk {
    let disk = MemoryDisk::default();
    let database =
        Database::builder().create_with_backend(disk.clone()).expect("memory takes a new database");
    let transaction = database.begin_write().expect("it is new");
    let mut meta = transaction.open_table(META).expect("it is new");
    for (key, value) in [("version", u64::from(VERSION)), ("next_job", 2)] {
        meta.insert(key, value).expect("memory takes it");
    }
    drop(meta);
    for name in TABLES {
        let table: TableDefinition<u64, &[u8]> = TableDefinition::new(name);
        let mut table = transaction.open_table(table).expect("it is new");
        table.insert(1, frame(take(&mut data)).as_slice()).expect("memory takes it");
    }
    transaction.commit().expect("memory takes it");
    disk
}

fuzz_target!(|data: &[u8]| {
    cuzk_fuzz::let_caught_panics_be();
    let disk = journal_of(data);
    let Ok((mut store, contents)) = Store::open(Medium::Backend(Arc::new(disk)), RETENTION) else { return };
    for record in &contents.jobs {
        // Either way is an answer.
        let _ = store.reader().request(record.job);
    }
    for result in &contents.results {
        let _ = result.result();
    }
    // What was read can be written again.
    store.commit(Vec::new(), u64::MAX).expect("memory takes it");
});
