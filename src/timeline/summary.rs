//! The figures of a timeline.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::{DeviceTrack, Timeline};
use crate::backend::Stage;
use crate::messages::events::JobOutcome;

/// What a log says in numbers. Times in seconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    pub span_s: f64,
    pub devices: BTreeMap<String, DeviceSummary>,
    pub kinds: BTreeMap<&'static str, KindSummary>,
    pub peak_waiting_partitions: u64,
    pub peak_open_jobs: u64,
    pub peak_witness_bytes: u64,
    /// Events that the log lacks.
    pub num_dropped: u64,
}

/// One device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceSummary {
    pub model: String,
    pub partitions_verified: u64,
    pub attempts_failed: u64,
    /// Part of the time that each lane was busy.
    pub lanes_busy: Vec<f64>,
    /// Between its first kernel and its last: part of the time in which no lane ran any.
    pub kernels_idle: f64,
    pub peak_reserved_bytes: u64,
    pub peak_in_use_bytes: u64,
    /// Mean time of each stage that ran.
    pub stage_mean_s: Vec<(Stage, f64)>,
}

/// Jobs of one kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct KindSummary {
    pub accepted: u64,
    pub completed: u64,
    pub ended_otherwise: u64,
    /// Of completed jobs, from submission to the proof.
    pub total_mean_s: f64,
    pub total_max_s: f64,
}

fn seconds(micros: u64) -> f64 {
    (micros as f64 / 1000.0).round() / 1000.0
}

impl Timeline {
    pub fn summary(&self) -> Summary {
        let peak = |steps: &[super::Step]| steps.iter().map(|step| step.value).max().unwrap_or(0);
        let span_us = self.span_us();
        Summary {
            span_s: seconds(span_us),
            devices: self
                .devices
                .iter()
                .map(|(id, device)| (id.to_string(), device_summary(device, span_us)))
                .collect(),
            kinds: self.kinds(),
            peak_waiting_partitions: peak(&self.waiting),
            peak_open_jobs: peak(&self.open_jobs),
            peak_witness_bytes: peak(&self.witness_bytes),
            num_dropped: self.num_dropped,
        }
    }

    fn kinds(&self) -> BTreeMap<&'static str, KindSummary> {
        let mut kinds: BTreeMap<&'static str, KindSummary> = BTreeMap::new();
        for job in self.jobs.values() {
            let kind = kinds.entry(job.kind.as_str()).or_default();
            kind.accepted += 1;
            match (job.outcome, job.end_us) {
                (Some(JobOutcome::Completed), Some(end_us)) => {
                    let total_s = seconds(end_us - job.begin_us);
                    kind.completed += 1;
                    // A sum for now.
                    kind.total_mean_s += total_s;
                    kind.total_max_s = kind.total_max_s.max(total_s);
                }
                (Some(_), _) => kind.ended_otherwise += 1,
                (None, _) => {}
            }
        }
        for kind in kinds.values_mut() {
            kind.total_mean_s /= kind.completed.max(1) as f64;
        }
        kinds
    }
}

fn device_summary(device: &DeviceTrack, span_us: u64) -> DeviceSummary {
    let mut stages: BTreeMap<Stage, (u64, u64)> = BTreeMap::new();
    for bar in device.lanes.values().flatten() {
        let (count, total_us) = stages.entry(bar.stage).or_default();
        *count += 1;
        *total_us = total_us.saturating_add(bar.end_us - bar.begin_us);
    }
    let busy = |bars: &Vec<super::Bar>| {
        // Not in integers, in which a log may say more than there is room for.
        let busy_us: f64 = bars.iter().map(|bar| (bar.end_us - bar.begin_us) as f64).sum();
        (busy_us / span_us as f64 * 1000.0).round() / 1000.0
    };
    let peak = |steps: &[super::Step]| steps.iter().map(|step| step.value).max().unwrap_or(0);
    DeviceSummary {
        model: device.name.clone(),
        partitions_verified: device.num_verified,
        attempts_failed: device.failures.len() as u64,
        lanes_busy: device.lanes.values().map(busy).collect(),
        kernels_idle: (device.kernel_time().idle_share() * 10_000.0).round() / 10_000.0,
        peak_reserved_bytes: peak(&device.reserved_bytes),
        peak_in_use_bytes: peak(&device.in_use_bytes),
        stage_mean_s: stages
            .into_iter()
            .map(|(stage, (count, total_us))| (stage, seconds(total_us / count)))
            .collect(),
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
        writeln!(f, "{:.3} s", self.span_s)?;
        for (id, device) in &self.devices {
            let lanes: Vec<String> =
                device.lanes_busy.iter().map(|busy| format!("{:.0} %", busy * 100.0)).collect();
            writeln!(
                f,
                "{id} ({}): {} partitions verified, {} attempts failed; lanes busy {}; without kernels {:.2} % \
                 of the time; VRAM at most {:.2} GiB reserved, {:.2} in use",
                device.model,
                device.partitions_verified,
                device.attempts_failed,
                lanes.join(", "),
                device.kernels_idle * 100.0,
                gib(device.peak_reserved_bytes),
                gib(device.peak_in_use_bytes)
            )?;
            let stages: Vec<String> =
                device.stage_mean_s.iter().map(|(stage, mean)| format!("{stage} {mean:.3}")).collect();
            writeln!(f, "  mean seconds: {}", stages.join(", "))?;
        }
        for (kind, of) in &self.kinds {
            writeln!(
                f,
                "{kind}: {} accepted, {} completed, {} ended otherwise; {:.3} s on average, {:.3} s at most",
                of.accepted, of.completed, of.ended_otherwise, of.total_mean_s, of.total_max_s
            )?;
        }
        writeln!(
            f,
            "at most {} jobs, {} partitions waiting, {:.2} GiB of witnesses",
            self.peak_open_jobs,
            self.peak_waiting_partitions,
            gib(self.peak_witness_bytes)
        )?;
        if self.num_dropped > 0 {
            writeln!(f, "{} events are missing: the log's writer could not keep up", self.num_dropped)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::small_log;
    use super::*;

    #[test]
    fn figures_are_those_of_the_log() {
        let summary = Timeline::new(&small_log()).summary();
        let device = &summary.devices["sim-0"];
        assert_eq!((device.partitions_verified, device.attempts_failed), (1, 1));
        assert_eq!(device.lanes_busy, [0.2, 0.0]);
        assert_eq!(device.kernels_idle, 0.0);
        assert_eq!(device.peak_reserved_bytes, 1 << 29);
        let kind = &summary.kinds["porep-c2"];
        assert_eq!((kind.accepted, kind.completed), (2, 1));
        assert_eq!(summary.peak_waiting_partitions, 2);
        assert!(summary.to_string().contains("sim-0 (card): 1 partitions verified"));
    }
}
