//! Native witnesses are the library's, variable by variable.

use cuzk::circuits::synthetic::SyntheticOptions;
use cuzk::circuits::{native, ProofKind, SectorSize, Workload};
use cuzk::groth16::density::Density;
use cuzk::groth16::packed::{PackedWitness, VariableClasses};
use cuzk::groth16::{Assignment, R1csShape, Scalar};
use cuzk::ids::PartitionIndex;

use crate::common::{decode, shape, Fixture};

/// Bits are the variables whose value is one.
fn classes(assignment: &Assignment) -> VariableClasses {
    let values = &assignment.aux_assignment;
    let mut dense = Density::new(values.len());
    let is_dense = |value: &Scalar| [0, 1].map(Scalar::from).iter().all(|bit| bit != value);
    (0..values.len()).filter(|&aux| is_dense(&values[aux])).for_each(|aux| dense.set(aux));
    VariableClasses::from_dense(dense)
}

fn check_partition(name: &str, workload: &dyn Workload, partition: u32, shape: &R1csShape) {
    let partition = PartitionIndex(partition);
    let library = workload.synthesize(partition, shape).unwrap();
    let classes = classes(&library);
    let fallbacks = native::num_fallbacks();
    let native = workload.synthesize_packed(partition, shape, &classes).unwrap();
    assert_eq!(native::num_fallbacks(), fallbacks, "{name}: the library made the witness");
    assert!(native.fits(&classes), "{name}");
    let library = PackedWitness::pack(&library, &classes).unwrap();
    if native != library {
        let difference = workload.compare_with_library(partition, &native, &classes);
        panic!("{name} partition {partition}: {}", difference.unwrap_err());
    }
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
