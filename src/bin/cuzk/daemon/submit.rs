//! `cuzk submit`: gives jobs to a daemon, and waits for their proofs if asked to.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use cuzk::circuits::check::Checked;
use cuzk::circuits::{CircuitSpec, Workload};
use cuzk::config::Config;
use cuzk::messages::job::Priority;
use cuzk_wire::client::Client;
use cuzk_wire::v1::{self, AwaitProofResponse, SubmitProofRequest, SubmitProofResponse};
use serde_json::{json, Value};
use tokio::task::JoinSet;

use super::follow::{self, Poll};
use super::status::seconds;
use super::{refused, with_client, DaemonOptions};
use crate::failure::{Failure, EXIT_USAGE};
use crate::files;
use crate::input::{parse_miner, read_jobs, BadJob, C1Options, Job};
use crate::interrupt::Interrupts;
use crate::options::ParamsOption;
use crate::progress::Board;
use crate::ui::{self, Ui};
use crate::verify;

/// Give jobs to the daemon: manifests, C1 files and request files, several at once
#[derive(Args)]
pub struct SubmitArgs {
    /// Manifests, C1 files (bare or wrapped; with --miner), or request files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    daemon: DaemonOptions,
    /// Miner id of C1 files, such as 1000 or f01000
    #[arg(long, value_name = "ID", value_parser = parse_miner)]
    miner: Option<u64>,
    /// Sector number of a bare C1 file
    #[arg(long, value_name = "NUMBER")]
    sector: Option<u64>,
    /// Name of the jobs [default: one is made; a request file's own goes first]
    #[arg(long, value_name = "NAME")]
    request_id: Option<String>,
    /// low, normal, high or critical [default: the kind's own]
    #[arg(long, value_name = "LEVEL", value_parser = parse_priority)]
    priority: Option<Priority>,
    /// Not worth proving after this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    deadline: Option<Duration>,
    /// Wait for the proofs, and verify those whose verifying key is in the parameter folder
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    params: ParamsOption,
    /// Write the proof here: 192 bytes a partition, all requests of FILE in order; nothing if any fails
    #[arg(long, value_name = "FILE", requires = "wait")]
    out: Option<PathBuf>,
    /// One JSON object a line for each job, on standard output
    #[arg(long)]
    json: bool,
}

fn parse_priority(text: &str) -> Result<Priority, String> {
    match text.to_ascii_lowercase().as_str() {
        "low" => Ok(Priority::Low),
        "normal" => Ok(Priority::Normal),
        "high" => Ok(Priority::High),
        "critical" => Ok(Priority::Critical),
        _ => Err(format!("`{text}` is none of low, normal, high, critical")),
    }
}

pub fn run(args: &SubmitArgs, config: &Config, ui: Ui) -> Result<(), Failure> {
    if args.out.is_some() && args.files.len() > 1 {
        return Err(Failure::usage(
            "--out takes the proof of one FILE: submit the files one by one, or use --json",
        ));
    }
    if let Some(path) = &args.out {
        files::check_writable(path)?;
    }
    let interrupts = Interrupts::install()?;
    let submit = Submit { args, ui, params: args.params.dir(config) };
    with_client(&args.daemon, config, |client| follow::unless_interrupted(interrupts, submit.all(client)))
}

struct Submit<'a> {
    args: &'a SubmitArgs,
    ui: Ui,
    params: PathBuf,
}

/// A job that the daemon has.
struct Submitted {
    file: PathBuf,
    request: usize,
    answer: SubmitProofResponse,
    workload: Arc<dyn Workload>,
}

/// How a job ended for this command.
struct Done {
    file: PathBuf,
    request: usize,
    job_id: Option<String>,
    circuit: Option<String>,
    /// With `--wait`: the proof, and whether this command verified it as well (`None`: no verifying key at hand).
    result: Result<Option<(AwaitProofResponse, Option<Checked>)>, Failure>,
    answer: Option<SubmitProofResponse>,
}

impl Submit<'_> {
    async fn all(&self, client: Client) -> Result<(), Failure> {
        let mut outcome =
            Outcome { submit: self, failures: Vec::new(), num_said: 0, proofs: BTreeMap::new(), num_jobs: 0 };
        let board = Arc::new(Board::new(self.ui));
        let poll = Arc::new(Poll::start(client.clone()));
        let mut waiting = JoinSet::new();
        for file in &self.args.files {
            // File by file: what was sent need not be kept.
            for job in read_jobs(file, C1Options { miner: self.args.miner, sector: self.args.sector }) {
                outcome.num_jobs += 1;
                match self.submit(client.clone(), job).await {
                    Ok(job) if self.args.wait => {
                        waiting.spawn(wait(
                            client.clone(),
                            job,
                            self.params.clone(),
                            board.clone(),
                            poll.clone(),
                        ));
                    }
                    Ok(job) => outcome.add(job.accepted(), &board)?,
                    Err(bad) if bad.failure.code == EXIT_USAGE => return Err(bad.failure),
                    Err(bad) => outcome.add(Done::refused(*bad), &board)?,
                }
            }
        }
        while let Some(done) = waiting.join_next().await {
            outcome.add(done.map_err(|error| Failure::proving("waiting", error.to_string()))?, &board)?;
        }
        outcome.finish()
    }

    async fn submit(&self, client: Client, job: Result<Job, Box<BadJob>>) -> Result<Submitted, Box<BadJob>> {
        let job = job?;
        let (file, request, circuit) = (job.file.clone(), job.request, job.circuit.clone());
        self.send(client, job).await.map_err(|failure| {
            let failure = failure.in_file(&file.display().to_string());
            Box::new(BadJob { file, request, circuit, failure })
        })
    }

    async fn send(&self, mut client: Client, job: Job) -> Result<Submitted, Failure> {
        let (file, request) = (job.file.clone(), job.request);
        let (message, workload) = self.message(job)?;
        let answer = client.submit_proof(message).await.map_err(|status| refused("submit", &status))?;
        Ok(Submitted { file, request, answer: answer.into_inner(), workload })
    }

    /// Decoded here as well: what is wrong is said without the daemon, and the proof can be checked.
    fn message(&self, job: Job) -> Result<(SubmitProofRequest, Arc<dyn Workload>), Failure> {
        let workload = job.statement.clone().decode(Path::new(""))?;
        let mut message = job.statement.into_wire()?;
        message.request_id = if job.request_id.is_empty() {
            self.args.request_id.clone().unwrap_or_default()
        } else {
            job.request_id
        };
        message.priority = match self.args.priority.or(job.priority) {
            None => v1::Priority::Unspecified,
            Some(Priority::Low) => v1::Priority::Low,
            Some(Priority::Normal) => v1::Priority::Normal,
            Some(Priority::High) => v1::Priority::High,
            Some(Priority::Critical) => v1::Priority::Critical,
        }
        .into();
        message.deadline_ms = self.args.deadline.map_or(0, |limit| limit.as_millis() as u64);
        Ok((message, workload))
    }
}

impl Submitted {
    /// Without waiting.
    fn accepted(&self) -> Done {
        Done {
            file: self.file.clone(),
            request: self.request,
            job_id: Some(self.answer.job_id.clone()),
            circuit: Some(self.workload.circuit().to_string()),
            result: Ok(None),
            answer: Some(self.answer.clone()),
        }
    }
}

impl Done {
    fn refused(bad: BadJob) -> Self {
        let BadJob { file, request, circuit, failure } = bad;
        Self { file, request, job_id: None, circuit, result: Err(failure), answer: None }
    }

    /// One line for scripts; every line has every field.
    fn json(&self, waited: bool) -> Value {
        let answer = self.answer.as_ref();
        let mut line = json!({
            "file": self.file.display().to_string(),
            "request": self.request,
            "job_id": self.job_id,
            "circuit": self.circuit,
            "queue_position": answer.map(|answer| answer.queue_position),
            "attached": answer.map(|answer| answer.attached),
            "durable": answer.map(|answer| answer.durable),
        });
        if waited {
            let proved = self.result.as_ref().ok().and_then(Option::as_ref);
            let response = proved.map(|(response, _)| response);
            line["proof"] = response.map(|response| hex::encode(&response.proof)).into();
            line["verified_here"] = proved.map(|(_, checked)| checked.is_some()).into();
            line["timings_ms"] = response.map_or(Value::Null, super::jobs::timings);
            line["devices"] = response.map_or(Value::Null, |response| response.devices.clone().into());
        }
        if let Err(failure) = &self.result {
            line["error"] = failure.as_json();
        }
        line
    }

    fn text(&self) -> String {
        let job = self.job_id.as_deref().unwrap_or_default();
        match &self.result {
            Ok(None) => job.to_owned(),
            Ok(Some((response, checked))) => {
                let name = match self.request {
                    0 => self.file.display().to_string(),
                    request => format!("{}, request {request}", self.file.display()),
                };
                format!("{name}: {}", super::jobs::proved_text(response, *checked))
            }
            Err(_) => String::new(),
        }
    }
}

async fn wait(
    mut client: Client,
    job: Submitted,
    params: PathBuf,
    board: Arc<Board>,
    poll: Arc<Poll>,
) -> Done {
    let label = job.file.display().to_string();
    let mut done = job.accepted();
    let line = board.line(format!("{label} [{}]", job.request));
    line.step(&format!("job {}", job.answer.job_id));
    let waited = follow::wait(&mut client, &job.answer.job_id, None, &poll, &line).await;
    done.result = waited.and_then(follow::outcome).and_then(|response| {
        let checked = check(job.workload.as_ref(), &params, &response.proof)?;
        Ok(Some((response, checked)))
    });
    done.result = done.result.map_err(|failure| failure.in_file(&label));
    done
}

/// With our verifier and with Filecoin's own, if the circuit's verifying key is in `params`.
fn check(workload: &dyn Workload, params: &Path, proof: &[u8]) -> Result<Option<Checked>, Failure> {
    let Some(spec) = CircuitSpec::by_id(workload.circuit().as_str()) else { return Ok(None) };
    let path = params.join(spec.vk_file());
    if !files::is_there(&path).unwrap_or(false) {
        return Ok(None);
    }
    verify::verify(workload, &verify::read_key(&path, &spec)?, proof).map(Some)
}

struct Outcome<'a> {
    submit: &'a Submit<'a>,
    failures: Vec<Failure>,
    /// Of these, printed: the only job's failure is the command's, and printed as that.
    num_said: usize,
    /// By index of the request: the order of `--out`.
    proofs: BTreeMap<usize, Vec<u8>>,
    num_jobs: usize,
}

impl Outcome<'_> {
    fn add(&mut self, done: Done, board: &Board) -> Result<(), Failure> {
        let args = self.submit.args;
        let text = if args.json { done.json(args.wait).to_string() } else { done.text() };
        if let Err(failure) = &done.result {
            self.failures.push(failure.clone());
        }
        board.suspend(|| self.say());
        if let Ok(Some((response, _))) = done.result {
            self.proofs.insert(done.request, response.proof);
        }
        if text.is_empty() {
            return Ok(());
        }
        board.suspend(|| ui::out(&text))
    }

    /// Prints the failures that are not yet printed, unless there is only one job so far.
    fn say(&mut self) {
        if self.num_jobs > 1 {
            for failure in &self.failures[self.num_said..] {
                self.submit.ui.error(failure);
            }
            self.num_said = self.failures.len();
        }
    }

    fn finish(mut self) -> Result<(), Failure> {
        self.say();
        let written = match &self.submit.args.out {
            Some(path) if self.failures.is_empty() => {
                let proof: Vec<u8> = self.proofs.values().flatten().copied().collect();
                files::write_atomically(path, &proof)
            }
            _ => Ok(()),
        };
        Failure::of_parts(self.failures, self.num_jobs, "jobs failed")?;
        written
    }
}
