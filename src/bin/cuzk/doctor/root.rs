//! The system's files: `/proc`, `/sys`, `/dev`, `/run`.

use std::path::{Path, PathBuf};

/// Where they are looked for: `/`, or a made-up system in a test.
pub struct Root {
    path: PathBuf,
}

impl Root {
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// This machine's own, so that what is not in files may be asked as well.
    #[cfg(feature = "cuda")]
    pub fn is_real(&self) -> bool {
        self.path == Path::new("/")
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn join(&self, absolute: &str) -> PathBuf {
        self.path.join(absolute.trim_start_matches('/'))
    }

    /// The text of a small file without the space around it; `None` if it cannot be read, for whatever reason.
    pub fn read(&self, absolute: &str) -> Option<String> {
        let text = std::fs::read_to_string(self.join(absolute)).ok()?;
        Some(text.trim().to_owned())
    }

    pub fn exists(&self, absolute: &str) -> bool {
        self.join(absolute).exists()
    }

    /// Names in a folder, in order; none if it cannot be listed.
    pub fn list(&self, absolute: &str) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.join(absolute)) else { return Vec::new() };
        let mut names: Vec<String> =
            entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }
}
