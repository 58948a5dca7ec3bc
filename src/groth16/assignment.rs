//! Witnesses: the values of a circuit's variables, and the constraint system that collects only them.

use std::fmt;

use bellpepper_core::{
    Circuit, ConstraintSystem, Index, LinearCombination, SynthesisError as CircuitError, Variable,
};
use blstrs::Scalar;
use ff::Field;

use crate::error::SynthesisError;
use crate::groth16::sink::{self, Sink, Synthesis, Wants};

/// The values of all variables of one circuit instance. A secret: `Debug` prints lengths only.
#[derive(Clone, PartialEq, Eq)]
pub struct Assignment {
    /// Public inputs, the leading one included: `[num_inputs]`.
    pub input_assignment: Vec<Scalar>,
    /// Private variables: `[num_aux]`.
    pub aux_assignment: Vec<Scalar>,
}

impl fmt::Debug for Assignment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Assignment")
            .field("num_inputs", &self.input_assignment.len())
            .field("num_aux", &self.aux_assignment.len())
            .finish()
    }
}

impl Assignment {
    /// Runs `circuit` and keeps its variables' values. `num_inputs_hint` and `num_aux_hint` reserve memory.
    ///
    /// Constraints are neither built nor checked here: [`crate::groth16::prover::check_witness`] does that.
    ///
    /// # Errors
    /// [`SynthesisError::Circuit`] if the circuit's code refuses its inputs.
    pub fn synthesize<C: Circuit<Scalar>>(
        circuit: C,
        num_inputs_hint: usize,
        num_aux_hint: usize,
    ) -> Result<Self, SynthesisError> {
        let mut witness = WitnessSystem {
            input_assignment: Vec::with_capacity(num_inputs_hint),
            aux_assignment: Vec::with_capacity(num_aux_hint),
        };
        witness.input_assignment.push(Scalar::ONE);
        circuit.synthesize(&mut witness).map_err(|error| SynthesisError::Circuit(error.to_string()))?;
        Ok(Self { input_assignment: witness.input_assignment, aux_assignment: witness.aux_assignment })
    }

    /// [`Self::synthesize`] of a circuit without its type, in one piece.
    ///
    /// # Errors
    /// As there.
    pub fn collect(circuit: Synthesis<'_>) -> Result<Self, SynthesisError> {
        let mut values = Self { input_assignment: vec![Scalar::ONE], aux_assignment: Vec::new() };
        sink::synthesize(circuit, &mut values)?;
        Ok(values)
    }

    /// Bytes of the values in memory.
    pub fn num_bytes(&self) -> u64 {
        32 * (self.input_assignment.len() + self.aux_assignment.len()) as u64
    }
}

impl Sink for Assignment {
    fn wants(&self) -> Wants {
        Wants { values: true, ..Wants::default() }
    }

    fn aux(&mut self, _: usize, value: Option<Scalar>) -> Result<(), CircuitError> {
        self.aux_assignment.push(value.ok_or(CircuitError::AssignmentMissing)?);
        Ok(())
    }

    fn input(&mut self, _: usize, value: Option<Scalar>) -> Result<(), CircuitError> {
        self.input_assignment.push(value.ok_or(CircuitError::AssignmentMissing)?);
        Ok(())
    }
}

/// Collects values and ignores constraints.
///
/// [`ConstraintSystem::new`] is *empty*: circuits that are synthesized in parallel pieces allocate a temporary one
/// in each child, and [`ConstraintSystem::extend`] leaves exactly that input out. A child that started with a one
/// of its own would leave a spare input behind for every piece.
struct WitnessSystem {
    input_assignment: Vec<Scalar>,
    aux_assignment: Vec<Scalar>,
}

/// What a constraint system that takes values alone answers to all else: rows and names are nothing to it, and pieces made
/// apart are put together.
macro_rules! takes_values_alone {
    () => {
        fn enforce<A, AR, LA, LB, LC>(&mut self, _: A, _: LA, _: LB, _: LC)
        where
            A: FnOnce() -> AR,
            AR: Into<String>,
            LA: FnOnce(LinearCombination<Scalar>) -> LinearCombination<Scalar>,
            LB: FnOnce(LinearCombination<Scalar>) -> LinearCombination<Scalar>,
            LC: FnOnce(LinearCombination<Scalar>) -> LinearCombination<Scalar>,
        {
        }

        fn push_namespace<NR: Into<String>, N: FnOnce() -> NR>(&mut self, _: N) {}

        fn pop_namespace(&mut self) {}

        fn get_root(&mut self) -> &mut Self::Root {
            self
        }

        fn is_extensible() -> bool {
            true
        }
    };
}
pub(super) use takes_values_alone;

/// Appends `n` zeros to `values` and returns them.
fn grow(values: &mut Vec<Scalar>, n: usize) -> &mut [Scalar] {
    let start = values.len();
    values.resize(start + n, Scalar::ZERO);
    &mut values[start..]
}

impl ConstraintSystem<Scalar> for WitnessSystem {
    type Root = Self;

    fn new() -> Self {
        Self { input_assignment: Vec::new(), aux_assignment: Vec::new() }
    }

    fn alloc<F, A, AR>(&mut self, _: A, value: F) -> Result<Variable, CircuitError>
    where
        F: FnOnce() -> Result<Scalar, CircuitError>,
        A: FnOnce() -> AR,
        AR: Into<String>,
    {
        self.aux_assignment.push(value()?);
        Ok(Variable::new_unchecked(Index::Aux(self.aux_assignment.len() - 1)))
    }

    fn alloc_input<F, A, AR>(&mut self, _: A, value: F) -> Result<Variable, CircuitError>
    where
        F: FnOnce() -> Result<Scalar, CircuitError>,
        A: FnOnce() -> AR,
        AR: Into<String>,
    {
        self.input_assignment.push(value()?);
        Ok(Variable::new_unchecked(Index::Input(self.input_assignment.len() - 1)))
    }

    takes_values_alone!();

    fn extend(&mut self, other: &Self) {
        self.input_assignment.extend_from_slice(&other.input_assignment[1..]);
        self.aux_assignment.extend_from_slice(&other.aux_assignment);
    }

    fn is_witness_generator(&self) -> bool {
        true
    }

    fn extend_inputs(&mut self, new_inputs: &[Scalar]) {
        self.input_assignment.extend_from_slice(new_inputs);
    }

    fn extend_aux(&mut self, new_aux: &[Scalar]) {
        self.aux_assignment.extend_from_slice(new_aux);
    }

    fn allocate_empty(&mut self, aux_n: usize, inputs_n: usize) -> (&mut [Scalar], &mut [Scalar]) {
        (grow(&mut self.aux_assignment, aux_n), grow(&mut self.input_assignment, inputs_n))
    }

    fn allocate_empty_inputs(&mut self, n: usize) -> &mut [Scalar] {
        grow(&mut self.input_assignment, n)
    }

    fn allocate_empty_aux(&mut self, n: usize) -> &mut [Scalar] {
        grow(&mut self.aux_assignment, n)
    }

    fn inputs_slice(&self) -> &[Scalar] {
        &self.input_assignment
    }

    fn aux_slice(&self) -> &[Scalar] {
        &self.aux_assignment
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Allocates its variables in `pieces` children, as Filecoin's fallback PoSt circuit does.
    struct Pieces {
        pieces: u64,
    }

    impl Circuit<Scalar> for Pieces {
        fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), CircuitError> {
            assert!(CS::is_extensible());
            for piece in 0..self.pieces {
                let mut child = CS::new();
                child.alloc_input(|| "temp ONE", || Ok(Scalar::ONE))?;
                child.alloc(|| "aux", || Ok(Scalar::from(10 + piece)))?;
                child.alloc_input(|| "input", || Ok(Scalar::from(20 + piece)))?;
                cs.extend(&child);
            }
            Ok(())
        }
    }

    #[test]
    fn children_leave_no_spare_input() {
        let assignment = Assignment::synthesize(Pieces { pieces: 3 }, 0, 0).unwrap();
        let expected: Vec<Scalar> = [1u64, 20, 21, 22].map(Scalar::from).to_vec();
        assert_eq!(assignment.input_assignment, expected);
        let expected: Vec<Scalar> = [10u64, 11, 12].map(Scalar::from).to_vec();
        assert_eq!(assignment.aux_assignment, expected);
        assert_eq!(assignment.num_bytes(), 7 * 32);
    }

    /// Writes its values directly, as gadgets with a witness shortcut do.
    struct Direct;

    impl Circuit<Scalar> for Direct {
        fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), CircuitError> {
            assert!(cs.is_witness_generator());
            cs.extend_aux(&[Scalar::from(1)]);
            cs.extend_inputs(&[Scalar::from(2)]);
            let (aux, inputs) = cs.allocate_empty(1, 1);
            aux[0] = Scalar::from(3);
            inputs[0] = Scalar::from(4);
            cs.allocate_empty_aux(1)[0] = Scalar::from(5);
            cs.allocate_empty_inputs(1)[0] = Scalar::from(6);
            assert_eq!(cs.aux_slice().len(), 3);
            assert_eq!(cs.inputs_slice().len(), 4);
            Ok(())
        }
    }

    #[test]
    fn gadgets_may_write_values_directly() {
        let assignment = Assignment::synthesize(Direct, 1, 1).unwrap();
        assert_eq!(assignment.input_assignment, [1u64, 2, 4, 6].map(Scalar::from).to_vec());
        assert_eq!(assignment.aux_assignment, [1u64, 3, 5].map(Scalar::from).to_vec());
    }

    struct Refusing;

    impl Circuit<Scalar> for Refusing {
        fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), CircuitError> {
            cs.alloc(|| "missing", || Err(CircuitError::AssignmentMissing)).map(drop)
        }
    }

    #[test]
    fn refusal_carries_the_circuits_reason() {
        let error = Assignment::synthesize(Refusing, 0, 0).unwrap_err();
        assert_eq!(
            error,
            SynthesisError::Circuit("an assignment for a variable could not be computed".into())
        );
    }

    #[test]
    fn debug_prints_no_values() {
        let assignment = Assignment { input_assignment: vec![Scalar::from(77)], aux_assignment: vec![] };
        assert_eq!(format!("{assignment:?}"), "Assignment { num_inputs: 1, num_aux: 0 }");
    }
}
