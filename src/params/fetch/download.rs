//! One file from several mirrors in turn, until its digest is right.

use std::io::Read;
use std::time::{Duration, Instant};

use super::mirror::{Mirror, Opened, Refusal};
use super::pace::Pace;
use super::partial::PartialFile;
use super::{free_bytes, Fetched, OneFile, Phase};
use crate::error::ParamsError;

const CHUNK_BYTES: usize = 256 << 10;
/// A mirror that is slower than this over the stall limit is as good as one that stalls.
const BYTES_PER_S_MIN: u64 = 1024;
/// A file may come out so many times as long as it is expected to, before what comes is surely no parameter file.
const LENGTH_FACTOR_MAX: u64 = 2;

/// Why one attempt ended without the whole file.
enum Setback {
    Mirror(Refusal),
    /// Not the mirror's doing: the disk is full, or a stop is wanted.
    Fatal(ParamsError),
}

impl From<Refusal> for Setback {
    fn from(refusal: Refusal) -> Self {
        Self::Mirror(refusal)
    }
}

impl From<ParamsError> for Setback {
    fn from(error: ParamsError) -> Self {
        Self::Fatal(error)
    }
}

/// Where the bytes of the partial file came from, as far as it matters for who is to blame if they are wrong.
#[derive(Default)]
struct Origin {
    /// Mirrors that gave bytes since the file was empty.
    mirrors: Vec<usize>,
    /// An earlier run left some.
    is_inherited: bool,
}

impl Origin {
    fn add(&mut self, mirror: usize) {
        if !self.mirrors.contains(&mirror) {
            self.mirrors.push(mirror);
        }
    }

    fn is_only(&self, mirror: usize) -> bool {
        !self.is_inherited && self.mirrors == [mirror]
    }
}

/// One file's state between attempts.
struct Course {
    partial: PartialFile,
    origin: Origin,
    /// Mirrors that are still asked.
    candidates: Vec<usize>,
    /// What was said last by each mirror, by index.
    reasons: Vec<Option<String>>,
    /// A mirror's certificate was not trusted.
    has_untrusted: bool,
    /// How often a file was wrong whose last bytes it gave, by mirror.
    num_wrong: Vec<u32>,
    fetched_bytes: u64,
}

impl OneFile<'_> {
    /// Fetches what is missing.
    pub(super) fn download(&self, partial: PartialFile) -> Result<Fetched, ParamsError> {
        let resumed_bytes = partial.len();
        let mut course = Course {
            origin: Origin { is_inherited: resumed_bytes > 0, ..Origin::default() },
            partial,
            candidates: (0..self.mirrors.len()).collect(),
            reasons: vec![None; self.mirrors.len()],
            has_untrusted: false,
            num_wrong: vec![0; self.mirrors.len()],
            fetched_bytes: 0,
        };
        let options = self.options;
        let mut pace = Pace::new(options.wait, options.wait_max, options.max_fruitless_rounds);
        let mut last_mirror = None;
        while !course.partial.is_complete() {
            let before = course.fetched_bytes;
            let mut asked = None;
            for mirror in course.candidates.clone() {
                self.stop.check()?;
                last_mirror = Some(mirror);
                asked = asked.max(self.attempt(mirror, &mut course)?);
                if course.partial.is_complete() {
                    break;
                }
            }
            if course.partial.is_complete() {
                break;
            }
            if course.candidates.is_empty() {
                return Err(self.unavailable(&course));
            }
            match pace.after_round(course.fetched_bytes > before, asked) {
                Some(wait) => self.stop.wait(wait)?,
                None => return Err(self.unavailable(&course)),
            }
        }
        let num_bytes = course.partial.len();
        let path = course.partial.publish()?;
        let mirror = last_mirror.map(|index| self.mirrors[index].to_string());
        Ok(Fetched { path, num_bytes, fetched_bytes: course.fetched_bytes, resumed_bytes, mirror })
    }

    /// One try at one mirror; how long it asked to be left alone. What is wrong with the mirror goes into the course.
    fn attempt(&self, index: usize, course: &mut Course) -> Result<Option<Duration>, ParamsError> {
        let mirror = &self.mirrors[index];
        let refusal = match self.copy(index, mirror, course) {
            Ok(()) => return Ok(None),
            Err(Setback::Fatal(error)) => return Err(error),
            Err(Setback::Mirror(refusal)) => refusal,
        };
        let (reason, asked) = match refusal {
            Refusal::Passing(reason, asked) => (reason, asked),
            Refusal::Gone(reason) => {
                course.candidates.retain(|candidate| *candidate != index);
                (reason, None)
            }
            Refusal::Untrusted(reason) => {
                course.has_untrusted = true;
                course.candidates.retain(|candidate| *candidate != index);
                (reason, None)
            }
            Refusal::Wrong(reason) => {
                // Once it may be another's fault whose bytes came before.
                course.num_wrong[index] += 1;
                if course.origin.is_only(index) || course.num_wrong[index] > 1 {
                    course.candidates.retain(|candidate| *candidate != index);
                }
                // Who gave the wrong part of it is not known: all of it comes anew, from one mirror if it goes well.
                course.partial.restart()?;
                course.origin = Origin::default();
                (reason, None)
            }
        };
        let reason = format!("{mirror}: {reason}");
        self.watcher.setback(self.index, &reason);
        course.reasons[index] = Some(reason);
        Ok(asked)
    }

    fn copy(&self, index: usize, mirror: &Mirror, course: &mut Course) -> Result<(), Setback> {
        let mut opened = mirror.open(&self.wanted.file, course.partial.len())?;
        self.check_length(&opened, course)?;
        let stall_limit = self.options.stall_limit;
        let mut window = (Instant::now(), 0u64);
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut position = opened.offset;
        loop {
            self.stop.check()?;
            let read = match opened.reader.read(&mut chunk) {
                Ok(read) => read,
                Err(error) => {
                    let reason = format!("broke off after {position} B: {error}");
                    return Err(Refusal::Passing(reason, None).into());
                }
            };
            if read == 0 {
                return Err(self.ended_early(&opened, position));
            }
            position += read as u64;
            // A mirror that ignores ranges sends again what is there.
            let new = position.saturating_sub(course.partial.len()).min(read as u64) as usize;
            if new > 0 {
                course.origin.add(index);
                course.partial.append(&chunk[read - new..read])?;
                course.fetched_bytes += new as u64;
            }
            if course.partial.len() > self.bytes_max() {
                return Err(Refusal::Wrong(format!("sends more than {} B", self.bytes_max())).into());
            }
            let total = opened.total_bytes.or(self.wanted.expected_bytes);
            self.watcher.progress(self.index, Phase::Fetching, course.partial.len(), total);
            // Whatever was said of the length: some microseconds tell.
            if course.partial.is_complete() {
                return Ok(());
            }
            window.1 += read as u64;
            if window.0.elapsed() >= stall_limit {
                if window.1 < BYTES_PER_S_MIN.saturating_mul(stall_limit.as_secs()) {
                    return Err(Refusal::Passing("sends less than a KiB a second".to_owned(), None).into());
                }
                window = (Instant::now(), 0);
            }
        }
    }

    /// Of a body that is over while the file is not complete.
    fn ended_early(&self, opened: &Opened, position: u64) -> Setback {
        match opened.total_bytes {
            Some(total) if position < total => {
                Refusal::Passing(format!("ended after {position} of {total} B"), None).into()
            }
            _ => Refusal::Wrong(format!("has another file: {position} B of another digest")).into(),
        }
    }

    /// What the mirror says of the length, against what is known of it and what there is room for.
    fn check_length(&self, opened: &Opened, course: &Course) -> Result<(), Setback> {
        let Some(total) = opened.total_bytes else { return Ok(()) };
        if total < course.partial.len() {
            let reason = format!("has {total} B, and {} B have come", course.partial.len());
            return Err(Refusal::Wrong(reason).into());
        }
        if total > self.bytes_max() {
            let reason = format!("has {total} B, and no more than {} B are expected", self.bytes_max());
            return Err(Refusal::Wrong(reason).into());
        }
        let dir = &self.options.dir;
        let (needs_bytes, free_bytes) = (total - course.partial.len(), free_bytes(dir)?);
        if needs_bytes > free_bytes {
            return Err(ParamsError::Space { dir: dir.clone(), needs_bytes, free_bytes }.into());
        }
        Ok(())
    }

    fn bytes_max(&self) -> u64 {
        self.wanted.expected_bytes.map_or(u64::MAX, |bytes| bytes.saturating_mul(LENGTH_FACTOR_MAX))
    }

    fn unavailable(&self, course: &Course) -> ParamsError {
        let reasons = course.reasons.iter().flatten().cloned().collect();
        let has_untrusted = course.has_untrusted;
        ParamsError::Unavailable { file: self.wanted.file.name.clone(), reasons, has_untrusted }
    }
}
