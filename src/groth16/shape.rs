//! R1CS shapes: the constraint matrices of a circuit, recorded once, kept compactly, evaluated for every witness.
//!
//! A matrix is kept by rows. An entry takes six bytes: the column, and the index of its coefficient in a table,
//! since even the largest circuits have few distinct coefficients (about 1,500 in a PoRep of 2.7 million
//! constraints).

use std::fmt;

use blst::blst_fr;
use blstrs::Scalar;
use ff::Field;
use rayon::prelude::*;
use sha2::{Digest, Sha256};

use crate::error::SynthesisError;
use crate::groth16::density::Density;
use crate::groth16::Assignment;

/// Index of the coefficient 1 in every table of coefficients.
pub(super) const COEFFICIENT_ONE: u16 = 0;
/// Index of the coefficient -1.
pub(super) const COEFFICIENT_MINUS_ONE: u16 = 1;

/// Rows given to one task: long enough to hide its cost, short enough to balance rows of unequal length.
const ROWS_PER_TASK: usize = 1 << 12;

/// One constraint matrix, by rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Matrix {
    /// `[num_rows + 1]`: row `i` has the entries `row_starts[i]..row_starts[i + 1]`.
    pub row_starts: Vec<u32>,
    /// `[num_entries]`: inputs first, aux variables after them.
    pub columns: Vec<u32>,
    /// `[num_entries]`: indices into the shape's table of coefficients; never that of zero.
    pub coefficients: Vec<u16>,
}

impl Matrix {
    pub fn num_rows(&self) -> usize {
        self.row_starts.len() - 1
    }

    fn row(&self, row: usize) -> impl Iterator<Item = (usize, u16)> + '_ {
        let entries = self.row_starts[row] as usize..self.row_starts[row + 1] as usize;
        let columns = self.columns[entries.clone()].iter().map(|&column| column as usize);
        columns.zip(self.coefficients[entries].iter().copied())
    }

    fn num_bytes(&self) -> u64 {
        (4 * self.row_starts.len() + 4 * self.columns.len() + 2 * self.coefficients.len()) as u64
    }
}

/// The constraint matrices A, B, C of one circuit, input rows included, with their densities.
#[derive(Clone, PartialEq, Eq)]
pub struct R1csShape {
    num_inputs: usize,
    num_aux: usize,
    matrices: [Matrix; 3],
    /// The distinct coefficients, 1 and -1 first.
    coefficients: Vec<Scalar>,
    a_aux_density: Density,
    b_input_density: Density,
    b_aux_density: Density,
}

impl fmt::Debug for R1csShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("R1csShape")
            .field("num_inputs", &self.num_inputs)
            .field("num_aux", &self.num_aux)
            .field("num_constraints", &self.num_constraints())
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
    /// Puts a shape together from parts that the caller has checked against each other.
    pub(super) fn from_parts(
        num_inputs: usize,
        num_aux: usize,
        matrices: [Matrix; 3],
        coefficients: Vec<Scalar>,
    ) -> Self {
        let mut a_aux_density = Density::new(num_aux);
        let mut b_input_density = Density::new(num_inputs);
        let mut b_aux_density = Density::new(num_aux);
        for &column in &matrices[0].columns {
            if let Some(aux) = (column as usize).checked_sub(num_inputs) {
                a_aux_density.set(aux);
            }
        }
        for &column in &matrices[1].columns {
            match (column as usize).checked_sub(num_inputs) {
                Some(aux) => b_aux_density.set(aux),
                None => b_input_density.set(column as usize),
            }
        }
        Self { num_inputs, num_aux, matrices, coefficients, a_aux_density, b_input_density, b_aux_density }
    }

    pub(super) fn matrices(&self) -> &[Matrix; 3] {
        &self.matrices
    }

    pub(super) fn coefficients(&self) -> &[Scalar] {
        &self.coefficients
    }

    /// Inputs, the leading one included.
    pub fn num_inputs(&self) -> usize {
        self.num_inputs
    }

    /// Private variables.
    pub fn num_aux(&self) -> usize {
        self.num_aux
    }

    /// Rows, the input rows included.
    pub fn num_rows(&self) -> usize {
        self.matrices[0].num_rows()
    }

    /// Rows of the circuit itself, without the input rows.
    pub fn num_constraints(&self) -> usize {
        self.num_rows() - self.num_inputs
    }

    /// log2 of the evaluation domain's size: the smallest power of two that holds all rows.
    pub fn domain_log2(&self) -> u32 {
        self.num_rows().next_power_of_two().trailing_zeros()
    }

    /// Non-zero entries of A, B, C.
    pub fn num_nonzero(&self) -> [u64; 3] {
        [0, 1, 2].map(|matrix| self.matrices[matrix].columns.len() as u64)
    }

    /// Aux variables that occur in A, in order: bit `i` is aux `i`.
    pub fn a_aux_density(&self) -> &Density {
        &self.a_aux_density
    }

    /// Inputs that occur in B.
    pub fn b_input_density(&self) -> &Density {
        &self.b_input_density
    }

    /// Aux variables that occur in B.
    pub fn b_aux_density(&self) -> &Density {
        &self.b_aux_density
    }

    /// Bytes held in memory.
    pub fn num_bytes(&self) -> u64 {
        let matrices: u64 = self.matrices.iter().map(Matrix::num_bytes).sum();
        let densities = self.a_aux_density.num_bytes()
            + self.b_input_density.num_bytes()
            + self.b_aux_density.num_bytes();
        matrices + densities + 32 * self.coefficients.len() as u64
    }

    /// The `r1cs_sha256` of the manifests: see `tests/data/filecoin/README.md`.
    pub fn sha256(&self) -> [u8; 32] {
        let coefficients: Vec<[u8; 32]> = self.coefficients.iter().map(Scalar::to_bytes_le).collect();
        let mut hasher = Sha256::new();
        hasher.update((self.num_inputs as u64).to_le_bytes());
        hasher.update((self.num_aux as u64).to_le_bytes());
        for matrix in &self.matrices {
            update_in_blocks(&mut hasher, &matrix.row_starts, |start| start.to_le_bytes());
            update_in_blocks(&mut hasher, &matrix.columns, |column| column.to_le_bytes());
            update_in_blocks(&mut hasher, &matrix.coefficients, |index| coefficients[index as usize]);
        }
        hasher.finalize().into()
    }

    /// `a = A·w`, `b = B·w`, `c = C·w`, by rows in parallel.
    ///
    /// # Errors
    /// [`SynthesisError::ShapeMismatch`] if the assignment has another number of variables.
    pub fn evaluate(&self, assignment: &Assignment) -> Result<Evaluations, SynthesisError> {
        let needs_has = [
            ("inputs", self.num_inputs, assignment.input_assignment.len()),
            ("aux variables", self.num_aux, assignment.aux_assignment.len()),
        ];
        for (what, needs, has) in needs_has {
            if needs != has {
                return Err(SynthesisError::ShapeMismatch { what, needs, has });
            }
        }
        let [a, b, c] = [0, 1, 2].map(|matrix| self.evaluate_matrix(matrix, assignment));
        Ok(Evaluations { a, b, c })
    }

    fn evaluate_matrix(&self, matrix: usize, assignment: &Assignment) -> Vec<Scalar> {
        let matrix = &self.matrices[matrix];
        let value_of = |column: usize| match column.checked_sub(self.num_inputs) {
            Some(aux) => &assignment.aux_assignment[aux],
            None => &assignment.input_assignment[column],
        };
        // Room for the whole domain: the quotient pads the rows to it in place.
        let mut values = Vec::with_capacity(1 << self.domain_log2());
        (0..matrix.num_rows())
            .into_par_iter()
            .with_min_len(ROWS_PER_TASK)
            .map(|row| {
                let terms = matrix.row(row).map(|(column, coefficient)| (coefficient, value_of(column)));
                self.sum_terms(terms)
            })
            .collect_into_vec(&mut values);
        values
    }

    /// Most coefficients are 1 or -1 and most values bits: only what is left needs a multiplication.
    fn sum_terms<'a>(&self, terms: impl Iterator<Item = (u16, &'a Scalar)>) -> Scalar {
        let mut sum = Scalar::ZERO;
        for (coefficient, value) in terms {
            match coefficient {
                COEFFICIENT_ONE => sum += value,
                COEFFICIENT_MINUS_ONE => sum -= value,
                _ if *value == Scalar::ZERO => {}
                _ if *value == Scalar::ONE => sum += self.coefficients[coefficient as usize],
                _ => sum += self.coefficients[coefficient as usize] * value,
            }
        }
        sum
    }

    /// `Ok` if every constraint holds.
    ///
    /// # Errors
    /// [`SynthesisError::Unsatisfied`] naming the first constraint that does not;
    /// [`SynthesisError::ShapeMismatch`] if there are not as many values as rows.
    pub fn check_satisfied(&self, evaluations: &Evaluations) -> Result<(), SynthesisError> {
        let Evaluations { a, b, c } = evaluations;
        for (what, values) in [("rows of a", a), ("rows of b", b), ("rows of c", c)] {
            if values.len() != self.num_rows() {
                let (needs, has) = (self.num_rows(), values.len());
                return Err(SynthesisError::ShapeMismatch { what, needs, has });
            }
        }
        let first_bad = (0..self.num_rows())
            .into_par_iter()
            .with_min_len(ROWS_PER_TASK)
            .position_first(|row| a[row] * b[row] != c[row]);
        match first_bad {
            None => Ok(()),
            Some(index) => {
                Err(SynthesisError::Unsatisfied { index, num_constraints: self.num_constraints() })
            }
        }
    }

    /// Calls `visit(row, column, coefficient)` for every entry of `matrix` (0 = A, 1 = B, 2 = C), in row order.
    /// Columns are inputs first, aux variables after them.
    pub fn for_each_entry(&self, matrix: usize, visit: &mut dyn FnMut(usize, usize, &Scalar)) {
        let matrix = &self.matrices[matrix];
        for row in 0..matrix.num_rows() {
            for (column, coefficient) in matrix.row(row) {
                visit(row, column, &self.coefficients[coefficient as usize]);
            }
        }
    }
}

/// Hashes `items` by blocks: a call per item costs more than hashing it.
fn update_in_blocks<T: Copy, const N: usize>(
    hasher: &mut Sha256,
    items: &[T],
    to_bytes: impl Fn(T) -> [u8; N],
) {
    let mut block = Vec::with_capacity(N << 10);
    for chunk in items.chunks(1 << 10) {
        block.clear();
        chunk.iter().for_each(|&item| block.extend_from_slice(&to_bytes(item)));
        hasher.update(&block);
    }
}

/// The Montgomery limbs, as a key: equal for equal scalars.
pub(super) fn limbs(scalar: &Scalar) -> [u64; 4] {
    blst_fr::from(*scalar).l
}
