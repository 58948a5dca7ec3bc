//! Whole proofs on one device, with the key resident: from a witness in host memory to the proof's bytes.

mod known_key;

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bellpepper_core::{Circuit, ConstraintSystem, LinearCombination, SynthesisError, Variable};
use blstrs::Scalar;
use crossbeam_channel::Receiver;
use cuzk::backend::{
    BackendEvent, BackendFactory, BackendWaker, DeviceBackend, LaneIndex, PartitionWork, Stage,
};
use cuzk::cuda::backend::{select_devices, CudaBackend, CudaFactory};
use cuzk::groth16::{Blinding, PackedWitness, Proof, R1csShape, Srs};
use cuzk::ids::{CircuitId, JobId, PartitionIndex, WorkRef};
use cuzk::policy::plan::{plan, ProvePlan, ShapeSummary, SrsSummary};
use ff::Field;
use rand_chacha::ChaCha20Rng;
use rand_core::{RngCore, SeedableRng};

use crate::kernels::Bench;
use crate::proof::known_key::{expected_proof, make_key};
use crate::report::{Row, Work};

/// Proofs of several sizes, every byte of each known beforehand. Wall time, the host's evaluation of
/// the rows included.
pub fn measure(bench: &Bench) -> Result<Vec<Row>, Box<dyn Error>> {
    let cases: &[(u32, bool)] =
        if bench.is_quick { &[(12, false)] } else { &[(20, false), (22, false), (22, true), (24, false)] };
    // What measurements before left in the pool belongs to the proofs now.
    bench.context.trim(0)?;
    let free_bytes = bench.context.memory_info()?.0;
    let factory = select_devices(&[], 1)?.into_iter().next().ok_or("no GPU is visible")?;
    let mut device = ProofBench::open(&factory)?;
    let mut rows = Vec::new();
    for &(log2, dense) in cases {
        let kind = if dense { "dense" } else { "90 % bits" };
        eprintln!("proof of 2^{log2} constraints, {kind}: making key and witness");
        let case = ProofCase::new(bench, log2, dense)?;
        let plan = case.plan(free_bytes / 10 * 9)?;
        // The first one reads the key.
        let first = device.run(&case, &plan)?;
        let mut peak_bytes = first.memory_peak_bytes;
        let mut walls = Vec::new();
        let mut stages: Vec<(Stage, Vec<f32>)> =
            first.stages.iter().map(|(stage, _)| (*stage, vec![])).collect();
        for _ in 0..bench.repeats {
            let run = device.run(&case, &plan)?;
            peak_bytes = peak_bytes.max(run.memory_peak_bytes);
            walls.push(run.wall.as_secs_f32() * 1e3);
            for ((_, times), (_, elapsed)) in stages.iter_mut().zip(run.stages) {
                times.push(elapsed.as_secs_f32() * 1e3);
            }
        }
        let work = Work { operations: 1.0, unit: "proof", wide_each: 0.0 };
        let row =
            Row::new(format!("proof, {kind}"), format!("2^{log2}"), &walls, &work, bench.wide_per_second);
        eprintln!("proof of 2^{log2} constraints, {kind}: {:.1} ms", row.median_ms);
        rows.push(row.peak_vram_bytes(peak_bytes));
        rows.extend(stages.iter().map(|(stage, times)| {
            Row::new(format!("  {stage:?}"), format!("2^{log2}"), times, &work, bench.wide_per_second)
        }));
        device.backend.evict_srs(&case.circuit);
    }
    Ok(rows)
}

/// A circuit of `num_constraints`, of which all but one in ten fix a bit (or none, if `dense`).
#[derive(Clone)]
struct BenchCircuit {
    num_constraints: usize,
    dense: bool,
    /// `None`: matrices only.
    seed: Option<u64>,
}

impl Circuit<Scalar> for BenchCircuit {
    fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
        let mut rng = self.seed.map(ChaCha20Rng::seed_from_u64);
        let mut last: Option<(Variable, Option<Scalar>)> = None;
        for index in 0..self.num_constraints {
            if self.dense || index % 10 == 0 {
                last = Some(product(cs, last, rng.as_mut())?);
            } else {
                bit(cs, rng.as_mut())?;
            }
        }
        let (variable, value) = last.ok_or(SynthesisError::Unsatisfiable)?;
        let input = cs.alloc_input(|| "", || value.ok_or(SynthesisError::AssignmentMissing))?;
        cs.enforce(|| "", |lc| lc + variable, |lc| lc + CS::one(), |lc| lc + input);
        Ok(())
    }
}

/// `(last + k) · last = z`: one dense variable, in A and B.
fn product<CS: ConstraintSystem<Scalar>>(
    cs: &mut CS,
    last: Option<(Variable, Option<Scalar>)>,
    rng: Option<&mut ChaCha20Rng>,
) -> Result<(Variable, Option<Scalar>), SynthesisError> {
    let Some((x, x_value)) = last else {
        let value = rng.map(Scalar::random);
        let z = cs.alloc(|| "", || value.ok_or(SynthesisError::AssignmentMissing))?;
        cs.enforce(|| "", |lc| lc + z, |lc| lc + CS::one(), |lc| lc + z);
        return Ok((z, value));
    };
    let k = Scalar::from(5u64);
    let value = x_value.map(|x| (x + k) * x);
    let z = cs.alloc(|| "", || value.ok_or(SynthesisError::AssignmentMissing))?;
    let shifted = LinearCombination::zero() + x + (k, CS::one());
    cs.enforce(|| "", |_| shifted, |lc| lc + x, |lc| lc + z);
    Ok((z, value))
}

fn bit<CS: ConstraintSystem<Scalar>>(
    cs: &mut CS,
    rng: Option<&mut ChaCha20Rng>,
) -> Result<(), SynthesisError> {
    let value = rng.map(|rng| Scalar::from(u64::from(rng.next_u32() & 1)));
    let b = cs.alloc(|| "", || value.ok_or(SynthesisError::AssignmentMissing))?;
    cs.enforce(|| "", |lc| lc + b, |lc| lc + CS::one() - b, |lc| lc);
    Ok(())
}

/// A key and a witness, made once per size.
struct ProofCase {
    circuit: CircuitId,
    shape: Arc<R1csShape>,
    srs: Arc<Srs>,
    witness: Arc<PackedWitness>,
    expected: Proof,
}

impl ProofCase {
    /// # Errors
    /// The device's failures.
    ///
    /// # Panics
    /// If the circuit is not satisfied.
    fn new(bench: &Bench, log2: u32, dense: bool) -> Result<Self, Box<dyn Error>> {
        // The input rows, and the last constraint, bring it up to the domain's size.
        let circuit = BenchCircuit { num_constraints: (1 << log2) - 3, dense, seed: Some(u64::from(log2)) };
        let shape = R1csShape::record(BenchCircuit { seed: None, ..circuit.clone() })?;
        assert_eq!(shape.domain_log2(), log2);
        let witness = PackedWitness::synthesize(circuit, &shape)?;
        shape.check_satisfied(&witness)?;
        let expected = expected_proof(&shape, &witness, &blinding())?;
        Ok(Self {
            circuit: CircuitId::new(format!("bench-{log2}-{}", if dense { "dense" } else { "bits" })),
            srs: Arc::new(make_key(bench, &shape)?),
            shape: Arc::new(shape),
            witness: Arc::new(witness),
            expected,
        })
    }

    /// The plan for a budget, with as much resident as fits.
    fn plan(&self, budget_bytes: u64) -> Result<ProvePlan, cuzk::error::PlanError> {
        plan(&ShapeSummary::of(&self.shape), &SrsSummary::of(&self.srs), budget_bytes)
    }

    fn work(&self) -> PartitionWork {
        PartitionWork {
            at: WorkRef::partition(JobId(1), PartitionIndex(0)),
            circuit: self.circuit.clone(),
            shape: Arc::clone(&self.shape),
            srs: Arc::clone(&self.srs),
            witness: Arc::clone(&self.witness),
            blinding: blinding(),
        }
    }
}

fn blinding() -> Blinding {
    Blinding { r: Scalar::from(11u64), s: Scalar::from(13u64) }
}

/// One proof, from `begin` to its bytes.
struct ProofRun {
    wall: Duration,
    stages: Vec<(Stage, Duration)>,
    memory_peak_bytes: u64,
}

/// A device that proves one partition after the other in its first lane.
struct ProofBench {
    backend: CudaBackend,
    wakes: Receiver<()>,
}

impl ProofBench {
    /// # Errors
    /// If the device cannot be opened.
    fn open(factory: &CudaFactory) -> Result<Self, cuzk::error::DeviceError> {
        let (woke, wakes) = crossbeam_channel::unbounded();
        let waker: BackendWaker = Arc::new(move || {
            // Nobody listens once the bench has ended.
            let _ = woke.send(());
        });
        Ok(Self { backend: factory.open(waker)?, wakes })
    }

    /// Proves once and compares every byte.
    ///
    /// # Errors
    /// What went wrong, for a person.
    fn run(&mut self, case: &ProofCase, plan: &ProvePlan) -> Result<ProofRun, String> {
        let lane = LaneIndex(0);
        let work = case.work();
        let begun = Instant::now();
        let text = |error: cuzk::error::DeviceError| error.to_string();
        self.backend.begin(lane, work, plan).map_err(text)?;
        let mut wanted = Stage::ALL.into_iter();
        let mut in_flight = 0;
        let mut stages = Vec::new();
        let max_in_flight = 1 + self.backend.stages_ahead();
        loop {
            while in_flight < max_in_flight {
                let Some(stage) = wanted.next() else { break };
                self.backend.enqueue(lane, stage).map_err(text)?;
                in_flight += 1;
            }
            for event in self.backend.poll() {
                match event {
                    BackendEvent::StageDone { stage, elapsed, .. } => {
                        in_flight -= 1;
                        stages.push((stage, elapsed));
                    }
                    BackendEvent::StageFailed { error, .. } => return Err(text(error)),
                    BackendEvent::Aborted { .. } => return Err("aborted".to_owned()),
                }
            }
            if stages.len() == Stage::ALL.len() {
                break;
            }
            // The device wakes us; the limit is for what happens without a sign.
            let _ = self.wakes.recv_timeout(Duration::from_millis(20));
        }
        let finished = self.backend.take_proof(lane).map_err(text)?;
        let wall = begun.elapsed();
        if finished.proof != case.expected {
            return Err("the proof is wrong".to_owned());
        }
        Ok(ProofRun { wall, stages, memory_peak_bytes: finished.memory_peak_bytes })
    }
}
