//! `cuzk doctor`: what a machine lacks to prove, and what to do about it. Works where nothing works: whatever cannot be
//! looked at is a finding, not an end.

mod circuits;
mod daemon;
mod finding;
mod folders;
mod gpus;
mod host;
mod root;

use std::path::PathBuf;

use clap::Args;
use cuzk::config::Config;
use cuzk::error::ConfigError;
use serde_json::json;

use crate::failure::Failure;
use crate::options::ParamsOption;
use crate::ui;
use finding::{Finding, Verdict};
use root::Root;

/// Check driver, GPUs, memory, parameter files, disks, limits, clock and sockets, and say what to do
#[derive(Args)]
pub struct DoctorArgs {
    #[command(flatten)]
    params: ParamsOption,
    /// One JSON object a line for each check, and a last one with their numbers
    #[arg(long)]
    json: bool,
    /// Only what is not fine
    #[arg(long, short)]
    quiet: bool,
    /// Look at the system's files below this folder
    #[arg(long, value_name = "DIR", hide = true, default_value = "/")]
    root: PathBuf,
}

/// A configuration that cannot be used is one of the findings; the others are then about the defaults.
pub fn run(args: &DoctorArgs, config: Result<Config, ConfigError>) -> Result<(), Failure> {
    let root = Root::new(&args.root);
    let mut findings = Vec::new();
    let config = config.unwrap_or_else(|error| {
        let advice = "correct it; `cuzk check-config FILE` says more. The rest of this is about the defaults";
        findings.push(Finding::problem("configuration", error.to_string(), advice));
        Config::default()
    });
    let params_dir = args.params.dir(&config);
    findings.extend(host::check(&root));
    let (gpu_findings, gpus) = gpus::check(&root, &config);
    findings.extend(gpu_findings);
    findings.extend(folders::check(&config, &params_dir));
    findings.extend(circuits::check(&root, &config, &params_dir, &gpus));
    findings.extend(daemon::check(&root, &config));
    print(args, &findings)
}

fn print(args: &DoctorArgs, findings: &[Finding]) -> Result<(), Failure> {
    let count = |verdict| findings.iter().filter(|finding| finding.verdict == verdict).count();
    let (problems, warnings) = (count(Verdict::Problem), count(Verdict::Warn));
    let shown = findings.iter().filter(|finding| !args.quiet || finding.verdict != Verdict::Fine);
    if args.json {
        for finding in shown {
            ui::out(&finding.as_json().to_string())?;
        }
        let numbers = json!({ "checks": findings.len(), "warnings": warnings, "problems": problems });
        ui::out(&json!({ "total": numbers }).to_string())?;
    } else {
        let width = findings.iter().map(|finding| finding.name.chars().count()).max().unwrap_or(0);
        for finding in shown {
            ui::out(&finding.text(width))?;
        }
        ui::out(&format!(
            "{}: {}, {}",
            ui::count(findings.len() as u64, "check"),
            ui::count(problems as u64, "problem"),
            ui::count(warnings as u64, "warning")
        ))?;
    }
    if problems == 0 {
        return Ok(());
    }
    let what = format!(
        "{} to solve before this machine can do what is configured",
        ui::count(problems as u64, "problem")
    );
    Err(Failure { class: "caller", ..Failure::proving("doctor", what) })
}
