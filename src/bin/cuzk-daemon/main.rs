//! The daemon: serves the engine over gRPC and HTTP, as an operator configured it. `life.rs` is its life.

mod answer;
mod args;
mod connection;
mod daemon;
mod failure;
mod grpc;
mod guard;
mod http;
mod life;
mod limits;
mod listen;
mod notify;
#[cfg(feature = "otlp")]
mod otlp;
mod reload;
mod security;
mod serve;
mod signals;
mod status;

use std::process::ExitCode;

use clap::Parser;
use cuzk::config::{Config, LogFormat, LoggingConfig};

use crate::args::Args;
use crate::failure::Failure;

/// Threads that speak to callers; what computes has threads of its own.
const CALL_THREADS: usize = 4;

fn main() -> ExitCode {
    let args = Args::parse();
    let config = match args.load() {
        Ok(config) => config,
        Err(error) => return fail(&Failure::from(error), args.log_format),
    };
    if args.check_config {
        return check_config(&config);
    }
    let format = Some(config.logging.format);
    match run(args, config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => fail(&failure, format),
    }
}

fn run(args: Args, config: Config) -> Result<(), Failure> {
    let signals = signals::install()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(CALL_THREADS)
        .thread_name("cuzk-calls")
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("no threads: {error}")))?;
    #[cfg(feature = "otlp")]
    let (collector, extra) = match config.telemetry.otlp_endpoint.as_str() {
        "" => (None, None),
        endpoint => {
            let _runtime = runtime.enter();
            otlp::Collector::start(endpoint).map(|(collector, layer)| (Some(collector), Some(layer)))?
        }
    };
    #[cfg(not(feature = "otlp"))]
    let extra = None;
    let telemetry = cuzk::telemetry::init_with(&config.logging, extra)?;
    let ended = runtime.block_on(life::run(args, config, telemetry.filter(), signals));
    // While the runtime still sends.
    #[cfg(feature = "otlp")]
    drop(collector);
    // A caller that holds a connection open does not hold the process.
    runtime.shutdown_background();
    ended
}

fn check_config(config: &Config) -> ExitCode {
    config.warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
    match life::check(config) {
        Ok(_) => {
            println!("the configuration can be used");
            ExitCode::SUCCESS
        }
        Err(failure) => fail(&failure, Some(config.logging.format)),
    }
}

/// Says why, in the form of log lines, whether or not the log lets anything through.
fn fail(failure: &Failure, format: Option<LogFormat>) -> ExitCode {
    let by_variable = std::env::var("CUZK_LOGGING_FORMAT").is_ok_and(|format| format == "json");
    let format =
        format.unwrap_or(if by_variable { LogFormat::Json } else { LoggingConfig::default().format });
    match format {
        LogFormat::Json => {
            let line = serde_json::json!({
                "level": "ERROR", "message": failure.what, "exit_code": failure.code,
            });
            eprintln!("{line}");
        }
        LogFormat::Text => eprintln!("error: {failure}"),
    }
    ExitCode::from(failure.code)
}
