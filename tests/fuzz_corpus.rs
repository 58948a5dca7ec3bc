//! The seeds of the fuzz targets are what they are for: the valid ones are accepted (a target whose seeds have gone stale
//! finds nothing), and those named `bad-…` refused.

use std::path::{Path, PathBuf};

use cuzk::circuits::manifest::Manifest;
use cuzk::circuits::request::RequestFile;
use cuzk::circuits::CircuitSpec;
use cuzk::config::Config;
use cuzk::error::SrsError;
use cuzk::groth16::generate::generate_srs;
use cuzk::groth16::prover::check_witness;
use cuzk::groth16::srs_file::{decode_srs, decode_vk, write_srs};
use cuzk::groth16::{PackedWitness, Proof, R1csShape};
use cuzk::inspect::inspect;
use cuzk::params;
use cuzk::simulation::scenario::Scenario;
use cuzk::telemetry::event_log::read_events;
use cuzk::timeline::Timeline;
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use sha2::{Digest, Sha256};

use synthetic::{Synthetic, Values};

#[path = "common/synthetic.rs"]
mod synthetic;

fn seed(path: &str) -> Vec<u8> {
    let corpus: PathBuf = [env!("CARGO_MANIFEST_DIR"), "fuzz", "corpus"].iter().collect();
    std::fs::read(corpus.join(path)).unwrap()
}

#[test]
fn parameter_files_and_proofs() {
    let srs = decode_srs(&seed("srs_file/three-squarings.params")).unwrap();
    assert_eq!(decode_vk(&seed("srs_file/three-squarings.vk")).unwrap(), srs.vk);
    for proof in ["winning-2k", "snap-2k"] {
        Proof::from_bytes(&seed(&format!("proof_bytes/{proof}"))).unwrap();
    }
}

/// The seeds of a target whose names begin with `bad-`.
fn bad_seeds(target: &str) -> Vec<(String, Vec<u8>)> {
    let dir: PathBuf = [env!("CARGO_MANIFEST_DIR"), "fuzz", "corpus", target].iter().collect();
    let names =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let bad: Vec<_> = names.filter(|name| name.starts_with("bad-")).collect();
    assert!(bad.len() >= 5, "{target}: {bad:?}");
    bad.into_iter().map(|name| (name.clone(), seed(&format!("{target}/{name}")))).collect()
}

#[test]
fn bad_parameter_files_are_refused() {
    for (name, bytes) in bad_seeds("srs_file") {
        assert!(decode_srs(&bytes).is_err(), "{name}");
        assert!(decode_vk(&bytes).is_err(), "{name}");
    }
    // Whole and valid, and of no circuit that has the other seed's shape.
    for name in ["other-counts.params", "other-zero-counts.params"] {
        let srs = decode_srs(&seed(&format!("srs_file/{name}"))).unwrap();
        let shape = load_shape(seed("shape_file/three-squarings")).unwrap();
        assert!(matches!(srs.check_fits(&shape), Err(SrsError::Mismatch { .. })), "{name}");
    }
}

/// A shape file of these bytes and their digest, as the fuzz target makes it.
fn load_shape(mut body: Vec<u8>) -> Result<R1csShape, SrsError> {
    let digest = Sha256::digest(&body);
    body.extend(digest);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("shape");
    std::fs::write(&path, body).unwrap();
    R1csShape::load(&path)
}

#[test]
fn shapes() {
    let shape = load_shape(seed("shape_file/three-squarings")).unwrap();
    let srs = decode_srs(&seed("srs_file/three-squarings.params")).unwrap();
    srs.check_fits(&shape).unwrap();
    for (name, body) in bad_seeds("shape_file") {
        assert!(matches!(load_shape(body), Err(SrsError::ShapeFile { .. })), "{name}");
    }
}

/// Seeds with every feature of real files: many inputs, coefficients, densities that leave variables out. Where the
/// formats change, `CUZK_WRITE_SEEDS=1 cargo test --test fuzz_corpus` makes them anew.
#[test]
fn larger_seeds_are_what_this_version_makes() {
    let circuit = Synthetic::new(90, Values::Bits);
    let recorded = R1csShape::record(circuit.clone()).unwrap();
    let srs = generate_srs(&recorded, &mut ChaCha20Rng::seed_from_u64(90)).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (params, shape) = (dir.path().join("params"), dir.path().join("shape"));
    write_srs(&params, &srs).unwrap();
    recorded.save(&shape).unwrap();
    let params = std::fs::read(params).unwrap();
    let mut shape = std::fs::read(shape).unwrap();
    // The fuzz target adds the digest.
    shape.truncate(shape.len() - 32);
    let seeds = [("srs_file/synthetic-90.params", params), ("shape_file/synthetic-90", shape)];
    if std::env::var_os("CUZK_WRITE_SEEDS").is_some() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
        seeds.iter().for_each(|(name, bytes)| std::fs::write(corpus.join(name), bytes).unwrap());
    }
    for (name, bytes) in &seeds {
        assert!(seed(name) == *bytes, "{name} is of another version: make it anew");
    }
    decode_srs(&seeds[0].1).unwrap().check_fits(&load_shape(seed(seeds[1].0)).unwrap()).unwrap();
    let witness = PackedWitness::synthesize(circuit, &recorded).unwrap();
    check_witness(&recorded, &witness, &witness.inputs[1..]).unwrap();
}

#[test]
fn configurations() {
    for name in ["every-key.toml", "small.toml"] {
        let text = String::from_utf8(seed(&format!("config/{name}"))).unwrap();
        Config::from_toml(&text, name).unwrap();
    }
    let every: toml::Table = String::from_utf8(seed("config/every-key.toml")).unwrap().parse().unwrap();
    let all = toml::Table::try_from(Config::default()).unwrap();
    let keys = |table: &toml::Table| -> Vec<String> {
        let of_section = |(section, keys): (&String, &toml::Value)| {
            let keys = keys.as_table().unwrap().keys();
            keys.map(|key| format!("{section}.{key}")).collect::<Vec<_>>()
        };
        table.iter().flat_map(of_section).collect()
    };
    assert_eq!(keys(&every), keys(&all), "every key is in the seed");
}

/// Recorded jobs whose files `fuzz/run.sh` gives to the targets of manifests and vanilla proofs.
const JOBS: [&str; 9] = [
    "winning-2k/sector-1",
    "winning-8m/sector-1",
    "window-2k/padded-partition",
    "window-2k/two-partitions",
    "window-8m/padded-partition",
    "snap-2k/sector-1",
    "snap-8m/sector-1",
    "porep-2k/sector-1",
    "porep-8m/sector-1",
];

/// What the target of vanilla proofs reads of a file at most.
const VANILLA_MAX_BYTES: u64 = 294_912;

#[test]
fn manifests_and_vanilla_proofs() {
    let script = include_str!("../fuzz/run.sh");
    for job in JOBS {
        assert!(script.contains(&format!("$data/{job}")), "fuzz/run.sh has no seeds of {job}");
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/filecoin").join(job);
        let bytes = std::fs::read(dir.join("manifest.json")).unwrap();
        let manifest = Manifest::from_json(&bytes).unwrap();
        assert!(bytes.len() < 16384 || !job.starts_with('w'), "{job}: the target reads no more");
        manifest.request(0, &dir).unwrap().decode(Path::new(".")).unwrap();
        for entry in std::fs::read_dir(&dir).unwrap() {
            let entry = entry.unwrap();
            let num_bytes = entry.metadata().unwrap().len();
            assert!(num_bytes <= VANILLA_MAX_BYTES, "{job}: {entry:?} is cut");
        }
    }
    assert!(script.contains(&format!("-max_len={VANILLA_MAX_BYTES}")));
}

#[test]
fn texts() {
    let texts = |kind: u8| {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/texts");
        let seeds =
            std::fs::read_dir(dir).unwrap().map(|entry| std::fs::read(entry.unwrap().path()).unwrap());
        let of_kind: Vec<Vec<u8>> =
            seeds.filter(|seed| seed[0] == kind).map(|seed| seed[1..].to_vec()).collect();
        assert!(!of_kind.is_empty());
        of_kind
    };
    let file = tempfile::NamedTempFile::new().unwrap();
    for log in texts(b'E') {
        std::fs::write(file.path(), log).unwrap();
        let events = read_events(file.path()).unwrap();
        assert_eq!(Timeline::new(&events).summary().devices.len(), 1);
    }
    for scenario in texts(b'S') {
        std::fs::write(file.path(), scenario).unwrap();
        Scenario::read(file.path()).unwrap();
    }
    for list in texts(b'P') {
        let list = params::Manifest::from_json(std::str::from_utf8(&list).unwrap()).unwrap();
        list.files_of(&CircuitSpec::by_id("winning-2k").unwrap()).unwrap();
    }
}

#[test]
fn files_to_inspect() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/filecoin");
    for (path, kind) in [
        (corpus.join("srs_file/three-squarings.params"), "parameter file"),
        (corpus.join("srs_file/three-squarings.vk"), "verifying key"),
        (corpus.join("proof_bytes/two"), "proof"),
        (corpus.join("request_json/snap.json"), "request"),
        (data.join("window-2k/full-partition/manifest.json"), "manifest"),
        (data.join("window-2k/full-partition/vanilla-0.bin"), "vanilla proof of one sector (PoSt)"),
    ] {
        assert_eq!(inspect(&path).unwrap().kind, kind, "{}", path.display());
    }
    assert!(inspect(&corpus.join("srs_file/bad-identity-in-vk.vk"))
        .unwrap_err()
        .to_string()
        .contains("bad-identity"));
}

#[test]
fn requests() {
    let file: RequestFile = serde_json::from_slice(&seed("request_json/window-2k.json")).unwrap();
    file.into_request(Path::new(".")).unwrap().decode(Path::new(".")).unwrap();
    for name in ["by-file.json", "snap.json"] {
        serde_json::from_slice::<RequestFile>(&seed(&format!("request_json/{name}"))).unwrap();
    }
}

/// What a caller's message is taken for, as the fuzz target does it.
#[cfg(feature = "daemon")]
fn wire_request(bytes: &[u8]) -> Option<cuzk::circuits::request::WireRequest> {
    use prost::Message;
    let message = cuzk_wire::v1::ProveRequest::decode(bytes).ok()?;
    cuzk::circuits::request::WireRequest::from_wire(message.submit?).ok()
}

#[cfg(feature = "daemon")]
#[test]
fn messages_of_callers() {
    for name in ["winning", "window", "snap", "porep-bare", "porep-wrapped"] {
        let request = wire_request(&seed(&format!("wire/{name}"))).expect(name);
        assert!(request.request.proof_kind.is_some(), "{name}");
    }
    for (name, bytes) in bad_seeds("wire") {
        assert!(wire_request(&bytes).is_none(), "{name}");
    }
}
