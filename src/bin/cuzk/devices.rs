//! `cuzk devices`: what would prove, opened and tested.

use std::time::Duration;

use clap::Args;
use cuzk::config::{Config, BACKENDS_NOT_BUILT};
use cuzk::engine::{Engine, EngineConfig};
use cuzk::messages::status::{EngineDeviceStatus, EngineStatus};

use crate::failure::Failure;
use crate::options::DeviceOption;
use crate::ui;

/// List the devices that would prove, after opening each and testing it
#[derive(Args)]
pub struct DevicesArgs {
    #[command(flatten)]
    device: DeviceOption,
    /// One JSON object a line for each device
    #[arg(long)]
    json: bool,
}

pub fn run(args: &DevicesArgs, config: &Config) -> Result<(), Failure> {
    let mut config = config.clone();
    config.gpus.devices = args.device.choice(&config);
    // A journal is of no use here, and may be another process's.
    let engine = Engine::start(EngineConfig { journal: None, ..config.engine_config()? })?;
    let ready = engine.wait_ready_blocking();
    // Ready means one device: the others are waited for as well. One that takes longer than `start_limit_s` to open is
    // withdrawn, and starting no more.
    let is_settled = |status: &EngineStatus| status.devices.iter().all(|device| device.state != "starting");
    let status = engine.wait_status_blocking(is_settled).unwrap_or_else(|_| engine.status());
    let devices = status.devices.clone();
    engine.shutdown_blocking(Duration::ZERO);
    if args.json {
        for device in &devices {
            let line = serde_json::to_string(device)
                .map_err(|error| Failure::proving("device", format!("cannot be printed: {error}")))?;
            ui::out(&line)?;
        }
    } else {
        let rows: Vec<Vec<String>> = devices.iter().map(row).collect();
        ui::out(&ui::table(&["device", "backend", "name", "state", "health", "memory", "lanes"], &rows))?;
        if !BACKENDS_NOT_BUILT.is_empty() {
            ui::out(&format!("not in this build: {}", BACKENDS_NOT_BUILT.join(", ")))?;
        }
    }
    Ok(ready?)
}

fn row(device: &EngineDeviceStatus) -> Vec<String> {
    vec![
        device.id.clone(),
        device.backend.clone(),
        device.name.clone(),
        device.state.clone(),
        device.health.clone(),
        ui::bytes(device.memory_total_bytes),
        device.num_lanes.to_string(),
    ]
}
