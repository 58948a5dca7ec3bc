//! `cuzk-bench batch --compare`: the same jobs embedded and through a daemon on this machine, in turns.
//!
//! A machine is never quite idle, so rounds are short and in turns, each round gives a ratio of its own, and what counts is
//! the median of these with the interval that it lies in. Where the daemon was started here, CPU seconds are compared in the
//! same way: other work on the machine takes time from both sides, and hardly changes what they take themselves.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cuzk_wire::client::{connect, Address, Endpoint};
use cuzk_wire::v1::DrainRequest;
use serde::Serialize;

use super::drive::{self, Plan, Run};
use super::inputs::Inputs;
use super::report::Report;
use super::target::Target;
use super::Setup;
use crate::Failure;

/// What a daemon's throughput must be of the embedded engine's.
const RATIO_MIN: f64 = 0.97;
/// A daemon that does not listen by then has failed.
const LISTEN_LIMIT: Duration = Duration::from_secs(60);

#[derive(Serialize)]
struct Comparison {
    rounds: u32,
    embedded: Side,
    daemon: Side,
    /// Jobs a minute through the daemon, of those embedded: the median over rounds.
    ratio: f64,
    ratio_interval: [f64; 2],
    ratio_by_round: Vec<f64>,
    /// CPU seconds embedded, of those through the daemon (both processes): likewise.
    cpu_ratio: Option<f64>,
    cpu_ratio_interval: Option<[f64; 2]>,
}

#[derive(Serialize)]
struct Side {
    /// In the median round.
    jobs_per_minute: f64,
    /// Of all rounds.
    wall_s: f64,
    cpu_s: Option<f64>,
    last_round: Report,
}

/// One side's times, in seconds, by round.
#[derive(Default)]
struct Times {
    wall: Vec<f64>,
    /// Empty where no daemon was started here.
    cpu: Vec<f64>,
}

pub fn run(setup: &Setup, inputs: &Arc<Inputs>, plan: &Plan, rounds: u32) -> Result<(), Failure> {
    let runtime = Setup::runtime()?;
    let mut started = None;
    let daemon = match &setup.args.daemon.addr {
        Some(_) => runtime.block_on(Target::daemon(setup))?,
        None => {
            let (own, target) = OwnDaemon::start(setup, &runtime)?;
            started = Some(own);
            target
        }
    };
    let sides = [Arc::new(Target::embedded(setup)?), Arc::new(daemon)];
    let daemon_pid = started.as_ref().map(|own| own.child.id());
    let measured = runtime.block_on(measure(&sides, inputs, plan, rounds, daemon_pid));
    sides[0].stop();
    let (times, last) = measured?;
    if let Some(own) = started {
        own.stop(&runtime)?;
    }
    let reports = last.map(|(name, run)| Report::new("batch", &name, setup, inputs, run));
    say(setup, &Comparison::new(plan.num_jobs(), rounds, &times, reports))
}

impl Comparison {
    fn new(num_jobs: usize, rounds: u32, times: &[Times; 2], reports: [Report; 2]) -> Self {
        let ratios = |of: fn(&Times) -> &[f64]| -> Vec<f64> {
            of(&times[0]).iter().zip(of(&times[1])).map(|(embedded, daemon)| embedded / daemon).collect()
        };
        let ratio_by_round = ratios(|times| &times.wall);
        let [ratio, cpu_ratio] = [ratio_by_round.clone(), ratios(|times| &times.cpu)].map(Median::of);
        let ratio = ratio.expect("there is a round at least");
        let side = |times: &Times, last_round: Report| Side {
            jobs_per_minute: Median::of(times.wall.clone())
                .map_or(0.0, |wall| num_jobs as f64 * 60.0 / wall.value),
            wall_s: times.wall.iter().sum(),
            cpu_s: (!times.cpu.is_empty()).then(|| times.cpu.iter().sum()),
            last_round,
        };
        let [embedded, daemon] = reports;
        Self {
            rounds,
            embedded: side(&times[0], embedded),
            daemon: side(&times[1], daemon),
            ratio: ratio.value,
            ratio_interval: ratio.interval,
            ratio_by_round,
            cpu_ratio: cpu_ratio.map(|median| median.value),
            cpu_ratio_interval: cpu_ratio.map(|median| median.interval),
        }
    }

    /// Whether the daemon is as fast as it must be. Where the rounds do not tell, because the machine does other things, CPU
    /// seconds do.
    fn holds(&self) -> bool {
        let is_open = self.ratio_interval[1] >= RATIO_MIN;
        self.ratio >= RATIO_MIN || (is_open && self.cpu_ratio.is_some_and(|ratio| ratio >= RATIO_MIN))
    }
}

/// The middle of some values, and where it lies with a certainty of 95 %, whatever their distribution: the sign test's
/// interval. Of fewer than six values that is less certain, and the interval is all of them.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Median {
    value: f64,
    interval: [f64; 2],
}

impl Median {
    /// `None`: of nothing.
    fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let last = values.len().checked_sub(1)?;
        let value = (values[last / 2] + values[values.len() / 2]) / 2.0;
        // Of as many tosses of a coin: the probability of just `cut` heads, and of so many at most.
        let mut exactly = 0.5_f64.powi(values.len() as i32);
        let (mut at_most, mut cut) = (exactly, 0);
        loop {
            exactly *= (values.len() - cut) as f64 / (cut + 1) as f64;
            at_most += exactly;
            if at_most * 2.0 > 0.05 {
                break;
            }
            cut += 1;
        }
        Some(Self { value, interval: [values[cut], values[last - cut]] })
    }
}

/// Times of each side, and its last round.
type Measured = ([Times; 2], [(String, Run); 2]);

async fn measure(
    sides: &[Arc<Target>; 2],
    inputs: &Arc<Inputs>,
    plan: &Plan,
    rounds: u32,
    daemon_pid: Option<u32>,
) -> Result<Measured, Failure> {
    for side in sides {
        drive::warm_up(side, inputs).await?;
    }
    let mut times = [Times::default(), Times::default()];
    let mut last: [Option<Run>; 2] = [None, None];
    for round in 0..rounds {
        // Each goes first as often as the other: what heats up or fills up over a round is shared out.
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        for side in order {
            let before = daemon_pid.map(cpu_seconds);
            let run = drive::run(&sides[side], inputs, plan, "compare").await;
            if let Some(failed) = run.records.iter().find_map(|record| record.result.as_ref().err()) {
                return Err(Failure::failed(format!("{}: {}", sides[side].name(), failed.what)));
            }
            times[side].wall.push(run.wall.as_secs_f64());
            times[side].cpu.extend(daemon_pid.map(cpu_seconds).zip(before).map(|(now, before)| now - before));
            last[side] = Some(run);
        }
    }
    let names = [sides[0].name(), sides[1].name()];
    let mut named =
        names.into_iter().zip(last).map(|(name, run)| (name, run.expect("there is a round at least")));
    let last = std::array::from_fn(|_| named.next().expect("there are two sides"));
    Ok((times, last))
}

/// CPU seconds that this process and the daemon have used together.
fn cpu_seconds(daemon_pid: u32) -> f64 {
    process_cpu_seconds("self") + process_cpu_seconds(&daemon_pid.to_string())
}

/// 0 where the system does not tell.
fn process_cpu_seconds(process: &str) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name, in parentheses, may hold anything; after it come state (field 3), …, utime (14), stime (15).
    let Some((_, rest)) = stat.rsplit_once(") ") else { return 0.0 };
    let fields: Vec<&str> = rest.split(' ').collect();
    let ticks: u64 = fields.iter().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// # Errors
/// If the daemon is slower than it may be: the command is a check as well.
fn say(setup: &Setup, comparison: &Comparison) -> Result<(), Failure> {
    let Comparison { embedded, daemon, .. } = comparison;
    if setup.args.json {
        println!("{}", serde_json::to_string_pretty(comparison).map_err(Failure::failed)?);
    } else {
        print!("{}\n{}\n", embedded.last_round, daemon.last_round);
        for (name, side) in [("embedded", embedded), ("daemon", daemon)] {
            let cpu = side.cpu_s.map_or(String::new(), |seconds| format!(", {seconds:.1} CPU s"));
            println!("{name:10} {:.2} jobs a minute ({:.1} s{cpu})", side.jobs_per_minute, side.wall_s);
        }
        let by_round: Vec<String> =
            comparison.ratio_by_round.iter().map(|ratio| format!("{:.1}", ratio * 100.0)).collect();
        println!("throughput of the daemon: {}", percent(comparison.ratio, comparison.ratio_interval));
        if let Some((ratio, interval)) = comparison.cpu_ratio.zip(comparison.cpu_ratio_interval) {
            println!("by CPU time:              {}", percent(ratio, interval));
        }
        println!("by round: {}", by_round.join(", "));
    }
    for side in [embedded, daemon] {
        let report = &side.last_round;
        if report.verified != report.jobs {
            return Err(Failure::failed(format!("{}: a proof does not hold", report.target)));
        }
    }
    if !comparison.holds() {
        return Err(Failure::failed(format!(
            "the daemon has less than {:.0} % of the throughput",
            RATIO_MIN * 100.0
        )));
    }
    Ok(())
}

fn percent(ratio: f64, [from, to]: [f64; 2]) -> String {
    format!("{:.1} % ({:.1} to {:.1})", ratio * 100.0, from * 100.0, to * 100.0)
}

/// A daemon of this program's own, with the same settings.
struct OwnDaemon {
    child: Child,
    endpoint: Endpoint,
    /// Its socket and its configuration.
    _folder: tempfile::TempDir,
}

impl OwnDaemon {
    fn start(setup: &Setup, runtime: &tokio::runtime::Runtime) -> Result<(Self, Target), Failure> {
        let folder = tempfile::tempdir().map_err(Failure::failed)?;
        let address = Address::Unix(folder.path().join("cuzk.sock"));
        let config = write_config(setup, folder.path(), &address)?;
        let program = beside_this("cuzk-daemon")?;
        let child = Command::new(&program)
            .arg("--config")
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| Failure::failed(format!("{}: {error}", program.display())))?;
        let mut own = Self { child, endpoint: Endpoint::new(address), _folder: folder };
        let target = runtime.block_on(own.connect())?;
        Ok((own, target))
    }

    async fn connect(&mut self) -> Result<Target, Failure> {
        let begun = Instant::now();
        loop {
            match connect(&self.endpoint).await {
                Ok(client) => {
                    let target = Target::Daemon {
                        client: Box::new(client),
                        address: "a daemon of its own".to_owned(),
                    };
                    target.wait_ready().await?;
                    return Ok(target);
                }
                Err(error) if begun.elapsed() > LISTEN_LIMIT => return Err(Failure::failed(error)),
                Err(_) => {}
            }
            if let Some(status) = self.child.try_wait().map_err(Failure::failed)? {
                return Err(Failure::failed(format!("cuzk-daemon ended at once: {status}")));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn stop(mut self, runtime: &tokio::runtime::Runtime) -> Result<(), Failure> {
        let drained = runtime.block_on(async {
            let mut client = connect(&self.endpoint).await.map_err(Failure::failed)?;
            client.drain(DrainRequest { limit_ms: 1 }).await.map_err(Failure::failed)
        });
        drained?;
        self.child.wait().map(drop).map_err(Failure::failed)
    }
}

impl Drop for OwnDaemon {
    fn drop(&mut self) {
        // After `stop` it has ended: then neither does anything.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The configuration of the embedded engine, for a daemon.
fn write_config(setup: &Setup, folder: &Path, address: &Address) -> Result<PathBuf, Failure> {
    let mut config = setup.config.clone();
    config.daemon.listen = address.to_string().parse().map_err(Failure::failed)?;
    config.daemon.status_listen = String::new();
    config.daemon.state_dir = folder.display().to_string();
    config.srs.params_dir = setup.params.display().to_string();
    let text = toml::to_string(&config).map_err(Failure::failed)?;
    let path = folder.join("cuzk.toml");
    std::fs::write(&path, text).map_err(|error| Failure::failed(format!("{}: {error}", path.display())))?;
    Ok(path)
}

fn beside_this(program: &str) -> Result<PathBuf, Failure> {
    let this = std::env::current_exe().map_err(Failure::failed)?;
    let path = this.with_file_name(program);
    if path.is_file() {
        return Ok(path);
    }
    Err(Failure::usage(format!("{}: is not there; start a daemon and name it with --addr", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_lies_where_the_sign_test_says() {
        let of = |count: u32| Median::of((1..=count).rev().map(f64::from).collect()).unwrap();
        // Tables of the sign test: with 11 values the second and the last but one, with 20 the sixth.
        assert_eq!(of(11), Median { value: 6.0, interval: [2.0, 10.0] });
        assert_eq!(of(20), Median { value: 10.5, interval: [6.0, 15.0] });
        assert_eq!(of(6), Median { value: 3.5, interval: [1.0, 6.0] });
        assert_eq!(of(1), Median { value: 1.0, interval: [1.0, 1.0] });
        assert_eq!(Median::of(Vec::new()), None);
    }
}
