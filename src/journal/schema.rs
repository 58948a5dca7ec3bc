//! The tables of a journal, their version, and how an older one becomes a newer one.
//!
//! | version | tables |
//! |---|---|
//! | 2 | `meta`: `version`, `next_job`, `clean`; `jobs`, `requests`, `results`: by job, framed records (`record.rs`, `request.rs`); `trials`: by job |
//! | 1 | `meta`: `version`; `accepted`, `finished`: by job, bincode without frames ([`AcceptedV1`], [`FinishedV1`]) |
//!
//! Version 1 kept a job's inputs inside its record, knew Filecoin's requests alone, no device that a job is bound to,
//! deadlines by their length, and no failures; nothing told a damaged record from a whole one. A file is migrated when
//! it is opened, in one transaction: a kill leaves the old version or the new one.
//!
//! `clean` and `trials` may be missing: files of this version were written before there were any.

use std::collections::BTreeMap;

use redb::{Database, ReadableDatabase, ReadableTable, Table, TableDefinition, TableError, WriteTransaction};
use serde::Deserialize;
use serde_bytes::ByteBuf;

use super::record::{kind_of, parse, priority_of, JobRecord, ResultRecord, StoredEnd, StoredProof};
use super::request::{encode_request, OwnedFilecoinBody};
use crate::circuits::Undecoded;
use crate::groth16::proof::PROOF_BYTES;
use crate::ids::{CircuitId, JobId, RequestDigest};
use crate::messages::job::Placement;

/// The version that is written.
pub(super) const VERSION: u64 = 2;

pub(super) type ByJob = TableDefinition<'static, u64, &'static [u8]>;

const META: TableDefinition<&str, u64> = TableDefinition::new("meta");
/// Jobs that have not ended: [`JobRecord`].
pub(super) const JOBS: ByJob = TableDefinition::new("jobs");
/// Their inputs: [`encode_request`]. Apart, so that jobs can be listed without reading gigabytes.
pub(super) const REQUESTS: ByJob = TableDefinition::new("requests");
/// Jobs that have ended: [`ResultRecord`].
pub(super) const RESULTS: ByJob = TableDefinition::new("results");

/// Jobs that have not ended and outlived a process: how many processes ended otherwise than by their own will while they
/// had it in hand, and whether the present one has.
const TRIALS: TableDefinition<u64, (u32, bool)> = TableDefinition::new("trials");

const ACCEPTED_V1: ByJob = TableDefinition::new("accepted");
const FINISHED_V1: ByJob = TableDefinition::new("finished");

const KEY_VERSION: &str = "version";
const KEY_NEXT_JOB: &str = "next_job";
/// 1: the last process closed the journal. 0: it has it open, or was killed.
const KEY_CLEAN: &str = "clean";

/// A job that so many processes ended over may be the reason: from then on it is taken in hand alone, after all others.
pub const SUSPECT_AFTER: u32 = 2;

/// What was found where a journal should be.
pub(super) enum Found {
    /// A journal of this version, now.
    Ready,
    Newer {
        has: u64,
    },
    /// Not what a journal has.
    Wrong(String),
}

/// Makes the tables of an empty journal.
pub(super) fn initialise(database: &Database) -> Result<(), redb::Error> {
    let mut transaction = database.begin_write()?;
    transaction.set_two_phase_commit(true);
    make_tables(&transaction)?;
    transaction.open_table(META)?.insert(KEY_NEXT_JOB, 1)?;
    transaction.commit()?;
    Ok(())
}

fn make_tables(transaction: &WriteTransaction) -> Result<(), redb::Error> {
    for table in [JOBS, REQUESTS, RESULTS] {
        transaction.open_table(table)?;
    }
    transaction.open_table(META)?.insert(KEY_VERSION, VERSION)?;
    Ok(())
}

/// Looks at the version, makes the tables of an empty file, and migrates an older one.
pub(super) fn prepare(database: &Database) -> Result<Found, redb::Error> {
    let reading = database.begin_read()?;
    if reading.list_tables()?.next().is_none() {
        drop(reading);
        initialise(database)?;
        return Ok(Found::Ready);
    }
    let version = match reading.open_table(META) {
        Ok(meta) => meta.get(KEY_VERSION)?.map(|version| version.value()),
        Err(TableError::TableDoesNotExist(_)) => None,
        Err(error) => return Err(error.into()),
    };
    drop(reading);
    match version {
        Some(VERSION) => Ok(Found::Ready),
        Some(1) => match migrate_from_1(database)? {
            Ok(()) => Ok(Found::Ready),
            Err(what) => Ok(Found::Wrong(what)),
        },
        Some(has) if has > VERSION => Ok(Found::Newer { has }),
        Some(has) => Ok(Found::Wrong(format!("version {has} was never written"))),
        None => Ok(Found::Wrong("it is a database of another program".to_owned())),
    }
}

/// The first number that no job has had.
pub(super) fn next_job(database: &Database) -> Result<u64, redb::Error> {
    let reading = database.begin_read()?;
    let next = reading.open_table(META)?.get(KEY_NEXT_JOB)?.map_or(1, |next| next.value());
    Ok(next)
}

/// As [`next_job`], to be found after a restart.
pub(super) fn set_next_job(transaction: &WriteTransaction, next_job: u64) -> Result<(), redb::Error> {
    transaction.open_table(META)?.insert(KEY_NEXT_JOB, next_job)?;
    Ok(())
}

/// A process opens the journal: counts the end of the one before it against the jobs that it had in hand, unless it was
/// a clean one. Gives the jobs against which any count. From now on this process has in hand all that are not suspects;
/// those when [`Trials::take_in_hand`] says so.
pub(super) fn begin_process(database: &Database) -> Result<BTreeMap<JobId, u32>, redb::Error> {
    let mut transaction = database.begin_write()?;
    transaction.set_two_phase_commit(true);
    let mut counts = BTreeMap::new();
    {
        let mut meta = transaction.open_table(META)?;
        let ended_cleanly = meta.insert(KEY_CLEAN, 0)?.is_none_or(|clean| clean.value() != 0);
        let jobs = transaction.open_table(JOBS)?;
        let mut trials = transaction.open_table(TRIALS)?;
        for entry in jobs.iter()? {
            let job = entry?.0.value();
            // Without a row: accepted by the last process.
            let (mut count, was_in_hand) = trials.get(job)?.map_or((0, true), |row| row.value());
            count += u32::from(was_in_hand && !ended_cleanly);
            trials.insert(job, (count, count < SUSPECT_AFTER))?;
            if count > 0 {
                counts.insert(JobId(job), count);
            }
        }
    }
    transaction.commit()?;
    Ok(counts)
}

/// The next process is to know that this one closed the journal.
pub(super) fn end_process(database: &Database) -> Result<(), redb::Error> {
    let mut transaction = database.begin_write()?;
    transaction.set_two_phase_commit(true);
    transaction.open_table(META)?.insert(KEY_CLEAN, 1)?;
    transaction.commit()?;
    Ok(())
}

/// The rows of [`begin_process`], to change them.
pub(super) struct Trials<'a>(Table<'a, u64, (u32, bool)>);

impl<'a> Trials<'a> {
    pub fn open(transaction: &'a WriteTransaction) -> Result<Self, redb::Error> {
        Ok(Self(transaction.open_table(TRIALS)?))
    }

    /// A suspect is worked on from now on.
    pub fn take_in_hand(&mut self, job: JobId) -> Result<(), redb::Error> {
        let row = self.0.get(job.0)?.map(|row| row.value());
        if let Some((count, _)) = row {
            self.0.insert(job.0, (count, true))?;
        }
        Ok(())
    }

    /// It has ended.
    pub fn remove(&mut self, job: JobId) -> Result<(), redb::Error> {
        self.0.remove(job.0)?;
        Ok(())
    }
}

/// An accepted job of version 1.
#[derive(Deserialize)]
struct AcceptedV1 {
    /// Empty: nothing attaches to it.
    request_id: String,
    kind: u8,
    circuit: String,
    num_partitions: u32,
    digest: [u8; 32],
    priority: u8,
    accepted_unix_ms: u64,
    /// From acceptance.
    deadline_ms: Option<u64>,
    /// The wire's fields ([`OwnedFilecoinBody`]).
    request: ByteBuf,
}

/// A proof of version 1.
#[derive(Deserialize)]
struct FinishedV1 {
    request_id: String,
    kind: u8,
    circuit: String,
    digest: [u8; 32],
    priority: u8,
    accepted_unix_ms: u64,
    finished_unix_ms: u64,
    proof: ByteBuf,
}

/// `Ok(Err(_))`: a record cannot be read; nothing has changed then.
fn migrate_from_1(database: &Database) -> Result<Result<(), String>, redb::Error> {
    let mut transaction = database.begin_write()?;
    transaction.set_two_phase_commit(true);
    make_tables(&transaction)?;
    let moved = move_from_1(&transaction)?;
    if moved.is_ok() {
        transaction.commit()?;
        tracing::info!("the journal was migrated from version 1 to {VERSION}");
    } else {
        transaction.abort()?;
    }
    Ok(moved)
}

fn move_from_1(transaction: &WriteTransaction) -> Result<Result<(), String>, redb::Error> {
    let mut last_job = 0;
    for entry in transaction.open_table(ACCEPTED_V1)?.iter()? {
        let (job, bytes) = entry?;
        let job = JobId(job.value());
        let (record, request) = match accepted_from_1(job, bytes.value()) {
            Ok(moved) => moved,
            Err(what) => return Ok(Err(format!("accepted job {job}: {what}"))),
        };
        transaction.open_table(JOBS)?.insert(job.0, record.to_bytes().as_slice())?;
        transaction.open_table(REQUESTS)?.insert(job.0, request.as_ref())?;
        last_job = last_job.max(job.0);
    }
    for entry in transaction.open_table(FINISHED_V1)?.iter()? {
        let (job, bytes) = entry?;
        let job = JobId(job.value());
        let record = match finished_from_1(job, bytes.value()) {
            Ok(record) => record,
            Err(what) => return Ok(Err(format!("result of job {job}: {what}"))),
        };
        transaction.open_table(RESULTS)?.insert(job.0, record.to_bytes().as_slice())?;
        last_job = last_job.max(job.0);
    }
    for table in [ACCEPTED_V1, FINISHED_V1] {
        transaction.delete_table(table)?;
    }
    set_next_job(transaction, last_job + 1)?;
    Ok(Ok(()))
}

fn accepted_from_1(job: JobId, bytes: &[u8]) -> Result<(JobRecord, std::sync::Arc<[u8]>), String> {
    let old: AcceptedV1 = parse(bytes)?;
    let request = parse::<OwnedFilecoinBody>(&old.request)?.into_request()?;
    let request = encode_request(&Undecoded::Filecoin(Box::new(request)));
    let record = JobRecord {
        job,
        has_identity: !old.request_id.is_empty(),
        name_marks: 0,
        request_id: if old.request_id.is_empty() { format!("job-{job}") } else { old.request_id },
        kind: kind_of(old.kind)?,
        circuit: CircuitId::new(old.circuit),
        num_partitions: old.num_partitions,
        digest: RequestDigest(old.digest),
        priority: priority_of(old.priority)?,
        placement: Placement::Any,
        accepted_unix_ms: old.accepted_unix_ms,
        deadline_unix_ms: old.deadline_ms.map(|limit| old.accepted_unix_ms.saturating_add(limit)),
    };
    Ok((record, request.expect("a request that is at hand has bytes")))
}

fn finished_from_1(job: JobId, bytes: &[u8]) -> Result<ResultRecord, String> {
    let old: FinishedV1 = parse(bytes)?;
    let proof = old.proof.into_vec();
    let record = JobRecord {
        job,
        has_identity: !old.request_id.is_empty(),
        name_marks: 0,
        request_id: if old.request_id.is_empty() { format!("job-{job}") } else { old.request_id },
        kind: kind_of(old.kind)?,
        circuit: CircuitId::new(old.circuit),
        num_partitions: u32::try_from(proof.len() / PROOF_BYTES).map_err(|error| error.to_string())?,
        digest: RequestDigest(old.digest),
        priority: priority_of(old.priority)?,
        placement: Placement::Any,
        accepted_unix_ms: old.accepted_unix_ms,
        deadline_unix_ms: None,
    };
    let stored = StoredProof { proof, devices: Vec::new(), retries: 0, times_us: [0; 5] };
    Ok(ResultRecord { job: record, finished_unix_ms: old.finished_unix_ms, end: StoredEnd::Proved(stored) })
}
