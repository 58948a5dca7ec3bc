//! `cuzk demo`: real Filecoin inputs, proved and verified on this machine, with nothing prepared.
//!
//! The inputs are those of `tests/data/filecoin`, carried in the program, so that the demo runs from any folder.

mod inputs;

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use cuzk::circuits::manifest::Manifest;
use cuzk::circuits::CircuitSpec;
use cuzk::config::Config;
use cuzk::engine::Engine;
use cuzk::messages::job::BlindingSource;

use self::inputs::{Example, EXAMPLES};
use crate::failure::Failure;
use crate::input::{read_jobs, C1Options, Job};
use crate::interrupt::Interrupts;
use crate::options::DeviceOption;
use crate::params::Maker;
use crate::prove::{prove_all, Finished, Task};
use crate::ui::{self, Ui};
use crate::{files, verify};

/// Prove and verify real WinningPoSt and WindowPoSt inputs of 2 KiB sectors, with nothing prepared
#[derive(Args)]
pub struct DemoArgs {
    /// PoRep and SnapDeals too: several minutes, 1.8 GB of parameters, 3 GiB of memory
    #[arg(long)]
    all: bool,
    /// Folder for the test parameters [default: `demo-params` in the cache folder]
    #[arg(long, value_name = "DIR")]
    params: Option<PathBuf>,
    #[command(flatten)]
    device: DeviceOption,
}

pub fn run(args: &DemoArgs, config: &Config, ui: Ui) -> Result<(), Failure> {
    let start = Instant::now();
    let dir = args.params.clone().unwrap_or_else(|| config.cache_dir().join("demo-params"));
    let mut config = config.clone();
    config.gpus.devices = args.device.choice(&config);
    let mut engine_config = config.engine_config()?;
    // Of the daemon.
    engine_config.journal = None;
    engine_config.params_dir.clone_from(&dir);
    let interrupts = Interrupts::install()?;
    let examples: Vec<&Example> = EXAMPLES.iter().filter(|example| args.all || !example.is_large).collect();
    let unpacked = tempfile::tempdir()
        .map_err(|error| Failure::usage(format!("no folder for temporary files: {error}")))?;

    ui::out("1. Test parameters (kept for the next time)\n")?;
    let specs = examples
        .iter()
        .map(|example| Ok(example.unpack(unpacked.path())?.circuit_spec()?))
        .collect::<Result<Vec<CircuitSpec>, Failure>>()?;
    Maker::new(&dir, false, ui, &interrupts).make_all(&specs)?;
    let engine = Engine::start(engine_config)?;
    for (index, example) in examples.iter().enumerate() {
        ui::out(&format!("\n{}. {}\n", index + 2, example.title))?;
        let demo = Demo { ui, dir: &dir, engine: &engine, interrupts: &interrupts };
        demo.show(example, unpacked.path())?;
    }
    ui::out(&format!(
        "\nAll proofs are valid. Done in {}.\nNext: `cuzk prove --help`, and `cuzk circuits` for what else can be proved.",
        ui::duration(start.elapsed())
    ))?;
    Ok(())
}

struct Demo<'a> {
    ui: Ui,
    dir: &'a Path,
    engine: &'a Engine,
    interrupts: &'a Interrupts,
}

impl Demo<'_> {
    /// A proof of its own, checked by both verifiers; then the recorded one once more, byte for byte.
    fn show(&self, example: &Example, unpacked: &Path) -> Result<(), Failure> {
        let manifest = example.unpack(unpacked)?;
        let fresh = self.prove(example, unpacked, false)?;
        ui::out(&format!("   proved with fresh randomness in {}", fresh.time))?;
        let workload = manifest.request(0, &unpacked.join(example.folder))?.decode(self.dir)?;
        let circuit = manifest.circuit_spec()?;
        let vk = verify::read_key(&self.dir.join(circuit.vk_file()), &circuit)?;
        let verified = verify::verify(workload.as_ref(), &vk, &fresh.proof)?;
        ui::out(&format!(
            "   verified by cuzk in {} and by Filecoin's own verifier in {}",
            ui::duration(verified.ours),
            ui::duration(verified.library)
        ))?;
        let replayed = self.prove(example, unpacked, true)?;
        ui::out(&format!(
            "   proved again with the recorded r and s in {}: the same {} bytes as bellperson's proof",
            replayed.time,
            replayed.proof.len()
        ))?;
        Ok(())
    }

    fn prove(&self, example: &Example, unpacked: &Path, replay: bool) -> Result<Proof, Failure> {
        let mut job = example.job(unpacked)?;
        let blinding = match job.recorded.blindings.take() {
            Some(recorded) if replay => BlindingSource::Fixed(recorded),
            _ => BlindingSource::OsRandom,
        };
        let mut last = None;
        let task = Task { job, blinding, replay };
        prove_all(self.engine, vec![task], self.ui, self.interrupts, |finished| {
            last = Some(finished);
            Ok(())
        })?;
        let Finished { result, .. } = last.expect("one task, one end");
        let outcome = result?.outcome;
        Ok(Proof { time: ui::duration(outcome.timings.total), proof: outcome.proof.clone() })
    }
}

struct Proof {
    time: String,
    proof: Vec<u8>,
}

impl Example {
    /// Writes the example's files into a folder of their own, and gives its manifest.
    fn unpack(&self, unpacked: &Path) -> Result<Manifest, Failure> {
        let dir = unpacked.join(self.folder);
        std::fs::create_dir_all(&dir).map_err(|error| {
            Failure::usage(format!("{}: cannot make this folder: {error}", dir.display()))
        })?;
        for (name, bytes) in self.files {
            files::write_atomically(&dir.join(name), bytes)?;
        }
        Ok(Manifest::read(&dir.join("manifest.json"))?)
    }

    fn job(&self, unpacked: &Path) -> Result<Job, Failure> {
        let manifest = unpacked.join(self.folder).join("manifest.json");
        let mut jobs = read_jobs(&manifest, C1Options::default());
        jobs.swap_remove(0).map_err(|bad| bad.failure).map(|job| Job { file: self.folder.into(), ..job })
    }
}
