//! Names, numbers, files and sizes against Filecoin's libraries and the manifests. (`crates/filecoin_api_check` has the names
//! and settings of every registered proof against the library's own.)

use std::path::PathBuf;

use cuzk::circuits::catalogue::RegisteredProof;
use cuzk::circuits::{CircuitSpec, ProofKind, SectorSize};
use cuzk::error::RequestError;
use filecoin_proofs::constants::{SectorShapeBase, SectorShapeSub8, SectorShapeTop2};
use filecoin_proofs::PoRepConfig;
use rand_core::RngCore;
use sha2::Digest;
use storage_proofs_core::merkle::MerkleTreeTrait;
use storage_proofs_core::parameter_cache::get_parameter_data;

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

fn librarys_porep<Tree: MerkleTreeTrait + 'static>(config: &PoRepConfig) -> (String, PathBuf) {
    (config.get_cache_identifier::<Tree>().unwrap(), config.get_cache_params_path::<Tree>().unwrap())
}

#[test]
fn parameter_files_are_those_that_the_library_looks_for() {
    let proof = |kind, number| RegisteredProof::from_number(kind, number).unwrap();
    for (circuit, number) in [("porep-2k", 15), ("porep-512m", 2), ("porep-32g", 8), ("porep-64g", 14)] {
        let spec = CircuitSpec::by_id(circuit).unwrap();
        let config = proof(ProofKind::PorepSealCommit, number).porep_config();
        let (identifier, path) = match spec.sector_size {
            SectorSize::Size2KiB | SectorSize::Size512MiB => librarys_porep::<SectorShapeBase>(&config),
            SectorSize::Size8MiB | SectorSize::Size32GiB => librarys_porep::<SectorShapeSub8>(&config),
            SectorSize::Size64GiB => librarys_porep::<SectorShapeTop2>(&config),
        };
        assert_eq!(spec.cache_identifier(), identifier);
        assert!(path.ends_with(spec.params_file()));
    }
    for (circuit, kind, number) in
        [("wpost-32g", ProofKind::WindowPostPartition, 13), ("winning-32g", ProofKind::WinningPost, 3)]
    {
        let config = proof(kind, number).post_config();
        let spec = CircuitSpec::by_id(circuit).unwrap();
        assert_eq!(spec.cache_identifier(), config.get_cache_identifier::<SectorShapeSub8>().unwrap());
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
    // What was recorded of these and of smaller ones, by which `cuzk plan` and the simulator plan.
    for circuit in ["wpost-2k", "winning-2k", "snap-2k", "porep-2k", "wpost-8m", "winning-8m", "winning-512m"]
    {
        let (shape, sizes) = (shape(circuit), CircuitSpec::by_id(circuit).unwrap().sizes().unwrap());
        let recorded = (sizes.num_dense, sizes.shape_bytes, sizes.image_bytes);
        let (num_dense, image_bytes) = (shape.classes().num_dense(), shape.image_layout().num_bytes());
        assert_eq!(
            recorded,
            (Some(num_dense as u64), Some(shape.num_bytes()), Some(image_bytes as u64)),
            "{circuit}"
        );
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
}

/// Recorded proofs of every version and of both sizes that can be made here, and the registered numbers that each holds as.
/// (Of a PoRep 0 says nothing, as if it were absent: the C1 names its own. That of V1 and 2 KiB is proved in `fixtures.rs`.)
const HOLD_AS: [(ProofKind, &str, &[u64]); 11] = [
    (ProofKind::PorepSealCommit, "porep-2k/sector-1", &[0, 5]),
    (ProofKind::PorepSealCommit, "porep-8m/sector-1", &[0, 6]),
    (ProofKind::PorepSealCommit, "porep-2k/synthetic-1", &[0, 10]),
    (ProofKind::PorepSealCommit, "porep-2k/noninteractive-1", &[0, 15]),
    (ProofKind::SnapDealsUpdate, "snap-2k/sector-1", &[0]),
    (ProofKind::SnapDealsUpdate, "snap-8m/sector-1", &[1]),
    (ProofKind::WindowPostPartition, "window-2k/two-partitions-v1", &[5]),
    (ProofKind::WindowPostPartition, "window-2k/full-partition", &[10]),
    (ProofKind::WindowPostPartition, "window-8m/full-partition", &[11]),
    (ProofKind::WinningPost, "winning-2k/sector-1", &[0]),
    (ProofKind::WinningPost, "winning-8m/sector-1", &[1]),
];

/// Every registered number of each kind, and some that nobody registered, said of each of them: it is accepted as what it
/// is (that it is proved then, `fixtures.rs` and the replays show), and refused by name as anything else.
#[test]
fn b39_every_registered_number_is_accepted_or_refused_by_name() {
    for (kind, fixture, accepted) in HOLD_AS {
        for number in (0..22).chain([u64::MAX]) {
            let mut request = request(fixture);
            (request.registered_proof, request.sector_size) = (number, 0);
            if accepted.contains(&number) {
                let workload = crate::common::decode(request)
                    .unwrap_or_else(|error| panic!("{fixture} {number}: {error}"));
                let recorded = Fixture::open(fixture).manifest.circuit_spec().unwrap();
                assert_eq!(*workload.circuit(), recorded.id(), "{fixture}");
                continue;
            }
            let error = refusal(request);
            let text = error.to_string();
            match RegisteredProof::from_number(kind, number) {
                Ok(proof) => {
                    for name in [proof.sector_size.to_string(), proof.version.to_string()] {
                        assert!(text.contains(&name), "{fixture} {number}: {name:?} is not in {text:?}");
                    }
                }
                Err(_) => {
                    assert!(
                        matches!(error, RequestError::Unsupported { .. }),
                        "{fixture} {number}: {error:?}"
                    );
                    assert!(text.contains(&format!("registered_proof {number} ")), "{text}");
                    assert!(text.contains(&kind.to_string()), "{text}");
                }
            }
        }
    }
}

/// Nothing of the tables above is left out: each version is accepted of a recorded proof, and every registered proof has
/// its circuit, with sizes and files, in the catalogue, also where it is too large to be made here.
#[test]
fn b39_every_registered_proof_is_of_a_known_circuit() {
    for kind in [
        ProofKind::PorepSealCommit,
        ProofKind::SnapDealsUpdate,
        ProofKind::WindowPostPartition,
        ProofKind::WinningPost,
    ] {
        let held: Vec<u64> =
            HOLD_AS.iter().filter(|row| row.0 == kind).flat_map(|row| row.2).copied().collect();
        let all = RegisteredProof::all(kind);
        for proof in &all {
            let spec = CircuitSpec::new(kind, proof.sector_size);
            assert!(CircuitSpec::all().contains(&spec), "{proof}");
            assert!(spec.sizes().is_some(), "{proof}");
            if proof.sector_size == SectorSize::Size2KiB {
                assert!(held.contains(&proof.number()), "{proof} is accepted of nothing");
            }
        }
        assert_eq!(all.len() % SectorSize::ALL.len(), 0);
    }
}

#[test]
fn a_networks_parameters_are_fetched_and_those_of_test_sizes_may_be_made() {
    for spec in CircuitSpec::all() {
        let advice = spec.how_to_get_params();
        let is_small = matches!(spec.sector_size, SectorSize::Size2KiB | SectorSize::Size8MiB);
        assert_eq!(
            advice.contains(&format!("`cuzk params generate {spec}` makes a TEST key")),
            is_small,
            "{advice}"
        );
        assert_eq!(advice.contains(&format!("`cuzk params fetch {spec}`")), !is_small, "{advice}");
    }
    // No network has a key for it, whatever its sectors' size.
    let scaled = CircuitSpec::scaled_porep(SectorSize::Size32GiB, 1).unwrap();
    assert!(scaled.how_to_get_params().contains("TEST key"));
}
