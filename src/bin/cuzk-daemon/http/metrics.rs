//! What `/metrics` serves. Every family is described in `docs/observability.md`, which a test compares with these.

use std::collections::BTreeMap;

use cuzk::circuits::WorkKind;
use cuzk::messages::events::JobOutcome;
use cuzk::messages::job::Priority;
use cuzk::messages::status::{EngineDeviceStatus, EngineStatus, StepTimes};

use super::history::{Books, Counts, Histogram};
use super::process::Process;
use super::sensors::{Sample, Sensors};
use super::srs::Residence;
use super::text::{counter, gauge, histogram, Family, Text};
use super::State;

/// The kinds that a daemon takes; an embedding host's own are there once they have come.
pub const KINDS: [WorkKind; 4] =
    [WorkKind::PorepC2, WorkKind::SnapUpdate, WorkKind::WindowPost, WorkKind::WinningPost];
const OUTCOMES: [JobOutcome; 4] =
    [JobOutcome::Completed, JobOutcome::Failed, JobOutcome::Cancelled, JobOutcome::Expired];
const DEVICE_STATES: [&str; 4] = ["starting", "ready", "withdrawn", "gone"];
const DEVICE_HEALTHS: [&str; 4] = ["healthy", "degraded", "probation", "quarantined"];
/// [`cuzk::messages::status::STEP_CLASSES_US`] in seconds.
const STEP_ENDS: &[f64] = &[0.00001, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.005, 0.02, 0.1];

/// Stable name of an outcome.
pub fn outcome_name(outcome: JobOutcome) -> &'static str {
    match outcome {
        JobOutcome::Completed => "completed",
        JobOutcome::Failed => "failed",
        JobOutcome::Cancelled => "cancelled",
        JobOutcome::Expired => "expired",
    }
}

/// Stable name of a priority.
pub fn priority_name(priority: Priority) -> &'static str {
    match priority {
        Priority::Low => "low",
        Priority::Normal => "normal",
        Priority::High => "high",
        Priority::Critical => "critical",
    }
}

/// Everything, in Prometheus' text format.
pub fn prometheus(state: &State) -> String {
    let status = state.engine().status();
    let sample = state.sample();
    let mut text = Text::default();
    process(&mut text, state);
    engine(&mut text, state, &status);
    queues(&mut text, &status);
    devices(&mut text, &status.devices);
    sensors(&mut text, &status.devices, &sample);
    memory(&mut text, &status, &sample);
    state.history().read(|books, _| {
        jobs(&mut text, &books.counts, &status);
        partitions(&mut text, books, &status);
        times(&mut text, &books.counts);
    });
    steps(&mut text, &status.step_times);
    text.finish()
}

fn process(text: &mut Text, state: &State) {
    let process = Process::now();
    text.family(gauge("cuzk_build_info", "Always 1; what is running."), |samples| {
        let cuda = if cfg!(feature = "cuda") { "true" } else { "false" };
        samples.put(&[("version", env!("CARGO_PKG_VERSION")), ("cuda", cuda)], 1);
    });
    text.family(gauge("process_start_time_seconds", "When this process began, since 1970."), |samples| {
        samples.put(&[], state.started_unix_s());
    });
    text.family(counter("process_cpu_seconds_total", "User and system time of this process."), |samples| {
        samples.put_some(&[], process.cpu_s);
    });
    text.family(gauge("process_resident_memory_bytes", "Resident memory of this process."), |samples| {
        samples.put_some(&[], process.resident_bytes);
    });
    text.family(gauge("process_open_fds", "Open file descriptors of this process."), |samples| {
        samples.put_some(&[], process.num_open_files);
    });
}

fn engine(text: &mut Text, state: &State, status: &EngineStatus) {
    let flags: [(Family, bool); 4] = [
        (gauge("cuzk_ready", "1 if jobs are accepted and a device can prove."), status.ready),
        (gauge("cuzk_degraded", "1 if ready, and something is not as it should be."), status.degraded),
        (
            gauge("cuzk_fatal", "1 if no device is left, or no synthesizer, and none will come back."),
            status.fatal.is_some(),
        ),
        (gauge("cuzk_draining", "1 if no new jobs are accepted because the engine stops."), status.draining),
    ];
    for (family, value) in flags {
        text.family(family, |samples| samples.flag(&[], value));
    }
    let beats = gauge("cuzk_heartbeat_age_seconds", "How long ago an actor last showed that it lives.");
    text.family(beats, |samples| {
        for beat in state.beats() {
            samples.put(&[("actor", &beat.actor)], beat.age_ms as f64 / 1000.0);
        }
    });
    let dropped = counter("cuzk_events_dropped_total", "Events that are missing in the other counters.");
    text.family(dropped, |samples| samples.put(&[], state.history().num_dropped()));
}

fn queues(text: &mut Text, status: &EngineStatus) {
    let queues = super::queue::queues(status);
    let mut put = |family: Family, value: fn(&super::queue::Queue) -> u64| {
        text.family(family, |samples| {
            for queue in &queues {
                let labels = [("kind", queue.kind.as_str()), ("priority", priority_name(queue.priority))];
                samples.put(&labels, value(queue));
            }
        });
    };
    put(gauge("cuzk_jobs", "Jobs that have not ended."), |queue| queue.num_jobs);
    put(gauge("cuzk_partitions_pending", "Partitions that are not on a device yet."), |queue| queue.pending);
    put(gauge("cuzk_partitions_in_progress", "Partitions on a device or being verified."), |queue| {
        queue.in_progress
    });
}

fn devices(text: &mut Text, devices: &[EngineDeviceStatus]) {
    text.family(gauge("cuzk_device_info", "Always 1; what a device is."), |samples| {
        for device in devices {
            samples.put(
                &[
                    ("device", &device.id),
                    ("name", &device.name),
                    ("backend", &device.backend),
                    ("role", &device.role),
                ],
                1,
            );
        }
    });
    let mut one_of = |family: Family, label, all: &[&str], has: fn(&EngineDeviceStatus) -> &str| {
        text.family(family, |samples| {
            for device in devices {
                for &one in all {
                    samples.flag(&[("device", &device.id), (label, one)], has(device) == one);
                }
            }
        });
    };
    one_of(
        gauge("cuzk_device_state", "1 for the state a device is in."),
        "state",
        &DEVICE_STATES,
        |device| &device.state,
    );
    one_of(
        gauge("cuzk_device_health", "1 for the health of a device."),
        "health",
        &DEVICE_HEALTHS,
        |device| &device.health,
    );
    let figures: [Figure<EngineDeviceStatus, u64>; 10] = [
        (gauge("cuzk_device_lanes", "Partitions that a device proves side by side."), |d| d.num_lanes.into()),
        (gauge("cuzk_device_lanes_busy", "Lanes that hold a partition."), |d| d.lanes_busy.into()),
        (gauge("cuzk_device_memory_total_bytes", "Memory of a device."), |d| d.memory_total_bytes),
        (gauge("cuzk_device_memory_budget_bytes", "What may be used of it."), |d| d.memory_budget_bytes),
        (gauge("cuzk_device_memory_reserved_bytes", "Reserved by plans of running work and by keys."), |d| {
            d.memory_reserved_bytes
        }),
        (gauge("cuzk_device_memory_in_use_bytes", "Allocated by this process."), |d| d.memory_in_use_bytes),
        (
            gauge("cuzk_device_partition_planned_bytes", "Of the largest partition, without keys: planned."),
            |d| d.partition_planned_bytes,
        ),
        (
            gauge("cuzk_device_partition_peak_bytes", "Of the largest partition, without keys: measured."),
            |d| d.partition_peak_bytes,
        ),
        (counter("cuzk_device_restarts_total", "Times that a device was opened anew."), |d| d.restarts),
        (counter("cuzk_device_invalid_proofs_total", "Proofs of a device that did not verify."), |d| {
            d.invalid_proofs
        }),
    ];
    for (family, figure) in figures {
        text.family(family, |samples| {
            for device in devices {
                samples.put(&[("device", &device.id)], figure(device));
            }
        });
    }
}

/// A family, and its value for what it is about.
type Figure<T, V> = (Family, fn(&T) -> V);

/// Clocks are in hertz, as everything here is in base units.
fn sensors(text: &mut Text, devices: &[EngineDeviceStatus], sample: &Sample) {
    let known: Vec<(&str, &Sensors)> = devices
        .iter()
        .filter_map(|device| Some((device.id.as_str(), sample.gpus.get(&device.id)?)))
        .collect();
    let figures: [Figure<Sensors, Option<f64>>; 5] = [
        (gauge("cuzk_device_temperature_celsius", "Of the GPU."), |s| s.temperature_celsius.map(f64::from)),
        (gauge("cuzk_device_power_watts", "What the GPU takes."), |s| s.power_watts),
        (gauge("cuzk_device_power_limit_watts", "What it may take."), |s| s.power_limit_watts),
        (gauge("cuzk_device_utilization_ratio", "Part of the time in which a kernel ran, 0 to 1."), |s| {
            s.utilization
        }),
        (
            gauge("cuzk_device_driver_memory_used_bytes", "In use by all processes, as the driver says."),
            |s| s.memory_used_bytes.map(|bytes| bytes as f64),
        ),
    ];
    for (family, figure) in figures {
        text.family(family, |samples| {
            for (device, sensors) in &known {
                samples.put_some(&[("device", device)], figure(sensors));
            }
        });
    }
    text.family(gauge("cuzk_device_clock_hertz", "Clocks of the GPU."), |samples| {
        let hertz = |mhz: Option<u32>| mhz.map(|mhz| u64::from(mhz) * 1_000_000);
        for (device, sensors) in &known {
            samples.put_some(&[("device", device), ("clock", "sm")], hertz(sensors.sm_clock_mhz));
            samples.put_some(&[("device", device), ("clock", "memory")], hertz(sensors.memory_clock_mhz));
        }
    });
}

fn memory(text: &mut Text, status: &EngineStatus, sample: &Sample) {
    let srs = gauge("cuzk_srs_bytes", "Size of a circuit's proving key where it is: hot, warm or cold.");
    text.family(srs, |samples| {
        for Residence { circuit, tier, device, num_bytes, .. } in super::srs::residences(status, sample) {
            let labels = [
                ("circuit", circuit.as_str()),
                ("tier", tier.as_str()),
                ("device", device.as_deref().unwrap_or("")),
            ];
            samples.put(&labels, num_bytes);
        }
    });
    let reserved = gauge("cuzk_host_memory_reserved_bytes", "Host memory that is reserved, by what for.");
    text.family(reserved, |samples| {
        samples.put(&[("part", "witnesses")], status.host_memory_reserved_bytes);
        samples.put(&[("part", "circuits")], status.circuit_memory_reserved_bytes);
    });
    let pinned =
        gauge("cuzk_host_memory_pinned_bytes", "Of circuits: those that stay until they are evicted.");
    text.family(pinned, |samples| samples.put(&[], status.circuit_memory_pinned_bytes));
    let budget = gauge("cuzk_host_memory_budget_bytes", "What all of it together may be.");
    text.family(budget, |samples| samples.put(&[], status.host_memory_budget_bytes));
}

fn jobs(text: &mut Text, counts: &Counts, status: &EngineStatus) {
    text.family(counter("cuzk_jobs_accepted_total", "Jobs that were accepted."), |samples| {
        for (&(kind, priority), count) in &counts.accepted {
            samples.put(&[("kind", kind.as_str()), ("priority", priority_name(priority))], count);
        }
    });
    let mut ended: BTreeMap<(WorkKind, JobOutcome), u64> =
        KINDS.iter().flat_map(|&kind| OUTCOMES.map(|outcome| ((kind, outcome), 0))).collect();
    ended.extend(counts.ended.iter().map(|(labels, &count)| (*labels, count)));
    text.family(counter("cuzk_jobs_ended_total", "Jobs that ended, by how."), |samples| {
        for ((kind, outcome), count) in ended {
            samples.put(&[("kind", kind.as_str()), ("outcome", outcome_name(outcome))], count);
        }
    });
    let mut refused: BTreeMap<WorkKind, u64> = KINDS.iter().map(|&kind| (kind, 0)).collect();
    refused.extend(&counts.refused);
    text.family(counter("cuzk_jobs_refused_total", "Requests that left no trace."), |samples| {
        for (kind, count) in refused {
            samples.put(&[("kind", kind.as_str())], count);
        }
    });
    let totals = &status.totals;
    let figures = [
        (counter("cuzk_jobs_attached_total", "Requests that joined a job that was there."), totals.attached),
        (counter("cuzk_jobs_recovered_total", "Jobs that outlived an earlier process."), totals.recovered),
        (
            gauge("cuzk_jobs_recovering", "Jobs of an earlier process that are yet to be queued."),
            status.recovering,
        ),
        (
            counter(
                "cuzk_partitions_fallback_total",
                "Partitions proved by the CPU in place of lost devices.",
            ),
            totals.fallback,
        ),
        (counter("cuzk_partitions_retried_total", "Partitions that were proved again."), totals.retried),
        (counter("cuzk_late_results_total", "Results that nobody waited for any more."), totals.late_results),
    ];
    for (family, value) in figures {
        text.family(family, |samples| samples.put(&[], value));
    }
}

fn partitions(text: &mut Text, books: &Books, status: &EngineStatus) {
    let counts = &books.counts;
    text.family(counter("cuzk_partitions_verified_total", "Proofs that hold."), |samples| {
        for ((kind, device), count) in &counts.verified {
            samples.put(&[("kind", kind.as_str()), ("device", device.as_str())], count);
        }
    });
    let failed = counter("cuzk_partition_failures_total", "Attempts that gave no proof, or an invalid one.");
    text.family(failed, |samples| {
        for ((kind, device, invalid), count) in &counts.failed {
            let cause = if *invalid { "invalid" } else { "error" };
            let labels = [("kind", kind.as_str()), ("device", device.as_str()), ("cause", cause)];
            samples.put(&labels, count);
        }
    });
    // Every device has them from the start: a rate needs a first value.
    let track = |device: &EngineDeviceStatus| {
        books.devices.iter().find(|(id, _)| id.as_str() == device.id).map(|(_, track)| track)
    };
    text.family(counter("cuzk_partitions_placed_total", "Partitions given to a device."), |samples| {
        for device in &status.devices {
            samples.put(&[("device", &device.id)], track(device).map_or(0, |track| track.num_placed));
        }
    });
    let batches = counter("cuzk_device_batches_total", "Runs of partitions of one circuit on a device.");
    text.family(batches, |samples| {
        for device in &status.devices {
            samples.put(&[("device", &device.id)], track(device).map_or(0, |track| track.num_batches));
        }
    });
    let busy = counter("cuzk_device_busy_seconds_total", "Time of all stages, of all lanes together.");
    text.family(busy, |samples| {
        for device in &status.devices {
            samples
                .put(&[("device", &device.id)], track(device).map_or(0.0, |track| track.busy.as_secs_f64()));
        }
    });
}

fn times(text: &mut Text, counts: &Counts) {
    let waits = histogram("cuzk_partition_wait_seconds", "From a job's acceptance to a device.");
    text.family(waits, |samples| {
        for ((kind, priority), times) in &counts.waits {
            samples.histogram(&[("kind", kind.as_str()), ("priority", priority_name(*priority))], times);
        }
    });
    let mut by_kind = |family: Family, all: &BTreeMap<WorkKind, Histogram>| {
        text.family(family, |samples| {
            for (kind, times) in all {
                samples.histogram(&[("kind", kind.as_str())], times);
            }
        });
    };
    by_kind(histogram("cuzk_job_seconds", "From acceptance to the proof."), &counts.job_times);
    by_kind(histogram("cuzk_witness_seconds", "Making a partition's witness."), &counts.witness_times);
    by_kind(
        histogram("cuzk_verification_seconds", "From a proof to its verdict, with the wait for a worker."),
        &counts.verification_times,
    );
    let device = histogram("cuzk_partition_device_seconds", "A partition's time on a device.");
    text.family(device, |samples| {
        for ((device, circuit), times) in &counts.device_times {
            samples.histogram(&[("device", device.as_str()), ("circuit", circuit.as_str())], times);
        }
    });
    text.family(histogram("cuzk_stage_seconds", "A stage's time on a device."), |samples| {
        for ((device, circuit, stage), times) in &counts.stage_times {
            let labels =
                [("device", device.as_str()), ("circuit", circuit.as_str()), ("stage", stage.as_str())];
            samples.histogram(&labels, times);
        }
    });
    text.family(histogram("cuzk_circuit_load_seconds", "Loading a circuit on the host."), |samples| {
        for (circuit, times) in &counts.load_times {
            samples.histogram(&[("circuit", circuit.as_str())], times);
        }
    });
}

fn steps(text: &mut Text, times: &StepTimes) {
    let steps = histogram("cuzk_scheduler_step_seconds", "How long the scheduler's steps took.");
    text.family(steps, |samples| {
        let times = Histogram::of(STEP_ENDS, &times.counts, times.sum_us as f64 / 1e6);
        samples.histogram(&[], &times);
    });
}

#[cfg(test)]
mod tests {
    use cuzk::messages::status::STEP_CLASSES_US;

    use super::*;

    #[test]
    fn steps_are_counted_in_the_classes_that_are_served() {
        let seconds = STEP_CLASSES_US.map(|us| us as f64 / 1e6);
        assert!(STEP_ENDS.iter().zip(seconds).all(|(a, b)| (a - b).abs() < 1e-12));
        assert_eq!(STEP_ENDS.len(), STEP_CLASSES_US.len());
    }
}
