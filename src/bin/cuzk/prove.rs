//! `cuzk prove`: reads inputs, proves them side by side through one engine, and says what came of each.

mod report;
mod run;

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use cuzk::config::Config;
use cuzk::engine::Engine;
use cuzk::journal::JournalConfig;
use cuzk::messages::job::BlindingSource;

use crate::failure::{Failure, EXIT_USAGE};
use crate::files;
use crate::input::{parse_miner, read_jobs, BadJob, C1Options, Job};
use crate::interrupt::Interrupts;
use crate::options::{DeviceOption, EventsOption, ParamsOption};
use crate::ui::{self, Ui};

pub use run::{prove_all, Finished, Task};

/// Prove manifests, C1 files and request files, several at once
#[derive(Args)]
pub struct ProveArgs {
    /// Manifests, C1 files (bare or wrapped; with --miner), or request files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    params: ParamsOption,
    #[command(flatten)]
    device: DeviceOption,
    #[command(flatten)]
    events: EventsOption,
    /// Miner id of C1 files, such as 1000 or f01000
    #[arg(long, value_name = "ID", value_parser = parse_miner)]
    miner: Option<u64>,
    /// Sector number of a bare C1 file
    #[arg(long, value_name = "NUMBER")]
    sector: Option<u64>,
    /// Use the manifest's recorded r and s, and fail unless its recorded proof comes out
    #[arg(long, conflicts_with = "seed")]
    replay: bool,
    /// Draw r and s from this seed (32 bytes of hex): for tests only, the proofs hide nothing
    #[arg(long, value_name = "HEX", value_parser = parse_seed)]
    seed: Option<[u8; 32]>,
    /// Keep jobs and proofs in this file (made if missing): after a kill the same command goes on, and proves nothing
    /// twice
    #[arg(long, value_name = "PATH", conflicts_with_all = ["replay", "seed"])]
    journal: Option<PathBuf>,
    /// Write the proof here: 192 bytes a partition, all requests of FILE in order; nothing if any fails
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// One JSON object a line for each job, on standard output
    #[arg(long)]
    json: bool,
}

fn parse_seed(text: &str) -> Result<[u8; 32], String> {
    let bytes = hex::decode(text).map_err(|error| format!("no hex: {error}"))?;
    let has = bytes.len();
    bytes.try_into().map_err(|_| format!("needs 32 bytes (64 hex digits), has {has}"))
}

pub fn run(args: &ProveArgs, config: &Config, ui: Ui) -> Result<(), Failure> {
    if args.out.is_some() && args.files.len() > 1 {
        return Err(Failure::usage(
            "--out takes the proof of one FILE: prove the files one by one, or use --json".to_owned(),
        ));
    }
    if let Some(path) = &args.out {
        files::check_writable(path)?;
    }
    let mut config = config.clone();
    config.gpus.devices = args.device.choice(&config);
    let mut engine_config = config.engine_config()?;
    engine_config.params_dir = args.params.dir(&config);
    // That of the configuration is the daemon's.
    engine_config.journal = args.journal.as_ref().map(JournalConfig::file);
    let (mut tasks, mut bad) = read(args)?;
    if let Err(failure) = files::check_enterable(&engine_config.params_dir) {
        bad.extend(tasks.drain(..).map(|task| task.refuse(&failure)));
    }
    let interrupts = Interrupts::install()?;

    let mut outcome = Outcome::new(args, ui, tasks.len() + bad.len());
    for job in bad {
        outcome.add(&Finished::refused(job))?;
    }
    if tasks.is_empty() {
        return outcome.finish();
    }
    // Ends after the engine: what that does last is in it too.
    let (events, _log) = args.events.open(&config)?;
    engine_config.events = events;
    outcome.expect(&tasks);
    let prove = |engine| prove_all(&engine, tasks, ui, &interrupts, |finished| outcome.add(&finished));
    match Engine::start(engine_config).map_err(Failure::from).and_then(prove) {
        Ok(()) => outcome.finish(),
        Err(failure) => {
            outcome.abandon(&failure);
            Err(failure)
        }
    }
}

/// The jobs of all files, and those that cannot be read. Wrong use ends everything before anything is proved.
fn read(args: &ProveArgs) -> Result<(Vec<Task>, Vec<BadJob>), Failure> {
    let c1 = C1Options { miner: args.miner, sector: args.sector };
    let (mut tasks, mut bad) = (Vec::new(), Vec::new());
    for job in args.files.iter().flat_map(|file| read_jobs(file, c1)) {
        match job {
            Ok(job) => tasks.push(task(job, args)?),
            Err(job) if job.failure.code == EXIT_USAGE => return Err(job.failure),
            Err(job) => bad.push(*job),
        }
    }
    Ok((tasks, bad))
}

fn task(mut job: Job, args: &ProveArgs) -> Result<Task, Failure> {
    if args.journal.is_some() && job.request_id.is_empty() {
        // A name under which the same command finds it again. (It need not be unique: inputs count too.)
        job.request_id = format!("{}[{}]", job.file.display(), job.request);
    }
    let blinding = match (args.replay, args.seed) {
        (true, _) => {
            if job.recorded.proof.is_none() {
                return Err(no_replay(&job));
            }
            BlindingSource::Fixed(job.recorded.blindings.take().ok_or_else(|| no_replay(&job))?)
        }
        (false, Some(seed)) => BlindingSource::Seeded(seed),
        (false, None) => BlindingSource::OsRandom,
    };
    Ok(Task { job, blinding, replay: args.replay })
}

fn no_replay(job: &Job) -> Failure {
    Failure::usage(format!(
        "{}: request {} has no recorded r, s and proof: --replay needs a manifest with them",
        job.file.display(),
        job.request
    ))
}

/// What came of all jobs.
struct Outcome<'a> {
    args: &'a ProveArgs,
    ui: Ui,
    num_jobs: usize,
    num_ended: usize,
    /// Jobs that have begun and not ended: file, request, circuit.
    unfinished: Vec<(PathBuf, usize, Option<String>)>,
    /// By index of the request: the order of `--out`.
    proofs: BTreeMap<usize, Vec<u8>>,
    failures: Vec<Failure>,
    /// Why `--out` was not written, or else why standard output was not.
    unwritten: Option<Failure>,
}

impl<'a> Outcome<'a> {
    fn new(args: &'a ProveArgs, ui: Ui, num_jobs: usize) -> Self {
        Self {
            args,
            ui,
            num_jobs,
            num_ended: 0,
            unfinished: Vec::new(),
            proofs: BTreeMap::new(),
            failures: Vec::new(),
            unwritten: None,
        }
    }

    /// These jobs begin.
    fn expect(&mut self, tasks: &[Task]) {
        let jobs = tasks.iter().map(|task| &task.job);
        self.unfinished.extend(jobs.map(|job| (job.file.clone(), job.request, job.circuit.clone())));
    }

    /// The command ends although jobs have not: for scripts, each of these has its line all the same.
    fn abandon(&mut self, failure: &Failure) {
        for (file, request, circuit) in std::mem::take(&mut self.unfinished) {
            let job = BadJob { file, request, circuit, failure: failure.clone() };
            // If standard output is what failed, nobody can be told.
            if !self.args.json || self.print(&Finished::refused(job)).is_err() {
                return;
            }
        }
    }

    /// Takes in how a job ended, and says it. `--out` is written before the last word is printed: a reader that went
    /// away, or a disk that is full, must not cost a proof that has another place to go.
    ///
    /// # Errors
    /// If nobody can be told and there is no `--out`: what is left to prove would be for nobody.
    fn add(&mut self, finished: &Finished) -> Result<(), Failure> {
        self.num_ended += 1;
        let is_it =
            |(file, request, _): &(PathBuf, usize, _)| *file == finished.file && *request == finished.request;
        if let Some(index) = self.unfinished.iter().position(is_it) {
            self.unfinished.swap_remove(index);
        }
        match &finished.result {
            Ok(proved) => {
                self.proofs.insert(finished.request, proved.outcome.proof.clone());
            }
            Err(failure) => {
                // The only job's failure is the command's, and printed as that.
                if self.num_jobs > 1 {
                    self.ui.error(failure);
                }
                self.failures.push(failure.clone());
            }
        }
        if self.num_ended == self.num_jobs && self.failures.is_empty() {
            if let Err(failure) = self.write_out() {
                // The printed proof is then the only one; printed or not, `--out` is what failed.
                let _ = self.print(finished);
                self.unwritten = Some(failure);
                return Ok(());
            }
        }
        if self.unwritten.is_some() {
            return Ok(());
        }
        match (self.print(finished), &self.args.out) {
            (Err(failure), Some(_)) => {
                self.unwritten = Some(failure);
                Ok(())
            }
            (printed, _) => printed,
        }
    }

    /// All proofs are there.
    fn write_out(&self) -> Result<(), Failure> {
        let Some(path) = &self.args.out else { return Ok(()) };
        let proof: Vec<u8> = self.proofs.values().flatten().copied().collect();
        files::write_atomically(path, &proof)
    }

    fn print(&self, finished: &Finished) -> Result<(), Failure> {
        match &finished.result {
            _ if self.args.json => ui::out(&report::json(finished).to_string()),
            Ok(proved) => ui::out(&report::text(finished, proved)),
            Err(_) => Ok(()),
        }
    }

    /// How the command ends.
    fn finish(self) -> Result<(), Failure> {
        Failure::of_parts(self.failures, self.num_jobs, "jobs failed")?;
        self.unwritten.map_or(Ok(()), Err)
    }
}
