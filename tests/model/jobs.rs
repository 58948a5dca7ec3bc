//! What the jobs of a life prove, and the proofs that are right.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use cuzk::circuits::{CustomCircuit, EncodedWork, SrsSource, WorkDecoder, Workload};
use cuzk::error::RequestError;
use cuzk::groth16::prover::prove;
use cuzk::groth16::{Assignment, Blinding, PackedWitness, Proof, R1csShape};
use cuzk::ids::CircuitId;
use cuzk::messages::job::Payload;
use group::{Curve, Group};
use rand::SeedableRng;
use rand_chacha::ChaCha20Rng;

use super::squares::{srs, Squares, NUM_SQUARINGS};

/// What may be proved.
pub const XS: Range<u64> = 2..10;

/// The circuits, which share a key: to the engine they are different ones.
pub const CIRCUITS: [&str; 3] = ["a", "b", "c"];

pub fn shape() -> &'static R1csShape {
    static SHAPE: OnceLock<R1csShape> = OnceLock::new();
    SHAPE.get_or_init(|| R1csShape::record(Squares::blank(NUM_SQUARINGS)).expect("the circuit records"))
}

/// The proof for `x` that every device of the model makes.
pub fn proof_of(x: u64) -> Proof {
    static BOOK: OnceLock<BTreeMap<u64, Proof>> = OnceLock::new();
    let book = BOOK.get_or_init(|| {
        let mut rng = ChaCha20Rng::seed_from_u64(1);
        XS.map(|x| {
            let shape = shape();
            let assignment = Assignment::synthesize(Squares::of(x), shape.num_inputs(), shape.num_aux());
            let assignment = assignment.expect("there is a witness");
            let witness = PackedWitness::pack(&assignment, shape.classes()).expect("its bits are bits");
            let blinding = Blinding::random(&mut rng);
            let proof = prove(&srs(), shape, &witness, &blinding).expect("the key fits");
            (x, proof)
        })
        .collect()
    });
    book[&x].clone()
}

/// Still three points of the right groups; the equation no longer holds.
pub fn corrupted(proof: &Proof) -> Proof {
    let c = (blstrs::G1Projective::from(proof.c) + blstrs::G1Projective::generator()).to_affine();
    Proof { c, ..proof.clone() }
}

/// One partition for each of `xs`. The same statements are the same work. `is_broken`: the first one does not hold.
pub fn workload(circuit: &str, xs: &[u64], is_broken: bool) -> Arc<dyn Workload> {
    let instance = |(index, &x): (usize, &u64)| {
        let broken_at = (is_broken && index == 0).then_some(3);
        let inputs = Squares::of(x).public_inputs();
        (Squares { broken_at, ..Squares::of(x) }, inputs)
    };
    let instances = xs.iter().enumerate().map(instance).collect();
    let statement = format!("{circuit} {xs:?} {is_broken}");
    let source = SrsSource::Memory(srs());
    CustomCircuit::new(CircuitId::new(circuit), source, Squares::blank(NUM_SQUARINGS), instances)
        .with_statement(statement.as_bytes())
        .into_workload()
}

/// The same as bytes, which a journal can keep.
pub fn encoded(circuit: &str, xs: &[u64], is_broken: bool) -> Payload {
    let mut bytes = vec![u8::from(is_broken)];
    // `XS` are small.
    bytes.extend(xs.iter().map(|&x| x as u8));
    Payload::Encoded(EncodedWork { format: circuit.to_owned(), bytes })
}

/// Reads what [`encoded`] makes.
#[derive(Debug)]
struct Decoder(&'static str);

impl WorkDecoder for Decoder {
    fn format(&self) -> &str {
        self.0
    }

    fn decode(&self, bytes: &[u8]) -> Result<Arc<dyn Workload>, RequestError> {
        let Some((is_broken, xs)) = bytes.split_first() else {
            return Err(RequestError::Field { field: "bytes".to_owned(), what: "there are none".to_owned() });
        };
        let xs: Vec<u64> = xs.iter().map(|&x| u64::from(x)).collect();
        Ok(workload(self.0, &xs, *is_broken != 0))
    }
}

/// Of all circuits.
pub fn decoders() -> Vec<Arc<dyn WorkDecoder>> {
    CIRCUITS.map(|circuit| Arc::new(Decoder(circuit)) as Arc<dyn WorkDecoder>).into()
}
