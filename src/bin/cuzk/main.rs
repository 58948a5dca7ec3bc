//! The command line: arguments, output and exit codes only. All proving goes through [`cuzk::engine::Engine`].

mod check_config;
mod circuits;
mod demo;
mod devices;
mod failure;
mod files;
mod input;
mod inspect;
mod interrupt;
mod options;
mod params;
mod progress;
mod prove;
mod test_params;
mod ui;
mod verify;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::failure::Failure;
use crate::options::GlobalOptions;
use crate::ui::Ui;

/// Proves Filecoin's Groth16 circuits (PoRep, SnapDeals, WindowPoSt, WinningPoSt) on every device of a machine.
#[derive(Parser)]
#[command(name = "cuzk", version = VERSION, max_term_width = 100, after_help = AFTER_HELP)]
struct Cli {
    #[command(flatten)]
    global: GlobalOptions,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Demo(demo::DemoArgs),
    Prove(prove::ProveArgs),
    Verify(verify::VerifyArgs),
    Inspect(inspect::InspectArgs),
    Devices(devices::DevicesArgs),
    Circuits(circuits::CircuitsArgs),
    Params(params::ParamsArgs),
    CheckConfig(check_config::CheckConfigArgs),
}

/// Backends that this build cannot drive.
const BACKENDS_NOT_BUILT: &str = "cuda";

/// `--version`: the version, and the backends this build can drive.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\nbackends: cpu, sim\nnot built: cuda");

const AFTER_HELP: &str = "\
Exit codes: 0 done, 1 proving failed, 2 wrong use or configuration, 3 bad input (request, vanilla proof, parameter \
file), 130 interrupted (Ctrl-C), 143 terminated (SIGTERM), 141 standard output was closed.

New here? `cuzk demo` makes and verifies real proofs, with nothing prepared.";

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are no errors: clap prints them to standard output and the code is 0.
            let code = if error.use_stderr() { failure::EXIT_USAGE } else { 0 };
            // A closed pipe is the reader's choice.
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    let config = match cli.global.config() {
        Ok(config) => config,
        Err(error) => return Ui::plain().fail(&Failure::from(error)),
    };
    // Dropped last, after every message: what is still buffered is written then.
    let (_telemetry, ui) = match cuzk::telemetry::init(&config.logging) {
        Ok(guard) => (guard, Ui::new(&config.logging)),
        Err(error) => return Ui::plain().fail(&Failure::from(error)),
    };
    let done = match cli.command {
        Command::Demo(args) => demo::run(&args, &config, ui),
        Command::Prove(args) => prove::run(&args, &config, ui),
        Command::Verify(args) => verify::run(&args, &config),
        Command::Inspect(args) => inspect::run(&args),
        Command::Devices(args) => devices::run(&args, &config),
        Command::Circuits(args) => circuits::run(&args),
        Command::Params(args) => params::run(&args, &config, ui),
        Command::CheckConfig(args) => check_config::run(&args, &config),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => ui.fail(&failure),
    }
}
