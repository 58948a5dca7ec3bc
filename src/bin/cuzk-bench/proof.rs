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
use cuzk::cuda::backend::{select_devices, CudaBackend};
use cuzk::groth16::fold::Fold;
use cuzk::groth16::{Blinding, PackedWitness, Proof, R1csShape, Srs};
use cuzk::ids::{CircuitId, JobId, PartitionIndex, WorkRef};
use cuzk::policy::plan::{plan, ProvePlan, ShapeSummary, SrsSummary};
use ff::Field;
use rand_chacha::ChaCha20Rng;
use rand_core::{RngCore, SeedableRng};

use crate::kernels::Bench;
use crate::proof::known_key::{expected_proof, make_key};
use crate::report::{Row, Work};

/// Proofs of several sizes, every byte of each known beforehand. Wall time.
pub fn measure(bench: &Bench) -> Result<Vec<Row>, Box<dyn Error>> {
    let cases: &[(u32, Kind)] = if bench.is_quick {
        &[(12, Kind::Bits)]
    } else {
        &[(20, Kind::Bits), (22, Kind::Bits), (22, Kind::Dense), (24, Kind::Bits)]
    };
    let mut device = ProofBench::open(bench)?;
    let mut rows = Vec::new();
    for &(log2, kind) in cases {
        let case = ProofCase::new(bench, log2, kind)?;
        rows.extend(device.measure(bench, &case)?);
    }
    Ok(rows)
}

/// What a circuit's constraints are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nine in ten fix a bit.
    Bits,
    /// None does.
    Dense,
    /// Nine in ten are of a hash function's bits: one in four fixes one, the others are exclusive ors.
    Hash,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Bits => "90 % bits",
            Self::Dense => "dense",
            Self::Hash => "hash-like",
        }
    }
}

/// A circuit of `num_constraints`.
#[derive(Clone)]
struct BenchCircuit {
    num_constraints: usize,
    kind: Kind,
    /// `None`: matrices only.
    seed: Option<u64>,
}

impl Circuit<Scalar> for BenchCircuit {
    fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
        let mut rng = self.seed.map(ChaCha20Rng::seed_from_u64);
        let mut last: Option<(Variable, Option<Scalar>)> = None;
        let mut bits = [None; 2];
        for index in 0..self.num_constraints {
            if self.kind == Kind::Dense || index % 10 == 0 {
                last = Some(product(cs, last, rng.as_mut())?);
            } else {
                let next = match bits {
                    [Some(left), Some(right)] if self.kind == Kind::Hash && index % 4 != 0 => {
                        exclusive_or(cs, left, right)?
                    }
                    _ => bit(cs, rng.as_mut())?,
                };
                bits = [bits[1], Some(next)];
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

type Bit = (Variable, Option<Scalar>);

fn bit<CS: ConstraintSystem<Scalar>>(
    cs: &mut CS,
    rng: Option<&mut ChaCha20Rng>,
) -> Result<Bit, SynthesisError> {
    let value = rng.map(|rng| Scalar::from(u64::from(rng.next_u32() & 1)));
    let b = cs.alloc(|| "", || value.ok_or(SynthesisError::AssignmentMissing))?;
    cs.enforce(|| "", |lc| lc + b, |lc| lc + CS::one() - b, |lc| lc);
    Ok((b, value))
}

/// `2a · b = a + b - c`: zero on the left wherever both bits are.
fn exclusive_or<CS: ConstraintSystem<Scalar>>(
    cs: &mut CS,
    (a, a_value): Bit,
    (b, b_value): Bit,
) -> Result<Bit, SynthesisError> {
    let value = a_value.zip(b_value).map(|(a, b)| if a == b { Scalar::ZERO } else { Scalar::ONE });
    let c = cs.alloc(|| "", || value.ok_or(SynthesisError::AssignmentMissing))?;
    cs.enforce(|| "", |lc| lc + a + a, |lc| lc + b, |lc| lc + a + b - c);
    Ok((c, value))
}

/// A key and a witness, made once per size.
pub struct ProofCase {
    pub name: String,
    log2: u32,
    circuit: CircuitId,
    pub shape: Arc<R1csShape>,
    pub srs: Arc<Srs>,
    witness: Arc<PackedWitness>,
    expected: Proof,
}

impl ProofCase {
    /// # Errors
    /// The device's failures.
    ///
    /// # Panics
    /// If the circuit is not satisfied.
    pub fn new(bench: &Bench, log2: u32, kind: Kind) -> Result<Self, Box<dyn Error>> {
        eprintln!("proof of 2^{log2} constraints, {}: making key and witness", kind.name());
        // The input rows, and the last constraint, bring it up to the domain's size.
        let circuit = BenchCircuit { num_constraints: (1 << log2) - 3, kind, seed: Some(u64::from(log2)) };
        let shape = R1csShape::record(BenchCircuit { seed: None, ..circuit.clone() })?;
        assert_eq!(shape.domain_log2(), log2);
        let witness = PackedWitness::synthesize(circuit, &shape)?;
        shape.check_satisfied(&witness)?;
        let expected = expected_proof(&shape, &witness, &blinding())?;
        Ok(Self {
            name: kind.name().to_owned(),
            log2,
            circuit: CircuitId::new(format!("bench-{log2}-{kind:?}")),
            srs: Arc::new(make_key(bench, &shape)?),
            shape: Arc::new(shape),
            witness: Arc::new(witness),
            expected,
        })
    }

    /// The same work with its key folded.
    ///
    /// # Errors
    /// If the key is still used.
    pub fn folded(self, fold: Fold) -> Result<Self, &'static str> {
        let srs = Arc::into_inner(self.srs).ok_or("the key is still in use")?;
        Ok(Self {
            name: format!("{}, folded", self.name),
            circuit: CircuitId::new(format!("{}-folded", self.circuit)),
            srs: Arc::new(fold.apply(srs)),
            ..self
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
pub struct ProofBench {
    backend: CudaBackend,
    wakes: Receiver<()>,
    budget_bytes: u64,
}

impl ProofBench {
    /// # Errors
    /// If the device cannot be opened.
    pub fn open(bench: &Bench) -> Result<Self, Box<dyn Error>> {
        // What measurements before left in the pool belongs to the proofs now.
        bench.context.trim(0)?;
        let budget_bytes = bench.context.memory_info()?.0 / 10 * 9;
        let factory = select_devices(&[], 1)?.into_iter().next().ok_or("no GPU is visible")?;
        let (woke, wakes) = crossbeam_channel::unbounded();
        let waker: BackendWaker = Arc::new(move || {
            // Nobody listens once the bench has ended.
            let _ = woke.send(());
        });
        Ok(Self { backend: factory.open(waker)?, wakes, budget_bytes })
    }

    /// The case's proofs, whole and by stages. Its key is not resident afterwards.
    ///
    /// # Errors
    /// What went wrong; a wrong proof, too.
    pub fn measure(&mut self, bench: &Bench, case: &ProofCase) -> Result<Vec<Row>, Box<dyn Error>> {
        let plan = case.plan(self.budget_bytes)?;
        // The first one reads the key.
        let first = self.run(case, &plan)?;
        let mut peak_bytes = first.memory_peak_bytes;
        let mut walls = Vec::new();
        let mut stages: Vec<(Stage, Vec<f32>)> =
            first.stages.iter().map(|(stage, _)| (*stage, vec![])).collect();
        for _ in 0..bench.repeats {
            let run = self.run(case, &plan)?;
            peak_bytes = peak_bytes.max(run.memory_peak_bytes);
            walls.push(run.wall.as_secs_f32() * 1e3);
            for ((_, times), (_, elapsed)) in stages.iter_mut().zip(run.stages) {
                times.push(elapsed.as_secs_f32() * 1e3);
            }
        }
        self.backend.evict_srs(&case.circuit);
        let work = Work { operations: 1.0, unit: "proof", wide_each: 0.0 };
        let size = format!("2^{}", case.log2);
        let named = |name: String, times: &[f32]| Row::new(name, &size, times, &work, bench.wide_per_second);
        let whole = named(format!("proof, {}", case.name), &walls);
        eprintln!("proof of {size} constraints, {}: {:.1} ms", case.name, whole.median_ms);
        let mut rows = vec![whole.peak_vram_bytes(peak_bytes)];
        rows.extend(stages.iter().map(|(stage, times)| named(format!("  {stage:?}"), times)));
        Ok(rows)
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
