//! Filecoin's own circuits, small enough for a test: parameters are made in it (some seconds each).

use std::path::Path;
use std::sync::OnceLock;

use cuzk::circuits::manifest::Manifest;
use cuzk::circuits::WorkKind;
use cuzk::engine::{Engine, EngineConfig};
use cuzk::error::{DeviceError, EngineError};
use cuzk::groth16::generate::generate_params;
use cuzk::groth16::srs_file::read_vk;
use cuzk::messages::job::{Payload, ProofRequest};
use tempfile::TempDir;

use crate::simulation::{config, device};

/// Recorded jobs of the two kinds whose parameters take seconds to make. (Those of PoRep and SnapDeals take a minute
/// or two on two cores; `b32_a_proof_of_any_kind_…` has their kinds with a small circuit.)
const JOBS: [(&str, WorkKind); 2] =
    [("window-2k/padded-partition", WorkKind::WindowPost), ("winning-2k/sector-1", WorkKind::WinningPost)];

fn manifest(job: &str) -> (std::path::PathBuf, Manifest) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/filecoin").join(job);
    let manifest = Manifest::read(&dir.join("manifest.json")).unwrap();
    (dir, manifest)
}

/// A folder with the parameters of both, made once per test binary.
fn params() -> &'static Path {
    static DIR: OnceLock<TempDir> = OnceLock::new();
    let make = || {
        let dir = tempfile::tempdir().unwrap();
        for (job, _) in JOBS {
            let spec = manifest(job).1.circuit_spec().unwrap();
            let (params, vk) = (dir.path().join(spec.params_file()), dir.path().join(spec.vk_file()));
            let shape = spec.record_shape().unwrap();
            generate_params(&shape, &mut spec.test_params_rng(), &params, &vk, &|_, _| {}).unwrap();
        }
        dir
    };
    DIR.get_or_init(make).path()
}

fn request(job: &str) -> ProofRequest {
    let (dir, manifest) = manifest(job);
    ProofRequest::new(Payload::Filecoin(Box::new(manifest.request(0, &dir).unwrap())))
}

fn start(fleet: &str) -> Engine {
    let params_dir = params().to_owned();
    Engine::start(EngineConfig { params_dir, synthesis_threads: 2, ..config(fleet) }).unwrap()
}

#[test]
fn b32_filecoins_proofs_of_a_corrupting_device_are_made_again_by_another() {
    let engine = start("sim:2;0:corrupt@*");
    engine.wait_ready_blocking().unwrap();
    for (job, kind) in JOBS {
        let outcome = engine.submit_blocking(request(job)).unwrap().wait_blocking().unwrap();
        assert_eq!(outcome.kind, kind);
        assert!(outcome.devices.iter().all(|by| *by == device(1)), "{:?}", outcome.devices);
        // By Filecoin's own verifier, asked once more from outside.
        let (dir, manifest) = manifest(job);
        let workload = manifest.request(0, &dir).unwrap().decode(params()).unwrap();
        let vk = read_vk(&params().join(manifest.circuit_spec().unwrap().vk_file())).unwrap();
        workload.verify_job(&vk, &outcome.proof).unwrap();
    }
    assert!(engine.status().totals.invalid_proofs >= 1);
    assert_eq!(engine.status().devices[1].invalid_proofs, 0);
    engine.shutdown_blocking(std::time::Duration::from_secs(60));
}

#[test]
fn b32_filecoins_proofs_of_nothing_but_a_corrupting_device_are_never_returned() {
    let engine = start("sim:1;0:corrupt@*");
    // The smaller one: it is proved three times in vain, and once by the host.
    for (job, _) in &JOBS[..1] {
        let error = engine.submit_blocking(request(job)).unwrap().wait_blocking().unwrap_err();
        assert!(matches!(error, EngineError::Device(DeviceError::InvalidProof { .. })), "{error}");
    }
    // The answer goes out before the state is published.
    let status = engine.wait_status_blocking(|status| status.totals.failed > 0).unwrap();
    assert_eq!((status.totals.completed, status.totals.failed), (0, 1));
    engine.shutdown_blocking(std::time::Duration::from_secs(60));
}
