//! Parameter files as Filecoin publishes them: which there are, what their digests are, and how they come here.
//!
//! ```text
//! Manifest ── files_of(circuit) ──> Wanted ──┬─ fetch (feature `fetch`)  .NAME.partial, then NAME
//!                                            └─ digest_file              what is under NAME
//! ```
//!
//! What a file *means* is no subject of this module: `groth16::srs_file` reads it, and checks every point.

mod digest;
#[cfg(feature = "fetch")]
pub mod fetch;
mod manifest;
mod verified;

use std::path::{Path, PathBuf};

pub use digest::{digest_file, FileDigests};
pub use manifest::{Manifest, PublishedDigest, PublishedFile, Wanted};
pub use verified::VerifiedFiles;

/// Where a file is while it is fetched: beside its place, hidden, and told from every parameter file by its end.
pub fn partial_path(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!(".{name}.partial"))
}

/// The name of the file that is fetched into a file of this name; `None` for any other.
pub fn name_of_partial(file_name: &str) -> Option<&str> {
    file_name.strip_prefix('.')?.strip_suffix(".partial").filter(|name| !name.is_empty())
}
