//! The commands that speak to a running `cuzk-daemon`: what it does, and what it shall do.
//!
//! ```text
//! options     where it is       snapshot.rs  what it says, once
//!      │                             │
//! status.rs, top/                look at it
//! submit.rs, follow.rs           give it jobs and wait for them; jobs.rs lists, awaits, cancels
//! steer.rs                       drain, reload, preload, evict
//! ```

mod follow;
mod jobs;
#[path = "../common/daemon_options.rs"]
mod options;
mod snapshot;
mod status;
mod steer;
mod submit;
mod top;

use std::future::Future;

use cuzk::config::Config;
use cuzk::error::ErrorClass;
use cuzk_wire::client::{Client, ConnectError};
use tonic::{Code, Status};

pub use jobs::{AwaitArgs, CancelArgs, JobsArgs};
pub use options::DaemonOptions;
pub use status::StatusArgs;
pub use steer::{DrainArgs, EvictArgs, PreloadArgs, ReloadArgs};
pub use submit::SubmitArgs;
pub use top::TopArgs;

use crate::failure::{Failure, EXIT_INPUT, EXIT_PROVING, EXIT_USAGE};

/// Each command's `run`.
pub mod run {
    pub use super::jobs::{run_await as await_job, run_cancel as cancel, run_jobs as jobs};
    pub use super::status::run as status;
    pub use super::steer::{
        run_drain as drain, run_evict as evict, run_preload as preload, run_reload as reload,
    };
    pub use super::submit::run as submit;
    pub use super::top::run as top;
}

/// Runs `work` with a connection to the daemon, on this thread.
fn with_client<T, F>(
    options: &DaemonOptions,
    config: &Config,
    work: impl FnOnce(Client) -> F,
) -> Result<T, Failure>
where
    F: Future<Output = Result<T, Failure>>,
{
    let endpoint = options.endpoint(config).map_err(Failure::usage)?;
    let runtime = runtime()?;
    let done = runtime.block_on(async { work(cuzk_wire::client::connect(&endpoint).await?).await });
    // What still runs there (a thread that waits for a signal) is of no use any more.
    runtime.shutdown_background();
    done
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::proving("threads", format!("the system refuses a runtime: {error}")))
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        let code = match &error {
            ConnectError::Address { .. } | ConnectError::Tls { .. } | ConnectError::Token => EXIT_USAGE,
            ConnectError::Forbidden { .. } => EXIT_USAGE,
            ConnectError::NoDaemon { .. } | ConnectError::Failed { .. } => EXIT_PROVING,
        };
        let class = if code == EXIT_USAGE { ErrorClass::Caller } else { ErrorClass::Retry };
        Self { code, class: class.as_str(), message: error.to_string(), at: "daemon".to_owned() }
    }
}

/// What the daemon answers where it does not do what it was asked.
fn refused(at: &str, status: &Status) -> Failure {
    let (code, class, hint) = match status.code() {
        Code::InvalidArgument | Code::NotFound | Code::OutOfRange => (EXIT_INPUT, ErrorClass::Caller, ""),
        Code::Unauthenticated => (EXIT_USAGE, ErrorClass::Caller, " (--token-file names the token's file)"),
        Code::PermissionDenied | Code::Unimplemented => (EXIT_USAGE, ErrorClass::Caller, ""),
        Code::Cancelled => (EXIT_PROVING, ErrorClass::Cancelled, ""),
        Code::Unavailable => (EXIT_PROVING, ErrorClass::Retry, " (the daemon went away, or takes no more)"),
        Code::Internal | Code::DataLoss | Code::Unknown => (EXIT_PROVING, ErrorClass::Bug, ""),
        _ => (EXIT_PROVING, ErrorClass::Retry, ""),
    };
    let said = match status.message() {
        "" => status.code().description(),
        message => message,
    };
    Failure { code, class: class.as_str(), message: format!("{at}: {said}{hint}"), at: at.to_owned() }
}
