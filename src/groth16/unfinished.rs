//! Large files while they are written: under a hidden name beside their place, and locked by their writer.
//!
//! A writer that is killed leaves its file behind, a gigabyte of it, under a name that no reader takes for parameters.
//! The lock (advisory, `flock`) ends with the process, whatever ends it: a file of that name without a lock is a
//! leftover, and one with a lock is another process's work.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

const PREFIX: &str = ".unfinished-";
const SUFFIX: &str = ".tmp";

/// Attempts to make a file that nobody looks at just then. One is enough unless a folder is cleaned without pause.
const ATTEMPTS_MAX: usize = 100;

/// A file that a killed process left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    pub path: PathBuf,
    pub num_bytes: u64,
}

/// The folder that `path` is in.
pub(super) fn folder(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes a file in `dir`, locked for as long as it is open. It is removed when dropped.
pub(super) fn create(dir: &Path) -> io::Result<NamedTempFile> {
    for _ in 0..ATTEMPTS_MAX {
        let file = tempfile::Builder::new().prefix(PREFIX).suffix(SUFFIX).tempfile_in(dir)?;
        match file.as_file().try_lock() {
            // Somebody may have taken it for a leftover before it was locked, and removed it.
            Ok(()) if file.as_file().metadata()?.nlink() > 0 => return Ok(file),
            Ok(()) | Err(TryLockError::WouldBlock) => {}
            // A file system without locks: nobody can lock it to remove it either.
            Err(TryLockError::Error(_)) => return Ok(file),
        }
    }
    Err(io::Error::new(io::ErrorKind::ResourceBusy, "its temporary files are removed while they are made"))
}

/// Files in `dir` that no process is writing any more, by name. A folder that is not there has none.
///
/// # Errors
/// If the folder cannot be listed.
pub fn leftovers(dir: &Path) -> io::Result<Vec<Leftover>> {
    visit(dir, |_| Ok(()))
}

/// Removes [`leftovers`], and gives those that were removed.
///
/// # Errors
/// If the folder cannot be listed, or a file in it not be removed.
pub fn remove_leftovers(dir: &Path) -> io::Result<Vec<Leftover>> {
    visit(dir, |path| match fs::remove_file(path) {
        // Just made, and given up by its writer because it was locked here.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    })
}

/// Calls `act` with each leftover while it is locked.
fn visit(dir: &Path, act: impl Fn(&Path) -> io::Result<()>) -> io::Result<Vec<Leftover>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        let is_named_so = |name: &str| name.starts_with(PREFIX) && name.ends_with(SUFFIX);
        if !entry.file_name().to_str().is_some_and(is_named_so) || !entry.file_type()?.is_file() {
            continue;
        }
        let path = entry.path();
        // Its writer may finish it, and rename it, at any moment: what cannot be opened or locked is no leftover.
        let Ok(file) = File::open(&path) else { continue };
        if file.try_lock().is_ok() {
            let num_bytes = file.metadata()?.len();
            act(&path)?;
            found.push(Leftover { path, num_bytes });
        }
    }
    found.sort_by(|left, right| left.path.cmp(&right.path));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_a_leftover_once_its_writer_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let held = create(dir.path()).unwrap();
        let left = dir.path().join(".unfinished-killed.tmp");
        fs::write(&left, b"half of it").unwrap();
        fs::write(dir.path().join(".unfinished-other"), b"of another name").unwrap();
        fs::create_dir(dir.path().join(".unfinished-folder.tmp")).unwrap();

        let expected = vec![Leftover { path: left.clone(), num_bytes: 10 }];
        assert_eq!(leftovers(dir.path()).unwrap(), expected);
        assert_eq!(remove_leftovers(dir.path()).unwrap(), expected);
        assert_eq!(remove_leftovers(dir.path()).unwrap(), []);
        assert!(!left.exists() && held.path().exists());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);

        // A finished file keeps its lock while it is open, and is none for its name alone.
        held.persist(dir.path().join("finished")).unwrap();
        assert_eq!(leftovers(dir.path()).unwrap(), []);
        assert_eq!(leftovers(&dir.path().join("absent")).unwrap(), []);
    }

    #[test]
    fn files_can_be_made_while_the_folder_is_cleaned() {
        use std::sync::atomic::{AtomicBool, Ordering};
        let dir = tempfile::tempdir().unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    remove_leftovers(dir.path()).unwrap();
                }
            });
            for _ in 0..200 {
                let file = create(dir.path()).unwrap();
                assert!(file.path().exists());
            }
            done.store(true, Ordering::Relaxed);
        });
    }
}
