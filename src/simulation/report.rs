//! What a simulation found: figures and claims, as text and as JSON.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::books::{DeviceFigures, Figures, KindFigures};
use super::scenario::Scenario;
use crate::circuits::WorkKind;
use crate::config::ByteSize;
use crate::messages::events::JobOutcome;

/// Of a list of times, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Percentiles {
    pub p50_s: f64,
    pub p90_s: f64,
    pub p99_s: f64,
    pub max_s: f64,
}

/// Jobs of one kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KindReport {
    pub accepted: u64,
    pub refused: u64,
    pub completed: u64,
    pub failed: u64,
    pub cancelled: u64,
    /// Jobs with a deadline that gave no proof by then, for whatever reason.
    pub missed_deadlines: u64,
    /// Partitions that were tried again.
    pub retries: u64,
    pub jobs_per_hour: f64,
    pub partitions_per_hour: f64,
    /// From submission until the first partition was on a device.
    pub start: Percentiles,
    /// From submission until the proof, of completed jobs.
    pub total: Percentiles,
}

/// One device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceReport {
    pub model: String,
    /// Part of the simulated time in which a stage ran.
    pub utilisation: f64,
    pub partitions_verified: u64,
    pub attempts_failed: u64,
    pub invalid_proofs: u64,
    pub quarantines: u64,
    pub times_down: u64,
    pub is_gone: bool,
    pub memory_bytes: u64,
    pub peak_reserved_bytes: u64,
    pub peak_in_use_bytes: u64,
}

/// A claim of the scenario, and whether it holds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClaimResult {
    pub claim: String,
    pub has: String,
    pub holds: bool,
}

/// Everything that was found. The same scenario and seed give the same report, to the byte of its JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    pub scenario: String,
    pub hours: f64,
    pub seed: u64,
    pub kinds: BTreeMap<WorkKind, KindReport>,
    pub devices: BTreeMap<String, DeviceReport>,
    pub partitions_per_hour: f64,
    pub missed_deadlines: u64,
    pub retries: u64,
    /// Jobs that were accepted and never answered.
    pub lost_jobs: u64,
    /// Jobs that were about to be answered with a wrong proof.
    pub wrong_proofs: u64,
    pub peak_jobs: u64,
    pub peak_witness_bytes: u64,
    pub peak_circuit_bytes: u64,
    pub num_events: u64,
    pub claims: Vec<ClaimResult>,
}

impl Report {
    pub(super) fn new(scenario: &Scenario, figures: Figures, wrong_proofs: u64) -> Self {
        let hours = scenario.hours;
        let devices = figures.devices.into_iter();
        let kinds = figures.kinds.into_iter();
        let mut report = Self {
            scenario: scenario.name.clone(),
            hours,
            seed: scenario.seed,
            kinds: kinds.map(|(kind, figures)| (kind, kind_report(figures, hours))).collect(),
            devices: devices.map(|(id, figures)| (id.to_string(), device_report(figures, hours))).collect(),
            partitions_per_hour: rounded(figures.partitions_in_time as f64 / hours),
            missed_deadlines: 0,
            retries: 0,
            lost_jobs: figures.lost,
            wrong_proofs,
            peak_jobs: figures.peak_queued_jobs,
            peak_witness_bytes: figures.peak_witness_bytes,
            peak_circuit_bytes: figures.peak_circuit_bytes,
            num_events: figures.num_events,
            claims: Vec::new(),
        };
        report.missed_deadlines = report.kinds.values().map(|kind| kind.missed_deadlines).sum();
        report.retries = report.kinds.values().map(|kind| kind.retries).sum();
        report.claims = claims(scenario, &report);
        report
    }

    /// Every claim holds.
    pub fn holds(&self) -> bool {
        self.claims.iter().all(|claim| claim.holds)
    }
}

fn kind_report(mut figures: KindFigures, hours: f64) -> KindReport {
    let ended = |outcome| figures.ended.get(&outcome).copied().unwrap_or(0);
    let completed = ended(JobOutcome::Completed);
    KindReport {
        accepted: figures.accepted,
        refused: figures.refused,
        completed,
        failed: ended(JobOutcome::Failed),
        cancelled: ended(JobOutcome::Cancelled),
        missed_deadlines: figures.missed_deadlines,
        retries: figures.retries,
        jobs_per_hour: rounded(completed as f64 / hours),
        partitions_per_hour: rounded(figures.partitions as f64 / hours),
        start: percentiles(&mut figures.start_ms),
        total: percentiles(&mut figures.total_ms),
    }
}

fn device_report(figures: DeviceFigures, hours: f64) -> DeviceReport {
    DeviceReport {
        model: figures.name,
        utilisation: rounded(figures.computes.total_us() as f64 / (hours * 3600e6)),
        partitions_verified: figures.verified,
        attempts_failed: figures.failed,
        invalid_proofs: figures.invalid,
        quarantines: figures.quarantines,
        times_down: figures.times_down,
        is_gone: figures.is_gone,
        memory_bytes: figures.memory_bytes,
        peak_reserved_bytes: figures.peak_reserved_bytes,
        peak_in_use_bytes: figures.peak_in_use_bytes,
    }
}

/// Nearest rank: the smallest value that so many of a hundred do not exceed.
fn percentiles(millis: &mut [u32]) -> Percentiles {
    millis.sort_unstable();
    let at = |percent: usize| match millis.len() {
        0 => 0.0,
        count => f64::from(millis[(count * percent).div_ceil(100).max(1) - 1]) / 1000.0,
    };
    Percentiles { p50_s: at(50), p90_s: at(90), p99_s: at(99), max_s: at(100) }
}

/// To three places: what is left would only be noise of the division.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

fn at_most(claims: &mut Vec<ClaimResult>, what: &str, has: f64, limit: f64) {
    claims.push(ClaimResult {
        claim: format!("{what} ≤ {limit}"),
        has: has.to_string(),
        holds: has <= limit,
    });
}

fn at_least(claims: &mut Vec<ClaimResult>, what: &str, has: f64, limit: f64) {
    claims.push(ClaimResult {
        claim: format!("{what} ≥ {limit}"),
        has: has.to_string(),
        holds: has >= limit,
    });
}

fn claims(scenario: &Scenario, report: &Report) -> Vec<ClaimResult> {
    let expect = &scenario.expect;
    let mut claims = Vec::new();
    at_most(&mut claims, "lost jobs", report.lost_jobs as f64, 0.0);
    at_most(&mut claims, "wrong proofs", report.wrong_proofs as f64, 0.0);
    let total = |of: fn(&KindReport) -> u64| report.kinds.values().map(of).sum::<u64>() as f64;
    if let Some(limit) = expect.failed_max {
        at_most(&mut claims, "failed jobs", total(|kind| kind.failed), limit as f64);
    }
    if let Some(limit) = expect.refused_max {
        at_most(&mut claims, "refused requests", total(|kind| kind.refused), limit as f64);
    }
    if let Some(limit) = expect.missed_deadlines_max {
        at_most(&mut claims, "missed deadlines", report.missed_deadlines as f64, limit as f64);
    }
    if let Some(limit) = expect.partitions_per_hour_min {
        at_least(&mut claims, "partitions per hour", report.partitions_per_hour, limit);
    }
    if let Some(limit) = expect.retries_min {
        at_least(&mut claims, "retries", report.retries as f64, limit as f64);
    }
    claim_devices(&mut claims, scenario, report);
    for (what, limits) in
        [("p99 until the proof", &expect.total_p99_s), ("p99 until begun", &expect.start_p99_s)]
    {
        for (kind, limit) in limits {
            let times = report.kinds.get(kind).map(|kind| (kind.total, kind.start)).unwrap_or_default();
            let has = if what.ends_with("begun") { times.1.p99_s } else { times.0.p99_s };
            at_most(&mut claims, &format!("{kind}: {what}, s"), has, *limit);
        }
    }
    claims
}

fn claim_devices(claims: &mut Vec<ClaimResult>, scenario: &Scenario, report: &Report) {
    let bad = scenario.expect.quarantined.clone();
    if let Some(wanted) = &bad {
        let is_found = |device: &DeviceReport| device.quarantines > 0 || device.is_gone;
        let found: Vec<&str> =
            report.devices.iter().filter(|(_, device)| is_found(device)).map(|(id, _)| id.as_str()).collect();
        claims.push(ClaimResult {
            claim: format!("devices found bad: {}", list(wanted)),
            has: list(&found),
            holds: found == *wanted,
        });
    }
    if let Some(limit) = scenario.expect.utilisation_min {
        for (id, device) in &report.devices {
            if !bad.iter().flatten().any(|bad| bad == id) {
                at_least(claims, &format!("utilisation of {id}"), device.utilisation, limit);
            }
        }
    }
}

fn list<T: AsRef<str>>(names: &[T]) -> String {
    match names {
        [] => "none".to_owned(),
        names => names.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(", "),
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {} simulated hours, seed {}", self.scenario, self.hours, self.seed)?;
        writeln!(
            f,
            "\n{:<13} {:>8} {:>8} {:>7} {:>7} {:>7} {:>7} {:>9} | {:>8} {:>8} {:>8} | {:>8} {:>8} {:>8} {:>8}",
            "kind", "accepted", "complete", "failed", "refused", "missed", "retries", "parts/h", "start50",
            "start99", "startmax", "total50", "total90", "total99", "totalmax"
        )?;
        for (kind, of) in &self.kinds {
            writeln!(
                f,
                "{:<13} {:>8} {:>8} {:>7} {:>7} {:>7} {:>7} {:>9.1} | {:>8.1} {:>8.1} {:>8.1} | {:>8.1} {:>8.1} \
                 {:>8.1} {:>8.1}",
                kind.as_str(), of.accepted, of.completed, of.failed, of.refused, of.missed_deadlines, of.retries,
                of.partitions_per_hour, of.start.p50_s, of.start.p99_s, of.start.max_s, of.total.p50_s,
                of.total.p90_s, of.total.p99_s, of.total.max_s
            )?;
        }
        writeln!(f, "(start: from submission to a device; total: to the proof; seconds)")?;
        writeln!(
            f,
            "\n{:<8} {:<22} {:>6} {:>9} {:>7} {:>8} {:>11} {:>6} {:>12}",
            "device", "model", "busy", "verified", "failed", "invalid", "quarantines", "down", "VRAM peak"
        )?;
        for (id, device) in &self.devices {
            writeln!(
                f,
                "{id:<8} {:<22} {:>5.1}% {:>9} {:>7} {:>8} {:>11} {:>6} {:>12}",
                device.model,
                device.utilisation * 100.0,
                device.partitions_verified,
                device.attempts_failed,
                device.invalid_proofs,
                device.quarantines,
                device.times_down,
                gib(device.peak_reserved_bytes)
            )?;
        }
        writeln!(
            f,
            "\n{} partitions an hour; at most {} jobs at a time; host memory at most {} of witnesses, {} of circuits; \
             {} events",
            self.partitions_per_hour, self.peak_jobs, gib(self.peak_witness_bytes), gib(self.peak_circuit_bytes),
            self.num_events
        )?;
        writeln!(f)?;
        for claim in &self.claims {
            let verdict = if claim.holds { "holds" } else { "DOES NOT HOLD" };
            writeln!(f, "{verdict}: {} (has {})", claim.claim, claim.has)?;
        }
        Ok(())
    }
}

fn gib(num_bytes: u64) -> String {
    match num_bytes {
        0 => ByteSize(0).to_string(),
        bytes => format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let mut hundred: Vec<u32> = (1..=100).rev().map(|second| second * 1000).collect();
        let found = percentiles(&mut hundred);
        assert_eq!(found, Percentiles { p50_s: 50.0, p90_s: 90.0, p99_s: 99.0, max_s: 100.0 });
        assert_eq!(
            percentiles(&mut [7]),
            Percentiles { p50_s: 0.007, p90_s: 0.007, p99_s: 0.007, max_s: 0.007 }
        );
        assert_eq!(percentiles(&mut []), Percentiles::default());
    }
}
