//! The one constraint system that Filecoin's circuits are synthesized in.
//!
//! Their code is generic over the constraint system and large: every further type is compiled anew for each kind of proof
//! and each tree, tens of seconds each. So there is one type, and what becomes of variables and rows is a [`Sink`]'s:
//!
//! ```text
//! Circuit::synthesize -> SinkSystem -> dyn Sink    values: assignment.rs, packing.rs, circuits/native/{names,stream}.rs
//!                                                  rows: shape_recorder.rs
//! ```
//!
//! [`Assignment::synthesize`] and [`PackedWitness::synthesize`] have types of their own besides: circuits that can be
//! synthesized in parallel pieces need a system that can be joined of them.
//!
//! [`Assignment::synthesize`]: crate::groth16::Assignment::synthesize
//! [`PackedWitness::synthesize`]: crate::groth16::PackedWitness::synthesize

use bellpepper_core::{
    Circuit, ConstraintSystem, Index, LinearCombination, SynthesisError as CircuitError, Variable,
};
use blstrs::Scalar;

use crate::error::SynthesisError;

/// Which of a circuit's closures are run for a [`Sink`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Wants {
    /// Those that compute a variable's value. A blank circuit has none.
    pub values: bool,
    /// Those that build a constraint's linear combinations.
    pub rows: bool,
    /// Those that name namespaces and variables.
    pub names: bool,
}

/// Takes what a circuit allocates and enforces, in its order. The leading input one is not among it.
pub trait Sink: Send {
    /// Asked once, before the synthesis.
    fn wants(&self) -> Wants;

    /// Private variable `index`, and its value if values are wanted.
    ///
    /// # Errors
    /// Whatever is to end the synthesis.
    fn aux(&mut self, index: usize, value: Option<Scalar>) -> Result<(), CircuitError> {
        let _ = (index, value);
        Ok(())
    }

    /// Public input `index`, from 1, and its value if values are wanted.
    ///
    /// # Errors
    /// Whatever is to end the synthesis.
    fn input(&mut self, index: usize, value: Option<Scalar>) -> Result<(), CircuitError> {
        let _ = (index, value);
        Ok(())
    }

    /// The constraint `a · b = c`, if rows are wanted.
    fn row(&mut self, combinations: [LinearCombination<Scalar>; 3]) {
        let _ = combinations;
    }

    /// The name of the next private variable in its namespace, if names are wanted.
    fn name_aux(&mut self, name: String) {
        let _ = name;
    }

    /// A namespace begins, if names are wanted.
    fn enter(&mut self, name: String) {
        let _ = name;
    }

    /// The innermost namespace ends, if names are wanted.
    fn leave(&mut self) {}
}

/// A circuit, ready to be synthesized: a [`Circuit`] without its type.
pub type Synthesis<'a> = Box<dyn FnOnce(&mut SinkSystem<'_>) -> Result<(), CircuitError> + 'a>;

/// `circuit` without its type.
pub fn synthesis<'a, C: Circuit<Scalar> + 'a>(circuit: C) -> Synthesis<'a> {
    Box::new(move |system| circuit.synthesize(system))
}

/// Variables that a circuit has allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumVariables {
    /// The leading one included.
    pub inputs: usize,
    pub aux: usize,
}

/// Runs a circuit's code.
///
/// # Errors
/// [`SynthesisError::Circuit`] if it fails.
pub fn synthesize(circuit: Synthesis<'_>, sink: &mut dyn Sink) -> Result<NumVariables, SynthesisError> {
    let mut system = SinkSystem::new(sink);
    circuit(&mut system).map_err(|error| SynthesisError::Circuit(error.to_string()))?;
    Ok(system.num_variables)
}

/// Hands everything to its [`Sink`]. Not extensible, so that a circuit which could be synthesized in parallel pieces comes
/// in one, and no witness generator, so that gadgets do not read values back.
pub struct SinkSystem<'a> {
    sink: &'a mut dyn Sink,
    wants: Wants,
    num_variables: NumVariables,
}

impl<'a> SinkSystem<'a> {
    pub fn new(sink: &'a mut dyn Sink) -> Self {
        let wants = sink.wants();
        Self { sink, wants, num_variables: NumVariables { inputs: 1, aux: 0 } }
    }

    // Not in the generic functions below, of which there is one for every place that calls them.
    #[inline(never)]
    fn push_aux(&mut self, value: Option<Scalar>) -> Result<Variable, CircuitError> {
        let index = self.num_variables.aux;
        self.sink.aux(index, value)?;
        self.num_variables.aux += 1;
        Ok(Variable::new_unchecked(Index::Aux(index)))
    }

    #[inline(never)]
    fn push_input(&mut self, value: Option<Scalar>) -> Result<Variable, CircuitError> {
        let index = self.num_variables.inputs;
        self.sink.input(index, value)?;
        self.num_variables.inputs += 1;
        Ok(Variable::new_unchecked(Index::Input(index)))
    }

    #[inline(never)]
    fn push_row(&mut self, combinations: [LinearCombination<Scalar>; 3]) {
        self.sink.row(combinations);
    }
}

impl ConstraintSystem<Scalar> for SinkSystem<'_> {
    type Root = Self;

    fn alloc<F, A, AR>(&mut self, annotation: A, value: F) -> Result<Variable, CircuitError>
    where
        F: FnOnce() -> Result<Scalar, CircuitError>,
        A: FnOnce() -> AR,
        AR: Into<String>,
    {
        // Gadgets take their values out of this call.
        let value = if self.wants.values { Some(value()?) } else { None };
        if self.wants.names {
            self.sink.name_aux(annotation().into());
        }
        self.push_aux(value)
    }

    fn alloc_input<F, A, AR>(&mut self, _: A, value: F) -> Result<Variable, CircuitError>
    where
        F: FnOnce() -> Result<Scalar, CircuitError>,
        A: FnOnce() -> AR,
        AR: Into<String>,
    {
        let value = if self.wants.values { Some(value()?) } else { None };
        self.push_input(value)
    }

    fn enforce<A, AR, LA, LB, LC>(&mut self, _: A, a: LA, b: LB, c: LC)
    where
        A: FnOnce() -> AR,
        AR: Into<String>,
        LA: FnOnce(LinearCombination<Scalar>) -> LinearCombination<Scalar>,
        LB: FnOnce(LinearCombination<Scalar>) -> LinearCombination<Scalar>,
        LC: FnOnce(LinearCombination<Scalar>) -> LinearCombination<Scalar>,
    {
        if self.wants.rows {
            let zero = LinearCombination::zero;
            self.push_row([a(zero()), b(zero()), c(zero())]);
        }
    }

    fn push_namespace<NR: Into<String>, N: FnOnce() -> NR>(&mut self, name: N) {
        if self.wants.names {
            self.sink.enter(name().into());
        }
    }

    fn pop_namespace(&mut self) {
        if self.wants.names {
            self.sink.leave();
        }
    }

    fn get_root(&mut self) -> &mut Self::Root {
        self
    }
}

#[cfg(test)]
mod tests {
    use ff::Field;

    use super::*;

    /// `x · x = y` in a namespace: one aux variable and one input, each with a value, or one without.
    struct Square {
        x: Option<Scalar>,
    }

    impl Circuit<Scalar> for Square {
        fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), CircuitError> {
            let mut cs = cs.namespace(|| "square");
            let x = cs.alloc(|| "x", || self.x.ok_or(CircuitError::AssignmentMissing))?;
            let y = cs.alloc_input(|| "y", || Ok(self.x.ok_or(CircuitError::AssignmentMissing)?.square()))?;
            cs.enforce(|| "", |lc| lc + x, |lc| lc + x, |lc| lc + y);
            Ok(())
        }
    }

    /// Writes down all it is told.
    struct Notes {
        wants: Wants,
        notes: Vec<String>,
    }

    impl Sink for Notes {
        fn wants(&self) -> Wants {
            self.wants
        }

        fn aux(&mut self, index: usize, value: Option<Scalar>) -> Result<(), CircuitError> {
            self.notes.push(format!("aux {index}: {:?}", value.map(|value| value == Scalar::from(3))));
            Ok(())
        }

        fn input(&mut self, index: usize, value: Option<Scalar>) -> Result<(), CircuitError> {
            self.notes.push(format!("input {index}: {:?}", value.map(|value| value == Scalar::from(9))));
            Ok(())
        }

        fn row(&mut self, combinations: [LinearCombination<Scalar>; 3]) {
            self.notes
                .push(format!("row of {:?}", combinations.map(|combination| combination.iter().count())));
        }

        fn name_aux(&mut self, name: String) {
            self.notes.push(name);
        }

        fn enter(&mut self, name: String) {
            self.notes.push(format!("in {name}"));
        }

        fn leave(&mut self) {
            self.notes.push("out".into());
        }
    }

    #[test]
    fn a_sink_is_told_what_it_wants_and_no_more() {
        let told = |wants, x: Option<u64>| {
            let mut notes = Notes { wants, notes: Vec::new() };
            let circuit = Square { x: x.map(Scalar::from) };
            let counts = synthesize(synthesis(circuit), &mut notes).map_err(|error| error.to_string());
            assert!(counts.is_err() || counts == Ok(NumVariables { inputs: 2, aux: 1 }));
            (notes.notes.join(", "), counts.is_ok())
        };
        let none = Wants::default();
        let values = Wants { values: true, ..none };
        assert_eq!(told(none, None), ("aux 0: None, input 1: None".into(), true));
        assert_eq!(told(values, Some(3)), ("aux 0: Some(true), input 1: Some(true)".into(), true));
        assert_eq!(told(values, None), (String::new(), false));
        assert_eq!(
            told(Wants { rows: true, ..none }, None),
            ("aux 0: None, input 1: None, row of [1, 1, 1]".into(), true)
        );
        assert_eq!(
            told(Wants { names: true, ..none }, None),
            ("in square, x, aux 0: None, input 1: None, out".into(), true)
        );
    }
}
