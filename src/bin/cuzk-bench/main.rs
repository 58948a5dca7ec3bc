//! Measurements, their inputs, and simulations: arguments, output and exit codes only.

#[cfg(feature = "cuda")]
mod check;
#[cfg(feature = "daemon")]
#[path = "../common/daemon_options.rs"]
mod daemon_options;
#[cfg(feature = "cuda")]
mod field;
#[cfg(feature = "cuda")]
mod fold;
mod gen_vanilla;
#[cfg(feature = "cuda")]
mod kernels;
mod layouts;
#[cfg(feature = "daemon")]
mod load;
#[cfg(feature = "daemon")]
#[path = "../common/manual.rs"]
mod manual;
#[cfg(feature = "cuda")]
mod msm;
#[cfg(feature = "cuda")]
mod ntt;
#[cfg(any(feature = "cuda", feature = "daemon"))]
mod percentiles;
#[cfg(feature = "cuda")]
mod proof;
#[cfg(feature = "cuda")]
mod report;
mod shape;
mod simulate;
#[cfg(feature = "cuda")]
mod spmv;
mod timeline;
#[cfg(feature = "cuda")]
mod whole;
mod witness;

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Measures CuZK's proving under load, its GPU kernels and shapes, and checks every result that a figure stands on;
/// makes inputs for measurements; runs its scheduling on simulated machines.
#[derive(Parser)]
#[command(name = "cuzk-bench", version, max_term_width = 100, after_help = AFTER_HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Kernels(KernelsArgs),
    GenVanilla(gen_vanilla::GenVanillaArgs),
    Layouts(layouts::LayoutsArgs),
    Shape(shape::ShapeArgs),
    Simulate(simulate::SimulateArgs),
    Timeline(timeline::TimelineArgs),
    #[cfg(feature = "cuda")]
    Whole(whole::WholeArgs),
    Witness(witness::WitnessArgs),
    #[cfg(feature = "daemon")]
    Single(load::SingleArgs),
    #[cfg(feature = "daemon")]
    Batch(load::BatchArgs),
    #[cfg(feature = "daemon")]
    Stress(load::StressArgs),
    #[cfg(feature = "daemon")]
    Completions(manual::CompletionsArgs),
    #[cfg(feature = "daemon")]
    Man(manual::ManArgs),
}

const AFTER_HELP: &str = "Exit codes: 0 done, 1 a device failed, a result was wrong or a file cannot be \
                          written, 2 wrong use.";

/// Rates of every kernel on the first GPU (CUDA_VISIBLE_DEVICES chooses), on data that is resident there.
#[derive(Args)]
#[cfg_attr(not(feature = "cuda"), allow(dead_code))] // Parsed all the same: the message then names the real reason.
struct KernelsArgs {
    /// Only these, separated by commas.
    #[arg(long, value_delimiter = ',', value_name = "KERNELS")]
    only: Vec<Kernel>,
    /// One JSON document instead of a table.
    #[arg(long)]
    json: bool,
    /// Small sizes and few repeats: whether it works, not how fast it is.
    #[arg(long)]
    quick: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kernel {
    /// Base field multiplications.
    Fp,
    /// Scalar field multiplications.
    Fr,
    /// Transforms, and the quotient.
    Ntt,
    /// Transforms cut into passes in other ways; only where it is asked for.
    NttPlans,
    /// Sums of points times scalars in G1.
    MsmG1,
    /// The same in G2.
    MsmG2,
    /// Sums in G1 with other windows and affine levels; only where it is asked for.
    MsmPlans,
    /// Row values from packed witnesses; only where it is asked for, since recording PoRep of 32 GiB takes a minute.
    Spmv,
    /// Whole proofs, from a witness in host memory to their bytes.
    Proof,
    /// Folding keys, quotients in both bases, and proofs with plain and folded keys; only where it is asked for.
    Fold,
}

/// Why a command failed, and its exit code.
pub struct Failure {
    code: u8,
    what: String,
}

impl Failure {
    /// The arguments cannot be had.
    pub fn usage(what: impl std::fmt::Display) -> Self {
        Self { code: 2, what: what.to_string() }
    }

    pub fn failed(what: impl std::fmt::Display) -> Self {
        Self { code: 1, what: what.to_string() }
    }
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Kernels(args) => run(&args).map_err(Failure::failed),
        Command::GenVanilla(args) => gen_vanilla::run(&args),
        Command::Layouts(args) => layouts::run(&args),
        Command::Shape(args) => shape::run(&args),
        Command::Simulate(args) => simulate::run(&args).map_err(Failure::failed),
        Command::Timeline(args) => timeline::run(&args).map_err(Failure::failed),
        #[cfg(feature = "cuda")]
        Command::Whole(args) => whole::run(&args),
        Command::Witness(args) => witness::run(&args),
        #[cfg(feature = "daemon")]
        Command::Single(args) => load::single(&args),
        #[cfg(feature = "daemon")]
        Command::Batch(args) => load::batch(&args),
        #[cfg(feature = "daemon")]
        Command::Stress(args) => load::stress(&args),
        #[cfg(feature = "daemon")]
        Command::Completions(args) => args.run(programs()).map_err(Failure::failed),
        #[cfg(feature = "daemon")]
        Command::Man(args) => args.run(programs()).map_err(Failure::failed),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { code, what }) => {
            eprintln!("cuzk-bench: {what}");
            ExitCode::from(code)
        }
    }
}

#[cfg(feature = "daemon")]
fn programs() -> Vec<clap::Command> {
    use clap::CommandFactory;
    vec![Cli::command()]
}

#[cfg(feature = "cuda")]
fn run(args: &KernelsArgs) -> Result<(), Box<dyn std::error::Error>> {
    let report = kernels::measure(args)?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{report}");
    }
    Ok(())
}

#[cfg(not(feature = "cuda"))]
fn run(_: &KernelsArgs) -> Result<(), Box<dyn std::error::Error>> {
    Err("this program was built without GPU support; rebuild it with --features cuda".into())
}
