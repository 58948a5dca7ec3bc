//! Filecoin proof requests, under the wire's field names.

mod file;
#[cfg(feature = "daemon")]
mod outgoing;
#[cfg(feature = "daemon")]
mod wire;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::circuits::catalogue::RegisteredProof;
use crate::circuits::vanilla::is_canonical;
use crate::circuits::{
    catch_panic, porep, snap, window_post, winning_post, CircuitSpec, ProofKind, SectorSize, SrsSource,
    Workload,
};
use crate::error::RequestError;
use crate::ids::{CircuitId, RequestDigest};

pub(in crate::circuits) use file::set_inputs;
pub use file::{input_folder, json_text, read_input, HexBytes, KindField, RequestFile, RequestPriority};
#[cfg(feature = "daemon")]
pub use wire::{WireRequest, REQUEST_ID_BYTES_MAX};

/// The fields of the wire's `SubmitProofRequest` that describe the statement.
///
/// `Debug` prints lengths in place of bytes: vanilla proofs hold a sector's data and must not reach a log.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct FilecoinRequest {
    pub proof_kind: Option<ProofKind>,
    /// Bytes; 0: take it from `registered_proof` or the C1.
    pub sector_size: u64,
    /// The chain's number. PoRep: 0 takes it from the C1.
    pub registered_proof: u64,
    pub vanilla_proof: Vec<u8>,
    pub vanilla_proofs: Vec<Vec<u8>>,
    /// PoRep: 0 takes it from the wrapper, if there is one.
    pub sector_number: u64,
    pub miner_id: u64,
    pub randomness: Vec<u8>,
    pub partition_index: u32,
    pub comm_r_old: Vec<u8>,
    pub comm_r_new: Vec<u8>,
    pub comm_d_new: Vec<u8>,
    /// PoRep for tests: not the network's numbers of challenges and partitions, so a proof that no network takes. The
    /// wire has no such field; only manifests of synthetic sectors set it.
    pub test_scale: Option<TestScale>,
}

/// The numbers of a PoRep that was scaled down for a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TestScale {
    /// Of each partition: 1 to the network's.
    pub challenges: u32,
    /// 1 to 255.
    pub partitions: u32,
}

impl fmt::Debug for FilecoinRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without `..`: a new field does not compile before it is decided how it is printed.
        let Self {
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
            test_scale,
        } = self;
        let proofs_bytes: Vec<usize> = vanilla_proofs.iter().map(Vec::len).collect();
        f.debug_struct("FilecoinRequest")
            .field("proof_kind", proof_kind)
            .field("sector_size", sector_size)
            .field("registered_proof", registered_proof)
            .field("vanilla_proof_bytes", &vanilla_proof.len())
            .field("vanilla_proofs_bytes", &proofs_bytes)
            .field("sector_number", sector_number)
            .field("miner_id", miner_id)
            .field("randomness_bytes", &randomness.len())
            .field("partition_index", partition_index)
            .field("comm_r_old_bytes", &comm_r_old.len())
            .field("comm_r_new_bytes", &comm_r_new.len())
            .field("comm_d_new_bytes", &comm_d_new.len())
            .field("test_scale", test_scale)
            .finish()
    }
}

impl FilecoinRequest {
    /// Decodes and validates everything that can be checked without synthesis: fields, contradictions, the vanilla
    /// proofs' form, every path, hash and challenge in them. `params_dir` is where the circuit's parameter file is
    /// expected (it is not opened here).
    ///
    /// # Errors
    /// [`RequestError`] naming the field and the place in it.
    pub fn decode(&self, params_dir: &Path) -> Result<Arc<dyn Workload>, RequestError> {
        let kind = self.proof_kind.ok_or_else(|| self.field_error("proof_kind", "is missing"))?;
        self.check_foreign_fields(kind)?;
        let decoded = catch_panic(|| {
            Ok(match kind {
                ProofKind::PorepSealCommit => porep::decode(self, params_dir),
                ProofKind::SnapDealsUpdate => snap::decode(self, params_dir),
                ProofKind::WindowPostPartition => window_post::decode(self, params_dir),
                ProofKind::WinningPost => winning_post::decode(self, params_dir),
            })
        });
        let decoded = decoded.unwrap_or_else(|error| {
            Err(RequestError::VanillaProof { at: "as a whole".into(), what: error.to_string() })
        });
        decoded.map_err(|error| self.with_registered_proof(kind, error))
    }

    /// A vanilla proof of these kinds is read as what `registered_proof` says: where that is what is wrong, only its
    /// name tells. (A C1 names its own, and is compared with what the request says.)
    fn with_registered_proof(&self, kind: ProofKind, error: RequestError) -> RequestError {
        let registered = match RegisteredProof::from_number(kind, self.registered_proof) {
            Ok(registered) if kind != ProofKind::PorepSealCommit => registered,
            _ => return error,
        };
        let read_as = |what: String| format!("{what}; read as registered_proof {registered}");
        match error {
            RequestError::VanillaProof { at, what } => RequestError::VanillaProof { at, what: read_as(what) },
            RequestError::Field { field, what } if field == "vanilla_proofs" => {
                RequestError::Field { field, what: read_as(what) }
            }
            error => error,
        }
    }

    /// Bulk fields of another kind mean that the caller mixed requests up; zeros and absent fields mean nothing.
    fn check_foreign_fields(&self, kind: ProofKind) -> Result<(), RequestError> {
        use ProofKind::{PorepSealCommit, SnapDealsUpdate, WindowPostPartition, WinningPost};
        let porep = kind == PorepSealCommit;
        let post = matches!(kind, WindowPostPartition | WinningPost);
        let snap = kind == SnapDealsUpdate;
        let fields = [
            ("vanilla_proof", self.vanilla_proof.is_empty(), porep),
            ("vanilla_proofs", self.vanilla_proofs.is_empty(), !porep),
            ("randomness", self.randomness.is_empty(), post),
            ("comm_r_old", self.comm_r_old.is_empty(), snap),
            ("comm_r_new", self.comm_r_new.is_empty(), snap),
            ("comm_d_new", self.comm_d_new.is_empty(), snap),
            ("partition_index", self.partition_index == 0, kind == WindowPostPartition),
            ("test_scale", self.test_scale.is_none(), porep),
        ];
        match fields.iter().find(|(_, is_absent, belongs)| !is_absent && !belongs) {
            Some((field, ..)) => Err(self.field_error(field, format!("is no field of {kind}"))),
            None => Ok(()),
        }
    }

    pub(super) fn field_error(&self, field: &str, what: impl fmt::Display) -> RequestError {
        RequestError::Field { field: field.into(), what: what.to_string() }
    }

    /// Fails unless the two statements of one fact agree.
    pub(super) fn check_equal<T: PartialEq + fmt::Display>(
        &self,
        left: &str,
        left_value: T,
        right: &str,
        right_value: T,
    ) -> Result<(), RequestError> {
        if left_value == right_value {
            return Ok(());
        }
        Err(RequestError::Contradiction {
            left: left.into(),
            left_value: left_value.to_string(),
            right: right.into(),
            right_value: right_value.to_string(),
        })
    }

    /// Fails if `sector_size` is given and is not that of `registered`, which `source` said.
    pub(super) fn check_sector_size(
        &self,
        source: &str,
        registered: RegisteredProof,
    ) -> Result<(), RequestError> {
        if self.sector_size == 0 || self.sector_size == registered.sector_size.bytes() {
            return Ok(());
        }
        let said = SectorSize::from_bytes(self.sector_size).ok_or_else(|| RequestError::Unsupported {
            what: format!("sector_size {} B is none of the network's sector sizes", self.sector_size),
        })?;
        Err(RequestError::Contradiction {
            left: "sector_size".into(),
            left_value: format!("{} ({said})", self.sector_size),
            right: source.into(),
            right_value: registered.to_string(),
        })
    }

    /// The registered proof of the kinds whose inputs do not name it themselves.
    pub(super) fn registered(&self, kind: ProofKind) -> Result<RegisteredProof, RequestError> {
        let registered = RegisteredProof::from_number(kind, self.registered_proof)?;
        self.check_sector_size("registered_proof", registered)?;
        Ok(registered)
    }

    /// A field of 32 raw bytes that is a canonical field element.
    pub(super) fn commitment(&self, field: &str, bytes: &[u8]) -> Result<[u8; 32], RequestError> {
        let node = bytes
            .try_into()
            .map_err(|_| self.field_error(field, format!("needs 32 B, has {} B", bytes.len())))?;
        if !is_canonical(&node) {
            let what = format!("{} is no canonical field element", hex::encode(node));
            return Err(self.field_error(field, what));
        }
        Ok(node)
    }

    /// A PoSt's randomness: 32 bytes of which the two top bits are cleared, as the chain's actors clear them.
    pub(super) fn checked_randomness(&self) -> Result<[u8; 32], RequestError> {
        let bytes: [u8; 32] = self.randomness.as_slice().try_into().map_err(|_| {
            self.field_error("randomness", format!("needs 32 B, has {} B", self.randomness.len()))
        })?;
        if bytes[31] >> 6 != 0 {
            let what = format!("the two top bits of byte 31 ({:#04x}) are not cleared", bytes[31]);
            return Err(self.field_error("randomness", what));
        }
        Ok(bytes)
    }

    /// SHA-256 over kind, circuit and every input, each with its length: no two requests share a digest.
    fn digest(&self, registered: &RegisteredProof, circuit: &CircuitId, sector_number: u64) -> RequestDigest {
        let mut hasher = Sha256::new();
        let mut feed = |bytes: &[u8]| {
            hasher.update((bytes.len() as u64).to_le_bytes());
            hasher.update(bytes);
        };
        feed(b"filecoin-request/v1");
        feed(registered.kind.wire_name().as_bytes());
        feed(circuit.as_str().as_bytes());
        feed(&registered.number().to_le_bytes());
        feed(&sector_number.to_le_bytes());
        feed(&self.miner_id.to_le_bytes());
        feed(&self.partition_index.to_le_bytes());
        feed(&self.randomness);
        feed(&self.comm_r_old);
        feed(&self.comm_r_new);
        feed(&self.comm_d_new);
        feed(&self.vanilla_proof);
        feed(&(self.vanilla_proofs.len() as u64).to_le_bytes());
        for proof in &self.vanilla_proofs {
            feed(proof);
        }
        // Real requests keep the digest they had before there were scaled ones.
        if let Some(scale) = self.test_scale {
            feed(&scale.challenges.to_le_bytes());
            feed(&scale.partitions.to_le_bytes());
        }
        RequestDigest(hasher.finalize().into())
    }
}

/// What every kind's job carries.
#[derive(Clone, Debug)]
pub(super) struct JobHeader {
    pub registered: RegisteredProof,
    pub circuit: CircuitId,
    pub digest: RequestDigest,
    pub srs: SrsSource,
}

impl JobHeader {
    /// `spec` is a circuit of the registered proof's kind and sector size.
    pub fn new(
        request: &FilecoinRequest,
        registered: RegisteredProof,
        spec: &CircuitSpec,
        params_dir: &Path,
        sector_number: u64,
    ) -> Self {
        let circuit = spec.id();
        let digest = request.digest(&registered, &circuit, sector_number);
        Self { registered, circuit, digest, srs: SrsSource::File(params_dir.join(spec.params_file()).into()) }
    }
}

/// A miner's id as provers see it: unsigned LEB128, padded with zeros to 32 bytes.
pub fn prover_id(miner_id: u64) -> [u8; 32] {
    let mut id = [0; 32];
    let mut rest = miner_id;
    for byte in &mut id {
        *byte = (rest & 0x7f) as u8;
        rest >>= 7;
        if rest == 0 {
            break;
        }
        *byte |= 0x80;
    }
    id
}
