//! Manifests of recorded jobs: every view of what is accepted answers.
#![no_main]

use cuzk::circuits::manifest::Manifest;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(manifest) = Manifest::from_json(bytes) else { return };
    let _ = manifest.circuit_spec();
    for index in 0..3 {
        let _ = (manifest.blindings(index), manifest.public_inputs(index), manifest.proof(index));
    }
});
