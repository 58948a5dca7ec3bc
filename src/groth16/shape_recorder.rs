//! The constraint system that records a circuit's matrices and runs none of its assignments.

use std::collections::HashMap;

use bellpepper_core::{
    Circuit, ConstraintSystem, Index, LinearCombination, SynthesisError as CircuitError, Variable,
};
use blstrs::Scalar;
use ff::{Field, PrimeField};

use crate::error::SynthesisError;
use crate::groth16::shape::{limbs, Matrix, COEFFICIENT_ONE};
use crate::groth16::R1csShape;

/// Set in a column that is an aux variable, for as long as the number of inputs is not known.
const AUX_TAG: u32 = 1 << 31;

impl R1csShape {
    /// Records the matrices of `circuit` (a blank one will do: assignment closures are not run), and appends
    /// one row `input_i * 0 = 0` per input.
    ///
    /// # Errors
    /// [`SynthesisError::Circuit`] if the circuit's code fails, [`SynthesisError::TooLarge`] if there are 2^31
    /// inputs or aux variables, 2^32 entries in a matrix, more than 65,536 distinct coefficients, or more rows than
    /// the field has roots of unity.
    pub fn record<C: Circuit<Scalar>>(circuit: C) -> Result<Self, SynthesisError> {
        let mut recorder = Recorder::empty();
        recorder.num_inputs = 1;
        circuit.synthesize(&mut recorder).map_err(|error| SynthesisError::Circuit(error.to_string()))?;
        recorder.finish()
    }
}

/// A matrix being recorded: columns still carry [`AUX_TAG`].
struct Rows {
    matrix: Matrix,
}

impl Rows {
    fn empty() -> Self {
        Self { matrix: Matrix { row_starts: vec![0], columns: Vec::new(), coefficients: Vec::new() } }
    }

    fn push_entry(&mut self, column: u32, coefficient: u16) {
        self.matrix.columns.push(column);
        self.matrix.coefficients.push(coefficient);
    }

    fn end_row(&mut self) -> Result<(), SynthesisError> {
        let end = u32::try_from(self.matrix.columns.len())
            .map_err(|_| SynthesisError::TooLarge("a matrix has 2^32 entries or more".into()))?;
        self.matrix.row_starts.push(end);
        Ok(())
    }

    fn finish(mut self, num_inputs: u32) -> Matrix {
        for column in &mut self.matrix.columns {
            if *column & AUX_TAG != 0 {
                *column = (*column ^ AUX_TAG) + num_inputs;
            }
        }
        self.matrix.columns.shrink_to_fit();
        self.matrix.coefficients.shrink_to_fit();
        self.matrix.row_starts.shrink_to_fit();
        self.matrix
    }
}

/// The distinct coefficients met so far.
struct CoefficientTable {
    values: Vec<Scalar>,
    index_of: HashMap<[u64; 4], u16>,
}

impl CoefficientTable {
    fn new() -> Self {
        // The order is that of COEFFICIENT_ONE and COEFFICIENT_MINUS_ONE.
        let values = vec![Scalar::ONE, -Scalar::ONE];
        let index_of = values.iter().enumerate().map(|(i, value)| (limbs(value), i as u16)).collect();
        Self { values, index_of }
    }

    fn index(&mut self, coefficient: &Scalar) -> Result<u16, SynthesisError> {
        if *coefficient == Scalar::ONE {
            return Ok(COEFFICIENT_ONE);
        }
        let key = limbs(coefficient);
        if let Some(&index) = self.index_of.get(&key) {
            return Ok(index);
        }
        let index = u16::try_from(self.values.len())
            .map_err(|_| SynthesisError::TooLarge("more than 65,536 distinct coefficients".into()))?;
        self.values.push(*coefficient);
        self.index_of.insert(key, index);
        Ok(index)
    }
}

/// Not extensible, so that circuits which could be synthesized in parallel pieces are recorded in one.
struct Recorder {
    num_inputs: usize,
    num_aux: usize,
    rows: [Rows; 3],
    coefficients: CoefficientTable,
    /// The first limit that was exceeded: `enforce` cannot fail, so it is reported at the end.
    exceeded: Option<SynthesisError>,
}

impl Recorder {
    fn empty() -> Self {
        Self {
            num_inputs: 0,
            num_aux: 0,
            rows: [Rows::empty(), Rows::empty(), Rows::empty()],
            coefficients: CoefficientTable::new(),
            exceeded: None,
        }
    }

    fn push_row(&mut self, combinations: [LinearCombination<Scalar>; 3]) -> Result<(), SynthesisError> {
        for (rows, combination) in self.rows.iter_mut().zip(&combinations) {
            for (variable, coefficient) in combination.iter() {
                if *coefficient != Scalar::ZERO {
                    rows.push_entry(tagged_column(variable)?, self.coefficients.index(coefficient)?);
                }
            }
            rows.end_row()?;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<R1csShape, SynthesisError> {
        if let Some(error) = self.exceeded {
            return Err(error);
        }
        for input in 0..self.num_inputs {
            let column = tagged_column(Variable::new_unchecked(Index::Input(input)))?;
            self.rows[0].push_entry(column, COEFFICIENT_ONE);
            self.rows.iter_mut().try_for_each(Rows::end_row)?;
        }
        let num_inputs = variable_count("inputs", self.num_inputs)?;
        variable_count("aux variables", self.num_aux)?;
        let num_rows = self.rows[0].matrix.num_rows();
        if num_rows > 1 << (Scalar::S - 1) {
            return Err(SynthesisError::TooLarge(format!("{num_rows} rows, limit 2^{}", Scalar::S - 1)));
        }
        let matrices = self.rows.map(|rows| rows.finish(num_inputs));
        check_columns(&matrices, self.num_inputs + self.num_aux)?;
        Ok(R1csShape::from_parts(self.num_inputs, self.num_aux, matrices, self.coefficients.values))
    }
}

/// The column of `variable` while the number of inputs is not known.
fn tagged_column(variable: Variable) -> Result<u32, SynthesisError> {
    let (index, tag) = match variable.get_unchecked() {
        Index::Input(index) => (index, 0),
        Index::Aux(index) => (index, AUX_TAG),
    };
    Ok(variable_count("variables of one kind", index)? | tag)
}

/// `count` if it is below 2^31, so that it can be tagged and any two of them be added.
fn variable_count(what: &str, count: usize) -> Result<u32, SynthesisError> {
    match u32::try_from(count) {
        Ok(count) if count < AUX_TAG => Ok(count),
        _ => Err(SynthesisError::TooLarge(format!("{count} {what}, limit 2^31"))),
    }
}

/// A circuit can make a variable out of thin air (`Variable::new_unchecked`); its matrices would be out of bounds.
fn check_columns(matrices: &[Matrix; 3], num_variables: usize) -> Result<(), SynthesisError> {
    let highest = matrices.iter().flat_map(|matrix| matrix.columns.iter().copied()).max();
    match highest {
        Some(column) if column as usize >= num_variables => {
            Err(SynthesisError::Circuit(format!("constraint on variable {column} of {num_variables}")))
        }
        _ => Ok(()),
    }
}

impl ConstraintSystem<Scalar> for Recorder {
    type Root = Self;

    fn new() -> Self {
        Self::empty()
    }

    fn alloc<F, A, AR>(&mut self, _: A, _: F) -> Result<Variable, CircuitError>
    where
        F: FnOnce() -> Result<Scalar, CircuitError>,
        A: FnOnce() -> AR,
        AR: Into<String>,
    {
        self.num_aux += 1;
        Ok(Variable::new_unchecked(Index::Aux(self.num_aux - 1)))
    }

    fn alloc_input<F, A, AR>(&mut self, _: A, _: F) -> Result<Variable, CircuitError>
    where
        F: FnOnce() -> Result<Scalar, CircuitError>,
        A: FnOnce() -> AR,
        AR: Into<String>,
    {
        self.num_inputs += 1;
        Ok(Variable::new_unchecked(Index::Input(self.num_inputs - 1)))
    }

    fn enforce<A, AR, LA, LB, LC>(&mut self, _: A, a: LA, b: LB, c: LC)
    where
        A: FnOnce() -> AR,
        AR: Into<String>,
        LA: FnOnce(LinearCombination<Scalar>) -> LinearCombination<Scalar>,
        LB: FnOnce(LinearCombination<Scalar>) -> LinearCombination<Scalar>,
        LC: FnOnce(LinearCombination<Scalar>) -> LinearCombination<Scalar>,
    {
        if self.exceeded.is_some() {
            return;
        }
        let zero = LinearCombination::zero;
        let combinations = [a(zero()), b(zero()), c(zero())];
        self.exceeded = self.push_row(combinations).err();
    }

    fn push_namespace<NR: Into<String>, N: FnOnce() -> NR>(&mut self, _: N) {}

    fn pop_namespace(&mut self) {}

    fn get_root(&mut self) -> &mut Self::Root {
        self
    }
}
