//! What a file is, told by its content: its format, and what it says of itself. Nothing is proved or verified, and no
//! name is believed.

mod binary;
mod json;

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde_json::Value;

use crate::circuits::request::json_text;
use crate::error::InspectError;

/// What a file turned out to be: its kind, and facts in the order in which they are shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Such as `parameter file`.
    pub kind: &'static str,
    /// Name and value, as in `inputs with one` and 40.
    pub facts: Vec<(&'static str, Value)>,
}

impl Finding {
    /// A file of this kind, of which nothing is known yet.
    pub fn new(kind: &'static str) -> Self {
        Self { kind, facts: Vec::new() }
    }

    /// Adds a fact; one without a value is left out.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        let value = value.into();
        if !value.is_null() {
            self.facts.push((name, value));
        }
        self
    }
}

/// The bytes by which a format is told; larger files are not read as a whole for that.
const HEAD_BYTES: u64 = 4096;

/// Tells what the file at `path` is. Parameter files are not read beyond their counts.
///
/// # Errors
/// [`InspectError`] if it is no regular file, cannot be read, is damaged, or is of no known format.
pub fn inspect(path: &Path) -> Result<Finding, InspectError> {
    let refuse = |what: String| InspectError::File { at: path.display().to_string(), what };
    let unreadable = |error: std::io::Error| refuse(error.to_string());
    // Asked before it is opened: opening a pipe waits for its other end.
    let metadata = std::fs::metadata(path).map_err(unreadable)?;
    if metadata.is_dir() {
        return Err(refuse("is a folder; name a file, such as the manifest.json in it".to_owned()));
    }
    if !metadata.is_file() {
        return Err(refuse("is no regular file".to_owned()));
    }
    let file = File::open(path).map_err(unreadable)?;
    let mut head = Vec::new();
    file.take(HEAD_BYTES).read_to_end(&mut head).map_err(unreadable)?;
    if head.is_empty() {
        return Err(refuse("is empty (0 B)".to_owned()));
    }
    let found =
        if is_json(&head) { json::recognise(path)? } else { binary::recognise(path, &head, metadata.len())? };
    found.ok_or_else(|| {
        refuse(
            "not recognised: neither a C1, vanilla proof, parameter file, verifying key, proof, manifest nor request; \
             it may be cut or damaged"
                .to_owned(),
        )
    })
}

/// Whether a file with this head is JSON, whole or damaged. A sector's number may make a vanilla proof begin with a
/// bracket too, but then zeros follow within its first bytes, and JSON has no control characters but white space.
fn is_json(head: &[u8]) -> bool {
    let text = json_text(head);
    let is_text = text.iter().take(8).all(|byte| *byte >= b' ' || byte.is_ascii_whitespace());
    is_text && matches!(text.iter().find(|byte| !byte.is_ascii_whitespace()), Some(b'{' | b'['))
}
