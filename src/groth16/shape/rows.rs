//! The rows of a circuit in order: runs of pattern numbers, most of them repetitions of earlier ones.

use std::ops::Range;

use super::patterns::{Anchors, PatternTable, INPUT, ONE};

/// Rows between two places from which reading can start, and those given to one task: long enough to hide its cost,
/// short enough to balance rows of unequal length.
pub(in crate::groth16) const SPAN: usize = 1 << 12;

/// Rows whose patterns are `ids[start..start + length]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::groth16) struct Run {
    pub start: u32,
    pub length: u32,
}

/// Where reading can start: before a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::groth16) struct Place {
    pub run: u32,
    /// Rows of the run before it.
    pub offset: u32,
    /// Of the row before.
    pub anchors: Anchors,
}

/// All rows of A, B and C.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::groth16) struct Rows {
    patterns: PatternTable,
    /// Patterns of the rows that repeat none before them.
    ids: Vec<u32>,
    runs: Vec<Run>,
    /// Entry `k`: before row `k · SPAN`.
    places: Vec<Place>,
    num_rows: usize,
}

/// How far a pattern's variables lie behind its anchors.
#[derive(Clone, Copy, Default)]
struct Reach {
    /// `None`: it has no aux variable.
    aux: Option<u32>,
    input: Option<u32>,
}

impl Reach {
    fn of(codes: &[u32]) -> Self {
        let mut reach = Self::default();
        for &code in codes.iter().filter(|&&code| code != ONE) {
            let (kind, distance) =
                if code & INPUT != 0 { (&mut reach.input, code ^ INPUT) } else { (&mut reach.aux, code) };
            *kind = Some(kind.map_or(distance, |furthest| furthest.max(distance)));
        }
        reach
    }

    /// Whether all variables are there: inputs from 1 on, aux variables from 0.
    fn is_within(self, anchors: Anchors, num_inputs: usize, num_aux: usize) -> bool {
        let aux = self.aux.is_none_or(|far| far <= anchors.aux && (anchors.aux as usize) < num_aux);
        let input = self.input.is_none_or(|far| far < anchors.input && (anchors.input as usize) < num_inputs);
        aux && input
    }
}

impl Rows {
    /// # Errors
    /// If the parts are no rows about so many variables: what of them.
    pub fn from_parts(
        patterns: PatternTable,
        ids: Vec<u32>,
        runs: Vec<Run>,
        num_inputs: usize,
        num_aux: usize,
    ) -> Result<Self, &'static str> {
        let reaches: Vec<Reach> =
            (0..patterns.len()).map(|id| Reach::of(patterns.entries(id as u32).codes)).collect();
        let mut places = Vec::new();
        let mut anchors = Anchors::default();
        let mut num_rows = 0;
        for (run, &Run { start, length }) in runs.iter().enumerate() {
            let run_ids =
                (start as usize).checked_add(length as usize).and_then(|end| ids.get(start as usize..end));
            for (offset, &id) in run_ids.ok_or("a run is out of range")?.iter().enumerate() {
                if num_rows % SPAN == 0 {
                    let run = u32::try_from(run).map_err(|_| "too many runs")?;
                    places.push(Place { run, offset: offset as u32, anchors });
                }
                let reach = reaches.get(id as usize).ok_or("a pattern is out of range")?;
                anchors = anchors.checked_step(patterns.pattern(id)).ok_or("a column is out of range")?;
                if !reach.is_within(anchors, num_inputs, num_aux) {
                    return Err("a column is out of range");
                }
                num_rows += 1;
            }
        }
        Ok(Self { patterns, ids, runs, places, num_rows })
    }

    pub fn num_rows(&self) -> usize {
        self.num_rows
    }

    pub fn patterns(&self) -> &PatternTable {
        &self.patterns
    }

    /// The patterns that runs refer to.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Calls `visit(row, pattern, anchors)` for the rows of `range`, in order. Starting within a span costs as much as
    /// starting at its first row.
    #[inline(always)]
    pub fn for_each(&self, range: Range<usize>, mut visit: impl FnMut(usize, u32, Anchors)) {
        let Range { start, end } = range;
        assert!(end <= self.num_rows, "rows up to {end} of {}", self.num_rows);
        if start >= end {
            return;
        }
        let Place { run, offset, mut anchors } = self.places[start / SPAN];
        let mut row = start / SPAN * SPAN;
        let mut offset = offset as usize;
        for &Run { start: first, length } in &self.runs[run as usize..] {
            let taken = (length as usize - offset).min(end - row);
            for &id in &self.ids[first as usize + offset..][..taken] {
                anchors = anchors.step(self.patterns.pattern(id));
                if row >= start {
                    visit(row, id, anchors);
                }
                row += 1;
            }
            if row == end {
                return;
            }
            offset = 0;
        }
    }

    /// Calls `visit` for the places before rows `k · every` with `k` in `places`, in order. Costs as much as reading the
    /// rows between them.
    ///
    /// # Panics
    /// Unless [`SPAN`] is a multiple of `every`.
    pub fn for_each_place(&self, every: usize, places: Range<usize>, mut visit: impl FnMut(Place)) {
        assert!(SPAN.is_multiple_of(every), "places every {every} rows");
        let end = self.num_rows.min((places.end.max(1) - 1) * every + 1);
        let start = places.start * every;
        if places.is_empty() || start >= end {
            return;
        }
        let Place { run, offset, mut anchors } = self.places[start / SPAN];
        let (mut row, mut offset) = (start / SPAN * SPAN, offset as usize);
        for (run, &Run { start: first, length }) in (run..).zip(&self.runs[run as usize..]) {
            let taken = (length as usize - offset).min(end - row);
            for (within, &id) in self.ids[first as usize + offset..][..taken].iter().enumerate() {
                if row >= start && row.is_multiple_of(every) {
                    visit(Place { run, offset: (offset + within) as u32, anchors });
                }
                anchors = anchors.step(self.patterns.pattern(id));
                row += 1;
            }
            if row == end {
                return;
            }
            offset = 0;
        }
    }

    pub fn num_bytes(&self) -> u64 {
        let own =
            4 * self.ids.len() + size_of::<Run>() * self.runs.len() + size_of::<Place>() * self.places.len();
        self.patterns.num_bytes() + own as u64
    }
}
