//! Files: reading with the file's name in the error, digests, and writing all or nothing.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use cuzk::circuits::request::read_input;
use sha2::{Digest, Sha256};

use crate::failure::Failure;

const READ_CHUNK_BYTES: usize = 1 << 20;

/// The whole file, if it is a regular one that is not too large for an input.
pub fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    Ok(read_input(path)?)
}

/// SHA-256 of the file, in hex. `progress(done, total)` counts bytes.
pub fn sha256(path: &Path, progress: &dyn Fn(u64, u64)) -> Result<String, Failure> {
    let unreadable = |error| unreadable(path, &error);
    let mut file = File::open(path).map_err(unreadable)?;
    let total = file.metadata().map_err(unreadable)?.len();
    let mut hasher = Sha256::new();
    let mut chunk = vec![0; READ_CHUNK_BYTES];
    let mut done = 0;
    loop {
        let read = file.read(&mut chunk).map_err(unreadable)?;
        if read == 0 {
            return Ok(hex::encode(hasher.finalize()));
        }
        hasher.update(&chunk[..read]);
        done += read as u64;
        progress(done, total);
    }
}

/// Whether there is anything at `path`. What may not be looked at, such as a file in a folder that this user may not
/// enter, is an error: it may well be there.
pub fn is_there(path: &Path) -> Result<bool, Failure> {
    path.try_exists().map_err(|error| unreadable(path, &error))
}

/// Fails if `dir` is there and cannot be looked into. A folder that is not there has no files, which is for others to
/// say.
pub fn check_enterable(dir: &Path) -> Result<(), Failure> {
    // The dot makes it a question to the folder itself: whether it is one, and may be entered.
    match std::fs::metadata(dir.join(".")) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(unreadable(dir, &error)),
        _ => Ok(()),
    }
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::input(path.display().to_string(), format!("{}: {error}", path.display()))
}

/// Writes a file that is there whole or not at all: beside it first, then renamed. A link's target is written, not the
/// link; what is no file, such as a pipe or a terminal, is written to as it is.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let write = || -> std::io::Result<()> {
        if is_special(path) {
            return std::fs::OpenOptions::new().write(true).open(path)?.write_all(bytes);
        }
        let path = target(path);
        let mut file = temporary().tempfile_in(folder(&path))?;
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        file.persist(&path).map_err(|error| error.error)?;
        Ok(())
    };
    write().map_err(|error| unwritable(path, &error))
}

/// There, and neither a file nor a folder.
fn is_special(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir())
}

fn target(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// Whether [`write_atomically`] would do, before minutes are spent on what shall be written.
pub fn check_writable(path: &Path) -> Result<(), Failure> {
    if path.is_dir() {
        return Err(Failure::usage(format!("{}: is a folder; name a file in it", path.display())));
    }
    if is_special(path) {
        return Ok(());
    }
    try_folder(folder(&target(path))).map_err(|error| unwritable(path, &error))
}

/// Makes a file in `dir`, and removes it.
pub fn try_folder(dir: &Path) -> std::io::Result<()> {
    temporary().tempfile_in(dir).map(drop)
}

/// Bytes that this user may still write in the file system of `dir`.
pub fn free_bytes(dir: &Path) -> std::io::Result<u64> {
    let stat = rustix::fs::statvfs(dir)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// The folder that `path` is in.
pub fn folder(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::usage(format!("{}: cannot write: {error}", path.display()))
}

/// A temporary file's usual permissions are its owner's alone; a result has those of any new file.
fn temporary() -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".cuzk-");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    builder
}
