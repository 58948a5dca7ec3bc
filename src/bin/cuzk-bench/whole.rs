//! `cuzk-bench whole`: whole jobs of a Filecoin circuit on one GPU, through the engine: from the request's bytes to proofs
//! that our verifier and Filecoin's have accepted. With `--in-memory` the key is made on that GPU and never is a file.

mod beside;
mod key;
mod report;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;
use cuzk::actors::gpu_device::{DeviceConfig, FactorySpawner};
use cuzk::backend::BackendFactory;
use cuzk::circuits::check::check_proof;
use cuzk::circuits::synthetic::SyntheticOptions;
use cuzk::circuits::{CircuitSpec, FilecoinRequest, ProofKind, SrsSource, Workload};
use cuzk::config::MemoryBudget;
use cuzk::cuda::backend::select_devices;
use cuzk::engine::{DeviceSpec, Engine, EngineConfig, Preload};
use cuzk::groth16::srs_file::read_vk;
use cuzk::groth16::{R1csShape, VerifyingKey};
use cuzk::messages::events::{Event, EventConsumer, EventSink};
use cuzk::messages::job::{Payload, ProofRequest};
use cuzk::messages::srs::{CircuitLoaded, Residence};
use cuzk::policy::shared_pass::parking_lanes;

use self::key::{KeyInMemory, Keyed};
use self::report::{seconds, Beside, Proof, Report, Run, REQUEST_PREFIX};
use crate::Failure;

/// Prove whole jobs on the first GPU and say where the time goes
#[derive(Args)]
pub struct WholeArgs {
    /// Such as porep-32g, porep-2k, winning-32g
    #[arg(value_name = "CIRCUIT", value_parser = parse_circuit)]
    circuit: CircuitSpec,
    /// Make the key on the GPU and keep it in memory; otherwise its file is read
    #[arg(long)]
    in_memory: bool,
    /// Folder of the parameter files
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/var/tmp/filecoin-proof-parameters",
        conflicts_with = "in_memory"
    )]
    params: PathBuf,
    /// Prove by the folded key: the quotient by its values, C in the points
    #[arg(long, requires = "in_memory")]
    folded: bool,
    /// The circuit's matrices, as `cuzk-bench shape --out` stores them [default: recorded anew]
    #[arg(long, value_name = "FILE", requires = "in_memory")]
    shape: Option<PathBuf>,
    /// Jobs, one after another
    #[arg(long, value_name = "N", default_value_t = 2)]
    proofs: u32,
    /// Jobs in the engine at a time: more than one for what it sustains
    #[arg(long, value_name = "N", default_value_t = 1)]
    at_once: u32,
    /// PoRep: partitions of a job [default: the network's]
    #[arg(long, value_name = "N")]
    partitions: Option<u32>,
    /// Partitions on the device at a time
    #[arg(long, value_name = "N", default_value_t = 2)]
    lanes: u32,
    /// Device memory to use at most, such as 20GiB; several, by commas, are measured one after another with the same key
    #[arg(long, value_name = "SIZE", value_delimiter = ',', default_value = "auto")]
    vram: Vec<MemoryBudget>,
    /// Partitions that may share a pass over what is streamed; 1: none do [default: the engine's]
    #[arg(long, value_name = "N")]
    batch: Option<u32>,
    /// Threads for witnesses and verification [default: one per core]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Another circuit, such as winning-32g, whose jobs come one by one, alone at first and then while those of CIRCUIT are proved: how
    /// long each takes. As urgent as their kind is
    #[arg(long, value_name = "CIRCUIT", requires = "in_memory", value_parser = parse_circuit)]
    beside: Option<CircuitSpec>,
    /// Of the synthetic sectors
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write what the engine did, for `cuzk-bench timeline`
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,
    /// One JSON document instead of text
    #[arg(long)]
    json: bool,
}

fn parse_circuit(text: &str) -> Result<CircuitSpec, String> {
    CircuitSpec::by_id(text).ok_or_else(|| format!("{text:?} is no circuit; `cuzk circuits` lists them"))
}

/// Keeps every event.
#[derive(Clone, Default)]
struct Events(Arc<Mutex<Vec<Event>>>);

impl EventConsumer for Events {
    fn consume(&self, event: Event) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }
}

impl Events {
    fn num(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn from(&self, first: usize) -> Vec<Event> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)[first..].to_vec()
    }
}

/// What is proved, and by which key.
struct Subject {
    requests: Vec<FilecoinRequest>,
    shape: Option<Arc<R1csShape>>,
    srs: Option<KeyInMemory>,
    vk: VerifyingKey,
    params: PathBuf,
}

impl Subject {
    /// With a key that is made on the first GPU.
    fn with_key(
        spec: &CircuitSpec,
        shape: R1csShape,
        requests: Vec<FilecoinRequest>,
        folded: bool,
    ) -> Result<Self, Failure> {
        let key = KeyInMemory::make(spec, &shape, folded)?;
        let (vk, shape) = (key.srs.vk.clone(), Some(Arc::new(shape)));
        Ok(Self { requests, shape, srs: Some(key), vk, params: PathBuf::new() })
    }

    /// From the request's bytes to a job.
    fn decode(&self, request: &FilecoinRequest) -> Result<Arc<dyn Workload>, Failure> {
        let workload = request.clone().decode(&self.params).map_err(Failure::failed)?;
        Ok(match (&self.srs, &self.shape) {
            (Some(key), Some(shape)) => {
                Arc::new(Keyed::new(workload, SrsSource::Memory(Arc::clone(&key.srs)), Arc::clone(shape)))
            }
            _ => workload,
        })
    }
}

pub fn run(args: &WholeArgs) -> Result<(), Failure> {
    let mut report = Report::new(&args.circuit.to_string());
    let subject = prepare(args, &mut report)?;
    let beside = args.beside.as_ref().map(|spec| prepare_beside(args, spec)).transpose()?;
    let events = Events::default();
    let (sink, log) = match &args.events {
        Some(path) => {
            let (sink, log) = cuzk::telemetry::event_log::EventLog::create(path).map_err(Failure::usage)?;
            (sink.with(events.clone()), Some(log))
        }
        None => (EventSink::to(events.clone()), None),
    };
    let mut outcome = Ok(());
    for &budget in &args.vram {
        let engine = start_engine(args, budget, sink.clone())?;
        let measured = measure(args, &engine, &subject, beside.as_ref(), &events, Run::new(budget));
        outcome = measured.map(|run| report.runs.push(run));
        engine.shutdown_blocking(Duration::ZERO);
        if outcome.is_err() {
            break;
        }
    }
    drop((sink, log));
    // What was measured before a budget that fails is worth having.
    report.print(args.json)?;
    outcome
}

fn prepare(args: &WholeArgs, report: &mut Report) -> Result<Subject, Failure> {
    let spec = &args.circuit;
    let (requests, made) = timed(|| make_requests(args, spec, args.proofs))?;
    report.note("synthetic sectors", made);
    if !args.in_memory {
        let vk = read_vk(&args.params.join(spec.vk_file())).map_err(Failure::usage)?;
        return Ok(Subject { requests, shape: None, srs: None, vk, params: args.params.clone() });
    }
    let (shape, took) = timed(|| match &args.shape {
        Some(path) => R1csShape::load(path).map_err(Failure::usage),
        None => spec.record_shape().map_err(Failure::failed),
    })?;
    report.note("the constraints, recorded or read", took);
    let (subject, made) = timed(|| Subject::with_key(spec, shape, requests, args.folded))?;
    report.note("making the key on the GPU", made);
    report.key_bytes = subject.srs.as_ref().map_or(0, |key| key.srs.num_bytes());
    Ok(subject)
}

/// What comes beside: some sectors, over and over.
fn prepare_beside(args: &WholeArgs, spec: &CircuitSpec) -> Result<Subject, Failure> {
    let requests = make_requests(args, spec, beside::NUM_SECTORS)?;
    let shape = spec.record_shape().map_err(Failure::failed)?;
    Subject::with_key(spec, shape, requests, args.folded)
}

/// One for each proof, of another sector each.
fn make_requests(
    args: &WholeArgs,
    spec: &CircuitSpec,
    num_proofs: u32,
) -> Result<Vec<FilecoinRequest>, Failure> {
    let is_porep = spec.kind == ProofKind::PorepSealCommit;
    let options = |proof: u32| SyntheticOptions {
        partitions: args.partitions.filter(|_| is_porep),
        challenges: is_porep.then(|| spec.num_challenges()),
        ..SyntheticOptions::new(spec.kind, spec.sector_size, args.seed + u64::from(proof))
    };
    (0..num_proofs.max(1))
        .map(|proof| options(proof).generate().map(|job| job.request).map_err(Failure::usage))
        .collect()
}

fn start_engine(args: &WholeArgs, budget: MemoryBudget, events: EventSink) -> Result<Engine, Failure> {
    let defaults = EngineConfig::default();
    let mut batches = defaults.device.batches;
    batches.max_partitions = args.batch.unwrap_or(batches.max_partitions);
    let device = select_devices(&[], args.lanes).map_err(Failure::failed)?.into_iter().next();
    let device = device.ok_or_else(|| Failure::failed("no GPU is visible"))?;
    let device = device.with_parking_lanes(parking_lanes(batches));
    eprintln!("on {}, memory budget {budget}", device.device_id());
    let engine = Engine::start(EngineConfig {
        device: DeviceConfig { budget_bytes: budget.bytes(), batches, ..defaults.device },
        devices: vec![DeviceSpec::Spawner(FactorySpawner::boxed(device))],
        params_dir: args.params.clone(),
        synthesis_threads: args.threads.unwrap_or(defaults.synthesis_threads),
        events,
        ..defaults
    });
    let engine = engine.map_err(Failure::failed)?;
    engine.wait_ready_blocking().map_err(Failure::failed)?;
    Ok(engine)
}

fn measure(
    args: &WholeArgs,
    engine: &Engine,
    subject: &Subject,
    beside: Option<&Subject>,
    events: &Events,
    mut run: Run,
) -> Result<Run, Failure> {
    let (loaded, elapsed) = timed(|| load(engine, subject))?;
    run.key_to_device(elapsed);
    run.resident_bytes = loaded.devices.iter().map(|(_, residence)| residence.num_bytes()).sum();
    run.circuit_bytes = loaded.host_bytes;
    let mut alone = Vec::new();
    if let Some(other) = beside {
        load(engine, other)?;
        alone = beside::prove_some(engine, other)?;
    }
    run.begin_memory();
    let begun = Instant::now();
    let mut rounds = || {
        for (round, requests) in subject.requests.chunks(args.at_once.max(1) as usize).enumerate() {
            let first_event = events.num();
            let proofs = prove(engine, subject, requests, &format!("{REQUEST_PREFIX}{round}"))?;
            for proof in &proofs {
                eprintln!(
                    "{} partitions proved and verified in {}",
                    proof.num_partitions,
                    seconds(proof.wall)
                );
            }
            run.add(proofs, &events.from(first_event));
        }
        Ok(())
    };
    match beside {
        None => rounds()?,
        Some(other) => {
            let under_load = beside::prove_during(engine, other, rounds)?;
            run.beside = args.beside.as_ref().map(|spec| Beside::new(spec.to_string(), alone, under_load));
        }
    }
    run.end(begun.elapsed());
    Ok(run)
}

/// The key to the device, where it stays.
fn load(engine: &Engine, subject: &Subject) -> Result<CircuitLoaded, Failure> {
    let preload =
        Preload { pinned: true, on_devices: true, ..Preload::new(subject.decode(&subject.requests[0])?) };
    let loaded = engine.preload_blocking(preload).map_err(Failure::failed)?;
    for (device, residence) in &loaded.devices {
        eprintln!("{device}: {residence:?}");
        if let Residence::Failed(error) = residence {
            return Err(Failure::failed(error));
        }
    }
    Ok(loaded)
}

/// Jobs side by side, each from its request to the engine's verified proof; then each is checked once more.
fn prove(
    engine: &Engine,
    subject: &Subject,
    requests: &[FilecoinRequest],
    name: &str,
) -> Result<Vec<Proof>, Failure> {
    let begun = Instant::now();
    let mut jobs = Vec::new();
    for (index, request) in requests.iter().enumerate() {
        let workload = subject.decode(request)?;
        let decoded = begun.elapsed();
        let mut job = ProofRequest::new(Payload::Workload(Arc::clone(&workload)));
        job.request_id = format!("{name}-{index}");
        jobs.push((workload, decoded, engine.submit_blocking(job).map_err(Failure::failed)?));
    }
    let mut proofs = Vec::new();
    for (workload, decoded, job) in jobs {
        let outcome = job.wait_blocking().map_err(Failure::failed)?;
        proofs.push((workload, Proof::new(begun.elapsed(), decoded, &outcome), outcome));
    }
    proofs
        .into_iter()
        .map(|(workload, mut proof, outcome)| {
            let checked = check_proof(workload.as_ref(), &subject.vk, &outcome.proof);
            let checked = checked.map_err(Failure::failed)?;
            proof.checked_again(checked.ours, checked.library);
            Ok(proof)
        })
        .collect()
}

fn timed<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<(T, Duration), Failure> {
    let start = Instant::now();
    let made = work()?;
    Ok((made, start.elapsed()))
}
