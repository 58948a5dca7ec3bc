//! Stored circuit shapes. The input is a file without its digest, which is added: guessing it is no fuzzer's work.
#![no_main]

use std::path::PathBuf;
use std::sync::OnceLock;

use cuzk::groth16::R1csShape;
use libfuzzer_sys::fuzz_target;
use sha2::{Digest, Sha256};

/// One file per process, written again for every input.
fn path() -> &'static PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let name = format!("cuzk-fuzz-shape-{}", std::process::id());
        let shared_memory = PathBuf::from("/dev/shm");
        let dir = if shared_memory.is_dir() { shared_memory } else { std::env::temp_dir() };
        dir.join(name)
    })
}

fuzz_target!(|body: &[u8]| {
    let digest = Sha256::digest(body);
    std::fs::write(path(), [body, digest.as_slice()].concat()).expect("the folder can be written");
    let loaded = R1csShape::load(path());
    std::fs::remove_file(path()).expect("it was just written");
    if let Ok(shape) = loaded {
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
