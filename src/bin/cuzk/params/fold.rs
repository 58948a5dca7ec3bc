//! Folding proving keys: once for each, beside its parameter file.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::{Args, ValueEnum};
use cuzk::circuits::CircuitSpec;
use cuzk::config::Config;
use cuzk::error::{FoldError, SrsError};
use cuzk::groth16::fold::{
    fold_path, load_fold, Fold, FoldKey, FoldSizes, HostTransform, LoadOptions, PointTransform, Watch,
};
use cuzk::groth16::srs_file::{read_srs, LoadedSrs, ReadOptions};
use cuzk::groth16::{shape_cache, R1csShape};

use crate::circuits::select;
use crate::failure::{Failure, EXIT_INPUT, EXIT_PROVING};
use crate::files;
use crate::interrupt::Interrupts;
use crate::options::ParamsOption;
use crate::progress::Progress;
use crate::ui::{self, Ui};

/// Fold proving keys, once: proofs then take four transforms instead of six, and a shorter sum
///
/// The fold of a key is a file beside its parameter file, about half as large, which is used from then on (`[srs] folds`). It
/// is made of public data alone, and checked against the key before it is kept. On a CPU it takes minutes for 2^17
/// constraints, and days for the circuits of 32 GiB, which want a GPU.
#[derive(Args)]
pub struct FoldArgs {
    /// Circuits, such as wpost-2k, or their parameter files
    #[arg(required = true, value_name = "CIRCUIT|FILE")]
    keys: Vec<String>,
    #[command(flatten)]
    params: ParamsOption,
    /// Who transforms the points
    #[arg(long, value_enum, default_value_t = FoldDevice::Auto)]
    device: FoldDevice,
    /// Make the fold anew even where a good one is there
    #[arg(long)]
    force: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FoldDevice {
    /// The first GPU that this build can drive, else the CPU
    Auto,
    Cpu,
    Cuda,
}

pub fn run(args: &FoldArgs, config: &Config, ui: Ui) -> Result<(), Failure> {
    let dir = args.params.dir(config);
    let keys: Vec<(CircuitSpec, PathBuf)> =
        args.keys.iter().map(|key| find(key, &dir)).collect::<Result<_, _>>()?;
    let interrupts = Interrupts::install()?;
    let folder = Folder { config, ui, interrupts: &interrupts, force: args.force };
    let mut transform = open(args.device)?;
    keys.iter().try_for_each(|(spec, path)| folder.fold(spec, path, transform.as_mut()))
}

/// A circuit by its id, or by the name of its parameter file.
fn find(key: &str, dir: &Path) -> Result<(CircuitSpec, PathBuf), Failure> {
    let path = Path::new(key);
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if let Some(spec) = CircuitSpec::all().into_iter().find(|spec| spec.params_file() == name) {
        return Ok((spec, path.to_owned()));
    }
    if path.extension().is_some_and(|extension| extension == "params") {
        return Err(Failure::usage(format!("{key}: the parameter file of no circuit that is known here")));
    }
    let spec = select(&[key.to_owned()])?.remove(0);
    let path = dir.join(spec.params_file());
    Ok((spec, path))
}

fn open(device: FoldDevice) -> Result<Box<dyn PointTransform>, Failure> {
    if device == FoldDevice::Cpu {
        return Ok(Box::new(HostTransform));
    }
    #[cfg(feature = "cuda")]
    match cuzk::cuda::CudaTransform::open() {
        Ok(transform) => return Ok(Box::new(transform)),
        Err(error) if device == FoldDevice::Cuda => {
            return Err(Failure::usage(format!("--device cuda: {error}")))
        }
        Err(error) => tracing::info!(%error, "no GPU transforms the points"),
    }
    match device {
        FoldDevice::Cuda => Err(Failure::usage("--device cuda: this build has no CUDA")),
        _ => Ok(Box::new(HostTransform)),
    }
}

struct Folder<'a> {
    config: &'a Config,
    ui: Ui,
    interrupts: &'a Interrupts,
    force: bool,
}

impl Folder<'_> {
    fn fold(
        &self,
        spec: &CircuitSpec,
        path: &Path,
        transform: &mut dyn PointTransform,
    ) -> Result<(), Failure> {
        let begun = Instant::now();
        let verdicts = self.config.cache_dir().join("verdicts");
        let options = LoadOptions { verdict_dir: Some(&verdicts) };
        let loaded = self.read_key(spec, path, &verdicts)?;
        let shape = self.shape(spec, &loaded)?;
        let key = FoldKey::new(loaded.sha256, &shape);
        let fold_file = fold_path(path, &key);
        if !self.force && self.is_there(spec, path, &loaded, &shape, options)? {
            return ui::out(&format!("{spec}: the fold is there already: {}", fold_file.display()));
        }
        check_room(files::folder(path), FoldSizes::of(&shape).file_bytes())?;
        let fold = self.watched(format!("{spec}: folding"), |watch| {
            Fold::build(&loaded.srs, &shape, transform, watch)
        })?;
        self.watched(format!("{spec}: checking the fold"), |watch| {
            fold.check(&loaded.srs, &shape, &fold_file, watch)
        })?;
        let bytes = self.watched(format!("{spec}: writing the fold"), |watch| {
            fold.save(&fold_file, &key, &shape, options, watch)
        })?;
        ui::out(&format!(
            "{spec}: folded in {}\n  {}  {}",
            ui::duration(begun.elapsed()),
            fold_file.display(),
            ui::bytes(bytes)
        ))
    }

    fn read_key(&self, spec: &CircuitSpec, path: &Path, verdicts: &Path) -> Result<LoadedSrs, Failure> {
        let options = ReadOptions { expected_sha256: None, verdict_dir: Some(verdicts.to_owned()) };
        let progress = Progress::new(self.ui, format!("{spec}: reading the key"));
        let loaded = self.interrupts.run(|| {
            read_srs(path, &options, &|done, total| {
                self.interrupts.unwind();
                progress.set(done, total);
            })
        })?;
        progress.clear();
        Ok(loaded.map_err(|error| error.for_circuit(&spec.id(), Some(spec.how_to_get_params())))?)
    }

    fn shape(&self, spec: &CircuitSpec, loaded: &LoadedSrs) -> Result<R1csShape, Failure> {
        let shapes = self.config.cache_dir().join("shapes");
        shape_cache::load_or_record(Some(&shapes), &spec.id(), &loaded.srs, || {
            self.ui.note(&format!("{spec}: recording the circuit's constraints"));
            spec.record_shape()
                .map_err(|error| Failure::proving(spec.to_string(), format!("{spec}: {error}")))
        })
    }

    /// A fold that is there and wrong is said to be so, and made anew.
    fn is_there(
        &self,
        spec: &CircuitSpec,
        path: &Path,
        loaded: &LoadedSrs,
        shape: &R1csShape,
        options: LoadOptions<'_>,
    ) -> Result<bool, Failure> {
        let found = self.run_watched(format!("{spec}: looking at the fold that is there"), |watch| {
            load_fold(path, loaded.sha256, &loaded.srs, shape, options, watch)
        })?;
        match found {
            Ok(found) => Ok(found.is_some()),
            Err(FoldError::Stopped) => Err(failure(FoldError::Stopped)),
            Err(error) => {
                self.ui.note(&format!("{error}: it is made anew"));
                Ok(false)
            }
        }
    }

    fn watched<T>(
        &self,
        label: String,
        work: impl FnOnce(Watch<'_>) -> Result<T, FoldError>,
    ) -> Result<T, Failure> {
        self.run_watched(label, work)?.map_err(failure)
    }

    /// Work that is stopped by a signal, which then is the failure.
    fn run_watched<T>(
        &self,
        label: String,
        work: impl FnOnce(Watch<'_>) -> Result<T, FoldError>,
    ) -> Result<Result<T, FoldError>, Failure> {
        let progress = Progress::new(self.ui, label);
        let watch = Watch {
            progress: &|done, total| progress.set(done, total),
            is_stopped: &|| self.interrupts.check().is_err(),
        };
        let result = work(watch);
        progress.clear();
        self.interrupts.check()?;
        Ok(result)
    }
}

/// Fails if the folder of the key cannot take its fold: before hours are spent on what cannot be kept.
fn check_room(dir: &Path, needs_bytes: u64) -> Result<(), Failure> {
    let unwritable =
        |what: &dyn fmt::Display| Failure::usage(format!("{}: cannot write: {what}", dir.display()));
    files::try_folder(dir).map_err(|error| unwritable(&error))?;
    let free_bytes = files::free_bytes(dir).map_err(|error| unwritable(&error))?;
    if needs_bytes <= free_bytes {
        return Ok(());
    }
    let (needs, has) = (ui::bytes(needs_bytes), ui::bytes(free_bytes));
    Err(unwritable(&format_args!("needs {needs} of free space, has {has}")))
}

fn failure(error: FoldError) -> Failure {
    let message = error.to_string();
    let (code, class, at) = match error {
        FoldError::Io { path, source } => return SrsError::Io { path, source }.into(),
        FoldError::Key { .. } => (EXIT_INPUT, "caller", "key"),
        FoldError::Device(_) => (EXIT_PROVING, "device-lost", "device"),
        FoldError::Wrong { .. } => (EXIT_PROVING, "device-lost", "fold"),
        _ => (EXIT_PROVING, "bug", "fold"),
    };
    Failure { code, class, message, at: at.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::EXIT_USAGE;

    #[test]
    fn a_folder_that_cannot_take_the_fold_is_wrong_use() {
        let dir = tempfile::tempdir().unwrap();
        check_room(dir.path(), 1).unwrap();
        let failure = check_room(dir.path(), u64::MAX).unwrap_err();
        assert_eq!(failure.code, EXIT_USAGE);
        assert!(
            failure.message.contains("cannot write: needs 16777216.0 TiB of free space, has "),
            "{}",
            failure.message
        );
        let absent = check_room(&dir.path().join("absent"), 1).unwrap_err();
        assert_eq!(absent.code, EXIT_USAGE);
    }
}
