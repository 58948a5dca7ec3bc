//! R1CS shapes: the constraint matrices of a circuit, recorded once, kept compactly, evaluated for every witness.

use std::fmt;
use std::path::Path;

use bellpepper_core::Circuit;
use blstrs::Scalar;

use crate::error::{SrsError, SynthesisError};
use crate::groth16::Assignment;

/// The constraint matrices A, B, C of one circuit, input rows included, with their densities.
pub struct R1csShape {
    num_inputs: usize,
    num_aux: usize,
}

impl fmt::Debug for R1csShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("R1csShape")
            .field("num_inputs", &self.num_inputs)
            .field("num_aux", &self.num_aux)
            .finish_non_exhaustive()
    }
}

/// Row values `a = A·w`, `b = B·w`, `c = C·w`, each `[num_rows]`. A secret: not printed.
pub struct Evaluations {
    pub a: Vec<Scalar>,
    pub b: Vec<Scalar>,
    pub c: Vec<Scalar>,
}

impl fmt::Debug for Evaluations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Evaluations").field("num_rows", &self.a.len()).finish_non_exhaustive()
    }
}

impl R1csShape {
    /// Records the matrices of `circuit` (a blank one will do: assignment closures are not run), and appends
    /// one row `input_i * 0 = 0` per input.
    pub fn record<C: Circuit<Scalar>>(circuit: C) -> Result<Self, SynthesisError> {
        let _ = circuit;
        todo!()
    }

    /// Inputs, the leading one included.
    pub fn num_inputs(&self) -> usize {
        self.num_inputs
    }

    pub fn num_aux(&self) -> usize {
        self.num_aux
    }

    /// Rows, the input rows included.
    pub fn num_rows(&self) -> usize {
        todo!()
    }

    /// Rows of the circuit itself, without the input rows.
    pub fn num_constraints(&self) -> usize {
        self.num_rows() - self.num_inputs
    }

    /// log2 of the evaluation domain's size.
    pub fn domain_log2(&self) -> u32 {
        todo!()
    }

    /// Non-zero entries of A, B, C.
    pub fn num_nonzero(&self) -> [u64; 3] {
        todo!()
    }

    /// Aux variables that occur in A, in order: bit `i` is aux `i`.
    pub fn a_aux_density(&self) -> &crate::groth16::msm::Density {
        todo!()
    }

    pub fn b_input_density(&self) -> &crate::groth16::msm::Density {
        todo!()
    }

    pub fn b_aux_density(&self) -> &crate::groth16::msm::Density {
        todo!()
    }

    /// Bytes held in memory.
    pub fn num_bytes(&self) -> u64 {
        todo!()
    }

    /// The `r1cs_sha256` of the manifests: see `tests/data/filecoin/README.md`.
    pub fn sha256(&self) -> [u8; 32] {
        todo!()
    }

    /// `a = A·w`, `b = B·w`, `c = C·w`, by rows in parallel.
    ///
    /// # Errors
    /// [`SynthesisError::ShapeMismatch`] if the assignment has another number of variables.
    pub fn evaluate(&self, assignment: &Assignment) -> Result<Evaluations, SynthesisError> {
        let _ = assignment;
        todo!()
    }

    /// `Ok` if every constraint holds.
    ///
    /// # Errors
    /// [`SynthesisError::Unsatisfied`] naming the first constraint that does not.
    pub fn check_satisfied(&self, evaluations: &Evaluations) -> Result<(), SynthesisError> {
        let _ = evaluations;
        todo!()
    }

    /// Writes the shape to `path`, atomically.
    pub fn save(&self, path: &Path) -> Result<(), SrsError> {
        let _ = path;
        todo!()
    }

    /// Reads a shape that [`R1csShape::save`] wrote; damaged files and other versions are refused.
    pub fn load(path: &Path) -> Result<Self, SrsError> {
        let _ = path;
        todo!()
    }

    /// Calls `visit(row, column, coefficient)` for every entry of `matrix` (0 = A, 1 = B, 2 = C), in row order.
    /// Columns are inputs first, aux variables after them.
    pub fn for_each_entry(&self, matrix: usize, visit: &mut dyn FnMut(usize, usize, &Scalar)) {
        let _ = (matrix, visit);
        todo!()
    }
}
