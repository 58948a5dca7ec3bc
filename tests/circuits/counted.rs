//! The catalogue's sizes against Filecoin's blank circuits, counted as they are built: nothing is kept of a row, so a
//! circuit of 130 million constraints takes minutes and little memory.
//!
//! The large ones are counted where `CUZK_COUNT_ALL` is set, to 1 (the nightly run) or to their names, as in
//! `snap-64g,porep-64g`:
//!
//!     CUZK_COUNT_ALL=1 cargo test --release --test circuits counted -- --nocapture
//!
//! prints a line for each circuit, from which the table in `src/circuits/catalogue/sizes.rs` was made.

use bellpepper_core::{Index, LinearCombination, Variable};
use blstrs::Scalar;
use cuzk::circuits::CircuitSpec;
use cuzk::groth16::sink::{self, NumVariables, Sink, Wants};
use ff::Field;

/// Which variables occur in a matrix with a coefficient that is not zero.
#[derive(Default)]
struct Occurrences {
    inputs: Vec<bool>,
    aux: Vec<bool>,
    num_entries: u64,
}

impl Occurrences {
    fn note(&mut self, combination: &LinearCombination<Scalar>) {
        for (variable, coefficient) in combination.iter() {
            if *coefficient == Scalar::ZERO {
                continue;
            }
            self.num_entries += 1;
            let (seen, index) = match variable.get_unchecked() {
                Index::Input(index) => (&mut self.inputs, index),
                Index::Aux(index) => (&mut self.aux, index),
            };
            if seen.len() <= index {
                seen.resize(index + 1, false);
            }
            seen[index] = true;
        }
    }

    fn num_variables(&self) -> u64 {
        self.inputs.iter().chain(&self.aux).filter(|seen| **seen).count() as u64
    }
}

/// Counts; runs no assignment and keeps no row.
#[derive(Default)]
struct Counter {
    num_constraints: u64,
    matrices: [Occurrences; 3],
}

impl Sink for Counter {
    fn wants(&self) -> Wants {
        Wants { rows: true, ..Wants::default() }
    }

    fn row(&mut self, combinations: [LinearCombination<Scalar>; 3]) {
        self.num_constraints += 1;
        for (matrix, combination) in self.matrices.iter_mut().zip(&combinations) {
            matrix.note(combination);
        }
    }
}

/// What was counted, as the catalogue has it.
#[derive(Debug, PartialEq, Eq)]
struct Counted {
    constraints: u64,
    num_inputs: u64,
    num_aux: u64,
    domain_log2: u32,
    num_nonzero: [u64; 3],
    params_bytes: u64,
}

fn counted(spec: &CircuitSpec) -> Counted {
    let mut counter = Counter::default();
    let NumVariables { inputs, aux } = sink::synthesize(spec.blank().unwrap(), &mut counter).unwrap();
    let Counter { num_constraints, mut matrices } = counter;
    // The row `input i · 0 = 0` that the prover adds for each input.
    for index in 0..inputs {
        let input = Variable::new_unchecked(Index::Input(index));
        matrices[0].note(&LinearCombination::from_variable(input));
    }
    let (num_inputs, num_aux) = (inputs as u64, aux as u64);
    let domain_log2 = (num_constraints + num_inputs).next_power_of_two().ilog2();
    let [a, b, c] = &matrices;
    // A parameter file: three points of each group, six counts, and the queries; a variable that does not occur in A
    // or B has no point there.
    let g1 = num_inputs + ((1 << domain_log2) - 1) + num_aux + a.num_variables() + b.num_variables();
    Counted {
        constraints: num_constraints,
        num_inputs,
        num_aux,
        domain_log2,
        num_nonzero: [a.num_entries, b.num_entries, c.num_entries],
        params_bytes: 3 * 96 + 3 * 192 + 6 * 4 + 96 * g1 + 192 * b.num_variables(),
    }
}

impl Counted {
    fn of_catalogue(spec: &CircuitSpec) -> Option<Self> {
        let sizes = spec.sizes()?;
        Some(Self {
            constraints: sizes.constraints,
            num_inputs: sizes.num_inputs,
            num_aux: sizes.num_aux,
            domain_log2: sizes.domain_log2,
            num_nonzero: sizes.num_nonzero?,
            params_bytes: sizes.params_bytes?,
        })
    }
}

#[test]
fn every_circuits_size_is_that_of_its_blank_circuit() {
    let chosen = std::env::var("CUZK_COUNT_ALL").ok();
    let is_chosen = |spec: &CircuitSpec| match chosen.as_deref() {
        None => spec.sizes().is_some_and(|sizes| sizes.constraints < 1_000_000),
        Some("1") => true,
        Some(names) => names.split(',').any(|name| name == spec.id().as_str()),
    };
    let specs: Vec<CircuitSpec> = CircuitSpec::all().into_iter().filter(is_chosen).collect();
    assert!(
        chosen.is_some() || specs.len() == 8,
        "WinningPoSt of all sizes, WindowPoSt of the small ones: {specs:?}"
    );
    let mut wrong = Vec::new();
    for spec in specs {
        let counted = counted(&spec);
        println!("{spec}: {counted:?}");
        let known = Counted::of_catalogue(&spec);
        if known.as_ref() != Some(&counted) {
            wrong.push(format!("{spec}: counted {counted:?}, the catalogue has {known:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
