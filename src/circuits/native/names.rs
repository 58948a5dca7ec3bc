//! The name that a circuit gives to one of its variables.

use bellpepper_core::{
    Circuit, ConstraintSystem, Index, LinearCombination, SynthesisError as CircuitError, Variable,
};
use blstrs::Scalar;

/// The path of names that `circuit` allocates its private variable `aux` under: "no such variable" if it has none, or
/// ends before.
///
/// The circuit is synthesized anew for it, so that telling a difference costs time only where there is one.
pub(super) fn variable_name<C: Circuit<Scalar>>(circuit: C, aux: usize) -> String {
    let mut names = NameSystem { wanted: aux, num_inputs: 1, num_aux: 0, path: Vec::new(), found: None };
    // What counts is whether it came by the variable; it may fail afterwards.
    let _ = circuit.synthesize(&mut names);
    names.found.unwrap_or_else(|| "no such variable".into())
}

/// Counts variables and keeps the name of the wanted one.
struct NameSystem {
    wanted: usize,
    num_inputs: usize,
    num_aux: usize,
    path: Vec<String>,
    found: Option<String>,
}

impl ConstraintSystem<Scalar> for NameSystem {
    type Root = Self;

    fn alloc<F, A, AR>(&mut self, annotation: A, value: F) -> Result<Variable, CircuitError>
    where
        F: FnOnce() -> Result<Scalar, CircuitError>,
        A: FnOnce() -> AR,
        AR: Into<String>,
    {
        // Gadgets take their values out of this call.
        value()?;
        if self.num_aux == self.wanted {
            let own = [annotation().into()];
            self.found = Some(self.path.iter().chain(&own).map(String::as_str).collect::<Vec<_>>().join("/"));
        }
        self.num_aux += 1;
        Ok(Variable::new_unchecked(Index::Aux(self.num_aux - 1)))
    }

    fn alloc_input<F, A, AR>(&mut self, _: A, value: F) -> Result<Variable, CircuitError>
    where
        F: FnOnce() -> Result<Scalar, CircuitError>,
        A: FnOnce() -> AR,
        AR: Into<String>,
    {
        value()?;
        self.num_inputs += 1;
        Ok(Variable::new_unchecked(Index::Input(self.num_inputs - 1)))
    }

    fn enforce<A, AR, LA, LB, LC>(&mut self, _: A, _: LA, _: LB, _: LC)
    where
        A: FnOnce() -> AR,
        AR: Into<String>,
        LA: FnOnce(LinearCombination<Scalar>) -> LinearCombination<Scalar>,
        LB: FnOnce(LinearCombination<Scalar>) -> LinearCombination<Scalar>,
        LC: FnOnce(LinearCombination<Scalar>) -> LinearCombination<Scalar>,
    {
    }

    fn push_namespace<NR: Into<String>, N: FnOnce() -> NR>(&mut self, name: N) {
        self.path.push(name().into());
    }

    fn pop_namespace(&mut self) {
        self.path.pop();
    }

    fn get_root(&mut self) -> &mut Self::Root {
        self
    }
}
