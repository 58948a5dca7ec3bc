//! The valid seeds of the fuzz targets are still accepted: a target whose seeds have gone stale finds nothing.

use std::path::{Path, PathBuf};

use cuzk::circuits::request::RequestFile;
use cuzk::groth16::srs_file::{decode_srs, decode_vk};
use cuzk::groth16::{Proof, R1csShape};
use sha2::{Digest, Sha256};

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

#[test]
fn shapes() {
    let mut file = seed("shape_file/three-squarings");
    let digest = Sha256::digest(&file);
    file.extend(digest);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("shape");
    std::fs::write(&path, file).unwrap();
    let shape = R1csShape::load(&path).unwrap();
    let srs = decode_srs(&seed("srs_file/three-squarings.params")).unwrap();
    srs.check_fits(&shape).unwrap();
}

#[test]
fn requests() {
    let file: RequestFile = serde_json::from_slice(&seed("request_json/window-2k.json")).unwrap();
    file.into_request(Path::new(".")).unwrap().decode(Path::new(".")).unwrap();
    for name in ["by-file.json", "snap.json"] {
        serde_json::from_slice::<RequestFile>(&seed(&format!("request_json/{name}"))).unwrap();
    }
}
