//! `cuzk-bench shape`: what recording a circuit's matrices takes, and what they take.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use cuzk::circuits::CircuitSpec;
use cuzk::groth16::R1csShape;
use cuzk::telemetry::process::peak_resident_bytes;
use serde_json::json;

use crate::Failure;

/// Record a circuit's matrices, store them, read them back and compare.
#[derive(Args)]
pub struct ShapeArgs {
    /// A circuit's id, such as porep-32g: see `cuzk circuits`
    #[arg(value_name = "CIRCUIT")]
    circuit: String,
    /// Hash the expanded matrices too: 25.7 GiB for porep-32g
    #[arg(long)]
    sha256: bool,
    /// Synthesize the circuit once more, and compare every row with what is read back
    #[arg(long)]
    compare: bool,
    /// Keep the stored matrices in this file, for `cuzk-bench witness --shape`
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// One JSON document instead of lines
    #[arg(long)]
    json: bool,
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let begun = Instant::now();
    let made = work();
    (made, begun.elapsed())
}

pub fn run(args: &ShapeArgs) -> Result<(), Failure> {
    let spec = CircuitSpec::by_id(&args.circuit)
        .ok_or_else(|| Failure::usage(format!("unknown circuit `{}`: see `cuzk circuits`", args.circuit)))?;
    let (shape, recorded) = timed(|| spec.record_shape());
    let shape = shape.map_err(Failure::failed)?;
    // Before anything else takes memory.
    let peak_bytes = peak_resident_bytes();
    let dir = tempfile::tempdir().map_err(Failure::failed)?;
    let path = args.out.clone().unwrap_or_else(|| dir.path().join("shape"));
    let (saved, stored) = timed(|| shape.save(&path));
    saved.map_err(Failure::failed)?;
    let file_bytes = path.metadata().map_err(Failure::failed)?.len();
    let (loaded, read) = timed(|| R1csShape::load(&path));
    let loaded = loaded.map_err(Failure::failed)?;
    if loaded != shape {
        return Err(Failure::failed("what was read back is another shape"));
    }
    let blank = || spec.blank().map_err(Failure::failed);
    let compared = match args.compare {
        false => None,
        true => {
            let (equal, elapsed) = timed(|| loaded.compare_with(blank()?).map_err(Failure::failed));
            equal.map(|()| Some(elapsed))?
        }
    };
    let sha256 = args.sha256.then(|| timed(|| shape.sha256()));
    let report = json!({
        "circuit": args.circuit,
        "rows": shape.num_rows(),
        "entries": shape.num_nonzero(),
        "distinct_rows": shape.num_distinct_rows(),
        "aux": shape.num_aux(),
        "dense_aux": shape.classes().num_dense(),
        "record_s": recorded.as_secs_f64(),
        "record_peak_bytes": peak_bytes,
        "memory_bytes": shape.num_bytes(),
        "matrices_bytes": shape.num_matrices_bytes(),
        "image_bytes": shape.image_layout().num_bytes(),
        "file_bytes": file_bytes,
        "save_s": stored.as_secs_f64(),
        "load_s": read.as_secs_f64(),
        "compared_s": compared.map(|elapsed| elapsed.as_secs_f64()),
        "r1cs_sha256": sha256.as_ref().map(|(digest, _)| hex::encode(digest)),
        "sha256_s": sha256.as_ref().map(|(_, elapsed)| elapsed.as_secs_f64()),
    });
    if args.json {
        println!("{report:#}");
    } else if let Some(lines) = report.as_object() {
        lines
            .iter()
            .filter(|(_, value)| !value.is_null())
            .for_each(|(name, value)| println!("{name:18} {value}"));
    }
    Ok(())
}
