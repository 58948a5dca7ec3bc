//! Where a journal's bytes are: a file, or whatever a test or a simulation puts in its place.

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use redb::backends::FileBackend;
pub use redb::StorageBackend;
use redb::{Builder, Database};

use super::schema;

/// Pages of the file that are kept in memory. A request of any size is written through it; the library's own default
/// is a gigabyte, which nobody has accounted for.
const CACHE_BYTES: usize = 16 << 20;

/// Where a journal's bytes are.
#[derive(Clone)]
pub enum Medium {
    /// A file of this process's own: a second process that opens it is refused.
    File(PathBuf),
    /// Anything else. Nobody keeps two journals off the same bytes.
    Backend(Arc<dyn OpenBackend>),
}

/// Something that keeps bytes, for simulations and tests.
pub trait OpenBackend: Send + Sync + fmt::Debug + 'static {
    /// For messages.
    fn name(&self) -> String;

    /// The bytes as they are now. Empty: a new journal.
    ///
    /// # Errors
    /// If they cannot be had.
    fn open(&self) -> io::Result<Box<dyn StorageBackend>>;
}

/// A file, whatever name it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileId {
    device: u64,
    inode: u64,
}

impl fmt::Debug for Medium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path().display())
    }
}

impl Medium {
    /// The file, or the name of what is in its place.
    pub fn path(&self) -> PathBuf {
        match self {
            Self::File(path) => path.clone(),
            Self::Backend(backend) => PathBuf::from(backend.name()),
        }
    }

    /// Which file has its name now; `None`: it is none.
    ///
    /// # Errors
    /// If nothing has that name, or that cannot be told.
    pub(super) fn file_id(&self) -> io::Result<Option<FileId>> {
        let Self::File(path) = self else { return Ok(None) };
        let metadata = std::fs::metadata(path)?;
        Ok(Some(FileId { device: metadata.dev(), inode: metadata.ino() }))
    }

    /// Opens what is there. `may_create`: for the first time, which checks all of it, and makes a new journal if there
    /// is nothing. Otherwise that is an error.
    pub(super) fn open(&self, may_create: bool) -> Result<Database, redb::Error> {
        match self {
            Self::File(path) => {
                match std::fs::metadata(path) {
                    Err(error) if error.kind() == ErrorKind::NotFound && may_create => create(path)?,
                    Err(error) => return Err(error.into()),
                    // The library would take it for a new one, and all that was in it would be lost in silence.
                    Ok(metadata) if metadata.len() == 0 => {
                        return Err(redb::Error::Corrupted("the file is empty".to_owned()));
                    }
                    Ok(_) => {}
                }
                Ok(builder(may_create).open(path)?)
            }
            Self::Backend(backend) => Ok(builder(may_create).create_with_backend(Boxed(backend.open()?))?),
        }
    }
}

fn builder(is_first: bool) -> Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES);
    // All of it is read once, and every page's checksum compared: a file that was changed from outside is told from a
    // whole one before anything in it is believed.
    builder.set_check_integrity_on_open(is_first);
    builder
}

/// Makes an empty journal beside `path` and gives it that name when it is whole: a kill at any write leaves either no
/// journal or a good one. Only its owner may read it: requests hold sector data.
fn create(path: &Path) -> Result<(), redb::Error> {
    let dir = match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    // Readable by its owner alone.
    let made = tempfile::Builder::new().prefix(".cuzk-journal-").tempfile_in(dir)?;
    let database = builder(true).create_with_backend(FileBackend::new(made.as_file().try_clone()?)?)?;
    schema::initialise(&database)?;
    drop(database);
    made.as_file().sync_all()?;
    match made.persist_noclobber(path) {
        Ok(_) => {}
        // Another process was faster: its file is as good, and opening it settles who has it.
        Err(error) if error.error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error.error.into()),
    }
    File::open(dir)?.sync_all()?;
    Ok(())
}

/// A backend of any kind, as the library takes it.
#[derive(Debug)]
struct Boxed(Box<dyn StorageBackend>);

impl StorageBackend for Boxed {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.0.close()
    }
}

/// Bytes in memory, for simulations: they outlive an engine, and not the process. Clones share them.
#[derive(Clone, Default)]
pub struct MemoryDisk(Arc<Mutex<Vec<u8>>>);

impl fmt::Debug for MemoryDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryDisk({} B)", self.bytes().len())
    }
}

impl MemoryDisk {
    /// What a kill at this instant would leave: a copy that no engine has.
    pub fn fork(&self) -> Self {
        Self(Arc::new(Mutex::new(self.bytes().clone())))
    }

    pub fn num_bytes(&self) -> usize {
        self.bytes().len()
    }

    fn bytes(&self) -> std::sync::MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenBackend for MemoryDisk {
    fn name(&self) -> String {
        "<memory>".to_owned()
    }

    fn open(&self) -> io::Result<Box<dyn StorageBackend>> {
        Ok(Box::new(self.clone()))
    }
}

/// The place of `len` bytes at `offset`, if there are so many.
fn place(offset: u64, len: usize, total: usize) -> io::Result<std::ops::Range<usize>> {
    let start = usize::try_from(offset).ok();
    let range = start.and_then(|start| Some(start..start.checked_add(len)?));
    range.filter(|range| range.end <= total).ok_or_else(|| ErrorKind::UnexpectedEof.into())
}

impl StorageBackend for MemoryDisk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes().len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let bytes = self.bytes();
        out.copy_from_slice(&bytes[place(offset, out.len(), bytes.len())?]);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let len = usize::try_from(len).map_err(|_| io::Error::from(ErrorKind::OutOfMemory))?;
        self.bytes().resize(len, 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut bytes = self.bytes();
        let range = place(offset, data.len(), bytes.len())?;
        bytes[range].copy_from_slice(data);
        Ok(())
    }
}
