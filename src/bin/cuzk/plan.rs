//! `cuzk plan`: what a machine would do with a circuit, before one has either.

use clap::Args;
use cuzk::actors::gpu_device::DeviceConfig;
use cuzk::circuits::CircuitSpec;
use cuzk::config::ByteSize;
use cuzk::engine::memory::HostBudgets;
use cuzk::policy::batch::BatchPolicy;
use cuzk::policy::capacity::{capacity, Capacity, CircuitFigures, DeviceCapacity, Machine};
use cuzk::policy::plan::{EvaluationSummary, ShapeSummary, SrsSummary};
use serde_json::json;

use crate::circuits::select;
use crate::failure::Failure;
use crate::ui;

/// Say what a machine can prove of a circuit: what fits, how much at a time, its peaks, and how fast
#[derive(Args)]
pub struct PlanArgs {
    /// GPUs of the machine
    #[arg(long, value_name = "N")]
    gpus: u32,
    /// Memory of each GPU, such as 24GiB
    #[arg(long, value_name = "SIZE")]
    vram: ByteSize,
    /// Memory of the host, such as 128GiB
    #[arg(long, value_name = "SIZE")]
    ram: ByteSize,
    /// Circuit, such as porep-32g (`cuzk circuits` lists them)
    #[arg(long, value_name = "CIRCUIT")]
    circuit: String,
    /// Partitions that one GPU proves side by side
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=16))]
    lanes: u32,
    /// One JSON object, the same every time
    #[arg(long)]
    json: bool,
}

/// The engine's own shares of a machine: nine tenths of each memory.
pub fn run(args: &PlanArgs) -> Result<(), Failure> {
    let spec = select(std::slice::from_ref(&args.circuit))?.remove(0);
    let circuit = figures(&spec)?;
    let machine = Machine {
        num_gpus: args.gpus,
        device_budget_bytes: DeviceConfig::default().budget_bytes_of(args.vram.0),
        host_budget_bytes: HostBudgets::of(args.ram.0, false).engine_bytes,
        num_lanes: args.lanes,
        batch_partitions: BatchPolicy::default().max_partitions,
    };
    match capacity(&machine, &circuit) {
        Ok(answer) if args.json => ui::out(&json!({ "fits": true, "plan": answer }).to_string()),
        Ok(answer) => print(&answer),
        Err(error) => {
            if args.json {
                let why = json!({ "fits": false, "circuit": circuit.name, "reason": error.to_string() });
                ui::out(&why.to_string())?;
            }
            Err(Failure::proving(circuit.name.clone(), format!("{} does not fit: {error}", circuit.name)))
        }
    }
}

/// Points of the queries follow from the size of the parameter file: all but B's are given by the circuit's sizes.
pub fn figures(spec: &CircuitSpec) -> Result<CircuitFigures, Failure> {
    let unknown = || Failure::usage(format!("the size of {spec} is not known"));
    let sizes = spec.sizes().ok_or_else(unknown)?;
    let memory = spec.memory().ok_or_else(unknown)?;
    let (h, l, a) = ((1 << sizes.domain_log2) - 1, sizes.num_aux, sizes.num_inputs + sizes.num_aux);
    let b = memory.srs_bytes.saturating_sub(96 * (h + l + a)) / (96 + 192);
    Ok(CircuitFigures {
        name: spec.to_string(),
        num_partitions: spec.num_partitions(),
        shape: ShapeSummary {
            domain_log2: sizes.domain_log2,
            num_rows: sizes.constraints + sizes.num_inputs,
            num_inputs: sizes.num_inputs,
            num_aux: sizes.num_aux,
            evaluation: EvaluationSummary::known(sizes.num_dense, sizes.image_bytes),
        },
        srs: SrsSummary::new([h, l, a, b, b]),
        host_circuit_bytes: memory.srs_bytes + memory.shape_bytes.unwrap_or(0),
        witness_bytes: memory.witness_bytes,
    })
}

/// What is said line by line: what of, and what.
fn figure_rows(answer: &Capacity) -> Vec<(&'static str, String)> {
    let Capacity { device, host, speed, .. } = answer;
    let resident = match device.resident.len() {
        0 => "none".to_owned(),
        _ => device.resident.join(", "),
    };
    let ms = |ms: f64| ui::duration(std::time::Duration::from_secs_f64(ms / 1000.0));
    vec![
        (
            "circuit",
            format!("{}, {}", answer.circuit, ui::count(answer.partitions_per_job.into(), "partition")),
        ),
        (
            "at a time",
            format!(
                "{} on {}",
                ui::count(answer.concurrency.into(), "partition"),
                ui::count(answer.gpus.into(), "GPU")
            ),
        ),
        ("limited by", answer.limited_by.to_owned()),
        (
            "each GPU",
            format!(
                "{} of {} at most, {} for one partition",
                ui::bytes(device.peak_bytes),
                ui::bytes(device.budget_bytes),
                ui::bytes(device.work_peak_bytes)
            ),
        ),
        ("  needs at least", ui::bytes(device.least_budget_bytes)),
        ("  kept on it", format!("{resident} ({})", ui::bytes(device.resident_bytes))),
        ("  copied each time", copied_each_time(device)),
        ("  row values", format!("made by the {}", device.evaluation)),
        (
            "host",
            format!(
                "{} of {} at most: {} for the circuit, {} for a partition",
                ui::bytes(host.peak_bytes),
                ui::bytes(host.budget_bytes),
                ui::bytes(host.circuit_bytes),
                ui::bytes(host.partition_bytes)
            ),
        ),
        ("partition", ms(speed.partition_ms)),
        ("job alone", ms(speed.job_ms)),
        ("jobs per hour", format!("{}, if the host makes witnesses that fast", speed.jobs_per_hour)),
        ("source", speed.source.to_owned()),
    ]
}

/// What a card streams, and what of it for how many partitions.
fn copied_each_time(device: &DeviceCapacity) -> String {
    let each = ui::bytes(device.streamed_bytes);
    match device.shared_by {
        1 => each,
        members => format!(
            "{each}, and {} for {} together",
            ui::bytes(device.shared_bytes),
            ui::count(members.into(), "partition")
        ),
    }
}

fn print(answer: &Capacity) -> Result<(), Failure> {
    let rows: Vec<Vec<String>> =
        figure_rows(answer).into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    ui::out(&ui::columns(&rows))?;
    let stages: Vec<Vec<String>> = answer
        .device
        .stages
        .iter()
        .map(|stage| vec![stage.stage.to_owned(), ui::bytes(stage.work_bytes), format!("{} ms", stage.ms)])
        .collect();
    ui::out(&ui::table(&["stage", "memory", "time"], &stages))
}
