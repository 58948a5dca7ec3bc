//! `cuzk verify`: does a proof hold for a manifest's statements? By our verifier and by Filecoin's own.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use cuzk::circuits::manifest::Manifest;
use cuzk::circuits::Workload;
use cuzk::config::Config;
use cuzk::groth16::proof::PROOF_BYTES;
use cuzk::groth16::srs_file::read_vk;
use cuzk::groth16::{PreparedVerifyingKey, Proof, Scalar, VerifyingKey};
use cuzk::ids::PartitionIndex;
use serde_json::json;

use crate::failure::Failure;
use crate::options::ParamsOption;
use crate::{files, ui};

/// Verify a proof against a manifest, with our verifier and with Filecoin's own
#[derive(Args)]
pub struct VerifyArgs {
    /// The manifest.json that describes the statements
    #[arg(value_name = "MANIFEST")]
    manifest: PathBuf,
    /// The proof: 192 bytes a partition, all requests in order; or the same in hex
    #[arg(value_name = "PROOF")]
    proof: PathBuf,
    /// The proof is of this request of the manifest alone
    #[arg(long, value_name = "INDEX")]
    request: Option<usize>,
    #[command(flatten)]
    params: ParamsOption,
    /// One JSON object a line for each request
    #[arg(long)]
    json: bool,
}

/// How long each verifier took.
pub struct Verified {
    pub ours: Duration,
    pub filecoin: Duration,
}

pub fn run(args: &VerifyArgs, config: &Config) -> Result<(), Failure> {
    let dir = args.params.dir(config);
    let manifest = Manifest::read(&args.manifest)?;
    let proof = read_proof(&args.proof)?;
    let circuit = manifest.circuit_spec()?;
    let workloads = decode(&manifest, args, &dir)?;
    let parts = split(&args.proof, &proof, &workloads)?;
    let vk_path = dir.join(circuit.vk_file());
    let vk = read_key(&vk_path)?;
    for ((request, workload), part) in workloads.iter().zip(parts) {
        let result = verify(workload.as_ref(), &vk, part);
        report(args, *request, workload.as_ref(), &result);
        result.map_err(|failure| {
            explain(failure, &manifest, &vk_path).in_file(&args.proof.display().to_string())
        })?;
    }
    Ok(())
}

/// Checks every partition of the job with our verifier, then the whole job with the circuit's own library.
pub fn verify(workload: &dyn Workload, vk: &VerifyingKey, proof: &[u8]) -> Result<Verified, Failure> {
    let invalid = |what: String| Failure::proving(format!("request of {}", workload.circuit()), what);
    let proofs: Vec<Proof> = proof
        .chunks(PROOF_BYTES)
        .enumerate()
        .map(|(partition, bytes)| {
            Proof::from_bytes(bytes).map_err(|error| invalid(format!("partition {partition}: {error}")))
        })
        .collect::<Result<_, _>>()?;
    let inputs: Vec<Vec<Scalar>> = (0..workload.num_partitions())
        .map(|partition| workload.public_inputs(PartitionIndex(partition)))
        .collect::<Result<_, _>>()
        .map_err(|error| Failure::input("public inputs", error.to_string()))?;
    if let Some(inputs) = inputs.iter().find(|inputs| inputs.len() + 1 != vk.ic.len()) {
        return Err(Failure::input(
            "verifying key",
            format!(
                "verifying key is of another circuit: takes {} inputs, circuit has {}",
                vk.ic.len(),
                inputs.len() + 1
            ),
        ));
    }
    let start = Instant::now();
    let prepared = PreparedVerifyingKey::new(vk);
    let pairs: Vec<(&Proof, &[Scalar])> = proofs.iter().zip(inputs.iter().map(Vec::as_slice)).collect();
    if !prepared.verify_batch(&pairs) {
        return Err(invalid("proof does not verify".to_owned()));
    }
    let ours = start.elapsed();
    let start = Instant::now();
    workload
        .verify_job(vk, proof)
        .map_err(|error| invalid(format!("proof does not verify with Filecoin's verifier: {error}")))?;
    Ok(Verified { ours, filecoin: start.elapsed() })
}

/// The verifying key, with what to do if it is not there.
pub fn read_key(path: &Path) -> Result<VerifyingKey, Failure> {
    if !path.exists() {
        return Err(Failure::input(
            path.display().to_string(),
            format!(
                "{}: verifying key not found: name its folder with --params, or `cuzk params generate`",
                path.display()
            ),
        ));
    }
    Ok(read_vk(path)?)
}

fn read_proof(path: &Path) -> Result<Vec<u8>, Failure> {
    let bytes = files::read(path)?;
    // Hex, as `--json` prints it, is twice as long and has no byte of a compressed point's first.
    let text = std::str::from_utf8(&bytes).ok().map(str::trim);
    Ok(text.and_then(|text| hex::decode(text).ok()).unwrap_or(bytes))
}

type IndexedWorkload = (usize, std::sync::Arc<dyn Workload>);

fn decode(manifest: &Manifest, args: &VerifyArgs, params: &Path) -> Result<Vec<IndexedWorkload>, Failure> {
    let dir = args.manifest.parent().unwrap_or_else(|| Path::new(""));
    let all = 0..manifest.requests.len();
    let chosen: Vec<usize> = all.filter(|index| args.request.is_none_or(|only| only == *index)).collect();
    if chosen.is_empty() {
        return Err(Failure::usage(format!(
            "{}: has {} requests (from 0), no such one",
            args.manifest.display(),
            manifest.requests.len()
        )));
    }
    chosen
        .into_iter()
        .map(|index| {
            let workload = manifest.request(index, dir)?.decode(params)?;
            manifest.check_statement(index, workload.as_ref())?;
            Ok((index, workload))
        })
        .collect::<Result<_, Failure>>()
        .map_err(|failure| failure.in_file(&args.manifest.display().to_string()))
}

/// Each request's part of the proof.
fn split<'a>(path: &Path, proof: &'a [u8], workloads: &[IndexedWorkload]) -> Result<Vec<&'a [u8]>, Failure> {
    let sizes: Vec<usize> =
        workloads.iter().map(|(_, workload)| workload.num_partitions() as usize * PROOF_BYTES).collect();
    let needs: usize = sizes.iter().sum();
    if proof.len() != needs {
        let what = format!(
            "{}: needs {needs} B ({} requests, {PROOF_BYTES} B a partition), has {} B",
            path.display(),
            workloads.len(),
            proof.len()
        );
        return Err(Failure::input(path.display().to_string(), what));
    }
    let mut rest = proof;
    let cut = |size: usize| {
        let (part, others) = rest.split_at(size);
        rest = others;
        part
    };
    Ok(sizes.into_iter().map(cut).collect())
}

fn report(args: &VerifyArgs, request: usize, workload: &dyn Workload, result: &Result<Verified, Failure>) {
    let (circuit, partitions) = (workload.circuit().as_str(), workload.num_partitions());
    if args.json {
        let line = json!({
            "file": args.manifest.display().to_string(),
            "request": request,
            "circuit": circuit,
            "partitions": partitions,
            "verified": result.is_ok(),
        });
        ui::out(&line.to_string());
    } else if let Ok(verified) = result {
        ui::out(&format!(
            "request {request}: {circuit}, {}: verified by cuzk ({}) and by Filecoin's verifier ({})",
            ui::count(u64::from(partitions), "partition"),
            ui::duration(verified.ours),
            ui::duration(verified.filecoin)
        ));
    }
}

/// A key of other parameters than the manifest's is the usual reason for a good proof not to verify.
fn explain(failure: Failure, manifest: &Manifest, vk_path: &Path) -> Failure {
    let Some(groth16) = &manifest.groth16 else { return failure };
    let is_other =
        files::sha256(vk_path, &|_, _| ()).is_ok_and(|sha256| sha256 != hex::encode(groth16.vk_sha256.0));
    if !is_other {
        return failure;
    }
    let message = format!(
        "{} (the verifying key {} is not the one the manifest names: its proof is of other parameters)",
        failure.message,
        vk_path.display()
    );
    Failure { message, ..failure }
}
