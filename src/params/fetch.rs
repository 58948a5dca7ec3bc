//! Fetching parameter files: in parallel, from several mirrors in turn, going on where an earlier run was cut off.
//!
//! A file is written to `.NAME.partial`, digested as it comes, and renamed to `NAME` once its digest is the
//! manifest's: there is never anything else under its final name. Whatever ends a run, a kill included, the next one
//! digests what is in the partial file and asks the mirror for the rest (`Range`). Nothing a mirror says is believed:
//! neither lengths nor ranges; the digest alone decides, and bytes that turn out wrong are thrown away.
//!
//! Each thread takes the next file and blocks in its reads, which end after [`FetchOptions::stall_limit`].

mod download;
mod mirror;
mod pace;
mod partial;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;
use std::time::Duration;

use crossbeam_channel::{bounded, Receiver, RecvTimeoutError, Sender, TryRecvError};

use super::{digest_file, VerifiedFiles, Wanted};
use crate::error::ParamsError;

pub use mirror::{Authorities, Mirror};
use partial::PartialFile;

/// Filecoin's own gateway.
pub const DEFAULT_GATEWAY: &str = "https://proofs.filecoin.io";

/// How files are fetched.
#[derive(Clone, Debug)]
pub struct FetchOptions {
    /// Folder that the files come to. It must exist.
    pub dir: PathBuf,
    /// Files at a time; 1 at least.
    pub num_parallel: usize,
    /// A mirror that sends nothing for so long, or less than a KiB a second over so long, is given up for the next one.
    pub stall_limit: Duration,
    /// Rounds over all mirrors that may end without a new byte, before a file is given up.
    pub max_fruitless_rounds: u32,
    /// Wait after a round; it doubles with each fruitless one, up to [`FetchOptions::wait_max`].
    pub wait: Duration,
    /// The longest wait; a mirror that asks for a longer one (`Retry-After`) does not get it.
    pub wait_max: Duration,
    /// Replace files under the final names whose digest is another.
    pub replace_wrong: bool,
    /// Files that were found right before are not read again.
    pub verified: Option<VerifiedFiles>,
}

impl FetchOptions {
    pub fn new(dir: PathBuf) -> Self {
        Self {
            dir,
            num_parallel: 4,
            stall_limit: Duration::from_secs(30),
            max_fruitless_rounds: 8,
            wait: Duration::from_secs(1),
            wait_max: Duration::from_secs(60),
            replace_wrong: false,
            verified: None,
        }
    }
}

/// What a file's bytes are being used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// A file that is there already, or the part of one, is digested.
    Digesting,
    Fetching,
}

/// Hears what happens, from any thread.
pub trait Watcher: Sync {
    /// `done` bytes of file `index`; `total` is what is known of its length.
    fn progress(&self, index: usize, phase: Phase, done: u64, total: Option<u64>);
    /// A mirror failed; the next one, or the next round, follows.
    fn setback(&self, index: usize, reason: &str);
    /// The file's end.
    fn ended(&self, index: usize, outcome: &Result<Fetched, ParamsError>);
}

/// A file that is there now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    pub path: PathBuf,
    pub num_bytes: u64,
    /// Bytes that came in this run: 0 if it was there already.
    pub fetched_bytes: u64,
    /// Bytes that an earlier run had left.
    pub resumed_bytes: u64,
    /// Where the last bytes came from.
    pub mirror: Option<String>,
}

/// Ends fetches when it is dropped.
pub struct StopHandle {
    _sender: Sender<()>,
}

/// Whether to go on. Clones see the same.
#[derive(Clone)]
pub struct Stop {
    receiver: Receiver<()>,
}

impl Stop {
    pub fn new() -> (StopHandle, Self) {
        let (sender, receiver) = bounded(0);
        (StopHandle { _sender: sender }, Self { receiver })
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.receiver.try_recv() == Err(TryRecvError::Disconnected)
    }

    fn check(&self) -> Result<(), ParamsError> {
        if self.is_wanted() {
            return Err(ParamsError::Stopped);
        }
        Ok(())
    }

    /// Waits, unless a stop is wanted before the time is over.
    fn wait(&self, time: Duration) -> Result<(), ParamsError> {
        match self.receiver.recv_timeout(time) {
            Err(RecvTimeoutError::Timeout) => Ok(()),
            _ => Err(ParamsError::Stopped),
        }
    }
}

/// Fetches the files, as many at a time as the options say, and gives each one's end in the same order. One file's
/// failure does not keep the others from coming. Blocks until all have ended.
///
/// # Panics
/// If there is no mirror.
pub fn fetch(
    wanted: &[Wanted],
    mirrors: &[Mirror],
    options: &FetchOptions,
    stop: &Stop,
    watcher: &dyn Watcher,
) -> Vec<Result<Fetched, ParamsError>> {
    assert!(!mirrors.is_empty(), "files are fetched from somewhere");
    let next = AtomicUsize::new(0);
    let outcomes: Vec<Mutex<Option<Result<Fetched, ParamsError>>>> =
        wanted.iter().map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        for _ in 0..options.num_parallel.clamp(1, wanted.len().max(1)) {
            scope.spawn(|| loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(file) = wanted.get(index) else { return };
                let one = OneFile { index, wanted: file, mirrors, options, stop, watcher };
                let outcome = one.run();
                watcher.ended(index, &outcome);
                *outcomes[index].lock().expect("no thread panics with the lock") = Some(outcome);
            });
        }
    });
    let ended = |outcome: Mutex<Option<_>>| {
        let outcome = outcome.into_inner().expect("no thread panics with the lock");
        outcome.expect("every file is taken by a thread")
    };
    outcomes.into_iter().map(ended).collect()
}

/// One file on its way.
struct OneFile<'a> {
    index: usize,
    wanted: &'a Wanted,
    mirrors: &'a [Mirror],
    options: &'a FetchOptions,
    stop: &'a Stop,
    watcher: &'a dyn Watcher,
}

impl OneFile<'_> {
    fn run(&self) -> Result<Fetched, ParamsError> {
        self.stop.check()?;
        if let Some(present) = self.present()? {
            return Ok(present);
        }
        let digesting = |done| self.report_digesting(done, self.wanted.expected_bytes);
        let dir = &self.options.dir;
        let Some(partial) = PartialFile::open(dir, &self.wanted.file, &digesting)? else {
            // The process that held the lock finished the file.
            return self.present()?.ok_or_else(|| ParamsError::Busy { path: self.path() });
        };
        let fetched = self.download(partial)?;
        self.remember(&fetched.path);
        Ok(fetched)
    }

    /// The file, if it is there. Another one under its name is an error, or as good as none.
    fn present(&self) -> Result<Option<Fetched>, ParamsError> {
        let path = self.path();
        let refused = |source| ParamsError::Io { path: path.clone(), source };
        if !path.try_exists().map_err(refused)? {
            return Ok(None);
        }
        let needs = self.wanted.file.digest;
        let num_bytes = std::fs::metadata(&path).map_err(refused)?.len();
        let is_verified = self.options.verified.as_ref().is_some_and(|verified| verified.has(&path, needs));
        if !is_verified {
            let digests = digest_file(&path, &|done| self.report_digesting(done, Some(num_bytes)))?;
            if digests.published != needs {
                if self.options.replace_wrong {
                    return Ok(None);
                }
                let has = digests.published.to_string();
                return Err(ParamsError::Wrong { path, has, needs: needs.to_string() });
            }
            self.remember(&path);
        }
        Ok(Some(Fetched { path, num_bytes, fetched_bytes: 0, resumed_bytes: 0, mirror: None }))
    }

    fn path(&self) -> PathBuf {
        self.options.dir.join(&self.wanted.file.name)
    }

    fn remember(&self, path: &Path) {
        let Some(verified) = &self.options.verified else { return };
        if let Err(error) = verified.add(path, self.wanted.file.digest) {
            tracing::debug!("{}: its digest will be taken again: {error}", path.display());
        }
    }

    /// Reports how much of what is there was read; whether to go on.
    fn report_digesting(&self, done: u64, total: Option<u64>) -> bool {
        self.watcher.progress(self.index, Phase::Digesting, done, total);
        !self.stop.is_wanted()
    }
}

/// What is under a wanted file's names before anything is fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileState {
    Missing,
    /// Part of it: so many bytes.
    Partial(u64),
    /// Something of this length is under its name; whether it is right only its digest can say.
    Present(u64),
}

/// Looks at the folder; reads nothing.
///
/// # Errors
/// [`ParamsError::Io`] if the folder cannot be looked into.
pub fn state_of(dir: &Path, wanted: &Wanted) -> Result<FileState, ParamsError> {
    let length = |path: PathBuf| match std::fs::metadata(&path) {
        Ok(metadata) => Ok(Some(metadata.len())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(ParamsError::Io { path, source }),
    };
    if let Some(bytes) = length(dir.join(&wanted.file.name))? {
        return Ok(FileState::Present(bytes));
    }
    let partial = length(super::partial_path(dir, &wanted.file.name))?;
    Ok(partial.map_or(FileState::Missing, FileState::Partial))
}

/// Fails if the file system of `dir` has less room than what is missing of the files, as far as lengths are known.
///
/// # Errors
/// [`ParamsError::Space`] with both numbers; [`ParamsError::Io`].
pub fn check_space(dir: &Path, wanted: &[Wanted]) -> Result<(), ParamsError> {
    let mut needs_bytes = 0;
    for wanted in wanted {
        let expected = wanted.expected_bytes.unwrap_or(0);
        needs_bytes += match state_of(dir, wanted)? {
            FileState::Missing => expected,
            FileState::Partial(bytes) => expected.saturating_sub(bytes),
            FileState::Present(_) => 0,
        };
    }
    let free_bytes = free_bytes(dir)?;
    if needs_bytes > free_bytes {
        return Err(ParamsError::Space { dir: dir.to_owned(), needs_bytes, free_bytes });
    }
    Ok(())
}

fn free_bytes(dir: &Path) -> Result<u64, ParamsError> {
    let refused = |errno: rustix::io::Errno| ParamsError::Io { path: dir.to_owned(), source: errno.into() };
    let stat = rustix::fs::statvfs(dir).map_err(refused)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}
