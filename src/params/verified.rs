//! Which files were read and found right, so that a start does not read eighty gigabytes again.
//!
//! A record is named after the file's device and inode, and is believed for the same inode, size, modification *and*
//! change time. The change time is set by the system at every write and rename, and no program can set it back.

use std::fs::Metadata;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::PublishedDigest;

/// The folder of such records.
#[derive(Clone, Debug)]
pub struct VerifiedFiles {
    dir: PathBuf,
}

#[derive(PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    device: u64,
    inode: u64,
    size_bytes: u64,
    modified_s: i64,
    modified_ns: i64,
    changed_s: i64,
    changed_ns: i64,
    blake2b_first_16: String,
}

impl Record {
    fn new(metadata: &Metadata, digest: PublishedDigest) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size_bytes: metadata.size(),
            modified_s: metadata.mtime(),
            modified_ns: metadata.mtime_nsec(),
            changed_s: metadata.ctime(),
            changed_ns: metadata.ctime_nsec(),
            blake2b_first_16: digest.to_string(),
        }
    }

    fn path(&self, dir: &Path) -> PathBuf {
        dir.join(format!("params-{:x}-{:x}.json", self.device, self.inode))
    }
}

impl VerifiedFiles {
    /// Records in `dir`, which is made with the first.
    pub fn in_dir(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// Whether the file was found to have this digest, and is as it was then. What cannot be read is no record.
    pub fn has(&self, file: &Path, digest: PublishedDigest) -> bool {
        let Ok(metadata) = std::fs::metadata(file) else { return false };
        let record = Record::new(&metadata, digest);
        let stored = std::fs::read(record.path(&self.dir)).ok();
        stored.and_then(|json| serde_json::from_slice::<Record>(&json).ok()).is_some_and(|it| it == record)
    }

    /// Records that the file was read and has this digest.
    ///
    /// # Errors
    /// The system's; a record that is not kept costs another reading and nothing else.
    pub fn add(&self, file: &Path, digest: PublishedDigest) -> std::io::Result<()> {
        let record = Record::new(&std::fs::metadata(file)?, digest);
        std::fs::create_dir_all(&self.dir)?;
        let mut temporary = tempfile::NamedTempFile::new_in(&self.dir)?;
        temporary.write_all(&serde_json::to_vec_pretty(&record)?)?;
        temporary.persist(record.path(&self.dir))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_touched_is_verified_no_more() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "abc").unwrap();
        let digest = PublishedDigest::from_hex("ba80a53f981c4d0d6a2797b69f12f6e9").unwrap();
        let other = PublishedDigest::from_hex("00000000000000000000000000000000").unwrap();
        let verified = VerifiedFiles::in_dir(dir.path().join("records"));
        assert!(!verified.has(&file, digest));
        verified.add(&file, digest).unwrap();
        assert!(verified.has(&file, digest) && !verified.has(&file, other));
        // The same bytes, size and modification time: the change time tells.
        let modified = std::fs::metadata(&file).unwrap().modified().unwrap();
        let before = std::fs::metadata(&file).unwrap();
        loop {
            std::fs::write(&file, "abd").unwrap();
            std::fs::File::options().write(true).open(&file).unwrap().set_modified(modified).unwrap();
            let after = std::fs::metadata(&file).unwrap();
            // The system's clock for files ticks every few milliseconds.
            if (after.ctime(), after.ctime_nsec()) != (before.ctime(), before.ctime_nsec()) {
                break;
            }
        }
        assert!(!verified.has(&file, digest));
    }
}
