//! `cuzk-bench witness`: how long a job's witnesses take, and whether they are the library's.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use cuzk::circuits::manifest::Manifest;
use cuzk::circuits::{native, Workload};
use cuzk::groth16::{PackedWitness, R1csShape};
use cuzk::ids::PartitionIndex;
use cuzk::telemetry::process::peak_resident_bytes;
use rayon::prelude::*;
use rayon::ThreadPool;

use crate::Failure;

/// Times that a witness is made on one core, of which the least and the most are reported; fewer if they take long.
const ONE_CORE_RUNS: usize = 3;
const ONE_CORE_LIMIT: Duration = Duration::from_secs(4);

/// Make the witnesses of a job: on one core, one after another on all, and all at once.
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
    /// Hold the witnesses of the first N partitions [without a number: of all] against the library's synthesis, variable
    /// by variable; it runs on one core, and its time is compared with that of one core here
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "4294967295")]
    compare: Option<u32>,
    /// End the library's synthesis after this share of the variables, and say what the whole would have taken: the time up
    /// to the first variable, and the rest in proportion
    #[arg(long, value_name = "P", requires = "compare", value_parser = clap::value_parser!(u8).range(1..=100),
          default_value_t = 100)]
    compare_percent: u8,
    /// Matrices that `cuzk-bench shape --out` has written, instead of recording them
    #[arg(long, value_name = "FILE")]
    shape: Option<PathBuf>,
}

/// A decoded job with its circuit.
struct Job {
    workload: Arc<dyn Workload>,
    shape: R1csShape,
}

pub fn run(args: &WitnessArgs) -> Result<(), Failure> {
    let one_core = pool(1)?;
    pool(args.threads.unwrap_or(0))?.install(|| measure(args, &one_core))
}

fn pool(num_threads: usize) -> Result<ThreadPool, Failure> {
    rayon::ThreadPoolBuilder::new().num_threads(num_threads).build().map_err(Failure::failed)
}

fn measure(args: &WitnessArgs, one_core: &ThreadPool) -> Result<(), Failure> {
    let job = read(args)?;
    let num_partitions = args.partitions.unwrap_or(u32::MAX).min(job.workload.num_partitions());
    let num_compared = args.compare.unwrap_or(0).min(num_partitions);
    // The first witness of a circuit is preceded by the check of its layouts.
    let (_, first) = timed(|| job.make(PartitionIndex(0)))?;
    println!("partition 0, with the check of the layouts: {}", seconds(first));
    let alone_on_one = one_core.install(|| job.time_one_core())?;
    for partition in (0..num_partitions).map(PartitionIndex) {
        let (witness, alone) = timed(|| job.make(partition))?;
        println!("partition {partition}: {}, {:.1} MB", seconds(alone), witness.num_bytes() as f64 / 1e6);
        if partition.0 < num_compared {
            job.compare(partition, &witness, args.compare_percent, alone_on_one)?;
        }
    }
    if num_partitions > 1 {
        let all = || {
            let partitions = (0..num_partitions).into_par_iter().map(PartitionIndex);
            partitions.map(|partition| job.make(partition).map(drop)).collect::<Result<(), _>>()
        };
        let ((), all) = timed(all)?;
        println!("{num_partitions} partitions at once: {}", seconds(all));
    }
    if let Some(peak) = peak_resident_bytes() {
        println!("most memory of this process: {:.2} GB", peak as f64 / 1e9);
    }
    match native::num_fallbacks() {
        0 => Ok(()),
        number => Err(Failure::failed(format!("the library had to make {number} witnesses"))),
    }
}

fn read(args: &WitnessArgs) -> Result<Job, Failure> {
    let dir: &Path = &args.dir;
    let decode = || {
        let manifest = Manifest::read(&dir.join("manifest.json")).map_err(Failure::usage)?;
        let request = manifest.request(0, dir).map_err(Failure::usage)?;
        request.decode(Path::new("")).map_err(Failure::usage)
    };
    let (workload, decoded) = timed(decode)?;
    let (shape, recorded) = timed(|| match &args.shape {
        None => workload.record_shape().map_err(Failure::failed),
        Some(path) => R1csShape::load(path).map_err(Failure::usage),
    })?;
    println!(
        "{}: {} variables, {} of them dense; read and checked in {}, matrices {} in {}; {} threads",
        workload.circuit(),
        shape.num_aux(),
        shape.classes().num_dense(),
        seconds(decoded),
        if args.shape.is_some() { "read" } else { "recorded" },
        seconds(recorded),
        rayon::current_num_threads(),
    );
    Ok(Job { workload, shape })
}

impl Job {
    fn make(&self, partition: PartitionIndex) -> Result<PackedWitness, Failure> {
        self.workload.synthesize(partition, &self.shape).map_err(Failure::failed)
    }

    /// The least time of partition 0, on a pool of one thread.
    fn time_one_core(&self) -> Result<Duration, Failure> {
        let run = || {
            let (made, sha256) = native::time_sha256(|| timed(|| self.make(PartitionIndex(0)).map(drop)));
            made.map(|((), whole)| (whole, sha256))
        };
        let (begun, mut runs) = (Instant::now(), vec![run()?]);
        while runs.len() < ONE_CORE_RUNS && begun.elapsed() < ONE_CORE_LIMIT {
            runs.push(run()?);
        }
        let least = *runs.iter().min().expect("there are runs");
        let most = *runs.iter().max().expect("there are runs");
        println!(
            "partition 0 on one core: {} to {}, of which SHA-256 {}",
            seconds(least.0),
            seconds(most.0),
            seconds(least.1)
        );
        Ok(least.0)
    }

    /// Holds a witness against the library's; `alone` is what it took on one core.
    fn compare(
        &self,
        partition: PartitionIndex,
        witness: &PackedWitness,
        percent: u8,
        alone: Duration,
    ) -> Result<(), Failure> {
        let run = |limit: Option<usize>| {
            let compare = || self.workload.compare_with_library(partition, witness, &self.shape, limit);
            timed(|| compare().map_err(Failure::failed))
        };
        let num_aux = self.shape.num_aux();
        let (library, what) = if percent == 100 {
            let ((), library) = run(None)?;
            (library, format!("equal to the library's in all {num_aux} variables, which took it"))
        } else {
            let first = (num_aux / 100 * usize::from(percent)).max(1);
            let ((), begun) = run(Some(1))?;
            let ((), part) = run(Some(first))?;
            let whole = begun + part.saturating_sub(begun).mul_f64(num_aux as f64 / first as f64);
            let took = format!("which took it {}, so that all {num_aux} would take", seconds(part));
            (whole, format!("equal to the library's in the first {first} variables, {took}"))
        };
        let ratio = library.as_secs_f64() / alone.as_secs_f64();
        println!("  {what} {}: {ratio:.1} times as long as here, both on one core", seconds(library));
        Ok(())
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
