//! A circuit as small as one wants: `y = x^(2^n)`, one constraint per squaring, `y` public.

use std::sync::{Arc, OnceLock};

use bellpepper_core::{Circuit, ConstraintSystem, SynthesisError};
use blstrs::Scalar;
use cuzk::circuits::{CustomCircuit, SrsSource, Workload};
use cuzk::groth16::generate::generate_srs;
use cuzk::groth16::{PreparedVerifyingKey, Proof, R1csShape, Srs};
use cuzk::ids::CircuitId;
use cuzk::messages::job::{Payload, ProofRequest};
use ff::Field;
use rand::SeedableRng;
use rand_chacha::ChaCha20Rng;

/// Squarings of the circuit that most tests use.
pub const NUM_SQUARINGS: usize = 7;

#[derive(Clone, Debug)]
pub struct Squares {
    pub x: Option<Scalar>,
    pub num_squarings: usize,
    /// The result of this squaring is off by one.
    pub broken_at: Option<usize>,
    /// Synthesis of a witness panics.
    pub panics: bool,
}

impl Squares {
    pub fn of(x: u64) -> Self {
        Self { x: Some(Scalar::from(x)), num_squarings: NUM_SQUARINGS, broken_at: None, panics: false }
    }

    pub fn blank(num_squarings: usize) -> Self {
        Self { x: None, num_squarings, broken_at: None, panics: false }
    }

    /// The values after each squaring.
    fn values(&self) -> Option<Vec<Scalar>> {
        let mut value = self.x?;
        let values = (0..self.num_squarings).map(|index| {
            value = value.square();
            if self.broken_at == Some(index) {
                value += Scalar::ONE;
            }
            value
        });
        Some(values.collect())
    }

    pub fn public_inputs(&self) -> Vec<Scalar> {
        vec![*self.values().unwrap().last().unwrap()]
    }
}

impl Circuit<Scalar> for Squares {
    fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
        assert!(!self.panics || self.x.is_none(), "this circuit panics on purpose");
        let values = self.values();
        let value = |index: usize| {
            values.as_ref().map(|values| values[index]).ok_or(SynthesisError::AssignmentMissing)
        };
        let x = self.x;
        let mut last = cs.alloc(|| "x", || x.ok_or(SynthesisError::AssignmentMissing))?;
        for index in 0..self.num_squarings {
            let next = if index + 1 == self.num_squarings {
                cs.alloc_input(|| "y", || value(index))?
            } else {
                cs.alloc(|| format!("x^(2^{})", index + 1), || value(index))?
            };
            cs.enforce(|| format!("squaring {index}"), |lc| lc + last, |lc| lc + last, |lc| lc + next);
            last = next;
        }
        Ok(())
    }
}

/// A proving key of [`NUM_SQUARINGS`], made once per test binary.
pub fn srs() -> Arc<Srs> {
    static SRS: OnceLock<Arc<Srs>> = OnceLock::new();
    Arc::clone(SRS.get_or_init(|| Arc::new(srs_of(NUM_SQUARINGS))))
}

pub fn srs_of(num_squarings: usize) -> Srs {
    srs_of_seed(num_squarings, num_squarings as u64)
}

pub fn srs_of_seed(num_squarings: usize, seed: u64) -> Srs {
    let shape = R1csShape::record(Squares::blank(num_squarings)).unwrap();
    generate_srs(&shape, &mut ChaCha20Rng::seed_from_u64(seed)).unwrap()
}

/// One partition per circuit. The same circuits are the same work.
pub fn workload(circuits: Vec<Squares>) -> Arc<dyn Workload> {
    let statement = format!("{circuits:?}");
    let instances = circuits.into_iter().map(|circuit| (circuit.clone(), circuit.public_inputs())).collect();
    let blank = Squares::blank(NUM_SQUARINGS);
    CustomCircuit::new(CircuitId::new("squares"), SrsSource::Memory(srs()), blank, instances)
        .with_statement(statement.as_bytes())
        .into_workload()
}

/// A job that proves each of `xs`.
pub fn request(request_id: &str, xs: &[u64]) -> ProofRequest {
    let circuits = xs.iter().map(|&x| Squares::of(x)).collect();
    ProofRequest { request_id: request_id.into(), ..ProofRequest::new(Payload::Workload(workload(circuits))) }
}

/// Whether `proof` holds for each of `xs`, by a verifier of the test's own.
pub fn holds(proof: &[u8], xs: &[u64]) -> bool {
    let vk = PreparedVerifyingKey::new(&srs().vk);
    proof.len() == 192 * xs.len()
        && proof
            .chunks(192)
            .zip(xs)
            .all(|(part, &x)| vk.verify(&Proof::from_bytes(part).unwrap(), &Squares::of(x).public_inputs()))
}
