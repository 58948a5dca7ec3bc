//! Rules about the source that no compiler checks.

use std::fs;
use std::path::{Path, PathBuf};

fn rust_files(dir: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Two threads of a process that change and read its environment race, and a variable that says which GPU to use is
/// the bug this engine exists to exclude.
#[test]
fn b51_no_environment_variable_is_ever_written() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for dir in ["src", "tests", "examples", "benches", "fuzz/fuzz_targets"] {
        rust_files(&root.join(dir), &mut files);
    }
    assert!(files.len() > 20, "found only {} source files", files.len());
    // Put together here, so that this file does not contain them.
    let writers = [["set", "var"].join("_"), ["remove", "var"].join("_")];
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
        for word in words {
            assert!(!writers.iter().any(|writer| writer == word), "{} calls {word}", file.display());
        }
    }
}
