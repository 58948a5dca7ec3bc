//! Packs a witness while a circuit makes it: the values are never there as a whole.

use bellpepper_core::{
    Circuit, ConstraintSystem, Index, LinearCombination, SynthesisError as CircuitError, Variable,
};
use blstrs::Scalar;
use ff::Field;

use crate::error::SynthesisError;
use crate::groth16::assignment::takes_values_alone;
use crate::groth16::packed::{NotABit, Packer};
use crate::groth16::sink::{self, Sink, Synthesis, Wants};
use crate::groth16::{Assignment, PackedWitness, R1csShape};

/// Values that are packed together: a multiple of 64.
const CHUNK_LEN: usize = 1 << 15;

impl PackedWitness {
    /// Runs `circuit` and packs its variables' values chunk by chunk. Constraints are neither built nor checked here:
    /// [`crate::groth16::prover::check_witness`] does that.
    ///
    /// Gadgets that read values back from their constraint system or write them there directly are not asked to (the
    /// system says that it is no witness generator).
    ///
    /// # Errors
    /// [`SynthesisError::Circuit`] if the circuit's code refuses its inputs, [`SynthesisError::NotABit`] if they do not
    /// satisfy its constraints and it shows, [`SynthesisError::ShapeMismatch`] if the circuit is of another shape.
    pub fn synthesize<C: Circuit<Scalar>>(circuit: C, shape: &R1csShape) -> Result<Self, SynthesisError> {
        let mut system = PackingSystem::of(shape);
        let synthesized = circuit.synthesize(&mut system);
        let synthesized = synthesized.map_err(|error| SynthesisError::Circuit(error.to_string()));
        system.finish(synthesized, shape)
    }

    /// [`Self::synthesize`] of a circuit without its type, in one piece.
    ///
    /// # Errors
    /// As there.
    pub fn collect(circuit: Synthesis<'_>, shape: &R1csShape) -> Result<Self, SynthesisError> {
        let mut system = PackingSystem::of(shape);
        let synthesized = sink::synthesize(circuit, &mut system).map(drop);
        system.finish(synthesized, shape)
    }
}

impl Assignment {
    /// The same witness, packed.
    ///
    /// # Errors
    /// [`SynthesisError::ShapeMismatch`] if it is of another shape, [`SynthesisError::NotABit`] if a variable that the
    /// shape's constraints make a bit is none.
    pub fn pack(&self, shape: &R1csShape) -> Result<PackedWitness, SynthesisError> {
        check_counts(shape, self.input_assignment.len(), self.aux_assignment.len())?;
        Ok(PackedWitness::pack(self, shape.classes())?)
    }
}

fn check_counts(shape: &R1csShape, num_inputs: usize, num_aux: usize) -> Result<(), SynthesisError> {
    let needs_has = [("inputs", shape.num_inputs(), num_inputs), ("aux variables", shape.num_aux(), num_aux)];
    match needs_has.into_iter().find(|(_, needs, has)| needs != has) {
        Some((what, needs, has)) => Err(SynthesisError::ShapeMismatch { what, needs, has }),
        None => Ok(()),
    }
}

/// [`ConstraintSystem::new`] is *empty*, as in `assignment.rs`: pieces of an extensible circuit are made in systems of
/// their own, which have no packer, and are packed when they are joined.
struct PackingSystem<'a> {
    inputs: Vec<Scalar>,
    /// Values that are not packed yet.
    aux: Vec<Scalar>,
    packer: Option<Packer<'a>>,
    not_a_bit: Option<NotABit>,
}

impl<'a> PackingSystem<'a> {
    fn of(shape: &'a R1csShape) -> Self {
        let mut inputs = Vec::with_capacity(shape.num_inputs());
        inputs.push(Scalar::ONE);
        let packer = Some(Packer::new(shape.classes()));
        Self { inputs, aux: Vec::with_capacity(CHUNK_LEN), packer, not_a_bit: None }
    }

    fn num_aux(&self) -> usize {
        self.packer.as_ref().map_or(0, Packer::num_packed) + self.aux.len()
    }

    /// Packs what makes whole chunks.
    fn pack_chunks(&mut self) -> Result<(), CircuitError> {
        let Some(packer) = self.packer.as_mut().filter(|_| self.aux.len() >= CHUNK_LEN) else {
            return Ok(());
        };
        let length = self.aux.len() / CHUNK_LEN * CHUNK_LEN;
        if length > packer.room() {
            // Of another shape: `finish` counts them.
            return Ok(());
        }
        let packed = packer.pack(&self.aux[..length]);
        self.aux.drain(..length);
        packed.map_err(|error| {
            self.not_a_bit.get_or_insert(error);
            CircuitError::Unsatisfiable
        })
    }

    fn finish(
        self,
        synthesized: Result<(), SynthesisError>,
        shape: &R1csShape,
    ) -> Result<PackedWitness, SynthesisError> {
        // It ends the synthesis, so it comes first.
        self.not_a_bit.map_or(Ok(()), Err)?;
        synthesized?;
        check_counts(shape, self.inputs.len(), self.num_aux())?;
        let mut packer = self.packer.expect("only pieces have none");
        packer.pack(&self.aux)?;
        Ok(packer.finish(self.inputs))
    }
}

impl Sink for PackingSystem<'_> {
    fn wants(&self) -> Wants {
        Wants { values: true, ..Wants::default() }
    }

    fn aux(&mut self, _: usize, value: Option<Scalar>) -> Result<(), CircuitError> {
        self.aux.push(value.ok_or(CircuitError::AssignmentMissing)?);
        self.pack_chunks()
    }

    fn input(&mut self, _: usize, value: Option<Scalar>) -> Result<(), CircuitError> {
        self.inputs.push(value.ok_or(CircuitError::AssignmentMissing)?);
        Ok(())
    }
}

impl ConstraintSystem<Scalar> for PackingSystem<'_> {
    type Root = Self;

    fn new() -> Self {
        Self { inputs: Vec::new(), aux: Vec::new(), packer: None, not_a_bit: None }
    }

    fn alloc<F, A, AR>(&mut self, _: A, value: F) -> Result<Variable, CircuitError>
    where
        F: FnOnce() -> Result<Scalar, CircuitError>,
        A: FnOnce() -> AR,
        AR: Into<String>,
    {
        let index = self.num_aux();
        self.aux.push(value()?);
        self.pack_chunks()?;
        Ok(Variable::new_unchecked(Index::Aux(index)))
    }

    fn alloc_input<F, A, AR>(&mut self, _: A, value: F) -> Result<Variable, CircuitError>
    where
        F: FnOnce() -> Result<Scalar, CircuitError>,
        A: FnOnce() -> AR,
        AR: Into<String>,
    {
        self.inputs.push(value()?);
        Ok(Variable::new_unchecked(Index::Input(self.inputs.len() - 1)))
    }

    takes_values_alone!();

    fn extend(&mut self, other: &Self) {
        self.inputs.extend_from_slice(&other.inputs[1..]);
        self.aux.extend_from_slice(&other.aux);
        // What it would return comes at the end: `not_a_bit`.
        let _ = self.pack_chunks();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `num_bits` bits, then a value that may be one and is not constrained; in `pieces` pieces, or in one.
    #[derive(Clone, Copy)]
    struct Bits {
        num_bits: usize,
        last: u64,
        pieces: usize,
        /// A variable that is said to be a bit and is 2.
        wrong: Option<usize>,
    }

    impl Bits {
        fn piece<CS: ConstraintSystem<Scalar>>(&self, cs: &mut CS, piece: usize) -> Result<(), CircuitError> {
            for bit in 0..self.num_bits {
                let value = if self.wrong == Some(bit) { 2 } else { (bit * bit / 3 + piece) as u64 % 2 };
                let x = cs.alloc(|| "", || Ok(Scalar::from(value)))?;
                cs.enforce(|| "", |lc| lc + x, |lc| lc + CS::one() - x, |lc| lc);
            }
            cs.alloc_input(|| "", || Ok(Scalar::from(self.last + piece as u64)))?;
            cs.alloc(|| "", || Ok(Scalar::from(self.last)))?;
            Ok(())
        }
    }

    impl Circuit<Scalar> for Bits {
        fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), CircuitError> {
            for piece in 0..self.pieces {
                if CS::is_extensible() {
                    let mut child = CS::new();
                    child.alloc_input(|| "temp ONE", || Ok(Scalar::ONE))?;
                    self.piece(&mut child, piece)?;
                    cs.extend(&child);
                } else {
                    self.piece(cs, piece)?;
                }
            }
            Ok(())
        }
    }

    fn bits(num_bits: usize, pieces: usize) -> Bits {
        Bits { num_bits, last: 1, pieces, wrong: None }
    }

    #[test]
    fn a_witness_is_the_same_packed_at_once_or_on_the_way() {
        for (num_bits, pieces) in [(0, 1), (1, 1), (63, 2), (CHUNK_LEN - 1, 1), (CHUNK_LEN, 1), (50_000, 3)] {
            let circuit = bits(num_bits, pieces);
            let shape = R1csShape::record(circuit).unwrap();
            assert_eq!(shape.classes().num_dense(), pieces);
            let packed = PackedWitness::synthesize(circuit, &shape).unwrap();
            assert_eq!(packed, Assignment::synthesize(circuit, 0, 0).unwrap().pack(&shape).unwrap());
            assert_eq!(packed, PackedWitness::collect(sink::synthesis(circuit), &shape).unwrap());
            assert_eq!(packed, Assignment::collect(sink::synthesis(circuit)).unwrap().pack(&shape).unwrap());
            assert_eq!(shape.check_satisfied(&packed), Ok(()));
        }
    }

    #[test]
    fn a_value_that_cannot_be_a_bit_ends_the_synthesis() {
        for wrong in [0, 100, CHUNK_LEN + 5] {
            let shape = R1csShape::record(bits(50_000, 1)).unwrap();
            let circuit = Bits { wrong: Some(wrong), ..bits(50_000, 1) };
            let refused = SynthesisError::NotABit(NotABit { aux: wrong });
            assert_eq!(PackedWitness::synthesize(circuit, &shape), Err(refused.clone()));
            assert_eq!(PackedWitness::collect(sink::synthesis(circuit), &shape), Err(refused.clone()));
            assert_eq!(Assignment::synthesize(circuit, 0, 0).unwrap().pack(&shape), Err(refused));
        }
    }

    #[test]
    fn a_circuit_of_another_shape_is_refused() {
        let shape = R1csShape::record(bits(1000, 2)).unwrap();
        for (num_bits, pieces, what, needs, has) in [
            (999, 2, "aux variables", 2002, 2000),
            (100_000, 2, "aux variables", 2002, 200_002),
            (1000, 3, "inputs", 3, 4),
        ] {
            let refused = SynthesisError::ShapeMismatch { what, needs, has };
            let circuit = bits(num_bits, pieces);
            assert_eq!(PackedWitness::synthesize(circuit, &shape), Err(refused.clone()));
            assert_eq!(PackedWitness::collect(sink::synthesis(circuit), &shape), Err(refused.clone()));
            assert_eq!(Assignment::synthesize(circuit, 0, 0).unwrap().pack(&shape), Err(refused));
        }
    }

    struct Refusing;

    impl Circuit<Scalar> for Refusing {
        fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), CircuitError> {
            cs.alloc(|| "missing", || Err(CircuitError::AssignmentMissing)).map(drop)
        }
    }

    #[test]
    fn refusal_carries_the_circuits_reason() {
        let shape = R1csShape::record(bits(1, 1)).unwrap();
        let refused = SynthesisError::Circuit("an assignment for a variable could not be computed".into());
        assert_eq!(PackedWitness::synthesize(Refusing, &shape), Err(refused.clone()));
        assert_eq!(PackedWitness::collect(sink::synthesis(Refusing), &shape), Err(refused));
    }
}
