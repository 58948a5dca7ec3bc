//! Squares as bytes: a host's own circuit that a journal can keep.

use std::sync::Arc;

use cuzk::circuits::{CustomCircuit, EncodedWork, SrsSource, WorkDecoder, Workload};
use cuzk::error::RequestError;
use cuzk::groth16::{PreparedVerifyingKey, Proof, VerifyingKey};
use cuzk::ids::CircuitId;
use cuzk::messages::job::{Payload, ProofRequest};

use crate::squares::{srs, Squares, NUM_SQUARINGS};

pub const FORMAT: &str = "squares/v1";

/// Reads lists of `x`, eight bytes each.
#[derive(Debug)]
pub struct SquaresDecoder {
    pub circuit: CircuitId,
    pub num_squarings: usize,
    pub srs: SrsSource,
}

impl SquaresDecoder {
    /// Of the small circuit of most tests, whose key is in memory.
    pub fn small() -> Arc<dyn WorkDecoder> {
        let (circuit, srs) = (CircuitId::new("squares"), SrsSource::Memory(srs()));
        Arc::new(Self { circuit, num_squarings: NUM_SQUARINGS, srs })
    }
}

impl WorkDecoder for SquaresDecoder {
    fn format(&self) -> &str {
        FORMAT
    }

    fn decode(&self, bytes: &[u8]) -> Result<Arc<dyn Workload>, RequestError> {
        let parts = bytes.chunks(8).map(|part| part.try_into().map(u64::from_le_bytes));
        let xs: Vec<u64> = parts.collect::<Result<_, _>>().map_err(|_| RequestError::Field {
            field: "bytes".to_owned(),
            what: format!("needs a multiple of 8, has {}", bytes.len()),
        })?;
        let circuits = xs.iter().map(|&x| of(x, self.num_squarings));
        let instances = circuits.map(|circuit| (circuit.clone(), circuit.public_inputs())).collect();
        let blank = Squares::blank(self.num_squarings);
        let circuit = CustomCircuit::new(self.circuit.clone(), self.srs.clone(), blank, instances);
        Ok(circuit.with_statement(bytes).into_workload())
    }
}

pub fn of(x: u64, num_squarings: usize) -> Squares {
    Squares { num_squarings, ..Squares::of(x) }
}

/// A job that proves each of `xs`, as bytes.
pub fn encoded(request_id: &str, xs: &[u64]) -> ProofRequest {
    let bytes = xs.iter().flat_map(|x| x.to_le_bytes()).collect();
    let work = EncodedWork { format: FORMAT.to_owned(), bytes };
    ProofRequest { request_id: request_id.into(), ..ProofRequest::new(Payload::Encoded(work)) }
}

/// Whether `proof` holds for `x`, by a verifier of the test's own.
pub fn holds_for(vk: &VerifyingKey, proof: &[u8], x: u64, num_squarings: usize) -> bool {
    let Ok(proof) = Proof::from_bytes(proof) else { return false };
    PreparedVerifyingKey::new(vk).verify(&proof, &of(x, num_squarings).public_inputs())
}
