//! Native witnesses are the library's, variable by variable.

use cuzk::circuits::synthetic::SyntheticOptions;
use cuzk::circuits::{native, ProofKind, SectorSize, Workload};
use cuzk::groth16::R1csShape;
use cuzk::ids::PartitionIndex;

use crate::common::{decode, shape, Fixture};

fn check_partition(name: &str, workload: &dyn Workload, partition: u32, shape: &R1csShape) {
    let partition = PartitionIndex(partition);
    let fallbacks = native::num_fallbacks();
    let witness = workload.synthesize(partition, shape).unwrap();
    assert_eq!(native::num_fallbacks(), fallbacks, "{name}: the library made the witness");
    workload
        .compare_with_library(partition, &witness, shape, None)
        .unwrap_or_else(|error| panic!("{name} partition {partition}: {error}"));
}

/// All fixtures of a circuit; of each the partitions that `picked` takes.
fn check_fixtures(circuit: &str, picked: impl Fn(u32) -> bool) {
    let shape = shape(circuit);
    let fixtures = Fixture::group(&circuit.replace("wpost", "window"));
    assert!(!fixtures.is_empty());
    for fixture in fixtures {
        for index in 0..fixture.manifest.requests.len() {
            let workload = fixture.workload(index);
            for partition in (0..workload.num_partitions()).filter(|partition| picked(*partition)) {
                check_partition(&fixture.name, &*workload, partition, &shape);
            }
        }
    }
}

#[test]
fn native_post_witnesses_of_all_fixtures_are_the_librarys() {
    for circuit in ["wpost-2k", "wpost-8m", "winning-2k", "winning-8m"] {
        check_fixtures(circuit, |_| true);
    }
}

#[test]
fn native_porep_witnesses_of_all_fixtures_are_the_librarys() {
    // Of non-interactive jobs' 13 and more partitions the first and a late one.
    check_fixtures("porep-2k", |partition| partition == 0 || partition == 12);
    check_fixtures("porep-8m", |partition| partition == 0 || partition == 12);
}

#[test]
fn native_snap_witnesses_of_all_fixtures_are_the_librarys() {
    check_fixtures("snap-2k", |_| true);
    check_fixtures("snap-8m", |partition| partition == 0 || partition == 3);
}

/// Trees with sub and top parts.
#[test]
fn native_witnesses_of_32g_and_64g_are_the_librarys() {
    for sector_size in [SectorSize::Size32GiB, SectorSize::Size64GiB] {
        let winning = SyntheticOptions::new(ProofKind::WinningPost, sector_size, 3);
        let porep = SyntheticOptions {
            challenges: Some(1),
            partitions: Some(1),
            ..SyntheticOptions::new(ProofKind::PorepSealCommit, sector_size, 3)
        };
        for options in [winning, porep] {
            let spec = options.circuit_spec().unwrap();
            let workload = decode(options.generate().unwrap().request).unwrap();
            check_partition(&spec.to_string(), &*workload, 0, &shape(&spec.to_string()));
        }
    }
}
