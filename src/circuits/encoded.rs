//! Work as bytes: Filecoin's requests, and a host's own circuits in formats of the host's.
//!
//! A [`Workload`] object lives and dies with the process. Bytes can be kept in a journal and decoded again, so a host
//! whose jobs shall survive a kill submits them encoded, and gives the engine a [`WorkDecoder`] for its format.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::circuits::{FilecoinRequest, Workload};
use crate::error::{EngineError, RequestError};

/// A job of a host's own circuit, as bytes.
///
/// `Debug` prints the length: the bytes hold a witness.
#[derive(Clone, PartialEq, Eq)]
pub struct EncodedWork {
    /// [`WorkDecoder::format`] of the decoder that reads it.
    pub format: String,
    pub bytes: Vec<u8>,
}

impl fmt::Debug for EncodedWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EncodedWork")
            .field("format", &self.format)
            .field("num_bytes", &self.bytes.len())
            .finish()
    }
}

/// Reads one format of [`EncodedWork`]. It runs on worker threads, and may panic: the worker catches that.
pub trait WorkDecoder: Send + Sync + fmt::Debug + 'static {
    /// The format's name. Jobs that were journalled under it are decoded by whoever has that name after a restart.
    fn format(&self) -> &str;

    /// The job. The same bytes must give the same [`Workload::digest`] in every process, or a job that is submitted
    /// again after a restart is proved twice.
    ///
    /// # Errors
    /// [`RequestError`] naming what is wrong with the bytes.
    fn decode(&self, bytes: &[u8]) -> Result<Arc<dyn Workload>, RequestError>;
}

/// Reads a request that is kept elsewhere, when it is needed.
pub type ReadStored = Box<dyn FnOnce() -> Result<Undecoded, EngineError> + Send>;

/// A request before it is decoded.
pub enum Undecoded {
    Filecoin(Box<FilecoinRequest>),
    Encoded(EncodedWork),
    /// In a journal.
    Stored(ReadStored),
}

impl fmt::Debug for Undecoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Filecoin(request) => request.fmt(f),
            Self::Encoded(work) => work.fmt(f),
            Self::Stored(_) => f.write_str("Stored(..)"),
        }
    }
}

impl Undecoded {
    /// The request itself, read if it is kept elsewhere.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(self) -> Result<Self, EngineError> {
        let mut request = self;
        while let Self::Stored(read) = request {
            request = read()?;
        }
        Ok(request)
    }

    /// Decodes and validates. `params_dir`: as in [`FilecoinRequest::decode`].
    ///
    /// # Errors
    /// [`EngineError::Request`] naming the field and the place in it, or that no decoder reads the format.
    pub fn decode(
        self,
        params_dir: &Path,
        decoders: &[Arc<dyn WorkDecoder>],
    ) -> Result<Arc<dyn Workload>, EngineError> {
        self.read()?.decode_here(params_dir, decoders)
    }

    /// As [`Undecoded::decode`], of a request that is at hand and stays so.
    ///
    /// # Errors
    /// As [`Undecoded::decode`].
    ///
    /// # Panics
    /// If the request is kept elsewhere: [`Undecoded::read`] it first.
    pub fn decode_here(
        &self,
        params_dir: &Path,
        decoders: &[Arc<dyn WorkDecoder>],
    ) -> Result<Arc<dyn Workload>, EngineError> {
        match self {
            Self::Filecoin(request) => Ok(request.decode(params_dir)?),
            Self::Encoded(EncodedWork { format, bytes }) => {
                let decoder = decoders.iter().find(|decoder| decoder.format() == format.as_str());
                let decoder = decoder.ok_or_else(|| RequestError::Unsupported {
                    what: format!("work in format `{format}`: the engine has no decoder of that name"),
                })?;
                Ok(decoder.decode(bytes)?)
            }
            Self::Stored(_) => unreachable!("what is read is no place to read from"),
        }
    }
}
