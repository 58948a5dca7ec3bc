//! The journal itself: what is in it, and transactions that change it. It waits for the disk: never on an actor's
//! thread, but for simulations.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redb::{Database, ReadableDatabase, ReadableTable};

use super::medium::{FileId, Medium};
use super::record::{JobRecord, ResultRecord};
use super::request::decode_request;
use super::schema::{self, Found, Trials, JOBS, REQUESTS, RESULTS};
use crate::circuits::Undecoded;
use crate::error::{catch, JournalError};
use crate::ids::JobId;

/// Files of fewer bytes are not worth the writes.
const COMPACT_FROM_BYTES: u64 = 64 << 20;
/// A file is made smaller when no more than one byte in so many is used.
const COMPACT_WHEN_ONE_IN: u64 = 4;

/// How long results are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// So many at most, the newest. At least 1.
    pub count: usize,
    /// From their end. They go with the first write after that.
    pub age: Duration,
}

/// A change.
#[derive(Clone, Debug)]
pub enum Op {
    /// A job is accepted. `request`: as `encode_request` gives it.
    Accept { record: JobRecord, request: Arc<[u8]> },
    /// Somebody else waits for it too, for longer or more urgently.
    Update { record: JobRecord },
    /// A job of an earlier process that may have ended it is now worked on.
    TakeInHand { job: JobId },
    /// It has ended: with a proof, or with a reason that trying again does not change.
    Finish { record: ResultRecord },
    /// Nobody wants it any more.
    Forget { job: JobId },
    /// Nothing: to see whether the journal can be written again.
    Probe,
}

impl Op {
    pub fn job(&self) -> Option<JobId> {
        match self {
            Self::Accept { record, .. } | Self::Update { record } => Some(record.job),
            Self::Finish { record } => Some(record.job.job),
            Self::TakeInHand { job } | Self::Forget { job } => Some(*job),
            Self::Probe => None,
        }
    }

    /// It says that work has ended, which stays true if it could not be written. (A job that could not be written is
    /// refused.)
    fn is_end(&self) -> bool {
        matches!(self, Self::Finish { .. } | Self::Forget { .. })
    }

    /// Bytes that it writes, roughly.
    pub fn num_bytes(&self) -> usize {
        match self {
            Self::Accept { request, .. } => request.len() + 512,
            _ => 512,
        }
    }
}

/// What a journal held when it was opened.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    /// Jobs that have not ended, in the order in which they were accepted.
    pub jobs: Vec<JobRecord>,
    /// In the order in which they ended.
    pub results: Vec<ResultRecord>,
    /// Unfinished jobs that processes ended over without closing the journal, and how many did.
    pub process_ends: BTreeMap<JobId, u32>,
    /// The first number that no job has had.
    pub next_job: u64,
    /// Why it can be read alone.
    pub unwritable: Option<String>,
}

/// A journal that is open. One per medium.
#[derive(Debug)]
pub struct Store {
    retention: Retention,
    database: Arc<Shared>,
    index: ResultIndex,
    /// A write failed half-way: the index is to be read again.
    index_is_stale: bool,
    next_job: u64,
    /// Ends that could not be written yet.
    backlog: Vec<Op>,
}

/// The open database, which readers share. `None` after a failed write: it is opened anew with the next one.
#[derive(Debug)]
struct Shared {
    medium: Medium,
    /// The one that was opened first. No other is this journal, whatever its name.
    file: Option<FileId>,
    open: Mutex<Option<Arc<Database>>>,
}

/// Which results there are, by age.
#[derive(Debug, Default, PartialEq, Eq)]
struct ResultIndex {
    by_time: BTreeSet<(u64, JobId)>,
    time_of: HashMap<JobId, u64>,
}

impl ResultIndex {
    fn insert(&mut self, job: JobId, finished_unix_ms: u64) {
        self.remove(job);
        self.by_time.insert((finished_unix_ms, job));
        self.time_of.insert(job, finished_unix_ms);
    }

    fn remove(&mut self, job: JobId) {
        if let Some(time) = self.time_of.remove(&job) {
            self.by_time.remove(&(time, job));
        }
    }

    /// Takes out the oldest, if it is one too many or too old.
    fn pop_surplus(&mut self, retention: Retention, now_unix_ms: u64) -> Option<JobId> {
        let &(finished_unix_ms, job) = self.by_time.first()?;
        let age_ms = u128::from(now_unix_ms.saturating_sub(finished_unix_ms));
        if self.by_time.len() <= retention.count && age_ms <= retention.age.as_millis() {
            return None;
        }
        self.remove(job);
        Some(job)
    }
}

impl Store {
    /// Opens a journal, or makes a new one where there is none; migrates one of an older version.
    ///
    /// # Errors
    /// [`JournalError`]: used by another process, of a newer version, damaged, or out of reach. Nothing that it holds is
    /// removed then.
    pub fn open(medium: Medium, retention: Retention) -> Result<(Self, Contents), JournalError> {
        let path = medium.path();
        // The library checks what it reads, and still must not take an engine down over a damaged file.
        let opened = catch(|| open(&medium));
        let (database, contents) = opened.unwrap_or_else(|what| Err(damaged(&path, what)))?;
        let mut index = ResultIndex::default();
        for result in &contents.results {
            index.insert(result.job.job, result.finished_unix_ms);
        }
        let next_job = contents.next_job;
        let file = medium.file_id().map_err(|error| classify(&path, error.into()))?;
        let open = Mutex::new(Some(Arc::new(database)));
        let database = Arc::new(Shared { medium, file, open });
        let store = Self { retention, database, index, index_is_stale: false, next_job, backlog: Vec::new() };
        Ok((store, contents))
    }

    /// Reads requests of jobs, on any thread.
    pub fn reader(&self) -> Reader {
        Reader { database: Arc::clone(&self.database) }
    }

    /// Makes all changes, or none, and waits until they are on the disk. Gives the jobs whose results were let go.
    /// `now_unix_ms`: milliseconds since 1970.
    ///
    /// # Errors
    /// [`JournalError::Unwritable`]: nothing of it counts. What says that work has ended is written with the next
    /// change that can be, before it; the rest is dropped.
    pub fn commit(&mut self, ops: Vec<Op>, now_unix_ms: u64) -> Result<Vec<JobId>, JournalError> {
        self.backlog.extend(ops);
        if let Err(what) = self.database.check_place() {
            return Err(self.unwritten(what));
        }
        let ops = std::mem::take(&mut self.backlog);
        let written = catch(|| self.write(&ops, now_unix_ms));
        let what = match written {
            // Removed while it was written, it is nothing that the next process finds.
            Ok(Ok(surplus)) => match self.database.check_place() {
                Ok(()) => return Ok(surplus),
                Err(what) => {
                    self.backlog = ops;
                    return Err(self.unwritten(what));
                }
            },
            Ok(Err(error)) => error.to_string(),
            Err(what) => what,
        };
        // What the library holds may be half of the change. Opened anew it is what is on the disk.
        self.database.close();
        self.index_is_stale = true;
        self.backlog = ops;
        Err(self.unwritten(what))
    }

    /// What says that work has ended is kept for the next change.
    fn unwritten(&mut self, what: String) -> JournalError {
        self.backlog.retain(Op::is_end);
        JournalError::Unwritable { path: self.database.medium.path(), what }
    }

    fn write(&mut self, ops: &[Op], now_unix_ms: u64) -> Result<Vec<JobId>, redb::Error> {
        let database = self.database.get()?;
        if self.index_is_stale {
            self.index = read_index(&database)?;
            self.index_is_stale = false;
        }
        let mut transaction = database.begin_write()?;
        // A torn last write is then told from a whole one without trusting checksums alone.
        transaction.set_two_phase_commit(true);
        {
            let mut jobs = transaction.open_table(JOBS)?;
            let mut requests = transaction.open_table(REQUESTS)?;
            let mut results = transaction.open_table(RESULTS)?;
            let mut trials = Trials::open(&transaction)?;
            for op in ops {
                match op {
                    Op::Accept { record, request } => {
                        jobs.insert(record.job.0, record.to_bytes().as_slice())?;
                        requests.insert(record.job.0, request.as_ref())?;
                        self.next_job = self.next_job.max(record.job.0 + 1);
                    }
                    Op::Update { record } => {
                        if jobs.get(record.job.0)?.is_some() {
                            jobs.insert(record.job.0, record.to_bytes().as_slice())?;
                        }
                    }
                    Op::TakeInHand { job } => trials.take_in_hand(*job)?,
                    Op::Finish { record } => {
                        let job = record.job.job;
                        trials.remove(job)?;
                        jobs.remove(job.0)?;
                        requests.remove(job.0)?;
                        results.insert(job.0, record.to_bytes().as_slice())?;
                        self.index.insert(job, record.finished_unix_ms);
                    }
                    Op::Forget { job } => {
                        trials.remove(*job)?;
                        jobs.remove(job.0)?;
                        requests.remove(job.0)?;
                        results.remove(job.0)?;
                        self.index.remove(*job);
                    }
                    Op::Probe => {}
                }
            }
            let mut surplus = Vec::new();
            while let Some(job) = self.index.pop_surplus(self.retention, now_unix_ms) {
                results.remove(job.0)?;
                surplus.push(job);
            }
            drop((jobs, requests, results, trials));
            schema::set_next_job(&transaction, self.next_job)?;
            transaction.commit()?;
            Ok(surplus)
        }
    }
}

impl Drop for Store {
    /// A process that goes down with a panic has not closed its journal.
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        if !self.backlog.is_empty() && self.commit(Vec::new(), 0).is_err() {
            tracing::warn!(
                "what has ended could not be written to the journal: the next process does it again"
            );
        }
        let Ok(database) = self.database.get() else { return };
        let closed = catch(|| schema::end_process(&database));
        if !matches!(closed, Ok(Ok(()))) {
            tracing::warn!("the journal could not be closed: its unfinished jobs count as cut off");
        }
    }
}

impl Shared {
    fn get(&self) -> Result<Arc<Database>, redb::Error> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(database) = &*open {
            return Ok(Arc::clone(database));
        }
        self.check_place().map_err(std::io::Error::other)?;
        // Not made anew: that would empty a journal whose file was moved away under us.
        let database = Arc::new(self.medium.open(false)?);
        *open = Some(Arc::clone(&database));
        Ok(database)
    }

    /// What is written to a file without its name is lost when this process ends. The file stays open: where its name is given
    /// back to it, it is the journal again.
    fn check_place(&self) -> Result<(), String> {
        match self.medium.file_id() {
            Ok(now) if now == self.file => Ok(()),
            Ok(_) => Err("another file has been put in its place".to_owned()),
            Err(error) => Err(format!("its file is not there any more: {error}")),
        }
    }

    fn close(&self) {
        let closed = self.open.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Closing writes, and may find the disk as unusable as the write before it.
        let dropped = catch(|| drop(closed));
        if dropped.is_err() {
            tracing::error!(path = %self.medium.path().display(), "closing the journal panicked");
        }
    }
}

/// Reads requests of accepted jobs.
#[derive(Clone, Debug)]
pub struct Reader {
    database: Arc<Shared>,
}

impl Reader {
    /// The journal's file, or the name of what is in its place.
    pub fn path(&self) -> PathBuf {
        self.database.medium.path()
    }

    /// The inputs of an unfinished job.
    ///
    /// # Errors
    /// [`JournalError::Damaged`] if they are not there as they were written, [`JournalError::Unreadable`] if that cannot
    /// be told now.
    pub fn request(&self, job: JobId) -> Result<Undecoded, JournalError> {
        let path = self.database.medium.path();
        let read = catch(|| -> Result<_, redb::Error> {
            let database = self.database.get()?;
            let reading = database.begin_read()?;
            let found = reading.open_table(REQUESTS)?.get(job.0)?;
            Ok(found.map(|bytes| decode_request(bytes.value())))
        });
        let what = match read {
            Ok(Ok(Some(Ok(request)))) => return Ok(request),
            Ok(Ok(Some(Err(what)))) => what,
            Ok(Ok(None)) => "it is missing".to_owned(),
            Ok(Err(redb::Error::Corrupted(what))) => what,
            Ok(Err(error)) => return Err(JournalError::Unreadable { path, what: error.to_string() }),
            Err(what) => what,
        };
        Err(damaged(&path, format!("request of job {job}: {what}")))
    }
}

fn open(medium: &Medium) -> Result<(Database, Contents), JournalError> {
    let path = medium.path();
    let classify = |error: redb::Error| classify(&path, error);
    let database = medium.open(true).map_err(classify)?;
    match schema::prepare(&database).map_err(classify)? {
        Found::Ready => {}
        Found::Newer { has } => return Err(JournalError::Newer { path, has, knows: schema::VERSION }),
        Found::Wrong(what) => return Err(damaged(&path, what)),
    }
    let mut contents = read_contents(&database).map_err(classify)?.map_err(|what| damaged(&path, what))?;
    let database = compacted(database, medium).map_err(classify)?;
    match schema::begin_process(&database) {
        Ok(counts) => {
            contents.process_ends = counts;
            Ok((database, contents))
        }
        // A full disk, perhaps: what is there can be read all the same.
        Err(error) => {
            tracing::warn!(%error, "the journal cannot be written");
            contents.unwritable = Some(error.to_string());
            drop(database);
            Ok((medium.open(false).map_err(classify)?, contents))
        }
    }
}

/// A file that once held much and now holds little gives the room back. Only when it is opened: nobody waits for it then.
fn compacted(mut database: Database, medium: &Medium) -> Result<Database, redb::Error> {
    let Medium::File(path) = medium else { return Ok(database) };
    let file_bytes = std::fs::metadata(path)?.len();
    if file_bytes < COMPACT_FROM_BYTES {
        return Ok(database);
    }
    let transaction = database.begin_write()?;
    let stats = transaction.stats()?;
    transaction.abort()?;
    // What the library calls fragmented are free pages too.
    let used_bytes = stats.stored_bytes() + stats.metadata_bytes();
    if used_bytes > file_bytes / COMPACT_WHEN_ONE_IN {
        return Ok(database);
    }
    match database.compact() {
        Ok(_) => {
            let left_bytes = std::fs::metadata(path)?.len();
            tracing::info!(file_bytes, left_bytes, "the journal's file was made smaller");
            Ok(database)
        }
        // It needs room to move things, and is as good as it was.
        Err(error) => {
            tracing::warn!(%error, "the journal's file cannot be made smaller");
            drop(database);
            Ok(medium.open(false)?)
        }
    }
}

fn read_contents(database: &Database) -> Result<Result<Contents, String>, redb::Error> {
    let mut contents = Contents { next_job: schema::next_job(database)?, ..Contents::default() };
    let reading = database.begin_read()?;
    for entry in reading.open_table(JOBS)?.iter()? {
        let (job, bytes) = entry?;
        let job = JobId(job.value());
        match JobRecord::from_bytes(job, bytes.value()) {
            Ok(record) => contents.jobs.push(record),
            Err(what) => return Ok(Err(format!("record of job {job}: {what}"))),
        }
    }
    for entry in reading.open_table(RESULTS)?.iter()? {
        let (job, bytes) = entry?;
        let job = JobId(job.value());
        match ResultRecord::from_bytes(job, bytes.value()) {
            Ok(record) => contents.results.push(record),
            Err(what) => return Ok(Err(format!("result of job {job}: {what}"))),
        }
    }
    contents.results.sort_by_key(|result| (result.finished_unix_ms, result.job.job));
    Ok(Ok(contents))
}

/// After a failed write: what of it counts is what is on the disk. Results that cannot be read are left alone.
fn read_index(database: &Database) -> Result<ResultIndex, redb::Error> {
    let mut index = ResultIndex::default();
    for entry in database.begin_read()?.open_table(RESULTS)?.iter()? {
        let (job, bytes) = entry?;
        let job = JobId(job.value());
        if let Ok(record) = ResultRecord::from_bytes(job, bytes.value()) {
            index.insert(job, record.finished_unix_ms);
        }
    }
    Ok(index)
}

fn damaged(path: &std::path::Path, what: impl Into<String>) -> JournalError {
    JournalError::Damaged { path: path.to_owned(), what: what.into() }
}

/// Why a journal did not open, as whoever has to do something about it needs to know.
fn classify(path: &std::path::Path, error: redb::Error) -> JournalError {
    use std::io::ErrorKind;
    let path: PathBuf = path.to_owned();
    match error {
        redb::Error::DatabaseAlreadyOpen => JournalError::InUse { path },
        // These two say that the bytes are wrong, not that they cannot be had.
        redb::Error::Io(error)
            if !matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof) =>
        {
            JournalError::Unreachable { path, what: error.to_string() }
        }
        other => JournalError::Damaged { path, what: other.to_string() },
    }
}
