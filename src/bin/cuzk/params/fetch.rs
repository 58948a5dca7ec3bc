//! `cuzk params fetch`: Filecoin's own parameter files, from where they are published.

mod board;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use crossbeam_channel::{bounded, select};
use cuzk::circuits::{CircuitSpec, ProofKind, SectorSize};
use cuzk::config::Config;
use cuzk::error::ParamsError;
use cuzk::params::fetch::{
    check_space, fetch, state_of, Authorities, FetchOptions, Fetched, FileState, Mirror, Stop,
    DEFAULT_GATEWAY,
};
use cuzk::params::{Manifest, VerifiedFiles, Wanted};
use serde_json::{json, Value};

use crate::failure::{Failure, EXIT_USAGE};
use crate::files;
use crate::interrupt::{interrupted, Interrupts};
use crate::options::ParamsOption;
use crate::ui::{self, Ui};
use board::FetchBoard;

/// Environment variable with addresses of mirrors, separated by commas.
const GATEWAY_VARIABLE: &str = "CUZK_GATEWAY";
/// Environment variable with a file of certificates, as other programs read it.
const CA_VARIABLE: &str = "SSL_CERT_FILE";
/// How long a signal waits for the threads to notice. What they wrote is on disk either way.
const STOP_LIMIT: Duration = Duration::from_secs(1);

/// Fetch Filecoin's parameter files: resumable, verified, never half a file under its name
///
/// Without circuits and kinds those of PoRep and SnapDeals of 32 GiB sectors, about 80 GB. Whatever ends it, running it
/// again goes on where it was.
#[derive(Args)]
pub struct FetchArgs {
    /// Circuits, such as porep-32g winning-32g (`cuzk circuits` lists them)
    #[arg(value_name = "CIRCUIT", conflicts_with_all = ["kind", "sector_size"])]
    circuits: Vec<String>,
    /// Kinds of proofs, separated by commas [default: porep,snap]
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    kind: Vec<Kind>,
    /// Sector sizes, separated by commas [default: 32GiB]
    #[arg(long, value_name = "SIZE", value_delimiter = ',')]
    sector_size: Vec<SectorSize>,
    #[command(flatten)]
    params: ParamsOption,
    /// Where from, tried in turn: an IPFS gateway, an address with {cid} or {name} in it, or file:///FOLDER. Repeatable
    /// [default: CUZK_GATEWAY, else `[fetch] gateways`, else https://proofs.filecoin.io]
    #[arg(long, value_name = "URL")]
    gateway: Vec<String>,
    /// Certificates (PEM) by which they are trusted, and no others [default: `[fetch] ca`, else SSL_CERT_FILE, else those
    /// that browsers trust]
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Another network's list of files, in the form of Filecoin's parameters.json
    #[arg(long, value_name = "FILE")]
    manifest: Option<PathBuf>,
    /// Files at a time [default: `[fetch] parallel_files`]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    parallel: Option<u32>,
    /// Rounds over all mirrors without a new byte, after which a file is given up
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Replace other files that are there under the same names
    #[arg(long)]
    force: bool,
    /// Read the files that are there already, also those that were verified before and are unchanged
    #[arg(long)]
    verify: bool,
    /// Only say what would be fetched, from where, and whether there is room
    #[arg(long)]
    dry_run: bool,
    /// One JSON object a line for each file, and a last one for all together
    #[arg(long)]
    json: bool,
}

/// As circuits are called, and as people call them.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    Porep,
    #[value(alias = "snapdeals")]
    Snap,
    #[value(alias = "wpost", alias = "windowpost")]
    Window,
    #[value(alias = "winningpost")]
    Winning,
    All,
}

impl Kind {
    fn proof_kinds(self) -> Vec<ProofKind> {
        match self {
            Self::Porep => vec![ProofKind::PorepSealCommit],
            Self::Snap => vec![ProofKind::SnapDealsUpdate],
            Self::Window => vec![ProofKind::WindowPostPartition],
            Self::Winning => vec![ProofKind::WinningPost],
            Self::All => ProofKind::ALL.to_vec(),
        }
    }
}

pub fn run(args: &FetchArgs, config: &Config, ui: Ui) -> Result<(), Failure> {
    let dir = args.params.dir(config);
    let wanted = wanted(args)?;
    let stall_limit = Duration::from_secs(config.fetch.stall_limit_s);
    let authorities = authorities(args, config)?;
    let mirror = |url: &String| Mirror::trusted_by(url, stall_limit, &authorities);
    let mirrors: Vec<Mirror> = gateways(args, config).iter().map(mirror).collect::<Result<_, _>>()?;
    if args.dry_run {
        return dry_run(args, &dir, &wanted, &mirrors);
    }
    prepare(&dir, &wanted)?;
    let options = FetchOptions {
        num_parallel: args.parallel.unwrap_or(config.fetch.parallel_files) as usize,
        stall_limit,
        max_fruitless_rounds: args.rounds,
        replace_wrong: args.force,
        verified: (!args.verify).then(|| VerifiedFiles::in_dir(config.cache_dir().join("verdicts"))),
        ..FetchOptions::new(dir)
    };
    let outcomes = fetch_until_signal(wanted.clone(), mirrors, options, ui)?;
    report(args.json, &wanted, outcomes, ui)
}

/// The files of the chosen circuits, verifying keys first.
fn wanted(args: &FetchArgs) -> Result<Vec<Wanted>, Failure> {
    let manifest = match &args.manifest {
        None => Manifest::published(),
        Some(path) => {
            let text = String::from_utf8_lossy(&files::read(path)?).into_owned();
            let in_file = |error| Failure::from(error).in_file(&path.display().to_string());
            Manifest::from_json(&text).map_err(in_file)?
        }
    };
    let mut specs = if args.circuits.is_empty() {
        let or_default =
            |kinds: &[Kind]| if kinds.is_empty() { vec![Kind::Porep, Kind::Snap] } else { kinds.to_vec() };
        let sizes =
            if args.sector_size.is_empty() { vec![SectorSize::Size32GiB] } else { args.sector_size.clone() };
        let kinds: Vec<ProofKind> = or_default(&args.kind).into_iter().flat_map(Kind::proof_kinds).collect();
        kinds.iter().flat_map(|kind| sizes.iter().map(|size| CircuitSpec::new(*kind, *size))).collect()
    } else {
        crate::circuits::select(&args.circuits)?
    };
    let mut seen = Vec::new();
    specs.retain(|spec| {
        let is_new = !seen.contains(spec);
        seen.push(spec.clone());
        is_new
    });
    let mut wanted = Vec::new();
    for spec in &specs {
        wanted.extend(manifest.files_of(spec)?);
    }
    wanted.sort_by_key(|wanted| !wanted.file.name.ends_with(".vk"));
    Ok(wanted)
}

fn gateways(args: &FetchArgs, config: &Config) -> Vec<String> {
    if !args.gateway.is_empty() {
        return args.gateway.clone();
    }
    let listed = std::env::var(GATEWAY_VARIABLE).unwrap_or_default();
    let named: Vec<String> =
        listed.split(',').map(str::trim).filter(|url| !url.is_empty()).map(str::to_owned).collect();
    if !named.is_empty() {
        return named;
    }
    match &config.fetch.gateways[..] {
        [] => vec![DEFAULT_GATEWAY.to_owned()],
        configured => configured.to_vec(),
    }
}

fn authorities(args: &FetchArgs, config: &Config) -> Result<Authorities, ParamsError> {
    let configured = || Some(PathBuf::from(&config.fetch.ca)).filter(|path| !path.as_os_str().is_empty());
    let by_variable = || std::env::var_os(CA_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
    let file = args.ca.clone().or_else(configured).or_else(by_variable);
    file.map_or_else(|| Ok(Authorities::default()), |file| Authorities::read(&file))
}

/// Makes the folder and looks whether it takes files, and has room for these.
fn prepare(dir: &Path, wanted: &[Wanted]) -> Result<(), Failure> {
    let unwritable = |error: std::io::Error| {
        let advice = "choose another folder with --params";
        Failure::usage(format!("{}: cannot write: {error}; {advice}", dir.display()))
    };
    std::fs::create_dir_all(dir).and_then(|()| files::try_folder(dir)).map_err(unwritable)?;
    check_space(dir, wanted).map_err(space_in_words)
}

fn space_in_words(error: ParamsError) -> Failure {
    match error {
        ParamsError::Space { ref dir, needs_bytes, free_bytes } => Failure {
            message: format!(
                "{}: needs {} of free space, has {}; choose another folder with --params",
                dir.display(),
                ui::bytes(needs_bytes),
                ui::bytes(free_bytes)
            ),
            ..Failure::from(error)
        },
        error => error.into(),
    }
}

/// Fetches on a thread of its own, so that a signal is answered at once whatever a mirror does.
fn fetch_until_signal(
    wanted: Vec<Wanted>,
    mirrors: Vec<Mirror>,
    options: FetchOptions,
    ui: Ui,
) -> Result<Vec<Result<Fetched, ParamsError>>, Failure> {
    let interrupts = Interrupts::install()?;
    let (handle, stop) = Stop::new();
    let board = Arc::new(FetchBoard::new(&wanted, ui));
    let (send, done) = bounded(1);
    let watcher = Arc::clone(&board);
    let fetching = move || {
        let outcomes = fetch(&wanted, &mirrors, &options, &stop, &*watcher);
        // Nobody hears it after a signal.
        let _ = send.send(outcomes);
    };
    let refused = |error| Failure::proving("threads", format!("cannot start a thread: {error}"));
    std::thread::Builder::new().name("fetch".to_owned()).spawn(fetching).map_err(refused)?;
    select! {
        recv(done) -> outcomes => {
            drop(handle);
            outcomes.map_err(|_| Failure::proving("fetch", "the fetching thread ended early: report this"))
        }
        recv(interrupts.arrived) -> signal => {
            drop(handle);
            // What a thread that hangs in a read has written is in its file.
            let _ = done.recv_timeout(STOP_LIMIT);
            board.clear();
            let failure = signal.map_or_else(|_| interrupted(0), interrupted);
            let message = failure.message.replace(
                "nothing unfinished was left behind",
                "what has come is kept; the same command goes on with it",
            );
            Err(Failure { message, ..failure })
        }
    }
}

fn report(
    as_json: bool,
    wanted: &[Wanted],
    outcomes: Vec<Result<Fetched, ParamsError>>,
    ui: Ui,
) -> Result<(), Failure> {
    let num_files = wanted.len();
    let mut failures = Vec::new();
    let (mut num_bytes, mut fetched_bytes) = (0, 0);
    for (wanted, outcome) in wanted.iter().zip(outcomes) {
        let name = &wanted.file.name;
        match outcome {
            Ok(fetched) => {
                num_bytes += fetched.num_bytes;
                fetched_bytes += fetched.fetched_bytes;
                if as_json {
                    ui::out(&line(wanted, Some(&fetched), None).to_string())?;
                } else {
                    ui::out(&format!("{}: {name}: {}", wanted.circuit, how(&fetched)))?;
                }
            }
            Err(error) => {
                let failure = advised(error);
                if as_json {
                    ui::out(&line(wanted, None, Some(&failure)).to_string())?;
                } else {
                    ui::out(&format!("{}: {name}: FAILED", wanted.circuit))?;
                }
                // The only file's failure is the command's last word.
                if num_files > 1 {
                    ui.error(&failure);
                }
                failures.push(failure);
            }
        }
    }
    if as_json {
        let total = json!({
            "files": wanted.len(),
            "failed": failures.len(),
            "bytes": num_bytes,
            "fetched_bytes": fetched_bytes,
        });
        ui::out(&json!({ "total": total }).to_string())?;
    }
    Failure::of_parts(failures, wanted.len(), "files were not fetched")
}

fn how(fetched: &Fetched) -> String {
    let size = ui::bytes(fetched.num_bytes);
    if fetched.fetched_bytes == 0 && fetched.resumed_bytes == 0 {
        return format!("there already, {size}, verified");
    }
    let from = fetched.mirror.as_ref().map(|mirror| format!(" from {mirror}")).unwrap_or_default();
    match fetched.resumed_bytes {
        0 => format!("fetched, {size}, verified{from}"),
        resumed => format!("fetched, {size}, verified{from} ({} were there)", ui::bytes(resumed)),
    }
}

/// The failure with what to do about it.
fn advised(error: ParamsError) -> Failure {
    let advice = match &error {
        ParamsError::Wrong { .. } => "remove it, choose another folder with --params, or use --force",
        ParamsError::Unavailable { has_untrusted: true, .. } => {
            "name a file with the certificates that you trust with --ca, or another mirror with --gateway"
        }
        ParamsError::Unavailable { .. } => "run it again to go on, or name another mirror with --gateway",
        _ => return space_in_words(error),
    };
    let failure = Failure::from(error);
    Failure { message: format!("{}; {advice}", failure.message), ..failure }
}

fn line(wanted: &Wanted, fetched: Option<&Fetched>, failure: Option<&Failure>) -> Value {
    json!({
        "circuit": wanted.circuit.to_string(),
        "file": wanted.file.name,
        "state": match fetched {
            Some(fetched) if fetched.fetched_bytes > 0 || fetched.resumed_bytes > 0 => "fetched",
            Some(_) => "present",
            None => "failed",
        },
        "path": fetched.map(|fetched| fetched.path.display().to_string()),
        "bytes": fetched.map(|fetched| fetched.num_bytes),
        "fetched_bytes": fetched.map(|fetched| fetched.fetched_bytes),
        "resumed_bytes": fetched.map(|fetched| fetched.resumed_bytes),
        "mirror": fetched.and_then(|fetched| fetched.mirror.clone()),
        "error": failure.map(Failure::as_json),
    })
}

/// What would be fetched. The folder is not made, nothing is asked of any mirror.
fn dry_run(args: &FetchArgs, dir: &Path, wanted: &[Wanted], mirrors: &[Mirror]) -> Result<(), Failure> {
    files::check_enterable(dir).map_err(|failure| Failure { code: EXIT_USAGE, ..failure })?;
    let mut missing_bytes = 0;
    let mut rows = Vec::new();
    for wanted in wanted {
        let state = state_of(dir, wanted)?;
        let (name, has_bytes) = match state {
            FileState::Missing => ("missing", 0),
            FileState::Partial(bytes) => ("partial", bytes),
            FileState::Present(bytes) => ("present", bytes),
        };
        let is_present = matches!(state, FileState::Present(_));
        if !is_present {
            missing_bytes += wanted.expected_bytes.unwrap_or(0).saturating_sub(has_bytes);
        }
        if args.json {
            let line = json!({
                "circuit": wanted.circuit.to_string(),
                "file": wanted.file.name,
                "state": name,
                "bytes": has_bytes,
                "expected_bytes": wanted.expected_bytes,
                "digest": wanted.file.digest.to_string(),
                "addresses": mirrors.iter().map(|mirror| mirror.address_of(&wanted.file)).collect::<Vec<_>>(),
            });
            ui::out(&line.to_string())?;
        }
        rows.push(vec![
            wanted.circuit.to_string(),
            name.to_owned(),
            wanted.expected_bytes.map_or_else(|| "-".to_owned(), ui::bytes),
            ui::bytes(has_bytes),
            mirrors[0].address_of(&wanted.file),
        ]);
    }
    // The folder may not be there yet: then its room is that of the nearest one that is.
    let free_bytes = dir.ancestors().find_map(|dir| files::free_bytes(dir).ok());
    if args.json {
        let total =
            json!({ "files": wanted.len(), "missing_bytes": missing_bytes, "free_bytes": free_bytes });
        return ui::out(&json!({ "total": total }).to_string());
    }
    ui::out(&ui::table(&["circuit", "state", "size", "has", "first address"], &rows))?;
    let free =
        free_bytes.map_or_else(|| "unknown room".to_owned(), |bytes| format!("{} free", ui::bytes(bytes)));
    ui::out(&format!("{} to fetch into {}, {free}", ui::bytes(missing_bytes), dir.display()))
}
