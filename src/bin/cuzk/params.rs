//! `cuzk params`: fetching, making, folding, listing and checking parameter files.

mod check;
#[cfg(feature = "fetch")]
mod fetch;
mod fold;
mod make;

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use cuzk::circuits::CircuitSpec;
use cuzk::config::Config;
use cuzk::error::SrsError;
use cuzk::groth16::srs_file::{leftovers, read_counts, Leftover};
use serde_json::json;

use crate::circuits::select;
use crate::failure::Failure;
use crate::files;
use crate::interrupt::Interrupts;
use crate::options::ParamsOption;
use crate::ui::{self, Ui};

pub use make::Maker;

/// Fetch Filecoin's parameter files, or make test parameters; fold, list and check what is there
#[derive(Args)]
pub struct ParamsArgs {
    #[command(subcommand)]
    command: ParamsCommand,
}

#[derive(Subcommand)]
enum ParamsCommand {
    #[cfg(feature = "fetch")]
    Fetch(fetch::FetchArgs),
    Generate(GenerateArgs),
    Fold(fold::FoldArgs),
    List(ListArgs),
    Check(check::CheckArgs),
}

/// Make TEST parameters, whose secrets everybody knows. Never use them on a network
#[derive(Args)]
struct GenerateArgs {
    /// Circuits, such as wpost-2k porep-2k (`cuzk circuits` lists them)
    #[arg(required = true, value_name = "CIRCUIT")]
    circuits: Vec<String>,
    #[command(flatten)]
    params: ParamsOption,
    /// What makes the points; the bytes are the same
    #[arg(long, value_enum, value_name = "DEVICE", default_value_t)]
    device: make::MakerDevice,
    /// Replace files that are there already, whatever they are
    #[arg(long)]
    force: bool,
}

/// List which parameter files are there
#[derive(Args)]
struct ListArgs {
    #[command(flatten)]
    params: ParamsOption,
    /// One JSON object a line for each circuit
    #[arg(long)]
    json: bool,
}

pub fn run(args: &ParamsArgs, config: &Config, ui: Ui) -> Result<(), Failure> {
    match &args.command {
        #[cfg(feature = "fetch")]
        ParamsCommand::Fetch(args) => fetch::run(args, config, ui),
        ParamsCommand::Generate(args) => {
            let dir = args.params.dir(config);
            let specs = select(&args.circuits)?;
            let interrupts = Interrupts::install()?;
            Maker::new(&dir, args.force, ui, &interrupts).on(args.device).make_all(&specs)
        }
        ParamsCommand::Fold(args) => fold::run(args, config, ui),
        ParamsCommand::List(args) => list(&args.params.dir(config), args.json, ui),
        ParamsCommand::Check(args) => check::run(args, config, ui),
    }
}

/// Says which files a generation that was killed left behind.
fn note_leftovers(dir: &Path, ui: Ui) {
    // What cannot be listed is for those to say who look for files of known names.
    for Leftover { path, num_bytes } in leftovers(dir).unwrap_or_default() {
        ui.note(&format!(
            "{}: left behind by a generation that was killed, {}: `cuzk params generate` removes it",
            path.display(),
            ui::bytes(num_bytes)
        ));
    }
}

/// What is under a circuit's file name.
pub struct Found {
    pub spec: CircuitSpec,
    pub path: PathBuf,
    /// `None`: not there.
    pub bytes: Option<u64>,
    /// `present`, `missing`, or what is wrong with it.
    pub state: &'static str,
    pub has_vk: bool,
}

/// What is under the names of every known circuit; headers are read, and no more.
pub fn find(dir: &Path) -> Result<Vec<Found>, Failure> {
    files::check_enterable(dir)?;
    let look = |spec: CircuitSpec| {
        let path = dir.join(spec.params_file());
        let bytes = fs::metadata(&path).ok().map(|metadata| metadata.len());
        let fits = |ic: u32, l: u32| {
            spec.sizes()
                .is_none_or(|sizes| u64::from(ic) == sizes.num_inputs && u64::from(l) == sizes.num_aux)
        };
        let state = match (bytes, read_counts(&path)) {
            (None, _) => "missing",
            (Some(_), Ok(counts)) if fits(counts.ic, counts.l) => "present",
            (Some(_), Ok(_)) => "of another circuit",
            (Some(0), Err(_)) => "empty",
            (Some(_), Err(SrsError::Io { .. })) => "unreadable",
            (Some(_), Err(_)) => "damaged",
        };
        let has_vk = dir.join(spec.vk_file()).exists();
        Found { spec, path, bytes, state, has_vk }
    };
    Ok(CircuitSpec::all().into_iter().map(look).collect())
}

fn list(dir: &Path, as_json: bool, ui: Ui) -> Result<(), Failure> {
    let found = find(dir)?;
    note_leftovers(dir, ui);
    if as_json {
        for file in &found {
            let line = json!({
                "circuit": file.spec.to_string(),
                "path": file.path.display().to_string(),
                "state": file.state,
                "bytes": file.bytes,
                "vk": file.has_vk,
            });
            ui::out(&line.to_string())?;
        }
        return Ok(());
    }
    ui::out(&format!("parameter files in {}:", dir.display()))?;
    let rows: Vec<Vec<String>> = found
        .iter()
        .map(|file| {
            vec![
                file.spec.to_string(),
                file.state.to_owned(),
                file.bytes.map_or_else(|| "-".to_owned(), ui::bytes),
                if file.has_vk { "present" } else { "missing" }.to_owned(),
            ]
        })
        .collect();
    ui::out(&ui::table(&["circuit", "params", "size", "vk"], &rows))?;
    if found.iter().all(|file| file.bytes.is_none()) {
        ui::out("none there: `cuzk params fetch` gets Filecoin's; `cuzk params generate wpost-2k` makes TEST parameters, in seconds")
    } else {
        ui::out("`cuzk params check` reads the files and says which are right")
    }
}
