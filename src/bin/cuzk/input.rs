//! What a FILE holds: one or more jobs, each with all its inputs read.

use std::path::{Path, PathBuf};

use cuzk::circuits::manifest::Manifest;
use cuzk::circuits::request::{input_folder, json_text, RequestFile, RequestPriority};
use cuzk::circuits::{FilecoinRequest, ProofKind};
use cuzk::groth16::Blinding;
use cuzk::messages::job::Priority;
use serde::de::IgnoredAny;
use serde::Deserialize;

use crate::failure::Failure;
use crate::files;

/// What a C1 does not say of itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct C1Options {
    pub miner: Option<u64>,
    pub sector: Option<u64>,
}

/// One job of a file.
pub struct Job {
    /// As it was named on the command line.
    pub file: PathBuf,
    /// Its index in the manifest; 0 for other files.
    pub request: usize,
    /// The circuit, where the file says it before it is decoded.
    pub circuit: Option<String>,
    pub request_id: String,
    pub priority: Option<Priority>,
    pub statement: FilecoinRequest,
    pub recorded: Recorded,
}

/// What a manifest records of a job's proof. Its blinding values are of use for replays only.
#[derive(Default)]
pub struct Recorded {
    pub blindings: Option<Vec<Blinding>>,
    pub proof: Option<Vec<u8>>,
}

/// A job whose inputs cannot be read.
pub struct BadJob {
    pub file: PathBuf,
    pub request: usize,
    pub circuit: Option<String>,
    pub failure: Failure,
}

/// The jobs of `path`, each read on its own: one that cannot be read leaves the others to be proved.
pub fn read_jobs(path: &Path, c1: C1Options) -> Vec<Result<Job, Box<BadJob>>> {
    match recognise(path) {
        Err(failure) => vec![Err(bad_job(path, 0, None, failure))],
        Ok(Form::Manifest(manifest)) => manifest_jobs(path, &manifest),
        Ok(Form::Request(file)) => {
            vec![request_job(path, *file).map_err(|failure| bad_job(path, 0, None, failure))]
        }
        Ok(Form::C1 { bytes, is_wrapped }) => {
            vec![c1_job(path, bytes, is_wrapped, c1).map_err(|failure| bad_job(path, 0, None, failure))]
        }
    }
}

fn bad_job(path: &Path, request: usize, circuit: Option<String>, failure: Failure) -> Box<BadJob> {
    let failure = failure.in_file(&path.display().to_string());
    Box::new(BadJob { file: path.to_owned(), request, circuit, failure })
}

enum Form {
    Manifest(Box<Manifest>),
    Request(Box<RequestFile>),
    C1 { bytes: Vec<u8>, is_wrapped: bool },
}

/// The keys by which the forms are told apart.
#[derive(Deserialize)]
struct Keys {
    #[serde(rename = "Phase1Out")]
    phase1_out: Option<IgnoredAny>,
    requests: Option<IgnoredAny>,
    proof_kind: Option<IgnoredAny>,
    replica_id: Option<IgnoredAny>,
    vanilla_proofs: Option<IgnoredAny>,
}

fn recognise(path: &Path) -> Result<Form, Failure> {
    let bytes = files::read(path)?;
    let at = path.display().to_string();
    let hint = "needs a manifest, a C1 or a request file (`cuzk inspect` says what a file is)";
    let keys: Keys = serde_json::from_slice(json_text(&bytes))
        .map_err(|error| Failure::input(&at, format!("{at}: is no JSON, or cut: {error}; {hint}")))?;
    if keys.requests.is_some() {
        return Ok(Form::Manifest(Box::new(Manifest::from_json(&bytes)?)));
    }
    if keys.phase1_out.is_some() {
        return Ok(Form::C1 { bytes, is_wrapped: true });
    }
    if keys.proof_kind.is_some() {
        return Ok(Form::Request(Box::new(RequestFile::from_json(&bytes, path)?)));
    }
    if keys.vanilla_proofs.is_some() && keys.replica_id.is_some() {
        return Ok(Form::C1 { bytes, is_wrapped: false });
    }
    Err(Failure::input(&at, format!("{at}: is JSON of another kind; {hint}")))
}

fn manifest_jobs(path: &Path, manifest: &Manifest) -> Vec<Result<Job, Box<BadJob>>> {
    let circuit = manifest.circuit_spec().ok().map(|spec| spec.to_string());
    if manifest.requests.is_empty() {
        let failure = Failure::input("requests", "requests: is empty, nothing to prove");
        return vec![Err(bad_job(path, 0, circuit, failure))];
    }
    let job = |request: usize| {
        let read = || -> Result<Job, Failure> {
            let statement = manifest.request(request, &manifest.input_folder(request, path))?;
            // Decoded once more by the engine; here, so that the manifest is not believed over its input files.
            let workload = statement.clone().decode(Path::new(""))?;
            manifest.check_statement(request, workload.as_ref())?;
            Ok(Job {
                file: path.to_owned(),
                request,
                circuit: circuit.clone(),
                request_id: String::new(),
                priority: None,
                statement,
                recorded: Recorded {
                    blindings: manifest.blindings(request)?,
                    proof: manifest.proof(request)?.map(<[u8]>::to_vec),
                },
            })
        };
        read().map_err(|failure| bad_job(path, request, circuit.clone(), failure))
    };
    (0..manifest.requests.len()).map(job).collect()
}

fn request_job(path: &Path, file: RequestFile) -> Result<Job, Failure> {
    let folder = input_folder(path, &file.vanilla);
    Ok(Job {
        file: path.to_owned(),
        request: 0,
        circuit: None,
        request_id: file.request_id.clone(),
        priority: match file.priority {
            RequestPriority::Unspecified => None,
            RequestPriority::Low => Some(Priority::Low),
            RequestPriority::Normal => Some(Priority::Normal),
            RequestPriority::High => Some(Priority::High),
            RequestPriority::Critical => Some(Priority::Critical),
        },
        statement: file.into_request(&folder)?,
        recorded: Recorded::default(),
    })
}

fn c1_job(path: &Path, bytes: Vec<u8>, is_wrapped: bool, options: C1Options) -> Result<Job, Failure> {
    let miner_id = options.miner.ok_or_else(|| {
        Failure::usage(format!("{}: a C1 does not say whose it is: add --miner ID", path.display()))
    })?;
    if !is_wrapped && options.sector.is_none() {
        return Err(Failure::usage(format!(
            "{}: a bare C1 does not say which sector it is of: add --sector NUMBER",
            path.display()
        )));
    }
    let statement = FilecoinRequest {
        proof_kind: Some(ProofKind::PorepSealCommit),
        vanilla_proof: bytes,
        miner_id,
        sector_number: options.sector.unwrap_or(0),
        ..FilecoinRequest::default()
    };
    Ok(Job {
        file: path.to_owned(),
        request: 0,
        circuit: None,
        request_id: String::new(),
        priority: None,
        statement,
        recorded: Recorded::default(),
    })
}

/// `1000`, `f01000` or `t01000`.
pub fn parse_miner(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix("f0").or_else(|| text.strip_prefix("t0")).unwrap_or(text);
    digits.parse().map_err(|_| format!("`{text}` is no miner id: write a number such as 1000, or f01000"))
}
