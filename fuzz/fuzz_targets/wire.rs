//! A caller's message: decoded, taken over, and read as a request. Any bytes may come.
#![no_main]

use std::path::Path;

use cuzk::circuits::request::WireRequest;
use cuzk_wire::v1::ProveRequest;
use libfuzzer_sys::fuzz_target;
use prost::Message;

fuzz_target!(|bytes: &[u8]| {
    cuzk_fuzz::let_caught_panics_be();
    let Ok(ProveRequest { submit: Some(submit) }) =
        ProveRequest::decode(bytes::Bytes::copy_from_slice(bytes))
    else {
        return;
    };
    if let Ok(WireRequest { request, .. }) = WireRequest::from_wire(submit) {
        // Not opened: a request is decoded without its parameter file.
        let _ = request.decode(Path::new("/nonexistent"));
    }
});
