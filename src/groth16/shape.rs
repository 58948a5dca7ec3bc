//! R1CS shapes: the constraint matrices of a circuit, recorded once, kept compactly, evaluated for every witness.
//!
//! Circuits are made of gadgets that are used over and over, so most rows have been there before, about other
//! variables. Each distinct row is kept once (`patterns.rs`), and the sequence of rows as runs that repeat earlier ones
//! (`rows.rs`); both are found while the circuit is recorded (`builder.rs`), whatever the circuit. A circuit without
//! repetition has as many distinct rows as rows and one run. PoRep of 32 GiB has 722 million entries; expanded they
//! would take 25.7 GiB.
//!
//! The constraints make most variables bits. Which ones is proved from the rows (`classify.rs`), and lets a witness
//! be a bit per variable ([`crate::groth16::PackedWitness`]) and a row's values sums of machine integers
//! (`evaluate.rs`).

mod builder;
mod classify;
mod compare;
mod digest;
mod evaluate;
mod image;
mod patterns;
mod rows;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use blst::blst_fr;
use blstrs::Scalar;
use rayon::prelude::*;

pub(super) use builder::{RowsBuilder, TaggedRow, MAX_ROWS};
pub use evaluate::Matrix;
use evaluate::SmallCoefficients;
pub use image::{ImageLayout, Table, TILE_ROWS};
#[cfg(test)]
pub(super) use patterns::INPUT;
pub(super) use patterns::{Pattern, PatternTable, Variable};
pub(super) use rows::{Rows, Run, SPAN};

use crate::groth16::density::{Density, RankedDensity};
use crate::groth16::VariableClasses;

/// Index of the coefficient 1 in every table of coefficients.
pub(super) const COEFFICIENT_ONE: u16 = 0;
/// Index of the coefficient -1.
pub(super) const COEFFICIENT_MINUS_ONE: u16 = 1;
/// Set in a column that is an aux variable, for as long as the number of inputs is not known.
pub(super) const AUX_TAG: u32 = 1 << 31;

/// The constraint matrices A, B, C of one circuit, input rows included, with what follows from them.
#[derive(Clone)]
pub struct R1csShape {
    num_inputs: usize,
    num_aux: usize,
    rows: Rows,
    /// The distinct coefficients, 1 and -1 first.
    coefficients: Vec<Scalar>,
    num_nonzero: [u64; 3],
    a_aux_density: RankedDensity,
    b_input_density: RankedDensity,
    b_aux_density: RankedDensity,
    classes: Arc<VariableClasses>,
    small: SmallCoefficients,
}

/// By the matrices: all else follows from them.
impl PartialEq for R1csShape {
    fn eq(&self, other: &Self) -> bool {
        (self.num_inputs, self.num_aux) == (other.num_inputs, other.num_aux)
            && self.coefficients == other.coefficients
            && self.rows == other.rows
    }
}

impl Eq for R1csShape {}

impl fmt::Debug for R1csShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("R1csShape")
            .field("num_inputs", &self.num_inputs)
            .field("num_aux", &self.num_aux)
            .field("num_constraints", &self.num_constraints())
            .finish_non_exhaustive()
    }
}

/// What of a shape is counted from its rows.
struct Counts {
    num_nonzero: [u64; 3],
    a_aux: Density,
    b_input: Density,
    b_aux: Density,
}

impl Counts {
    /// In one pass; PoRep of 32 GiB takes two seconds.
    fn of(rows: &Rows, num_inputs: usize, num_aux: usize) -> Self {
        let mut counts = Self {
            num_nonzero: [0; 3],
            a_aux: Density::new(num_aux),
            b_input: Density::new(num_inputs),
            b_aux: Density::new(num_aux),
        };
        rows.for_each(0..rows.num_rows(), |_, id, anchors| {
            let [a, b, c] = rows.patterns().row(id);
            for (sum, terms) in counts.num_nonzero.iter_mut().zip([a, b, c]) {
                *sum += terms.codes.len() as u64;
            }
            for &code in a.codes {
                if let Variable::Aux(aux) = anchors.variable(code) {
                    counts.a_aux.set(aux as usize);
                }
            }
            for &code in b.codes {
                match anchors.variable(code) {
                    Variable::Aux(aux) => counts.b_aux.set(aux as usize),
                    Variable::Input(input) => counts.b_input.set(input as usize),
                }
            }
        });
        counts
    }
}

impl R1csShape {
    /// Puts a shape together from parts that the caller has checked against each other.
    pub(super) fn from_parts(
        num_inputs: usize,
        num_aux: usize,
        rows: Rows,
        coefficients: Vec<Scalar>,
    ) -> Self {
        // Two passes over the rows, independent of each other.
        let (counts, dense) = rayon::join(
            || Counts::of(&rows, num_inputs, num_aux),
            || classify::dense_variables(&rows, &coefficients, num_aux),
        );
        let classes = Arc::new(VariableClasses::from_dense(dense));
        let small = SmallCoefficients::new(&rows, &coefficients, &classes);
        let Counts { num_nonzero, a_aux, b_input, b_aux } = counts;
        Self {
            num_inputs,
            num_aux,
            rows,
            coefficients,
            num_nonzero,
            a_aux_density: a_aux.into(),
            b_input_density: b_input.into(),
            b_aux_density: b_aux.into(),
            classes,
            small,
        }
    }

    pub(super) fn rows(&self) -> &Rows {
        &self.rows
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
        self.rows.num_rows()
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
        self.num_nonzero
    }

    /// Rows that are kept: the distinct ones, seen from their own variables.
    pub fn num_distinct_rows(&self) -> usize {
        self.rows.patterns().len()
    }

    /// Aux variables that occur in A, in order: bit `i` is aux `i`.
    pub fn a_aux_density(&self) -> &RankedDensity {
        &self.a_aux_density
    }

    /// Inputs that occur in B.
    pub fn b_input_density(&self) -> &RankedDensity {
        &self.b_input_density
    }

    /// Aux variables that occur in B.
    pub fn b_aux_density(&self) -> &RankedDensity {
        &self.b_aux_density
    }

    /// Which aux variables the constraints make bits.
    pub fn classes(&self) -> &Arc<VariableClasses> {
        &self.classes
    }

    /// Bytes of them that the matrices take.
    pub fn num_matrices_bytes(&self) -> u64 {
        self.rows.num_bytes() + 32 * self.coefficients.len() as u64
    }

    /// Bytes held in memory.
    pub fn num_bytes(&self) -> u64 {
        let densities = [&self.a_aux_density, &self.b_input_density, &self.b_aux_density];
        self.num_matrices_bytes()
            + densities.map(RankedDensity::num_bytes).iter().sum::<u64>()
            + self.classes.num_bytes()
            + self.small.num_bytes()
    }

    /// The column of a variable: inputs first, aux variables after them.
    fn column(&self, variable: Variable) -> usize {
        match variable {
            Variable::Input(input) => input as usize,
            Variable::Aux(aux) => self.num_inputs + aux as usize,
        }
    }

    /// Calls `visit(row, column, coefficient)` for every entry of `matrix` (0 = A, 1 = B, 2 = C), in row order.
    /// Columns are inputs first, aux variables after them.
    pub fn for_each_entry(&self, matrix: usize, visit: &mut dyn FnMut(usize, usize, &Scalar)) {
        self.rows.for_each(0..self.num_rows(), |row, id, anchors| {
            for (code, coefficient) in self.rows.patterns().row(id)[matrix].iter() {
                let column = self.column(anchors.variable(code));
                visit(row, column, &self.coefficients[coefficient as usize]);
            }
        });
    }

    /// Some rows of a matrix times any vector of `num_inputs + num_aux`, inputs first, on the calling thread: calls `visit` with a
    /// row's number and each of its terms. In field arithmetic throughout: for checks, and not for witnesses.
    ///
    /// # Panics
    /// If there are not so many rows.
    pub(in crate::groth16) fn multiply_rows(
        &self,
        matrix: Matrix,
        rows: Range<usize>,
        vector: impl Fn(usize) -> Scalar,
        mut visit: impl FnMut(usize, Scalar),
    ) {
        self.rows.for_each(rows, |row, id, anchors| {
            for (code, coefficient) in self.rows.patterns().row(id)[matrix as usize].iter() {
                let value = vector(self.column(anchors.variable(code)));
                visit(row, value * self.coefficients[coefficient as usize]);
            }
        });
    }

    fn spans(&self) -> impl IndexedParallelIterator<Item = Range<usize>> {
        spans(self.num_rows())
    }
}

/// Ranges of rows that are quick to start reading at, for tasks of their own.
fn spans(num_rows: usize) -> impl IndexedParallelIterator<Item = Range<usize>> {
    let spans = (0..num_rows.div_ceil(SPAN)).into_par_iter();
    spans.map(move |span| span * SPAN..num_rows.min((span + 1) * SPAN))
}

/// The Montgomery limbs, as a key: equal for equal scalars.
pub(super) fn limbs(scalar: &Scalar) -> [u64; 4] {
    blst_fr::from(*scalar).l
}
