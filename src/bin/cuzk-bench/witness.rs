//! `cuzk-bench witness`: how long a job's witnesses take, and whether they are the library's.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use cuzk::circuits::manifest::Manifest;
use cuzk::circuits::{native, Workload};
use cuzk::groth16::{PackedWitness, R1csShape};
use cuzk::ids::PartitionIndex;
use rayon::prelude::*;

use crate::Failure;

/// Make the witnesses of a job, one after another and all at once.
#[derive(Args)]
pub struct WitnessArgs {
    /// A folder with a manifest: recorded, or made by gen-vanilla
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Only the first partitions [default: all]
    #[arg(long, value_name = "N")]
    partitions: Option<u32>,
    /// Worker threads [default: one per core]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Hold each witness against the library's synthesis, variable by variable; its time is the library's
    #[arg(long)]
    compare: bool,
}

/// A decoded job with its circuit.
struct Job {
    workload: Arc<dyn Workload>,
    shape: R1csShape,
}

pub fn run(args: &WitnessArgs) -> Result<(), Failure> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(args.threads.unwrap_or(0)).build();
    pool.map_err(Failure::failed)?.install(|| measure(args))
}

fn measure(args: &WitnessArgs) -> Result<(), Failure> {
    let (job, recorded) = timed(|| read(&args.dir))?;
    let Job { workload, shape } = &job;
    println!(
        "{}: {} variables, {} of them dense; read and recorded in {}; {} threads",
        workload.circuit(),
        shape.num_aux(),
        shape.classes().num_dense(),
        seconds(recorded),
        rayon::current_num_threads(),
    );
    let num_partitions = args.partitions.unwrap_or(u32::MAX).min(workload.num_partitions());
    for partition in (0..num_partitions).map(PartitionIndex) {
        // The first witness of a circuit is preceded by the check of its layouts.
        if partition.0 == 0 {
            let (_, first) = timed(|| job.make(partition))?;
            println!("partition 0, with the check of the layouts: {}", seconds(first));
        }
        let (witness, alone) = timed(|| job.make(partition))?;
        print!("partition {partition}: {}, {:.1} MB", seconds(alone), witness.num_bytes() as f64 / 1e6);
        if args.compare {
            let compare =
                || workload.compare_with_library(partition, &witness, shape).map_err(Failure::failed);
            let ((), library) = timed(compare)?;
            let ratio = library.as_secs_f64() / alone.as_secs_f64();
            print!("; the library's, in {}: {ratio:.1} times as long", seconds(library));
        }
        println!();
    }
    let all = || {
        let partitions = (0..num_partitions).into_par_iter().map(PartitionIndex);
        partitions.map(|partition| job.make(partition).map(drop)).collect::<Result<(), _>>()
    };
    let ((), all) = timed(all)?;
    println!("{num_partitions} partitions at once: {}", seconds(all));
    match native::num_fallbacks() {
        0 => Ok(()),
        number => Err(Failure::failed(format!("the library had to make {number} witnesses"))),
    }
}

fn read(dir: &Path) -> Result<Job, Failure> {
    let manifest = Manifest::read(&dir.join("manifest.json")).map_err(Failure::usage)?;
    let request = manifest.request(0, dir).map_err(Failure::usage)?;
    let workload = request.decode(Path::new("")).map_err(Failure::usage)?;
    let shape = workload.record_shape().map_err(Failure::failed)?;
    Ok(Job { workload, shape })
}

impl Job {
    fn make(&self, partition: PartitionIndex) -> Result<PackedWitness, Failure> {
        self.workload.synthesize(partition, &self.shape).map_err(Failure::failed)
    }
}

fn timed<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<(T, Duration), Failure> {
    let start = Instant::now();
    let made = work()?;
    Ok((made, start.elapsed()))
}

fn seconds(time: Duration) -> String {
    match time.as_secs_f64() {
        long if long >= 10.0 => format!("{long:.1} s"),
        short => format!("{short:.3} s"),
    }
}
