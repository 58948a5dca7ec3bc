//! `cuzk jobs`, `cuzk await` and `cuzk cancel`: jobs that a daemon has.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use cuzk::circuits::check::Checked;
use cuzk::config::Config;
use cuzk::groth16::proof::PROOF_BYTES;
use cuzk_wire::client::Client;
use cuzk_wire::v1::{AwaitProofResponse, CancelProofRequest};
use serde_json::{json, Value};

use super::follow::{self, Poll};
use super::snapshot::Snapshot;
use super::status::{self, seconds};
use super::{refused, with_client, DaemonOptions};
use crate::failure::Failure;
use crate::files;
use crate::interrupt::Interrupts;
use crate::progress::Board;
use crate::ui::{self, Ui};

/// List the daemon's jobs that have not ended
#[derive(Args)]
pub struct JobsArgs {
    #[command(flatten)]
    daemon: DaemonOptions,
    /// One JSON object a line for each job
    #[arg(long)]
    json: bool,
}

/// Wait for a job's proof
#[derive(Args)]
pub struct AwaitArgs {
    /// As `cuzk submit` printed it
    #[arg(value_name = "JOB")]
    job: String,
    #[command(flatten)]
    daemon: DaemonOptions,
    /// Wait no longer than this [default: until the job ends]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<Duration>,
    /// Write the proof here: 192 bytes a partition
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

/// Cancel jobs: each stops at its next stage boundary
#[derive(Args)]
pub struct CancelArgs {
    /// As `cuzk submit` printed them
    #[arg(required = true, value_name = "JOB")]
    jobs: Vec<String>,
    #[command(flatten)]
    daemon: DaemonOptions,
    /// One JSON object a line for each job
    #[arg(long)]
    json: bool,
}

pub fn run_jobs(args: &JobsArgs, config: &Config) -> Result<(), Failure> {
    let snapshot = with_client(&args.daemon, config, |mut client| async move {
        Snapshot::take(&mut client).await.map_err(|error| refused("jobs", &error))
    })?;
    if !args.json {
        return ui::out(status::jobs(&snapshot).trim_start());
    }
    for job in &snapshot.jobs {
        ui::out(&serde_json::to_string(job).expect("it is plain data"))?;
    }
    Ok(())
}

pub fn run_await(args: &AwaitArgs, config: &Config, ui: Ui) -> Result<(), Failure> {
    if let Some(path) = &args.out {
        files::check_writable(path)?;
    }
    let interrupts = Interrupts::install()?;
    let ended = with_client(&args.daemon, config, |client| {
        follow::unless_interrupted(interrupts, wait(args, ui, client))
    });
    let response = match ended {
        Ok(response) => response,
        Err(failure) => {
            if args.json {
                ui::out(
                    &json!({ "job_id": args.job, "proof": null, "error": failure.as_json() }).to_string(),
                )?;
            }
            return Err(failure);
        }
    };
    // First: a reader that went away must not cost a proof that has another place to go.
    if let Some(path) = &args.out {
        files::write_atomically(path, &response.proof)?;
    }
    if args.json {
        ui::out(&ended_json(&response).to_string())
    } else {
        ui::out(&proved_text(&response, None))
    }
}

async fn wait(args: &AwaitArgs, ui: Ui, mut client: Client) -> Result<AwaitProofResponse, Failure> {
    let board = Board::new(ui);
    let line = board.line(format!("job {}", args.job));
    let poll = Poll::start(client.clone());
    follow::wait(&mut client, &args.job, args.timeout, &poll, &line).await.and_then(follow::outcome)
}

fn ended_json(response: &AwaitProofResponse) -> Value {
    json!({
        "job_id": response.job_id,
        "circuit": response.circuit_id,
        "proof": hex::encode(&response.proof),
        "timings_ms": timings(response),
        "devices": response.devices,
        "retries": response.retries,
    })
}

/// Where a job's time went, under the names that the wire gives it.
pub fn timings(response: &AwaitProofResponse) -> Value {
    json!({
        "queue_wait": response.queue_wait_ms,
        "circuit_load": response.srs_load_ms,
        "synthesis": response.synthesis_ms,
        "device": response.gpu_compute_ms,
        "total": response.total_ms,
    })
}

/// A finished job for people.
pub fn proved_text(response: &AwaitProofResponse, checked: Option<Checked>) -> String {
    let time = |ms: u64| ui::duration(Duration::from_millis(ms));
    let verified = match checked {
        Some(checked) => format!(
            "verified by the daemon, and here by cuzk ({}) and by Filecoin's verifier ({})",
            ui::duration(checked.ours),
            ui::duration(checked.library)
        ),
        None => "verified by the daemon".to_owned(),
    };
    let mut rows = vec![
        row("job", &response.job_id),
        row("circuit", &response.circuit_id),
        row("proof", &format!("{}, {verified}", ui::bytes(response.proof.len() as u64))),
        row("devices", &response.devices.join(", ")),
        row(
            "time",
            &format!(
                "{} (queue {}, circuit load {}, synthesis {}, device {})",
                time(response.total_ms),
                time(response.queue_wait_ms),
                time(response.srs_load_ms),
                time(response.synthesis_ms),
                time(response.gpu_compute_ms)
            ),
        ),
    ];
    let partitions = response.proof.chunks(PROOF_BYTES).enumerate();
    rows.extend(partitions.map(|(partition, bytes)| row(&format!("bytes {partition}"), &hex::encode(bytes))));
    format!("proved\n{}", ui::columns(&rows))
}

fn row(label: &str, value: &str) -> Vec<String> {
    vec![format!("  {label}"), value.to_owned()]
}

pub fn run_cancel(args: &CancelArgs, config: &Config, ui: Ui) -> Result<(), Failure> {
    with_client(&args.daemon, config, |client| cancel(args, ui, client))
}

/// Every job is tried, whatever became of those before it.
async fn cancel(args: &CancelArgs, ui: Ui, mut client: Client) -> Result<(), Failure> {
    let mut failures = Vec::new();
    for job in &args.jobs {
        let cancelled = client.cancel_proof(CancelProofRequest { job_id: job.clone() }).await;
        let cancelled = match cancelled.map(tonic::Response::into_inner) {
            Ok(answer) if answer.was_known => Ok(answer),
            Ok(_) => Err(Failure::input(
                format!("job {job}"),
                format!("job `{job}` is not known, or its result is no longer kept"),
            )),
            Err(status) => Err(refused(&format!("job {job}"), &status)),
        };
        match &cancelled {
            Ok(answer) if !args.json => {
                let what = match answer {
                    answer if answer.was_running => "cancelled while it ran",
                    answer if answer.had_ended => "had ended already",
                    _ => "cancelled",
                };
                ui::out(&format!("{job}: {what}"))?;
            }
            _ => {}
        }
        if args.json {
            let answer = cancelled.as_ref().ok();
            let was_running = answer.map(|answer| answer.was_running);
            let had_ended = answer.map(|answer| answer.had_ended);
            let mut line = json!({ "job_id": job, "was_running": was_running, "had_ended": had_ended });
            if let Err(failure) = &cancelled {
                line["error"] = failure.as_json();
            }
            ui::out(&line.to_string())?;
        }
        if let Err(failure) = cancelled {
            if args.jobs.len() > 1 {
                ui.error(&failure);
            }
            failures.push(failure);
        }
    }
    Failure::of_parts(failures, args.jobs.len(), "jobs were not cancelled")
}
