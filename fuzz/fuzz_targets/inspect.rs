//! Files of any kind, as `cuzk inspect` meets them: whatever they are, there is an answer.
#![no_main]

use cuzk::inspect::inspect;
use cuzk_fuzz::with_file;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    with_file("inspect", bytes, |path| match inspect(path) {
        Ok(finding) => assert!(!finding.kind.is_empty()),
        Err(error) => {
            assert!(error.to_string().contains("cuzk-fuzz-inspect"), "the file is not named: {error}")
        }
    });
});
