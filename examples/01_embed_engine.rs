//! Embeds the engine and proves a real WindowPoSt of a 2 KiB sector's partition, without any runtime.
//!
//! ```text
//! cargo run --release --example 01_embed_engine
//! ```
//!
//! It makes test parameters in a temporary folder (some seconds), proves a recorded request with the recorded blinding
//! values, checks the proof against the verifying key and against the recorded bytes, and exits non-zero if anything is
//! not as it should be. Test parameters have known secrets: anybody can forge proofs for them.

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use cuzk::circuits::manifest::Manifest;
use cuzk::engine::{DeviceSpec, Engine, EngineConfig};
use cuzk::groth16::generate::generate_params;
use cuzk::groth16::srs_file::read_vk;
use cuzk::groth16::{PreparedVerifyingKey, Proof};
use cuzk::messages::job::{BlindingSource, JobEvent, Payload, ProofRequest};

fn main() -> Result<(), Box<dyn Error>> {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/filecoin/window-2k/full-partition");
    let manifest = Manifest::read(&fixture.join("manifest.json"))?;

    // The folder of the parameter files. In production it is there already, with the network's files.
    let params_dir = tempfile::tempdir()?;
    let spec = manifest.circuit_spec()?;
    let vk_path = params_dir.path().join(spec.vk_file());
    println!("making test parameters of {} …", spec.id());
    generate_params(
        &spec.record_shape()?,
        &mut spec.test_params_rng(),
        &params_dir.path().join(spec.params_file()),
        &vk_path,
        &|_, _| {},
    )?;

    // One engine per process: it owns the devices. Clones of the handle are cheap and go to any thread.
    let engine = Engine::start(EngineConfig {
        devices: vec![DeviceSpec::Cpu { threads: 0, lanes: 1 }],
        params_dir: params_dir.path().to_owned(),
        ..EngineConfig::default()
    })?;

    // A request as it would come over the wire. The recorded blinding values make the proof's bytes predictable;
    // leave `blinding` out and they come from the operating system.
    let payload = Payload::Filecoin(Box::new(manifest.request(0, &fixture)?));
    let blinding = manifest.blindings(0)?.ok_or("the manifest has blinding values")?;
    let request = ProofRequest {
        request_id: "example-01".into(),
        blinding: BlindingSource::Fixed(blinding),
        ..ProofRequest::new(payload)
    };
    let mut job = engine.submit_blocking(request)?;
    for event in job.events().blocking_iter() {
        match event {
            JobEvent::Accepted { job, kind, num_partitions, .. } => {
                println!("job {job}: {kind}, {num_partitions} partition(s)");
            }
            JobEvent::StageDone { stage, device, elapsed, .. } => {
                println!("  {stage} on {device}: {elapsed:.1?}")
            }
            _ => {}
        }
    }
    let outcome = job.wait_blocking()?;
    println!("proved in {:.1?}: {}", outcome.timings.total, hex::encode(&outcome.proof));

    // The engine has verified it, by its own verifier and by Filecoin's. Once more, as somebody else would:
    let vk = PreparedVerifyingKey::new(&read_vk(&vk_path)?);
    let partitions = outcome.proof.chunks(192).zip(manifest.public_inputs(0)?);
    for (bytes, public_inputs) in partitions {
        if !vk.verify(&Proof::from_bytes(bytes)?, &public_inputs) {
            return Err("the proof does not verify".into());
        }
    }
    if manifest.proof(0)? != Some(outcome.proof.as_slice()) {
        return Err("the proof is not the recorded one".into());
    }
    println!("verified, and equal to the recorded proof");

    engine.shutdown_blocking(Duration::from_secs(10));
    Ok(())
}
