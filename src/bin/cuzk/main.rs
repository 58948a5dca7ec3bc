//! The command line: arguments, output and exit codes only. All proving goes through [`cuzk::engine::Engine`].

mod check_config;
mod circuits;
mod demo;
mod devices;
mod doctor;
mod failure;
mod files;
mod input;
mod inspect;
mod interrupt;
mod options;
mod params;
mod plan;
mod progress;
mod prove;
mod test_params;
mod ui;
mod verify;

use std::io::Write;
use std::process::ExitCode;
use std::sync::LazyLock;

use clap::{Parser, Subcommand};
use cuzk::config::{LogFormat, LoggingConfig, BACKENDS_BUILT, BACKENDS_NOT_BUILT};

use crate::failure::Failure;
use crate::options::GlobalOptions;
use crate::ui::Ui;

/// Proves Filecoin's Groth16 circuits (PoRep, SnapDeals, WindowPoSt, WinningPoSt) on every device of a machine.
#[derive(Parser)]
#[command(name = "cuzk", version = VERSION.as_str(), max_term_width = 100, after_help = AFTER_HELP)]
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
    Plan(plan::PlanArgs),
    Doctor(doctor::DoctorArgs),
    CheckConfig(check_config::CheckConfigArgs),
}

/// `--version`: the version, and the backends that this build can and cannot drive.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let mut text = format!("{}\nbackends: {}", env!("CARGO_PKG_VERSION"), BACKENDS_BUILT.join(", "));
    if !BACKENDS_NOT_BUILT.is_empty() {
        text += &format!("\nnot built: {}", BACKENDS_NOT_BUILT.join(", "));
    }
    text
});

const AFTER_HELP: &str = "\
Exit codes: 0 done, 1 proving failed or standard output cannot be written, 2 wrong use or configuration, 3 bad input \
(request, vanilla proof, parameter file), 130 interrupted (Ctrl-C), 143 terminated (SIGTERM), 141 standard output was \
closed.

New here? `cuzk demo` makes and verifies real proofs, with nothing prepared.";

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return not_run(&error),
    };
    let config = match (cli.global.config(), &cli.command) {
        (Ok(config), _) => config,
        // It has things to say of a machine whose configuration is wrong, that for one.
        (Err(error), Command::Doctor(args)) => return ended(doctor::run(args, Err(error))),
        (Err(error), _) => return fail_early(&options::early_logging(), &Failure::from(error)),
    };
    // Dropped last, after every message: what is still buffered is written then.
    let (_telemetry, ui) = match cuzk::telemetry::init(&options::logging(&config)) {
        Ok(guard) => (guard, Ui::new(&config.logging)),
        Err(error) => {
            let logging = LoggingConfig { format: config.logging.format, ..LoggingConfig::default() };
            return fail_early(&logging, &Failure::from(error));
        }
    };
    let done = match cli.command {
        Command::Demo(args) => demo::run(&args, &config, ui),
        Command::Prove(args) => prove::run(&args, &config, ui),
        Command::Verify(args) => verify::run(&args, &config, ui),
        Command::Inspect(args) => inspect::run(&args, ui),
        Command::Devices(args) => devices::run(&args, &config),
        Command::Circuits(args) => circuits::run(&args),
        Command::Params(args) => params::run(&args, &config, ui),
        Command::Plan(args) => plan::run(&args),
        Command::Doctor(args) => doctor::run(&args, Ok(config)),
        Command::CheckConfig(args) => check_config::run(&args, &config),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => ui.fail(&failure),
    }
}

/// The exit code of a command that ran without logs.
fn ended(done: Result<(), Failure>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => fail_early(&options::early_logging(), &failure),
    }
}

/// Ends before logs are set up as configured: the failure is said on standard error, in the configured format.
fn fail_early(logging: &LoggingConfig, failure: &Failure) -> ExitCode {
    // Dropped after the message: it is written then.
    match cuzk::telemetry::init(logging) {
        Ok(_telemetry) => Ui::new(logging).fail(failure),
        Err(_) => Ui::plain().fail(failure),
    }
}

/// Wrong arguments, or `--help` and `--version`, which clap tells in the same way and prints to standard output.
fn not_run(error: &clap::Error) -> ExitCode {
    let logging = options::early_logging();
    if error.use_stderr() && logging.format == LogFormat::Json {
        let text = error.render().to_string();
        return fail_early(&logging, &Failure::usage(text.trim_start_matches("error: ").trim_end()));
    }
    let printed = error.print().and_then(|()| std::io::stdout().flush());
    match printed {
        // What is wrong could not be said: the code is all that is left.
        _ if error.use_stderr() => ExitCode::from(failure::EXIT_USAGE),
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => Ui::plain().fail(&Failure::stdout(&error)),
    }
}
