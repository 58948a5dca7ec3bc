//! `cuzk-bench layouts`: where SHA-256's intermediate words are among the circuits' variables.

use std::fs;
use std::path::PathBuf;

use clap::Args;
use cuzk::circuits::native::{discover_layouts, stored_layouts};

use crate::Failure;

/// Find the layouts of SHA-256 blocks by matching the library's synthesis on random inputs, and compare them with
/// those the program was built with. To be run when the library's version changes.
#[derive(Args)]
pub struct LayoutsArgs {
    /// Write them to this file (in the sources: src/circuits/native/layouts/sha256.txt)
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Of the random inputs: every seed finds the same
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

pub fn run(args: &LayoutsArgs) -> Result<(), Failure> {
    let found = discover_layouts(args.seed).map_err(Failure::failed)?;
    let is_stored = found == stored_layouts();
    if let Some(path) = &args.out {
        fs::write(path, &found).map_err(|error| Failure::failed(format!("{}: {error}", path.display())))?;
        println!("{}: written, {}", path.display(), if is_stored { "as before" } else { "changed: rebuild" });
        return Ok(());
    }
    if is_stored {
        println!("the layouts are those of this library");
        return Ok(());
    }
    Err(Failure::failed("the library's layouts are others: run with --out and rebuild"))
}
