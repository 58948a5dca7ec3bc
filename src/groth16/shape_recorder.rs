//! The sink that records a circuit's matrices; none of its assignments are run.
//!
//! The circuit's code runs on the calling thread and makes rows; another thread makes them compact, so that a circuit of
//! 130 million rows is never there as a whole:
//!
//! ```text
//! SinkSystem --rows--> Recorder --batches--> RowsBuilder --> Rows
//! ```

use std::thread::{self, ScopedJoinHandle};

use bellpepper_core::{Circuit, Index, LinearCombination, Variable};
use blstrs::Scalar;
use crossbeam_channel::{bounded, Receiver, Sender};
use ff::Field;
use hashbrown::HashTable;

use crate::error::SynthesisError;
use crate::groth16::shape::{limbs, RowsBuilder, TaggedRow, AUX_TAG, COEFFICIENT_MINUS_ONE, COEFFICIENT_ONE};
use crate::groth16::sink::{self, NumVariables, Sink, Synthesis, Wants};
use crate::groth16::R1csShape;

/// Entries of a batch, about: 400 KB.
const BATCH_ENTRIES: usize = 1 << 16;
/// Batches that wait: enough to even out rows of unequal length.
const MAX_WAITING_BATCHES: usize = 8;

impl R1csShape {
    /// Records the matrices of `circuit` (a blank one will do: assignment closures are not run), and appends
    /// one row `input_i * 0 = 0` per input. PoRep of 32 GiB takes one to two minutes, most of them in
    /// the circuit's own code, and 118 MB.
    ///
    /// # Errors
    /// [`SynthesisError::Circuit`] if the circuit's code fails, [`SynthesisError::TooLarge`] if there are 2^31
    /// inputs or aux variables, 2^32 entries in a matrix, more than 65,536 distinct coefficients, or more rows than
    /// the field has roots of unity.
    pub fn record<C: Circuit<Scalar>>(circuit: C) -> Result<Self, SynthesisError> {
        Self::record_synthesis(sink::synthesis(circuit))
    }

    /// [`Self::record`] of a circuit without its type.
    ///
    /// # Errors
    /// As there.
    pub fn record_synthesis(circuit: Synthesis<'_>) -> Result<Self, SynthesisError> {
        thread::scope(|scope| {
            let (batches, received) = bounded(MAX_WAITING_BATCHES);
            let builder = thread::Builder::new()
                .name("cuzk-rows".to_owned())
                .spawn_scoped(scope, move || build(&received))
                .map_err(|error| SynthesisError::Circuit(format!("no thread can be started: {error}")))?;
            let mut recorder = Recorder::sending_to(batches);
            let synthesized = sink::synthesize(circuit, &mut recorder);
            recorder.finish(builder, synthesized)
        })
    }
}

/// Rows on their way.
#[derive(Default)]
struct Batch {
    /// Entries of each row in A, B and C.
    lengths: Vec<[u32; 3]>,
    columns: Vec<u32>,
    coefficients: Vec<u16>,
}

fn build(batches: &Receiver<Batch>) -> Result<RowsBuilder, SynthesisError> {
    let mut builder = RowsBuilder::new();
    for Batch { lengths, columns, coefficients } in batches {
        let mut start = 0;
        for lengths in lengths {
            let end = start + lengths.iter().map(|&length| length as usize).sum::<usize>();
            let (columns, coefficients) = (&columns[start..end], &coefficients[start..end]);
            builder.push(TaggedRow { lengths, columns, coefficients })?;
            start = end;
        }
    }
    Ok(builder)
}

/// The distinct coefficients met so far.
struct CoefficientTable {
    values: Vec<Scalar>,
    index_of: HashTable<u16>,
}

impl CoefficientTable {
    fn new() -> Self {
        let mut table = Self { values: Vec::new(), index_of: HashTable::new() };
        for (value, index) in [(Scalar::ONE, COEFFICIENT_ONE), (-Scalar::ONE, COEFFICIENT_MINUS_ONE)] {
            debug_assert_eq!(usize::from(index), table.values.len());
            table.insert(value, index);
        }
        table
    }

    fn insert(&mut self, value: Scalar, index: u16) {
        self.values.push(value);
        let values = &self.values;
        self.index_of.insert_unique(hash_of(&value), index, |&index| hash_of(&values[usize::from(index)]));
    }

    fn index(&mut self, coefficient: &Scalar) -> Result<u16, SynthesisError> {
        if *coefficient == Scalar::ONE {
            return Ok(COEFFICIENT_ONE);
        }
        let is_it = |&index: &u16| self.values[usize::from(index)] == *coefficient;
        if let Some(&index) = self.index_of.find(hash_of(coefficient), is_it) {
            return Ok(index);
        }
        let index = u16::try_from(self.values.len())
            .map_err(|_| SynthesisError::TooLarge("more than 65,536 distinct coefficients".into()))?;
        self.insert(*coefficient, index);
        Ok(index)
    }
}

/// Montgomery limbs look random even where the value is small.
fn hash_of(coefficient: &Scalar) -> u64 {
    let [low, _, _, high] = limbs(coefficient);
    (low ^ high.rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

struct Recorder {
    batch: Batch,
    batches: Sender<Batch>,
    coefficients: CoefficientTable,
    /// The first limit that was exceeded: a row cannot fail, so it is reported at the end.
    exceeded: Option<SynthesisError>,
    /// The other thread has met a limit.
    is_cut_off: bool,
}

impl Recorder {
    fn sending_to(batches: Sender<Batch>) -> Self {
        Self {
            batch: Batch::default(),
            batches,
            coefficients: CoefficientTable::new(),
            exceeded: None,
            is_cut_off: false,
        }
    }

    fn push_row(&mut self, combinations: &[LinearCombination<Scalar>; 3]) -> Result<(), SynthesisError> {
        let mut lengths = [0; 3];
        for (length, combination) in lengths.iter_mut().zip(combinations) {
            for (variable, coefficient) in combination.iter() {
                if *coefficient != Scalar::ZERO {
                    self.batch.columns.push(tagged_column(variable)?);
                    self.batch.coefficients.push(self.coefficients.index(coefficient)?);
                    *length += 1;
                }
            }
        }
        self.end_row(lengths);
        Ok(())
    }

    fn end_row(&mut self, lengths: [u32; 3]) {
        self.batch.lengths.push(lengths);
        if self.batch.columns.len() + self.batch.lengths.len() >= BATCH_ENTRIES {
            self.send();
        }
    }

    fn send(&mut self) {
        // Its thread has ended if it met a limit; what it met comes at the end.
        self.is_cut_off |= self.batches.send(std::mem::take(&mut self.batch)).is_err();
    }

    fn finish(
        mut self,
        builder: ScopedJoinHandle<'_, Result<RowsBuilder, SynthesisError>>,
        synthesized: Result<NumVariables, SynthesisError>,
    ) -> Result<R1csShape, SynthesisError> {
        let counted = match &synthesized {
            Ok(num_variables) => self.append_input_rows(*num_variables),
            Err(_) => Ok(()),
        };
        self.send();
        let Self { coefficients, exceeded, batches, .. } = self;
        // The other thread ends with the channel.
        drop(batches);
        let built = builder.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let NumVariables { inputs: num_inputs, aux: num_aux } = synthesized?;
        exceeded.map_or(Ok(()), Err)?;
        let rows = built?;
        counted?;
        let rows = rows.finish(num_inputs, num_aux)?;
        Ok(R1csShape::from_parts(num_inputs, num_aux, rows, coefficients.values))
    }

    /// # Errors
    /// [`SynthesisError::TooLarge`] if there are too many variables.
    fn append_input_rows(&mut self, num_variables: NumVariables) -> Result<(), SynthesisError> {
        variable_count("inputs", num_variables.inputs)?;
        variable_count("aux variables", num_variables.aux)?;
        for input in 0..num_variables.inputs {
            self.batch.columns.push(tagged_column(Variable::new_unchecked(Index::Input(input)))?);
            self.batch.coefficients.push(COEFFICIENT_ONE);
            self.end_row([1, 0, 0]);
        }
        Ok(())
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

impl Sink for Recorder {
    fn wants(&self) -> Wants {
        Wants { rows: true, ..Wants::default() }
    }

    fn row(&mut self, combinations: [LinearCombination<Scalar>; 3]) {
        if self.exceeded.is_none() && !self.is_cut_off {
            self.exceeded = self.push_row(&combinations).err();
        }
    }
}

#[cfg(test)]
mod tests {
    use bellpepper_core::{ConstraintSystem, SynthesisError as CircuitError};

    use super::*;

    /// A bit with `num_coefficients` constraints, each with a coefficient of its own.
    struct Coefficients {
        num_coefficients: u64,
    }

    impl Circuit<Scalar> for Coefficients {
        fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), CircuitError> {
            let x = cs.alloc(|| "", || Err(CircuitError::AssignmentMissing))?;
            for value in 1..=self.num_coefficients {
                cs.enforce(|| "", |lc| lc + (Scalar::from(value), x), |lc| lc + CS::one() - x, |lc| lc);
            }
            Ok(())
        }
    }

    #[test]
    fn distinct_coefficients_are_counted_and_never_wrapped() {
        // With -1 there are 65,536.
        let shape = R1csShape::record(Coefficients { num_coefficients: 65_535 }).unwrap();
        assert_eq!(shape.coefficients().len(), 65_536);
        let mut expected = Scalar::ZERO;
        shape.for_each_entry(0, &mut |row, _, coefficient| {
            if row < shape.num_constraints() {
                expected += Scalar::ONE;
                assert_eq!(*coefficient, expected);
            }
        });
        assert_eq!(expected, Scalar::from(65_535));
        let refused = R1csShape::record(Coefficients { num_coefficients: 65_536 }).unwrap_err();
        assert_eq!(refused, SynthesisError::TooLarge("more than 65,536 distinct coefficients".into()));
    }

    /// Fails, or panics, after enough rows to have sent some.
    struct Failing {
        panics: bool,
    }

    impl Circuit<Scalar> for Failing {
        fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), CircuitError> {
            Coefficients { num_coefficients: 60_000 }.synthesize(cs)?;
            assert!(!self.panics, "a circuit that panics");
            Err(CircuitError::Unsatisfiable)
        }
    }

    #[test]
    fn a_circuit_that_fails_or_panics_ends_the_recording() {
        let refused = R1csShape::record(Failing { panics: false }).unwrap_err();
        assert!(matches!(refused, SynthesisError::Circuit(_)), "{refused}");
        let panicked = std::panic::catch_unwind(|| R1csShape::record(Failing { panics: true }));
        assert!(panicked.is_err());
    }

    #[test]
    fn more_variables_than_31_bits_count_are_refused() {
        let refused = variable_count("inputs", 1 << 31).unwrap_err();
        assert_eq!(refused, SynthesisError::TooLarge("2147483648 inputs, limit 2^31".into()));
        assert_eq!(variable_count("inputs", (1 << 31) - 1), Ok((1 << 31) - 1));
    }
}
