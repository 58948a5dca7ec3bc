//! Filecoin's own circuits, small enough for a test: parameters are made in it (some seconds each).

use std::path::Path;
use std::sync::{Arc, OnceLock};

use blstrs::Scalar;
use cuzk::circuits::manifest::Manifest;
use cuzk::circuits::{SrsSource, WorkKind, Workload};
use cuzk::engine::{Engine, EngineConfig};
use cuzk::error::{DeviceError, EngineError, RequestError, SynthesisError};
use cuzk::groth16::generate::generate_params;
use cuzk::groth16::srs_file::read_vk;
use cuzk::groth16::{PackedWitness, R1csShape, VerifyingKey};
use cuzk::ids::{CircuitId, PartitionIndex, RequestDigest};
use cuzk::messages::job::{BlindingSource, Payload, ProofRequest};
use sha2::{Digest, Sha256};
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

/// All requests of a manifest as one job: one partition each.
#[derive(Debug)]
struct Joined {
    requests: Vec<Arc<dyn Workload>>,
}

impl Joined {
    fn request(&self, partition: PartitionIndex) -> &dyn Workload {
        self.requests[partition.0 as usize].as_ref()
    }
}

impl Workload for Joined {
    fn kind(&self) -> WorkKind {
        self.requests[0].kind()
    }

    fn circuit(&self) -> &CircuitId {
        self.requests[0].circuit()
    }

    fn num_partitions(&self) -> u32 {
        self.requests.len() as u32
    }

    fn digest(&self) -> RequestDigest {
        let digests: Vec<u8> = self.requests.iter().flat_map(|request| request.digest().0).collect();
        RequestDigest(Sha256::digest(digests).into())
    }

    fn srs(&self) -> SrsSource {
        self.requests[0].srs()
    }

    fn record_shape(&self) -> Result<R1csShape, SynthesisError> {
        self.requests[0].record_shape()
    }

    fn synthesize(
        &self,
        partition: PartitionIndex,
        shape: &R1csShape,
    ) -> Result<PackedWitness, SynthesisError> {
        self.request(partition).synthesize(PartitionIndex(0), shape)
    }

    fn public_inputs(&self, partition: PartitionIndex) -> Result<Vec<Scalar>, SynthesisError> {
        self.request(partition).public_inputs(PartitionIndex(0))
    }

    fn verify_job(&self, vk: &VerifyingKey, proof: &[u8]) -> Result<(), RequestError> {
        proof.chunks(192).zip(&self.requests).try_for_each(|(part, request)| request.verify_job(vk, part))
    }
}

/// Jobs of several partitions that Filecoin has itself (non-interactive PoRep, SnapDeals from 8 MiB on) take minutes and
/// gigabytes: the nightly run replays one.
#[test]
fn several_partitions_of_filecoins_circuits_give_the_recorded_bytes_whatever_a_device_does() {
    let (dir, manifest) = manifest("window-2k/two-partitions");
    let recorded = std::fs::read(dir.join("proof.bin")).unwrap();
    for fleet in ["sim:2", "sim:2;0:corrupt@*"] {
        let engine = start(fleet);
        engine
            .wait_status_blocking(|status| status.devices.iter().all(|device| device.state == "ready"))
            .unwrap();
        let indices = 0..manifest.requests.len();
        let decode = |index| manifest.request(index, &dir).unwrap().decode(params()).unwrap();
        let requests = indices.clone().map(decode).collect();
        let blindings = indices.flat_map(|index| manifest.blindings(index).unwrap().unwrap()).collect();
        let request = ProofRequest {
            blinding: BlindingSource::Fixed(blindings),
            ..ProofRequest::new(Payload::Workload(Arc::new(Joined { requests })))
        };
        let outcome = engine.submit_blocking(request).unwrap().wait_blocking().unwrap();
        assert_eq!(outcome.devices.len(), 2);
        assert_eq!(hex::encode(&outcome.proof), hex::encode(&recorded), "{fleet}");
        if fleet.contains("corrupt") {
            assert!(outcome.devices.iter().all(|by| *by == device(1)), "{:?}", outcome.devices);
        }
        engine.shutdown_blocking(std::time::Duration::from_secs(60));
    }
}
