//! The whole engine on real GPUs: jobs spread over devices, every proof verifies, none is late for want of a device.
//!
//! Needs a GPU; what concerns two says so when there is one. `CUZK_GPU_LARGE=1` adds the rates, which take minutes.

mod common;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bellpepper_core::{Circuit, ConstraintSystem, SynthesisError};
use blstrs::Scalar;
use common::synthetic::{Synthetic, Values};
use cuzk::actors::gpu_device::FactorySpawner;
use cuzk::circuits::{CustomCircuit, SrsSource};
use cuzk::cuda::backend::{select_devices, CudaFactory};
use cuzk::cuda::Context;
use cuzk::engine::{DeviceSpec, Engine, EngineConfig};
use cuzk::groth16::generate::generate_srs;
use cuzk::groth16::{PackedWitness, PreparedVerifyingKey, Proof, R1csShape, Srs};
use cuzk::ids::CircuitId;
use cuzk::messages::job::{Payload, ProofOutcome, ProofRequest};
use cuzk::policy::selector::DeviceSelector;
use ff::Field;
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;

const LANES: u32 = 2;

fn factories() -> Vec<CudaFactory> {
    select_devices(&[], LANES).expect("these tests need a GPU and a build with kernels")
}

fn engine(factories: Vec<CudaFactory>) -> Engine {
    let devices =
        factories.into_iter().map(|factory| DeviceSpec::Spawner(FactorySpawner::boxed(factory))).collect();
    let config = EngineConfig { devices, host_memory_budget_bytes: 64 << 30, ..EngineConfig::default() };
    let engine = Engine::start(config).expect("the configuration is good");
    engine.wait_ready_blocking().expect("a device becomes ready");
    engine
}

/// A circuit with its key; its jobs differ by nothing but their blinding.
struct Work<C> {
    circuit: C,
    srs: Arc<Srs>,
    inputs: Vec<Scalar>,
}

impl Work<Synthetic> {
    fn new(num_constraints: usize) -> Self {
        Self::of(Synthetic { input_every: 100_000, ..Synthetic::new(num_constraints, Values::Bits) })
    }
}

impl<C: Circuit<Scalar> + Clone + Send + Sync + 'static> Work<C> {
    fn of(circuit: C) -> Self {
        let shape = R1csShape::record(circuit.clone()).expect("it records");
        let srs = generate_srs(&shape, &mut ChaCha20Rng::seed_from_u64(3)).expect("it has a key");
        let witness = PackedWitness::synthesize(circuit.clone(), &shape).expect("it is satisfied");
        Self { circuit, srs: Arc::new(srs), inputs: witness.inputs[1..].to_vec() }
    }

    fn request(&self, id: usize, num_partitions: usize) -> ProofRequest {
        let instances = vec![(self.circuit.clone(), self.inputs.clone()); num_partitions];
        let name = CircuitId::new(format!("synthetic-{}", self.srs.l.len()));
        let srs = SrsSource::Memory(Arc::clone(&self.srs));
        let workload = CustomCircuit::new(name, srs, self.circuit.clone(), instances).into_workload();
        ProofRequest { request_id: format!("job-{id}"), ..ProofRequest::new(Payload::Workload(workload)) }
    }

    fn check(&self, outcome: &ProofOutcome, num_partitions: usize) {
        let vk = PreparedVerifyingKey::new(&self.srs.vk);
        assert_eq!(outcome.proof.len(), 192 * num_partitions);
        for part in outcome.proof.chunks(192) {
            let proof = Proof::from_bytes(part).expect("192 bytes of a proof");
            assert!(vk.verify(&proof, &self.inputs));
        }
    }
}

/// Proves jobs of `num_partitions` each, all at once; partitions by device, and the time from first to last.
fn prove_jobs(
    engine: &Engine,
    work: &Work<impl Circuit<Scalar> + Clone + Send + Sync + 'static>,
    num_jobs: usize,
    num_partitions: usize,
) -> (HashMap<String, usize>, Duration) {
    let begun = Instant::now();
    let jobs: Vec<_> = (0..num_jobs)
        .map(|id| engine.submit_blocking(work.request(id, num_partitions)).expect("it is taken"))
        .collect();
    let mut by_device = HashMap::new();
    for job in jobs {
        let outcome = job.wait_blocking().expect("it is proved");
        work.check(&outcome, num_partitions);
        assert_eq!(outcome.devices.len(), num_partitions);
        for device in &outcome.devices {
            *by_device.entry(device.to_string()).or_insert(0) += 1;
        }
    }
    (by_device, begun.elapsed())
}

#[test]
fn b03_single_partition_jobs_spread_over_devices() {
    let factories = factories();
    let num_devices = factories.len();
    let engine = engine(factories);
    let (by_device, _) = prove_jobs(&engine, &Work::new(20_000), 40, 1);
    println!("40 jobs of one partition: {by_device:?}");
    assert_eq!(by_device.values().sum::<usize>(), 40);
    assert_eq!(by_device.len(), num_devices, "every device proves");
    if num_devices == 2 {
        assert!(by_device.values().all(|count| (16..=24).contains(count)), "{by_device:?}");
    }
    engine.shutdown_blocking(Duration::from_secs(10));
}

#[test]
fn a_job_of_ten_partitions_is_split_evenly() {
    let factories = factories();
    let num_devices = factories.len();
    let engine = engine(factories);
    let work = Work::new(1 << 17);
    prove_jobs(&engine, &work, num_devices, 2); // keys resident
    let (by_device, _) = prove_jobs(&engine, &work, 1, 10);
    println!("a job of ten partitions: {by_device:?}");
    assert_eq!(by_device.len(), num_devices);
    if num_devices == 2 {
        assert!(by_device.values().all(|count| (4..=6).contains(count)), "{by_device:?}");
    }
    engine.shutdown_blocking(Duration::from_secs(10));
}

/// B04: every way to name a device finds it, and only it; what names none is refused with a list.
#[test]
fn b04_devices_are_chosen_by_name() {
    let devices = cuzk::cuda::devices().expect("a driver");
    for (ordinal, device) in devices.iter().enumerate() {
        for name in [device.id.to_string(), device.pci_bus_id.clone(), ordinal.to_string()] {
            let selector: DeviceSelector = name.parse().expect("the driver's own names are names");
            let chosen = select_devices(&[selector], 1).expect("it is there");
            assert_eq!(chosen.len(), 1, "{name}");
            use cuzk::backend::BackendFactory;
            assert_eq!(chosen[0].device_id(), device.id);
        }
    }
    let nobody: DeviceSelector = "GPU-ffffffff-0000".parse().expect("it has the form of a name");
    let error = select_devices(&[nobody], 1).expect_err("no such device").to_string();
    assert!(error.contains("visible") && error.contains(devices[0].id.as_str()), "{error}");
}

/// B08: a host's own context stays current on its thread, whatever the devices do meanwhile.
#[test]
fn b08_the_hosts_current_device_stays() {
    let devices = cuzk::cuda::devices().expect("a driver");
    let own = Context::new(devices.last().expect("a GPU")).expect("a context");
    own.memory_info().expect("it makes its context current");
    let engine = engine(factories());
    assert!(own.is_current().expect("the driver answers"));
    prove_jobs(&engine, &Work::new(2_000), 4, 1);
    assert!(own.is_current().expect("the driver answers"));
    engine.shutdown_blocking(Duration::from_secs(10));
    assert!(own.is_current().expect("the driver answers"));
}

/// `x -> x^2 + 1` again and again: every variable dense, and the witness made in no time, so that devices are what counts.
#[derive(Clone)]
struct Chain {
    length: usize,
    x: Option<Scalar>,
}

impl Circuit<Scalar> for Chain {
    fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
        let mut value = self.x;
        let mut last = cs.alloc(|| "", || value.ok_or(SynthesisError::AssignmentMissing))?;
        for _ in 0..self.length {
            value = value.map(|x| x * x + Scalar::ONE);
            let next = cs.alloc(|| "", || value.ok_or(SynthesisError::AssignmentMissing))?;
            cs.enforce(|| "", |lc| lc + last, |lc| lc + last, |lc| lc + next - CS::one());
            last = next;
        }
        let output = cs.alloc_input(|| "", || value.ok_or(SynthesisError::AssignmentMissing))?;
        cs.enforce(|| "", |lc| lc + last, |lc| lc + CS::one(), |lc| lc + output);
        Ok(())
    }
}

/// Three jobs of ten partitions at once: two devices prove at 1.9 times the rate of one.
#[test]
fn two_devices_prove_twice_as_fast() {
    if !std::env::var("CUZK_GPU_LARGE").is_ok_and(|value| value == "1") {
        return println!("left out: CUZK_GPU_LARGE is not 1");
    }
    let all = factories();
    if all.len() < 2 {
        return println!("left out: one GPU");
    }
    let work = Work::of(Chain { length: (1 << 22) - 3, x: Some(Scalar::from(7)) });
    let rate = |factories: Vec<CudaFactory>| {
        let num_devices = factories.len();
        let engine = engine(factories);
        prove_jobs(&engine, &work, num_devices, 2); // keys resident, clocks up
        let (by_device, time) = prove_jobs(&engine, &work, 3, 10);
        let rate = 30.0 / time.as_secs_f64();
        println!("{num_devices} devices: 30 partitions in {time:?}, {rate:.2} a second, {by_device:?}");
        engine.shutdown_blocking(Duration::from_secs(10));
        rate
    };
    let one = rate(all[..1].to_vec());
    let two = rate(all[..2].to_vec());
    assert!(two >= 1.9 * one, "{two:.2} against {one:.2} partitions a second");
}
