//! The library's synthesis as a stream: a witness is held against it variable by variable, so that a circuit whose
//! values take gigabytes can be compared in the memory of its packed witness.

use bellpepper_core::SynthesisError as CircuitError;
use blstrs::Scalar;
use ff::Field;

use crate::error::SynthesisError;
use crate::groth16::packed::{PackedWitness, VariableClasses};
use crate::groth16::sink::{self, Sink, Synthesis, Wants};

/// Compares `witness` with what `circuit` allocates; up to `limit` private variables, where the synthesis is ended.
///
/// # Errors
/// [`SynthesisError::Circuit`]: what differs first.
///
/// # Panics
/// If `witness` does not fit `classes`.
pub(in crate::circuits) fn compare_streamed(
    circuit: Synthesis<'_>,
    witness: &PackedWitness,
    classes: &VariableClasses,
    limit: Option<usize>,
) -> Result<(), SynthesisError> {
    assert!(witness.fits(classes), "the witness is of the circuit that the classes are of");
    let mut comparing =
        Comparing { witness, classes, limit, num_inputs: 0, num_aux: 0, num_dense: 0, difference: None };
    comparing.check_input(Scalar::ONE);
    let synthesized = sink::synthesize(circuit, &mut comparing);
    if !comparing.is_at_limit() {
        synthesized?;
    }
    comparing.finish().map_err(SynthesisError::Circuit)
}

struct Comparing<'w> {
    witness: &'w PackedWitness,
    classes: &'w VariableClasses,
    limit: Option<usize>,
    num_inputs: usize,
    num_aux: usize,
    num_dense: usize,
    difference: Option<String>,
}

impl Comparing<'_> {
    fn check_input(&mut self, value: Scalar) {
        if self.witness.inputs.get(self.num_inputs) != Some(&value) {
            self.note(|this| format!("public input {} differs", this.num_inputs));
        }
        self.num_inputs += 1;
    }

    fn check_aux(&mut self, value: Scalar) {
        let is_equal = if self.num_aux >= self.classes.num_aux() {
            false
        } else if self.classes.is_dense(self.num_aux) {
            self.num_dense += 1;
            self.witness.dense[self.num_dense - 1] == value
        } else {
            value == Scalar::from(u64::from(self.witness.bit(self.num_aux)))
        };
        if !is_equal {
            self.note(|this| format!("aux variable {} differs", this.num_aux));
        }
        self.num_aux += 1;
    }

    fn is_at_limit(&self) -> bool {
        self.limit.is_some_and(|limit| self.num_aux >= limit)
    }

    fn note(&mut self, what: impl FnOnce(&Self) -> String) {
        if self.difference.is_none() {
            self.difference = Some(what(self));
        }
    }

    fn finish(self) -> Result<(), String> {
        if let Some(difference) = self.difference {
            return Err(difference);
        }
        if self.is_at_limit() {
            return Ok(());
        }
        for (what, has, needs) in [
            ("public inputs", self.witness.inputs.len(), self.num_inputs),
            ("aux variables", self.classes.num_aux(), self.num_aux),
        ] {
            if has != needs {
                return Err(format!("the circuit has {needs} {what}, the witness {has}"));
            }
        }
        Ok(())
    }
}

impl Sink for Comparing<'_> {
    fn wants(&self) -> Wants {
        Wants { values: true, ..Wants::default() }
    }

    fn aux(&mut self, _: usize, value: Option<Scalar>) -> Result<(), CircuitError> {
        if self.is_at_limit() {
            // Any error ends the synthesis.
            return Err(CircuitError::Unsatisfiable);
        }
        self.check_aux(value.ok_or(CircuitError::AssignmentMissing)?);
        Ok(())
    }

    fn input(&mut self, _: usize, value: Option<Scalar>) -> Result<(), CircuitError> {
        self.check_input(value.ok_or(CircuitError::AssignmentMissing)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bellpepper_core::{Circuit, ConstraintSystem};

    use super::*;
    use crate::groth16::density::Density;

    /// Two inputs and three aux variables, the last of which is dense.
    #[derive(Clone, Copy)]
    struct Small {
        last: u64,
        one_more: bool,
    }

    impl Circuit<Scalar> for Small {
        fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), CircuitError> {
            for value in [1, 0, self.last].into_iter().chain(self.one_more.then_some(0)) {
                cs.alloc(|| "aux", || Ok(Scalar::from(value)))?;
            }
            cs.alloc_input(|| "input", || Ok(Scalar::from(5))).map(drop)
        }
    }

    #[test]
    fn the_first_difference_is_said() {
        let mut dense = Density::new(3);
        dense.set(2);
        let classes = VariableClasses::from_dense(dense);
        let inputs = vec![Scalar::ONE, Scalar::from(5)];
        let witness = PackedWitness { inputs, bits: vec![1], dense: vec![Scalar::from(9)] };
        let circuit = Small { last: 9, one_more: false };
        let compare = |circuit: Small, spoil: fn(&mut PackedWitness)| {
            let mut witness = witness.clone();
            spoil(&mut witness);
            compare_streamed(sink::synthesis(circuit), &witness, &classes, None)
                .map_err(|error| error.to_string())
        };
        let said = |what: &str| Err(format!("circuit refused its inputs: {what}"));
        assert_eq!(compare(circuit, |_| ()), Ok(()));
        assert_eq!(compare(circuit, |witness| witness.bits[0] = 3), said("aux variable 1 differs"));
        assert_eq!(compare(Small { last: 8, ..circuit }, |_| ()), said("aux variable 2 differs"));
        assert_eq!(compare(Small { one_more: true, ..circuit }, |_| ()), said("aux variable 3 differs"));
        assert_eq!(
            compare(circuit, |witness| witness.inputs[1] = Scalar::ONE),
            said("public input 1 differs")
        );
        let last_differs = Small { last: 8, ..circuit };
        let compare_first =
            |limit| compare_streamed(sink::synthesis(last_differs), &witness, &classes, Some(limit)).is_ok();
        assert_eq!([1, 2, 3, 4].map(compare_first), [true, true, false, false]);
        let more = |witness: &mut PackedWitness| witness.inputs.push(Scalar::ONE);
        assert_eq!(compare(circuit, more), said("the circuit has 2 public inputs, the witness 3"));
    }
}
