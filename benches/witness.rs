//! Witnesses straight from the vanilla proofs, beside the library's synthesis of the same partition.
//!
//! `CUZK_BENCH_CIRCUITS=window-2k,porep-8m` measures these alone. Full-size partitions: `cuzk-bench gen-vanilla` and
//! `cuzk-bench witness --compare`.

use std::path::Path;

use criterion::{criterion_group, criterion_main, Criterion, Throughput};
use cuzk::circuits::manifest::Manifest;
use cuzk::circuits::synthetic::SyntheticOptions;
use cuzk::circuits::{native, FilecoinRequest, ProofKind, SectorSize};
use cuzk::ids::PartitionIndex;

fn recorded(job: &str) -> FilecoinRequest {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/filecoin").join(job);
    let manifest = Manifest::read(&dir.join("manifest.json")).expect("recorded");
    manifest.request(0, &dir).expect("recorded")
}

/// One challenge of a 32 GiB PoRep: an 18th of a partition.
fn porep_32g() -> FilecoinRequest {
    let options = SyntheticOptions {
        challenges: Some(1),
        partitions: Some(1),
        ..SyntheticOptions::new(ProofKind::PorepSealCommit, SectorSize::Size32GiB, 1)
    };
    options.generate().expect("options that can be had").request
}

fn bench_job(criterion: &mut Criterion, name: &str, request: FilecoinRequest) {
    let workload = request.decode(Path::new("")).expect("recorded");
    let shape = workload.record_shape().expect("blank circuit");
    let partition = PartitionIndex(0);
    // The check of the layouts comes before the first.
    let witness = workload.synthesize(partition, &shape).expect("recorded");
    let native = || workload.synthesize(partition, &shape).expect("recorded");
    let library = || workload.compare_with_library(partition, &witness, &shape, None).expect("equal");
    let mut group = criterion.benchmark_group(format!("witness/{name}"));
    group.throughput(Throughput::Elements(shape.num_aux() as u64)).sample_size(10);
    group.bench_function("cuzk", |bencher| bencher.iter(native));
    // Its values are compared and not kept, which costs it less than a witness would.
    group.bench_function("library", |bencher| bencher.iter(library));
    group.finish();
    assert_eq!(native::num_fallbacks(), 0, "{name}: the library made the witness");
}

fn bench_witnesses(criterion: &mut Criterion) {
    let asked = std::env::var("CUZK_BENCH_CIRCUITS").ok();
    let is_asked =
        |name: &str| asked.as_deref().is_none_or(|names| names.split(',').any(|asked| asked == name));
    for (name, job) in [
        ("window-2k", "window-2k/full-partition"),
        ("winning-2k", "winning-2k/sector-1"),
        ("window-8m", "window-8m/full-partition"),
        ("winning-8m", "winning-8m/sector-1"),
        ("snap-2k", "snap-2k/sector-1"),
        ("snap-8m", "snap-8m/sector-1"),
        ("porep-2k", "porep-2k/sector-1"),
        ("porep-8m", "porep-8m/sector-1"),
    ] {
        if is_asked(name) {
            bench_job(criterion, name, recorded(job));
        }
    }
    if is_asked("porep-32g-k1") {
        bench_job(criterion, "porep-32g-k1", porep_32g());
    }
}

criterion_group!(benches, bench_witnesses);
criterion_main!(benches);
