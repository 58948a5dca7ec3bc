//! `cuzk-bench gen-vanilla`: a job's inputs of any sector size, without sealing.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use cuzk::circuits::synthetic::SyntheticOptions;
use cuzk::circuits::{ProofKind, SectorSize};

use crate::Failure;

/// Write a manifest and the vanilla proofs of a synthetic sector, for `cuzk prove`.
#[derive(Args)]
pub struct GenVanillaArgs {
    /// porep, snap, wpost or winning
    #[arg(value_name = "KIND", value_parser = parse_kind)]
    kind: ProofKind,
    /// 2KiB, 8MiB, 512MiB, 32GiB or 64GiB
    #[arg(long, value_name = "SIZE")]
    sector_size: SectorSize,
    /// Forge the sector: only what the circuit looks at exists, and no network takes its proof. (Sealing a real one is
    /// the work of Filecoin's own tools.)
    #[arg(long, required = true)]
    synthetic: bool,
    /// PoRep: challenges of each partition [default: the network's]. Fewer make a smaller circuit, such as
    /// porep-32g-k1, which is no Filecoin circuit
    #[arg(long, value_name = "K")]
    challenges: Option<u32>,
    /// PoRep: partitions [default: the network's]
    #[arg(long, value_name = "P")]
    partitions: Option<u32>,
    /// WindowPoSt: sectors of the partition [default: as many as it can have]
    #[arg(long, value_name = "N")]
    sectors: Option<u32>,
    /// Equal seeds give equal files
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The folder to write, made if it is not there [default: CIRCUIT-synthetic]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

fn parse_kind(text: &str) -> Result<ProofKind, String> {
    let by_prefix = ProofKind::ALL.into_iter().find(|kind| kind.circuit_prefix() == text);
    by_prefix
        .or_else(|| text.parse().ok())
        .ok_or_else(|| format!("{text:?} is none of porep, snap, wpost, winning"))
}

pub fn run(args: &GenVanillaArgs) -> Result<(), Failure> {
    let GenVanillaArgs { kind, sector_size, challenges, partitions, sectors, seed, .. } = *args;
    let options = SyntheticOptions { kind, sector_size, seed, challenges, partitions, sectors };
    let circuit = options.circuit_spec().map_err(Failure::usage)?.to_string();
    let dir = args.out.clone().unwrap_or_else(|| PathBuf::from(format!("{circuit}-synthetic")));
    let start = Instant::now();
    let job = options.generate().map_err(Failure::usage)?;
    let made = start.elapsed();
    job.write(&dir).map_err(Failure::failed)?;
    let num_bytes =
        job.request.vanilla_proof.len() + job.request.vanilla_proofs.iter().map(Vec::len).sum::<usize>();
    println!(
        "{}: synthetic inputs of {circuit}, {:.1} MB of vanilla proofs; made in {:.1} s, checked and written in {:.1} s",
        dir.join("manifest.json").display(),
        num_bytes as f64 / 1e6,
        made.as_secs_f64(),
        (start.elapsed() - made).as_secs_f64(),
    );
    Ok(())
}
