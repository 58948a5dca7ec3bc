//! Vanilla proofs in a request that is right otherwise, as each of the four kinds, with short and with deep trees. Decoding
//! checks every path in them.
#![no_main]

use std::path::Path;
use std::sync::OnceLock;

use cuzk::circuits::manifest::Manifest;
use cuzk::circuits::{FilecoinRequest, ProofKind};
use cuzk_fuzz::let_caught_panics_be;
use libfuzzer_sys::fuzz_target;

/// Recorded jobs whose requests lend all but the vanilla proof.
const JOBS: [&str; 8] = [
    "winning-2k/sector-1",
    "winning-8m/sector-1",
    "window-2k/padded-partition",
    "window-8m/padded-partition",
    "snap-2k/sector-1",
    "snap-8m/sector-1",
    "porep-2k/sector-1",
    "porep-8m/sector-1",
];

fn templates() -> &'static [FilecoinRequest] {
    static TEMPLATES: OnceLock<Vec<FilecoinRequest>> = OnceLock::new();
    TEMPLATES.get_or_init(|| {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/filecoin");
        let template = |job| {
            let dir = data.join(job);
            let manifest = Manifest::read(&dir.join("manifest.json")).expect("a recorded job");
            let request = manifest.request(0, &dir).expect("a recorded request");
            request.clone().decode(Path::new(".")).expect("the recorded request holds");
            request
        };
        JOBS.map(template).into()
    })
}

fuzz_target!(|bytes: &[u8]| {
    let_caught_panics_be();
    for template in templates() {
        let mut request = template.clone();
        match request.proof_kind {
            Some(ProofKind::PorepSealCommit) => request.vanilla_proof = bytes.to_vec(),
            _ => request.vanilla_proofs = vec![bytes.to_vec()],
        }
        // Holding or not is all the same: what counts is that an answer comes.
        let _ = request.decode(Path::new("."));
    }
});
