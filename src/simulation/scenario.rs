//! A scenario: a machine, the circuits it proves, who asks for proofs and when, what fails, and what is claimed of it.
//!
//! `scenarios/` in the repository holds some; each key is explained here.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::backend::sim::{FaultKind, FaultScript, SimCircuit};
use crate::backend::Stage;
use crate::circuits::catalogue::CircuitSpec;
use crate::circuits::WorkKind;
use crate::config::ByteSize;
use crate::error::ConfigError;
use crate::groth16::domain::quotient_bytes;
use crate::messages::job::Priority;
use crate::messages::synthesis::PartitionNeeds;
use crate::policy::plan::{EvaluationSummary, Query, ShapeSummary, SrsSummary};

/// Longest simulation: some thousand years of milliseconds still fit every clock.
const HOURS_MAX: f64 = 10_000_000.0;

/// Everything a simulation needs to know.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    pub name: String,
    /// What is to be learnt from it.
    #[serde(default)]
    pub about: String,
    /// Simulated time in which jobs arrive. Those that are under way then are ended before the report.
    pub hours: f64,
    #[serde(default)]
    pub seed: u64,
    pub host: HostScenario,
    #[serde(default)]
    pub engine: EngineScenario,
    #[serde(rename = "device")]
    pub devices: Vec<DeviceScenario>,
    #[serde(rename = "circuit")]
    pub circuits: Vec<CircuitScenario>,
    #[serde(rename = "stream")]
    pub streams: Vec<StreamScenario>,
    #[serde(default)]
    pub expect: Expectations,
}

/// `[host]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostScenario {
    /// Witnesses, verifications and loads at a time.
    pub workers: usize,
    /// As `[memory] budget` of the engine's configuration: circuits and witnesses.
    pub memory: ByteSize,
    /// Of parameter files, checked.
    #[serde(default = "one")]
    pub read_gib_per_s: f64,
}

/// `[engine]`: keys of the engine's configuration that matter here, with their defaults.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EngineScenario {
    pub max_queued_jobs: usize,
    pub max_attempts: u32,
    pub aging_step_s: f64,
    pub affinity_limit_s: f64,
    /// 1: no batches, and no passes over streamed queries that partitions share.
    pub batch_partitions: u32,
    pub batch_limit_s: f64,
    pub critical_reserve: ByteSize,
    pub max_restarts: u32,
    pub restart_window_s: f64,
    pub quarantine_s: f64,
    /// Least limits of the watchdog: of a computing stage, and of an upload.
    pub watchdog_s: f64,
    pub upload_watchdog_s: f64,
    /// How often actors look at the clock. Shorter than the engine's own would be needlessly slow: hangs are seen and
    /// deadlines expire on this grid, everything else happens at once.
    pub tick_s: f64,
}

impl Default for EngineScenario {
    fn default() -> Self {
        Self {
            max_queued_jobs: 256,
            max_attempts: 3,
            aging_step_s: 300.0,
            affinity_limit_s: 30.0,
            batch_partitions: 32,
            batch_limit_s: 120.0,
            critical_reserve: ByteSize(0),
            max_restarts: 3,
            restart_window_s: 60.0,
            quarantine_s: 60.0,
            watchdog_s: 120.0,
            upload_watchdog_s: 600.0,
            tick_s: 1.0,
        }
    }
}

/// `[[device]]`: `count` devices of one kind, named `sim-0`, `sim-1`, … in the order of the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceScenario {
    pub model: String,
    #[serde(default = "one_device")]
    pub count: u32,
    /// Nine tenths of it are used, as by the engine.
    pub vram: ByteSize,
    #[serde(default = "two_lanes")]
    pub lanes: u32,
    #[serde(default = "one_device")]
    pub critical_lanes: u32,
    /// Beside a device that takes the circuits' stage times as they are: 0.5 takes twice as long.
    #[serde(default = "one")]
    pub speed: f64,
    /// From host memory to the device: loads and streams of proving keys.
    pub link_gib_per_s: f64,
    /// Stage times differ by chance by up to so many percent either way.
    #[serde(default)]
    pub jitter_percent: f64,
    /// Scripted faults of every device of this kind, as in `sim:2;0:hang@1.sum_l` behind the colon.
    #[serde(default)]
    pub faults: String,
    /// Chances of faults per partition, in millionths: `hang`, `corrupt`, `sticky`, `panic`.
    #[serde(default)]
    pub faults_per_million: BTreeMap<String, u32>,
}

/// `[[circuit]]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CircuitScenario {
    /// Of the catalogue (`cuzk circuits`), whose sizes it then has, or any name with sizes of its own.
    pub id: String,
    pub kind: WorkKind,
    #[serde(default)]
    pub sizes: Option<SizesScenario>,
    pub stage_ms: StageMillis,
    /// Of one witness, with its check, on one worker.
    pub witness_s: f64,
    /// Of one proof's verification.
    #[serde(default = "five")]
    pub verify_ms: f64,
    /// Of the host's own proof, made only to tell a wrong key from a wrong device.
    #[serde(default = "hundred")]
    pub host_proof_s: f64,
}

/// Sizes of a circuit that the catalogue does not know.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SizesScenario {
    pub constraints: u64,
    pub inputs: u64,
    pub aux: u64,
    /// Of the variables that occur in B, in thousandths.
    pub b_per_mille: u64,
    /// Aux variables that the constraints do not make bits: those take 32 B of host memory each. Else all of them.
    #[serde(default)]
    pub dense: Option<u64>,
    /// Device memory that its matrices take: a device with room for them makes the row values itself. Without it, or
    /// without `dense`, the host does.
    #[serde(default)]
    pub shape_bytes: Option<u64>,
}

/// Device time of each stage in milliseconds, with the proving key resident.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StageMillis {
    pub upload: f64,
    #[serde(default)]
    pub evaluate: f64,
    pub quotient: f64,
    pub sum_h: f64,
    pub sum_l: f64,
    pub sum_a: f64,
    pub sum_b_g1: f64,
    pub sum_b_g2: f64,
    pub assemble: f64,
}

/// `[[stream]]`: callers of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamScenario {
    pub circuit: String,
    pub partitions: u32,
    pub arrivals: Arrivals,
    /// From submission. Without one, a job takes as long as it takes.
    #[serde(default)]
    pub deadline_s: Option<f64>,
    /// Else the kind's own.
    #[serde(default)]
    pub priority: Option<Priority>,
}

/// When jobs of a stream arrive.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Arrivals {
    /// One by one, independent of each other.
    Poisson { per_hour: f64 },
    /// `jobs` at once, every `every_s`, the first ones at `offset_s`: deadline windows.
    Windows {
        every_s: f64,
        jobs: u32,
        #[serde(default)]
        offset_s: f64,
    },
    /// `jobs` at once, at times independent of each other.
    Bursts { per_hour: f64, jobs: u32 },
    /// So many are there at all times: when one ends the next one comes.
    Backlog { jobs: u32 },
}

/// `[expect]`: claims. A simulation whose claims do not hold fails. That no job is lost and no proof wrong is always
/// claimed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Expectations {
    /// Jobs that failed, other than by their deadline, at most.
    pub failed_max: Option<u64>,
    /// Requests that were refused at most.
    pub refused_max: Option<u64>,
    pub missed_deadlines_max: Option<u64>,
    /// These devices, and no others, are found to be bad: quarantined at least once, or given up.
    pub quarantined: Option<Vec<String>>,
    /// Of each device that is not in `quarantined`: part of the time in which it computes.
    pub utilisation_min: Option<f64>,
    /// By kind: seconds from submission until 99 of 100 jobs have ended.
    pub total_p99_s: BTreeMap<WorkKind, f64>,
    /// By kind: seconds from submission until 99 of 100 jobs have begun on a device.
    pub start_p99_s: BTreeMap<WorkKind, f64>,
    /// Partitions verified per hour at least.
    pub partitions_per_hour_min: Option<f64>,
    /// Partitions that were tried again at least: the faults did strike.
    pub retries_min: Option<u64>,
}

fn one() -> f64 {
    1.0
}

fn five() -> f64 {
    5.0
}

fn hundred() -> f64 {
    100.0
}

fn one_device() -> u32 {
    1
}

fn two_lanes() -> u32 {
    2
}

fn bad(key: impl Into<String>, what: impl Into<String>) -> ConfigError {
    ConfigError::Value { key: key.into(), what: what.into() }
}

fn within(key: &str, has: f64, min: f64, max: f64) -> Result<(), ConfigError> {
    if (min..=max).contains(&has) {
        return Ok(());
    }
    Err(bad(key, format!("needs {min} to {max}, has {has}")))
}

/// Seconds of a scenario as a time; they were checked to be none below zero.
pub(super) fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.max(0.0))
}

impl Scenario {
    /// # Errors
    /// [`ConfigError::Read`] if it cannot be read or is no scenario, [`ConfigError::Value`] naming a wrong value.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let read = |what: String| ConfigError::Read { path: path.display().to_string(), what };
        let text = std::fs::read_to_string(path).map_err(|error| read(error.to_string()))?;
        let scenario: Self = toml::from_str(&text).map_err(|error| read(error.to_string()))?;
        scenario.validate()?;
        Ok(scenario)
    }

    /// Checks what types alone cannot say.
    ///
    /// # Errors
    /// [`ConfigError::Value`] naming the first key whose value cannot be used.
    pub fn validate(&self) -> Result<(), ConfigError> {
        within("hours", self.hours, 0.001, HOURS_MAX)?;
        within("host.workers", self.host.workers as f64, 1.0, 4096.0)?;
        within("host.read_gib_per_s", self.host.read_gib_per_s, 0.001, 1000.0)?;
        within("engine.max_attempts", self.engine.max_attempts.into(), 1.0, 100.0)?;
        within("engine.tick_s", self.engine.tick_s, 0.001, 60.0)?;
        for (key, has) in [
            ("engine.aging_step_s", self.engine.aging_step_s),
            ("engine.restart_window_s", self.engine.restart_window_s),
            ("engine.quarantine_s", self.engine.quarantine_s),
            ("engine.watchdog_s", self.engine.watchdog_s),
            ("engine.upload_watchdog_s", self.engine.upload_watchdog_s),
        ] {
            within(key, has, 0.001, 86_400.0)?;
        }
        within("engine.affinity_limit_s", self.engine.affinity_limit_s, 0.0, 86_400.0)?;
        within("engine.batch_partitions", self.engine.batch_partitions.into(), 1.0, 1e6)?;
        within("engine.batch_limit_s", self.engine.batch_limit_s, 0.0, 86_400.0)?;
        if self.devices.is_empty() || self.circuits.is_empty() || self.streams.is_empty() {
            return Err(bad("scenario", "needs a [[device]], a [[circuit]] and a [[stream]] at least"));
        }
        self.devices.iter().try_for_each(DeviceScenario::validate)?;
        self.circuits.iter().try_for_each(CircuitScenario::validate)?;
        self.streams.iter().try_for_each(|stream| self.validate_stream(stream))
    }

    fn validate_stream(&self, stream: &StreamScenario) -> Result<(), ConfigError> {
        if self.circuit(&stream.circuit).is_none() {
            return Err(bad("stream.circuit", format!("no [[circuit]] has the id `{}`", stream.circuit)));
        }
        within("stream.partitions", stream.partitions.into(), 1.0, 1024.0)?;
        if let Some(deadline_s) = stream.deadline_s {
            within("stream.deadline_s", deadline_s, 0.001, 1e7)?;
        }
        match stream.arrivals {
            Arrivals::Poisson { per_hour } => within("stream.arrivals.per_hour", per_hour, 1e-6, 1e6),
            Arrivals::Windows { every_s, jobs, offset_s } => {
                within("stream.arrivals.every_s", every_s, 0.001, 1e7)?;
                within("stream.arrivals.offset_s", offset_s, 0.0, 1e7)?;
                within("stream.arrivals.jobs", jobs.into(), 1.0, 100_000.0)
            }
            Arrivals::Bursts { per_hour, jobs } => {
                within("stream.arrivals.per_hour", per_hour, 1e-6, 1e6)?;
                within("stream.arrivals.jobs", jobs.into(), 1.0, 100_000.0)
            }
            Arrivals::Backlog { jobs } => within("stream.arrivals.jobs", jobs.into(), 1.0, 100_000.0),
        }
    }

    pub fn horizon(&self) -> Duration {
        seconds(self.hours * 3600.0)
    }

    pub(super) fn circuit(&self, id: &str) -> Option<&CircuitScenario> {
        self.circuits.iter().find(|circuit| circuit.id == id)
    }
}

impl DeviceScenario {
    fn validate(&self) -> Result<(), ConfigError> {
        within("device.count", self.count.into(), 1.0, 64.0)?;
        within("device.lanes", self.lanes.into(), 1.0, 16.0)?;
        within("device.critical_lanes", self.critical_lanes.into(), 0.0, 16.0)?;
        within("device.speed", self.speed, 0.001, 1000.0)?;
        within("device.link_gib_per_s", self.link_gib_per_s, 0.001, 10_000.0)?;
        within("device.jitter_percent", self.jitter_percent, 0.0, 90.0)?;
        self.script()?;
        self.chances().map(|_| ())
    }

    pub(super) fn script(&self) -> Result<FaultScript, ConfigError> {
        self.faults.parse()
    }

    pub(super) fn chances(&self) -> Result<Vec<(FaultKind, u32)>, ConfigError> {
        let kind_of = |word: &str| match word {
            "hang" => Ok(FaultKind::Hang),
            "corrupt" => Ok(FaultKind::Corrupt),
            "sticky" => Ok(FaultKind::Sticky),
            "panic" => Ok(FaultKind::Panic),
            _ => {
                let what = format!("unknown word `{word}`: hang, corrupt, sticky and panic are known");
                Err(bad("device.faults_per_million", what))
            }
        };
        self.faults_per_million.iter().map(|(word, rate)| Ok((kind_of(word)?, *rate))).collect()
    }
}

impl CircuitScenario {
    fn validate(&self) -> Result<(), ConfigError> {
        let StageMillis { upload, evaluate, quotient, sum_h, sum_l, sum_a, sum_b_g1, sum_b_g2, assemble } =
            self.stage_ms;
        for has in [upload, evaluate, quotient, sum_h, sum_l, sum_a, sum_b_g1, sum_b_g2, assemble] {
            within("circuit.stage_ms", has, 0.0, 1e7)?;
        }
        within("circuit.witness_s", self.witness_s, 0.0, 1e5)?;
        within("circuit.verify_ms", self.verify_ms, 0.0, 1e6)?;
        within("circuit.host_proof_s", self.host_proof_s, 0.0, 1e6)?;
        self.known_sizes().map(|_| ())
    }

    fn known_sizes(&self) -> Result<SizesScenario, ConfigError> {
        if let Some(sizes) = self.sizes {
            within("circuit.sizes.constraints", sizes.constraints as f64, 1.0, 4e9)?;
            within("circuit.sizes.inputs", sizes.inputs as f64, 1.0, 4e9)?;
            within("circuit.sizes.aux", sizes.aux as f64, 1.0, 4e9)?;
            within("circuit.sizes.b_per_mille", sizes.b_per_mille as f64, 0.0, 1000.0)?;
            return Ok(sizes);
        }
        let unknown = || {
            bad("circuit.sizes", format!("the catalogue does not know the sizes of `{}`: give them", self.id))
        };
        let known = CircuitSpec::by_id(&self.id).and_then(|spec| spec.sizes()).ok_or_else(unknown)?;
        let b_per_mille = match self.kind {
            WorkKind::PorepC2 | WorkKind::SnapUpdate | WorkKind::Custom => 257,
            WorkKind::WindowPost | WorkKind::WinningPost => 646,
        };
        let (constraints, inputs, aux) = (known.constraints, known.num_inputs, known.num_aux);
        let (dense, shape_bytes) = (known.num_dense, known.image_bytes);
        Ok(SizesScenario { constraints, inputs, aux, b_per_mille, dense, shape_bytes })
    }

    /// The circuit as a device sees it.
    ///
    /// # Panics
    /// If the scenario was not validated.
    pub(super) fn simulated(&self) -> SimCircuit {
        let sizes = self.known_sizes().expect("the scenario was validated");
        let num_rows = sizes.constraints + sizes.inputs;
        let domain_log2 = num_rows.next_power_of_two().ilog2();
        let b = sizes.aux * sizes.b_per_mille / 1000;
        let queries = [(1 << domain_log2) - 1, sizes.aux, sizes.inputs + sizes.aux, b, b];
        SimCircuit {
            shape: ShapeSummary {
                domain_log2,
                num_rows,
                num_inputs: sizes.inputs,
                num_aux: sizes.aux,
                evaluation: EvaluationSummary::known(sizes.dense, sizes.shape_bytes),
            },
            srs: SrsSummary::new(queries),
            stage_durations: self.stage_ms.durations(),
        }
    }

    /// Of one partition, in host memory.
    ///
    /// # Panics
    /// If the scenario was not validated.
    pub(super) fn partition_needs(&self) -> PartitionNeeds {
        let sizes = self.known_sizes().expect("the scenario was validated");
        let num_scalars = sizes.inputs + sizes.dense.unwrap_or(sizes.aux);
        PartitionNeeds {
            witness_bytes: 32 * num_scalars + 8 * sizes.aux.div_ceil(64),
            host_proof_bytes: quotient_bytes(self.simulated().shape.domain_log2),
        }
    }

    /// In host memory: the proving key in blst's form, and the shape at some 40 B a row.
    pub(super) fn host_bytes(&self) -> u64 {
        const SHAPE_BYTES_PER_ROW: u64 = 40;
        let simulated = self.simulated();
        let points = |query| simulated.srs.num_points(query);
        let g1: u64 = [Query::H, Query::L, Query::A, Query::BG1].into_iter().map(points).sum();
        96 * g1 + 192 * points(Query::BG2) + SHAPE_BYTES_PER_ROW * simulated.shape.num_rows
    }
}

impl StageMillis {
    fn durations(&self) -> [Duration; 9] {
        Stage::ALL.map(|stage| {
            let millis = match stage {
                Stage::Upload => self.upload,
                Stage::Evaluate => self.evaluate,
                Stage::Quotient => self.quotient,
                Stage::SumH => self.sum_h,
                Stage::SumL => self.sum_l,
                Stage::SumA => self.sum_a,
                Stage::SumBG1 => self.sum_b_g1,
                Stage::SumBG2 => self.sum_b_g2,
                Stage::Assemble => self.assemble,
            };
            seconds(millis / 1000.0)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = r#"
        name = "small"
        hours = 1.0
        [host]
        workers = 1
        memory = "9GiB"
        [[device]]
        model = "card"
        vram = "8GiB"
        link_gib_per_s = 10.0
        [[circuit]]
        id = "porep-2k"
        kind = "porep-c2"
        stage_ms = { upload = 1, quotient = 1, sum_h = 1, sum_l = 1, sum_a = 1, sum_b_g1 = 1, sum_b_g2 = 1, assemble = 1 }
        witness_s = 1.0
        [[stream]]
        circuit = "porep-2k"
        partitions = 1
        arrivals = { poisson = { per_hour = 6.0 } }
    "#;

    fn with(from: &str, to: &str) -> Result<Scenario, String> {
        let text = SMALL.replace(from, to);
        let scenario: Scenario = toml::from_str(&text).map_err(|error| error.to_string())?;
        scenario.validate().map_err(|error| error.to_string())?;
        Ok(scenario)
    }

    #[test]
    fn sizes_are_the_catalogues() {
        let scenario = with("", "").unwrap();
        let simulated = scenario.circuits[0].simulated();
        assert_eq!((simulated.shape.domain_log2, simulated.shape.num_aux), (22, 2_685_673));
        assert_eq!(simulated.stage_durations[Stage::SumH.index()], Duration::from_millis(1));
        // The parameter file has 1.11 GB; the shape comes on top.
        assert!((1_100_000_000..1_400_000_000).contains(&scenario.circuits[0].host_bytes()));
    }

    #[test]
    fn mistakes_are_named() {
        for (from, to, word) in [
            ("hours = 1.0", "hours = -1.0", "hours"),
            ("hours = 1.0", "hours = 1.0\nhour = 2", "unknown field `hour`"),
            ("workers = 1", "workers = 0", "host.workers"),
            ("\"8GiB\"", "\"8GB\"", "is no size"),
            ("model = \"card\"", "model = \"card\"\nfaults = \"hung\"", "unknown word `hung`"),
            ("model = \"card\"", "model = \"card\"\nfaults_per_million = { sad = 3 }", "unknown word `sad`"),
            ("id = \"porep-2k\"", "id = \"mine\"", "`mine`"),
            ("circuit = \"porep-2k\"", "circuit = \"other\"", "no [[circuit]]"),
            ("poisson = { per_hour = 6.0 }", "poisson = { per_hour = 0.0 }", "per_hour"),
        ] {
            let error = with(from, to).expect_err(to);
            assert!(error.contains(word), "{to}: {error}");
        }
    }
}
