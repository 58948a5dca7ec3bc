//! Real proofs under load, through an engine of this program's own or through a daemon.
//!
//! ```text
//! inputs.rs  what is proved ──> drive.rs  when ──> target.rs  by whom
//!                                   │ Record each
//!                                   v
//!               report.rs  figures, after every proof was checked ──> text, JSON, html.rs
//! compare.rs runs the same jobs both ways, in turns
//! ```

mod compare;
mod drive;
mod html;
mod inputs;
mod report;
mod target;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use cuzk::config::{Config, DeviceChoice};

use self::drive::{Arrival, Plan, Run};
use self::inputs::{Input, Inputs};
use self::report::Report;
use self::target::Target;
use crate::daemon_options::DaemonOptions;
use crate::Failure;

/// Prove one kind again and again, one proof at a time: latency by stage
#[derive(Args)]
pub struct SingleArgs {
    /// A circuit such as winning-2k, window-2k, porep-2k or snap-2k (its inputs are made here), or a manifest.json
    #[arg(value_name = "KIND")]
    kind: String,
    /// Proofs
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
    #[command(flatten)]
    common: CommonArgs,
}

/// Prove a number of jobs, some at a time: throughput
#[derive(Args)]
pub struct BatchArgs {
    /// Circuits such as winning-2k and window-2k (their inputs are made here), or manifests; in turn
    #[arg(required = true, value_name = "KIND")]
    kinds: Vec<String>,
    /// Jobs of all kinds together
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
    /// Jobs that are asked for at a time
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    concurrency: u32,
    /// Both ways in turns, embedded and through a daemon (that of --addr, else one that is started beside this program),
    /// and the median of their ratios
    #[arg(long)]
    compare: bool,
    /// With --compare: so often, each time the jobs of --count on both sides
    #[arg(long, value_name = "N", default_value_t = 11, requires = "compare", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    #[command(flatten)]
    common: CommonArgs,
}

/// Ask for proofs of several kinds at random times, whether the last ones are done or not: latency under load
#[derive(Args)]
pub struct StressArgs {
    /// What arrives, and how often on average: winning-2k=2/s,window-2k=30/min
    #[arg(long, required = true, value_delimiter = ',', value_name = "KIND=RATE")]
    load: Vec<String>,
    /// How long jobs arrive: 90s, 10min; all that arrived are waited for
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    duration: Duration,
    #[command(flatten)]
    common: CommonArgs,
}

/// Options of every load.
#[derive(Args)]
pub struct CommonArgs {
    #[command(flatten)]
    daemon: DaemonOptions,
    /// Embedded: configuration file (else the one that CUZK_CONFIG names, else defaults)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Embedded: devices that prove, as `cuzk prove --device`
    #[arg(long, value_name = "DEVICE")]
    device: Option<DeviceChoice>,
    /// Folder of parameter files; the keys that proofs are checked with are there
    #[arg(long, value_name = "DIR")]
    params: Option<PathBuf>,
    /// Different inputs of each kind that is made here
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=1000))]
    variants: u64,
    /// Inputs, and times of arrival, are drawn from it
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// One JSON document instead of text
    #[arg(long)]
    json: bool,
    /// Write a page with plots
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// `90s`, `10min`, `1.5h`, `500ms`, or a number of seconds.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let seconds = match &text[digits.len()..] {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "min" | "m" => 60.0,
        "h" => 3600.0,
        unit => return Err(format!("{unit:?} is none of ms, s, min, h")),
    };
    let number: f64 = digits.parse().map_err(|_| format!("{text:?} is no time: write 90s or 10min"))?;
    let time = Duration::try_from_secs_f64(number * seconds).map_err(|error| error.to_string())?;
    if time.is_zero() {
        Err("needs more than 0".to_owned())
    } else {
        Ok(time)
    }
}

pub fn single(args: &SingleArgs) -> Result<(), Failure> {
    let setup = Setup::new(&args.common)?;
    let inputs = setup.inputs([args.kind.as_str()])?;
    let plan = Plan::closed(&inputs, args.count as usize, 1);
    setup.run("single", &inputs, plan)
}

pub fn batch(args: &BatchArgs) -> Result<(), Failure> {
    let setup = Setup::new(&args.common)?;
    let inputs = setup.inputs(args.kinds.iter().map(String::as_str))?;
    let plan = Plan::closed(&inputs, args.count as usize, args.concurrency as usize);
    if args.compare {
        return compare::run(&setup, &inputs, &plan, args.rounds);
    }
    setup.run("batch", &inputs, plan)
}

pub fn stress(args: &StressArgs) -> Result<(), Failure> {
    let setup = Setup::new(&args.common)?;
    let loads = args.load.iter().map(|load| parse_load(load)).collect::<Result<Vec<_>, _>>()?;
    let inputs = setup.inputs(loads.iter().map(|(kind, _)| kind.as_str()))?;
    let rates: Vec<f64> = loads.iter().map(|(_, rate)| *rate).collect();
    let arrivals = Arrival::poisson(&inputs, &rates, args.duration, args.common.seed);
    if arrivals.is_empty() {
        return Err(Failure::usage("no job arrives in that time at these rates: raise a rate or --duration"));
    }
    setup.run("stress", &inputs, Plan::Open(arrivals))
}

/// `winning-2k=2/s`: jobs a second.
fn parse_load(text: &str) -> Result<(String, f64), Failure> {
    let wrong = || {
        Failure::usage(format!(
            "--load {text:?}: write KIND=RATE, such as winning-2k=2/s or window-2k=30/min"
        ))
    };
    let (kind, rate) = text.rsplit_once('=').ok_or_else(wrong)?;
    let (number, unit) = rate.split_once('/').ok_or_else(wrong)?;
    let seconds = match unit {
        "s" => 1.0,
        "min" | "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(wrong()),
    };
    let number: f64 = number.parse().map_err(|_| wrong())?;
    if !(number > 0.0 && number <= 1e6) {
        return Err(wrong());
    }
    Ok((kind.to_owned(), number / seconds))
}

/// What all loads need.
pub struct Setup<'a> {
    pub args: &'a CommonArgs,
    pub config: Config,
    pub params: PathBuf,
}

impl<'a> Setup<'a> {
    fn new(args: &'a CommonArgs) -> Result<Self, Failure> {
        let environment = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        let mut config = Config::load(args.config.as_deref(), environment).map_err(Failure::usage)?;
        if let Some(device) = &args.device {
            config.gpus.devices = device.clone();
        }
        let params = args.params.clone().unwrap_or_else(|| config.params_dir());
        if let Some(path) = &args.html {
            let folder = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
            if !folder.is_dir() {
                return Err(Failure::usage(format!("{}: there is no such folder", folder.display())));
            }
        }
        Ok(Self { args, config, params })
    }

    fn inputs<'k>(&self, kinds: impl IntoIterator<Item = &'k str>) -> Result<Arc<Inputs>, Failure> {
        Inputs::make(kinds, self.args.variants, self.args.seed, &self.params).map(Arc::new)
    }

    /// Threads for waiting: proving has its own.
    fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(Failure::failed)
    }

    /// Warms up, runs, checks, reports.
    fn run(&self, command: &'static str, inputs: &Arc<Inputs>, plan: Plan) -> Result<(), Failure> {
        let runtime = Self::runtime()?;
        let target = match &self.args.daemon.addr {
            Some(_) => runtime.block_on(Target::daemon(self))?,
            None => Target::embedded(self)?,
        };
        let target = Arc::new(target);
        let run: Run = runtime.block_on(async {
            drive::warm_up(&target, inputs).await?;
            Ok::<_, Failure>(drive::run(&target, inputs, &plan, "bench").await)
        })?;
        let report = Report::new(command, &target.name(), self, inputs, run);
        target.stop();
        self.finish(&report)
    }

    /// # Errors
    /// If a job failed or a proof does not hold: a figure over others would not be what it says.
    fn finish(&self, report: &Report) -> Result<(), Failure> {
        if self.args.json {
            println!("{}", serde_json::to_string_pretty(report).map_err(Failure::failed)?);
        } else {
            print!("{report}");
        }
        if let Some(path) = &self.args.html {
            let written = std::fs::write(path, html::page(report));
            written.map_err(|error| Failure::failed(format!("{}: {error}", path.display())))?;
        }
        match report.jobs - report.verified {
            0 => Ok(()),
            wrong => {
                Err(Failure::failed(format!("{wrong} of {} jobs have no proof that holds", report.jobs)))
            }
        }
    }
}

/// What a job is of, for records.
fn kind_of(inputs: &Inputs, index: usize) -> &Input {
    &inputs.all[index]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_loads_are_read() {
        assert_eq!(parse_duration("1.5min"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("7"), Ok(Duration::from_secs(7)));
        for text in ["", "s", "0s", "-1s", "5 days", "5y"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
        let load = |text| parse_load(text).ok();
        assert_eq!(load("winning-2k=2/s"), Some(("winning-2k".to_owned(), 2.0)));
        assert_eq!(load("a=b/manifest.json=30/min"), Some(("a=b/manifest.json".to_owned(), 0.5)));
        for text in ["winning-2k", "winning-2k=2", "winning-2k=0/s", "winning-2k=x/s", "winning-2k=1/y"] {
            assert!(load(text).is_none(), "{text}");
        }
    }
}
