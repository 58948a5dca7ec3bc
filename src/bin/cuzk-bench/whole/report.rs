//! Where the time of whole jobs went.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::fs;
use std::time::Duration;

use cuzk::backend::Stage;
use cuzk::config::MemoryBudget;
use cuzk::messages::events::{Event, EventKind};
use cuzk::messages::job::ProofOutcome;
use cuzk::telemetry::process::{peak_resident_bytes, resident_bytes};
use cuzk::timeline::Timeline;
use serde::Serialize;

use crate::percentiles::Percentiles;
use crate::Failure;

/// What the ids of requests that are measured begin with.
pub const REQUEST_PREFIX: &str = "whole-";

/// Times in seconds, memory in bytes.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    circuit: String,
    /// What came before the first engine.
    before: Vec<(&'static str, f64)>,
    pub key_bytes: u64,
    pub runs: Vec<Run>,
}

/// The jobs of one engine, whose device has one budget.
#[derive(Debug, Default, Serialize)]
pub struct Run {
    /// Of device memory: a size, or `auto` for nine tenths of what there is.
    budget: MemoryBudget,
    key_to_device_s: f64,
    /// Shape and key in host memory.
    pub circuit_bytes: u64,
    /// Of the key and the shape, on the device.
    pub resident_bytes: u64,
    proofs: Vec<Proof>,
    rounds: Vec<Round>,
    /// From the first request to the last verified proof, checks of ours between rounds included.
    total_s: f64,
    /// The most that this process had, from the first proof on. `None`: the system does not say.
    host_peak_bytes: Option<u64>,
    /// The same above what it had before the first proof.
    host_above_bytes: Option<u64>,
    #[serde(skip)]
    host_before_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beside: Option<Beside>,
}

/// Jobs of another circuit that came one by one, from request to verified proof. Of the rounds' figures those of the device
/// and its memory hold both kinds.
#[derive(Debug, Serialize)]
pub struct Beside {
    circuit: String,
    num_alone: usize,
    alone_ms: Percentiles,
    num_under_load: usize,
    under_load_ms: Percentiles,
}

impl Beside {
    pub fn new(circuit: String, alone: Vec<Duration>, under_load: Vec<Duration>) -> Self {
        let spread =
            |times: &[Duration]| Percentiles::of(times.iter().map(|time| 1e3 * time.as_secs_f64()).collect());
        Self {
            circuit,
            num_alone: alone.len(),
            alone_ms: spread(&alone),
            num_under_load: under_load.len(),
            under_load_ms: spread(&under_load),
        }
    }
}

impl fmt::Display for Beside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = [
            ("alone", self.num_alone, &self.alone_ms),
            ("under the load", self.num_under_load, &self.under_load_ms),
        ];
        lines.iter().try_for_each(|(what, jobs, times)| {
            let Percentiles { mean, p50, p90, p99, max } = times;
            writeln!(
                f,
                "{} {what}, {jobs} jobs: mean {mean:.1} ms, p50 {p50:.1}, p90 {p90:.1}, p99 {p99:.1}, most {max:.1}",
                self.circuit
            )
        })
    }
}

/// One job.
#[derive(Debug, Serialize)]
pub struct Proof {
    pub num_partitions: usize,
    #[serde(serialize_with = "in_seconds")]
    pub wall: Duration,
    decode_s: f64,
    /// Sums over partitions.
    witness_s: f64,
    verify_s: f64,
    retries: u32,
    /// Once more after the engine's own checks: by our verifier, by Filecoin's.
    checked_s: (f64, f64),
}

impl Proof {
    pub fn new(wall: Duration, decoded: Duration, outcome: &ProofOutcome) -> Self {
        Self {
            num_partitions: outcome.devices.len(),
            wall,
            decode_s: decoded.as_secs_f64(),
            witness_s: outcome.timings.synthesis.as_secs_f64(),
            verify_s: outcome.timings.verify.as_secs_f64(),
            retries: outcome.retries,
            checked_s: (0.0, 0.0),
        }
    }

    pub fn checked_again(&mut self, ours: Duration, library: Duration) {
        self.checked_s = (ours.as_secs_f64(), library.as_secs_f64());
    }
}

/// What the device did for jobs that ran side by side.
#[derive(Debug, Default, Serialize)]
struct Round {
    /// Seconds of each stage, partition by partition in the order of their ends.
    stages: Vec<(Stage, Vec<f64>)>,
    /// From the first kernel stage's begin to the last one's end.
    device_s: f64,
    /// Part of it in which no stage of kernels was under way.
    idle_share: f64,
    /// From the round's first event: when witnesses were made, partitions verified and jobs ended.
    witness_at_s: Vec<f64>,
    verified_at_s: Vec<f64>,
    ended_at_s: Vec<f64>,
    vram_peak_bytes: u64,
    vram_planned_bytes: u64,
}

impl Round {
    fn of(events: &[Event]) -> Self {
        let mut round = Self::default();
        let mut stages: BTreeMap<Stage, Vec<f64>> = BTreeMap::new();
        let begun_us = events.first().map_or(0, |event| event.at_us);
        let since = |event: &Event| event.at_us.saturating_sub(begun_us) as f64 / 1e6;
        // Those of another circuit that come beside have figures of their own.
        let mut own = HashSet::new();
        for event in events {
            match &event.kind {
                EventKind::JobAccepted { job, request_id, .. } if request_id.starts_with(REQUEST_PREFIX) => {
                    own.insert(*job);
                }
                EventKind::StageDone { at, stage, elapsed_us, .. } if own.contains(&at.job) => {
                    stages.entry(*stage).or_default().push(*elapsed_us as f64 / 1e6);
                }
                EventKind::WitnessMade { job, .. } if own.contains(job) => {
                    round.witness_at_s.push(since(event));
                }
                EventKind::PartitionVerified { at, .. } if own.contains(&at.job) => {
                    round.verified_at_s.push(since(event));
                }
                EventKind::JobEnded { job, .. } if own.contains(job) => round.ended_at_s.push(since(event)),
                EventKind::DeviceMemory { in_use_bytes, reserved_bytes, .. } => {
                    round.vram_peak_bytes = round.vram_peak_bytes.max(*in_use_bytes);
                    round.vram_planned_bytes = round.vram_planned_bytes.max(*reserved_bytes);
                }
                _ => {}
            }
        }
        round.stages = stages.into_iter().collect();
        if let Some(device) = Timeline::new(events).devices.values().next() {
            let time = device.kernel_time();
            (round.device_s, round.idle_share) = (time.span_us as f64 / 1e6, time.idle_share());
        }
        round
    }
}

impl Report {
    pub fn new(circuit: &str) -> Self {
        Self { circuit: circuit.to_owned(), ..Self::default() }
    }

    pub fn note(&mut self, what: &'static str, took: Duration) {
        eprintln!("{what}: {}", seconds(took));
        self.before.push((what, took.as_secs_f64()));
    }

    pub fn print(&self, as_json: bool) -> Result<(), Failure> {
        if as_json {
            println!("{}", serde_json::to_string_pretty(self).map_err(Failure::failed)?);
        } else {
            print!("{self}");
        }
        Ok(())
    }
}

impl Run {
    pub fn new(budget: MemoryBudget) -> Self {
        Self { budget, ..Self::default() }
    }

    pub fn key_to_device(&mut self, took: Duration) {
        eprintln!("key to the device: {}", seconds(took));
        self.key_to_device_s = took.as_secs_f64();
    }

    /// What the process takes from now on counts.
    pub fn begin_memory(&mut self) {
        // Resets the peak (proc(5)). Where it may not, the peak is that of the key's making.
        if fs::write("/proc/self/clear_refs", "5").is_ok() {
            self.host_before_bytes = resident_bytes();
        }
    }

    pub fn add(&mut self, proofs: Vec<Proof>, events: &[Event]) {
        self.proofs.extend(proofs);
        self.rounds.push(Round::of(events));
    }

    pub fn end(&mut self, total: Duration) {
        self.total_s = total.as_secs_f64();
        self.host_peak_bytes = peak_resident_bytes();
        let before = self.host_before_bytes;
        self.host_above_bytes =
            self.host_peak_bytes.zip(before).map(|(peak, before)| peak.saturating_sub(before));
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}, key {}", self.circuit, gigabytes(self.key_bytes))?;
        for (what, took) in &self.before {
            writeln!(f, "  {what}: {took:.2} s")?;
        }
        self.runs.iter().try_for_each(|run| run.fmt(f))
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "device memory budget {}: {} of the key resident, copied in {:.2} s",
            self.budget,
            gigabytes(self.resident_bytes),
            self.key_to_device_s
        )?;
        for proof in &self.proofs {
            let (ours, library) = proof.checked_s;
            writeln!(
                f,
                "proof of {} partitions: {:.3} s (decoding {:.3}; on all threads together: witnesses {:.2}, verification {:.3}); {} \
                 retries; checked again in {ours:.3} and {library:.3} s",
                proof.num_partitions,
                proof.wall.as_secs_f64(),
                proof.decode_s,
                proof.witness_s,
                proof.verify_s,
                proof.retries,
            )?;
        }
        for (number, round) in self.rounds.iter().enumerate() {
            writeln!(
                f,
                "round {number}: device {:.3} s, idle {:.2} % of it; VRAM at most {} ({} planned)",
                round.device_s,
                100.0 * round.idle_share,
                gigabytes(round.vram_peak_bytes),
                gigabytes(round.vram_planned_bytes),
            )?;
            for (stage, times) in &round.stages {
                let texts: Vec<String> = times.iter().map(|time| format!("{:.1}", 1e3 * time)).collect();
                writeln!(f, "  {:9} ms: {}", stage.as_str(), texts.join(" "))?;
            }
            let moments = [
                ("witnesses", &round.witness_at_s),
                ("verified", &round.verified_at_s),
                ("job ended", &round.ended_at_s),
            ];
            for (what, moments) in moments {
                let texts: Vec<String> = moments.iter().map(|at| format!("{at:.3}")).collect();
                writeln!(f, "  {what:9} at s: {}", texts.join(" "))?;
            }
        }
        if let Some(beside) = &self.beside {
            beside.fmt(f)?;
        }
        let memory = |bytes: Option<u64>| bytes.map_or_else(|| "unknown".to_owned(), gigabytes);
        writeln!(
            f,
            "{} proofs in {:.3} s; host memory at most {}, {} above that before the first proof",
            self.proofs.len(),
            self.total_s,
            memory(self.host_peak_bytes),
            memory(self.host_above_bytes),
        )
    }
}

fn gigabytes(bytes: u64) -> String {
    format!("{:.2} GB", bytes as f64 / 1e9)
}

pub fn seconds(time: Duration) -> String {
    format!("{:.3} s", time.as_secs_f64())
}

fn in_seconds<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}
