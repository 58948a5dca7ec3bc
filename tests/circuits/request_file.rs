//! Request files and manifests as input.

use cuzk::circuits::manifest::Manifest;
use cuzk::circuits::request::{prover_id, HexBytes, RequestFile, RequestPriority};
use cuzk::circuits::{FilecoinRequest, ProofKind};
use cuzk::error::RequestError;
use cuzk::messages::job::Payload;

use crate::common::{decode, Fixture};

fn write(json: &str) -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("request.json");
    std::fs::write(&path, json).unwrap();
    (dir, path)
}

#[test]
fn a_request_file_is_the_manifests_request() {
    let fixture = Fixture::open("snap-2k/sector-1");
    let expected = fixture.request(0);
    let json = format!(
        r#"{{"request_id": "snap-1", "proof_kind": "SNAP_DEALS_UPDATE", "sector_size": 2048, "registered_proof": 0,
            "priority": 3, "sector_number": {}, "miner_id": {}, "comm_r_old": "{}", "comm_r_new": "{}",
            "comm_d_new": "{}", "vanilla": ["vanilla-0.bin"]}}"#,
        expected.sector_number,
        expected.miner_id,
        hex::encode(&expected.comm_r_old),
        hex::encode(&expected.comm_r_new),
        hex::encode_upper(&expected.comm_d_new),
    );
    let (_dir, path) = write(&json);
    let file = RequestFile::read(&path).unwrap();
    assert_eq!((file.request_id.as_str(), file.priority), ("snap-1", RequestPriority::High));
    assert_eq!(file.into_request(&fixture.dir).unwrap(), expected);
}

#[test]
fn enums_are_read_by_number_and_bytes_from_the_file_itself() {
    let fixture = Fixture::open("winning-2k/sector-1");
    let expected = fixture.request(0);
    let json = format!(
        r#"{{"proof_kind": 4, "priority": "critical", "miner_id": {}, "randomness": "{}", "vanilla_proofs": ["{}"]}}"#,
        expected.miner_id,
        hex::encode(&expected.randomness),
        hex::encode(&expected.vanilla_proofs[0]),
    );
    let (dir, path) = write(&json);
    let file = RequestFile::read(&path).unwrap();
    assert_eq!((file.proof_kind.0, file.priority), (ProofKind::WinningPost, RequestPriority::Critical));
    let inputs = decode(file.into_request(dir.path()).unwrap()).unwrap();
    assert_eq!(inputs.public_inputs(cuzk::ids::PartitionIndex(0)), {
        fixture.workload(0).public_inputs(cuzk::ids::PartitionIndex(0))
    });
}

#[test]
fn bad_request_files_name_the_field() {
    for (json, part) in [
        (r#"{"proof_kind": "WINNING"}"#, "\"WINNING\" is none of"),
        (r#"{"proof_kind": 0}"#, "\"0\" is none of"),
        (r#"{"proof_kind": 4, "prioritty": 1}"#, "unknown field `prioritty`"),
        (r#"{"proof_kind": 4, "priority": "URGENT"}"#, "\"URGENT\" is none of"),
        (r#"{"proof_kind": 4, "randomness": "0g"}"#, "no hexadecimal bytes"),
        (r#"{"proof_kind": 4, "miner_id": -1}"#, "invalid value: integer `-1`"),
        (r#"{"proof_kind": 4} {}"#, "trailing characters"),
        (r#"{"proof_kind": 4"#, "EOF while parsing"),
        (r#"{"miner_id": 4}"#, "missing field `proof_kind`"),
    ] {
        let (_dir, path) = write(json);
        let error = RequestFile::read(&path).unwrap_err().to_string();
        assert!(error.contains(part) && error.contains("request.json"), "{error}");
    }
}

#[test]
fn missing_and_doubled_inputs_are_named() {
    for (json, part) in [
        (r#"{"proof_kind": 1, "vanilla": ["a.json"]}"#, "a.json: cannot be read"),
        (
            r#"{"proof_kind": 1, "vanilla_proof": "00", "vanilla": ["request.json"]}"#,
            "vanilla: is given beside",
        ),
        (r#"{"proof_kind": 1, "vanilla": ["request.json", "request.json"]}"#, "vanilla: needs 1 file"),
    ] {
        let (dir, path) = write(json);
        let error = RequestFile::read(&path).unwrap().into_request(dir.path()).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn manifests_are_read_strictly() {
    let fixture = Fixture::open("winning-2k/sector-1");
    let text = std::fs::read_to_string(fixture.dir.join("manifest.json")).unwrap();
    for (from, to, part) in [
        ("\"format\": 1", "\"format\": 2", "format: is 2, only 1 is known"),
        ("\"miner_id\"", "\"minerid\"", "unknown field `minerid`"),
        ("\"number\": 0", "\"number\": 1", "registered_proof.number says 1"),
        ("\"winning-post\"", "\"winning\"", "unknown variant `winning`"),
    ] {
        assert!(text.contains(from), "{from}");
        let error = Manifest::from_json(text.replacen(from, to, 1).as_bytes()).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    let error = fixture.manifest.request(1, &fixture.dir).unwrap_err();
    assert_eq!(error.to_string(), "requests: has no index 1: 1 requests");
    let missing = Manifest::read(&fixture.dir.join("manifest.txt")).unwrap_err();
    assert!(matches!(missing, RequestError::Field { .. }), "{missing:?}");
}

#[test]
fn prover_ids_are_the_manifests() {
    for fixture in Fixture::all() {
        assert_eq!(prover_id(fixture.manifest.miner_id), fixture.manifest.prover_id.0, "{}", fixture.name);
    }
    let mut longest = [0xff; 10];
    longest[9] = 1;
    assert_eq!(prover_id(u64::MAX)[..10], longest);
}

/// Vanilla proofs hold a sector's data: what is logged of a request must not.
#[test]
fn requests_are_printed_without_their_bytes() {
    let secret = || vec![0xab; 40];
    let request = FilecoinRequest {
        vanilla_proof: secret(),
        vanilla_proofs: vec![secret(), secret()],
        randomness: secret(),
        comm_r_old: secret(),
        comm_r_new: secret(),
        comm_d_new: secret(),
        ..FilecoinRequest::default()
    };
    let bytes = "ab".repeat(40);
    let json = format!(r#"{{"proof_kind": 1, "vanilla_proof": "{bytes}", "vanilla_proofs": ["{bytes}"]}}"#);
    let (_dir, path) = write(&json);
    let file = RequestFile::read(&path).unwrap();
    let fixture = Fixture::open("winning-2k/sector-1");
    let workload = fixture.workload(0);
    for text in [
        format!("{request:?} {:?}", Payload::Filecoin(Box::new(request.clone()))),
        format!("{file:?} {:?}", HexBytes(secret())),
    ] {
        assert!(text.contains("40"), "{text}");
        assert!(!text.contains("171") && !text.to_lowercase().contains("abab"), "{text}");
    }
    // What is left of a decoded request: no list of bytes.
    let text = format!("{workload:?}");
    assert!(text.len() < 1000, "{text}");
}

#[test]
fn a_byte_order_mark_before_json_is_skipped() {
    let mark = |json: &[u8]| [b"\xef\xbb\xbf", json].concat();
    let file =
        RequestFile::from_json(&mark(br#"{"proof_kind": 4, "miner_id": 7}"#), std::path::Path::new("x"));
    assert_eq!(file.unwrap().miner_id, 7);
    let fixture = Fixture::open("porep-2k/sector-1");
    let manifest = std::fs::read(fixture.dir.join("manifest.json")).unwrap();
    assert_eq!(Manifest::from_json(&mark(&manifest)).unwrap().miner_id, fixture.manifest.miner_id);
    let plain = fixture.request(0);
    let marked = FilecoinRequest { vanilla_proof: mark(&plain.vanilla_proof), ..plain };
    assert!(decode(marked).is_ok());
}
