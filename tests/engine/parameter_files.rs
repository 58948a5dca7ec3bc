//! Bad parameter files, one after the other, and an engine that outlives them all.

use std::fs;
use std::path::Path;

use cuzk::circuits::{CustomCircuit, SrsSource};
use cuzk::error::{EngineError, ErrorClass, SrsError};
use cuzk::groth16::srs_file::write_srs;
use cuzk::ids::CircuitId;
use cuzk::messages::job::{Payload, ProofRequest};

use crate::simulation::{config, prove, simulate};
use crate::squares::{holds, request, srs, srs_of, Squares, NUM_SQUARINGS};

/// A circuit of its own, whose key is in the file.
fn request_with(file: &Path, x: u64) -> ProofRequest {
    let instances = vec![(Squares::of(x), Squares::of(x).public_inputs())];
    let (name, blank) = (CircuitId::new("squares-of-file"), Squares::blank(NUM_SQUARINGS));
    let circuit = CustomCircuit::new(name, SrsSource::File(file.to_owned().into()), blank, instances);
    ProofRequest::new(Payload::Workload(circuit.into_workload()))
}

#[test]
fn b37_one_engine_refuses_every_bad_file_and_proves_other_circuits_after_each() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("squares.params");
    write_srs(&file, &srs()).unwrap();
    let good = fs::read(&file).unwrap();
    write_srs(&file, &srs_of(NUM_SQUARINGS + 1)).unwrap();
    let foreign = fs::read(&file).unwrap();
    let mut off_curve = good.clone();
    off_curve[95] ^= 1;
    type Expected = fn(&SrsError) -> bool;
    let bad: [(&str, Option<Vec<u8>>, Expected); 6] = [
        ("missing", None, |error| matches!(error, SrsError::Missing { .. })),
        ("empty", Some(Vec::new()), |error| matches!(error, SrsError::Length { has_bytes: 0, .. })),
        ("half", Some(good[..good.len() / 2].to_vec()), |error| matches!(error, SrsError::Length { .. })),
        ("longer", Some([&good[..], &[0]].concat()), |error| matches!(error, SrsError::Length { .. })),
        ("off the curve", Some(off_curve), |error| matches!(error, SrsError::Point { index: 0, .. })),
        ("foreign", Some(foreign), |error| matches!(error, SrsError::Mismatch { .. })),
    ];
    simulate(config("sim:1"), |engine| async move {
        for ((name, bytes, expected), x) in bad.into_iter().zip(2..) {
            match bytes {
                Some(bytes) => fs::write(&file, bytes).unwrap(),
                None => fs::remove_file(&file).unwrap(),
            }
            let error = prove(&engine, request_with(&file, x)).await.unwrap_err();
            let EngineError::Srs { source, circuit } = &error else { panic!("{name}: {error:?}") };
            assert!(expected(source), "{name}: {source:?}");
            assert!(error.to_string().contains("squares.params"), "{name}: {error}");
            assert_eq!((circuit.as_str(), error.class()), ("squares-of-file", ErrorClass::Caller), "{name}");
            let outcome = prove(&engine, request("", &[x])).await.unwrap();
            assert!(holds(&outcome.proof, &[x]), "{name}: the other circuit");
        }
        // The file was mended: so is its circuit, without a restart.
        fs::write(&file, &good).unwrap();
        assert!(holds(&prove(&engine, request_with(&file, 9)).await.unwrap().proof, &[9]));
        let status = engine.wait_status(|status| status.totals.completed == 7).await.unwrap();
        assert_eq!((status.totals.failed, status.totals.dispatched), (6, 7), "nothing bad was proved");
        drop(dir);
    });
}
