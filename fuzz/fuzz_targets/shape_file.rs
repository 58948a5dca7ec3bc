//! Stored circuit shapes. The input is a file without its digest, which is added: guessing it is no fuzzer's work.
#![no_main]

use cuzk::groth16::R1csShape;
use cuzk_fuzz::with_file;
use libfuzzer_sys::fuzz_target;
use sha2::{Digest, Sha256};

fuzz_target!(|body: &[u8]| {
    let digest = Sha256::digest(body);
    let file = [body, digest.as_slice()].concat();
    if let Ok(shape) = with_file("shape", &file, R1csShape::load) {
        // What was accepted can be used: every index is within its bounds.
        let columns = shape.num_inputs() + shape.num_aux();
        for matrix in 0..3 {
            shape.for_each_entry(matrix, &mut |row, column, _| {
                assert!(row < shape.num_rows() && column < columns);
            });
        }
        let _ = (shape.sha256(), shape.domain_log2());
    }
});
