//! Names, numbers, files and sizes against Filecoin's libraries and the manifests.

use cuzk::circuits::catalogue::RegisteredProof;
use cuzk::circuits::{CircuitSpec, ProofKind, SectorSize};
use cuzk::error::RequestError;
use filecoin_proofs_api::{get_parameter_data, RegisteredPoStProof, RegisteredSealProof};
use rand_core::RngCore;
use sha2::Digest;

use crate::common::{refusal, request, shape, Fixture};

#[test]
fn ids_are_those_of_the_wire() {
    let ids: Vec<String> = CircuitSpec::all().iter().map(|spec| spec.id().to_string()).collect();
    assert_eq!(ids.len(), 20);
    for kind in ["porep", "snap", "wpost", "winning"] {
        for size in ["2k", "8m", "512m", "32g", "64g"] {
            assert!(ids.contains(&format!("{kind}-{size}")));
        }
    }
    assert_eq!(CircuitSpec::by_id("snap-8m").unwrap().sector_size, SectorSize::Size8MiB);
    assert_eq!(CircuitSpec::by_id("porep-4k"), None);
}

#[test]
fn kinds_are_read_by_name_and_number() {
    for (number, name) in [
        (1, "POREP_SEAL_COMMIT"),
        (2, "SNAP_DEALS_UPDATE"),
        (3, "WINDOW_POST_PARTITION"),
        (4, "WINNING_POST"),
    ] {
        let kind: ProofKind = name.parse().unwrap();
        assert_eq!(kind.number(), number);
        assert_eq!(ProofKind::from_number(number), Some(kind));
        assert_eq!(number.to_string().parse::<ProofKind>().unwrap(), kind);
    }
    for text in ["0", "5", "", "POREP"] {
        assert!(text.parse::<ProofKind>().unwrap_err().to_string().starts_with("proof_kind: "), "{text:?}");
    }
}

#[test]
fn parameter_files_have_the_published_names() {
    for spec in CircuitSpec::all() {
        let identifier = spec.cache_identifier();
        let data = get_parameter_data(&identifier)
            .unwrap_or_else(|| panic!("{spec}: no published file is named {}", spec.params_file()));
        assert_eq!(data.sector_size, spec.sector_size.bytes(), "{spec}");
    }
    let published: std::collections::HashSet<_> =
        CircuitSpec::all().iter().map(CircuitSpec::params_file).collect();
    assert_eq!(published.len(), 20);
}

#[test]
fn parameter_files_are_those_that_the_library_looks_for() {
    for (circuit, proof) in [
        ("porep-2k", RegisteredSealProof::StackedDrg2KiBV1_2_Feat_NonInteractivePoRep),
        ("porep-512m", RegisteredSealProof::StackedDrg512MiBV1),
        ("porep-32g", RegisteredSealProof::StackedDrg32GiBV1_1),
        ("porep-64g", RegisteredSealProof::StackedDrg64GiBV1_1_Feat_SyntheticPoRep),
    ] {
        let spec = CircuitSpec::by_id(circuit).unwrap();
        assert_eq!(spec.cache_identifier(), proof.circuit_identifier().unwrap());
        assert!(proof.cache_params_path().unwrap().ends_with(spec.params_file()));
    }
    for (circuit, proof) in [
        ("wpost-8m", RegisteredPoStProof::StackedDrgWindow8MiBV1),
        ("wpost-32g", RegisteredPoStProof::StackedDrgWindow32GiBV1_2),
        ("winning-64g", RegisteredPoStProof::StackedDrgWinning64GiBV1),
    ] {
        let spec = CircuitSpec::by_id(circuit).unwrap();
        assert_eq!(spec.cache_identifier(), proof.circuit_identifier().unwrap());
    }
    for fixture in Fixture::all() {
        let Some(groth16) = &fixture.manifest.groth16 else { continue };
        let spec = fixture.manifest.circuit_spec().unwrap();
        assert_eq!(spec.params_file(), groth16.params_file);
        assert_eq!(spec.vk_file(), groth16.vk_file);
    }
}

#[test]
fn sizes_are_those_of_the_manifests() {
    for fixture in Fixture::all() {
        let spec = fixture.manifest.circuit_spec().unwrap();
        let (sizes, recorded) = (spec.sizes().unwrap(), fixture.manifest.circuit.as_ref().unwrap());
        let has = (sizes.constraints, sizes.num_inputs, sizes.num_aux, sizes.domain_log2);
        assert_eq!(has, (recorded.constraints, recorded.inputs_with_one, recorded.aux, recorded.domain_log2));
        if let Some(groth16) = &fixture.manifest.groth16 {
            assert_eq!(sizes.params_bytes, Some(groth16.params_bytes));
        }
        assert!(spec.memory().unwrap().total_bytes() > sizes.params_bytes.unwrap_or(0));
    }
}

/// The formula for PoSt circuits, on a size of which there is no job.
#[test]
fn post_sizes_of_512_mib_sectors_are_those_of_their_circuits() {
    for circuit in ["wpost-512m", "winning-512m"] {
        let (shape, sizes) = (shape(circuit), CircuitSpec::by_id(circuit).unwrap().sizes().unwrap());
        assert_eq!(sizes.constraints, shape.num_constraints() as u64);
        assert_eq!(sizes.num_inputs, shape.num_inputs() as u64);
        assert_eq!(sizes.num_aux, shape.num_aux() as u64);
        assert_eq!(sizes.domain_log2, shape.domain_log2());
    }
    // filecoin-proofs `constants.rs` states these.
    let window = CircuitSpec::by_id("wpost-32g").unwrap();
    assert_eq!((window.max_sectors(), window.sizes().unwrap().constraints), (2349, 125_279_217));
}

#[test]
fn test_parameters_are_drawn_from_the_documented_seed() {
    let spec = CircuitSpec::by_id("wpost-2k").unwrap();
    assert_eq!(spec.test_params_seed(), "groth16-test-params/v1/window/2k");
    let seed: [u8; 32] = sha2::Sha256::digest("groth16-test-params/v1/window/2k").into();
    let mut expected = <rand_chacha::ChaCha20Rng as rand_core::SeedableRng>::from_seed(seed);
    assert_eq!(spec.test_params_rng().next_u64(), expected.next_u64());
}

#[test]
fn registered_names_are_the_librarys() {
    for fixture in Fixture::all() {
        let (kind, recorded) = (fixture.manifest.proof_kind().unwrap(), &fixture.manifest.registered_proof);
        let proof = RegisteredProof::from_number(kind, recorded.number).unwrap();
        assert_eq!(proof.name(), recorded.name);
        assert_eq!(RegisteredProof::from_name(kind, &recorded.name), Some(proof));
    }
    // The library's own names and numbers, through its serde form.
    for proof in RegisteredProof::all(ProofKind::PorepSealCommit) {
        let name = format!("{:?}", proof.name());
        let library: RegisteredSealProof = serde_json::from_str(&name).unwrap();
        assert_eq!(library as u64, proof.number());
    }
    for kind in [ProofKind::WindowPostPartition, ProofKind::WinningPost] {
        for proof in RegisteredProof::all(kind) {
            let name = format!("{:?}", proof.name());
            assert!(serde_json::from_str::<RegisteredPoStProof>(&name).is_ok(), "{name}");
        }
    }
}

/// The registered numbers 0 to 19 of each kind, said of one and the same vanilla proof: it is accepted as what it is (that
/// it is proved then, `fixtures.rs` and the replays show), and refused by name as anything else.
#[test]
fn b39_every_registered_number_is_accepted_or_refused_by_name() {
    for (kind, fixture, accepted) in [
        (ProofKind::PorepSealCommit, "porep-2k/sector-1", vec![0, 5]),
        (ProofKind::SnapDealsUpdate, "snap-2k/sector-1", vec![0]),
        (ProofKind::WindowPostPartition, "window-2k/full-partition", vec![10]),
        (ProofKind::WinningPost, "winning-2k/sector-1", vec![0]),
    ] {
        for number in 0..20 {
            let mut request = request(fixture);
            (request.registered_proof, request.sector_size) = (number, 0);
            if accepted.contains(&number) {
                assert!(crate::common::decode(request).is_ok(), "{kind} {number}");
                continue;
            }
            let error = refusal(request);
            let text = error.to_string();
            match RegisteredProof::from_number(kind, number) {
                Ok(proof) => {
                    for name in [proof.sector_size.to_string(), proof.version.to_string()] {
                        assert!(text.contains(&name), "{kind} {number}: {name:?} is not in {text:?}");
                    }
                }
                Err(_) => {
                    assert!(matches!(error, RequestError::Unsupported { .. }), "{kind} {number}: {error:?}");
                    assert!(text.contains(&format!("registered_proof {number} ")), "{text}");
                    assert!(text.contains(&kind.to_string()), "{text}");
                }
            }
        }
    }
}
