//! Records to put into a journal, and a small workload that changes it in every way.

use std::sync::Arc;

use cuzk::circuits::{EncodedWork, Undecoded, WorkKind};
use cuzk::ids::{CircuitId, DeviceId, JobId, RequestDigest};
use cuzk::journal::{encode_request, JobRecord, Op, ResultRecord, StoredEnd, StoredProof};
use cuzk::messages::job::{Placement, Priority};

pub fn job(number: u64) -> JobRecord {
    JobRecord {
        job: JobId(number),
        request_id: format!("request-{number}"),
        has_identity: true,
        name_marks: 0,
        kind: WorkKind::Custom,
        circuit: CircuitId::new("squares"),
        num_partitions: 1,
        digest: RequestDigest([number as u8; 32]),
        priority: Priority::Normal,
        placement: Placement::Any,
        accepted_unix_ms: 1_000 + number,
        deadline_unix_ms: None,
    }
}

/// `num_bytes` that tell which job they are of.
pub fn request(number: u64, num_bytes: usize) -> Arc<[u8]> {
    let bytes = (0..num_bytes).map(|index| (index as u64 ^ number) as u8).collect();
    encode_request(&Undecoded::Encoded(EncodedWork { format: "test".to_owned(), bytes })).unwrap()
}

pub fn accept(number: u64, num_bytes: usize) -> Op {
    Op::Accept { record: job(number), request: request(number, num_bytes) }
}

pub fn result(number: u64, finished_unix_ms: u64) -> ResultRecord {
    let stored = StoredProof {
        proof: vec![number as u8; 192],
        devices: vec![DeviceId::new("cpu")],
        retries: 0,
        times_us: [1, 2, 3, 4, 5],
    };
    ResultRecord { job: job(number), finished_unix_ms, end: StoredEnd::Proved(stored) }
}

pub fn finish(number: u64, finished_unix_ms: u64) -> Op {
    Op::Finish { record: result(number, finished_unix_ms) }
}

/// Transactions of every kind: single and grouped, small and of many pages.
pub fn workload() -> Vec<Vec<Op>> {
    vec![
        vec![accept(1, 10)],
        vec![accept(2, 5_000), accept(3, 10)],
        vec![Op::Update { record: JobRecord { priority: Priority::High, ..job(2) } }],
        vec![finish(1, 2_001)],
        vec![accept(4, 200_000)],
        vec![Op::Forget { job: JobId(3) }, accept(5, 100)],
        vec![finish(4, 2_002), finish(2, 2_003)],
        vec![accept(6, 60_000), accept(7, 60_000), accept(8, 60_000)],
        vec![finish(5, 2_004)],
        vec![Op::Probe],
        vec![finish(6, 2_005), Op::Forget { job: JobId(7) }],
        vec![accept(9, 10)],
    ]
}
