//! A request as the journal keeps it: whatever decoding it again needs, under the wire's fields.
//!
//! Vanilla proofs and a host's bytes are written as they came; they hold a sector's data or a witness, which is why the
//! file is its owner's alone.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_bytes::{ByteBuf, Bytes};

use super::record::{frame, parse, unframe, RECORD_VERSION};
use crate::circuits::request::TestScale;
use crate::circuits::{EncodedWork, FilecoinRequest, ProofKind, Undecoded};

// Codes 0, 1 and 2 by their order, which is bincode's: append only.
#[derive(Serialize)]
enum RequestBody<'a> {
    Filecoin(FilecoinBody<'a>),
    Encoded {
        format: &'a str,
        bytes: &'a Bytes,
    },
    /// A PoRep that was scaled down for a test.
    ScaledFilecoin {
        challenges: u32,
        partitions: u32,
        request: FilecoinBody<'a>,
    },
}

/// As [`RequestBody`], for reading.
#[derive(Deserialize)]
enum OwnedRequestBody {
    Filecoin(Box<OwnedFilecoinBody>),
    Encoded { format: String, bytes: ByteBuf },
    ScaledFilecoin { challenges: u32, partitions: u32, request: Box<OwnedFilecoinBody> },
}

#[derive(Serialize)]
struct FilecoinBody<'a> {
    /// The wire's number; 0: none.
    proof_kind: u64,
    sector_size: u64,
    registered_proof: u64,
    vanilla_proof: &'a Bytes,
    vanilla_proofs: Vec<&'a Bytes>,
    sector_number: u64,
    miner_id: u64,
    randomness: &'a Bytes,
    partition_index: u32,
    comm_r_old: &'a Bytes,
    comm_r_new: &'a Bytes,
    comm_d_new: &'a Bytes,
}

/// As [`FilecoinBody`], for reading.
#[derive(Deserialize)]
pub(super) struct OwnedFilecoinBody {
    proof_kind: u64,
    sector_size: u64,
    registered_proof: u64,
    vanilla_proof: ByteBuf,
    vanilla_proofs: Vec<ByteBuf>,
    sector_number: u64,
    miner_id: u64,
    randomness: ByteBuf,
    partition_index: u32,
    comm_r_old: ByteBuf,
    comm_r_new: ByteBuf,
    comm_d_new: ByteBuf,
}

/// The bytes under which a journal keeps `request`; `None` if it is in a journal already.
pub fn encode_request(request: &Undecoded) -> Option<Arc<[u8]>> {
    let body = match request {
        Undecoded::Filecoin(request) => {
            let body = filecoin_body(request);
            match request.test_scale {
                None => RequestBody::Filecoin(body),
                Some(TestScale { challenges, partitions }) => {
                    RequestBody::ScaledFilecoin { challenges, partitions, request: body }
                }
            }
        }
        Undecoded::Encoded(EncodedWork { format, bytes }) => {
            RequestBody::Encoded { format, bytes: Bytes::new(bytes) }
        }
        Undecoded::Stored(_) => return None,
    };
    Some(frame(RECORD_VERSION, &body).into())
}

fn filecoin_body(request: &FilecoinRequest) -> FilecoinBody<'_> {
    // Without `..`: a new field does not compile before it is decided how it is kept.
    let FilecoinRequest {
        proof_kind,
        sector_size,
        registered_proof,
        vanilla_proof,
        vanilla_proofs,
        sector_number,
        miner_id,
        randomness,
        partition_index,
        comm_r_old,
        comm_r_new,
        comm_d_new,
        test_scale: _, // by its caller, around the body
    } = request;
    FilecoinBody {
        proof_kind: proof_kind.map_or(0, ProofKind::number),
        sector_size: *sector_size,
        registered_proof: *registered_proof,
        vanilla_proof: Bytes::new(vanilla_proof),
        vanilla_proofs: vanilla_proofs.iter().map(|proof| Bytes::new(proof)).collect(),
        sector_number: *sector_number,
        miner_id: *miner_id,
        randomness: Bytes::new(randomness),
        partition_index: *partition_index,
        comm_r_old: Bytes::new(comm_r_old),
        comm_r_new: Bytes::new(comm_r_new),
        comm_d_new: Bytes::new(comm_d_new),
    }
}

/// The request again.
///
/// # Errors
/// What is wrong with the bytes.
pub(super) fn decode_request(bytes: &[u8]) -> Result<Undecoded, String> {
    Ok(match parse(unframe(RECORD_VERSION, bytes)?)? {
        OwnedRequestBody::Encoded { format, bytes } => {
            Undecoded::Encoded(EncodedWork { format, bytes: bytes.into_vec() })
        }
        OwnedRequestBody::Filecoin(body) => Undecoded::Filecoin(Box::new(body.into_request()?)),
        OwnedRequestBody::ScaledFilecoin { challenges, partitions, request } => {
            let test_scale = Some(TestScale { challenges, partitions });
            Undecoded::Filecoin(Box::new(FilecoinRequest { test_scale, ..request.into_request()? }))
        }
    })
}

impl OwnedFilecoinBody {
    pub(super) fn into_request(self) -> Result<FilecoinRequest, String> {
        let proof_kind = match self.proof_kind {
            0 => None,
            number => {
                let known = ProofKind::ALL.into_iter().find(|kind| kind.number() == number);
                Some(known.ok_or_else(|| format!("proof_kind {number} is not known"))?)
            }
        };
        Ok(FilecoinRequest {
            proof_kind,
            sector_size: self.sector_size,
            registered_proof: self.registered_proof,
            vanilla_proof: self.vanilla_proof.into_vec(),
            vanilla_proofs: self.vanilla_proofs.into_iter().map(ByteBuf::into_vec).collect(),
            sector_number: self.sector_number,
            miner_id: self.miner_id,
            randomness: self.randomness.into_vec(),
            partition_index: self.partition_index,
            comm_r_old: self.comm_r_old.into_vec(),
            comm_r_new: self.comm_r_new.into_vec(),
            comm_d_new: self.comm_d_new.into_vec(),
            test_scale: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_come_back_as_they_were() {
        let request = FilecoinRequest {
            proof_kind: Some(ProofKind::WinningPost),
            sector_size: 2048,
            registered_proof: 5,
            vanilla_proof: vec![1; 3],
            vanilla_proofs: vec![vec![2; 1000], Vec::new(), vec![3]],
            sector_number: 7,
            miner_id: 1000,
            randomness: vec![4; 32],
            partition_index: 9,
            comm_r_old: vec![5; 32],
            comm_r_new: vec![6; 32],
            comm_d_new: vec![7; 32],
            test_scale: None,
        };
        let scaled = Some(TestScale { challenges: 1, partitions: 2 });
        for request in [request.clone(), FilecoinRequest { test_scale: scaled, ..request }] {
            let bytes = encode_request(&Undecoded::Filecoin(Box::new(request.clone()))).unwrap();
            match decode_request(&bytes) {
                Ok(Undecoded::Filecoin(again)) => assert_eq!(*again, request),
                other => panic!("{other:?}"),
            }
        }
        let work = EncodedWork { format: "squares".to_owned(), bytes: vec![8; 4] };
        let bytes = encode_request(&Undecoded::Encoded(work.clone())).unwrap();
        match decode_request(&bytes) {
            Ok(Undecoded::Encoded(again)) => assert_eq!(again, work),
            other => panic!("{other:?}"),
        }
        decode_request(&bytes[..bytes.len() - 1]).unwrap_err();
    }

    #[test]
    fn a_kind_of_a_later_version_is_refused_by_its_number() {
        let request = FilecoinRequest::default();
        let mut body = filecoin_body(&request);
        body.proof_kind = 77;
        let error = decode_request(&frame(RECORD_VERSION, &RequestBody::Filecoin(body))).unwrap_err();
        assert_eq!(error, "proof_kind 77 is not known");
    }
}
