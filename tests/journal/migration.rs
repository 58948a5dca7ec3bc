//! Version 1 becomes version 2: what a writer of version 1 wrote is all there.

use std::sync::Arc;

use cuzk::circuits::{ProofKind, Undecoded, WorkKind};
use cuzk::error::JournalError;
use cuzk::ids::JobId;
use cuzk::journal::{Medium, StorageBackend, Store, StoredEnd};
use cuzk::messages::job::{Placement, Priority};
use redb::{Database, TableDefinition};
use serde::Serialize;

use crate::common::seeds;
use crate::crash::{CrashDisk, Left};
use crate::model::{Model, KEEP_ALL};

type ByJob = TableDefinition<'static, u64, &'static [u8]>;
const META: TableDefinition<&str, u64> = TableDefinition::new("meta");
const ACCEPTED: ByJob = TableDefinition::new("accepted");
const FINISHED: ByJob = TableDefinition::new("finished");

/// As version 1 wrote them, field by field.
#[derive(Serialize)]
struct AcceptedV1 {
    request_id: String,
    kind: u8,
    circuit: String,
    num_partitions: u32,
    digest: [u8; 32],
    priority: u8,
    accepted_unix_ms: u64,
    deadline_ms: Option<u64>,
    request: Vec<u8>,
}

#[derive(Serialize)]
struct FinishedV1 {
    request_id: String,
    kind: u8,
    circuit: String,
    digest: [u8; 32],
    priority: u8,
    accepted_unix_ms: u64,
    finished_unix_ms: u64,
    proof: Vec<u8>,
}

#[derive(Serialize)]
struct RequestV1 {
    proof_kind: u64,
    sector_size: u64,
    registered_proof: u64,
    vanilla_proof: Vec<u8>,
    vanilla_proofs: Vec<Vec<u8>>,
    sector_number: u64,
    miner_id: u64,
    randomness: Vec<u8>,
    partition_index: u32,
    comm_r_old: Vec<u8>,
    comm_r_new: Vec<u8>,
    comm_d_new: Vec<u8>,
}

fn request(number: u64) -> RequestV1 {
    RequestV1 {
        proof_kind: 3,
        sector_size: 2048,
        registered_proof: 10,
        vanilla_proof: Vec::new(),
        vanilla_proofs: vec![vec![number as u8; 5_000], vec![1, 2, 3]],
        sector_number: 0,
        miner_id: 1_000 + number,
        randomness: vec![9; 32],
        partition_index: 4,
        comm_r_old: Vec::new(),
        comm_r_new: Vec::new(),
        comm_d_new: Vec::new(),
    }
}

fn accepted(number: u64) -> AcceptedV1 {
    AcceptedV1 {
        request_id: if number == 3 { String::new() } else { format!("post-{number}") },
        kind: 2,
        circuit: "wpost-2k".to_owned(),
        num_partitions: 1,
        digest: [number as u8; 32],
        priority: 2,
        accepted_unix_ms: 10_000 + number,
        deadline_ms: (number == 2).then_some(500),
        request: bincode::serialize(&request(number)).unwrap(),
    }
}

fn finished(number: u64) -> FinishedV1 {
    FinishedV1 {
        request_id: format!("porep-{number}"),
        kind: 0,
        circuit: "porep-2k".to_owned(),
        digest: [number as u8; 32],
        priority: 1,
        accepted_unix_ms: 10_000 + number,
        finished_unix_ms: 20_000 + number,
        proof: vec![number as u8; 2 * 192],
    }
}

/// Writes a journal of version 1: jobs 2, 3 and 5 are open, 1 and 4 have results.
fn write_version_1(backend: impl StorageBackend) {
    let database = Database::builder().create_with_backend(backend).unwrap();
    let transaction = database.begin_write().unwrap();
    transaction.open_table(META).unwrap().insert("version", 1).unwrap();
    for number in [2, 3, 5] {
        let bytes = bincode::serialize(&accepted(number)).unwrap();
        transaction.open_table(ACCEPTED).unwrap().insert(number, bytes.as_slice()).unwrap();
    }
    for number in [1, 4] {
        let bytes = bincode::serialize(&finished(number)).unwrap();
        transaction.open_table(FINISHED).unwrap().insert(number, bytes.as_slice()).unwrap();
    }
    transaction.commit().unwrap();
}

fn version_1() -> Vec<u8> {
    let disk = CrashDisk::new(u64::MAX);
    write_version_1(disk.clone());
    disk.view()
}

fn migrated(image: Vec<u8>) -> Model {
    let disk = CrashDisk::holding(image, u64::MAX);
    Model::from(Store::open(disk.medium(), KEEP_ALL).unwrap().1)
}

#[test]
fn an_older_journal_is_migrated_with_all_that_is_in_it() {
    let disk = CrashDisk::holding(version_1(), u64::MAX);
    let (store, contents) = Store::open(disk.medium(), KEEP_ALL).unwrap();
    assert_eq!(contents.next_job, 6);
    let jobs: Vec<u64> = contents.jobs.iter().map(|record| record.job.0).collect();
    assert_eq!(jobs, [2, 3, 5]);
    let record = &contents.jobs[0];
    assert_eq!((record.request_id.as_str(), record.has_identity), ("post-2", true));
    assert_eq!((record.kind, record.priority), (WorkKind::WindowPost, Priority::High));
    assert_eq!((record.circuit.as_str(), record.num_partitions), ("wpost-2k", 1));
    assert_eq!((record.accepted_unix_ms, record.deadline_unix_ms), (10_002, Some(10_502)));
    assert_eq!((record.digest.0, &record.placement), ([2; 32], &Placement::Any));
    assert!(!contents.jobs[1].has_identity);
    assert_eq!(contents.jobs[1].deadline_unix_ms, None);
    match store.reader().request(JobId(5)).unwrap() {
        Undecoded::Filecoin(request) => {
            assert_eq!(request.proof_kind, Some(ProofKind::WindowPostPartition));
            assert_eq!(request.vanilla_proofs, [vec![5; 5_000], vec![1, 2, 3]]);
            assert_eq!((request.miner_id, request.partition_index), (1_005, 4));
            assert_eq!((request.sector_size, request.registered_proof), (2048, 10));
            assert_eq!(request.randomness, [9; 32]);
        }
        other => panic!("{other:?}"),
    }
    let results: Vec<u64> = contents.results.iter().map(|result| result.job.job.0).collect();
    assert_eq!(results, [1, 4]);
    assert_eq!((contents.results[1].finished_unix_ms, contents.results[1].job.num_partitions), (20_004, 2));
    assert!(matches!(&contents.results[1].end, StoredEnd::Proved(stored) if stored.proof == [4; 384]));
    // It is of version 2 now.
    drop(store);
    assert_eq!(Model::from(Store::open(disk.medium(), KEEP_ALL).unwrap().1), Model::from(contents));
}

#[test]
fn a_power_cut_during_the_migration_loses_nothing() {
    let image = version_1();
    let expected = migrated(image.clone());
    let seed = seeds::seed();
    println!("CUZK_TEST_SEED={seed}");
    for cut_at in 1.. {
        let disk = CrashDisk::holding(image.clone(), cut_at);
        let opened = Store::open(disk.medium(), KEEP_ALL);
        let is_open = opened.is_ok();
        drop(opened);
        for left in [Left::Nothing, Left::Everything, Left::Part(seed ^ cut_at)] {
            assert_eq!(migrated(disk.left(left)), expected, "cut at {cut_at}, {left:?}");
        }
        if is_open && disk.num_ops() < cut_at {
            assert!(cut_at > 10, "there is something to cut");
            return;
        }
    }
}

#[test]
fn an_older_journal_with_a_record_that_cannot_be_read_is_refused_as_it_is() {
    let disk = CrashDisk::new(u64::MAX);
    write_version_1(disk.clone());
    let broken = CrashDisk::holding(disk.view(), u64::MAX);
    {
        let database = Database::builder().create_with_backend(broken.clone()).unwrap();
        let transaction = database.begin_write().unwrap();
        transaction.open_table(ACCEPTED).unwrap().insert(3, &[1u8, 2, 3][..]).unwrap();
        transaction.commit().unwrap();
    }
    let medium = Medium::Backend(Arc::new(broken.clone()));
    let error = Store::open(medium.clone(), KEEP_ALL).map(|(_, contents)| contents).unwrap_err();
    assert!(
        matches!(&error, JournalError::Damaged { what, .. } if what.contains("accepted job 0003")),
        "{error}"
    );
    // Nothing was moved.
    let again = Store::open(medium, KEEP_ALL).map(|(_, contents)| contents).unwrap_err();
    assert_eq!(again, error);
}
