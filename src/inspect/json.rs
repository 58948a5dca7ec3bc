//! JSON formats: manifests, requests, C1 (bare or wrapped), lists of vanilla proofs.

use std::path::Path;

use base64::engine::general_purpose::STANDARD;
use base64::Engine as _;
use serde_json::Value;

use super::Finding;
use crate::circuits::request::{json_text, read_input};
use crate::error::InspectError;

pub(super) fn recognise(path: &Path) -> Result<Option<Finding>, InspectError> {
    let bytes = read_input(path)?;
    let value: Value = serde_json::from_slice(json_text(&bytes)).map_err(|error| InspectError::File {
        at: path.display().to_string(),
        what: format!("begins as JSON, and is damaged or cut: {error}"),
    })?;
    if let Some(wrapped) = value.get("Phase1Out") {
        return wrapped_c1(path, &value, wrapped).map(Some);
    }
    if value.get("registered_proof").is_some_and(Value::is_string) && value.get("vanilla_proofs").is_some() {
        return Ok(Some(c1(Finding::new("C1 (output of PoRep's commit phase 1)"), &value)));
    }
    if value.get("requests").is_some() && value.get("kind").is_some() {
        return Ok(Some(manifest(&value)));
    }
    if value.get("proof_kind").is_some() {
        return Ok(Some(request(&value)));
    }
    Ok(value.as_array().and_then(|list| vanilla_list(list)))
}

fn wrapped_c1(path: &Path, value: &Value, inner: &Value) -> Result<Finding, InspectError> {
    let damaged = |what: String| InspectError::File { at: format!("{} Phase1Out", path.display()), what };
    let text = inner.as_str().ok_or_else(|| damaged("is no text".to_owned()))?;
    let json = STANDARD.decode(text).map_err(|error| damaged(format!("is no base64: {error}")))?;
    let inner: Value =
        serde_json::from_slice(&json).map_err(|error| damaged(format!("is no JSON: {error}")))?;
    let finding = Finding::new("C1 (output of PoRep's commit phase 1), wrapped by a caller")
        .with("sector number", value["SectorNum"].clone())
        .with("sector size", value["SectorSize"].clone());
    Ok(c1(finding, &inner))
}

fn c1(finding: Finding, value: &Value) -> Finding {
    let partitions = value["vanilla_proofs"].as_object().and_then(|sizes| sizes.values().next()?.as_array());
    let challenges = partitions.and_then(|list| list.first()?.as_array());
    finding
        .with("registered proof", value["registered_proof"].clone())
        .with("partitions", partitions.map(|list| list.len() as u64))
        .with("challenges per partition", challenges.map(|list| list.len() as u64))
        .with("comm_d", node(&value["comm_d"]))
        .with("comm_r", node(&value["comm_r"]))
        .with("replica_id", node(&value["replica_id"]))
        .with("ticket", node(&value["ticket"]))
        .with("seed", node(&value["seed"]))
}

/// A node as the C1 has it: an array of 32 numbers, or already hex.
fn node(value: &Value) -> Option<String> {
    if let Some(text) = value.as_str() {
        return Some(text.to_owned());
    }
    let bytes: Option<Vec<u8>> =
        value.as_array()?.iter().map(|byte| u8::try_from(byte.as_u64()?).ok()).collect();
    Some(hex::encode(bytes?))
}

fn manifest(value: &Value) -> Finding {
    let requests = value["requests"].as_array();
    let with_proof =
        requests.map(|list| list.iter().filter(|request| request["proof"].is_string()).count() as u64);
    Finding::new("manifest")
        .with("proof kind", value["kind"].clone())
        .with("sector size", value["sector_size"].clone())
        .with("registered proof", value["registered_proof"]["name"].clone())
        .with("miner id", value["miner_id"].clone())
        .with("sector number", value["sector_number"].clone())
        .with("synthetic", synthetic(&value["synthetic"]))
        .with("requests", requests.map(|list| list.len() as u64))
        .with("requests with a recorded proof", with_proof)
        .with("constraints", value["circuit"]["constraints"].clone())
}

/// How a sector was forged; `None` for a real one.
fn synthetic(value: &Value) -> Option<String> {
    let seed = value.get("seed")?;
    let made = format!("made for tests from seed {seed}: no network takes its proof");
    match (value["challenges"].as_u64(), value["partitions"].as_u64()) {
        (Some(challenges), Some(partitions)) => {
            Some(format!("{made}; scaled to {challenges} challenges in each of {partitions} partitions"))
        }
        _ => Some(made),
    }
}

fn request(value: &Value) -> Finding {
    Finding::new("request")
        .with("proof kind", value["proof_kind"].clone())
        .with("registered proof", value["registered_proof"].clone())
        .with("sector size", value["sector_size"].clone())
        .with("sector number", value["sector_number"].clone())
        .with("miner id", value["miner_id"].clone())
        .with("vanilla files", value["vanilla"].as_array().map(|list| list.len() as u64))
}

/// `json.Marshal([][]byte)` of Go: an array of base64 strings.
fn vanilla_list(list: &[Value]) -> Option<Finding> {
    let decode = |item: &Value| STANDARD.decode(item.as_str()?).ok();
    let decoded: Vec<Vec<u8>> = list.iter().map(decode).collect::<Option<_>>()?;
    let sizes: Vec<u64> = decoded.iter().map(|proof| proof.len() as u64).collect();
    (!sizes.is_empty()).then(|| {
        Finding::new("list of vanilla proofs (base64)")
            .with("vanilla proofs", sizes.len() as u64)
            .with("sizes in bytes", sizes)
    })
}
