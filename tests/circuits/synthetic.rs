//! Synthetic sectors: they satisfy the circuits, Filecoin's libraries read and verify them, and they say what they are.

use std::collections::BTreeMap;
use std::path::Path;

use cuzk::circuits::catalogue::RegisteredProof;
use cuzk::circuits::manifest::{Manifest, SyntheticField};
use cuzk::circuits::request::TestScale;
use cuzk::circuits::synthetic::SyntheticOptions;
use cuzk::circuits::{CircuitSpec, FilecoinRequest, ProofKind, SectorSize};
use cuzk::groth16::prover::check_witness;
use cuzk::ids::PartitionIndex;
use filecoin_hashers::poseidon::PoseidonDomain;
use filecoin_hashers::sha256::{Sha256Domain, Sha256Hasher};
use filecoin_proofs::constants::{SectorShapeBase, SectorShapeSub8, SectorShapeTop2};
use filecoin_proofs::parameters::setup_params;
use serde::de::DeserializeOwned;
use serde::Deserialize;
use storage_proofs_core::merkle::MerkleTreeTrait;
use storage_proofs_core::proof::ProofScheme;
use storage_proofs_porep::stacked::{self, Challenges, StackedDrg};
use storage_proofs_update::constants::{h_default, TreeRHasher};
use storage_proofs_update::{EmptySectorUpdate, PartitionProof, PublicInputs, PublicParams};

use crate::common::{assert_refused, decode, shape, PARAMS_DIR};

const SEED: u64 = 20;

fn options(kind: ProofKind, sector_size: SectorSize) -> SyntheticOptions {
    SyntheticOptions::new(kind, sector_size, SEED)
}

/// One challenge in one partition.
fn smallest_porep(sector_size: SectorSize) -> SyntheticOptions {
    SyntheticOptions {
        challenges: Some(1),
        partitions: Some(1),
        ..options(ProofKind::PorepSealCommit, sector_size)
    }
}

fn request(options: &SyntheticOptions) -> FilecoinRequest {
    options.generate().unwrap().request
}

/// Every constraint of the library's circuit holds, and its inputs are the verifier's.
fn check_partition(options: &SyntheticOptions, partition: u32) {
    let circuit = options.circuit_spec().unwrap().to_string();
    let workload = decode(request(options)).unwrap();
    assert_eq!(workload.circuit().as_str(), circuit);
    let (shape, partition) = (shape(&circuit), PartitionIndex(partition));
    let witness = workload.synthesize(partition, &shape).unwrap();
    let inputs = workload.public_inputs(partition).unwrap();
    check_witness(&shape, &witness, &inputs).unwrap_or_else(|error| panic!("{circuit}: {error}"));
}

#[test]
fn synthetic_2k_sectors_satisfy_their_circuits() {
    for kind in ProofKind::ALL {
        check_partition(&options(kind, SectorSize::Size2KiB), 0);
    }
    // One sector, repeated to fill the partition.
    let padded = SyntheticOptions {
        sectors: Some(1),
        ..options(ProofKind::WindowPostPartition, SectorSize::Size2KiB)
    };
    check_partition(&padded, 0);
    // Challenged nodes that are each other's parents: in 64 nodes, 32 challenges have many.
    let crowded = SyntheticOptions {
        partitions: Some(16),
        ..options(ProofKind::PorepSealCommit, SectorSize::Size2KiB)
    };
    check_partition(&crowded, 15);
}

#[test]
fn synthetic_8m_sectors_satisfy_their_circuits() {
    for kind in ProofKind::ALL {
        let last = CircuitSpec::new(kind, SectorSize::Size8MiB).num_partitions() - 1;
        check_partition(&options(kind, SectorSize::Size8MiB), last);
    }
}

/// Trees with sub and top parts: all of WinningPoSt, and PoRep with one challenge.
#[test]
fn synthetic_32g_and_64g_sectors_satisfy_circuits_that_fit_a_test() {
    check_partition(&options(ProofKind::WinningPost, SectorSize::Size32GiB), 0);
    check_partition(&options(ProofKind::WinningPost, SectorSize::Size64GiB), 0);
    check_partition(&smallest_porep(SectorSize::Size32GiB), 0);
    check_sizes("winning-32g");
    check_sizes("porep-32g-k1");
}

/// The catalogue's sizes are those of the library's circuit.
fn check_sizes(circuit: &str) {
    let (shape, sizes) = (shape(circuit), CircuitSpec::by_id(circuit).unwrap().sizes().unwrap());
    let known = (sizes.constraints, sizes.num_inputs, sizes.num_aux, sizes.domain_log2);
    let (constraints, inputs, aux) = (shape.num_constraints(), shape.num_inputs(), shape.num_aux());
    assert_eq!(known, (constraints as u64, inputs as u64, aux as u64, shape.domain_log2()), "{circuit}");
    assert_eq!(sizes.num_dense, Some(shape.classes().num_dense() as u64), "{circuit}");
    let is_scaled = CircuitSpec::by_id(circuit).unwrap().is_scaled();
    let image_bytes = (!is_scaled).then(|| shape.image_layout().num_bytes() as u64);
    assert_eq!(sizes.image_bytes, image_bytes, "{circuit}");
}

/// Decoding checks every path, hash, label and challenge.
#[test]
fn every_kind_of_every_size_is_read_and_holds() {
    for sector_size in SectorSize::ALL {
        for kind in ProofKind::ALL {
            // One of 64 GiB's ten PoRep partitions is as good as all.
            let is_large = kind == ProofKind::PorepSealCommit && sector_size == SectorSize::Size64GiB;
            let options = SyntheticOptions {
                partitions: is_large.then_some(1),
                sectors: (kind == ProofKind::WindowPostPartition).then_some(2),
                ..options(kind, sector_size)
            };
            let request = request(&options);
            assert_eq!(request.test_scale.is_some(), is_large);
            let workload = decode(request).unwrap_or_else(|error| panic!("{kind} {sector_size}: {error}"));
            let spec = CircuitSpec::new(kind, sector_size);
            let num_partitions = options.partitions.unwrap_or(spec.num_partitions());
            assert_eq!(workload.num_partitions(), num_partitions);
            assert_eq!(*workload.circuit(), spec.id());
            workload.public_inputs(PartitionIndex(num_partitions - 1)).unwrap();
        }
    }
}

#[test]
fn equal_seeds_give_equal_bytes_and_others_do_not() {
    for kind in ProofKind::ALL {
        let options = options(kind, SectorSize::Size8MiB);
        let first = request(&options);
        assert!(first == request(&options), "{kind}");
        let other = request(&SyntheticOptions { seed: SEED + 1, ..options });
        assert!(other.vanilla_proof != first.vanilla_proof || other.vanilla_proofs != first.vanilla_proofs);
    }
}

/// A C1 with the library's own vanilla proofs. (That the library's own reader takes it, `crates/filecoin_api_check` shows.)
#[derive(Deserialize)]
struct C1<Tree: MerkleTreeTrait> {
    registered_proof: String,
    #[serde(bound(deserialize = "stacked::Proof<Tree, Sha256Hasher>: DeserializeOwned"))]
    vanilla_proofs: BTreeMap<String, Vec<Vec<stacked::Proof<Tree, Sha256Hasher>>>>,
    comm_r: [u8; 32],
    comm_d: [u8; 32],
    replica_id: PoseidonDomain,
    seed: [u8; 32],
}

/// Filecoin's own types read the C1, and its own verification takes the proofs in it. Returns comm_d.
fn check_with_the_librarys_porep<Tree>(options: &SyntheticOptions) -> [u8; 32]
where
    Tree: MerkleTreeTrait<Hasher = TreeRHasher> + 'static,
{
    let read: C1<Tree> = serde_json::from_slice(&request(options).vanilla_proof).unwrap();
    let config = RegisteredProof::from_name(ProofKind::PorepSealCommit, &read.registered_proof)
        .unwrap()
        .porep_config();
    let mut setup = setup_params(&config).unwrap();
    if let Some(challenges) = options.challenges {
        setup.challenges = Challenges::new_interactive(challenges as usize);
    }
    type Scheme<Tree> = StackedDrg<'static, Tree, Sha256Hasher>;
    let params = Scheme::<Tree>::setup(&setup).unwrap();
    let tau = stacked::Tau { comm_d: Sha256Domain(read.comm_d), comm_r: read.comm_r.into() };
    let inputs =
        stacked::PublicInputs { replica_id: read.replica_id, seed: Some(read.seed), tau: Some(tau), k: None };
    let mut proofs = read.vanilla_proofs.into_values().next().unwrap();
    assert!(Scheme::<Tree>::verify_all_partitions(&params, &inputs, &proofs).unwrap());
    // It does refuse others.
    let first = proofs[0][0].replica_column_proofs.exp_parents[0].clone();
    proofs[0][0].replica_column_proofs.exp_parents[1] = first;
    assert!(!Scheme::<Tree>::verify_all_partitions(&params, &inputs, &proofs).unwrap());
    read.comm_d
}

#[test]
fn filecoins_own_verification_takes_a_synthetic_porep() {
    check_with_the_librarys_porep::<SectorShapeBase>(&options(
        ProofKind::PorepSealCommit,
        SectorSize::Size2KiB,
    ));
    let comm_d = check_with_the_librarys_porep::<SectorShapeSub8>(&smallest_porep(SectorSize::Size32GiB));
    // The network's well-known commitment to 32 GiB of zeros.
    assert_eq!(hex::encode(comm_d), "077e5fde35c50a9303a55009e3498a4ebedff39c42b710b730d8ec7ac7afa63e");
    check_with_the_librarys_porep::<SectorShapeTop2>(&smallest_porep(SectorSize::Size64GiB));
}

fn check_with_the_librarys_update<Tree: MerkleTreeTrait<Hasher = TreeRHasher> + 'static>(
    sector_size: SectorSize,
) {
    let request = request(&options(ProofKind::SnapDealsUpdate, sector_size));
    let node = |bytes: &[u8]| <[u8; 32]>::try_from(bytes).unwrap();
    let params = PublicParams::from_sector_size(sector_size.bytes());
    let inputs = |k| PublicInputs {
        k,
        comm_r_old: node(&request.comm_r_old).into(),
        comm_d_new: Sha256Domain(node(&request.comm_d_new)),
        comm_r_new: node(&request.comm_r_new).into(),
        h: h_default(params.sector_nodes),
    };
    for (k, bytes) in request.vanilla_proofs.iter().enumerate() {
        let proof: PartitionProof<Tree> = bincode::deserialize(bytes).unwrap();
        assert!(EmptySectorUpdate::<Tree>::verify(&params, &inputs(k), &proof).unwrap(), "{sector_size} {k}");
    }
}

#[test]
fn filecoins_own_verification_takes_synthetic_updates() {
    check_with_the_librarys_update::<SectorShapeBase>(SectorSize::Size2KiB);
    check_with_the_librarys_update::<SectorShapeBase>(SectorSize::Size512MiB);
    check_with_the_librarys_update::<SectorShapeSub8>(SectorSize::Size32GiB);
    check_with_the_librarys_update::<SectorShapeTop2>(SectorSize::Size64GiB);
}

#[test]
fn a_written_job_is_a_manifest_that_says_what_it_is() {
    for kind in ProofKind::ALL {
        let dir = tempfile::tempdir().unwrap();
        let options = options(kind, SectorSize::Size2KiB);
        let job = options.generate().unwrap();
        job.write(dir.path()).unwrap();
        let manifest = Manifest::read(&dir.path().join("manifest.json")).unwrap();
        let synthetic = SyntheticField { seed: SEED, challenges: None, partitions: None };
        assert_eq!(manifest.synthetic, Some(synthetic));
        assert_eq!(manifest.circuit_spec().unwrap(), options.circuit_spec().unwrap());
        let request = manifest.request(0, dir.path()).unwrap();
        assert!(request.vanilla_proofs == job.request.vanilla_proofs, "{kind}");
        let workload = decode(request).unwrap();
        manifest.check_statement(0, workload.as_ref()).unwrap();
    }
}

#[test]
fn a_scaled_job_is_known_by_its_manifest_alone() {
    let dir = tempfile::tempdir().unwrap();
    let options = SyntheticOptions { partitions: Some(3), ..smallest_porep(SectorSize::Size2KiB) };
    options.generate().unwrap().write(dir.path()).unwrap();
    let path = dir.path().join("manifest.json");
    let manifest = Manifest::read(&path).unwrap();
    let scale = TestScale { challenges: 1, partitions: 3 };
    assert_eq!(manifest.circuit_spec().unwrap().to_string(), "porep-2k-k1");
    let request = manifest.request(0, dir.path()).unwrap();
    assert_eq!(request.test_scale, Some(scale));
    let workload = decode(request.clone()).unwrap();
    manifest.check_statement(0, workload.as_ref()).unwrap();
    assert_eq!((workload.circuit().as_str(), workload.num_partitions()), ("porep-2k-k1", 3));
    check_partition(&options, 2);
    check_sizes("porep-2k-k1");
    let digest = workload.digest();

    // Without the mark it is a C1 of the wrong form.
    let plain = FilecoinRequest { test_scale: None, ..request.clone() };
    assert_refused(plain, &["needs 1 partitions, has 3"]);
    let more = TestScale { challenges: 3, ..scale };
    assert_refused(
        FilecoinRequest { test_scale: Some(more), ..request.clone() },
        &["1 to 2 challenges", "has 3"],
    );
    let none = TestScale { partitions: 0, ..scale };
    assert_refused(FilecoinRequest { test_scale: Some(none), ..request.clone() }, &["1 to 255 partitions"]);
    let huge = TestScale { partitions: 256, ..scale };
    assert_refused(FilecoinRequest { test_scale: Some(huge), ..request.clone() }, &["has 256"]);
    // The numbers must be those of the C1.
    let other = TestScale { partitions: 2, ..scale };
    assert_refused(FilecoinRequest { test_scale: Some(other), ..request }, &["needs 2 partitions, has 3"]);
    assert_ne!(digest, decode(self::request(&smallest_porep(SectorSize::Size2KiB))).unwrap().digest());

    // A request file, as an operator writes them, has no way to say it.
    let text = r#"{"proof_kind": 1, "miner_id": 1, "test_scale": {"challenges": 1, "partitions": 1}}"#;
    let error = cuzk::circuits::request::RequestFile::from_json(text.as_bytes(), Path::new("request.json"));
    assert!(error.unwrap_err().to_string().contains("unknown field `test_scale`"));
}

#[test]
fn only_interactive_poreps_are_scaled() {
    let scale = Some(TestScale { challenges: 1, partitions: 1 });
    for fixture in ["winning-2k/sector-1", "snap-2k/sector-1", "window-2k/full-partition"] {
        let request = FilecoinRequest { test_scale: scale, ..crate::common::request(fixture) };
        assert_refused(request, &["test_scale: is no field of"]);
    }
    for fixture in ["porep-2k/synthetic-1", "porep-2k/noninteractive-1"] {
        let request = FilecoinRequest { test_scale: scale, ..crate::common::request(fixture) };
        assert_refused(request, &["test_scale", "needs an interactive PoRep"]);
    }
}

#[test]
fn options_that_cannot_be_had_are_refused_by_name() {
    let porep = options(ProofKind::PorepSealCommit, SectorSize::Size32GiB);
    let snap = options(ProofKind::SnapDealsUpdate, SectorSize::Size32GiB);
    let window = options(ProofKind::WindowPostPartition, SectorSize::Size32GiB);
    for (options, parts) in [
        (SyntheticOptions { challenges: Some(19), ..porep.clone() }, ["challenges: needs 1 to 18", "has 19"]),
        (SyntheticOptions { challenges: Some(0), ..porep.clone() }, ["challenges: needs 1 to 18", "has 0"]),
        (
            SyntheticOptions { partitions: Some(256), ..porep.clone() },
            ["partitions: needs 1 to 255", "has 256"],
        ),
        (SyntheticOptions { sectors: Some(1), ..porep }, ["sectors: is no option", "POREP"]),
        (SyntheticOptions { challenges: Some(1), ..snap }, ["challenges: is no option", "SNAP"]),
        (SyntheticOptions { sectors: Some(2350), ..window }, ["sectors: needs 1 to 2349", "has 2350"]),
    ] {
        let error = options.generate().unwrap_err().to_string();
        for part in parts {
            assert!(error.contains(part), "{part:?} is not in {error:?}");
        }
    }
}

#[test]
fn scaled_circuits_have_ids_and_files_of_their_own() {
    let spec = CircuitSpec::by_id("porep-32g-k1").unwrap();
    assert!(spec.is_scaled() && !spec.is_full_size());
    assert_eq!(spec.num_challenges(), 1);
    assert_eq!(CircuitSpec::by_id(&spec.to_string()), Some(spec.clone()));
    assert_eq!(spec.test_params_seed(), "groth16-test-params/v1/porep/32g-k1");
    let network = CircuitSpec::by_id("porep-32g").unwrap();
    assert_ne!(spec.params_file(), network.params_file());
    assert_eq!(CircuitSpec::scaled_porep(SectorSize::Size32GiB, 18), Some(network));
    for id in
        ["porep-32g-k0", "porep-32g-k18", "porep-32g-k19", "porep-32g-k01", "snap-32g-k1", "porep-32g-k"]
    {
        assert_eq!(CircuitSpec::by_id(id), None, "{id}");
    }
    assert!(decode(request(&smallest_porep(SectorSize::Size8MiB))).is_ok_and(|workload| {
        let cuzk::circuits::SrsSource::File(params) = workload.srs() else { return false };
        let spec = CircuitSpec::by_id("porep-8m-k1").unwrap();
        params.path == Path::new(PARAMS_DIR).join(spec.params_file())
    }));
}
