//! `cuzk params check`: which files are right, wrong, missing, left over.
//!
//! A file whose digest is known, as published or as that of test parameters, is right in every byte. Of any other, every
//! point is checked: that is slower, and cannot say whose key it is.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::Mutex;

use clap::Args;
use cuzk::circuits::CircuitSpec;
use cuzk::config::Config;
use cuzk::error::{ParamsError, SrsError};
use cuzk::groth16::srs_file::{read_srs, read_vk, ReadOptions};
use cuzk::params::{digest_file, name_of_partial, FileDigests, Manifest};
use serde_json::{json, Value};

use super::{find, note_leftovers, Found};
use crate::circuits::select;
use crate::failure::Failure;
use crate::interrupt::Interrupts;
use crate::options::ParamsOption;
use crate::progress::Progress;
use crate::ui::{self, Ui};
use crate::{files, test_params};

/// Check parameter files: digests against those published and those of test parameters, and every point of others
#[derive(Args)]
pub struct CheckArgs {
    /// Circuits to check; each must be there [default: all that are there]
    #[arg(value_name = "CIRCUIT")]
    circuits: Vec<String>,
    #[command(flatten)]
    params: ParamsOption,
    /// Check every point of all of them, also where the digest is known
    #[arg(long)]
    points: bool,
    /// Files that are read at a time [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    parallel: Option<u16>,
    /// One JSON object a line for each circuit, and one for each file that is left over
    #[arg(long)]
    json: bool,
}

pub fn run(args: &CheckArgs, config: &Config, ui: Ui) -> Result<(), Failure> {
    let dir = &args.params.dir(config);
    let found = find(dir)?;
    if !args.json {
        note_leftovers(dir, ui);
    }
    let specs = if args.circuits.is_empty() { all_of(found, dir)? } else { select(&args.circuits)? };
    let interrupts = Interrupts::install()?;
    let num_threads = match args.parallel {
        Some(parallel) => parallel.into(),
        None => std::thread::available_parallelism().map_or(1, usize::from),
    };
    let digests = Digests::of(&specs, dir, num_threads, ui, &interrupts)?;
    let mut failures = Vec::new();
    for (spec, digests) in specs.iter().zip(digests) {
        interrupts.check()?;
        let verdict = digests.verdict(spec, dir, args.points, ui);
        if args.json {
            ui::out(&as_json(spec, &verdict).to_string())?;
        } else {
            match &verdict {
                Ok(verdict) => ui::out(&format!("{spec}: {}", verdict.text()))?,
                Err(_) => ui::out(&format!("{spec}: BAD"))?,
            }
        }
        if let Err(failure) = verdict {
            ui.error(&failure);
            failures.push(failure);
        }
    }
    say_left_over(dir, args.json, ui)?;
    // The failures have been printed one by one; the last word is how to go on.
    match failures.into_iter().next() {
        None => Ok(()),
        Some(failure) => Err(Failure {
            message: "some parameter files cannot be used: fetch or generate them again".to_owned(),
            ..failure
        }),
    }
}

/// Every circuit that has a file.
fn all_of(found: Vec<Found>, dir: &Path) -> Result<Vec<CircuitSpec>, Failure> {
    let there: Vec<CircuitSpec> =
        found.into_iter().filter(|file| file.bytes.is_some()).map(|file| file.spec).collect();
    if there.is_empty() {
        let what = "no parameter files there: name their folder with --params, or `cuzk params fetch`";
        return Err(Failure::usage(format!("{}: {what}", dir.display())));
    }
    Ok(there)
}

fn say_left_over(dir: &Path, as_json: bool, ui: Ui) -> Result<(), Failure> {
    for (path, what) in left_over(dir) {
        if as_json {
            ui::out(&json!({ "left_over": path.display().to_string(), "what": what }).to_string())?;
        } else {
            ui.note(&format!("{}: left over: {what}", path.display()));
        }
    }
    Ok(())
}

/// Whose a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Published,
    Test,
    Unknown,
}

/// A circuit whose files can be used.
struct Verdict {
    owner: Owner,
    num_bytes: u64,
    sha256: String,
    /// Every point was checked.
    points: bool,
}

impl Verdict {
    fn text(&self) -> String {
        let whose = match self.owner {
            Owner::Published => "as published by Filecoin",
            Owner::Test => "TEST parameters with known secrets",
            Owner::Unknown => "not among the published and the known test parameters",
        };
        let points = if self.points { "every point is valid, " } else { "" };
        format!("{points}{}, sha256 {} ({whose})", ui::bytes(self.num_bytes), self.sha256)
    }
}

fn as_json(spec: &CircuitSpec, verdict: &Result<Verdict, Failure>) -> Value {
    match verdict {
        Ok(verdict) => json!({
            "circuit": spec.to_string(),
            "state": "right",
            "whose": match verdict.owner {
                Owner::Published => "published",
                Owner::Test => "test",
                Owner::Unknown => "unknown",
            },
            "bytes": verdict.num_bytes,
            "sha256": verdict.sha256,
            "points_checked": verdict.points,
            "error": null,
        }),
        Err(failure) => json!({
            "circuit": spec.to_string(),
            "state": "wrong",
            "whose": null,
            "bytes": null,
            "sha256": null,
            "points_checked": null,
            "error": failure.as_json(),
        }),
    }
}

/// The digests of a circuit's two files.
struct Digests {
    params: Result<FileDigests, Failure>,
    /// `None`: there is none.
    vk: Option<Result<FileDigests, Failure>>,
}

impl Digests {
    /// Of all circuits, several files at a time: reading is bound by the disk, digesting by one core a file.
    fn of(
        specs: &[CircuitSpec],
        dir: &Path,
        num_threads: usize,
        ui: Ui,
        interrupts: &Interrupts,
    ) -> Result<Vec<Self>, Failure> {
        let paths: Vec<PathBuf> =
            specs.iter().flat_map(|spec| [dir.join(spec.params_file()), dir.join(spec.vk_file())]).collect();
        let total = paths.iter().filter_map(|path| Some(std::fs::metadata(path).ok()?.len())).sum();
        let progress = Progress::new(ui, "digesting");
        let (next, done) = (AtomicUsize::new(0), AtomicU64::new(0));
        let digests: Vec<Mutex<Option<Result<FileDigests, ParamsError>>>> =
            paths.iter().map(|_| Mutex::new(None)).collect();
        std::thread::scope(|scope| {
            for _ in 0..num_threads.min(paths.len()) {
                scope.spawn(|| loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(path) = paths.get(index) else { return };
                    let before = AtomicU64::new(0);
                    let result = digest_file(path, &|bytes| {
                        let new = bytes - before.swap(bytes, Ordering::Relaxed);
                        progress.set(done.fetch_add(new, Ordering::Relaxed) + new, total);
                        interrupts.check().is_ok()
                    });
                    *digests[index].lock().expect("no thread panics with the lock") = Some(result);
                });
            }
        });
        interrupts.check()?;
        let mut digests = paths.iter().zip(digests).map(|(path, digests)| {
            let digests = digests.into_inner().expect("no thread panics with the lock");
            (path, digests.expect("every file was taken by a thread"))
        });
        let is_missing = |error: &ParamsError| matches!(error, ParamsError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound);
        let mut all = Vec::new();
        for spec in specs {
            let (path, params) = digests.next().expect("two files a circuit");
            let (_, vk) = digests.next().expect("two files a circuit");
            let params = params.map_err(|error| {
                if is_missing(&error) {
                    let advice = Some(spec.how_to_get_params());
                    return SrsError::Missing { circuit: spec.to_string(), path: path.clone(), advice }
                        .into();
                }
                Failure::from(error)
            });
            let vk = match vk {
                Err(error) if is_missing(&error) => None,
                vk => Some(vk.map_err(Failure::from)),
            };
            all.push(Self { params, vk });
        }
        Ok(all)
    }

    fn verdict(self, spec: &CircuitSpec, dir: &Path, points: bool, ui: Ui) -> Result<Verdict, Failure> {
        let path = dir.join(spec.params_file());
        let params = self.params?;
        let vk = self.vk.transpose()?;
        let owner = owner_of(spec, &params);
        let vk_is_known = vk.as_ref().is_none_or(|vk| owner_of_vk(spec, vk) == owner);
        let sha256 = hex::encode(params.sha256);
        let verdict = Verdict { owner, num_bytes: params.num_bytes, sha256, points: false };
        if owner != Owner::Unknown && vk_is_known && !points {
            return Ok(verdict);
        }
        check_points(spec, dir, &path, ui)?;
        Ok(Verdict { points: true, ..verdict })
    }
}

fn owner_of(spec: &CircuitSpec, digests: &FileDigests) -> Owner {
    let is_test =
        test_params::of(spec).is_some_and(|known| known.params_sha256 == hex::encode(digests.sha256));
    owner(&spec.params_file(), digests, is_test)
}

fn owner_of_vk(spec: &CircuitSpec, digests: &FileDigests) -> Owner {
    let is_test = test_params::of(spec).is_some_and(|known| known.vk_sha256 == hex::encode(digests.sha256));
    owner(&spec.vk_file(), digests, is_test)
}

fn owner(name: &str, digests: &FileDigests, is_test: bool) -> Owner {
    let manifest = Manifest::published();
    match manifest.get(name) {
        Some(file) if file.digest == digests.published => Owner::Published,
        _ if is_test => Owner::Test,
        _ => Owner::Unknown,
    }
}

/// Every point, and that the verifying key beside the parameters is theirs.
fn check_points(spec: &CircuitSpec, dir: &Path, path: &Path, ui: Ui) -> Result<(), Failure> {
    let progress = Progress::new(ui, format!("{spec}: checking"));
    // No stored verdict: whoever asks for a check wants it done.
    let loaded = read_srs(path, &ReadOptions::default(), &|done, total| progress.set(done, total))?;
    drop(progress);
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
    Ok(())
}

/// Files of the folder that no circuit reads: interrupted fetches, keys of other versions and circuits.
fn left_over(dir: &Path) -> Vec<(PathBuf, String)> {
    let known: BTreeSet<String> =
        CircuitSpec::all().iter().flat_map(|spec| [spec.params_file(), spec.vk_file()]).collect();
    let manifest = Manifest::published();
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let mut all = Vec::new();
    for entry in entries.flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        let size = ui::bytes(entry.metadata().map_or(0, |metadata| metadata.len()));
        let what = if let Some(name) = name_of_partial(&name) {
            Some(format!("part of {name} ({size}): `cuzk params fetch` goes on with it"))
        } else if known.contains(&name) || manifest.get(&name).is_some() || !is_parameter_name(&name) {
            None
        } else {
            Some(format!("no circuit of this program reads it ({size})"))
        };
        all.extend(what.map(|what| (entry.path(), what)));
    }
    all.sort();
    all
}

/// `v28-….params`, `v27-….vk`; metadata (`.meta`) is Filecoin's own libraries' business.
fn is_parameter_name(name: &str) -> bool {
    let version = name.strip_prefix('v').and_then(|rest| rest.split_once('-')).map(|(version, _)| version);
    version.is_some_and(|version| version.parse::<u32>().is_ok())
        && [".params", ".vk"].iter().any(|end| name.ends_with(end))
}
