//! Whole proofs on real GPUs, through the device actor: the same bytes as the CPU's prover, whatever the budget.
//!
//! Needs a GPU, and fails without one. `CUZK_GPU_LARGE=1` adds the sizes that take minutes.

mod common;
#[path = "gpu_proof/passes.rs"]
mod passes;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use blstrs::Scalar;
use common::device::{DeviceRig, Fact};
use common::on_arbiter;
use common::synthetic::{Synthetic, Values, ALL_VALUES};
use crossbeam_channel::Receiver;
use cuzk::actors::gpu_device::{DeviceConfig, DeviceSpawner, FactorySpawner};
use cuzk::backend::{
    BackendEvent, BackendFactory, BackendWaker, DeviceBackend, FinishedProof, LaneIndex, PartitionWork, Stage,
};
use cuzk::cuda::backend::{select_devices, CudaBackend, CudaFactory};
use cuzk::error::{DeviceError, SynthesisError};
use cuzk::groth16::generate::{fold_from_secrets, generate_srs};
use cuzk::groth16::{prover, Blinding, PackedWitness, Proof, R1csShape, Srs};
use cuzk::ids::{CircuitId, JobId, PartitionIndex, WorkRef};
use cuzk::messages::device::{EvictSrs, LaneKind, PartitionProved};
use cuzk::messages::job::Priority;
use cuzk::policy::plan::{
    least_budget_bytes, plan, plan_with_resident, Evaluation, ProvePlan, Query, QuerySet, ShapeSummary,
    SrsSummary,
};
use ff::Field;
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;

const GIB: u64 = 1 << 30;
const LANES: u32 = 2;

/// One test at a time has the GPU: what is free of its memory is looked at, and who overtakes whom.
fn alone() -> MutexGuard<'static, ()> {
    static GPU: Mutex<()> = Mutex::new(());
    GPU.lock().unwrap_or_else(PoisonError::into_inner)
}

fn large() -> bool {
    std::env::var_os("CUZK_GPU_LARGE").is_some()
}

fn factories() -> Vec<CudaFactory> {
    select_devices(&[], LANES).expect("these tests need a GPU and a build with kernels")
}

/// How much of the first device's memory is in use, whoever asks: by a context that is there to look from.
fn used_bytes_of_device() -> impl Fn() -> u64 {
    let device = cuzk::cuda::devices().expect("a driver").swap_remove(0);
    let context = cuzk::cuda::Context::new(&device).expect("a context to look from");
    move || {
        let (free, total) = context.memory_info().expect("the device answers");
        total - free
    }
}

fn spawner() -> Arc<dyn DeviceSpawner> {
    FactorySpawner::boxed(factories().swap_remove(0))
}

/// A circuit, its key and witnesses: at least one.
struct Case {
    name: CircuitId,
    shape: Arc<R1csShape>,
    srs: Arc<Srs>,
    witnesses: Vec<Arc<PackedWitness>>,
    /// The CPU's proofs, as far as they were asked for.
    proofs: Mutex<BTreeMap<u32, Proof>>,
}

impl Case {
    fn new(circuit: Synthetic) -> Self {
        Self::with_witnesses(circuit, 1)
    }

    /// Partition `index` has witness `index` modulo `num_witnesses`.
    fn with_witnesses(circuit: Synthetic, num_witnesses: u64) -> Self {
        let mut rng = ChaCha20Rng::seed_from_u64(circuit.num_constraints as u64);
        let shape = R1csShape::record(circuit.clone()).expect("the circuit is fixed");
        let srs = generate_srs(&shape, &mut rng).expect("the circuit has a key");
        let name = CircuitId::new(format!("{}-{:?}", circuit.num_constraints, circuit.values));
        let witness_of = |witness| {
            let circuit = Synthetic { witness, ..circuit.clone() };
            Arc::new(PackedWitness::synthesize(circuit, &shape).expect("the circuit is satisfied"))
        };
        let witnesses = (0..num_witnesses).map(witness_of).collect();
        Self { name, shape: Arc::new(shape), srs: Arc::new(srs), witnesses, proofs: Mutex::default() }
    }

    fn witness(&self, index: u32) -> &Arc<PackedWitness> {
        &self.witnesses[index as usize % self.witnesses.len()]
    }

    /// The same circuit with its key folded. The proofs are the same.
    fn folded(&self) -> Self {
        let num_constraints: u64 =
            self.name.as_str().split('-').next().and_then(|number| number.parse().ok()).expect("the name's");
        let mut rng = ChaCha20Rng::seed_from_u64(num_constraints);
        let fold = fold_from_secrets(&self.shape, &mut rng).expect("the circuit has a key");
        let Srs { vk, basis, h, l, a, b_g1, b_g2 } = &*self.srs;
        let srs = Srs {
            vk: vk.clone(),
            basis: *basis,
            h: h.clone(),
            l: l.clone(),
            a: a.clone(),
            b_g1: b_g1.clone(),
            b_g2: b_g2.clone(),
        };
        Self {
            name: CircuitId::new(format!("{}-folded", self.name)),
            shape: Arc::clone(&self.shape),
            srs: Arc::new(fold.apply(srs)),
            witnesses: self.witnesses.clone(),
            proofs: Mutex::default(),
        }
    }

    /// Partition `index`; its blinding follows from the index.
    fn work(&self, index: u32) -> PartitionWork {
        PartitionWork {
            at: WorkRef::partition(JobId(1), PartitionIndex(index)),
            circuit: self.name.clone(),
            shape: Arc::clone(&self.shape),
            srs: Arc::clone(&self.srs),
            witness: Arc::clone(self.witness(index)),
            blinding: blinding(index),
        }
    }

    fn expected(&self, index: u32) -> Proof {
        let prove = || prover::prove(&self.srs, &self.shape, self.witness(index), &blinding(index));
        let mut proofs = self.proofs.lock().expect("no test goes on behind a panic");
        proofs.entry(index).or_insert_with(|| prove().expect("the key fits")).clone()
    }

    fn summaries(&self) -> (ShapeSummary, SrsSummary) {
        (ShapeSummary::of(&self.shape), SrsSummary::of(&self.srs))
    }
}

fn blinding(index: u32) -> Blinding {
    let mut rng = ChaCha20Rng::seed_from_u64(1000 + u64::from(index));
    let r = Scalar::random(&mut rng);
    Blinding { r, s: Scalar::random(&mut rng) }
}

fn with_budget(budget_bytes: Option<u64>) -> DeviceConfig {
    DeviceConfig { budget_bytes, ..DeviceConfig::default() }
}

/// The plan is never exceeded, and for a dense witness, for which it is made, peaks agree within 2 % + 64 MiB. One of bits
/// takes less.
fn assert_memory_as_planned(proved: &PartitionProved, values: Values) {
    let (planned, peak) = (proved.memory_planned_bytes, proved.memory_peak_bytes);
    assert!(peak <= planned, "{}: peak {peak} B, planned {planned} B", proved.at);
    let slack = planned / 50 + (64 << 20);
    let is_dense = values == Values::Random;
    assert!(!is_dense || planned - peak <= slack, "{}: peak {peak} B, planned {planned} B", proved.at);
}

#[test]
fn every_size_and_every_kind_of_witness_gives_the_cpus_bytes() {
    let _gpu = alone();
    on_arbiter(async {
        let mut rig = DeviceRig::ready(&spawner(), with_budget(None)).await;
        let sizes = [1usize, 2, 3, 7, 31, 32, 33, 127, 128, 129, 1000, 1023, 1025, 5000, 20_000];
        for (index, num_constraints) in (0u32..).zip(sizes) {
            for values in ALL_VALUES {
                let case = Case::new(Synthetic::new(num_constraints, values));
                let expected = case.expected(index);
                for case in [case.folded(), case] {
                    rig.prove(case.work(index));
                    let proved = rig.proved().await;
                    assert_eq!(proved.proof, expected, "{}", case.name);
                    assert_memory_as_planned(&proved, values);
                }
            }
        }
    });
}

/// All resident, none resident, and steps between: streamed sums, small windows, small chunks.
#[test]
fn every_budget_gives_the_same_bytes() {
    let _gpu = alone();
    on_arbiter(async {
        let num_constraints = if large() { 1 << 20 } else { 1 << 15 };
        for values in [Values::Bits, Values::Random] {
            let plain = Case::new(Synthetic::new(num_constraints, values));
            let expected = plain.expected(0);
            for case in [plain.folded(), plain] {
                let (shape, srs) = case.summaries();
                let least = least_budget_bytes(&shape, &srs);
                let roomy = plan(&shape, &srs, 64 * GIB).expect("there is room").peak_bytes();
                for step in 0..=6 {
                    let budget = least + (roomy - least) * step / 6;
                    let mut rig = DeviceRig::ready(&spawner(), with_budget(Some(budget))).await;
                    rig.prove(case.work(0));
                    let proved = rig.proved().await;
                    assert_eq!(proved.proof, expected, "{} within {budget} B", case.name);
                    assert_memory_as_planned(&proved, values);
                    assert!(proved.memory_planned_bytes <= budget);
                }
            }
        }
    });
}

/// Many partitions in flight, of several circuits, with eviction: every proof is the CPU's.
#[test]
fn mixed_circuits_on_both_lanes_give_the_cpus_bytes() {
    let _gpu = alone();
    on_arbiter(async {
        let num_proofs = if large() { 1000 } else { 60 };
        let cases: Vec<Case> =
            [(900, Values::Bits), (4000, Values::Random), (9000, Values::Bits), (60, Values::Ones)]
                .into_iter()
                .map(|(num_constraints, values)| Case::new(Synthetic::new(num_constraints, values)))
                .map(|case| if case.shape.num_constraints().is_multiple_of(8) { case.folded() } else { case })
                .collect();
        // Room for the largest alone with everything resident, so that the others are evicted in turn.
        let (shape, srs) = cases[2].summaries();
        let budget = plan(&shape, &srs, 64 * GIB).expect("there is room").peak_bytes() * 3 / 2;
        let mut rig = DeviceRig::ready(&spawner(), with_budget(Some(budget))).await;
        let (mut sent, mut done) = (0u32, 0);
        while done < num_proofs {
            while sent < done + LANES && sent < num_proofs {
                rig.prove(cases[sent as usize * 7 % 4].work(sent));
                sent += 1;
            }
            let proved = rig.proved().await;
            let index = proved.at.partition.expect("a partition").0;
            let case = &cases[index as usize * 7 % 4];
            assert_eq!(proved.proof, case.expected(index), "proof {index} of {}", case.name);
            done += 1;
        }
    });
}

#[test]
fn a_cancelled_partition_frees_its_lane_and_the_next_proof_is_right() {
    let _gpu = alone();
    on_arbiter(async {
        let case = Case::new(Synthetic::new(1 << 15, Values::Random));
        let (shape, srs) = case.summaries();
        let tight = least_budget_bytes(&shape, &srs) * 5 / 4;
        for budget in [None, Some(tight)] {
            for stage in [Stage::Upload, Stage::Evaluate, Stage::Quotient, Stage::SumH, Stage::SumA] {
                let mut rig = DeviceRig::ready(&spawner(), with_budget(budget)).await;
                let cancel = rig.prove(case.work(0));
                rig.stage(stage).await;
                cancel.cancel();
                let failed = rig
                    .facts
                    .find(|fact| match fact {
                        Fact::Failed(failed) => Some(Some(failed.error.clone())),
                        Fact::Proved(_) => Some(None),
                        _ => None,
                    })
                    .await;
                assert!(matches!(failed, Some(DeviceError::Cancelled { .. }) | None), "{failed:?}");
                rig.prove(case.work(1));
                assert_eq!(rig.proved().await.proof, case.expected(1), "after a cancel behind {stage}");
            }
        }
    });
}

/// A CRITICAL proof does not wait for a partition that runs, however large.
#[test]
fn a_critical_proof_overtakes_a_running_one() {
    let _gpu = alone();
    on_arbiter(async {
        let num_constraints = if large() { 1 << 22 } else { 1 << 20 };
        let slow = Case::new(Synthetic::new(num_constraints, Values::Random));
        let urgent = Case::new(Synthetic::new(2000, Values::Bits));
        let mut rig = DeviceRig::ready(&spawner(), with_budget(None)).await;
        for index in 0..2 {
            rig.prove(slow.work(index)); // warm: both keys resident afterwards
            rig.proved().await;
            rig.prove_as(urgent.work(index), Priority::Critical, LaneKind::Critical);
            rig.proved().await;
        }
        rig.prove(slow.work(2));
        rig.stage(Stage::Quotient).await;
        let begun = Instant::now();
        rig.prove_as(urgent.work(3), Priority::Critical, LaneKind::Critical);
        let first = rig.proved().await;
        println!("critical proof beside a running one: {:?}", begun.elapsed());
        assert_eq!(first.at.partition, Some(PartitionIndex(3)), "the critical proof comes first");
        assert_eq!(first.proof, urgent.expected(3));
        assert_eq!(rig.proved().await.proof, slow.expected(2));
    });
}

#[test]
fn b10_b17_device_memory_stays_flat_and_is_given_back() {
    let _gpu = alone();
    on_arbiter(async {
        let (num_constraints, num_proofs) = if large() { (1 << 20, 50) } else { (1 << 14, 20) };
        let case = Case::new(Synthetic::new(num_constraints, Values::Bits));
        let expected = case.expected(0);
        let used_bytes = used_bytes_of_device();
        let mut rig = DeviceRig::ready(&spawner(), with_budget(None)).await;
        let before = used_bytes();
        let mut after_third = 0;
        for index in 0..num_proofs {
            rig.prove(case.work(0));
            assert_eq!(rig.proved().await.proof, expected, "proof {index}");
            rig.freed().await;
            match index {
                0..2 => {}
                2 => after_third = used_bytes(),
                _ => {
                    let used = used_bytes();
                    assert!(used.abs_diff(after_third) <= 64 << 20, "{used} B after {after_third} B");
                }
            }
        }
        let evicted =
            rig.handle.address.evict.send(EvictSrs { circuit: case.name.clone(), when_idle: false }).await;
        let evicted = evicted.expect("the actor answers").expect("nothing uses it");
        assert!(matches!(evicted, cuzk::messages::srs::Eviction::Freed { .. }), "{evicted:?}");
        let after = used_bytes();
        assert!(after <= before + GIB, "{after} B in use after eviction, {before} B before");
    });
}

/// A plan's queries may be any subset: what is resident and what is streamed add up to the same sum.
#[test]
fn partly_resident_keys_give_the_same_bytes() {
    let _gpu = alone();
    let plain = Case::new(Synthetic::new(3000, Values::Bits));
    let expected = plain.expected(0);
    for case in [plain.folded(), plain] {
        check_every_resident_set(&case, expected.clone());
    }
}

fn check_every_resident_set(case: &Case, expected: Proof) {
    let (shape, srs) = case.summaries();
    for kept in 0..64u32 {
        let resident = Query::ALL
            .into_iter()
            .enumerate()
            .filter(|(bit, _)| kept >> bit & 1 == 1)
            .fold(QuerySet::NONE, |set, (_, query)| set.with(query));
        let shape_too = kept >> Query::ALL.len() & 1 == 1;
        let resident = if shape_too { resident.union(QuerySet::SHAPE) } else { resident };
        let plan = plan_with_resident(&shape, &srs, resident, GIB).expect("there is room");
        assert_eq!(plan.evaluation == Evaluation::Device, shape_too);
        let mut device = Bare::open(&factories()[0]);
        let proof = device.prove(LaneIndex(0), case.work(0), &plan).proof;
        assert_eq!(proof, expected, "resident: {kept:06b}");
        assert_eq!(device.backend.resident(&case.name), resident);
    }
}

/// A device without an actor, so that what is in which stage depends on no time. Nobody asks it by and by: it has to wake.
struct Bare {
    backend: CudaBackend,
    wakes: Receiver<()>,
    failed: Vec<(LaneIndex, Stage, DeviceError)>,
    aborted: Vec<LaneIndex>,
}

impl Bare {
    fn open(factory: &CudaFactory) -> Self {
        let (woke, wakes) = crossbeam_channel::unbounded();
        let waker: BackendWaker = Arc::new(move || {
            let _ = woke.send(());
        });
        let backend = factory.open(waker).expect("a GPU");
        Self { backend, wakes, failed: Vec::new(), aborted: Vec::new() }
    }

    /// One poll, and the stages that it says are done.
    fn poll_once(&mut self) -> Vec<(LaneIndex, Stage)> {
        let mut done = Vec::new();
        for event in self.backend.poll() {
            match event {
                BackendEvent::StageDone { lane, stage, .. } => done.push((lane, stage)),
                BackendEvent::StageFailed { lane, stage, error } => self.failed.push((lane, stage, error)),
                BackendEvent::Aborted { lane } => self.aborted.push(lane),
            }
        }
        done
    }

    /// Waits for a wake-up; takes those with it that came before, as the actor does.
    fn wait(&self) {
        self.wakes.recv_timeout(Duration::from_secs(60)).expect("whoever is to poll is woken");
        self.wakes.try_iter().for_each(drop);
    }

    /// The stages that are done by the next poll of which anything is heard.
    fn poll(&mut self) -> Vec<(LaneIndex, Stage)> {
        loop {
            let heard = (self.failed.len(), self.aborted.len());
            let done = self.poll_once();
            if !done.is_empty() || heard != (self.failed.len(), self.aborted.len()) {
                return done;
            }
            self.wait();
        }
    }

    /// One stage, with no other in flight.
    fn run(&mut self, lane: LaneIndex, stage: Stage) -> Result<(), DeviceError> {
        self.backend.enqueue(lane, stage).expect("it can be enqueued");
        loop {
            let done = self.poll();
            if let Some((failed, at, error)) = self.failed.pop() {
                assert_eq!((failed, at), (lane, stage), "{error}");
                return Err(error);
            }
            if !done.is_empty() {
                assert_eq!(done, [(lane, stage)]);
                return Ok(());
            }
        }
    }

    fn run_all(&mut self, lane: LaneIndex, stages: &[Stage]) {
        stages.iter().for_each(|stage| self.run(lane, *stage).expect("no stage fails"));
    }

    fn prove(&mut self, lane: LaneIndex, work: PartitionWork, plan: &ProvePlan) -> FinishedProof {
        self.backend.begin(lane, work, plan).expect("the lane is empty");
        self.run_all(lane, &Stage::ALL);
        self.backend.take_proof(lane).expect("it is done")
    }
}

/// Both lanes evaluate from one shape; each stage holds what its plan says, and eviction gives the shape back.
#[test]
fn lanes_share_the_resident_shape_and_hold_what_is_planned() {
    let _gpu = alone();
    let case = Case::new(Synthetic::new(6000, Values::Bits));
    let (shape, srs) = case.summaries();
    let plan = plan_with_resident(&shape, &srs, QuerySet::SHAPE, GIB).expect("there is room");
    assert_eq!(plan.resident_bytes, shape.shape_bytes());
    let mut device = Bare::open(&factories()[0]);
    let witness = 32 * (shape.num_inputs + shape.num_aux);
    let dense = shape.evaluation.expect("a shape that is known").num_dense;
    let packed = 32 * (shape.num_inputs + dense) + 8 * shape.num_aux.div_ceil(64);
    let vector = 32u64 << shape.domain_log2;
    assert_eq!(plan.stage_bytes[Stage::Evaluate.index()], witness + packed + 2 * vector);
    let lanes = [LaneIndex(0), LaneIndex(1)];
    for (index, lane) in (0..).zip(lanes) {
        device.backend.begin(lane, case.work(index), &plan).expect("the lane is empty");
        let before = device.backend.memory_in_use_bytes();
        device.run(lane, Stage::Upload).expect("it is uploaded");
        let shape_bytes = if index == 0 { plan.resident_bytes } else { 0 };
        assert_eq!(device.backend.memory_in_use_bytes() - before, shape_bytes + witness + packed);
        device.run(lane, Stage::Evaluate).expect("it is evaluated");
        // The scalars are made anew for the sums.
        assert_eq!(device.backend.memory_in_use_bytes() - before, shape_bytes + packed + 2 * vector);
    }
    for (index, lane) in (0..).zip(lanes) {
        device.run_all(lane, &Stage::ALL[Stage::Quotient.index()..]);
        let finished = device.backend.take_proof(lane).expect("it is done");
        assert_eq!(finished.proof, case.expected(index));
        assert!(finished.memory_peak_bytes <= plan.work_peak_bytes());
    }
    let Bare { mut backend, .. } = device;
    assert_eq!(backend.memory_in_use_bytes(), plan.resident_bytes);
    assert_eq!(backend.resident(&case.name), QuerySet::SHAPE);
    assert!(backend.evict_srs(&case.name));
    assert_eq!((backend.memory_in_use_bytes(), backend.resident(&case.name)), (0, QuerySet::NONE));
}

/// A witness that is wrong in spite of the host's check is stopped before anything is proved, by its constraint: whether the
/// device evaluates, or the host does, where there is no room for the shape.
#[test]
fn a_broken_witness_is_named_by_its_row() {
    let _gpu = alone();
    let case = Case::new(Synthetic::new(3000, Values::Random));
    for resident in [QuerySet::SHAPE, QuerySet::NONE] {
        check_broken_witness(&case, resident);
    }
}

fn check_broken_witness(case: &Case, resident: QuerySet) {
    let (shape, srs) = case.summaries();
    let plan = plan_with_resident(&shape, &srs, resident, GIB).expect("there is room");
    let mut broken = PackedWitness::clone(case.witness(0));
    let middle = broken.dense.len() / 2;
    broken.dense[middle] += Scalar::ONE;
    let Err(SynthesisError::Unsatisfied { index: expected, .. }) = case.shape.check_satisfied(&broken) else {
        panic!("a constraint is broken")
    };
    let mut device = Bare::open(&factories()[0]);
    let lane = LaneIndex(0);
    let work = PartitionWork { witness: Arc::new(broken), ..case.work(0) };
    device.backend.begin(lane, work, &plan).expect("the lane is empty");
    device.run(lane, Stage::Upload).expect("it is uploaded");
    let failed = device.run(lane, Stage::Evaluate);
    let Err(DeviceError::Witness { source: SynthesisError::Unsatisfied { index, .. }, .. }) = failed else {
        panic!("{failed:?}")
    };
    assert_eq!(index, expected);
    // The lane takes the next one.
    assert_eq!(device.prove(lane, case.work(1), &plan).proof, case.expected(1));
}

/// No process-wide state: a file that an embedding host would notice is neither made nor changed.
#[test]
fn b02_no_lock_files_beside_the_gpu() {
    let _gpu = alone();
    let folder = std::env::temp_dir();
    let names = || {
        let entries = std::fs::read_dir(Path::new(&folder)).expect("the temporary folder can be listed");
        let mut names: Vec<_> = entries
            .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
            .collect();
        names.retain(|name| name.contains("gpu") || name.contains("bellman") || name.contains("cuzk"));
        names.sort();
        names
    };
    let before = names();
    on_arbiter(async {
        let case = Case::new(Synthetic::new(100, Values::Bits));
        let mut rig = DeviceRig::ready(&spawner(), with_budget(None)).await;
        rig.prove(case.work(0));
        rig.proved().await;
    });
    assert_eq!(names(), before);
}
