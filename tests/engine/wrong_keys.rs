//! A key with the right counts by which nobody can prove, and devices that are not to blame for it.

use std::path::Path;
use std::sync::Arc;

use cuzk::circuits::{CustomCircuit, SrsSource};
use cuzk::engine::{Engine, EngineConfig};
use cuzk::error::{EngineError, ErrorClass, SrsError};
use cuzk::groth16::srs_file::write_srs;
use cuzk::groth16::Srs;
use cuzk::ids::CircuitId;
use cuzk::messages::job::{Payload, ProofRequest};
use cuzk::messages::status::EngineStatus;

use crate::simulation::{config, health_of, prove, simulate, submit_all};
use crate::squares::{holds, request, srs, srs_of_seed, Squares, NUM_SQUARINGS};

/// The key of other secrets, but for one query: every count is right, every point valid.
fn mixed() -> Srs {
    let mut mixed = srs_of_seed(NUM_SQUARINGS, 99);
    mixed.l.clone_from(&srs().l);
    mixed
}

fn request_with(source: SrsSource, xs: &[u64]) -> ProofRequest {
    let instances = xs.iter().map(|&x| (Squares::of(x), Squares::of(x).public_inputs())).collect();
    let blank = Squares::blank(NUM_SQUARINGS);
    let circuit = CustomCircuit::new(CircuitId::new("mixed"), source, blank, instances);
    ProofRequest::new(Payload::Workload(circuit.into_workload()))
}

async fn assert_unfit(engine: &Engine, source: SrsSource, path: &Path, xs: &[u64]) {
    let error = prove(engine, request_with(source, xs)).await.unwrap_err();
    match &error {
        EngineError::Srs { source: SrsError::Unfit { path: named }, .. } => assert_eq!(named, path),
        _ => panic!("{error}"),
    }
    assert_eq!(error.class(), ErrorClass::Caller, "the same request fails again");
}

#[test]
fn b38_a_wrong_key_with_the_right_counts_is_named_and_no_device_is_blamed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mixed.params");
    write_srs(&path, &mixed()).unwrap();
    for fleet in ["sim:1", "sim:2", "sim:3;lanes=2"] {
        let path = path.clone();
        simulate(config(fleet), |engine| async move {
            engine.wait_ready().await.unwrap();
            let file = SrsSource::File(path.clone().into());
            assert_unfit(&engine, file, &path, &[2]).await;
            let memory = SrsSource::Memory(Arc::new(mixed()));
            assert_unfit(&engine, memory, Path::new("<memory>"), &[2, 3, 4, 5]).await;
            // A partition that was under way when the key was found out ends its stage first.
            let is_free = |status: &EngineStatus| status.host_memory_reserved_bytes == 0;
            let status = engine.wait_status(is_free).await.unwrap();
            for (index, device) in status.devices.iter().enumerate() {
                assert_eq!((health_of(&engine, index).as_str(), device.invalid_proofs), ("healthy", 0));
            }
            assert!(status.totals.invalid_proofs >= 2, "{:?}", status.totals);
            // Everything else goes on.
            let outcome = prove(&engine, request("", &[2, 3])).await.unwrap();
            assert!(holds(&outcome.proof, &[2, 3]));
        });
    }
}

#[test]
fn jobs_of_a_wrong_key_all_end_and_others_beside_them_are_proved() {
    simulate(config("sim:2;lanes=2"), |engine| async move {
        let wrong = Arc::new(mixed());
        let bad = submit_all(
            &engine,
            (0..6).map(|x| request_with(SrsSource::Memory(Arc::clone(&wrong)), &[x + 2])),
        );
        let bad = bad.await;
        let good = submit_all(&engine, (2..8).map(|x| request("", &[x]))).await;
        for job in &bad {
            let error = job.wait().await.unwrap_err();
            assert!(matches!(error, EngineError::Srs { source: SrsError::Unfit { .. }, .. }), "{error}");
        }
        for (job, x) in good.iter().zip(2..) {
            assert!(holds(&job.wait().await.unwrap().proof, &[x]));
        }
        for index in 0..2 {
            assert_eq!(health_of(&engine, index), "healthy");
        }
        let devices = &engine.status().devices;
        assert!(devices.iter().all(|device| device.partition_planned_bytes >= device.partition_peak_bytes));
        assert!(devices.iter().any(|device| device.partition_peak_bytes > 0));
    });
}

/// The same on threads and a clock that runs.
#[test]
fn a_wrong_key_on_real_threads() {
    let engine = Engine::start(EngineConfig { synthesis_threads: 2, ..config("sim:2") }).unwrap();
    let job = engine.submit_blocking(request_with(SrsSource::Memory(Arc::new(mixed())), &[2, 3])).unwrap();
    let error = job.wait_blocking().unwrap_err();
    assert!(matches!(error, EngineError::Srs { source: SrsError::Unfit { .. }, .. }), "{error}");
    drop(job);
    engine.shutdown_blocking(std::time::Duration::from_secs(60));
}
