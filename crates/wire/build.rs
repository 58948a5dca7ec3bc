//! Compiles the contract with a compiler written in Rust, so that no `protoc` is needed.

use std::path::PathBuf;
use std::{env, error, fs};

use protox::prost::Message;

fn main() -> Result<(), Box<dyn error::Error>> {
    const CONTRACT: &str = "proto/cuzk/v1/proving_engine.proto";
    println!("cargo::rerun-if-changed={CONTRACT}");
    let files = protox::compile([CONTRACT], ["proto"])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    // What `grpc.reflection` serves.
    fs::write(out.join("contract.bin"), files.encode_to_vec())?;
    // Bulk fields are shared, not copied, on their way from the connection to the decoder.
    tonic_prost_build::configure().bytes(".cuzk.v1.SubmitProofRequest").compile_fds(files)?;
    Ok(())
}
