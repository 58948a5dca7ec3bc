//! Parameter files and keys: what is accepted has every byte accounted for.
#![no_main]

use cuzk::groth16::srs_file::{decode_srs, decode_vk};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(srs) = decode_srs(bytes) {
        // Everything but the six points of the key and the six counts is in the queries.
        assert_eq!(bytes.len() as u64, 864 + 6 * 4 + srs.num_bytes());
    }
    if let Ok(vk) = decode_vk(bytes) {
        assert_eq!(bytes.len(), 864 + 4 + 96 * vk.ic.len());
    }
});
