//! What the jobs of a life prove, and the proofs that are right.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use cuzk::circuits::{CustomCircuit, SrsSource, Workload};
use cuzk::groth16::prover::prove;
use cuzk::groth16::{Assignment, Blinding, PackedWitness, Proof, R1csShape};
use cuzk::ids::CircuitId;
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
