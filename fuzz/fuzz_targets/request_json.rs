//! Request files: parsed, and decoded as far as no other file is named.
#![no_main]

use std::path::Path;

use cuzk::circuits::request::RequestFile;
use cuzk_fuzz::let_caught_panics_be;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let_caught_panics_be();
    let Ok(file) = serde_json::from_slice::<RequestFile>(bytes) else { return };
    // Never open what a random path names: it may be a device.
    if file.vanilla.is_empty() {
        let request = file.into_request(Path::new(".")).expect("no file is named");
        let _ = request.decode(Path::new("."));
    }
});
