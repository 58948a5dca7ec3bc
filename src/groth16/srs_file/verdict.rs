//! The verdict "every point of this file is in the subgroup", kept between runs.
//!
//! It is a small JSON file named after the parameter file's device and inode, and is believed only for the same inode,
//! size, modification time *and* digest. The digest is taken at every reading, so that no clock, copy or restored
//! backup can lend a verdict to other bytes; who can write the folder can of course write verdicts.

use std::fs::Metadata;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Raised when the checks become stricter: older verdicts are then ignored.
const CHECKS_VERSION: u32 = 1;

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::groth16) struct Verdict {
    checks_version: u32,
    device: u64,
    inode: u64,
    size_bytes: u64,
    modified_s: i64,
    modified_ns: i64,
    sha256: String,
}

impl Verdict {
    /// The verdict for a file with this metadata and digest.
    pub fn new(metadata: &Metadata, sha256: &[u8; 32]) -> Self {
        Self {
            checks_version: CHECKS_VERSION,
            device: metadata.dev(),
            inode: metadata.ino(),
            size_bytes: metadata.size(),
            modified_s: metadata.mtime(),
            modified_ns: metadata.mtime_nsec(),
            sha256: hex::encode(sha256),
        }
    }

    fn path(&self, dir: &Path) -> PathBuf {
        dir.join(format!("srs-{:x}-{:x}.json", self.device, self.inode))
    }

    /// Whether exactly this verdict was stored in `dir`. What cannot be read is no verdict.
    pub fn is_stored(&self, dir: &Path) -> bool {
        let stored = std::fs::read(self.path(dir)).ok();
        stored
            .and_then(|json| serde_json::from_slice::<Self>(&json).ok())
            .is_some_and(|stored| stored == *self)
    }

    /// The digest that a file with this metadata had when it was last checked, if it seems to be that file still. Only a
    /// guess, which takes no time: nothing is believed of a file for it.
    pub fn likely_sha256(metadata: &Metadata, dir: &Path) -> Option<[u8; 32]> {
        let json = std::fs::read(Self::new(metadata, &[0; 32]).path(dir)).ok()?;
        let stored: Self = serde_json::from_slice(&json).ok()?;
        let digest = <[u8; 32]>::try_from(hex::decode(&stored.sha256).ok()?).ok()?;
        (stored == Self::new(metadata, &digest)).then_some(digest)
    }

    /// Replaces the file's earlier verdict. Losing one only costs time, so that a failure is for the log alone.
    pub fn store(&self, dir: &Path) -> std::io::Result<()> {
        std::fs::create_dir_all(dir)?;
        let mut file = tempfile::NamedTempFile::new_in(dir)?;
        file.write_all(&serde_json::to_vec_pretty(self)?)?;
        file.persist(self.path(dir))?;
        Ok(())
    }
}
