//! The command line: arguments, output and exit codes only. All proving goes through [`cuzk::engine::Engine`].

mod check_config;
mod circuits;
#[cfg(feature = "daemon")]
mod daemon;
#[cfg(feature = "daemon")]
#[allow(dead_code)] // The daemon reads them; here they are only described.
#[path = "../cuzk-daemon/args.rs"]
mod daemon_args;
mod demo;
mod devices;
mod doctor;
mod failure;
mod files;
mod input;
mod inspect;
mod interrupt;
#[cfg(feature = "daemon")]
#[path = "../common/manual.rs"]
mod manual;
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
    #[cfg(feature = "daemon")]
    #[command(flatten)]
    Daemon(DaemonCommand),
    #[cfg(feature = "daemon")]
    Completions(manual::CompletionsArgs),
    #[cfg(feature = "daemon")]
    Man(manual::ManArgs),
}

/// What speaks to a running daemon.
#[cfg(feature = "daemon")]
#[derive(Subcommand)]
enum DaemonCommand {
    Status(daemon::StatusArgs),
    Top(daemon::TopArgs),
    Submit(daemon::SubmitArgs),
    Await(daemon::AwaitArgs),
    Jobs(daemon::JobsArgs),
    Cancel(daemon::CancelArgs),
    Preload(daemon::PreloadArgs),
    Evict(daemon::EvictArgs),
    Reload(daemon::ReloadArgs),
    Drain(daemon::DrainArgs),
}

#[cfg(feature = "daemon")]
impl DaemonCommand {
    fn run(self, config: &cuzk::config::Config, ui: Ui) -> Result<(), Failure> {
        use daemon::run;
        match self {
            Self::Status(args) => run::status(&args, config),
            Self::Top(args) => run::top(&args, config),
            Self::Submit(args) => run::submit(&args, config, ui),
            Self::Await(args) => run::await_job(&args, config, ui),
            Self::Jobs(args) => run::jobs(&args, config),
            Self::Cancel(args) => run::cancel(&args, config, ui),
            Self::Preload(args) => run::preload(&args, config, ui),
            Self::Evict(args) => run::evict(&args, config, ui),
            Self::Reload(args) => run::reload(&args, config),
            Self::Drain(args) => run::drain(&args, config),
        }
    }
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
        #[cfg(feature = "daemon")]
        Command::Daemon(command) => command.run(&config, ui),
        #[cfg(feature = "daemon")]
        Command::Completions(args) => args.run(programs()).map_err(|error| Failure::stdout(&error)),
        #[cfg(feature = "daemon")]
        Command::Man(args) => args.run(programs()).map_err(|error| Failure::written(&error)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => ui.fail(&failure),
    }
}

/// The programs that `man` and `completions` are about.
#[cfg(feature = "daemon")]
fn programs() -> Vec<clap::Command> {
    use clap::CommandFactory;
    // A page's header has room for one line.
    vec![Cli::command().version(env!("CARGO_PKG_VERSION")), daemon_args::Args::command()]
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
