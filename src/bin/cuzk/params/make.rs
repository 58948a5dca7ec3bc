//! Making test parameters, under Filecoin's file names.

use std::cell::Cell;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::ValueEnum;
use cuzk::circuits::CircuitSpec;
use cuzk::error::SrsError;
use cuzk::groth16::generate::{generate_params, Generated, PointProgress};
use cuzk::groth16::srs_file::{read_counts, read_vk, remove_leftovers, Leftover};
use cuzk::groth16::R1csShape;
use rand_chacha::ChaCha20Rng;

use crate::failure::{Failure, EXIT_USAGE};
use crate::interrupt::Interrupts;
use crate::progress::Progress;
use crate::ui::{self, Ui};
use crate::{files, test_params};

const WARNING: &str = "\
WARNING: these are TEST parameters. Their secrets are known to everybody, so anyone can forge proofs for them.
         Never use them, or the proofs made with them, on a network.";

/// What adds the points up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum MakerDevice {
    /// This machine's cores
    #[default]
    Cpu,
    /// The first visible GPU: also full-size circuits, in minutes
    Cuda,
}

/// Makes the test parameters of circuits in one folder.
pub struct Maker<'a> {
    dir: &'a Path,
    device: MakerDevice,
    /// Replace what is there, whatever it is.
    force: bool,
    ui: Ui,
    interrupts: &'a Interrupts,
    has_warned: Cell<bool>,
}

/// A circuit's two files.
struct Files {
    params: PathBuf,
    vk: PathBuf,
}

impl<'a> Maker<'a> {
    pub fn new(dir: &'a Path, force: bool, ui: Ui, interrupts: &'a Interrupts) -> Self {
        Self { dir, device: MakerDevice::Cpu, force, ui, interrupts, has_warned: Cell::new(false) }
    }

    /// With points by this device.
    pub fn on(self, device: MakerDevice) -> Self {
        Self { device, ..self }
    }

    /// Makes the files that are not there. Refuses all of them if one circuit cannot be built here, a file of another
    /// kind is in the way, or the folder cannot take them: before minutes are spent on what cannot be kept.
    pub fn make_all(&self, specs: &[CircuitSpec]) -> Result<(), Failure> {
        let is_too_large = |spec: &&CircuitSpec| self.device == MakerDevice::Cpu && spec.is_full_size();
        if let Some(spec) = specs.iter().find(is_too_large) {
            return Err(Failure::usage(format!(
                "{spec}: the key of a circuit of {} sectors takes hours and tens of gigabytes; test parameters are \
                 made for smaller sectors, for WinningPoSt and for scaled-down PoReps, such as porep-32g-k1; a GPU \
                 makes the others too (--device cuda)",
                spec.sector_size
            )));
        }
        let gpu = match self.device {
            MakerDevice::Cpu => None,
            MakerDevice::Cuda => Some(open_gpu()?),
        };
        files::check_enterable(self.dir).map_err(|failure| Failure { code: EXIT_USAGE, ..failure })?;
        self.remove_leftovers()?;
        let mut missing = Vec::new();
        for spec in specs {
            let files =
                Files { params: self.dir.join(spec.params_file()), vk: self.dir.join(spec.vk_file()) };
            if !self.force && self.is_there(spec, &files)? {
                ui::out(&format!("{spec}: test parameters are there already: {}", files.params.display()))?;
            } else {
                missing.push((spec, files));
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        self.check_folder(missing.iter().filter_map(|(spec, _)| spec.params_bytes()).sum())?;
        missing.iter().try_for_each(|(spec, files)| self.make(spec, files, gpu.as_ref()))
    }

    /// Those of other processes that still run are left alone.
    fn remove_leftovers(&self) -> Result<(), Failure> {
        let removed = remove_leftovers(self.dir).map_err(|error| unwritable(self.dir, &error))?;
        for Leftover { path, num_bytes } in removed {
            let size = ui::bytes(num_bytes);
            self.ui.note(&format!(
                "{}: left behind by a generation that was killed, removed ({size})",
                path.display()
            ));
        }
        Ok(())
    }

    /// Makes the folder, and fails if it cannot take files of `needs_bytes` together.
    fn check_folder(&self, needs_bytes: u64) -> Result<(), Failure> {
        let refused = |error: std::io::Error| unwritable(self.dir, &error);
        fs::create_dir_all(self.dir).map_err(refused)?;
        files::try_folder(self.dir).map_err(refused)?;
        check_space(self.dir, needs_bytes, files::free_bytes(self.dir).map_err(refused)?)
    }

    fn make(&self, spec: &CircuitSpec, files: &Files, gpu: Option<&Gpu>) -> Result<(), Failure> {
        if !self.has_warned.replace(true) {
            self.ui.note(WARNING);
        }
        self.interrupts.check()?;
        let start = Instant::now();
        let made = self.write(spec, files, gpu)?;
        check_digest(spec, files, &made)?;
        ui::out(&format!(
            "{spec}: made in {}\n  {}  {} (sha256 {})\n  {}  {}",
            ui::duration(start.elapsed()),
            files.params.display(),
            ui::bytes(made.params_bytes),
            hex::encode(made.params_sha256),
            files.vk.display(),
            ui::bytes(made.vk_bytes)
        ))
    }

    fn write(&self, spec: &CircuitSpec, files: &Files, gpu: Option<&Gpu>) -> Result<Generated, Failure> {
        self.ui.note(&format!("{spec}: recording the circuit's constraints"));
        let shape = spec
            .record_shape()
            .map_err(|error| Failure::proving(spec.to_string(), format!("{spec}: {error}")))?;
        let progress = Progress::new(self.ui, format!("{spec}: making parameters"));
        let made = self.interrupts.run(|| {
            let progress = |done, total| {
                self.interrupts.unwind();
                progress.set(done, total);
            };
            let mut rng = spec.test_params_rng();
            match gpu {
                None => generate_params(&shape, &mut rng, &files.params, &files.vk, &progress),
                Some(gpu) => generate_on(gpu, &shape, &mut rng, files, &progress),
            }
        })?;
        // A circuit's parameters are input elsewhere; here they are written, where the user said.
        made.map_err(|error| match error {
            SrsError::Io { path, source } => unwritable(&path, &source),
            other => other.into(),
        })
    }

    /// Whether the test parameters are there, both files. Other files under their names are never overwritten
    /// unasked: they may be a network's real parameters, which are hard to come by.
    fn is_there(&self, spec: &CircuitSpec, files: &Files) -> Result<bool, Failure> {
        let params = &files.params;
        if !files::is_there(params)? {
            return Ok(false);
        }
        let refuse = |what: String| {
            let path = params.display();
            let advice = "remove it, choose another folder with --params, or use --force";
            Failure::input(path.to_string(), format!("{path}: {what}; {advice}"))
        };
        let counts =
            read_counts(params).map_err(|error| refuse(format!("is there, and is damaged ({error})")))?;
        let matches = match test_params::of(spec) {
            Some(known) => {
                let progress = Progress::new(self.ui, format!("{spec}: checking the digest"));
                let sha256 = files::sha256(params, &|done, total| progress.set(done, total))?;
                sha256 == known.params_sha256
            }
            None => spec.sizes().is_some_and(|sizes| sizes.num_aux == u64::from(counts.l)),
        };
        if !matches {
            return Err(refuse("is there, and is not this circuit's test parameters".to_owned()));
        }
        // Without the .vk nothing could be verified: the pair is made again, with the same bytes.
        Ok(files.vk.exists() && read_vk(&files.vk).is_ok())
    }
}

#[cfg(feature = "cuda")]
type Gpu = cuzk::cuda::generate::ParameterMaker;
/// There is none to open.
#[cfg(not(feature = "cuda"))]
type Gpu = std::convert::Infallible;

/// Before anything else takes time.
#[cfg(feature = "cuda")]
fn open_gpu() -> Result<Gpu, Failure> {
    Gpu::first().map_err(|error| Failure::usage(format!("--device cuda: {error}")))
}

#[cfg(not(feature = "cuda"))]
fn open_gpu() -> Result<Gpu, Failure> {
    Err(Failure::usage(
        "--device cuda: this program was built without CUDA (cargo feature `cuda`): use --device cpu",
    ))
}

#[cfg(feature = "cuda")]
fn generate_on(
    gpu: &Gpu,
    shape: &R1csShape,
    rng: &mut ChaCha20Rng,
    files: &Files,
    progress: PointProgress<'_>,
) -> Result<Generated, SrsError> {
    gpu.write(shape, rng, &files.params, &files.vk, progress)
}

#[cfg(not(feature = "cuda"))]
fn generate_on(
    gpu: &Gpu,
    _: &R1csShape,
    _: &mut ChaCha20Rng,
    _: &Files,
    _: PointProgress<'_>,
) -> Result<Generated, SrsError> {
    match *gpu {}
}

fn check_space(dir: &Path, needs_bytes: u64, free_bytes: u64) -> Result<(), Failure> {
    if needs_bytes <= free_bytes {
        return Ok(());
    }
    let (needs, has) = (ui::bytes(needs_bytes), ui::bytes(free_bytes));
    Err(unwritable(dir, &format_args!("needs {needs} of free space, has {has}")))
}

fn unwritable(path: &Path, error: &dyn fmt::Display) -> Failure {
    let advice = "choose another folder with --params";
    Failure::usage(format!("{}: cannot write: {error}; {advice}", path.display()))
}

/// The bytes depend on the circuit alone: others would mean that this program is not what it was.
fn check_digest(spec: &CircuitSpec, files: &Files, made: &Generated) -> Result<(), Failure> {
    let Some(known) = test_params::of(spec) else { return Ok(()) };
    let (path, sha256) = (files.params.display(), hex::encode(made.params_sha256));
    if sha256 == known.params_sha256 {
        return Ok(());
    }
    let what = format!("{path}: sha256 is {sha256}, expected {}: report this", known.params_sha256);
    Err(Failure::proving(path.to_string(), what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_space_is_wrong_use_with_both_numbers() {
        let dir = Path::new("/somewhere");
        check_space(dir, 5 << 30, 5 << 30).unwrap();
        let failure = check_space(dir, 5 << 30, (5 << 30) - 1).unwrap_err();
        assert_eq!(failure.code, EXIT_USAGE);
        let message = &failure.message;
        assert!(
            message.starts_with("/somewhere: cannot write: needs 5.0 GiB of free space, has "),
            "{message}"
        );
    }

    #[test]
    fn free_space_is_read_from_the_system() {
        let dir = tempfile::tempdir().unwrap();
        assert!(files::free_bytes(dir.path()).unwrap() > 0);
        assert!(files::free_bytes(&dir.path().join("absent")).is_err());
    }
}
