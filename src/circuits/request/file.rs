//! Request files: JSON with the wire's field names, for people and scripts.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::de::{self, Deserializer, Visitor};
use serde::Deserialize;

use super::FilecoinRequest;
use crate::circuits::ProofKind;
use crate::error::RequestError;

/// The wire's `Priority`, by name or number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestPriority {
    /// The kind's own.
    #[default]
    Unspecified,
    Low,
    Normal,
    High,
    Critical,
}

/// A request file: the wire's `SubmitProofRequest` under its field names, bytes in hexadecimal, enums by name or
/// number; and `vanilla`, the list of input files relative to the request file, in place of `vanilla_proof` or
/// `vanilla_proofs`.
///
/// ```json
/// {"proof_kind": "WINNING_POST", "registered_proof": 0, "miner_id": 6413,
///  "randomness": "2abd…", "vanilla": ["vanilla-0.bin"]}
/// ```
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestFile {
    #[serde(default)]
    pub request_id: String,
    pub proof_kind: KindField,
    #[serde(default)]
    pub sector_size: u64,
    #[serde(default)]
    pub registered_proof: u64,
    #[serde(default)]
    pub priority: RequestPriority,
    #[serde(default)]
    pub vanilla_proof: HexBytes,
    #[serde(default)]
    pub vanilla_proofs: Vec<HexBytes>,
    #[serde(default)]
    pub vanilla: Vec<PathBuf>,
    #[serde(default)]
    pub sector_number: u64,
    #[serde(default)]
    pub miner_id: u64,
    #[serde(default)]
    pub randomness: HexBytes,
    #[serde(default)]
    pub partition_index: u32,
    #[serde(default)]
    pub comm_r_old: HexBytes,
    #[serde(default)]
    pub comm_r_new: HexBytes,
    #[serde(default)]
    pub comm_d_new: HexBytes,
}

impl RequestFile {
    /// Reads a request file.
    ///
    /// # Errors
    /// [`RequestError::Field`] naming the file, and the field or place in it.
    pub fn read(path: &Path) -> Result<Self, RequestError> {
        Self::from_json(&read_input(path)?, path)
    }

    /// Parses a request file that was read from `path`, which errors name.
    ///
    /// # Errors
    /// As [`RequestFile::read`].
    pub fn from_json(bytes: &[u8], path: &Path) -> Result<Self, RequestError> {
        serde_json::from_slice(json_text(bytes)).map_err(|error| RequestError::Field {
            field: path.display().to_string(),
            what: format!("is no request file: {error}"),
        })
    }

    /// The request, with the files of `vanilla` read. `dir` is the folder they are in: [`input_folder`].
    ///
    /// # Errors
    /// [`RequestError::Field`] if a file cannot be read, or if the inputs are given twice.
    pub fn into_request(self, dir: &Path) -> Result<FilecoinRequest, RequestError> {
        let kind = self.proof_kind.0;
        let mut request = FilecoinRequest {
            proof_kind: Some(kind),
            sector_size: self.sector_size,
            registered_proof: self.registered_proof,
            vanilla_proof: self.vanilla_proof.0,
            vanilla_proofs: self.vanilla_proofs.into_iter().map(|bytes| bytes.0).collect(),
            sector_number: self.sector_number,
            miner_id: self.miner_id,
            randomness: self.randomness.0,
            partition_index: self.partition_index,
            comm_r_old: self.comm_r_old.0,
            comm_r_new: self.comm_r_new.0,
            comm_d_new: self.comm_d_new.0,
            test_scale: None,
        };
        if !self.vanilla.is_empty() {
            set_inputs(&mut request, kind, dir, &self.vanilla)?;
        }
        Ok(request)
    }
}

/// Reads the input files of a request into the field that its kind has for them.
pub(in crate::circuits) fn set_inputs(
    request: &mut FilecoinRequest,
    kind: ProofKind,
    dir: &Path,
    files: &[PathBuf],
) -> Result<(), RequestError> {
    if !request.vanilla_proof.is_empty() || !request.vanilla_proofs.is_empty() {
        return Err(request.field_error("vanilla", "is given beside vanilla_proof or vanilla_proofs"));
    }
    let mut inputs = files.iter().map(|file| read_input(&dir.join(file))).collect::<Result<Vec<_>, _>>()?;
    if kind != ProofKind::PorepSealCommit {
        request.vanilla_proofs = inputs;
        return Ok(());
    }
    match (inputs.pop(), inputs.len()) {
        (Some(c1), 0) => {
            request.vanilla_proof = c1;
            Ok(())
        }
        (_, others) => {
            let what = format!("needs 1 file (a C1) for {kind}, has {}", others + 1);
            Err(request.field_error("vanilla", what))
        }
    }
}

/// JSON without the byte order mark that some editors put before UTF-8. It says nothing, and JSON has no place for it.
pub fn json_text(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes)
}

/// The folder that the `inputs` named in the file `path` are in: the file's own; or, where one of them is not there and
/// `path` is a link, that of the file it leads to, if they are there. So a link to a manifest alone works, and so does
/// a folder of links to files from several places.
pub fn input_folder(path: &Path, inputs: &[PathBuf]) -> PathBuf {
    let own = path.parent().unwrap_or(Path::new(""));
    let has_all = |dir: &Path| inputs.iter().all(|input| dir.join(input).exists());
    if has_all(own) {
        return own.to_owned();
    }
    let real = std::fs::canonicalize(path).ok();
    let real = real.as_deref().and_then(Path::parent).filter(|dir| has_all(dir));
    // If neither has all, errors name the place beside the file that was named.
    real.unwrap_or(own).to_owned()
}

/// Size above which a file is no input: the largest real ones, C1 of 64 GiB sectors, take some hundred megabytes.
const INPUT_BYTES_MAX: u64 = 1 << 30;

/// Reads a whole input file: a regular one of 1 GiB at most, so that a pipe that never ends, a device or a parameter
/// file given by mistake is an error and takes neither the process's memory nor its time.
///
/// # Errors
/// [`RequestError::Field`] naming the file.
pub fn read_input(path: &Path) -> Result<Vec<u8>, RequestError> {
    let refuse = |what: String| RequestError::Field { field: path.display().to_string(), what };
    let unreadable = |error: std::io::Error| refuse(format!("cannot be read: {error}"));
    // Asked before it is opened: opening a pipe waits for its other end.
    let metadata = std::fs::metadata(path).map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(refuse("is no regular file".into()));
    }
    let too_large = |has: &str| {
        refuse(format!("is too large for an input: needs {INPUT_BYTES_MAX} B at most, has {has}"))
    };
    if metadata.len() > INPUT_BYTES_MAX {
        return Err(too_large(&format!("{} B", metadata.len())));
    }
    let mut bytes = Vec::with_capacity(metadata.len() as usize);
    let file = File::open(path).map_err(unreadable)?;
    // The file may grow while it is read.
    file.take(INPUT_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > INPUT_BYTES_MAX {
        return Err(too_large("more"));
    }
    Ok(bytes)
}

/// Bytes in hexadecimal, upper or lower case. `Debug` prints their number alone: they may be a vanilla proof.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct HexBytes(pub Vec<u8>);

impl fmt::Debug for HexBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HexBytes({} B)", self.0.len())
    }
}

impl<'de> Deserialize<'de> for HexBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        hex::decode(&text)
            .map(Self)
            .map_err(|error| de::Error::custom(format!("no hexadecimal bytes: {error}")))
    }
}

/// A [`ProofKind`] by name or number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindField(pub ProofKind);

impl<'de> Deserialize<'de> for KindField {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = deserializer.deserialize_any(NameOrNumber)?;
        text.parse().map(Self).map_err(de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for RequestPriority {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = deserializer.deserialize_any(NameOrNumber)?;
        match text.to_ascii_uppercase().as_str() {
            "0" | "PRIORITY_UNSPECIFIED" => Ok(Self::Unspecified),
            "1" | "LOW" => Ok(Self::Low),
            "2" | "NORMAL" => Ok(Self::Normal),
            "3" | "HIGH" => Ok(Self::High),
            "4" | "CRITICAL" => Ok(Self::Critical),
            _ => Err(de::Error::custom(format!(
                "priority {text:?} is none of LOW (1), NORMAL (2), HIGH (3), CRITICAL (4)"
            ))),
        }
    }
}

/// An enum's value as text: its name, or its number in decimal.
struct NameOrNumber;

impl Visitor<'_> for NameOrNumber {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name or a number")
    }

    fn visit_str<E>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }

    fn visit_u64<E>(self, number: u64) -> Result<String, E> {
        Ok(number.to_string())
    }

    fn visit_i64<E>(self, number: i64) -> Result<String, E> {
        Ok(number.to_string())
    }
}
