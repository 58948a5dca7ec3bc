//! Measurements and simulations: arguments, output and exit codes only.

#[cfg(feature = "cuda")]
mod check;
#[cfg(feature = "cuda")]
mod field;
#[cfg(feature = "cuda")]
mod kernels;
#[cfg(feature = "cuda")]
mod msm;
#[cfg(feature = "cuda")]
mod ntt;
#[cfg(feature = "cuda")]
mod proof;
#[cfg(feature = "cuda")]
mod report;
mod simulate;
mod timeline;

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Measures CuZK: its GPU kernels, with every result checked, and its scheduling, on simulated machines.
#[derive(Parser)]
#[command(name = "cuzk-bench", version, max_term_width = 100, after_help = AFTER_HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Kernels(KernelsArgs),
    Simulate(simulate::SimulateArgs),
    Timeline(timeline::TimelineArgs),
}

const AFTER_HELP: &str =
    "Exit codes: 0 done, 1 a device failed, a result was wrong or a claim does not hold, 2 wrong use.";

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
    /// Whole proofs, from a witness in host memory to their bytes.
    Proof,
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Kernels(args) => run(&args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Timeline(args) => timeline::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("cuzk-bench: {why}");
            ExitCode::FAILURE
        }
    }
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
