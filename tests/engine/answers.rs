//! Right answers: identity, verification, refusals.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bellpepper_core::{Circuit, ConstraintSystem};
use blstrs::Scalar;
use cuzk::backend::sim::{SimConfig, SimFleet};
use cuzk::circuits::{CustomCircuit, FilecoinRequest, ParameterFile, SrsSource, WorkKind};
use cuzk::engine::{DeviceSpec, Engine, EngineConfig};
use cuzk::error::{DeviceError, EngineError, RequestError, SrsError, SynthesisError};
use cuzk::groth16::generate::{generate_params, generate_srs};
use cuzk::groth16::{PreparedVerifyingKey, Proof, R1csShape, Srs};
use cuzk::ids::{CircuitId, PartitionIndex};
use cuzk::messages::job::{JobEvent, Payload, ProofRequest};
use cuzk::messages::status::EngineStatus;
use rand::rngs::OsRng;
use rand::SeedableRng;
use rand_chacha::ChaCha20Rng;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use crate::kinds::{of_kind, ALL_KINDS};
use crate::simulation::{
    config, device, find, health_becomes, health_of, num_on, placed, prove, simulate, submit_all,
};
use crate::squares::{holds, request, srs, workload, Squares, NUM_SQUARINGS};

#[test]
fn b30_work_is_identified_by_id_kind_and_digest() {
    simulate(config("sim:2"), |engine| async move {
        let first = engine.submit(request("same", &[2, 3])).await.unwrap();
        let other = engine.submit(request("same", &[4, 5])).await.unwrap();
        let again = engine.submit(request("same", &[2, 3])).await.unwrap();
        let other_kind = of_kind(WorkKind::WindowPost, "same", &[2, 3]);
        let other_kind = engine.submit(other_kind).await.unwrap();
        assert_eq!(again.id(), first.id());
        assert_eq!(BTreeSet::from([first.id(), other.id(), other_kind.id()]).len(), 3);
        assert!(holds(&first.wait().await.unwrap().proof, &[2, 3]));
        assert!(holds(&other.wait().await.unwrap().proof, &[4, 5]));
        assert!(holds(&other_kind.wait().await.unwrap().proof, &[2, 3]));
        assert_eq!(again.wait().await.unwrap().proof, first.wait().await.unwrap().proof);

        // A finished result is served to whoever asks again, without device work.
        let dispatched = engine.status().totals.dispatched;
        let mut later = engine.submit(request("same", &[4, 5])).await.unwrap();
        assert_eq!(later.id(), other.id());
        assert_eq!(later.wait().await.unwrap().proof, other.wait().await.unwrap().proof);
        find(&mut later.events(), |event| matches!(event, JobEvent::Finished(Ok(_))).then_some(())).await;
        assert_eq!(engine.status().totals.dispatched, dispatched);
    });
}

#[test]
fn b31_no_job_vanishes_while_the_device_is_busy() {
    simulate(config("sim:1;stage=50ms"), |engine| async move {
        let xs: Vec<u64> = (2..10).collect();
        let mut busy = engine.submit(request("", &xs)).await.unwrap();
        find(&mut busy.events(), placed).await;
        let posts = submit_all(
            &engine,
            (0..5).map(|index| of_kind(WorkKind::WindowPost, &format!("post-{index}"), &[20 + index])),
        )
        .await;
        for (index, post) in posts.iter().enumerate() {
            assert!(holds(&post.wait().await.unwrap().proof, &[20 + index as u64]));
        }
        assert!(busy.result().is_none(), "HIGH went before the rest of NORMAL");
        assert!(holds(&busy.wait().await.unwrap().proof, &xs));
    });
}

#[test]
fn b32_a_proof_of_any_kind_is_verified_before_it_is_returned() {
    for kind in ALL_KINDS {
        simulate(config("sim:2;0:corrupt@*"), |engine| async move {
            let outcome = prove(&engine, of_kind(kind, "b32", &[2, 3, 4])).await.unwrap();
            assert!(holds(&outcome.proof, &[2, 3, 4]));
            assert_eq!(num_on(&outcome, 1), 3);
            assert!(outcome.retries >= 1 && engine.status().totals.invalid_proofs >= 1);
        });
    }
}

#[test]
fn b32_with_nothing_but_a_corrupting_device_the_job_fails() {
    for kind in ALL_KINDS {
        simulate(config("sim:1;0:corrupt@*"), |engine| async move {
            let error = prove(&engine, of_kind(kind, "b32", &[2])).await.unwrap_err();
            assert!(matches!(error, EngineError::Device(DeviceError::InvalidProof { .. })), "{error}");
            let totals = engine.status().totals;
            assert_eq!((totals.dispatched, totals.invalid_proofs, totals.completed), (3, 3, 0));
            assert_eq!(health_of(&engine, 0), "quarantined");
        });
    }
}

#[test]
fn b33_a_device_that_corrupts_is_found_and_left_out() {
    simulate(config("sim:2;0:corrupt@*"), |engine| async move {
        let jobs = submit_all(&engine, (2..22).map(|x| request("", &[x]))).await;
        for (job, x) in jobs.iter().zip(2..) {
            let outcome = job.wait().await.unwrap();
            assert!(holds(&outcome.proof, &[x]));
            assert_eq!(outcome.devices, [device(1)]);
        }
        assert_eq!(health_of(&engine, 0), "quarantined");
        assert_eq!(health_of(&engine, 1), "healthy");
        // Suspect after one, left out after two; a third may have been under way when the second was found out.
        let status = engine.status();
        assert!((2..=3).contains(&status.devices[0].invalid_proofs), "{:?}", status.devices);
        assert_eq!(status.totals.invalid_proofs, status.devices[0].invalid_proofs);
        // After its quarantine it is probed once.
        let quarantined = Instant::now();
        health_becomes(&engine, 0, "probation").await;
        assert!(quarantined.elapsed() <= Duration::from_secs(61), "{:?}", quarantined.elapsed());
    });
}

#[test]
fn b38_a_proving_key_of_another_circuit_is_refused_before_any_launch() {
    simulate(config("sim:1"), |engine| async move {
        let blank = Squares::blank(NUM_SQUARINGS + 1);
        let circuit = Squares { num_squarings: NUM_SQUARINGS + 1, ..Squares::of(2) };
        let inputs = circuit.public_inputs();
        let workload = CustomCircuit::new(
            CircuitId::new("more-squares"),
            SrsSource::Memory(srs()),
            blank,
            vec![(circuit, inputs)],
        );
        let request = ProofRequest::new(Payload::Workload(workload.into_workload()));
        let error = prove(&engine, request).await.unwrap_err();
        let EngineError::Srs { circuit, source: SrsError::Mismatch { .. } } = &error else {
            panic!("{error}")
        };
        assert_eq!(circuit.as_str(), "more-squares");
        assert_eq!(engine.status().totals.dispatched, 0);
    });
}

#[test]
fn b36_a_pinned_parameter_file_is_that_file_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (path, vk_path) = (dir.path().join("squares.params"), dir.path().join("squares.vk"));
    let shape = R1csShape::record(Squares::blank(NUM_SQUARINGS)).unwrap();
    generate_params(&shape, &mut OsRng, &path, &vk_path, &|_, _| {}).unwrap();
    let right: [u8; 32] = Sha256::digest(std::fs::read(&path).unwrap()).into();
    let pinned = move |expected_sha256| {
        let source =
            SrsSource::File(ParameterFile { path: path.clone(), expected_sha256: Some(expected_sha256) });
        let (blank, circuit) = (Squares::blank(NUM_SQUARINGS), Squares::of(2));
        let inputs = circuit.public_inputs();
        let job = CustomCircuit::new(CircuitId::new("pinned"), source, blank, vec![(circuit, inputs)]);
        ProofRequest::new(Payload::Workload(job.into_workload()))
    };
    simulate(config("sim:1"), |engine| async move {
        let error = prove(&engine, pinned([7; 32])).await.unwrap_err();
        let EngineError::Srs { source: SrsError::Digest { needs, has, .. }, .. } = &error else {
            panic!("{error}")
        };
        assert_eq!((needs, has), (&hex::encode([7; 32]), &hex::encode(right)));
        assert_eq!(engine.status().totals.dispatched, 0);
        prove(&engine, pinned(right)).await.unwrap();
    });
}

#[test]
fn b40_an_unsatisfied_witness_fails_before_device_work_naming_the_constraint() {
    simulate(config("sim:1"), |engine| async move {
        let broken = Squares { broken_at: Some(3), ..Squares::of(5) };
        let request = ProofRequest::new(Payload::Workload(workload(vec![Squares::of(2), broken])));
        let error = prove(&engine, request).await.unwrap_err();
        let EngineError::Synthesis { at, source } = &error else { panic!("{error}") };
        assert_eq!(at.partition, Some(PartitionIndex(1)));
        let num_constraints = NUM_SQUARINGS;
        assert_eq!(*source, SynthesisError::Unsatisfied { index: 3, num_constraints });
        // Partition 0 may have gone ahead; the broken one has not, and the engine goes on.
        assert!(engine.status().totals.dispatched <= 1);
        assert!(holds(&prove(&engine, crate::squares::request("", &[6])).await.unwrap().proof, &[6]));
    });
}

#[test]
fn b40_a_witness_that_devices_check_fails_its_job_and_blames_no_device() {
    let fleet: SimFleet = "sim:2".parse().unwrap();
    let devices = fleet.devices().iter().cloned();
    let devices = devices.map(|device| DeviceSpec::Sim(Box::new(SimConfig { checks_rows: true, ..device })));
    simulate(EngineConfig { devices: devices.collect(), ..config("sim:1") }, |engine| async move {
        // One that is still opening might be of another sort.
        let is_open = |status: &EngineStatus| status.devices.iter().all(|device| device.state == "ready");
        engine.wait_status(is_open).await.unwrap();
        let broken = Squares { broken_at: Some(3), ..Squares::of(5) };
        let request = ProofRequest::new(Payload::Workload(workload(vec![Squares::of(2), broken])));
        // Nobody looks at all rows before the proof, and these devices never at the broken one: the verifier finds out.
        let error = prove(&engine, request).await.unwrap_err();
        let EngineError::Synthesis { at, source } = &error else { panic!("{error}") };
        assert_eq!(at.partition, Some(PartitionIndex(1)));
        assert!(matches!(source, SynthesisError::Unsatisfied { index: 3, .. }), "{source}");
        for index in 0..2 {
            assert_eq!(health_of(&engine, index), "healthy");
        }
        assert_eq!(engine.status().totals.invalid_proofs, 0);
        assert!(holds(&prove(&engine, crate::squares::request("", &[6, 7])).await.unwrap().proof, &[6, 7]));
    });
}

#[test]
fn b61_the_reason_of_a_failure_reaches_the_caller() {
    simulate(config("sim:1"), |engine| async move {
        let panics = Squares { panics: true, ..Squares::of(2) };
        let error = prove(&engine, ProofRequest::new(Payload::Workload(workload(vec![panics])))).await;
        let error = error.unwrap_err();
        assert!(error.to_string().contains("this circuit panics on purpose"), "{error}");
        assert!(error.to_string().starts_with("job 0001 partition 0"), "{error}");

        let missing = CustomCircuit::new(
            CircuitId::new("nowhere"),
            SrsSource::File("/nowhere/at/all.params".into()),
            Squares::blank(NUM_SQUARINGS),
            vec![(Squares::of(2), Squares::of(2).public_inputs())],
        );
        let error = prove(&engine, ProofRequest::new(Payload::Workload(missing.into_workload()))).await;
        let error = error.unwrap_err();
        assert!(error.to_string().contains("/nowhere/at/all.params"), "{error}");

        let empty = ProofRequest::new(Payload::Filecoin(Box::<FilecoinRequest>::default()));
        let error = engine.submit(empty).await.unwrap_err();
        assert!(matches!(error, EngineError::Request(_)), "{error}");
        let none = ProofRequest::new(Payload::Workload(workload(Vec::new())));
        let error = engine.submit(none).await.unwrap_err();
        assert!(matches!(error, EngineError::Request(RequestError::Field { .. })), "{error}");

        let totals = engine.status().totals;
        assert_eq!((totals.accepted, totals.failed, totals.completed, totals.dispatched), (2, 2, 0, 0));
    });
}

/// [`Squares`] whose shape is recorded only once its gate is open.
#[derive(Clone)]
struct Gated {
    squares: Squares,
    gate: Arc<Mutex<()>>,
}

impl Circuit<Scalar> for Gated {
    fn synthesize<CS: ConstraintSystem<Scalar>>(
        self,
        cs: &mut CS,
    ) -> Result<(), bellpepper_core::SynthesisError> {
        if self.squares.x.is_none() {
            drop(self.gate.lock());
        }
        self.squares.synthesize(cs)
    }
}

#[test]
fn an_earlier_key_that_comes_late_is_not_taken_for_the_one_asked_for() {
    let engine = Engine::start(EngineConfig { synthesis_threads: 2, ..config("sim:1") }).unwrap();
    let shape = R1csShape::record(Squares::blank(NUM_SQUARINGS)).unwrap();
    let other_srs = Arc::new(generate_srs(&shape, &mut ChaCha20Rng::seed_from_u64(99)).unwrap());
    let request = |srs: &Arc<Srs>, gate: &Arc<Mutex<()>>| {
        let gated = |squares| Gated { squares, gate: Arc::clone(gate) };
        let instance = (gated(Squares::of(2)), Squares::of(2).public_inputs());
        let (id, source) = (CircuitId::new("gated"), SrsSource::Memory(Arc::clone(srs)));
        let circuit = CustomCircuit::new(id, source, gated(Squares::blank(NUM_SQUARINGS)), vec![instance]);
        ProofRequest::new(Payload::Workload(circuit.into_workload()))
    };
    let (first_gate, second_gate) = (Arc::default(), Arc::default());
    let (first_closed, second_closed) = (Mutex::lock(&first_gate), Mutex::lock(&second_gate));

    let mut first = engine.submit_blocking(request(&srs(), &first_gate)).unwrap();
    let at_its_gate = |event: JobEvent| matches!(event, JobEvent::CircuitLoading { what: "shape", .. });
    assert!(first.events().blocking_iter().any(at_its_gate));
    first.cancel_blocking().unwrap();
    let second = engine.submit_blocking(request(&other_srs, &second_gate)).unwrap();
    // The first is still being loaded, and its memory is not free, though nobody waits for it.
    let is_loading = |status: &EngineStatus, num_keys: u64| {
        let [circuit] = &status.circuits[..] else { return false };
        let num_bytes = circuit.num_bytes;
        circuit.state == "loading"
            && num_bytes > 0
            && status.circuit_memory_reserved_bytes == num_keys * num_bytes
    };
    engine.wait_status_blocking(|status| is_loading(status, 2)).unwrap();
    drop(first_closed);
    // Now it was prepared and let go, and is not taken for the one that is waited for.
    engine.wait_status_blocking(|status| is_loading(status, 1)).unwrap();
    drop(second_closed);
    let outcome = second.wait_blocking().unwrap();
    let proof = Proof::from_bytes(&outcome.proof).unwrap();
    let vk = PreparedVerifyingKey::new(&other_srs.vk);
    assert!(vk.verify(&proof, &Squares::of(2).public_inputs()));
    drop((first, second));
    engine.shutdown_blocking(Duration::from_secs(60));
}
