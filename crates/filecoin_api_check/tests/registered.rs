//! `cargo test --release --package filecoin_api_check`

use cuzk::circuits::catalogue::RegisteredProof;
use cuzk::circuits::synthetic::SyntheticOptions;
use cuzk::circuits::{CircuitSpec, ProofKind, SectorSize};
use filecoin_proofs_api::seal::SealCommitPhase1Output;
use filecoin_proofs_api::{RegisteredPoStProof, RegisteredSealProof};

/// The library's proof of this name, through its serde form.
fn library<T: serde::de::DeserializeOwned>(proof: &RegisteredProof) -> T {
    serde_json::from_str(&format!("{:?}", proof.name())).unwrap_or_else(|error| panic!("{proof}: {error}"))
}

#[test]
fn poreps_have_the_librarys_names_numbers_settings_and_files() {
    let all = RegisteredProof::all(ProofKind::PorepSealCommit);
    assert_eq!(all.len(), 20);
    for proof in all {
        let library: RegisteredSealProof = library(&proof);
        assert_eq!(library as u64, proof.number());
        assert_eq!(format!("{:?}", library.as_v1_config()), format!("{:?}", proof.porep_config()));
        let spec = CircuitSpec::new(proof.kind, proof.sector_size);
        assert_eq!(spec.cache_identifier(), library.circuit_identifier().unwrap(), "{proof}");
        assert!(library.cache_params_path().unwrap().ends_with(spec.params_file()), "{proof}");
    }
}

#[test]
fn posts_have_the_librarys_names_settings_and_files() {
    for kind in [ProofKind::WindowPostPartition, ProofKind::WinningPost] {
        for proof in RegisteredProof::all(kind) {
            let library: RegisteredPoStProof = library(&proof);
            assert_eq!(format!("{:?}", library.as_v1_config()), format!("{:?}", proof.post_config()));
            let spec = CircuitSpec::new(kind, proof.sector_size);
            assert_eq!(spec.cache_identifier(), library.circuit_identifier().unwrap(), "{proof}");
        }
    }
}

#[test]
fn the_librarys_reader_takes_a_synthetic_c1_and_writes_it_as_we_do() {
    for sector_size in [SectorSize::Size2KiB, SectorSize::Size32GiB, SectorSize::Size64GiB] {
        let small = sector_size != SectorSize::Size2KiB;
        let options = SyntheticOptions {
            challenges: small.then_some(1),
            partitions: small.then_some(1),
            ..SyntheticOptions::new(ProofKind::PorepSealCommit, sector_size, 20)
        };
        let c1 = options.generate().unwrap().request.vanilla_proof;
        let read: SealCommitPhase1Output = serde_json::from_slice(&c1).unwrap();
        assert!(serde_json::to_vec(&read).unwrap() == c1, "{sector_size}");
    }
}
