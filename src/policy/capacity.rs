//! "What do I need?": what a machine can prove of one circuit, how much at a time, and how fast. Pure arithmetic over the
//! same plans that the engine makes; nothing is opened, nothing is read.
//!
//! The speed is that of the one kind of card that was measured ([`RATES_SOURCE`]). Another card is as much slower as its
//! arithmetic is; memory is right for any.

use serde::Serialize;

use crate::backend::Stage;
use crate::error::PlanError;
use crate::policy::msm_plan::Group;
use crate::policy::plan::{
    least_budget_bytes, plan, plan_with_resident, Evaluation, ProvePlan, Query, QuerySet, ShapeSummary,
    SrsSummary,
};
use crate::policy::shared_pass::{max_members, MAX_MEMBERS, PASS_QUERIES};

/// Where the constants of this file come from.
pub const RATES_SOURCE: &str =
    "benches/RESULTS.md, CUDA backend: one NVIDIA H200, sm_90, median device times; witnesses of 90 % bits";

/// Nanoseconds of the quotient's six transforms, per element and level: 250 ms at 2^27, 27.3 ms at 2^24.
const QUOTIENT_NS: f64 = 0.070;
/// Nanoseconds per point of a sum, by the binary logarithm of its length, between which it is interpolated.
const G1_UNIFORM_NS: [(f64, f64); 4] = [(20.0, 8.72), (22.0, 7.01), (24.0, 6.32), (26.0, 5.75)];
const G1_BITS_NS: [(f64, f64); 3] = [(22.0, 1.80), (24.0, 1.67), (26.0, 1.40)];
const G2_BITS_NS: [(f64, f64); 2] = [(22.0, 5.05), (24.0, 3.96)];
/// Nanoseconds per row of A and B evaluated on the device, the expansion of the witness among them: 9.8 ms of PoRep 32 GiB.
const EVALUATE_NS: f64 = 0.0755;
/// Copies to the device, in bytes a second: 391 MB in 43 ms (the upload of a PoRep 8 MiB partition).
const COPY_BYTES_PER_S: f64 = 9.1e9;
/// Window sums to a proof, on the host: 2 ms (the same partition).
const ASSEMBLE_MS: f64 = 2.0;

/// A machine, as one would buy it. Its CPU does not prove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    pub num_gpus: u32,
    /// Memory that the engine may use on each GPU, in bytes.
    pub device_budget_bytes: u64,
    /// Memory that circuits and witnesses may take on the host, in bytes.
    pub host_budget_bytes: u64,
    /// Partitions that one GPU proves side by side, if their memory allows.
    pub num_lanes: u32,
    /// Partitions of one circuit that a GPU goes on with, and that may share a pass over what it streams.
    pub batch_partitions: u32,
}

/// What of a circuit decides the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CircuitFigures {
    pub name: String,
    /// Partitions of one job.
    pub num_partitions: u32,
    pub shape: ShapeSummary,
    pub srs: SrsSummary,
    /// Proving key and shape in host memory.
    pub host_circuit_bytes: u64,
    /// One witness in host memory, packed.
    pub witness_bytes: u64,
}

/// The answer. Bytes and milliseconds throughout.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Capacity {
    pub circuit: String,
    pub partitions_per_job: u32,
    pub gpus: u32,
    /// Partitions at a time, over all devices.
    pub concurrency: u32,
    /// What keeps it from being more: `lanes`, `device memory`, `host memory`.
    pub limited_by: &'static str,
    pub device: DeviceCapacity,
    pub host: HostCapacity,
    pub speed: Speed,
}

/// One GPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceCapacity {
    pub budget_bytes: u64,
    /// With less than this nothing can be proved.
    pub least_budget_bytes: u64,
    pub lanes: u32,
    /// What stays on the device: `matrices`, and queries.
    pub resident: Vec<&'static str>,
    pub resident_bytes: u64,
    /// Where row values are made: `device`, by the matrices that are kept there, or `host`.
    pub evaluation: &'static str,
    /// What every partition copies anew of the proving key.
    pub streamed_bytes: u64,
    /// What is copied of it once for all partitions of a pass.
    pub shared_bytes: u64,
    /// How many those are at most; 1: passes are not shared.
    pub shared_by: u32,
    /// Of one partition, without resident queries.
    pub work_peak_bytes: u64,
    /// Resident queries and all lanes.
    pub peak_bytes: u64,
    pub stages: Vec<StageCapacity>,
}

/// One stage of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StageCapacity {
    pub stage: &'static str,
    pub work_bytes: u64,
    pub ms: f64,
}

/// The host.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct HostCapacity {
    pub budget_bytes: u64,
    pub circuit_bytes: u64,
    /// Witness of one partition.
    pub partition_bytes: u64,
    /// Partitions that may be in memory at a time.
    pub partitions: u32,
    pub peak_bytes: u64,
}

/// How fast.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Speed {
    /// Of one partition alone on a device whose queries are resident, or with others on one that shares passes.
    pub partition_ms: f64,
    /// Of all devices, if the host makes witnesses fast enough: what that takes is not counted.
    pub partitions_per_s: f64,
    pub jobs_per_hour: f64,
    /// Of one job with the machine to itself.
    pub job_ms: f64,
    pub source: &'static str,
}

/// Why nothing of it fits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CapacityError {
    #[error("no GPU: needs 1 at least, has 0")]
    NoGpu,
    #[error(transparent)]
    Device(#[from] PlanError),
    #[error("needs {needs_bytes} B of host memory at least, budget is {has_bytes} B")]
    Host { needs_bytes: u64, has_bytes: u64 },
}

/// Plans one partition, by `plan` within a budget, so that as many of `num_other_lanes` as possible could take such a
/// partition too: keys on the device are no gain if a lane stands idle for them. `least_bytes`: what any plan of it needs.
///
/// # Errors
/// As `plan`.
pub fn sparing_lanes(
    budget_bytes: u64,
    num_other_lanes: u32,
    least_bytes: u64,
    plan: impl Fn(u64) -> Result<ProvePlan, PlanError>,
) -> Result<ProvePlan, PlanError> {
    let roomy = plan(budget_bytes)?;
    let lane_bytes = roomy.work_peak_bytes().max(least_bytes);
    let sparing = (1..=u64::from(num_other_lanes))
        .rev()
        .find_map(|num_lanes| plan(budget_bytes.checked_sub(num_lanes * lane_bytes)?).ok());
    Ok(sparing.unwrap_or(roomy))
}

/// What `machine` can do with the circuit.
///
/// # Errors
/// [`CapacityError`] with what is needed and what there is.
pub fn capacity(machine: &Machine, circuit: &CircuitFigures) -> Result<Capacity, CapacityError> {
    if machine.num_gpus == 0 {
        return Err(CapacityError::NoGpu);
    }
    let (plan, lanes) = lanes_of(machine, circuit)?;
    let host = host_of(machine, circuit)?;
    let device = device_of(machine, circuit, &plan, lanes);
    let wanted = machine.num_gpus.saturating_mul(lanes);
    let concurrency = wanted.min(host.partitions);
    let limited_by = if concurrency < wanted {
        "host memory"
    } else if lanes < machine.num_lanes.max(1) {
        "device memory"
    } else {
        "lanes"
    };
    let speed = speed_of(circuit, &device, machine.num_gpus, concurrency);
    let host = HostCapacity {
        peak_bytes: host.circuit_bytes + u64::from(concurrency) * host.partition_bytes,
        ..host
    };
    Ok(Capacity {
        circuit: circuit.name.clone(),
        partitions_per_job: circuit.num_partitions,
        gpus: machine.num_gpus,
        concurrency,
        limited_by,
        device,
        host,
        speed,
    })
}

/// The plan of a partition, and how many of them fit beside each other.
fn lanes_of(machine: &Machine, circuit: &CircuitFigures) -> Result<(ProvePlan, u32), PlanError> {
    let (shape, srs, budget_bytes) = (&circuit.shape, &circuit.srs, machine.device_budget_bytes);
    let most = machine.num_lanes.max(1);
    let least_bytes = least_budget_bytes(shape, srs);
    let plan = sparing_lanes(budget_bytes, most - 1, least_bytes, |bytes| plan(shape, srs, bytes))?;
    let (mut lanes, mut taken_bytes) = (1, plan.work_peak_bytes());
    while lanes < most {
        let left_bytes = budget_bytes.saturating_sub(taken_bytes);
        let Ok(next) = plan_with_resident(shape, srs, plan.resident, left_bytes) else { break };
        taken_bytes += next.work_peak_bytes();
        lanes += 1;
    }
    Ok((plan, lanes))
}

fn host_of(machine: &Machine, circuit: &CircuitFigures) -> Result<HostCapacity, CapacityError> {
    let partition_bytes = circuit.witness_bytes;
    let circuit_bytes = circuit.host_circuit_bytes;
    let (needs_bytes, has_bytes) = (circuit_bytes + partition_bytes, machine.host_budget_bytes);
    if needs_bytes > has_bytes {
        return Err(CapacityError::Host { needs_bytes, has_bytes });
    }
    let partitions = (has_bytes - circuit_bytes) / partition_bytes.max(1);
    Ok(HostCapacity {
        budget_bytes: has_bytes,
        circuit_bytes,
        partition_bytes,
        partitions: u32::try_from(partitions).unwrap_or(u32::MAX),
        peak_bytes: needs_bytes,
    })
}

fn device_of(machine: &Machine, circuit: &CircuitFigures, plan: &ProvePlan, lanes: u32) -> DeviceCapacity {
    let (shape, srs) = (&circuit.shape, &circuit.srs);
    let members = machine.batch_partitions.min(MAX_MEMBERS);
    let shared_by = max_members(shape, srs, plan, members).max(1);
    let is_shared = |query: &Query| shared_by > 1 && PASS_QUERIES.contains(query);
    let streamed = Query::ALL.into_iter().filter(|query| !plan.resident.contains(*query));
    let (shared, alone): (Vec<Query>, Vec<Query>) = streamed.partition(is_shared);
    let num_bytes =
        |queries: Vec<Query>| srs.resident_bytes(queries.into_iter().fold(QuerySet::NONE, QuerySet::with));
    // One job alone brings no more.
    let shared_in_job = shared_by.min(circuit.num_partitions.max(1));
    let matrices = plan.resident.has_shape().then_some("matrices");
    let stages = Stage::ALL.map(|stage| StageCapacity {
        stage: stage.as_str(),
        work_bytes: plan.stage_bytes[stage.index()],
        ms: rounded(stage_ms(stage, circuit, plan, shared_in_job)),
    });
    DeviceCapacity {
        budget_bytes: machine.device_budget_bytes,
        least_budget_bytes: least_budget_bytes(shape, srs),
        lanes,
        resident: matrices.into_iter().chain(plan.resident.iter().map(name_of)).collect(),
        resident_bytes: plan.resident_bytes,
        evaluation: match plan.evaluation {
            Evaluation::Device => "device",
            Evaluation::Host => "host",
        },
        streamed_bytes: num_bytes(alone),
        shared_bytes: num_bytes(shared),
        shared_by,
        work_peak_bytes: plan.work_peak_bytes(),
        peak_bytes: (plan.resident_bytes + u64::from(lanes) * plan.work_peak_bytes())
            .min(machine.device_budget_bytes),
        stages: stages.to_vec(),
    }
}

/// With two lanes the next upload runs beside the computing of this partition; with one it waits for it.
fn speed_of(circuit: &CircuitFigures, device: &DeviceCapacity, gpus: u32, concurrency: u32) -> Speed {
    let is_upload = |stage: &&StageCapacity| stage.stage == Stage::Upload.as_str();
    let upload_ms: f64 = device.stages.iter().filter(is_upload).map(|stage| stage.ms).sum();
    let partition_ms: f64 = device.stages.iter().map(|stage| stage.ms).sum();
    let overlaps = concurrency > gpus;
    let busy_gpus = f64::from(concurrency.min(gpus));
    let step_ms = if overlaps { upload_ms.max(partition_ms - upload_ms) } else { partition_ms };
    let partitions_per_s = busy_gpus * 1000.0 / step_ms.max(1e-3);
    let num_partitions = circuit.num_partitions.max(1);
    let num_steps = f64::from(num_partitions.div_ceil(concurrency.min(gpus).max(1)));
    Speed {
        partition_ms: rounded(partition_ms),
        partitions_per_s: rounded(partitions_per_s),
        jobs_per_hour: rounded(partitions_per_s * 3600.0 / f64::from(num_partitions)),
        job_ms: rounded(partition_ms + (num_steps - 1.0) * step_ms),
        source: RATES_SOURCE,
    }
}

fn stage_ms(stage: Stage, circuit: &CircuitFigures, plan: &ProvePlan, shared_by: u32) -> f64 {
    let (shape, srs) = (&circuit.shape, &circuit.srs);
    let domain = f64::from(shape.domain_log2).exp2();
    match stage {
        Stage::Upload => copy_ms(circuit.witness_bytes),
        Stage::Evaluate => match plan.evaluation {
            Evaluation::Device => EVALUATE_NS * shape.num_rows as f64 / 1e6,
            // The rows of A and B; what making them takes the host was not measured.
            Evaluation::Host => copy_ms(2 * 32 * shape.num_rows),
        },
        Stage::Quotient => QUOTIENT_NS * domain * f64::from(shape.domain_log2.max(1)) / 1e6,
        Stage::Assemble => ASSEMBLE_MS,
        Stage::SumH | Stage::SumL | Stage::SumA | Stage::SumBG1 | Stage::SumBG2 => {
            let query = Query::of_stage(stage).expect("every sum has its query");
            let ms = sum_ms(query, srs.num_points(query));
            let copied_for = if PASS_QUERIES.contains(&query) { shared_by } else { 1 };
            if plan.resident.contains(query) {
                ms
            } else {
                let copy_ms = copy_ms(srs.resident_bytes(QuerySet::NONE.with(query)));
                ms.max(copy_ms / f64::from(copied_for))
            }
        }
    }
}

fn copy_ms(num_bytes: u64) -> f64 {
    num_bytes as f64 / COPY_BYTES_PER_S * 1000.0
}

/// `h`'s scalars are uniform; those of the others are the witness, which is mostly bits.
fn sum_ms(query: Query, num_points: u64) -> f64 {
    let table: &[(f64, f64)] = match (query, query.group()) {
        (Query::H, _) => &G1_UNIFORM_NS,
        (_, Group::G1) => &G1_BITS_NS,
        (_, Group::G2) => &G2_BITS_NS,
    };
    let num_points = num_points as f64;
    num_points * interpolated(table, num_points.max(1.0).log2()) / 1e6
}

/// Between the measured lengths linear; beyond them what was measured last.
fn interpolated(table: &[(f64, f64)], at: f64) -> f64 {
    let (first, last) = (table[0], table[table.len() - 1]);
    if at <= first.0 {
        return first.1;
    }
    let pair = table.windows(2).find(|pair| at < pair[1].0);
    pair.map_or(last.1, |pair| {
        let share = (at - pair[0].0) / (pair[1].0 - pair[0].0);
        pair[0].1 + share * (pair[1].1 - pair[0].1)
    })
}

/// Three significant digits are more than the model is worth.
fn rounded(value: f64) -> f64 {
    if value == 0.0 {
        return 0.0;
    }
    let scale = 10f64.powf(2.0 - value.abs().log10().floor());
    (value * scale).round() / scale
}

fn name_of(query: Query) -> &'static str {
    match query {
        Query::H => "h",
        Query::L => "l",
        Query::A => "a",
        Query::BG1 => "b_g1",
        Query::BG2 => "b_g2",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::policy::plan::EvaluationSummary;

    const GIB: u64 = 1 << 30;

    fn machine(num_gpus: u32, vram_gib: u64, ram_gib: u64) -> Machine {
        let (device_budget_bytes, host_budget_bytes) = (vram_gib * GIB, ram_gib * GIB);
        Machine { num_gpus, device_budget_bytes, host_budget_bytes, num_lanes: 2, batch_partitions: 32 }
    }

    fn figures(domain_log2: u32, b_per_mille: u64) -> CircuitFigures {
        let num_aux = (1u64 << domain_log2) / 10 * 9;
        let b = num_aux * b_per_mille / 1000;
        let srs = SrsSummary::new([(1 << domain_log2) - 1, num_aux, num_aux + 40, b, b]);
        CircuitFigures {
            name: "test".to_owned(),
            num_partitions: 10,
            shape: ShapeSummary { domain_log2, num_rows: num_aux, num_inputs: 40, num_aux, evaluation: None },
            srs,
            host_circuit_bytes: 600 * num_aux,
            witness_bytes: 32 * (40 + num_aux / 50) + num_aux / 8,
        }
    }

    #[test]
    fn b20_the_figures_of_a_measured_partition_come_out() {
        // The domain of a PoRep 8 MiB partition, whose stages RESULTS.md gives: 6 ms quotient, 29 h.
        let capacity = capacity(&machine(1, 120, 200), &figures(22, 254)).expect("it fits easily");
        let ms = |name: &str| capacity.device.stages.iter().find(|stage| stage.stage == name).unwrap().ms;
        assert!(ms("upload") < 1.0, "a packed witness of 3 MB: {}", ms("upload"));
        assert!((6.0..7.5).contains(&ms("quotient")), "{}", ms("quotient"));
        assert!((28.0..31.0).contains(&ms("sum_h")), "{}", ms("sum_h"));
        assert_eq!(capacity.device.resident.len(), 5);
        assert_eq!((capacity.concurrency, capacity.limited_by), (2, "lanes"));
    }

    #[test]
    fn b20_what_does_not_fit_names_both_numbers() {
        let large = figures(27, 254);
        assert_eq!(capacity(&machine(0, 120, 200), &large), Err(CapacityError::NoGpu));
        let error = capacity(&machine(3, 8, 200), &large).unwrap_err();
        assert!(matches!(error, CapacityError::Device(PlanError::InsufficientVram { .. })), "{error}");
        let error = capacity(&machine(3, 24, 32), &large).unwrap_err();
        let CapacityError::Host { needs_bytes, has_bytes } = error else { panic!("{error}") };
        assert_eq!(has_bytes, 32 * GIB);
        assert!(capacity(&machine(3, 24, needs_bytes.div_ceil(GIB)), &large).is_ok());
    }

    #[test]
    fn b20_host_memory_limits_what_devices_could_do() {
        let large = figures(27, 254);
        let tight = capacity(&machine(8, 120, 68), &large).unwrap();
        assert_eq!(tight.limited_by, "host memory");
        assert!(tight.concurrency < 16 && tight.host.peak_bytes <= 68 * GIB, "{tight:?}");
        let roomy = capacity(&machine(8, 120, 2000), &large).unwrap();
        assert_eq!(roomy.concurrency, 16);
        assert!(roomy.speed.partitions_per_s > tight.speed.partitions_per_s);
    }

    #[test]
    fn b20_a_known_shape_is_evaluated_on_the_device() {
        let evaluate = |circuit: &CircuitFigures| {
            let device = capacity(&machine(1, 120, 200), circuit).unwrap().device;
            let stage = device.stages.into_iter().find(|stage| stage.stage == "evaluate").unwrap();
            (device.evaluation, stage.ms, device.resident_bytes)
        };
        let mut circuit = figures(24, 254);
        let (place, host_ms, without_shape) = evaluate(&circuit);
        assert_eq!(place, "host");
        circuit.shape.evaluation = EvaluationSummary::known(Some(200_000), Some(10_000_000));
        let (place, device_ms, with_shape) = evaluate(&circuit);
        assert_eq!((place, with_shape - without_shape), ("device", 10_000_000));
        assert!(device_ms * 20.0 < host_ms, "{device_ms} {host_ms}");
    }

    #[test]
    fn b20_a_small_card_copies_most_of_a_key_once_for_several_partitions() {
        let mut circuit = figures(27, 254);
        circuit.shape.evaluation = EvaluationSummary::known(Some(1_700_000), Some(66_000_000));
        let shares = capacity(&machine(1, 20, 200), &circuit).expect("a small card streams");
        let alone = Machine { batch_partitions: 1, ..machine(1, 20, 200) };
        let alone = capacity(&alone, &circuit).expect("a small card streams");
        assert_eq!((alone.device.shared_by, alone.device.shared_bytes), (1, 0));
        assert!(shares.device.shared_by >= 10, "{shares:?}");
        let both = shares.device.streamed_bytes + shares.device.shared_bytes;
        assert_eq!(both, alone.device.streamed_bytes);
        assert!(shares.device.streamed_bytes * 3 < alone.device.streamed_bytes, "only h is copied each time");
        assert!(shares.speed.partition_ms * 1.5 < alone.speed.partition_ms, "{shares:?} {alone:?}");
        assert_eq!(shares.device.work_peak_bytes, alone.device.work_peak_bytes);
        let large = capacity(&machine(1, 120, 200), &circuit).expect("a large card keeps all");
        assert_eq!((large.device.shared_by, large.device.shared_bytes), (1, 0));
    }

    proptest! {
        /// No answer promises more memory than there is; more memory is never slower; and it is the same every time.
        #[test]
        fn b20_answers_stay_within_the_machine(
            domain_log2 in 12u32..28, b_per_mille in 0u64..900, gpus in 1u32..9, vram in 1u64..150, ram in 1u64..500,
        ) {
            let (circuit, small) = (figures(domain_log2, b_per_mille), machine(gpus, vram, ram));
            let answer = capacity(&small, &circuit);
            prop_assert_eq!(&answer, &capacity(&small, &circuit));
            let larger = capacity(&machine(gpus, vram + 100, ram), &circuit);
            if let Ok(answer) = answer {
                prop_assert!(answer.device.peak_bytes <= small.device_budget_bytes);
                prop_assert!(answer.host.peak_bytes <= small.host_budget_bytes);
                prop_assert!(answer.concurrency >= 1 && answer.concurrency <= gpus * 2);
                let larger = larger.expect("more memory takes as much");
                let copied = |device: &DeviceCapacity| device.streamed_bytes + device.shared_bytes;
                prop_assert!(copied(&larger.device) <= copied(&answer.device));
            }
        }
    }
}
