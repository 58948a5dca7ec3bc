//! Rows as they are recorded, made into patterns and runs on the way: nothing is ever kept as a whole.

use blstrs::Scalar;
use ff::PrimeField;
use hashbrown::HashTable;

use super::patterns::{PatternTable, INPUT, ONE};
use super::rows::{Rows, Run};
use super::AUX_TAG;
use crate::error::SynthesisError;

/// Rows that must repeat before a repetition is looked for: shorter ones cost as much as they save.
const GRAM: usize = 16;
/// Ids that are there before anything is repeated, so that the runs of a short period need not be short.
const MIN_IDS: usize = 1 << 10;
/// The coset of a domain of all rows has roots of unity too.
pub(in crate::groth16) const MAX_ROWS: usize = 1 << (Scalar::S - 1);
/// An odd multiplier without structure (the golden ratio).
const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

/// Takes rows in order and keeps each distinct one once.
pub(in crate::groth16) struct RowsBuilder {
    patterns: PatternTable,
    /// Pattern numbers by their content.
    known: HashTable<u32>,
    /// `[num_patterns]`
    hashes: Vec<u64>,
    runs: RunBuilder,
    aux_anchor: u32,
    input_anchor: u32,
    /// The codes of the row being taken.
    codes: Vec<u32>,
    num_rows: usize,
    num_entries: [u64; 3],
    /// One more than the highest variable met.
    num_inputs: u32,
    num_aux: u32,
}

/// A row: columns tagged by [`AUX_TAG`], those of A first, then those of B and of C.
#[derive(Clone, Copy)]
pub(in crate::groth16) struct TaggedRow<'a> {
    /// Entries in A, B and C.
    pub lengths: [u32; 3],
    pub columns: &'a [u32],
    pub coefficients: &'a [u16],
}

impl RowsBuilder {
    pub fn new() -> Self {
        Self {
            patterns: PatternTable::default(),
            known: HashTable::new(),
            hashes: Vec::new(),
            runs: RunBuilder::default(),
            aux_anchor: 0,
            input_anchor: 0,
            codes: Vec::new(),
            num_rows: 0,
            num_entries: [0; 3],
            num_inputs: 0,
            num_aux: 0,
        }
    }

    /// Appends a row.
    ///
    /// # Errors
    /// [`SynthesisError::TooLarge`] if there are 2^32 entries in a matrix, or in the distinct rows, or more rows than
    /// the field has roots of unity.
    pub fn push(&mut self, row: TaggedRow<'_>) -> Result<(), SynthesisError> {
        self.num_rows += 1;
        if self.num_rows > MAX_ROWS {
            return Err(SynthesisError::TooLarge(format!("more than {MAX_ROWS} rows")));
        }
        for (sum, length) in self.num_entries.iter_mut().zip(row.lengths) {
            *sum += u64::from(length);
            if *sum > u64::from(u32::MAX) {
                return Err(SynthesisError::TooLarge("a matrix has 2^32 entries or more".into()));
            }
        }
        let steps = self.encode(row.columns);
        let id = self.intern(row, steps)?;
        self.runs.push(id);
        Ok(())
    }

    /// Makes the row's codes and moves the anchors; returns how far.
    fn encode(&mut self, columns: &[u32]) -> [i32; 2] {
        let (mut max_aux, mut max_input) = (None, None);
        for &column in columns {
            // The tag makes any aux variable higher than any input.
            if column & AUX_TAG != 0 {
                max_aux = max_aux.max(Some(column ^ AUX_TAG));
            } else if column != 0 {
                max_input = max_input.max(Some(column));
            }
        }
        let aux = max_aux.unwrap_or(self.aux_anchor);
        let input = max_input.unwrap_or(self.input_anchor);
        // Both are below 2^31, so that any difference fits.
        let steps = [aux.wrapping_sub(self.aux_anchor) as i32, input.wrapping_sub(self.input_anchor) as i32];
        (self.aux_anchor, self.input_anchor) = (aux, input);
        self.num_aux = self.num_aux.max(max_aux.map_or(0, |max| max + 1));
        self.num_inputs = self.num_inputs.max(max_input.map_or(0, |max| max + 1));
        self.codes.clear();
        self.codes.extend(columns.iter().map(|&column| match column {
            0 => ONE,
            _ if column & AUX_TAG != 0 => aux - (column ^ AUX_TAG),
            _ => INPUT | (input - column),
        }));
        steps
    }

    /// The number of the row's pattern.
    fn intern(&mut self, row: TaggedRow<'_>, steps: [i32; 2]) -> Result<u32, SynthesisError> {
        let Self { patterns, known, hashes, codes, runs, .. } = self;
        let lengths = row.lengths.map(|length| length as usize);
        let is_same = |&id: &u32| {
            let (pattern, terms) = (patterns.pattern(id), patterns.row(id));
            terms.map(|terms| terms.codes.len()) == lengths
                && [pattern.aux_step, pattern.input_step] == steps
                && patterns.entries(id).codes == codes.as_slice()
                && patterns.entries(id).coefficients == row.coefficients
        };
        if let Some(id) = runs.expected().filter(is_same) {
            return Ok(id);
        }
        let hash = hash_of(&row, steps, codes);
        if let Some(&id) = known.find(hash, |id| hashes[*id as usize] == hash && is_same(id)) {
            return Ok(id);
        }
        let id = patterns
            .push(lengths, steps, codes, row.coefficients)
            .ok_or_else(|| SynthesisError::TooLarge("distinct rows have 2^32 entries or more".into()))?;
        hashes.push(hash);
        known.insert_unique(hash, id, |&id| hashes[id as usize]);
        Ok(id)
    }

    /// All rows, in a circuit of so many variables.
    ///
    /// # Errors
    /// [`SynthesisError::Circuit`] if a row has a variable that the circuit has not: one can be made out of thin air
    /// (`Variable::new_unchecked`).
    pub fn finish(self, num_inputs: usize, num_aux: usize) -> Result<Rows, SynthesisError> {
        for (kind, needs, has) in [("input", self.num_inputs, num_inputs), ("aux", self.num_aux, num_aux)] {
            if needs as usize > has {
                let variable = needs - 1;
                let what = format!("constraint on {kind} variable {variable} of {has}");
                return Err(SynthesisError::Circuit(what));
            }
        }
        let mut patterns = self.patterns;
        drop((self.known, self.hashes));
        patterns.shrink_to_fit();
        let (ids, runs) = self.runs.finish();
        let rows = Rows::from_parts(patterns, ids, runs, num_inputs, num_aux);
        Ok(rows.expect("rows are made of checked columns"))
    }
}

/// FxHash's step: fast, and good enough where every match is compared.
fn hash_of(row: &TaggedRow<'_>, steps: [i32; 2], codes: &[u32]) -> u64 {
    let pair = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
    let add = |hash: u64, word: u64| (hash.rotate_left(23) ^ word).wrapping_mul(MULTIPLIER);
    let head = add(pair(row.lengths[0], row.lengths[1]), pair(steps[0] as u32, steps[1] as u32));
    let entries = codes.iter().zip(row.coefficients).map(|(&code, &index)| pair(index.into(), code));
    mixed(entries.fold(head, add))
}

/// Tables take their bits from both ends of a hash.
fn mixed(hash: u64) -> u64 {
    let hash = (hash ^ hash >> 32).wrapping_mul(MULTIPLIER);
    hash ^ hash >> 29
}

/// Finds repetitions in a sequence of numbers as it comes.
///
/// Rows that repeat none are kept in `ids`. The last [`GRAM`] of them are looked up among all earlier ones; where they
/// are found, they are taken back and become the beginning of a run that repeats those, for as long as it does.
#[derive(Default)]
struct RunBuilder {
    ids: Vec<u32>,
    runs: Vec<Run>,
    /// The run that grows. One that repeats earlier ids ends before the last of them; the other ends with it.
    start: usize,
    length: usize,
    repeats: bool,
    /// The hash of the last [`GRAM`] ids, if the run that grows has as many of its own.
    gram: u64,
    /// Where grams begin in `ids`, by their hash. What was taken back may still be listed: matches are compared.
    grams: HashTable<(u64, u32)>,
}

impl RunBuilder {
    /// What comes next if the run that repeats earlier ids goes on.
    fn expected(&self) -> Option<u32> {
        self.ids.get(self.start + self.length).copied().filter(|_| self.repeats)
    }

    fn push(&mut self, id: u32) {
        if self.repeats {
            if self.expected() == Some(id) {
                self.length += 1;
                return;
            }
            self.end_run();
        }
        self.ids.push(id);
        self.length += 1;
        if self.length >= GRAM {
            self.look_back();
        }
    }

    fn end_run(&mut self) {
        if self.length > 0 {
            // Rows, and so ids, are at most 2^31.
            self.runs.push(Run { start: self.start as u32, length: self.length as u32 });
        }
        (self.start, self.length, self.repeats) = (self.ids.len(), 0, false);
    }

    /// Looks for the last gram among the earlier ones and lists it.
    fn look_back(&mut self) {
        let tail = self.ids.len() - GRAM;
        let last = &self.ids[tail..];
        self.gram = if self.length == GRAM {
            last.iter().fold(0, |gram, &id| roll(gram, id))
        } else {
            let leaving = u64::from(self.ids[tail - 1]) + 1;
            roll(self.gram, last[GRAM - 1]).wrapping_sub(leaving.wrapping_mul(LEAVING_WEIGHT))
        };
        let hash = mixed(self.gram);
        let Some((_, begin)) = self.grams.find_mut(hash, |&(gram, _)| gram == hash) else {
            self.grams.insert_unique(hash, (hash, tail as u32), |&(gram, _)| gram);
            return;
        };
        let earlier = *begin as usize;
        if self.ids.get(earlier..earlier + GRAM) != Some(last) {
            // What was listed has been taken back since.
            *begin = tail as u32;
        } else if earlier + GRAM <= tail && tail >= MIN_IDS {
            self.length -= GRAM;
            self.ids.truncate(tail);
            self.end_run();
            (self.start, self.length, self.repeats) = (earlier, GRAM, true);
        }
    }

    fn finish(mut self) -> (Vec<u32>, Vec<Run>) {
        self.end_run();
        self.ids.shrink_to_fit();
        self.runs.shrink_to_fit();
        (self.ids, self.runs)
    }
}

/// `MULTIPLIER^GRAM`: the weight of an id that leaves the gram.
const LEAVING_WEIGHT: u64 = {
    let (mut power, mut i) = (1u64, 0);
    while i < GRAM {
        power = power.wrapping_mul(MULTIPLIER);
        i += 1;
    }
    power
};

/// A polynomial in [`MULTIPLIER`]; ids count from 1, so that zeros in front matter.
fn roll(gram: u64, id: u32) -> u64 {
    gram.wrapping_mul(MULTIPLIER).wrapping_add(u64::from(id) + 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::patterns::{Anchors, Variable};
    use super::*;

    /// A row as it was pushed.
    type Row = ([u32; 3], Vec<u32>, Vec<u16>);

    fn built(rows: &[Row], num_inputs: usize, num_aux: usize) -> Rows {
        let mut builder = RowsBuilder::new();
        for (lengths, columns, coefficients) in rows {
            builder.push(TaggedRow { lengths: *lengths, columns, coefficients }).unwrap();
        }
        builder.finish(num_inputs, num_aux).unwrap()
    }

    fn expanded(rows: &Rows, from: usize) -> Vec<Row> {
        let mut expanded = Vec::new();
        rows.for_each(from..rows.num_rows(), |row, id, anchors: Anchors| {
            assert_eq!(row, from + expanded.len());
            let terms = rows.patterns().row(id);
            let column = |code| match anchors.variable(code) {
                Variable::Input(input) => input,
                Variable::Aux(aux) => aux | AUX_TAG,
            };
            let columns = rows.patterns().entries(id).codes.iter().map(|&code| column(code)).collect();
            let lengths = terms.map(|terms| terms.codes.len() as u32);
            expanded.push((lengths, columns, rows.patterns().entries(id).coefficients.to_vec()));
        });
        expanded
    }

    /// A template of rows about its own variables, a header's and inputs, and how it is repeated.
    #[derive(Clone, Debug)]
    struct Repeated {
        template: Vec<Vec<(u8, u32, u16)>>,
        repetitions: usize,
        /// Every so many rows, one is changed.
        disturb_every: usize,
    }

    const HEADER: u32 = 50;

    impl Repeated {
        fn rows(&self) -> Vec<Row> {
            let mut rows = Vec::new();
            for repetition in 0..self.repetitions as u32 {
                for (place, entries) in self.template.iter().enumerate() {
                    let (mut columns, mut coefficients, mut lengths) = (Vec::new(), Vec::new(), [0; 3]);
                    for (index, &(kind, offset, coefficient)) in entries.iter().enumerate() {
                        let own = repetition * self.template.len() as u32 + place as u32;
                        columns.push(match kind {
                            0 => 0,
                            1 => 1 + repetition,
                            2 => AUX_TAG | (offset % HEADER),
                            _ => AUX_TAG | (HEADER + own).saturating_sub(offset),
                        });
                        coefficients.push(coefficient);
                        lengths[index * 3 / entries.len()] += 1;
                    }
                    if rows.len() % self.disturb_every == self.disturb_every - 1 {
                        columns.push(AUX_TAG | (rows.len() as u32 % HEADER));
                        coefficients.push(7);
                        lengths[2] += 1;
                    }
                    rows.push((lengths, columns, coefficients));
                }
            }
            rows
        }
    }

    fn repeated() -> impl Strategy<Value = Repeated> {
        let entry = (0u8..6, 0u32..200, 0u16..4);
        let template = proptest::collection::vec(proptest::collection::vec(entry, 0..5), 1..300);
        (template, 1usize..30, prop_oneof![Just(usize::MAX), 30usize..500]).prop_map(
            |(template, repetitions, disturb_every)| Repeated { template, repetitions, disturb_every },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn repeated_rows_expand_to_what_was_recorded(repeated in repeated(), from: prop::sample::Index) {
            let rows = repeated.rows();
            let compact = built(&rows, 31, HEADER as usize + rows.len());
            prop_assert_eq!(compact.num_rows(), rows.len());
            prop_assert_eq!(&expanded(&compact, 0), &rows);
            let from = from.index(rows.len());
            prop_assert_eq!(expanded(&compact, from), &rows[from..]);
        }
    }

    /// Rows `x_i · x_i = x_(i + 1)`, without and with a stranger now and then.
    fn squares(num_rows: u32, stranger_every: u32) -> Vec<Row> {
        let square = |i: u32| {
            let stranger = if i % stranger_every == 1 { i % 1000 } else { i };
            ([1, 1, 1], vec![AUX_TAG | i, AUX_TAG | stranger, AUX_TAG | (i + 1)], vec![0, 0, 0])
        };
        (0..num_rows).map(square).collect()
    }

    #[test]
    fn a_repeated_row_costs_a_fraction_of_a_byte() {
        let rows = squares(100_000, u32::MAX);
        let compact = built(&rows, 1, 100_001);
        assert_eq!(expanded(&compact, 0), rows);
        assert!(compact.patterns().len() <= 2, "the first and the others");
        assert!(compact.num_bytes() < 10_000, "{}", compact.num_bytes());
    }

    #[test]
    fn strangers_among_repeated_rows_are_kept_apart() {
        let rows = squares(100_000, 97);
        let compact = built(&rows, 1, 100_001);
        assert_eq!(expanded(&compact, 0), rows);
        assert!(compact.runs().len() < 4 * 100_000 / 97, "{}", compact.runs().len());
    }

    #[test]
    fn rows_without_repetition_are_one_run() {
        let rows: Vec<Row> =
            (0..5000).map(|i| ([1, 0, 0], vec![AUX_TAG | (i * i % 4999)], vec![0])).collect();
        let compact = built(&rows, 1, 5000);
        assert_eq!(expanded(&compact, 0), rows);
        assert_eq!(compact.runs().len(), 1);
    }

    #[test]
    fn variables_out_of_thin_air_are_refused() {
        let refusal = |column: u32| {
            let mut builder = RowsBuilder::new();
            let row = TaggedRow { lengths: [0, 1, 0], columns: &[column], coefficients: &[0] };
            builder.push(row).unwrap();
            builder.finish(2, 3).unwrap_err()
        };
        let circuit = |what: &str| SynthesisError::Circuit(what.into());
        assert_eq!(refusal(AUX_TAG | 3), circuit("constraint on aux variable 3 of 3"));
        assert_eq!(refusal(2), circuit("constraint on input variable 2 of 2"));
    }

    #[test]
    fn more_entries_than_32_bits_count_are_refused() {
        let mut builder = RowsBuilder::new();
        builder.num_entries = [5, u64::from(u32::MAX), 5];
        let row = |lengths| TaggedRow { lengths, columns: &[AUX_TAG], coefficients: &[0] };
        builder.push(row([1, 0, 0])).unwrap();
        let refused = builder.push(row([0, 1, 0])).unwrap_err();
        assert_eq!(refused, SynthesisError::TooLarge("a matrix has 2^32 entries or more".into()));
    }
}
