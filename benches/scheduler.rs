//! What a partition costs the engine itself: Scheduler, Synthesizer and messages, with devices and a host that cost no
//! time, while thousands of jobs wait. Processor time, so that it does not matter what else the machine does.

#[path = "../tests/common/mod.rs"]
mod common;

use std::time::Duration;

use common::load::overhead;
use common::on_paused_arbiter;
use criterion::{criterion_group, criterion_main, Criterion, Throughput};

fn partitions(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("scheduler");
    group.sample_size(10).warm_up_time(Duration::from_millis(1)).throughput(Throughput::Elements(1));
    for num_jobs in [1_000, 10_000] {
        group.bench_function(format!("partition/{num_jobs}-jobs/sim-8"), |bencher| {
            // One run of all jobs gives one figure per partition, whatever number criterion asks for.
            bencher.iter_custom(|iterations| {
                let each = on_paused_arbiter(overhead(8, num_jobs, 1)).per_partition();
                each * u32::try_from(iterations).unwrap_or(u32::MAX)
            });
        });
    }
    group.finish();
}

criterion_group!(benches, partitions);
criterion_main!(benches);
