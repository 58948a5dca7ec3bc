//! `cuzk inspect`: what is this file? (`cuzk::inspect` tells; here it is shown.)

use std::path::{Path, PathBuf};

use clap::Args;
use cuzk::inspect::Finding;
use serde_json::{json, Map, Value};

use crate::failure::Failure;
use crate::ui::{self, Ui};
use crate::{files, test_params};

/// Say what a file is: C1, vanilla proof, parameter file, verifying key, proof, manifest or request
#[derive(Args)]
pub struct InspectArgs {
    /// Files to look at
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// One JSON object a line for each file
    #[arg(long)]
    json: bool,
}

/// Every file is looked at, whatever became of those before it.
pub fn run(args: &InspectArgs, ui: Ui) -> Result<(), Failure> {
    let num_files = args.files.len();
    let mut failures = Vec::new();
    let mut gap = "";
    for file in &args.files {
        let found = inspect(file);
        if args.json {
            ui::out(&as_json(file, &found).to_string())?;
        } else if let Ok(finding) = &found {
            ui::out(&format!("{gap}{}", as_text(file, finding)))?;
            gap = "\n";
        }
        if let Err(failure) = found {
            // The only file's failure is the command's, and printed as that.
            if num_files > 1 {
                ui.error(&failure);
            }
            failures.push(failure);
        }
    }
    Failure::of_parts(failures, num_files, "files cannot be told")
}

/// What the file is, and whether it is one of the known test parameters.
fn inspect(path: &Path) -> Result<Finding, Failure> {
    let finding = cuzk::inspect::inspect(path)?;
    let bytes = std::fs::metadata(path).map(|metadata| metadata.len()).ok();
    let sha256 = files::sha256(path, &|_, _| ())?;
    let known = test_params::by_sha256(&sha256).map(|known| known.circuit);
    Ok(finding.with("test parameters of", known).with("bytes", bytes).with("sha256", sha256))
}

/// One line for scripts. A file that cannot be told has `kind` null, and `error`.
fn as_json(path: &Path, found: &Result<Finding, Failure>) -> Value {
    let file = path.display().to_string();
    let finding = match found {
        Ok(finding) => finding,
        Err(failure) => return json!({ "file": file, "kind": null, "error": failure.as_json() }),
    };
    let mut object = Map::new();
    object.insert("file".to_owned(), file.into());
    object.insert("kind".to_owned(), finding.kind.into());
    for (name, value) in &finding.facts {
        object.insert(name.replace(' ', "_"), value.clone());
    }
    Value::Object(object)
}

fn as_text(path: &Path, finding: &Finding) -> String {
    let show = |name: &str, value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => match number.as_u64() {
            Some(bytes) if bytes >= 1024 && (name.contains("bytes") || name == "sector size") => {
                format!("{} ({})", ui::grouped(bytes), ui::bytes(bytes))
            }
            _ => number.to_string(),
        },
        other => other.to_string(),
    };
    let rows: Vec<Vec<String>> =
        finding.facts.iter().map(|(name, value)| vec![format!("  {name}"), show(name, value)]).collect();
    format!("{}: {}\n{}", path.display(), finding.kind, ui::columns(&rows))
}
