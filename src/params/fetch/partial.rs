//! The part of a file that has come, and its digest so far.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::error::ParamsError;
use crate::params::{partial_path, PublishedDigest, PublishedFile};

const CHUNK_BYTES: usize = 1 << 20;

/// `.NAME.partial`, locked for as long as this lives, so that two processes never write one file. The lock is the
/// file's own and ends with the process: there is none to be left behind.
pub struct PartialFile {
    path: PathBuf,
    final_path: PathBuf,
    wanted: PublishedDigest,
    file: File,
    digest: blake2b_simd::State,
    len: u64,
}

impl PartialFile {
    /// Opens or makes it, and digests what an earlier run left. `progress` gets the bytes digested, and says whether to
    /// go on. `None`: the file has come under its final name meanwhile.
    ///
    /// # Errors
    /// [`ParamsError::Busy`], [`ParamsError::Io`], [`ParamsError::Stopped`].
    pub fn open(
        dir: &Path,
        file: &PublishedFile,
        progress: &dyn Fn(u64) -> bool,
    ) -> Result<Option<Self>, ParamsError> {
        let path = partial_path(dir, &file.name);
        let final_path = dir.join(&file.name);
        let opened = open_locked(&path)?;
        let is_same =
            |metadata: std::fs::Metadata| opened.metadata().is_ok_and(|own| own.ino() == metadata.ino());
        if !std::fs::symlink_metadata(&path).is_ok_and(is_same) {
            // Renamed between opening and locking, by the process that had the lock.
            return Ok(None);
        }
        let digest = blake2b_simd::State::new();
        let mut partial = Self { path, final_path, wanted: file.digest, file: opened, digest, len: 0 };
        partial.digest_existing(progress)?;
        Ok(Some(partial))
    }

    fn digest_existing(&mut self, progress: &dyn Fn(u64) -> bool) -> Result<(), ParamsError> {
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let read = self.file.read(&mut chunk).map_err(|error| self.refused(error))?;
            if read == 0 {
                return Ok(());
            }
            self.digest.update(&chunk[..read]);
            self.len += read as u64;
            if !progress(self.len) {
                return Err(ParamsError::Stopped);
            }
        }
    }

    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether what is there is the whole file.
    pub fn is_complete(&self) -> bool {
        PublishedDigest::of(&self.digest.finalize()) == self.wanted
    }

    /// Adds what came next.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), ParamsError> {
        self.file.write_all(bytes).map_err(|error| self.refused(error))?;
        self.digest.update(bytes);
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// Throws everything away.
    pub fn restart(&mut self) -> Result<(), ParamsError> {
        let emptied = self.file.set_len(0).and_then(|()| self.file.seek(SeekFrom::Start(0)));
        emptied.map_err(|error| self.refused(error))?;
        self.digest = blake2b_simd::State::new();
        self.len = 0;
        Ok(())
    }

    /// Gives the complete file its name. It is on the disk before it has it.
    pub fn publish(self) -> Result<PathBuf, ParamsError> {
        assert!(self.is_complete(), "only the right bytes get the name");
        let publish = || {
            self.file.sync_all()?;
            std::fs::rename(&self.path, &self.final_path)?;
            let dir = self.final_path.parent().filter(|dir| !dir.as_os_str().is_empty());
            File::open(dir.unwrap_or(Path::new(".")))?.sync_all()
        };
        publish().map_err(|error| self.refused(error))?;
        Ok(self.final_path)
    }

    fn refused(&self, source: std::io::Error) -> ParamsError {
        ParamsError::Io { path: self.path.clone(), source }
    }
}

/// A link is not followed: where everybody may write, it could lead anywhere.
fn open_locked(path: &Path) -> Result<File, ParamsError> {
    let refused = |source| ParamsError::Io { path: path.to_owned(), source };
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o644);
    let file = options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed()).open(path).map_err(refused)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(ParamsError::Busy { path: path.to_owned() }),
        Err(TryLockError::Error(error)) => Err(refused(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn published(bytes: &[u8]) -> PublishedFile {
        let digest = PublishedDigest::of(&blake2b_simd::blake2b(bytes));
        PublishedFile { name: "v28-a.vk".to_owned(), cid: "Qm".to_owned(), digest }
    }

    fn open(dir: &Path, file: &PublishedFile) -> Result<Option<PartialFile>, ParamsError> {
        PartialFile::open(dir, file, &|_| true)
    }

    #[test]
    fn it_goes_on_where_it_was_and_gets_its_name_when_whole() {
        let dir = tempfile::tempdir().unwrap();
        let file = published(b"hello world");
        let mut partial = open(dir.path(), &file).unwrap().unwrap();
        partial.append(b"hello ").unwrap();
        assert!(!partial.is_complete());
        assert!(matches!(open(dir.path(), &file), Err(ParamsError::Busy { .. })), "it is locked");
        drop(partial);
        let mut partial = open(dir.path(), &file).unwrap().unwrap();
        assert_eq!(partial.len(), 6);
        partial.append(b"world").unwrap();
        let path = partial.publish().unwrap();
        assert_eq!(std::fs::read(path).unwrap(), b"hello world");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn wrong_bytes_are_thrown_away() {
        let dir = tempfile::tempdir().unwrap();
        let mut partial = open(dir.path(), &published(b"right")).unwrap().unwrap();
        partial.append(b"wrong, and longer").unwrap();
        partial.restart().unwrap();
        partial.append(b"right").unwrap();
        assert_eq!(std::fs::read(partial.publish().unwrap()).unwrap(), b"right");
    }

    #[test]
    fn a_link_in_its_place_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("target");
        std::fs::write(&target, "keep").unwrap();
        std::os::unix::fs::symlink(&target, partial_path(dir.path(), "v28-a.vk")).unwrap();
        assert!(matches!(open(dir.path(), &published(b"x")), Err(ParamsError::Io { .. })));
        assert_eq!(std::fs::read(&target).unwrap(), b"keep");
    }
}
