//! What a load gave: throughput, latencies by kind, balance of devices, and how many proofs hold.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use cuzk::circuits::check::check_proof;
use rayon::prelude::*;
use serde::Serialize;

use super::drive::{Record, Run};
use super::inputs::Inputs;
use super::target::Proved;
use super::Setup;
use crate::percentiles::Percentiles;

/// Figures of one run. Times in milliseconds.
#[derive(Serialize)]
pub struct Report {
    /// `single`, `batch` or `stress`.
    pub command: &'static str,
    /// `embedded`, or the daemon's address.
    pub target: String,
    pub seed: u64,
    pub cores: usize,
    /// Until the last job ended.
    pub wall_ms: f64,
    pub jobs: usize,
    pub completed: usize,
    pub failed: usize,
    /// Proofs that hold by our verifier and by the circuit's library. All that completed, or something is wrong.
    pub verified: usize,
    pub jobs_per_minute: f64,
    pub partitions_per_minute: f64,
    pub kinds: BTreeMap<String, KindReport>,
    /// Partitions proved by each device.
    pub devices: BTreeMap<String, DeviceReport>,
    /// By class: how often, and one of them in words.
    pub failures: BTreeMap<String, FailureReport>,
    /// Of every job, in the order of their end.
    pub samples: Vec<Sample>,
}

#[derive(Serialize)]
pub struct KindReport {
    pub jobs: usize,
    pub completed: usize,
    pub failed: usize,
    pub verified: usize,
    /// Waiting before the first witness is begun.
    pub queue_ms: Percentiles,
    pub circuit_load_ms: Percentiles,
    /// All partitions together.
    pub synthesis_ms: Percentiles,
    /// All stages of all partitions together.
    pub device_ms: Percentiles,
    /// As the caller saw it.
    pub total_ms: Percentiles,
}

#[derive(Serialize)]
pub struct DeviceReport {
    pub partitions: usize,
    /// Of all partitions, 0 to 1.
    pub share: f64,
}

#[derive(Serialize)]
pub struct FailureReport {
    pub count: usize,
    pub example: String,
}

#[derive(Serialize)]
pub struct Sample {
    pub kind: String,
    pub begun_ms: f64,
    pub ended_ms: f64,
    /// There is a proof, and it holds.
    pub verified: bool,
}

impl Report {
    /// Checks every proof, on all cores: after the run, so that it takes nothing from it.
    pub fn new(command: &'static str, target: &str, setup: &Setup, inputs: &Inputs, run: Run) -> Self {
        let checks: Vec<Option<Result<(), String>>> =
            run.records.par_iter().map(|record| check(inputs, record)).collect();
        let mut report = Self {
            command,
            target: target.to_owned(),
            seed: setup.args.seed,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            wall_ms: ms(run.wall),
            jobs: run.records.len(),
            completed: 0,
            failed: 0,
            verified: 0,
            jobs_per_minute: 0.0,
            partitions_per_minute: 0.0,
            kinds: BTreeMap::new(),
            devices: BTreeMap::new(),
            failures: BTreeMap::new(),
            samples: Vec::new(),
        };
        for (record, check) in run.records.iter().zip(&checks) {
            report.count(inputs, record, check.as_ref());
        }
        report.add_kinds(inputs, &run.records, &checks);
        let partitions: usize = report.devices.values().map(|device| device.partitions).sum();
        for device in report.devices.values_mut() {
            device.share = device.partitions as f64 / partitions as f64;
        }
        let minutes = run.wall.as_secs_f64() / 60.0;
        report.jobs_per_minute = report.completed as f64 / minutes;
        report.partitions_per_minute = partitions as f64 / minutes;
        report
    }

    fn count(&mut self, inputs: &Inputs, record: &Record, check: Option<&Result<(), String>>) {
        let mut fail = |class: &str, what: &str| {
            let failure = FailureReport { count: 0, example: what.to_owned() };
            self.failures.entry(class.to_owned()).or_insert(failure).count += 1;
        };
        match (&record.result, check) {
            (Err(error), _) => fail(&error.class, &error.what),
            (Ok(_), Some(Err(what))) => fail("invalid proof", what),
            (Ok(_), _) => self.verified += 1,
        }
        match &record.result {
            Err(_) => self.failed += 1,
            Ok(proved) => {
                self.completed += 1;
                for device in &proved.devices {
                    let none = DeviceReport { partitions: 0, share: 0.0 };
                    self.devices.entry(device.clone()).or_insert(none).partitions += 1;
                }
            }
        }
        self.samples.push(Sample {
            kind: inputs.all[record.input].kind.clone(),
            begun_ms: ms(record.begun),
            ended_ms: ms(record.ended),
            verified: matches!(check, Some(Ok(()))),
        });
    }

    fn add_kinds(&mut self, inputs: &Inputs, records: &[Record], checks: &[Option<Result<(), String>>]) {
        for (kind, variants) in &inputs.by_kind {
            let of_kind =
                || records.iter().zip(checks).filter(|(record, _)| variants.contains(&record.input));
            let proved: Vec<(&Record, &Proved)> =
                of_kind().filter_map(|(record, _)| Some((record, record.result.as_ref().ok()?))).collect();
            let of = |time: fn(&Record, &Proved) -> Duration| {
                Percentiles::of(proved.iter().map(|(record, proved)| ms(time(record, proved))).collect())
            };
            let jobs = of_kind().count();
            let report = KindReport {
                jobs,
                completed: proved.len(),
                failed: jobs - proved.len(),
                verified: of_kind().filter(|(_, check)| matches!(check, Some(Ok(())))).count(),
                queue_ms: of(|_, proved| proved.queue),
                circuit_load_ms: of(|_, proved| proved.circuit_load),
                synthesis_ms: of(|_, proved| proved.synthesis),
                device_ms: of(|_, proved| proved.device),
                total_ms: of(|record, _| record.ended - record.begun),
            };
            self.kinds.insert(kind.clone(), report);
        }
    }
}

/// `None`: there is no proof to check.
fn check(inputs: &Inputs, record: &Record) -> Option<Result<(), String>> {
    let proved = record.result.as_ref().ok()?;
    let input = &inputs.all[record.input];
    let checked = check_proof(input.workload.as_ref(), inputs.key(input), &proved.proof);
    Some(checked.map(drop).map_err(|error| error.to_string()))
}

pub fn ms(time: Duration) -> f64 {
    time.as_micros() as f64 / 1000.0
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} on {}, {} cores: {} jobs in {:.1} s, {:.2} jobs and {:.2} partitions a minute",
            self.command,
            self.target,
            self.cores,
            self.jobs,
            self.wall_ms / 1000.0,
            self.jobs_per_minute,
            self.partitions_per_minute
        )?;
        writeln!(
            f,
            "{} completed, {} failed; {} proofs hold, by cuzk's verifier and by Filecoin's",
            self.completed, self.failed, self.verified
        )?;
        let header = ["kind, ms", "jobs", "failed", "mean", "p50", "p90", "p99", "max"];
        writeln!(
            f,
            "\n{:28} {:>6} {:>6} {:>10} {:>10} {:>10} {:>10} {:>10}",
            header[0], header[1], header[2], header[3], header[4], header[5], header[6], header[7]
        )?;
        for (kind, report) in &self.kinds {
            write_kind(f, kind, report)?;
        }
        writeln!(f, "\n{:28} {:>10} {:>8}", "device", "partitions", "share")?;
        for (device, report) in &self.devices {
            writeln!(f, "{device:28} {:>10} {:>6.1} %", report.partitions, report.share * 100.0)?;
        }
        for (class, failure) in &self.failures {
            writeln!(f, "\n{} × {class}: {}", failure.count, failure.example)?;
        }
        Ok(())
    }
}

fn write_kind(f: &mut fmt::Formatter<'_>, kind: &str, report: &KindReport) -> fmt::Result {
    let rows = [
        ("total", &report.total_ms),
        ("queue", &report.queue_ms),
        ("circuit load", &report.circuit_load_ms),
        ("synthesis", &report.synthesis_ms),
        ("device", &report.device_ms),
    ];
    for (index, (name, times)) in rows.iter().enumerate() {
        let (label, jobs, failed) = match index {
            0 => (format!("{kind} {name}"), report.jobs.to_string(), report.failed.to_string()),
            _ => (format!("  {name}"), String::new(), String::new()),
        };
        writeln!(
            f,
            "{label:28} {jobs:>6} {failed:>6} {:>10.1} {:>10.1} {:>10.1} {:>10.1} {:>10.1}",
            times.mean, times.p50, times.p90, times.p99, times.max
        )?;
    }
    Ok(())
}
