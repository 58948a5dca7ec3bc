//! A shape held against its circuit, row by row: the matrices are there as a whole on neither side.

use bellpepper_core::{
    Index, LinearCombination, SynthesisError as CircuitError, Variable as CircuitVariable,
};
use blstrs::Scalar;
use ff::Field;

use super::patterns::Variable;
use super::rows::SPAN;
use super::R1csShape;
use crate::error::SynthesisError;
use crate::groth16::sink::{self, Sink, Synthesis, Wants};

impl R1csShape {
    /// Runs `circuit` (a blank one will do) and compares each of its rows with the one that the shape expands to, entry by
    /// entry, and the row that the prover adds for each input. As long as recording, in a few megabytes.
    ///
    /// # Errors
    /// [`SynthesisError::Circuit`] names the first row that differs, or says what the circuit's code does.
    pub fn compare_with(&self, circuit: Synthesis<'_>) -> Result<(), SynthesisError> {
        let mut comparing =
            Comparing { shape: self, waiting: Vec::with_capacity(SPAN), num_rows: 0, difference: None };
        let synthesized = sink::synthesize(circuit, &mut comparing);
        // It ends the synthesis, so it comes first.
        comparing.verdict()?;
        let variables = synthesized?;
        for input in 0..variables.inputs {
            let of_input = CircuitVariable::new_unchecked(Index::Input(input));
            let (a, none) = (LinearCombination::from_variable(of_input), LinearCombination::zero);
            comparing.row([a, none(), none()]);
        }
        comparing.compare_waiting();
        comparing.verdict()?;
        for (what, has, needs) in [
            ("rows", self.num_rows(), comparing.num_rows),
            ("inputs", self.num_inputs(), variables.inputs),
            ("aux variables", self.num_aux(), variables.aux),
        ] {
            if has != needs {
                let what = format!("the circuit has {needs} {what}, the shape {has}");
                return Err(SynthesisError::Circuit(what));
            }
        }
        Ok(())
    }
}

struct Comparing<'a> {
    shape: &'a R1csShape,
    /// Rows that are not compared yet, up to [`SPAN`]: the shape's are expanded quickest from its multiples on.
    waiting: Vec<[LinearCombination<Scalar>; 3]>,
    /// Compared ones.
    num_rows: usize,
    difference: Option<String>,
}

impl Comparing<'_> {
    fn verdict(&self) -> Result<(), SynthesisError> {
        self.difference.as_ref().map_or(Ok(()), |what| Err(SynthesisError::Circuit(what.clone())))
    }

    fn compare_waiting(&mut self) {
        let begin = self.num_rows;
        self.num_rows += self.waiting.len();
        if self.difference.is_none() {
            let (shape, waiting, difference) = (self.shape, &self.waiting, &mut self.difference);
            let end = self.num_rows.min(shape.num_rows());
            shape.rows.for_each(begin.min(end)..end, |row, id, anchors| {
                let terms = shape.rows.patterns().row(id);
                for (matrix, combination) in waiting[row - begin].iter().enumerate() {
                    let entries = combination.iter().filter(|(_, coefficient)| **coefficient != Scalar::ZERO);
                    let expanded = terms[matrix].iter().map(|(code, coefficient)| {
                        let variable = match anchors.variable(code) {
                            Variable::Input(input) => Index::Input(input as usize),
                            Variable::Aux(aux) => Index::Aux(aux as usize),
                        };
                        (variable, &shape.coefficients[usize::from(coefficient)])
                    });
                    if !expanded.eq(entries.map(|(variable, value)| (variable.get_unchecked(), value))) {
                        difference.get_or_insert_with(|| {
                            format!("row {row} of {} differs", ["A", "B", "C"][matrix])
                        });
                    }
                }
            });
        }
        self.waiting.clear();
    }
}

impl Sink for Comparing<'_> {
    fn wants(&self) -> Wants {
        Wants { rows: true, ..Wants::default() }
    }

    fn aux(&mut self, _: usize, _: Option<Scalar>) -> Result<(), CircuitError> {
        // What differs is not going to be equal: no need for the rest of the synthesis.
        if self.difference.is_some() {
            return Err(CircuitError::Unsatisfiable);
        }
        Ok(())
    }

    fn row(&mut self, combinations: [LinearCombination<Scalar>; 3]) {
        self.waiting.push(combinations);
        if self.waiting.len() == SPAN {
            self.compare_waiting();
        }
    }
}

#[cfg(test)]
mod tests {
    use bellpepper_core::{Circuit, ConstraintSystem};

    use super::*;
    use crate::groth16::sink::synthesis;

    /// Squares of one variable's multiples; one row may have another factor, or be one more.
    #[derive(Clone, Copy)]
    struct Multiples {
        num_rows: u64,
        other: Option<u64>,
    }

    impl Circuit<Scalar> for Multiples {
        fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), CircuitError> {
            let x = cs.alloc(|| "", || Err(CircuitError::AssignmentMissing))?;
            for row in 0..self.num_rows {
                let factor = Scalar::from(row % 7 + 1 + u64::from(self.other == Some(row)));
                cs.enforce(|| "", |lc| lc + (factor, x), |lc| lc + CS::one(), |lc| lc + (factor, x));
            }
            cs.alloc_input(|| "", || Err(CircuitError::AssignmentMissing)).map(drop)
        }
    }

    #[test]
    fn a_shape_is_that_of_its_circuit_alone() {
        let circuit = Multiples { num_rows: 10_000, other: None };
        let shape = R1csShape::record(circuit).unwrap();
        let compare =
            |circuit: Multiples| shape.compare_with(synthesis(circuit)).map_err(|error| error.to_string());
        assert_eq!(compare(circuit), Ok(()));
        for row in [0, 4095, 4096, 9_999] {
            let said = compare(Multiples { other: Some(row), ..circuit }).unwrap_err();
            assert!(said.contains(&format!("row {row} of A differs")), "{said}");
        }
        // The rows of the inputs come where another constraint is.
        let said = compare(Multiples { num_rows: 10_001, ..circuit }).unwrap_err();
        assert!(said.contains("row 10000 of A differs"), "{said}");
        assert!(compare(Multiples { num_rows: 9_999, ..circuit }).is_err());
    }
}
