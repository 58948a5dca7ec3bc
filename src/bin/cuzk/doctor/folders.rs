//! Folders that are written to, and their room.

use std::path::{Path, PathBuf};

use cuzk::config::Config;

use super::finding::Finding;
use crate::{files, ui};

/// Shapes, verdicts, results: what may come in a long run.
const ROOM_BYTES_GOOD: u64 = 1 << 30;

pub fn check(config: &Config, params_dir: &Path) -> Vec<Finding> {
    let mut findings = vec![
        room("disk of parameters", params_dir, 0),
        room("disk of caches", &config.cache_dir(), ROOM_BYTES_GOOD),
    ];
    if !config.journal.path.is_empty() {
        let folder = files::folder(Path::new(&config.journal.path)).to_owned();
        findings.push(match folder.is_dir() {
            true => room("disk of the journal", &folder, ROOM_BYTES_GOOD),
            false => Finding::problem(
                "disk of the journal",
                format!("{} is no folder", folder.display()),
                "make it, owned by the user that proves, or change [journal] path",
            ),
        });
    }
    findings
}

/// Room of the file system that the folder is on, or would be made on.
fn room(name: &str, dir: &Path, good_bytes: u64) -> Finding {
    let found: Option<(PathBuf, u64)> =
        dir.ancestors().find_map(|dir| Some((dir.to_owned(), files::free_bytes(dir).ok()?)));
    let Some((there, free_bytes)) = found else {
        let what = format!("{}: cannot be told", dir.display());
        return Finding::warn(name, what, "name a folder that this user may enter");
    };
    let state = if there == dir { "" } else { ", not made yet" };
    let what = format!("{}: {} free{state}", dir.display(), ui::bytes(free_bytes));
    if free_bytes < good_bytes {
        let advice = format!("make room: {} are a good reserve", ui::bytes(good_bytes));
        return Finding::warn(name, what, advice);
    }
    Finding::fine(name, what)
}
