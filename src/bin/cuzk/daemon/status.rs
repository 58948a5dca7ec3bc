//! `cuzk status`: what the daemon does, as text or JSON, once or again and again.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::time::Duration;

use clap::Args;
use cuzk::config::Config;
use cuzk_wire::client::Client;

use super::snapshot::{Device, Snapshot};
use super::{refused, with_client, DaemonOptions};
use crate::failure::Failure;
use crate::ui;

/// Show what the daemon does: devices, queue, circuits, jobs
#[derive(Args)]
pub struct StatusArgs {
    #[command(flatten)]
    daemon: DaemonOptions,
    /// One JSON object (with --watch: one a line)
    #[arg(long)]
    json: bool,
    /// Again every so many seconds, until Ctrl-C
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2", value_parser = seconds)]
    watch: Option<Duration>,
}

/// A number of seconds, such as 0.5.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let number: f64 = text.parse().map_err(|_| format!("`{text}` is no number of seconds"))?;
    if !(0.1..=3600.0).contains(&number) {
        return Err(format!("needs 0.1 to 3600 seconds, has {text}"));
    }
    Ok(Duration::from_secs_f64(number))
}

pub fn run(args: &StatusArgs, config: &Config) -> Result<(), Failure> {
    let address = args.daemon.address(config);
    with_client(&args.daemon, config, |client| watch(args, &address, client))
}

async fn watch(args: &StatusArgs, address: &str, mut client: Client) -> Result<(), Failure> {
    loop {
        let snapshot = Snapshot::take(&mut client).await.map_err(|error| refused("status", &error))?;
        if args.json {
            let json = serde_json::to_string(&snapshot).expect("it is plain data");
            ui::out(&json)?;
        } else {
            if args.watch.is_some() && std::io::stdout().is_terminal() {
                clear()?;
            }
            ui::out(&text(&snapshot, address))?;
        }
        match args.watch {
            Some(interval) => tokio::time::sleep(interval).await,
            None => return Ok(()),
        }
    }
}

/// An empty screen, the cursor at its top.
fn clear() -> Result<(), Failure> {
    write!(std::io::stdout(), "\x1b[H\x1b[2J").map_err(|error| Failure::stdout(&error))
}

fn text(snapshot: &Snapshot, address: &str) -> String {
    let Snapshot { version, totals, .. } = snapshot;
    let mut text = format!(
        "cuzk-daemon {version} at {address}: {}, up {}\n",
        snapshot.condition(),
        ui::duration(Duration::from_secs(snapshot.uptime_seconds))
    );
    if !snapshot.fatal.is_empty() {
        let _ = writeln!(text, "  {}", snapshot.fatal);
    }
    for reason in &snapshot.reasons {
        let _ = writeln!(text, "  {reason}");
    }
    let _ = writeln!(
        text,
        "proofs: {} completed, {} failed ({} of them past their deadline), {} cancelled, {} refused; {} retried",
        totals.completed,
        totals.failed,
        totals.deadline_exceeded,
        totals.cancelled,
        totals.refused,
        ui::count(totals.retried, "partition")
    );
    if totals.invalid_proofs + totals.fallback > 0 {
        let _ = writeln!(
            text,
            "proofs that did not verify: {}; {} by the CPU for want of a GPU",
            totals.invalid_proofs,
            ui::count(totals.fallback, "partition")
        );
    }
    let _ = writeln!(
        text,
        "host memory: {} of circuits and {} of witnesses, of {}",
        ui::bytes(snapshot.circuit_memory_bytes),
        ui::bytes(snapshot.witness_memory_bytes),
        ui::bytes(snapshot.host_memory_budget_bytes)
    );
    text += &devices(snapshot);
    text += &queues(snapshot);
    text += &circuits(snapshot);
    text += &jobs(snapshot);
    text
}

fn devices(snapshot: &Snapshot) -> String {
    let header = ["device", "name", "state", "health", "lanes", "memory", "proved", "failed", "does"];
    let rows: Vec<Vec<String>> = snapshot
        .devices
        .iter()
        .map(|device| {
            vec![
                device.id.clone(),
                device.name.clone(),
                device.state.clone(),
                device.health.clone(),
                format!("{}/{}", device.lanes_busy, device.lanes),
                memory(device),
                device.partitions_proved.to_string(),
                device.partitions_failed.to_string(),
                snapshot.doing(device),
            ]
        })
        .collect();
    titled("devices", &header, &rows)
}

fn memory(device: &Device) -> String {
    format!("{} of {}", ui::bytes(device.memory_in_use_bytes), ui::bytes(device.memory_budget_bytes))
}

fn queues(snapshot: &Snapshot) -> String {
    let rows: Vec<Vec<String>> = snapshot
        .queues
        .iter()
        .map(|queue| vec![queue.proof_kind.clone(), queue.pending.to_string(), queue.in_progress.to_string()])
        .collect();
    titled("queue (jobs)", &["kind", "pending", "in progress"], &rows)
}

fn circuits(snapshot: &Snapshot) -> String {
    let rows: Vec<Vec<String>> = snapshot
        .circuits
        .iter()
        .map(|circuit| {
            let pinned = if circuit.pinned { "yes" } else { "no" };
            vec![
                circuit.circuit_id.clone(),
                format!("{}, {}", circuit.tier, circuit.state),
                ui::bytes(circuit.size_bytes),
                circuit.ref_count.to_string(),
                pinned.to_owned(),
                circuit.devices.join(" "),
            ]
        })
        .collect();
    titled("circuits", &["circuit", "tier", "size", "jobs", "pinned", "on"], &rows)
}

/// The jobs of a snapshot; also what `cuzk jobs` prints.
pub fn jobs(snapshot: &Snapshot) -> String {
    let rows: Vec<Vec<String>> = snapshot
        .jobs
        .iter()
        .map(|job| {
            vec![
                job.job_id.clone(),
                job.proof_kind.clone(),
                job.circuit_id.clone(),
                job.priority.to_owned(),
                job.state.clone(),
                format!("{}/{}", job.partitions_done, job.partitions),
                ui::duration(Duration::from_millis(job.age_ms)),
                job.devices.join(" "),
            ]
        })
        .collect();
    let mut text =
        titled("jobs", &["job", "kind", "circuit", "priority", "state", "done", "age", "on"], &rows);
    if snapshot.recovering > 0 {
        // They are not among the jobs until they are decoded, and lost they are not.
        let _ = writeln!(
            text,
            "of an earlier process, not queued again yet: {}",
            ui::count(snapshot.recovering, "job")
        );
    }
    text
}

/// A table under its name; nothing is said in one line.
fn titled(title: &str, header: &[&str], rows: &[Vec<String>]) -> String {
    if rows.is_empty() {
        return format!("\n{title}: none\n");
    }
    format!("\n{title}\n{}", ui::table(header, rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_restart_has_still_to_queue_is_said() {
        let mut snapshot = Snapshot::default();
        assert_eq!(jobs(&snapshot), "\njobs: none\n");
        snapshot.recovering = 2;
        assert_eq!(jobs(&snapshot), "\njobs: none\nof an earlier process, not queued again yet: 2 jobs\n");
    }

    #[test]
    fn wrong_proofs_and_the_fallback_are_said_once_there_are_any() {
        let mut snapshot = Snapshot::default();
        assert!(!text(&snapshot, "here").contains("did not verify"));
        (snapshot.totals.invalid_proofs, snapshot.totals.fallback) = (3, 1);
        let said = text(&snapshot, "here");
        assert!(said.contains("did not verify: 3; 1 partition by the CPU"), "{said}");
    }
}
