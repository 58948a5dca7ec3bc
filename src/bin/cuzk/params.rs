//! `cuzk params`: making, listing and checking parameter files.

mod make;

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use cuzk::circuits::CircuitSpec;
use cuzk::config::Config;
use cuzk::error::SrsError;
use cuzk::groth16::srs_file::{leftovers, read_counts, read_srs, read_vk, Leftover, ReadOptions};
use serde_json::json;

use crate::circuits::select;
use crate::failure::Failure;
use crate::interrupt::Interrupts;
use crate::options::ParamsOption;
use crate::progress::Progress;
use crate::ui::{self, Ui};
use crate::{files, test_params};

pub use make::Maker;

/// Make test parameters; list and check parameter files
#[derive(Args)]
pub struct ParamsArgs {
    #[command(subcommand)]
    command: ParamsCommand,
}

#[derive(Subcommand)]
enum ParamsCommand {
    Generate(GenerateArgs),
    List(ListArgs),
    Check(CheckArgs),
}

/// Make TEST parameters, whose secrets everybody knows. Never use them on a network
#[derive(Args)]
struct GenerateArgs {
    /// Circuits, such as wpost-2k porep-2k (`cuzk circuits` lists them)
    #[arg(required = true, value_name = "CIRCUIT")]
    circuits: Vec<String>,
    #[command(flatten)]
    params: ParamsOption,
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

/// Check every point of parameter files, and their digests against the known test parameters
#[derive(Args)]
struct CheckArgs {
    /// Circuits to check; each must be there [default: all that are there]
    #[arg(value_name = "CIRCUIT")]
    circuits: Vec<String>,
    #[command(flatten)]
    params: ParamsOption,
}

pub fn run(args: &ParamsArgs, config: &Config, ui: Ui) -> Result<(), Failure> {
    match &args.command {
        ParamsCommand::Generate(args) => {
            let dir = args.params.dir(config);
            let specs = select(&args.circuits)?;
            let interrupts = Interrupts::install()?;
            Maker::new(&dir, args.force, ui, &interrupts).make_all(&specs)
        }
        ParamsCommand::List(args) => list(&args.params.dir(config), args.json, ui),
        ParamsCommand::Check(args) => check(args, &args.params.dir(config), ui),
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
struct Found {
    spec: CircuitSpec,
    path: PathBuf,
    /// `None`: not there.
    bytes: Option<u64>,
    state: &'static str,
    has_vk: bool,
}

fn find(dir: &Path) -> Result<Vec<Found>, Failure> {
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
        ui::out("none there: `cuzk params generate wpost-2k` makes test parameters, in seconds")
    } else {
        ui::out("`cuzk params check` reads the files and checks every point")
    }
}

fn check(args: &CheckArgs, dir: &Path, ui: Ui) -> Result<(), Failure> {
    let found = find(dir)?;
    note_leftovers(dir, ui);
    let specs = if args.circuits.is_empty() {
        let there: Vec<CircuitSpec> =
            found.into_iter().filter(|file| file.bytes.is_some()).map(|file| file.spec).collect();
        if there.is_empty() {
            let what = "no parameter files there: name their folder with --params, or `cuzk params generate`";
            return Err(Failure::usage(format!("{}: {what}", dir.display())));
        }
        there
    } else {
        select(&args.circuits)?
    };
    let mut first_failure = None;
    for spec in specs {
        match check_one(&spec, dir, ui) {
            Ok(verdict) => ui::out(&format!("{spec}: {verdict}"))?,
            Err(failure) => {
                ui::out(&format!("{spec}: BAD"))?;
                ui.error(&failure);
                first_failure.get_or_insert(failure);
            }
        }
    }
    // The failures have been printed one by one; the last word is how to go on.
    match first_failure {
        None => Ok(()),
        Some(failure) => Err(Failure {
            message: "some parameter files cannot be used: fetch or generate them again".to_owned(),
            ..failure
        }),
    }
}

fn check_one(spec: &CircuitSpec, dir: &Path, ui: Ui) -> Result<String, Failure> {
    let path = dir.join(spec.params_file());
    if !files::is_there(&path)? {
        return Err(SrsError::Missing { circuit: spec.to_string(), path }.into());
    }
    let progress = Progress::new(ui, format!("{spec}: checking"));
    // No stored verdict: whoever asks for a check wants it done.
    let loaded = read_srs(&path, &ReadOptions::default(), &|done, total| progress.set(done, total))?;
    drop(progress);
    let sha256 = hex::encode(loaded.sha256);
    let vk_path = dir.join(spec.vk_file());
    if files::is_there(&vk_path)? && read_vk(&vk_path)? != loaded.srs.vk {
        return Err(Failure::input(
            vk_path.display().to_string(),
            format!("{}: is not the verifying key of the parameters beside it", vk_path.display()),
        ));
    }
    if let Some(sizes) = spec.sizes() {
        if sizes.num_inputs != loaded.srs.vk.ic.len() as u64 || sizes.num_aux != loaded.srs.l.len() as u64 {
            return Err(Failure::input(
                path.display().to_string(),
                format!("{}: parameters of another circuit than {spec}", path.display()),
            ));
        }
    }
    let kind = match test_params::of(spec) {
        Some(known) if known.params_sha256 == sha256 => "TEST parameters with known secrets",
        _ => "not among the known test parameters",
    };
    Ok(format!("every point is valid, {}, sha256 {sha256} ({kind})", ui::bytes(loaded.file_bytes)))
}
