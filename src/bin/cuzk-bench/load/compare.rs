//! `cuzk-bench batch --compare`: the same jobs embedded and through a daemon on this machine, in turns.
//!
//! Turns, because a machine is never quite idle: what comes between hits both. Where the daemon was started here, CPU
//! time of both sides is told as well, which other work on the machine hardly changes.

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
    /// Jobs a minute through the daemon, of those embedded.
    ratio: f64,
    ratio_by_round: Vec<f64>,
    /// CPU seconds embedded, of those through the daemon (both processes): what the machine could do at most.
    cpu_ratio: Option<f64>,
}

#[derive(Serialize)]
struct Side {
    jobs_per_minute: f64,
    wall_s: f64,
    cpu_s: Option<f64>,
    last_round: Report,
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
    let (mut walls, cpus, last) = measured?;
    if let Some(own) = started {
        own.stop(&runtime)?;
    }
    let [embedded, daemon] = last.map(|(name, run)| Report::new("batch", &name, setup, inputs, run));
    let total = |walls: &[f64]| walls.iter().sum::<f64>();
    let jobs = plan.num_jobs() as f64 * f64::from(rounds);
    let [embedded_walls, daemon_walls] = [std::mem::take(&mut walls[0]), std::mem::take(&mut walls[1])];
    let comparison = Comparison {
        rounds,
        ratio: total(&embedded_walls) / total(&daemon_walls),
        ratio_by_round: embedded_walls.iter().zip(&daemon_walls).map(|(ours, its)| ours / its).collect(),
        cpu_ratio: cpus.map(|[embedded, daemon]| embedded / daemon),
        embedded: Side {
            jobs_per_minute: jobs / total(&embedded_walls) * 60.0,
            wall_s: total(&embedded_walls),
            cpu_s: cpus.map(|cpus| cpus[0]),
            last_round: embedded,
        },
        daemon: Side {
            jobs_per_minute: jobs / total(&daemon_walls) * 60.0,
            wall_s: total(&daemon_walls),
            cpu_s: cpus.map(|cpus| cpus[1]),
            last_round: daemon,
        },
    };
    say(setup, &comparison)
}

/// Wall seconds of each round by side, CPU seconds by side, and the last round of each side.
type Measured = ([Vec<f64>; 2], Option<[f64; 2]>, [(String, Run); 2]);

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
    let (mut walls, mut cpus) = ([Vec::new(), Vec::new()], [0.0, 0.0]);
    let mut last: [Option<Run>; 2] = [None, None];
    for round in 0..rounds {
        // Each goes first as often as the other: what heats up or fills up over a round is shared out.
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        for side in order {
            let before = cpu_seconds(daemon_pid);
            let run = drive::run(&sides[side], inputs, plan, "compare").await;
            if let Some(failed) = run.records.iter().find_map(|record| record.result.as_ref().err()) {
                return Err(Failure::failed(format!("{}: {}", sides[side].name(), failed.what)));
            }
            walls[side].push(run.wall.as_secs_f64());
            cpus[side] += cpu_seconds(daemon_pid) - before;
            last[side] = Some(run);
        }
    }
    let names = [sides[0].name(), sides[1].name()];
    let mut named =
        names.into_iter().zip(last).map(|(name, run)| (name, run.expect("there is a round at least")));
    let last = std::array::from_fn(|_| named.next().expect("there are two sides"));
    Ok((walls, daemon_pid.map(|_| cpus), last))
}

/// CPU seconds that this process and the daemon have used together.
fn cpu_seconds(daemon_pid: Option<u32>) -> f64 {
    let Some(pid) = daemon_pid else { return 0.0 };
    process_cpu_seconds("self") + process_cpu_seconds(&pid.to_string())
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
        println!(
            "throughput of the daemon: {:.1} % (rounds {})",
            comparison.ratio * 100.0,
            by_round.join(", ")
        );
        if let Some(ratio) = comparison.cpu_ratio {
            println!("by CPU time: {:.1} %", ratio * 100.0);
        }
    }
    for side in [embedded, daemon] {
        let report = &side.last_round;
        if report.verified != report.jobs {
            return Err(Failure::failed(format!("{}: a proof does not hold", report.target)));
        }
    }
    if comparison.ratio.max(comparison.cpu_ratio.unwrap_or(0.0)) < RATIO_MIN {
        return Err(Failure::failed(format!(
            "the daemon has less than {:.0} % of the throughput",
            RATIO_MIN * 100.0
        )));
    }
    Ok(())
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
