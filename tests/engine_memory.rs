//! What the account of host memory says is what the process takes. Each test in a process of its own: the figures are of
//! the process, and memory that an earlier test has let go of would be among them.

#[path = "common/alone.rs"]
mod alone;
#[path = "engine/squares.rs"]
#[allow(dead_code, reason = "most jobs here are of a larger circuit")]
mod squares;
#[path = "common/wrapped.rs"]
mod wrapped;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cuzk::backend::sim::{SimConfig, SimProver};
use cuzk::circuits::{CustomCircuit, SrsSource, Workload};
use cuzk::engine::{DeviceSpec, Engine, EngineConfig, Preload};
use cuzk::error::{EngineError, SynthesisError};
use cuzk::groth16::generate::generate_params;
use cuzk::groth16::{PackedWitness, R1csShape};
use cuzk::ids::{CircuitId, PartitionIndex, RequestDigest};
use cuzk::messages::job::{JobEvent, Payload, ProofRequest};
use cuzk::messages::status::EngineStatus;
use cuzk::telemetry::process;
use rand::SeedableRng;
use rand_chacha::ChaCha20Rng;

use alone::alone;
use squares::Squares;
use wrapped::{wrapped, Wrapper};

const MIB: u64 = 1 << 20;
/// A circuit whose key takes some 40 MiB and whose witnesses take 2 MiB each: what a thread or an allocator keeps for
/// itself does not show beside that.
const NUM_SQUARINGS: usize = 65_000;
const NUM_WITNESSES: u64 = 64;

fn resident_bytes() -> u64 {
    process::resident_bytes().unwrap()
}

/// The most since [`forget_peak`].
fn peak_bytes() -> u64 {
    process::peak_resident_bytes().unwrap()
}

fn forget_peak() {
    // proc(5): "reset the peak resident set size to the current".
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
}

fn params_path(extension: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("squares-{NUM_SQUARINGS}.{extension}"))
}

/// Makes the parameters of the large circuit, once, and keeps them with the build. Not in the process that is measured:
/// making them takes more memory than using them.
fn make_params() {
    static MAKING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    if params_path("params").exists() {
        return;
    }
    let shape = R1csShape::record(Squares::blank(NUM_SQUARINGS)).unwrap();
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    let unfinished = params_path("unfinished");
    generate_params(&shape, &mut rng, &unfinished, &params_path("vk"), &|_, _| {}).unwrap();
    std::fs::rename(unfinished, params_path("params")).unwrap();
}

fn large(xs: std::ops::Range<u64>) -> Arc<dyn Workload> {
    let instances = xs
        .map(|x| {
            let circuit = Squares { num_squarings: NUM_SQUARINGS, ..Squares::of(x) };
            let inputs = circuit.public_inputs();
            (circuit, inputs)
        })
        .collect();
    let source = SrsSource::File(params_path("params").into());
    let blank = Squares::blank(NUM_SQUARINGS);
    CustomCircuit::new(CircuitId::new("large-squares"), source, blank, instances).into_workload()
}

/// What may lie beside the account: the measured memory is within 15 % of it.
#[track_caller]
fn assert_near(what: &str, measured: u64, account: u64) {
    println!("{what}: measured {} KiB, account {} KiB", measured >> 10, account >> 10);
    assert!(
        measured * 100 >= account * 85 && measured * 100 <= account * 115,
        "{what}: {measured} B measured, {account} B counted"
    );
}

#[test]
fn the_account_of_circuits_and_witnesses_is_what_the_process_takes() {
    make_params();
    alone(
        "the_account_of_circuits_and_witnesses_is_what_the_process_takes",
        circuits_and_witnesses_are_measured,
    );
}

fn circuits_and_witnesses_are_measured() {
    // A device that holds nothing and takes its time: what there is of memory is the host's.
    let slow = SimConfig {
        stage_durations: [Duration::from_secs(3); 9],
        prover: SimProver::Fake,
        ..SimConfig::default()
    };
    let probe = Engine::start(EngineConfig::default()).unwrap();
    let needs = probe.preload_blocking(Preload::new(large(2..3))).unwrap().host_bytes;
    drop(probe);
    // Packed, none of its values being a bit by its constraints: a scalar each, and room for the bits.
    let num_values = NUM_SQUARINGS as u64 + 2;
    let partition_bytes = 32 * num_values + 8 * num_values.div_ceil(64);
    let config = EngineConfig {
        devices: vec![DeviceSpec::Sim(Box::new(slow))],
        synthesis_threads: 2,
        host_memory_budget_bytes: needs + NUM_WITNESSES * partition_bytes,
        ..EngineConfig::default()
    };
    let engine = Engine::start(config).unwrap();
    let workload = large(2..2 + 2 * NUM_WITNESSES);
    engine.wait_ready_blocking().unwrap();
    // Once for what threads and the allocator keep for themselves.
    engine.preload_blocking(Preload::new(Arc::clone(&workload))).unwrap();
    engine.evict_blocking(&CircuitId::new("large-squares")).unwrap();
    let before = resident_bytes();

    let loaded = engine.preload_blocking(Preload::new(Arc::clone(&workload))).unwrap();
    assert_near("circuit", resident_bytes() - before, loaded.host_bytes);

    // Twice: what the first job let go of is used again.
    for round in ["circuit and witnesses", "and again"] {
        let request = ProofRequest::new(Payload::Workload(Arc::clone(&workload)));
        let mut job = engine.submit_blocking(request).unwrap();
        let is_witness = |event: &JobEvent| matches!(event, JobEvent::WitnessReady { .. });
        let made = job.events().blocking_iter().filter(is_witness).take(NUM_WITNESSES as usize).count();
        assert_eq!(made as u64, NUM_WITNESSES);
        let status = engine.status();
        assert_eq!(
            status.host_memory_reserved_bytes,
            NUM_WITNESSES * partition_bytes,
            "as many as there is room for"
        );
        let account = status.circuit_memory_reserved_bytes + status.host_memory_reserved_bytes;
        assert!(account <= status.host_memory_budget_bytes);
        assert_near(round, resident_bytes() - before, account);
        drop(job);
        let is_free = |status: &EngineStatus| status.host_memory_reserved_bytes == 0;
        engine.wait_status_blocking(is_free).unwrap();
        assert_near("after the job, the circuit", resident_bytes() - before, loaded.host_bytes);
    }
    engine.evict_blocking(&CircuitId::new("large-squares")).unwrap();
    // By then whoever still held it has let go.
    let is_gone = |status: &EngineStatus| status.circuit_memory_reserved_bytes == 0;
    engine.wait_status_blocking(is_gone).unwrap();
    let left = resident_bytes().saturating_sub(before);
    println!("after eviction: {} KiB left", left >> 10);
    assert!(left * 100 <= loaded.host_bytes * 15, "{left} B are left of {} B", loaded.host_bytes);
    engine.shutdown_blocking(Duration::from_secs(60));
}

#[test]
fn a_cpu_device_takes_no_more_than_the_account_says() {
    make_params();
    alone("a_cpu_device_takes_no_more_than_the_account_says", a_cpu_device_is_measured);
}

fn a_cpu_device_is_measured() {
    let devices = vec![DeviceSpec::Cpu { threads: 0, lanes: 1 }];
    let engine =
        Engine::start(EngineConfig { devices, synthesis_threads: 1, ..EngineConfig::default() }).unwrap();
    engine.wait_ready_blocking().unwrap();
    // With the key in memory: what reading it takes besides is gone when a proof begins.
    engine.preload_blocking(Preload::new(large(2..3))).unwrap();
    let circuit_bytes = engine.status().circuit_memory_reserved_bytes;
    let before = resident_bytes() - circuit_bytes;
    forget_peak();
    let mut job = engine.submit_blocking(ProofRequest::new(Payload::Workload(large(2..6)))).unwrap();
    let (mut witness_bytes, mut num_stages) = (0, 0);
    for event in job.events().blocking_iter() {
        witness_bytes = witness_bytes.max(engine.status().host_memory_reserved_bytes);
        num_stages += u32::from(matches!(event, JobEvent::StageDone { .. }));
    }
    job.wait_blocking().unwrap();
    assert!(num_stages >= 4 * 8);
    // Without the circuit, beside which an error of either would not show.
    let measured = peak_bytes() - before - circuit_bytes;
    let device = &engine.status().devices[0];
    let (planned_bytes, taken_bytes) = (device.partition_planned_bytes, device.partition_peak_bytes);
    println!(
        "witnesses {} KiB, proof {} KiB, planned for it {} KiB",
        witness_bytes >> 10,
        taken_bytes >> 10,
        planned_bytes >> 10
    );
    assert!(taken_bytes > 0 && taken_bytes <= planned_bytes, "{taken_bytes} B of {planned_bytes} B planned");
    // A sum's buckets are its threads' own, and of no account.
    let account = witness_bytes + taken_bytes;
    let threads_bytes = MIB * rayon::current_num_threads() as u64;
    println!("witnesses and a proof: measured {} KiB, account {} KiB", measured >> 10, account >> 10);
    assert!(
        measured * 100 >= account * 85 && measured <= account / 100 * 105 + threads_bytes,
        "{measured} B measured, {account} B counted"
    );
    drop(job);
    engine.shutdown_blocking(Duration::from_secs(60));
}

/// A job of a MiB of inputs whose circuit refuses them.
#[derive(Debug)]
struct Failing {
    good: Arc<dyn Workload>,
    number: u64,
    inputs: Vec<u8>,
}

impl Wrapper for Failing {
    fn inner(&self) -> &dyn Workload {
        self.good.as_ref()
    }

    fn digest(&self) -> RequestDigest {
        let mut digest = [0; 32];
        digest[..8].copy_from_slice(&self.number.to_le_bytes());
        RequestDigest(digest)
    }

    fn synthesize(&self, _: PartitionIndex, _: &R1csShape) -> Result<PackedWitness, SynthesisError> {
        Err(SynthesisError::Circuit(format!("{} bytes of nonsense", self.inputs.len())))
    }
}

#[test]
fn b19_failed_jobs_are_let_go() {
    alone("b19_failed_jobs_are_let_go", failing_jobs_are_measured);
}

fn failing_jobs_are_measured() {
    let config = EngineConfig { synthesis_threads: 2, ..EngineConfig::default() };
    let engine = Engine::start(config).unwrap();
    engine.wait_ready_blocking().unwrap();
    let good = squares::workload(vec![Squares::of(2)]);
    let fail = |number: u64| {
        // Written to, so that it is really there.
        let inputs = vec![number as u8 | 1; MIB as usize];
        let workload = wrapped(Failing { good: Arc::clone(&good), number, inputs });
        let request = ProofRequest {
            request_id: format!("failing-{number}"),
            ..ProofRequest::new(Payload::Workload(workload))
        };
        let error = engine.submit_blocking(request).unwrap().wait_blocking().unwrap_err();
        assert!(matches!(error, EngineError::Synthesis { .. }), "{error}");
    };
    fail(0);
    let before = resident_bytes();
    (1..=1000).for_each(fail);
    let growth = resident_bytes().saturating_sub(before);
    println!("1,000 failing jobs of 1 MiB: resident memory grew by {} KiB", growth >> 10);
    assert!(growth < 64 * MIB, "{growth} B");
    // The last one's worker may still be about to let go.
    let is_over =
        |status: &EngineStatus| status.totals.failed == 1001 && status.host_memory_reserved_bytes == 0;
    assert_eq!(engine.wait_status_blocking(is_over).unwrap().jobs.len(), 0);
    engine.shutdown_blocking(Duration::from_secs(60));
}
