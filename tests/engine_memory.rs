//! What the account of host memory says is what the process takes. One test at a time: the figures are of the process.

#[path = "engine/squares.rs"]
#[allow(dead_code, reason = "most jobs here are of a larger circuit")]
mod squares;
#[path = "common/wrapped.rs"]
mod wrapped;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
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
use rand::SeedableRng;
use rand_chacha::ChaCha20Rng;

use squares::Squares;
use wrapped::{wrapped, Wrapper};

const MIB: u64 = 1 << 20;
/// A circuit whose key takes some 40 MiB and whose witnesses take 2 MiB each: what a thread or an allocator keeps for
/// itself does not show beside that.
const NUM_SQUARINGS: usize = 65_000;
const NUM_WITNESSES: u64 = 64;

fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Resident memory of this process, in bytes.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// Parameters of the large circuit, made once and kept with the build.
fn params() -> &'static Path {
    static PATH: OnceLock<std::path::PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let (path, vk_path) = (
            dir.join(format!("squares-{NUM_SQUARINGS}.params")),
            dir.join(format!("squares-{NUM_SQUARINGS}.vk")),
        );
        if !path.exists() {
            let shape = R1csShape::record(Squares::blank(NUM_SQUARINGS)).unwrap();
            let mut rng = ChaCha20Rng::seed_from_u64(1);
            generate_params(&shape, &mut rng, &path, &vk_path, &|_, _| {}).unwrap();
        }
        path
    })
}

fn large(xs: std::ops::Range<u64>) -> Arc<dyn Workload> {
    let instances = xs
        .map(|x| {
            let circuit = Squares { num_squarings: NUM_SQUARINGS, ..Squares::of(x) };
            let inputs = circuit.public_inputs();
            (circuit, inputs)
        })
        .collect();
    let source = SrsSource::File(params().to_owned().into());
    let blank = Squares::blank(NUM_SQUARINGS);
    CustomCircuit::new(CircuitId::new("large-squares"), source, blank, instances).into_workload()
}

/// No more than `account` and 15 %, and no less than `account` less 30 %: part of it may lie in what the allocator kept of
/// memory that was let go of before the measurement began.
#[track_caller]
fn assert_near(what: &str, measured: u64, account: u64) {
    println!("{what}: measured {} KiB, account {} KiB", measured >> 10, account >> 10);
    let allowed = account * 70 / 100..=account * 115 / 100;
    assert!(allowed.contains(&measured), "{what}: {measured} B measured, {account} B counted");
}

#[test]
fn the_account_of_circuits_and_witnesses_is_what_the_process_takes() {
    let _alone = alone();
    params();
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

    // Twice: what the first job let go of is used again. (The allocator keeps blocks of this size; those of a circuit of
    // real size, which are larger, it gives back.)
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
    }
    engine.evict_blocking(&CircuitId::new("large-squares")).unwrap();
    let left = resident_bytes().saturating_sub(before);
    let kept = NUM_WITNESSES * partition_bytes + loaded.host_bytes * 15 / 100;
    assert!(left <= kept, "{left} B are left, {kept} B may be");
    engine.shutdown_blocking(Duration::from_secs(60));
}

#[test]
fn a_cpu_device_takes_no_more_than_the_account_says() {
    let _alone = alone();
    params();
    let devices = vec![DeviceSpec::Cpu { threads: 0, lanes: 1 }];
    let engine =
        Engine::start(EngineConfig { devices, synthesis_threads: 1, ..EngineConfig::default() }).unwrap();
    engine.wait_ready_blocking().unwrap();
    let before = resident_bytes();
    let mut job = engine.submit_blocking(ProofRequest::new(Payload::Workload(large(2..6)))).unwrap();
    let (mut account, mut highest, mut num_stages) = (0, 0, 0);
    for event in job.events().blocking_iter() {
        let status = engine.status();
        // What is planned for the CPU device includes the witness and the row values of what runs there.
        let planned = status.devices[0].memory_reserved_bytes;
        account =
            account.max(status.circuit_memory_reserved_bytes + status.host_memory_reserved_bytes + planned);
        highest = highest.max(resident_bytes().saturating_sub(before));
        num_stages += u32::from(matches!(event, JobEvent::StageDone { .. }));
    }
    job.wait_blocking().unwrap();
    println!("highest {} KiB of {} KiB counted, {num_stages} stages", highest >> 10, account >> 10);
    assert!(num_stages >= 4 * 8);
    assert!(highest * 100 <= account * 115, "{highest} B measured, {account} B counted");
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
    let _alone = alone();
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
