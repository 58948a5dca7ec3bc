//! Proofs from a file or a peer: what is accepted is 192 bytes, in the one encoding of its points.
#![no_main]

use cuzk::groth16::proof::PROOF_BYTES;
use cuzk::groth16::Proof;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(proof) = Proof::from_bytes(bytes) {
        assert_eq!(bytes.len(), PROOF_BYTES);
        assert!(proof.to_bytes() == bytes);
    }
});
