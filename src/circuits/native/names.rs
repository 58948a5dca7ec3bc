//! The name that a circuit gives to one of its variables.

use bellpepper_core::SynthesisError as CircuitError;
use blstrs::Scalar;

use crate::groth16::sink::{self, Sink, Synthesis, Wants};

/// The path of names that `circuit` allocates its private variable `aux` under: "no such variable" if it has none, or
/// ends before.
///
/// The circuit is synthesized anew for it, so that telling a difference costs time only where there is one.
pub(super) fn variable_name(circuit: Synthesis<'_>, aux: usize) -> String {
    let mut names = Names { wanted: aux, path: Vec::new(), own: String::new(), found: None };
    // What counts is whether it came by the variable; it may fail afterwards.
    let _ = sink::synthesize(circuit, &mut names);
    names.found.unwrap_or_else(|| "no such variable".into())
}

/// Keeps the name of the wanted variable.
struct Names {
    wanted: usize,
    path: Vec<String>,
    /// Of the variable that is being allocated.
    own: String,
    found: Option<String>,
}

impl Sink for Names {
    fn wants(&self) -> Wants {
        Wants { values: true, names: true, ..Wants::default() }
    }

    fn aux(&mut self, index: usize, _: Option<Scalar>) -> Result<(), CircuitError> {
        if index == self.wanted {
            let path = self.path.iter().chain([&self.own]).map(String::as_str);
            self.found = Some(path.collect::<Vec<_>>().join("/"));
        }
        Ok(())
    }

    fn name_aux(&mut self, name: String) {
        self.own = name;
    }

    fn enter(&mut self, name: String) {
        self.path.push(name);
    }

    fn leave(&mut self) {
        self.path.pop();
    }
}
