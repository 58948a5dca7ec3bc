//! Making test parameters, under Filecoin's file names.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use cuzk::circuits::CircuitSpec;
use cuzk::groth16::generate::{generate_params, Generated};
use cuzk::groth16::srs_file::{read_counts, read_vk};

use crate::failure::Failure;
use crate::interrupt::Interrupts;
use crate::progress::Progress;
use crate::ui::{self, Ui};
use crate::{files, test_params};

const WARNING: &str = "\
WARNING: these are TEST parameters. Their secrets are known to everybody, so anyone can forge proofs for them.
         Never use them, or the proofs made with them, on a network.";

/// Makes the test parameters of circuits in one folder.
pub struct Maker<'a> {
    dir: &'a Path,
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
        Self { dir, force, ui, interrupts, has_warned: Cell::new(false) }
    }

    /// Makes the files that are not there. Refuses all of them if one circuit cannot be built here.
    pub fn make_all(&self, specs: &[CircuitSpec]) -> Result<(), Failure> {
        if let Some(spec) = specs.iter().find(|spec| !spec.is_supported()) {
            return Err(Failure::usage(format!(
                "{spec}: circuits of {} sectors cannot be built here; test parameters exist for 2 KiB, 8 MiB and \
                 512 MiB sectors",
                spec.sector_size
            )));
        }
        specs.iter().try_for_each(|spec| self.make(spec))
    }

    fn make(&self, spec: &CircuitSpec) -> Result<(), Failure> {
        let files = Files { params: self.dir.join(spec.params_file()), vk: self.dir.join(spec.vk_file()) };
        if !self.force && self.is_there(spec, &files)? {
            ui::out(&format!("{spec}: test parameters are there already: {}", files.params.display()));
            return Ok(());
        }
        fs::create_dir_all(self.dir).map_err(|error| {
            let dir = self.dir.display();
            Failure::usage(format!("{dir}: cannot make this folder: {error}; choose another with --params"))
        })?;
        if !self.has_warned.replace(true) {
            self.ui.note(WARNING);
        }
        self.interrupts.check()?;
        let start = Instant::now();
        let made = self.write(spec, &files)?;
        check_digest(spec, &files, &made)?;
        ui::out(&format!(
            "{spec}: made in {}\n  {}  {} (sha256 {})\n  {}  {}",
            ui::duration(start.elapsed()),
            files.params.display(),
            ui::bytes(made.params_bytes),
            hex::encode(made.params_sha256),
            files.vk.display(),
            ui::bytes(made.vk_bytes)
        ));
        Ok(())
    }

    fn write(&self, spec: &CircuitSpec, files: &Files) -> Result<Generated, Failure> {
        self.ui.note(&format!("{spec}: recording the circuit's constraints"));
        let shape = spec
            .record_shape()
            .map_err(|error| Failure::proving(spec.to_string(), format!("{spec}: {error}")))?;
        let progress = Progress::new(self.ui, format!("{spec}: making parameters"));
        let made = self.interrupts.run(|| {
            generate_params(&shape, &mut spec.test_params_rng(), &files.params, &files.vk, &|done, total| {
                self.interrupts.unwind();
                progress.set(done, total);
            })
        })??;
        Ok(made)
    }

    /// Whether the test parameters are there, both files. Other files under their names are never overwritten
    /// unasked: they may be a network's real parameters, which are hard to come by.
    fn is_there(&self, spec: &CircuitSpec, files: &Files) -> Result<bool, Failure> {
        let params = &files.params;
        if !params.exists() {
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
