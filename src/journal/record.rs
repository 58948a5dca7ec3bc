//! What the journal says of a job, and the bytes that say it.
//!
//! Every record is a frame: its version (u16, little-endian), the first eight bytes of the body's SHA-256, and the
//! body in bincode 1 (fixed-width little-endian integers). Codes of enums are numbers of the journal's own: a reordered
//! `enum` of the program must not change what a file means.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bincode::Options;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use sha2::{Digest, Sha256};

use crate::circuits::WorkKind;
use crate::error::{EngineError, ErrorClass};
use crate::ids::{CircuitId, DeviceId, JobId, RequestDigest, WorkRef};
use crate::messages::job::{
    job_name, JobResult, JobTimings, Placement, Priority, ProofOutcome, NAME_MARKS_MAX,
};
use crate::policy::admission::WorkIdentity;

/// Version of the records that are written: that of the journal as a whole, see `schema.rs`.
pub(super) const RECORD_VERSION: u16 = 2;

const VERSION_BYTES: usize = 2;
const CHECKSUM_BYTES: usize = 8;
const HEAD_BYTES: usize = VERSION_BYTES + CHECKSUM_BYTES;

/// An accepted job, without its inputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRecord {
    pub job: JobId,
    /// As submitted, or the one that was made for it.
    pub request_id: String,
    /// The caller named the work: the same request attaches to it.
    pub has_identity: bool,
    /// See [`crate::messages::job::job_name`].
    pub name_marks: u8,
    pub kind: WorkKind,
    pub circuit: CircuitId,
    pub num_partitions: u32,
    pub digest: RequestDigest,
    pub priority: Priority,
    pub placement: Placement,
    /// Milliseconds since 1970.
    pub accepted_unix_ms: u64,
    /// Milliseconds since 1970; `None`: no limit.
    pub deadline_unix_ms: Option<u64>,
}

impl JobRecord {
    /// What its callers ask for it by.
    pub fn name(&self) -> String {
        job_name(&self.request_id, self.name_marks, self.job)
    }

    /// What an equal request has; `None` if nothing is to attach. Work with given blinding values is not journalled.
    pub fn identity(&self) -> Option<WorkIdentity> {
        self.has_identity.then(|| WorkIdentity {
            request_id: self.request_id.clone(),
            kind: self.kind,
            digest: self.digest,
            blinding: None,
            placement: self.placement.clone(),
        })
    }
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultRecord {
    pub job: JobRecord,
    /// Milliseconds since 1970.
    pub finished_unix_ms: u64,
    pub end: StoredEnd,
}

/// The end itself.
#[derive(Clone, PartialEq, Eq)]
pub enum StoredEnd {
    /// 192 B per partition, in partition order; it was verified before it was stored.
    Proved(StoredProof),
    /// The reason, as the caller was told it.
    Failed { class: ErrorClass, what: String },
}

impl fmt::Debug for StoredEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Proved(stored) => write!(f, "Proved({} B)", stored.proof.len()),
            Self::Failed { what, .. } => write!(f, "Failed({what})"),
        }
    }
}

/// A proof, and where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredProof {
    pub proof: Vec<u8>,
    pub devices: Vec<DeviceId>,
    pub retries: u32,
    /// Queue, circuit, synthesis, verification, all. Stage times are not kept.
    pub times_us: [u64; 5],
}

impl ResultRecord {
    /// `finished_unix_ms`: now.
    pub fn new(job: JobRecord, finished_unix_ms: u64, result: &JobResult) -> Self {
        let end = match result {
            Ok(outcome) => StoredEnd::Proved(StoredProof::of(outcome)),
            Err(error) => StoredEnd::Failed { class: error.class(), what: error.to_string() },
        };
        Self { job, finished_unix_ms, end }
    }

    /// The same, as the job's callers are told.
    pub fn result(&self) -> JobResult {
        match &self.end {
            StoredEnd::Proved(stored) => Ok(Arc::new(stored.outcome(&self.job))),
            StoredEnd::Failed { class, what } => Err(EngineError::FailedBefore {
                at: WorkRef::job(self.job.job),
                class: *class,
                what: what.clone(),
            }),
        }
    }
}

impl StoredProof {
    fn of(outcome: &ProofOutcome) -> Self {
        let JobTimings { queue_wait, circuit_load, synthesis, verify, total, stages: _ } = &outcome.timings;
        let micros = |time: &Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        Self {
            proof: outcome.proof.clone(),
            devices: outcome.devices.clone(),
            retries: outcome.retries,
            times_us: [queue_wait, circuit_load, synthesis, verify, total].map(micros),
        }
    }

    fn outcome(&self, job: &JobRecord) -> ProofOutcome {
        let [queue_wait, circuit_load, synthesis, verify, total] = self.times_us.map(Duration::from_micros);
        let timings = JobTimings { queue_wait, circuit_load, synthesis, verify, total, stages: Vec::new() };
        ProofOutcome {
            job: job.job,
            request_id: job.request_id.clone(),
            kind: job.kind,
            circuit: job.circuit.clone(),
            proof: self.proof.clone(),
            timings,
            devices: self.devices.clone(),
            retries: self.retries,
        }
    }
}

/// The body of a job's record, version 2.
#[derive(Serialize, Deserialize)]
struct JobBody {
    request_id: String,
    /// Bit 0: `has_identity`; the others: `name_marks`.
    flags: u8,
    kind: u8,
    circuit: String,
    num_partitions: u32,
    digest: [u8; 32],
    priority: u8,
    /// Empty: any device.
    placement: String,
    accepted_unix_ms: u64,
    deadline_unix_ms: Option<u64>,
}

/// The body of a result's record, version 2.
#[derive(Serialize, Deserialize)]
struct ResultBody {
    job: JobBody,
    finished_unix_ms: u64,
    end: EndBody,
}

// Codes 0 and 1 by their order, which is bincode's: append only.
#[derive(Serialize, Deserialize)]
enum EndBody {
    Proved { proof: ByteBuf, devices: Vec<String>, retries: u32, times_us: [u64; 5] },
    Failed { class: u8, what: String },
}

/// By code: 0, 1, …; append only.
const KINDS: [WorkKind; 5] =
    [WorkKind::PorepC2, WorkKind::SnapUpdate, WorkKind::WindowPost, WorkKind::WinningPost, WorkKind::Custom];
const PRIORITIES: [Priority; 4] = [Priority::Low, Priority::Normal, Priority::High, Priority::Critical];
const CLASSES: [ErrorClass; 5] =
    [ErrorClass::Caller, ErrorClass::Retry, ErrorClass::DeviceLost, ErrorClass::Cancelled, ErrorClass::Bug];

fn code<T: PartialEq>(table: &[T], value: &T) -> u8 {
    let index = table.iter().position(|known| known == value);
    index.expect("every variant is in its table, which a test goes through") as u8
}

fn decode_code<T: Copy>(table: &[T], code: u8, what: &str) -> Result<T, String> {
    table.get(usize::from(code)).copied().ok_or_else(|| format!("{what} {code} is not known"))
}

/// A kind's code.
///
/// # Errors
/// If there is none of that number.
pub(super) fn kind_of(code: u8) -> Result<WorkKind, String> {
    decode_code(&KINDS, code, "kind")
}

/// A priority's code.
///
/// # Errors
/// If there is none of that number.
pub(super) fn priority_of(code: u8) -> Result<Priority, String> {
    decode_code(&PRIORITIES, code, "priority")
}

impl From<&JobRecord> for JobBody {
    fn from(record: &JobRecord) -> Self {
        Self {
            request_id: record.request_id.clone(),
            flags: u8::from(record.has_identity) | (record.name_marks.min(NAME_MARKS_MAX) << 1),
            kind: code(&KINDS, &record.kind),
            circuit: record.circuit.to_string(),
            num_partitions: record.num_partitions,
            digest: record.digest.0,
            priority: code(&PRIORITIES, &record.priority),
            placement: match &record.placement {
                Placement::Any => String::new(),
                Placement::Device(device) => device.to_string(),
            },
            accepted_unix_ms: record.accepted_unix_ms,
            deadline_unix_ms: record.deadline_unix_ms,
        }
    }
}

impl JobBody {
    fn into_record(self, job: JobId) -> Result<JobRecord, String> {
        let placement = match self.placement.as_str() {
            "" => Placement::Any,
            device => Placement::Device(DeviceId::new(device)),
        };
        Ok(JobRecord {
            job,
            request_id: self.request_id,
            has_identity: self.flags & 1 == 1,
            name_marks: self.flags >> 1,
            kind: kind_of(self.kind)?,
            circuit: CircuitId::new(self.circuit),
            num_partitions: self.num_partitions,
            digest: RequestDigest(self.digest),
            priority: priority_of(self.priority)?,
            placement,
            accepted_unix_ms: self.accepted_unix_ms,
            deadline_unix_ms: self.deadline_unix_ms,
        })
    }
}

impl JobRecord {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        frame(RECORD_VERSION, &JobBody::from(self))
    }

    pub(super) fn from_bytes(job: JobId, bytes: &[u8]) -> Result<Self, String> {
        parse::<JobBody>(unframe(RECORD_VERSION, bytes)?)?.into_record(job)
    }
}

impl ResultRecord {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let end = match &self.end {
            StoredEnd::Proved(StoredProof { proof, devices, retries, times_us }) => EndBody::Proved {
                proof: ByteBuf::from(proof.clone()),
                devices: devices.iter().map(ToString::to_string).collect(),
                retries: *retries,
                times_us: *times_us,
            },
            StoredEnd::Failed { class, what } => {
                EndBody::Failed { class: code(&CLASSES, class), what: what.clone() }
            }
        };
        let body = ResultBody { job: JobBody::from(&self.job), finished_unix_ms: self.finished_unix_ms, end };
        frame(RECORD_VERSION, &body)
    }

    pub(super) fn from_bytes(job: JobId, bytes: &[u8]) -> Result<Self, String> {
        let body: ResultBody = parse(unframe(RECORD_VERSION, bytes)?)?;
        let end = match body.end {
            EndBody::Proved { proof, devices, retries, times_us } => StoredEnd::Proved(StoredProof {
                proof: proof.into_vec(),
                devices: devices.into_iter().map(DeviceId::new).collect(),
                retries,
                times_us,
            }),
            EndBody::Failed { class, what } => {
                StoredEnd::Failed { class: decode_code(&CLASSES, class, "class")?, what }
            }
        };
        Ok(Self { job: body.job.into_record(job)?, finished_unix_ms: body.finished_unix_ms, end })
    }
}

fn options() -> impl Options {
    bincode::DefaultOptions::new().with_fixint_encoding().reject_trailing_bytes()
}

/// `body` with its head.
pub(super) fn frame(version: u16, body: &impl Serialize) -> Vec<u8> {
    // Behind room for the head, so that a body of many megabytes is written once.
    let mut bytes = vec![0; HEAD_BYTES];
    options().serialize_into(&mut bytes, body).expect("memory takes whatever is written to it");
    bytes[..VERSION_BYTES].copy_from_slice(&version.to_le_bytes());
    let checksum = checksum(&bytes[HEAD_BYTES..]);
    bytes[VERSION_BYTES..HEAD_BYTES].copy_from_slice(&checksum);
    bytes
}

/// The body of a frame of this version whose checksum is right.
pub(super) fn unframe(version: u16, bytes: &[u8]) -> Result<&[u8], String> {
    let has = bytes.len();
    let (head, body) =
        bytes.split_at_checked(HEAD_BYTES).ok_or_else(|| format!("needs {HEAD_BYTES} B, has {has} B"))?;
    let (has_version, sum) = head.split_at(VERSION_BYTES);
    if sum != checksum(body) {
        return Err("its checksum is wrong".to_owned());
    }
    if has_version != version.to_le_bytes() {
        let has = u16::from_le_bytes([has_version[0], has_version[1]]);
        return Err(format!("is of version {has}, needs {version}"));
    }
    Ok(body)
}

pub(super) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    options().deserialize(body).map_err(|error| error.to_string())
}

fn checksum(body: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let digest: [u8; 32] = Sha256::digest(body).into();
    std::array::from_fn(|index| digest[index])
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn job(number: u64) -> JobRecord {
        JobRecord {
            job: JobId(number),
            request_id: format!("request-{number}"),
            has_identity: true,
            name_marks: 0,
            kind: WorkKind::WindowPost,
            circuit: CircuitId::new("wpost-2k"),
            num_partitions: 1,
            digest: RequestDigest([number as u8; 32]),
            priority: Priority::High,
            placement: Placement::Any,
            accepted_unix_ms: 1_000 + number,
            deadline_unix_ms: None,
        }
    }

    /// Every field and code there and back, and every byte that may flip is noticed.
    #[test]
    fn records_come_back_as_they_were_written_or_not_at_all() {
        for kind in KINDS {
            for priority in PRIORITIES {
                let placement = Placement::Device(DeviceId::new("GPU-1"));
                let record = JobRecord { kind, priority, placement, deadline_unix_ms: Some(9), ..job(3) };
                assert_eq!(JobRecord::from_bytes(JobId(3), &record.to_bytes()), Ok(record));
            }
        }
        for class in CLASSES {
            let end = StoredEnd::Failed { class, what: "constraint 3".to_owned() };
            let record = ResultRecord { job: job(4), finished_unix_ms: 5, end };
            assert_eq!(ResultRecord::from_bytes(JobId(4), &record.to_bytes()), Ok(record));
        }
        let stored = StoredProof {
            proof: vec![7; 192],
            devices: vec![DeviceId::new("cpu")],
            retries: 2,
            times_us: [1, 2, 3, 4, 5],
        };
        let record = ResultRecord { job: job(5), finished_unix_ms: 6, end: StoredEnd::Proved(stored) };
        let bytes = record.to_bytes();
        assert_eq!(ResultRecord::from_bytes(JobId(5), &bytes), Ok(record));
        for index in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[index] ^= 0x10;
            ResultRecord::from_bytes(JobId(5), &flipped).unwrap_err();
            ResultRecord::from_bytes(JobId(5), &bytes[..index]).unwrap_err();
        }
    }

    /// The bytes of version 2, as files that are out there have them.
    #[test]
    fn the_bytes_of_version_2_do_not_change() {
        let body = "0900000000000000726571756573742d310102080000000000000077706f73742d326b01000000010101010101010101\
                    0101010101010101010101010101010101010101010101020000000000000000e90300000000000000";
        let bytes = job(1).to_bytes();
        assert_eq!(hex::encode(&bytes[HEAD_BYTES..]), body);
        assert_eq!(bytes[..VERSION_BYTES], [2, 0]);
    }
}
