//! The known answer that a device must give before it is used.

use std::sync::{Arc, OnceLock};

use bellpepper_core::{Circuit, ConstraintSystem, SynthesisError as CircuitError};
use blstrs::Scalar;
use ff::Field;
use rand::SeedableRng;
use rand_chacha::ChaCha20Rng;

use crate::backend::PartitionWork;
use crate::groth16::generate::generate_srs;
use crate::groth16::{prover, Blinding, PackedWitness, Proof, R1csShape, Srs};
use crate::ids::{CircuitId, DeviceId, JobId, WorkRef};

/// `x^(2^NUM_SQUARES) = y`, with bits beside it so that 0 and 1 scalars occur: large enough for a domain of more
/// than one pass over a block, small enough to be made in a fraction of a second.
const NUM_SQUARES: usize = 48;
const NUM_BITS: usize = 16;
/// Nothing depends on its value; it is fixed so that every process makes the same proof.
const SEED: [u8; 32] = *b"cuzk device self-test, version 1";

/// A circuit, its key, one witness, and the proof the host makes of them.
pub struct KnownAnswer {
    shape: Arc<R1csShape>,
    srs: Arc<Srs>,
    witness: Arc<PackedWitness>,
    blinding: Blinding,
    proof: Proof,
}

impl KnownAnswer {
    /// Made once per process, by the host's own prover.
    ///
    /// # Panics
    /// If the host cannot prove its own circuit: then no answer of any device could be judged.
    pub fn get() -> &'static KnownAnswer {
        static ANSWER: OnceLock<KnownAnswer> = OnceLock::new();
        ANSWER.get_or_init(Self::make)
    }

    fn make() -> Self {
        const REASON: &str = "the self-test's circuit is fixed and satisfied";
        let mut rng = ChaCha20Rng::from_seed(SEED);
        let shape = R1csShape::record(SelfTestCircuit { x: None }).expect(REASON);
        let srs = generate_srs(&shape, &mut rng).expect(REASON);
        let circuit = SelfTestCircuit { x: Some(Scalar::from(3u64)) };
        let witness = PackedWitness::synthesize(circuit, &shape).expect(REASON);
        let blinding = Blinding { r: Scalar::random(&mut rng), s: Scalar::random(&mut rng) };
        let proof = prover::prove(&srs, &shape, &witness, &blinding).expect(REASON);
        Self { shape: Arc::new(shape), srs: Arc::new(srs), witness: Arc::new(witness), blinding, proof }
    }

    pub fn circuit() -> CircuitId {
        CircuitId::new("self-test")
    }

    /// The work; it names no partition, which tells it from a job's.
    pub fn work(&self, device: DeviceId) -> PartitionWork {
        PartitionWork {
            at: WorkRef::job(JobId(0)).on(device),
            circuit: Self::circuit(),
            shape: Arc::clone(&self.shape),
            srs: Arc::clone(&self.srs),
            witness: Arc::clone(&self.witness),
            blinding: self.blinding,
        }
    }

    pub fn proof(&self) -> &Proof {
        &self.proof
    }
}

struct SelfTestCircuit {
    x: Option<Scalar>,
}

impl Circuit<Scalar> for SelfTestCircuit {
    fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), CircuitError> {
        let mut value = self.x;
        let mut variable = cs.alloc(|| "x", || value.ok_or(CircuitError::AssignmentMissing))?;
        for index in 0..NUM_SQUARES {
            let square = value.map(|value| value.square());
            let get = || square.ok_or(CircuitError::AssignmentMissing);
            let next = if index + 1 == NUM_SQUARES {
                cs.alloc_input(|| "y", get)?
            } else {
                cs.alloc(|| format!("square {index}"), get)?
            };
            cs.enforce(|| format!("x^2 {index}"), |lc| lc + variable, |lc| lc + variable, |lc| lc + next);
            (value, variable) = (square, next);
        }
        for index in 0..NUM_BITS {
            let bit = Scalar::from((index % 3 == 0) as u64);
            let variable = cs.alloc(|| format!("bit {index}"), || Ok(bit))?;
            cs.enforce(
                || format!("bit {index} is 0 or 1"),
                |lc| lc + variable,
                |lc| lc + CS::one() - variable,
                |lc| lc,
            );
        }
        Ok(())
    }
}
