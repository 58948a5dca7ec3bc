//! Bad parameter files, one after the other, and an engine that outlives them all.

use std::fs;
use std::path::Path;

use cuzk::circuits::{CustomCircuit, SrsSource};
use cuzk::engine::{Engine, EngineConfig};
use cuzk::error::{EngineError, ErrorClass, SrsError};
use cuzk::groth16::fold::{fold_path, Fold, FoldKey, HostTransform, LoadOptions, Watch};
use cuzk::groth16::srs_file::write_srs;
use cuzk::groth16::R1csShape;
use cuzk::ids::CircuitId;
use cuzk::messages::job::{Payload, ProofRequest};

use crate::simulation::{config, prove, simulate};
use crate::squares::{holds, request, srs, srs_of, Squares, NUM_SQUARINGS};

/// A circuit of its own, whose key is in the file.
fn request_with(file: &Path, x: u64) -> ProofRequest {
    request_named("squares-of-file", file, x)
}

fn request_named(name: &str, file: &Path, x: u64) -> ProofRequest {
    let instances = vec![(Squares::of(x), Squares::of(x).public_inputs())];
    let (name, blank) = (CircuitId::new(name), Squares::blank(NUM_SQUARINGS));
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

/// Proves once and returns the memory of the circuit's shape and key: a folded one has a point more for each input, and one.
async fn proved_with_bytes(engine: &Engine, name: &str, file: &Path) -> u64 {
    assert!(holds(&prove(engine, request_named(name, file, 3)).await.unwrap().proof, &[3]), "{name}");
    let is_there = |circuit: &cuzk::messages::status::CircuitStatus| circuit.circuit == name;
    engine.status().circuits.iter().find(|circuit| is_there(circuit)).expect("it is idle, and kept").num_bytes
}

#[test]
fn a_fold_beside_the_file_is_used_unless_it_is_damaged_or_not_wanted() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("squares.params");
    let params = write_srs(&file, &srs()).unwrap();
    let shape = R1csShape::record(Squares::blank(NUM_SQUARINGS)).unwrap();
    let key = FoldKey::new(params.sha256, &shape);
    let fold_file = fold_path(&file, &key);
    let fold = Fold::build(&srs(), &shape, &mut HostTransform, Watch::NONE).unwrap();
    for use_folds in [true, false] {
        fold.save(&fold_file, &key, &shape, LoadOptions::default(), Watch::NONE).unwrap();
        let (file, fold_file) = (file.clone(), fold_file.clone());
        simulate(EngineConfig { use_folds, ..config("sim:1") }, move |engine| async move {
            let folded = proved_with_bytes(&engine, "folded", &file).await;
            let mut bytes = fs::read(&fold_file).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            fs::write(&fold_file, &bytes).unwrap();
            let damaged = proved_with_bytes(&engine, "damaged", &file).await;
            fs::remove_file(&fold_file).unwrap();
            let plain = proved_with_bytes(&engine, "plain", &file).await;
            assert_eq!(damaged, plain, "the plain key takes its place");
            let num_inputs = srs().vk.ic.len() as u64;
            assert_eq!(folded - plain, if use_folds { 96 * (num_inputs + 1) } else { 0 });
        });
    }
    // Where the budget has room for the key and not for its fold beside it, the key is used as it is.
    fold.save(&fold_file, &key, &shape, LoadOptions::default(), Watch::NONE).unwrap();
    let host_memory_budget_bytes = fs::metadata(&file).unwrap().len() + shape.num_bytes() + fold.num_bytes();
    let short = EngineConfig { host_memory_budget_bytes, ..config("sim:1") };
    let plain_bytes = srs().num_bytes() + shape.num_bytes();
    simulate(short, move |engine| async move {
        assert_eq!(proved_with_bytes(&engine, "short", &file).await, plain_bytes);
    });
    drop(dir);
}
