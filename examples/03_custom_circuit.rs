//! A circuit of one's own, with parameters of its own, as a job like any other.
//!
//! ```text
//! cargo run --release --example 03_custom_circuit
//! ```
//!
//! "I know a preimage of this MiMC hash." It records the circuit's shape, generates parameters into a file, proves on
//! the engine, verifies the proof, sees a wrong witness refused by the number of its constraint, and exits non-zero if
//! anything is not as it should be.

use std::error::Error;
use std::time::Duration;

use bellpepper_core::{Circuit, ConstraintSystem, SynthesisError};
use cuzk::circuits::{CustomCircuit, SrsSource};
use cuzk::engine::{DeviceSpec, Engine, EngineConfig};
use cuzk::error::EngineError;
use cuzk::groth16::generate::generate_params;
use cuzk::groth16::srs_file::read_vk;
use cuzk::groth16::{PreparedVerifyingKey, Proof, R1csShape, Scalar};
use cuzk::ids::CircuitId;
use cuzk::messages::job::{Payload, ProofRequest};
use ff::Field;
use rand::rngs::OsRng;

const NUM_ROUNDS: usize = 91;

/// `MiMC-x^3`: `x <- (x + constant)^3` for each round; the result is public.
#[derive(Clone)]
struct Mimc {
    preimage: Option<Scalar>,
    constants: Vec<Scalar>,
}

impl Mimc {
    fn hash(preimage: Scalar, constants: &[Scalar]) -> Scalar {
        constants.iter().fold(preimage, |x, constant| {
            let sum = x + constant;
            sum.square() * sum
        })
    }
}

impl Circuit<Scalar> for Mimc {
    fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
        let missing = || SynthesisError::AssignmentMissing;
        let mut value = self.preimage;
        let mut x = cs.alloc(|| "preimage", || value.ok_or_else(missing))?;
        for (round, constant) in self.constants.iter().enumerate() {
            let cs = &mut cs.namespace(|| format!("round {round}"));
            let sum = value.map(|x| x + constant);
            let square = cs.alloc(|| "square", || sum.map(|sum| sum.square()).ok_or_else(missing))?;
            cs.enforce(
                || "sum * sum = square",
                |lc| lc + x + (*constant, CS::one()),
                |lc| lc + x + (*constant, CS::one()),
                |lc| lc + square,
            );
            value = sum.map(|sum| sum.square() * sum);
            let cube = || value.ok_or_else(missing);
            let is_last = round + 1 == self.constants.len();
            let next = if is_last { cs.alloc_input(|| "hash", cube)? } else { cs.alloc(|| "cube", cube)? };
            cs.enforce(
                || "square * sum = cube",
                |lc| lc + square,
                |lc| lc + x + (*constant, CS::one()),
                |lc| lc + next,
            );
            x = next;
        }
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let constants: Vec<Scalar> = (0..NUM_ROUNDS).map(|_| Scalar::random(OsRng)).collect();
    let blank = Mimc { preimage: None, constants: constants.clone() };

    // Once per circuit: its parameters. Who generates them alone can forge proofs; a real circuit has a ceremony.
    let dir = tempfile::tempdir()?;
    let (params_path, vk_path) = (dir.path().join("mimc.params"), dir.path().join("mimc.vk"));
    let shape = R1csShape::record(blank.clone())?;
    let made = generate_params(&shape, &mut OsRng, &params_path, &vk_path, &|_, _| {})?;
    println!("{} constraints, {} bytes of parameters", shape.num_constraints(), made.params_bytes);

    let engine = Engine::start(EngineConfig {
        devices: vec![DeviceSpec::Cpu { threads: 0, lanes: 1 }],
        shape_cache_dir: Some(dir.path().join("shapes")),
        ..EngineConfig::default()
    })?;
    let prove = |preimage: Scalar, claimed_hash: Scalar| {
        let instance = (Mimc { preimage: Some(preimage), constants: constants.clone() }, vec![claimed_hash]);
        let source = SrsSource::File(params_path.clone().into());
        let job = CustomCircuit::new(CircuitId::new("mimc"), source, blank.clone(), vec![instance]);
        let request = ProofRequest::new(Payload::Workload(job.into_workload()));
        engine.submit_blocking(request).and_then(|job| job.wait_blocking())
    };

    let preimage = Scalar::random(OsRng);
    let hash = Mimc::hash(preimage, &constants);
    let outcome = prove(preimage, hash)?;
    println!("proved on {} in {:.1?}", outcome.devices[0], outcome.timings.total);

    let vk = PreparedVerifyingKey::new(&read_vk(&vk_path)?);
    let proof = Proof::from_bytes(&outcome.proof)?;
    if !vk.verify(&proof, &[hash]) || vk.verify(&proof, &[hash + Scalar::ONE]) {
        return Err("the proof must hold for this hash and for no other".into());
    }
    println!("verified");

    // A false claim costs no device time: the witness is checked against what the verifier puts in.
    match prove(preimage, hash + Scalar::ONE) {
        Err(EngineError::Synthesis { at, source }) => println!("refused as it should be: {at}: {source}"),
        other => return Err(format!("a false claim must be refused, not {other:?}").into()),
    }

    engine.shutdown_blocking(Duration::from_secs(10));
    Ok(())
}
