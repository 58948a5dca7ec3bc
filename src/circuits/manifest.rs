//! Manifests: recorded jobs with everything that a request, a replay and a verification need.
//!
//! The format is described in `tests/data/filecoin/README.md`: one `manifest.json` per job or group of jobs, with
//! its input files beside it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use blstrs::Scalar;
use ff::PrimeField;
use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize};

use crate::circuits::catalogue::RegisteredProof;
use crate::circuits::request::{
    input_folder, json_text, prover_id, read_input, set_inputs, FilecoinRequest, HexBytes, TestScale,
};
use crate::circuits::{CircuitSpec, ProofKind, SectorSize, WorkKind, Workload};
use crate::error::RequestError;
use crate::groth16::Blinding;
use crate::ids::PartitionIndex;

/// The format that is read here.
const FORMAT: u64 = 1;

/// A manifest.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    pub format: u64,
    pub kind: WorkKind,
    /// Bytes.
    pub sector_size: u64,
    pub registered_proof: RegisteredField,
    pub miner_id: u64,
    pub prover_id: Hex32,
    pub sector_number: Option<u64>,
    pub ticket: Option<Hex32>,
    pub seed: Option<Hex32>,
    pub comm_d: Option<Hex32>,
    pub comm_r: Option<Hex32>,
    pub replica_id: Option<Hex32>,
    pub comm_r_old: Option<Hex32>,
    pub comm_r_new: Option<Hex32>,
    pub comm_d_new: Option<Hex32>,
    pub randomness: Option<Hex32>,
    #[serde(default)]
    pub sectors: Vec<SectorField>,
    /// By sector number.
    #[serde(default)]
    pub challenged_leaves: BTreeMap<String, Vec<u64>>,
    pub requests: Vec<ManifestRequest>,
    /// `None` where it was not recorded when the manifest was made.
    pub circuit: Option<CircuitField>,
    /// Set where the sector is a forgery for tests and measurements.
    pub synthetic: Option<SyntheticField>,
    pub groth16: Option<Groth16Field>,
    pub verify_note: Option<String>,
    /// SHA-256 of the other files of the folder.
    #[serde(default)]
    pub files: BTreeMap<String, Hex32>,
}

/// Name and number of a registered proof.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegisteredField {
    pub name: String,
    pub number: u64,
}

/// A sector of a PoSt.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SectorField {
    pub sector_number: u64,
    pub comm_r: Hex32,
}

/// One job.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManifestRequest {
    #[serde(default)]
    pub partition_index: u32,
    /// The input files, relative to the manifest, in order.
    pub vanilla: Vec<PathBuf>,
    #[serde(default)]
    pub sectors: Vec<SectorField>,
    /// `[partition][input]`, without the leading one.
    pub public_inputs: Vec<Vec<HexScalar>>,
    /// One per partition.
    pub r: Option<Vec<HexScalar>>,
    /// One per partition.
    pub s: Option<Vec<HexScalar>>,
    /// 192 B per partition: what a correct prover makes of `r`, `s` and the recorded parameters.
    pub proof: Option<HexBytes>,
}

/// How a synthetic sector was made.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct SyntheticField {
    /// What the sector was drawn from.
    pub seed: u64,
    /// PoRep: challenges of each partition, where they or the partitions are not the network's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub challenges: Option<u32>,
    /// PoRep: partitions, where they or the challenges are not the network's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partitions: Option<u32>,
}

impl SyntheticField {
    fn test_scale(&self) -> Result<Option<TestScale>, RequestError> {
        match (self.challenges, self.partitions) {
            (None, None) => Ok(None),
            (Some(challenges), Some(partitions)) => Ok(Some(TestScale { challenges, partitions })),
            _ => Err(field_error("synthetic", "has one of challenges and partitions, needs both or none")),
        }
    }
}

/// The size of one circuit.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CircuitField {
    /// Without the row per input that the prover adds.
    pub constraints: u64,
    pub inputs_with_one: u64,
    pub aux: u64,
    pub domain_log2: u32,
    pub r1cs_sha256: Hex32,
}

/// Parameter files, their sizes and digests.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Groth16Field {
    pub params_file: String,
    pub params_bytes: u64,
    pub params_sha256: Hex32,
    pub vk_file: String,
    pub vk_bytes: u64,
    pub vk_sha256: Hex32,
}

/// 32 bytes in hexadecimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hex32(pub [u8; 32]);

impl<'de> Deserialize<'de> for Hex32 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = HexBytes::deserialize(deserializer)?.0;
        let has = bytes.len();
        bytes.try_into().map(Self).map_err(|_| de::Error::custom(format!("needs 32 B, has {has} B")))
    }
}

/// A scalar: 32 bytes, little-endian and canonical, in hexadecimal. `Debug` prints nothing of it: it may be a
/// blinding value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HexScalar(pub Scalar);

impl std::fmt::Debug for HexScalar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HexScalar(..)")
    }
}

impl<'de> Deserialize<'de> for HexScalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Hex32(bytes) = Hex32::deserialize(deserializer)?;
        Scalar::from_repr_vartime(bytes)
            .map(Self)
            .ok_or_else(|| de::Error::custom("is no canonical field element"))
    }
}

impl Manifest {
    /// Reads a manifest.
    ///
    /// # Errors
    /// [`RequestError::Field`] naming the file, and the field or place in it.
    pub fn read(path: &Path) -> Result<Self, RequestError> {
        Self::from_json(&read_input(path)?).map_err(|error| match error {
            RequestError::Field { field, what } => {
                RequestError::Field { field: format!("{}: {field}", path.display()), what }
            }
            other => other,
        })
    }

    /// Parses a manifest.
    ///
    /// # Errors
    /// [`RequestError`] naming the field or place.
    pub fn from_json(bytes: &[u8]) -> Result<Self, RequestError> {
        let manifest: Self =
            serde_json::from_slice(json_text(bytes)).map_err(|error| field_error("manifest", error))?;
        if manifest.format != FORMAT {
            let what = format!("is {}, only {FORMAT} is known", manifest.format);
            return Err(field_error("format", what));
        }
        let registered =
            RegisteredProof::from_number(manifest.proof_kind()?, manifest.registered_proof.number)?;
        if registered.name() != manifest.registered_proof.name {
            return Err(RequestError::Contradiction {
                left: "registered_proof.number".into(),
                left_value: registered.to_string(),
                right: "registered_proof.name".into(),
                right_value: manifest.registered_proof.name,
            });
        }
        Ok(manifest)
    }

    /// The wire's kind.
    ///
    /// # Errors
    /// [`RequestError::Unsupported`] for `custom`, which no manifest describes.
    pub fn proof_kind(&self) -> Result<ProofKind, RequestError> {
        ProofKind::ALL
            .into_iter()
            .find(|kind| kind.work_kind() == self.kind)
            .ok_or_else(|| RequestError::Unsupported { what: format!("manifest of kind {}", self.kind) })
    }

    /// The circuit of all its requests.
    ///
    /// # Errors
    /// [`RequestError::Unsupported`] if the sector size is none of the network's.
    pub fn circuit_spec(&self) -> Result<CircuitSpec, RequestError> {
        let sector_size =
            SectorSize::from_bytes(self.sector_size).ok_or_else(|| RequestError::Unsupported {
                what: format!("sector_size {} B is none of the network's sector sizes", self.sector_size),
            })?;
        let kind = self.proof_kind()?;
        match self.test_scale()? {
            None => Ok(CircuitSpec::new(kind, sector_size)),
            Some(_) if kind != ProofKind::PorepSealCommit => {
                Err(field_error("synthetic", format!("challenges and partitions are no fields of {kind}")))
            }
            Some(TestScale { challenges, .. }) => CircuitSpec::scaled_porep(sector_size, challenges)
                .ok_or_else(|| {
                    let what =
                        format!("has {challenges} challenges, more than {sector_size} sectors have, or none");
                    field_error("synthetic", what)
                }),
        }
    }

    fn test_scale(&self) -> Result<Option<TestScale>, RequestError> {
        self.synthetic.as_ref().map_or(Ok(None), SyntheticField::test_scale)
    }

    /// The folder of request `index`'s input files, for a manifest that was read from `path`: see [`input_folder`].
    pub fn input_folder(&self, index: usize, path: &Path) -> PathBuf {
        input_folder(path, self.requests.get(index).map_or(&[], |request| &request.vanilla))
    }

    /// Request `index`, with its input files read. `dir` is the folder they are in ([`Manifest::input_folder`]).
    ///
    /// # Errors
    /// [`RequestError::Field`] if there is no such request or a file cannot be read.
    pub fn request(&self, index: usize, dir: &Path) -> Result<FilecoinRequest, RequestError> {
        let recorded = self.recorded(index)?;
        let kind = self.proof_kind()?;
        let bytes = |field: Option<Hex32>| field.map(|hex| hex.0.to_vec()).unwrap_or_default();
        let mut request = FilecoinRequest {
            proof_kind: Some(kind),
            sector_size: self.sector_size,
            registered_proof: self.registered_proof.number,
            sector_number: self.sector_number.unwrap_or(0),
            miner_id: self.miner_id,
            randomness: bytes(self.randomness),
            partition_index: recorded.partition_index,
            comm_r_old: bytes(self.comm_r_old),
            comm_r_new: bytes(self.comm_r_new),
            comm_d_new: bytes(self.comm_d_new),
            test_scale: self.test_scale()?,
            ..FilecoinRequest::default()
        };
        set_inputs(&mut request, kind, dir, &recorded.vanilla)?;
        Ok(request)
    }

    /// The recorded blinding values of request `index`, one per partition; `None` if the manifest has none.
    ///
    /// # Errors
    /// [`RequestError::Field`] if there is no such request, or not as many values as partitions.
    pub fn blindings(&self, index: usize) -> Result<Option<Vec<Blinding>>, RequestError> {
        let recorded = self.recorded(index)?;
        let (Some(r), Some(s)) = (&recorded.r, &recorded.s) else { return Ok(None) };
        let needs = recorded.public_inputs.len();
        if r.len() != needs || s.len() != needs {
            let what =
                format!("need {needs} values each (one per partition), have {} and {}", r.len(), s.len());
            return Err(field_error(&format!("requests[{index}] r and s"), what));
        }
        Ok(Some(r.iter().zip(s).map(|(r, s)| Blinding { r: r.0, s: s.0 }).collect()))
    }

    /// The recorded public inputs of request `index`: `[partition][input]`, without the leading one.
    ///
    /// # Errors
    /// [`RequestError::Field`] if there is no such request.
    pub fn public_inputs(&self, index: usize) -> Result<Vec<Vec<Scalar>>, RequestError> {
        let inputs = &self.recorded(index)?.public_inputs;
        Ok(inputs.iter().map(|partition| partition.iter().map(|scalar| scalar.0).collect()).collect())
    }

    /// The recorded proof of request `index`, if there is one.
    ///
    /// # Errors
    /// [`RequestError::Field`] if there is no such request.
    pub fn proof(&self, index: usize) -> Result<Option<&[u8]>, RequestError> {
        Ok(self.recorded(index)?.proof.as_ref().map(|proof| proof.0.as_slice()))
    }

    /// Whether request `index` states what `workload`, decoded from its input files, proves: partitions, prover,
    /// sectors, and every public input.
    ///
    /// # Errors
    /// [`RequestError`] naming the first field that says otherwise.
    pub fn check_statement(&self, index: usize, workload: &dyn Workload) -> Result<(), RequestError> {
        let recorded = self.recorded(index)?;
        if self.prover_id.0 != prover_id(self.miner_id) {
            return Err(field_error("prover_id", format!("is not that of miner_id {}", self.miner_id)));
        }
        let (stated, has) = (recorded.public_inputs.len(), workload.num_partitions() as usize);
        if stated != has {
            let what = format!("has {stated} partitions, the input files make {has}");
            return Err(field_error(&format!("requests[{index}].public_inputs"), what));
        }
        let is_post = matches!(self.kind, WorkKind::WindowPost | WorkKind::WinningPost);
        if is_post && recorded.sectors.len() != recorded.vanilla.len() {
            let what = format!(
                "lists {} sectors, vanilla names {} files",
                recorded.sectors.len(),
                recorded.vanilla.len()
            );
            return Err(field_error(&format!("requests[{index}].sectors"), what));
        }
        for (partition, stated) in recorded.public_inputs.iter().enumerate() {
            let place = format!("requests[{index}].public_inputs[{partition}]");
            let made = workload
                .public_inputs(PartitionIndex(partition as u32))
                .map_err(|error| field_error(&place, error))?;
            if stated.len() != made.len() {
                let what = format!("has {} values, the circuit has {}", stated.len(), made.len());
                return Err(field_error(&place, what));
            }
            if let Some(input) = stated.iter().zip(&made).position(|(stated, made)| stated.0 != *made) {
                let what = "is not what the input files state: they are of another job".to_owned();
                return Err(field_error(&format!("{place}[{input}]"), what));
            }
        }
        Ok(())
    }

    fn recorded(&self, index: usize) -> Result<&ManifestRequest, RequestError> {
        self.requests.get(index).ok_or_else(|| {
            field_error("requests", format!("has no index {index}: {} requests", self.requests.len()))
        })
    }
}

fn field_error(field: &str, what: impl std::fmt::Display) -> RequestError {
    RequestError::Field { field: field.into(), what: what.to_string() }
}
