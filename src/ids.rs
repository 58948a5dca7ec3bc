//! Identities. Each is a newtype, so that no number can be taken for another.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// One accepted job of this engine. Unique within an engine's life; shown as four or more hex digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct JobId(pub u64);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}", self.0)
    }
}

/// Position of a partition (one Groth16 proof) in its job, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PartitionIndex(pub u32);

impl fmt::Display for PartitionIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How often a partition has been given to a device, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Attempt(pub u32);

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A device, by a name that does not depend on enumeration order: `GPU-<uuid>`, `cpu`, `sim-0`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DeviceId(Arc<str>);

impl DeviceId {
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A circuit with its proving key: `porep-2k`, `wpost-32g`, or a name an embedding host chose.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CircuitId(Arc<str>);

impl CircuitId {
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CircuitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// SHA-256 over everything that determines a job's statement (kind, circuit, all inputs).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RequestDigest(pub [u8; 32]);

impl fmt::Debug for RequestDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", hex::encode(&self.0[..8]))
    }
}

/// What a piece of work is: printed as `job 7f3a partition 3 attempt 2 on GPU-1c…` in every runtime error.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WorkRef {
    pub job: JobId,
    pub partition: Option<PartitionIndex>,
    pub attempt: Option<Attempt>,
    pub device: Option<DeviceId>,
}

impl WorkRef {
    pub fn job(job: JobId) -> Self {
        Self { job, partition: None, attempt: None, device: None }
    }

    pub fn partition(job: JobId, partition: PartitionIndex) -> Self {
        Self { job, partition: Some(partition), attempt: None, device: None }
    }

    pub fn with_attempt(mut self, attempt: Attempt) -> Self {
        self.attempt = Some(attempt);
        self
    }

    pub fn on(mut self, device: DeviceId) -> Self {
        self.device = Some(device);
        self
    }
}

impl fmt::Display for WorkRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job {}", self.job)?;
        if let Some(partition) = self.partition {
            write!(f, " partition {partition}")?;
        }
        if let Some(attempt) = self.attempt {
            write!(f, " attempt {attempt}")?;
        }
        if let Some(device) = &self.device {
            write!(f, " on {device}")?;
        }
        Ok(())
    }
}
