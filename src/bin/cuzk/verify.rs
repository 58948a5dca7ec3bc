//! `cuzk verify`: does a proof hold for a manifest's statements? By our verifier and by Filecoin's own.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use cuzk::circuits::check::{check_proof, CheckError, Checked};
use cuzk::circuits::manifest::Manifest;
use cuzk::circuits::request::json_text;
use cuzk::circuits::{CircuitSpec, Workload};
use cuzk::config::Config;
use cuzk::groth16::proof::PROOF_BYTES;
use cuzk::groth16::srs_file::read_vk;
use cuzk::groth16::VerifyingKey;
use serde_json::{json, Value};

use crate::failure::Failure;
use crate::files;
use crate::options::ParamsOption;
use crate::ui::{self, Ui};

/// Verify a proof against a manifest, with our verifier and with Filecoin's own
#[derive(Args)]
pub struct VerifyArgs {
    /// The manifest.json that describes the statements
    #[arg(value_name = "MANIFEST")]
    manifest: PathBuf,
    /// The proof: 192 bytes a partition, all requests in order; or the same in hex, in lines or with 0x
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

/// Every request is verified, whatever became of those before it.
pub fn run(args: &VerifyArgs, config: &Config, ui: Ui) -> Result<(), Failure> {
    let dir = args.params.dir(config);
    let inputs = match Inputs::read(args, &dir) {
        Ok(inputs) => inputs,
        Err(failure) => {
            if args.json {
                ui::out(&as_json(args, args.request, None, Some(&failure)).to_string())?;
            }
            return Err(failure);
        }
    };
    let mut failures = Vec::new();
    for (part, statement) in inputs.parts().zip(&inputs.statements) {
        let result = verify(statement.workload.as_ref(), &inputs.vk, part)
            .map_err(|failure| inputs.explain(failure).in_file(&args.proof.display().to_string()));
        report(args, statement, &result)?;
        if let Err(failure) = result {
            // The only request's failure is the command's, and printed as that.
            if inputs.statements.len() > 1 {
                ui.error(&failure);
            }
            failures.push(failure);
        }
    }
    Failure::of_parts(failures, inputs.statements.len(), "requests failed")
}

/// What is verified, all of it read.
struct Inputs {
    manifest: Manifest,
    statements: Vec<Statement>,
    /// Of all statements, in order.
    proof: Vec<u8>,
    vk: VerifyingKey,
    vk_path: PathBuf,
}

/// A request of the manifest.
struct Statement {
    request: usize,
    workload: Arc<dyn Workload>,
}

impl Statement {
    fn proof_bytes(&self) -> usize {
        self.workload.num_partitions() as usize * PROOF_BYTES
    }
}

impl Inputs {
    fn read(args: &VerifyArgs, params: &Path) -> Result<Self, Failure> {
        let manifest = Manifest::read(&args.manifest)?;
        let proof = read_proof(&args.proof)?;
        let circuit = manifest.circuit_spec()?;
        let statements = decode(&manifest, args, params)?;
        check_length(&args.proof, &proof, &statements)?;
        let vk_path = params.join(circuit.vk_file());
        let vk = read_key(&vk_path, &circuit)?;
        Ok(Self { manifest, statements, proof, vk, vk_path })
    }

    /// Each statement's part of the proof.
    fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.proof.as_slice();
        self.statements.iter().map(move |statement| {
            let (part, others) = rest.split_at(statement.proof_bytes());
            rest = others;
            part
        })
    }

    /// A key of other parameters than the manifest's is the usual reason for a good proof not to verify.
    fn explain(&self, failure: Failure) -> Failure {
        let Some(groth16) = &self.manifest.groth16 else { return failure };
        let named = hex::encode(groth16.vk_sha256.0);
        let is_other = files::sha256(&self.vk_path, &|_, _| ()).is_ok_and(|sha256| sha256 != named);
        if !is_other {
            return failure;
        }
        let message = format!(
            "{} (the verifying key {} is not the one the manifest names: its proof is of other parameters)",
            failure.message,
            self.vk_path.display()
        );
        Failure { message, ..failure }
    }
}

/// [`check_proof`], its errors as a command's.
pub fn verify(workload: &dyn Workload, vk: &VerifyingKey, proof: &[u8]) -> Result<Checked, Failure> {
    check_proof(workload, vk, proof).map_err(|error| match error {
        CheckError::Invalid(_) | CheckError::Library(_) => {
            Failure::refuted(format!("request of {}", workload.circuit()), error.to_string())
        }
        CheckError::Inputs(error) => Failure::input("public inputs", error.to_string()),
        CheckError::OtherCircuit { .. } => Failure::input("verifying key", error.to_string()),
    })
}

/// The verifying key of a circuit, with what to do if it is not there.
pub fn read_key(path: &Path, circuit: &CircuitSpec) -> Result<VerifyingKey, Failure> {
    if !files::is_there(path)? {
        let advice = circuit.how_to_get_params();
        return Err(Failure::input(
            path.display().to_string(),
            format!(
                "{}: verifying key not found: {advice}, or name its folder with --params",
                path.display()
            ),
        ));
    }
    Ok(read_vk(path)?)
}

fn read_proof(path: &Path) -> Result<Vec<u8>, Failure> {
    let bytes = files::read(path)?;
    match hex_digits(&bytes) {
        Some(digits) => hex::decode(digits).map_err(|error| {
            Failure::input(path.display().to_string(), format!("{}: hex: {error}", path.display()))
        }),
        None => Ok(bytes),
    }
}

/// The digits of a proof written in hex, as `--json` prints it or as people pass it on: with 0x before it, in lines,
/// with a byte order mark. `None`: it is in bytes, of which the first, of a compressed point, is no character.
fn hex_digits(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(json_text(bytes)).ok()?.trim();
    let text = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or(text);
    let digits: String = text.split_whitespace().collect();
    (!digits.is_empty() && digits.chars().all(|digit| digit.is_ascii_hexdigit())).then_some(digits)
}

fn decode(manifest: &Manifest, args: &VerifyArgs, params: &Path) -> Result<Vec<Statement>, Failure> {
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
        .map(|request| {
            let dir = manifest.input_folder(request, &args.manifest);
            let workload = manifest.request(request, &dir)?.decode(params)?;
            manifest.check_statement(request, workload.as_ref())?;
            Ok(Statement { request, workload })
        })
        .collect::<Result<_, Failure>>()
        .map_err(|failure| failure.in_file(&args.manifest.display().to_string()))
}

fn check_length(path: &Path, proof: &[u8], statements: &[Statement]) -> Result<(), Failure> {
    let needs: usize = statements.iter().map(Statement::proof_bytes).sum();
    if proof.len() == needs {
        return Ok(());
    }
    let what = format!(
        "{}: needs {needs} B ({} requests, {PROOF_BYTES} B a partition), has {} B",
        path.display(),
        statements.len(),
        proof.len()
    );
    Err(Failure::input(path.display().to_string(), what))
}

fn report(
    args: &VerifyArgs,
    statement: &Statement,
    result: &Result<Checked, Failure>,
) -> Result<(), Failure> {
    let Statement { request, workload } = statement;
    if args.json {
        let line = as_json(args, Some(*request), Some(workload.as_ref()), result.as_ref().err());
        return ui::out(&line.to_string());
    }
    let Ok(verified) = result else { return Ok(()) };
    ui::out(&format!(
        "request {request}: {}, {}: verified by cuzk ({}) and by Filecoin's verifier ({})",
        workload.circuit(),
        ui::count(u64::from(workload.num_partitions()), "partition"),
        ui::duration(verified.ours),
        ui::duration(verified.library)
    ))
}

/// One line for scripts. Every line has every field but `error`, which is there if the proof does not hold or nothing
/// could be said of it; what is not known then is null.
fn as_json(
    args: &VerifyArgs,
    request: Option<usize>,
    workload: Option<&dyn Workload>,
    failure: Option<&Failure>,
) -> Value {
    let mut line = json!({
        "file": args.manifest.display().to_string(),
        "request": request,
        "circuit": workload.map(|workload| workload.circuit().as_str()),
        "partitions": workload.map(|workload| workload.num_partitions()),
        "verified": failure.is_none(),
    });
    if let Some(failure) = failure {
        line["error"] = failure.as_json();
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_is_told_from_bytes_however_it_is_written() {
        let digits = |bytes: &[u8]| hex_digits(bytes);
        for text in ["8fA0", "0x8fA0", " 8f\r\n A0\n", "0X8f\tA0", "\u{feff}0x8fA0\n"] {
            assert_eq!(digits(text.as_bytes()).as_deref(), Some("8fA0"), "{text:?}");
        }
        for bytes in [&b""[..], b"  \n", b"0x", b"8f x0", b"\x8f\xa0", b"8f0x8f"] {
            assert_eq!(digits(bytes), None, "{bytes:?}");
        }
    }
}
