//! Witnesses: the values of a circuit's variables, and the constraint system that collects only them.

use std::fmt;

use bellpepper_core::Circuit;
use blstrs::Scalar;

use crate::error::SynthesisError;

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
    /// # Errors
    /// [`SynthesisError::Circuit`] if the circuit's code refuses its inputs.
    pub fn synthesize<C: Circuit<Scalar>>(
        circuit: C,
        num_inputs_hint: usize,
        num_aux_hint: usize,
    ) -> Result<Self, SynthesisError> {
        let _ = (circuit, num_inputs_hint, num_aux_hint);
        todo!()
    }

    pub fn num_bytes(&self) -> u64 {
        32 * (self.input_assignment.len() + self.aux_assignment.len()) as u64
    }
}
