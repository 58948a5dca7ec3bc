//! `cuzk drain`, `reload`, `preload` and `evict`: what a daemon shall do.

use std::future::Future;
use std::time::Duration;

use clap::Args;
use cuzk::config::Config;
use cuzk_wire::client::Client;
use cuzk_wire::v1::{DrainRequest, EvictSrsRequest, PreloadSrsRequest, ReloadRequest};
use serde_json::{json, Value};
use tonic::Status;

use super::status::seconds;
use super::{refused, with_client, DaemonOptions};
use crate::failure::Failure;
use crate::ui::{self, Ui};

/// End the daemon in order: it takes nothing more, finishes what it has, and exits
#[derive(Args)]
pub struct DrainArgs {
    #[command(flatten)]
    daemon: DaemonOptions,
    /// How long accepted jobs may take [default: as the daemon is configured]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    limit: Option<Duration>,
    /// Come back when the daemon is gone, not at once
    #[arg(long)]
    wait: bool,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

/// Make the daemon read its configuration again
#[derive(Args)]
pub struct ReloadArgs {
    #[command(flatten)]
    daemon: DaemonOptions,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

/// Load proving keys before a job asks for them
#[derive(Args)]
pub struct PreloadArgs {
    /// Such as porep-32g; `cuzk circuits` lists them
    #[arg(required = true, value_name = "CIRCUIT")]
    circuits: Vec<String>,
    #[command(flatten)]
    daemon: DaemonOptions,
    /// They stay until they are evicted
    #[arg(long)]
    pin: bool,
    /// In host memory alone, not on devices
    #[arg(long)]
    host_only: bool,
    /// One JSON object a line for each circuit
    #[arg(long)]
    json: bool,
}

/// Let go of proving keys, on the host and on every device
#[derive(Args)]
pub struct EvictArgs {
    /// Such as porep-32g
    #[arg(required = true, value_name = "CIRCUIT")]
    circuits: Vec<String>,
    #[command(flatten)]
    daemon: DaemonOptions,
    /// One JSON object a line for each circuit
    #[arg(long)]
    json: bool,
}

/// How often a draining daemon is looked for.
const GONE_INTERVAL: Duration = Duration::from_millis(200);

pub fn run_drain(args: &DrainArgs, config: &Config) -> Result<(), Failure> {
    let endpoint = args.daemon.endpoint(config).map_err(Failure::usage)?;
    with_client(&args.daemon, config, |mut client| async move {
        let limit_ms = args.limit.map_or(0, |limit| limit.as_millis() as u64);
        let answer =
            client.drain(DrainRequest { limit_ms }).await.map_err(|status| refused("drain", &status))?;
        let jobs = answer.get_ref().jobs;
        drop(client);
        if args.wait {
            while cuzk_wire::client::connect(&endpoint).await.is_ok() {
                tokio::time::sleep(GONE_INTERVAL).await;
            }
        }
        if args.json {
            return ui::out(&json!({ "jobs": jobs, "gone": args.wait }).to_string());
        }
        let state = if args.wait { "drained, and is gone" } else { "drains" };
        ui::out(&format!("the daemon {state}; it had {}", ui::count(jobs, "job")))
    })
}

pub fn run_reload(args: &ReloadArgs, config: &Config) -> Result<(), Failure> {
    with_client(&args.daemon, config, |mut client| async move {
        let answer = client.reload(ReloadRequest {}).await.map_err(|status| refused("reload", &status))?;
        let answer = answer.into_inner();
        if args.json {
            let line = json!({ "applied": answer.applied, "needs_restart": answer.needs_restart });
            return ui::out(&line.to_string());
        }
        let mut lines: Vec<String> = answer.applied.iter().map(|key| format!("{key}: applied")).collect();
        lines.extend(answer.needs_restart.iter().map(|key| format!("{key}: counts after a restart")));
        if lines.is_empty() {
            lines.push("nothing has changed".to_owned());
        }
        ui::out(&lines.join("\n"))
    })
}

pub fn run_preload(args: &PreloadArgs, config: &Config, ui: Ui) -> Result<(), Failure> {
    with_client(&args.daemon, config, |client| async move {
        let load = |circuit| preload(args, client.clone(), circuit);
        each(&args.circuits, args.json, ui, load).await
    })
}

async fn preload(args: &PreloadArgs, mut client: Client, circuit: String) -> Result<(String, Value), Status> {
    let request =
        PreloadSrsRequest { circuit_id: circuit.clone(), pinned: args.pin, host_only: args.host_only };
    let answer = client.preload_srs(request).await?.into_inner();
    let mut text = match answer.already_loaded {
        true => format!("{circuit}: was loaded"),
        false => format!("{circuit}: loaded in {}", ui::duration(Duration::from_millis(answer.load_time_ms))),
    };
    for device in &answer.devices {
        text += &format!("\n  {}: {}, {}", device.device, device.residence, ui::bytes(device.size_bytes));
        if !device.error_message.is_empty() {
            text += &format!(": {}", device.error_message);
        }
    }
    let devices: Vec<Value> = answer
        .devices
        .iter()
        .map(|device| {
            json!({
                "device": device.device,
                "residence": device.residence,
                "size_bytes": device.size_bytes,
                "error_message": device.error_message,
            })
        })
        .collect();
    let line = json!({
        "circuit": circuit,
        "already_loaded": answer.already_loaded,
        "load_time_ms": answer.load_time_ms,
        "host_bytes": answer.host_bytes,
        "devices": devices,
    });
    Ok((text, line))
}

pub fn run_evict(args: &EvictArgs, config: &Config, ui: Ui) -> Result<(), Failure> {
    with_client(&args.daemon, config, |client| async move {
        let evict = |circuit| evict(client.clone(), circuit);
        each(&args.circuits, args.json, ui, evict).await
    })
}

async fn evict(mut client: Client, circuit: String) -> Result<(String, Value), Status> {
    let answer = client.evict_srs(EvictSrsRequest { circuit_id: circuit.clone() }).await?.into_inner();
    let text = match answer.was_loaded {
        true => format!("{circuit}: evicted, {} free", ui::bytes(answer.freed_bytes)),
        false => format!("{circuit}: was not loaded"),
    };
    let line = json!({
        "circuit": circuit,
        "was_loaded": answer.was_loaded,
        "freed_bytes": answer.freed_bytes,
    });
    Ok((text, line))
}

/// Every circuit, whatever became of those before it.
async fn each<F>(circuits: &[String], json: bool, ui: Ui, ask: impl Fn(String) -> F) -> Result<(), Failure>
where
    F: Future<Output = Result<(String, Value), Status>>,
{
    let mut failures = Vec::new();
    for circuit in circuits {
        let failure = match ask(circuit.clone()).await {
            Ok((text, line)) => {
                ui::out(&if json { line.to_string() } else { text })?;
                continue;
            }
            Err(status) => refused(circuit, &status),
        };
        if json {
            ui::out(&json!({ "circuit": circuit, "error": failure.as_json() }).to_string())?;
        }
        if circuits.len() > 1 {
            ui.error(&failure);
        }
        failures.push(failure);
    }
    Failure::of_parts(failures, circuits.len(), "circuits failed")
}
