//! `cuzk inspect`: what is this file? Nothing is proved or verified; every format is told by its content.

mod binary;
mod json;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;
use cuzk::circuits::request::json_text;
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

/// What a file turned out to be: its kind, and facts in the order in which they are shown.
pub struct Finding {
    kind: &'static str,
    facts: Vec<(&'static str, Value)>,
}

impl Finding {
    pub fn new(kind: &'static str) -> Self {
        Self { kind, facts: Vec::new() }
    }

    /// Adds a fact; one without a value is left out.
    pub fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        let value = value.into();
        if !value.is_null() {
            self.facts.push((name, value));
        }
        self
    }
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

/// The bytes by which a format is told; larger files are not read as a whole for that.
const HEAD_BYTES: u64 = 4096;

fn inspect(path: &Path) -> Result<Finding, Failure> {
    let unreadable = |error: std::io::Error| {
        Failure::input(path.display().to_string(), format!("{}: {error}", path.display()))
    };
    // Asked before it is opened: opening a pipe waits for its other end.
    let metadata = std::fs::metadata(path).map_err(unreadable)?;
    if metadata.is_dir() {
        let what = format!("{}: is a folder; name a file, such as the manifest.json in it", path.display());
        return Err(Failure::input(path.display().to_string(), what));
    }
    if !metadata.is_file() {
        let what = format!("{}: is no regular file", path.display());
        return Err(Failure::input(path.display().to_string(), what));
    }
    let file = File::open(path).map_err(unreadable)?;
    let mut head = Vec::new();
    file.take(HEAD_BYTES).read_to_end(&mut head).map_err(unreadable)?;
    if head.is_empty() {
        return Err(Failure::input(
            path.display().to_string(),
            format!("{}: is empty (0 B)", path.display()),
        ));
    }
    let found =
        if is_json(&head) { json::recognise(path)? } else { binary::recognise(path, &head, metadata.len())? };
    let finding = found.ok_or_else(|| {
        Failure::input(
            path.display().to_string(),
            format!(
                "{}: not recognised: neither a C1, vanilla proof, parameter file, verifying key, proof, manifest nor \
                 request; it may be cut or damaged",
                path.display()
            ),
        )
    })?;
    let sha256 = files::sha256(path, &|_, _| ())?;
    let known = test_params::by_sha256(&sha256).map(|known| known.circuit);
    Ok(finding.with("test parameters of", known).with("bytes", metadata.len()).with("sha256", sha256))
}

/// Whether a file with this head is JSON, whole or damaged. A sector's number may make a vanilla proof begin with a
/// bracket too, but then zeros follow within its first bytes, and JSON has no control characters but white space.
fn is_json(head: &[u8]) -> bool {
    let text = json_text(head);
    let is_text = text.iter().take(8).all(|byte| *byte >= b' ' || byte.is_ascii_whitespace());
    is_text && matches!(text.iter().find(|byte| !byte.is_ascii_whitespace()), Some(b'{' | b'['))
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
