//! The contract of the daemon: `cuzk.v1.ProvingEngine` as Rust types, with its client and its server trait.
//!
//! The contract itself, with the meaning of every field, is `proto/cuzk/v1/proving_engine.proto`.

pub mod client;

/// Messages, [`v1::proving_engine_client`] and [`v1::proving_engine_server`].
pub mod v1 {
    #![allow(missing_docs, clippy::all)]
    tonic::include_proto!("cuzk.v1");
}

/// The contract as a `google.protobuf.FileDescriptorSet`, for reflection.
pub const CONTRACT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/contract.bin"));

/// Bytes that one message may have in either direction. Both ends must be told: the library's own limit is 4 MiB.
pub const MESSAGE_BYTES_MAX: usize = 256 << 20;

/// Environment variable that tells clients where the daemon is, if no flag does.
pub const ADDR_VARIABLE: &str = "CUZK_ADDR";
