//! `cuzk circuits`: what can be proved, how large it is, and what it takes.

use clap::Args;
use cuzk::circuits::CircuitSpec;
use serde_json::json;

use crate::failure::Failure;
use crate::ui;

/// List the Filecoin circuits: sizes, partitions, parameter files, memory needed
#[derive(Args)]
pub struct CircuitsArgs {
    /// Only these, such as porep-2k [default: all]
    #[arg(value_name = "CIRCUIT")]
    circuits: Vec<String>,
    /// One JSON object a line for each circuit
    #[arg(long)]
    json: bool,
}

pub fn run(args: &CircuitsArgs) -> Result<(), Failure> {
    let specs = select(&args.circuits)?;
    if args.json {
        for spec in &specs {
            ui::out(&as_json(spec).to_string())?;
        }
        return Ok(());
    }
    let header = ["circuit", "constraints", "aux", "domain", "partitions", "params", "memory"];
    let rows: Vec<Vec<String>> = specs.iter().map(row).collect();
    ui::out(&ui::table(&header, &rows))?;
    ui::out("\nparameter files:")?;
    let files: Vec<Vec<String>> =
        specs.iter().map(|spec| vec![format!("  {spec}"), spec.params_file()]).collect();
    ui::out(&ui::columns(&files))?;
    Ok(())
}

/// The circuits that `ids` name, or all of them.
pub fn select(ids: &[String]) -> Result<Vec<CircuitSpec>, Failure> {
    if ids.is_empty() {
        return Ok(CircuitSpec::all());
    }
    ids.iter().map(|id| by_id(id)).collect()
}

fn by_id(id: &str) -> Result<CircuitSpec, Failure> {
    CircuitSpec::by_id(id).ok_or_else(|| {
        let all: Vec<String> = CircuitSpec::all().iter().map(ToString::to_string).collect();
        Failure::usage(format!("unknown circuit `{id}`: use one of {}", all.join(", ")))
    })
}

fn row(spec: &CircuitSpec) -> Vec<String> {
    let unknown = || "-".to_owned();
    let sizes = spec.sizes();
    let sized = |value: Option<u64>| value.map_or_else(unknown, ui::grouped);
    let partitions = match spec.num_noninteractive_partitions() {
        Some(noninteractive) => format!("{} ({noninteractive} non-interactive)", spec.num_partitions()),
        None => spec.num_partitions().to_string(),
    };
    vec![
        spec.to_string(),
        sized(sizes.map(|sizes| sizes.constraints)),
        sized(sizes.map(|sizes| sizes.num_aux)),
        sizes.map_or_else(unknown, |sizes| format!("2^{}", sizes.domain_log2)),
        partitions,
        spec.memory().map_or_else(unknown, |needs| ui::bytes(needs.srs_bytes)),
        spec.memory().map_or_else(unknown, |needs| ui::bytes(needs.total_bytes())),
    ]
}

fn as_json(spec: &CircuitSpec) -> serde_json::Value {
    let sizes = spec.sizes();
    json!({
        "circuit": spec.to_string(),
        "kind": spec.kind.work_kind().as_str(),
        "sector_size": spec.sector_size.bytes(),
        "partitions": spec.num_partitions(),
        "noninteractive_partitions": spec.num_noninteractive_partitions(),
        "challenges": spec.num_challenges(),
        "constraints": sizes.map(|sizes| sizes.constraints),
        "inputs_with_one": sizes.map(|sizes| sizes.num_inputs),
        "aux": sizes.map(|sizes| sizes.num_aux),
        "domain_log2": sizes.map(|sizes| sizes.domain_log2),
        "params_file": spec.params_file(),
        "vk_file": spec.vk_file(),
        "params_bytes": sizes.and_then(|sizes| sizes.params_bytes),
        "memory_bytes": spec.memory().map(|needs| needs.total_bytes()),
    })
}
