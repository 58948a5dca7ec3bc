//! Every recorded job: its request decodes, its public inputs, matrices and proof are the recorded ones.

use std::path::Path;

use blstrs::Scalar;
use cuzk::circuits::{CircuitSpec, FilecoinRequest, ProofKind, SrsSource, Workload};
use cuzk::error::SynthesisError;
use cuzk::groth16::fold::{Fold, HostTransform, Watch};
use cuzk::groth16::generate::{fold_from_secrets, generate_srs};
use cuzk::groth16::prover::{check_witness, prove};
use cuzk::groth16::srs_file::read_vk;
use cuzk::groth16::{PreparedVerifyingKey, Proof, R1csShape, Srs};
use cuzk::ids::PartitionIndex;

use crate::common::{data_dir, decode, shape, Fixture, PARAMS_DIR};

fn partitions(workload: &dyn Workload) -> impl Iterator<Item = PartitionIndex> {
    (0..workload.num_partitions()).map(PartitionIndex)
}

#[test]
fn every_request_decodes_to_the_recorded_public_inputs() {
    let fixtures = Fixture::all();
    assert_eq!(fixtures.len(), 27);
    for fixture in &fixtures {
        let spec = fixture.manifest.circuit_spec().unwrap();
        for index in 0..fixture.manifest.requests.len() {
            let workload = fixture.workload(index);
            assert_eq!(workload.kind(), fixture.manifest.kind, "{}", fixture.name);
            assert_eq!(*workload.circuit(), spec.id(), "{}", fixture.name);
            let recorded = fixture.manifest.public_inputs(index).unwrap();
            assert_eq!(workload.num_partitions() as usize, recorded.len(), "{}", fixture.name);
            for (partition, recorded) in partitions(&*workload).zip(&recorded) {
                assert_eq!(workload.public_inputs(partition).unwrap(), *recorded, "{}", fixture.name);
            }
            let SrsSource::File(params) = workload.srs() else { panic!("a file is named") };
            assert_eq!(params.path, Path::new(PARAMS_DIR).join(spec.params_file()));
        }
    }
}

#[test]
fn a_partition_beyond_the_last_is_an_error() {
    let workload = Fixture::open("snap-2k/sector-1").workload(0);
    let error = workload.public_inputs(PartitionIndex(1)).unwrap_err();
    assert_eq!(error.to_string(), "circuit refused its inputs: no partition 1: the job has 1 (from 0)");
}

#[test]
fn bare_and_wrapped_c1_are_the_same_statement() {
    let fixture = Fixture::open("porep-2k/sector-2");
    let mut bare = fixture.request(0);
    bare.vanilla_proof = std::fs::read(fixture.dir.join("c1.json")).unwrap();
    let bare = decode(bare).unwrap();
    let wrapped = fixture.workload(0);
    assert_eq!(bare.public_inputs(PartitionIndex(0)), wrapped.public_inputs(PartitionIndex(0)));
    assert_ne!(bare.digest(), wrapped.digest(), "the digest is of the inputs as they came");
}

#[test]
fn go_writes_keys_in_another_order_and_without_encoding_proofs() {
    let fixture = Fixture::open("porep-2k/sector-1");
    let mut c1: serde_json::Value =
        serde_json::from_slice(&std::fs::read(fixture.dir.join("c1.json")).unwrap()).unwrap();
    let proofs = c1["vanilla_proofs"]["StackedDrg2KiBV1"][0].as_array_mut().unwrap();
    for proof in proofs {
        let proof = proof.as_object_mut().unwrap();
        proof.remove("encoding_proof");
        for labeling in proof["labeling_proofs"].as_array_mut().unwrap() {
            labeling["parents"] = serde_json::Value::Array(Vec::new());
        }
    }
    // `serde_json` sorts keys, which is another order than the library's.
    let mut request = fixture.request(0);
    request.vanilla_proof = serde_json::to_vec_pretty(&c1).unwrap();
    let inputs = decode(request).unwrap().public_inputs(PartitionIndex(0)).unwrap();
    assert_eq!(inputs, fixture.manifest.public_inputs(0).unwrap()[0]);
}

#[test]
fn sizes_and_numbers_may_be_left_to_the_inputs() {
    let fixture = Fixture::open("porep-8m/sector-1");
    let mut request = fixture.request(0);
    (request.sector_size, request.registered_proof, request.sector_number) = (0, 0, 0);
    let inputs = decode(request).unwrap().public_inputs(PartitionIndex(0)).unwrap();
    assert_eq!(inputs, fixture.manifest.public_inputs(0).unwrap()[0]);
    let fixture = Fixture::open("winning-8m/sector-1");
    let mut request = fixture.request(0);
    request.sector_size = 0;
    assert!(decode(request).is_ok());
}

#[test]
fn digests_tell_every_two_jobs_apart() {
    let mut digests = Vec::new();
    for fixture in Fixture::all() {
        for index in 0..fixture.manifest.requests.len() {
            digests.push(fixture.workload(index).digest());
        }
    }
    assert_eq!(
        Fixture::open("snap-2k/sector-1").workload(0).digest(),
        digests[digest_place("snap-2k/sector-1")]
    );
    let unique: std::collections::HashSet<_> = digests.iter().collect();
    assert_eq!(unique.len(), digests.len());
    // Window partitions of one deadline differ in nothing but their inputs.
    let mut request = Fixture::open("window-2k/two-partitions").request(1);
    let digest = decode(request.clone()).unwrap().digest();
    request.miner_id += 1;
    assert_ne!(decode(request).unwrap().digest(), digest);
}

fn digest_place(name: &str) -> usize {
    let before = Fixture::all().into_iter().take_while(|fixture| fixture.name != name);
    before.map(|fixture| fixture.manifest.requests.len()).sum()
}

/// Matrices against the manifests, and the catalogue against the matrices. Its numbers of dense variables are of an
/// independent count.
fn check_shape(circuit: &str, fixture: &str) {
    let shape = shape(circuit);
    let recorded = Fixture::open(fixture).manifest.circuit.unwrap();
    assert_eq!(shape.num_constraints() as u64, recorded.constraints);
    assert_eq!(shape.num_inputs() as u64, recorded.inputs_with_one);
    assert_eq!(shape.num_aux() as u64, recorded.aux);
    assert_eq!(shape.domain_log2(), recorded.domain_log2);
    assert_eq!(hex::encode(shape.sha256()), hex::encode(recorded.r1cs_sha256.0));
    let sizes = CircuitSpec::by_id(circuit).unwrap().sizes().unwrap();
    assert_eq!(sizes.num_nonzero, Some(shape.num_nonzero()));
    assert_eq!(sizes.num_dense, Some(shape.classes().num_dense() as u64), "{circuit}");
    let (has, listed) = (shape.num_bytes(), sizes.shape_bytes.unwrap_or(0));
    assert!(has.abs_diff(listed) < listed / 10, "{circuit}: {has} B, listed {listed} B");
}

/// Every constraint holds and the inputs are the verifier's, in the partitions that `picked` takes.
fn check_witnesses(circuit: &str, picked: impl Fn(u32) -> bool) {
    let shape = shape(circuit);
    for fixture in Fixture::group(&circuit.replace("wpost", "window")) {
        for index in 0..fixture.manifest.requests.len() {
            let workload = fixture.workload(index);
            for partition in partitions(&*workload).filter(|partition| picked(partition.0)) {
                let witness = workload.synthesize(partition, &shape).unwrap();
                let inputs = workload.public_inputs(partition).unwrap();
                check_witness(&shape, &witness, &inputs)
                    .unwrap_or_else(|error| panic!("{} partition {partition}: {error}", fixture.name));
            }
        }
    }
}

#[test]
fn window_and_winning_circuits_and_witnesses_are_the_recorded_ones() {
    for (circuit, fixture) in [
        ("wpost-2k", "window-2k/full-partition"),
        ("wpost-8m", "window-8m/full-partition"),
        ("winning-2k", "winning-2k/sector-1"),
        ("winning-8m", "winning-8m/sector-1"),
    ] {
        check_shape(circuit, fixture);
        check_witnesses(circuit, |_| true);
    }
}

#[test]
fn porep_circuits_and_witnesses_are_the_recorded_ones() {
    for (circuit, fixture) in [("porep-2k", "porep-2k/sector-1"), ("porep-8m", "porep-8m/sector-1")] {
        check_shape(circuit, fixture);
        // Of the non-interactive job's 13 partitions the first and the last.
        check_witnesses(circuit, |partition| partition == 0 || partition == 12);
    }
}

/// Legacy PoReps have their own graph, but the circuit and the parameters of today's.
#[test]
fn b39_a_legacy_porep_satisfies_the_same_circuit() {
    let c1 = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/circuits/porep-2k-v1/c1.json");
    let request = FilecoinRequest {
        proof_kind: Some(ProofKind::PorepSealCommit),
        vanilla_proof: std::fs::read(c1).unwrap(),
        miner_id: 1000,
        sector_number: 77,
        ..FilecoinRequest::default()
    };
    let workload = decode(request).unwrap();
    assert_eq!(workload.circuit().as_str(), "porep-2k");
    let shape = shape("porep-2k");
    let witness = workload.synthesize(PartitionIndex(0), &shape).unwrap();
    check_witness(&shape, &witness, &workload.public_inputs(PartitionIndex(0)).unwrap()).unwrap();
}

#[test]
fn snap_circuit_and_witnesses_are_the_recorded_ones() {
    check_shape("snap-2k", "snap-2k/sector-1");
    check_witnesses("snap-2k", |_| true);
}

/// Ten million constraints, so one partition of one sector.
#[test]
fn snap_8m_circuit_and_a_witness_are_the_recorded_ones() {
    check_shape("snap-8m", "snap-8m/sector-1");
    let (shape, partition) = (shape("snap-8m"), PartitionIndex(3));
    let workload = Fixture::open("snap-8m/sector-2").workload(0);
    let witness = workload.synthesize(partition, &shape).unwrap();
    check_witness(&shape, &witness, &workload.public_inputs(partition).unwrap()).unwrap();
}

#[test]
fn filecoins_own_verification_takes_the_recorded_proofs_and_no_others() {
    let mut verified = 0;
    for fixture in Fixture::all() {
        let Some(groth16) = &fixture.manifest.groth16 else { continue };
        let vk = read_vk(&data_dir().join("params").join(&groth16.vk_file)).unwrap();
        for index in 0..fixture.manifest.requests.len() {
            let Some(proof) = fixture.manifest.proof(index).unwrap() else { continue };
            let workload = fixture.workload(index);
            workload.verify_job(&vk, proof).unwrap_or_else(|error| panic!("{}: {error}", fixture.name));
            check_own_verification(&*workload, &PreparedVerifyingKey::new(&vk), proof);
            verified += 1;

            let cut = workload.verify_job(&vk, &proof[1..]).unwrap_err().to_string();
            assert!(cut.contains("needs") && cut.contains("has"), "{cut}");
            let mut other = proof.to_vec();
            other[..48].copy_from_slice(&proof[144..192]);
            assert!(workload.verify_job(&vk, &other).is_err(), "{}: A replaced by C", fixture.name);
        }
    }
    assert_eq!(verified, 27);
    let [first, second] = [Fixture::open("winning-2k/sector-1"), Fixture::open("winning-2k/sector-2")];
    let vk_file = &first.manifest.groth16.as_ref().unwrap().vk_file;
    let vk = read_vk(&data_dir().join("params").join(vk_file)).unwrap();
    let error = first.workload(0).verify_job(&vk, second.manifest.proof(0).unwrap().unwrap()).unwrap_err();
    assert_eq!(error.to_string(), "proof: does not verify with Filecoin's own verification");
}

fn check_own_verification(workload: &dyn Workload, vk: &PreparedVerifyingKey, proof: &[u8]) {
    for partition in partitions(workload) {
        let bytes = &proof[192 * partition.0 as usize..][..192];
        let inputs = workload.public_inputs(partition).unwrap();
        assert!(vk.verify(&Proof::from_bytes(bytes).unwrap(), &inputs));
    }
}

/// A witness that was spoilt after all checks of the input still does not reach a device.
#[test]
fn b40_a_broken_constraint_or_input_is_named() {
    let shape = shape("wpost-2k");
    let workload = Fixture::open("window-2k/full-partition").workload(0);
    let inputs = workload.public_inputs(PartitionIndex(0)).unwrap();
    let whole = workload.synthesize(PartitionIndex(0), &shape).unwrap();
    let num_constraints = shape.num_constraints();
    let mut named = Vec::new();
    for variable in [0, 5_000, shape.num_aux() - 1] {
        let mut spoilt = whole.unpack(shape.classes());
        spoilt.aux_assignment[variable] += Scalar::from(1);
        let checked = spoilt.pack(&shape).and_then(|spoilt| check_witness(&shape, &spoilt, &inputs));
        match checked.unwrap_err() {
            SynthesisError::Unsatisfied { index, num_constraints: of } => {
                assert_eq!(of, num_constraints);
                assert_eq!(index, first_row_of(&shape, shape.num_inputs() + variable));
                named.push(index);
            }
            error => panic!("{error:?}"),
        }
    }
    assert!(named.is_sorted() && named[0] < named[2], "{named:?}");
    let mut other = inputs;
    other[3] += Scalar::from(1);
    let error = check_witness(&shape, &whole, &other).unwrap_err();
    assert_eq!(error, SynthesisError::PublicInput { index: 3 });
}

/// The first row in which a column occurs: with a random enough witness, the first that its change breaks.
fn first_row_of(shape: &R1csShape, column: usize) -> usize {
    let mut first = usize::MAX;
    for matrix in 0..3 {
        shape.for_each_entry(matrix, &mut |row, entry_column, _| {
            if entry_column == column {
                first = first.min(row);
            }
        });
    }
    first
}

/// Every recorded proof of a group of one-partition jobs, by the recorded `r` and `s`.
fn check_replay(srs: &Srs, shape: &R1csShape, group: &str) {
    for fixture in Fixture::group(group) {
        for index in 0..fixture.manifest.requests.len() {
            let workload = fixture.workload(index);
            let blinding = fixture.manifest.blindings(index).unwrap().unwrap()[0];
            let witness = workload.synthesize(PartitionIndex(0), shape).unwrap();
            let inputs = workload.public_inputs(PartitionIndex(0)).unwrap();
            check_witness(shape, &witness, &inputs).unwrap();
            let proof = prove(srs, shape, &witness, &blinding).unwrap().to_bytes();
            assert_eq!(hex::encode(proof), hex::encode(fixture.manifest.proof(index).unwrap().unwrap()));
            workload.verify_job(&srs.vk, &proof).unwrap();
        }
    }
}

#[test]
fn window_2k_proofs_replay_to_the_recorded_bytes() {
    let (shape, spec) = (shape("wpost-2k"), CircuitSpec::by_id("wpost-2k").unwrap());
    check_replay(&generate_srs(&shape, &mut spec.test_params_rng()).unwrap(), &shape, "window-2k");
}

/// Folded by the group transform, of public data alone; by the secrets it is the same, point by point. A minute of a core.
#[test]
fn window_2k_proofs_replay_with_a_folded_key() {
    let (shape, spec) = (shape("wpost-2k"), CircuitSpec::by_id("wpost-2k").unwrap());
    let srs = generate_srs(&shape, &mut spec.test_params_rng()).unwrap();
    let fold = Fold::build(&srs, &shape, &mut HostTransform, Watch::NONE).unwrap();
    assert!(fold == fold_from_secrets(&shape, &mut spec.test_params_rng()).unwrap(), "folds differ");
    fold.check(&srs, &shape, Path::new("window-2k"), Watch::NONE).unwrap();
    // Inputs whose column of C is empty have no point: 2 of 23.
    let absent = fold.l[..shape.num_inputs()].iter().filter(|point| **point == Default::default()).count();
    assert_eq!((shape.num_inputs(), absent), (23, 2));
    check_replay(&fold.apply(srs), &shape, "window-2k");
}

#[test]
fn winning_2k_proofs_replay_with_a_folded_key() {
    let (shape, spec) = (shape("winning-2k"), CircuitSpec::by_id("winning-2k").unwrap());
    let srs = generate_srs(&shape, &mut spec.test_params_rng()).unwrap();
    let fold = fold_from_secrets(&shape, &mut spec.test_params_rng()).unwrap();
    fold.check(&srs, &shape, Path::new("winning-2k"), Watch::NONE).unwrap();
    // Aux variables in no row of C keep their points.
    let (_, aux) = fold.l.split_at(shape.num_inputs());
    let unchanged = aux.iter().zip(&srs.l).filter(|(folded, plain)| folded == plain).count();
    assert_eq!(unchanged, 462);
    check_replay(&fold.apply(srs), &shape, "winning-2k");
}
