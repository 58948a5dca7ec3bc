//! A shape as a device reads it: one block of memory, made of plain tables, from which a block of threads reads its rows
//! without the others. `kernels/math/spmv.cuh` has the same structures.
//!
//! ```text
//! table             elements                                              bytes each
//! places            one per TILE_ROWS rows: run, offset in it, anchors    16
//! patterns          start, ends in A, B, C; aux step, input step; small   32
//! coefficients      Montgomery                                            32
//! small values      i64, 0 where the coefficient is not small              8
//! dense variables   a bit each, in words                                   8
//! runs              start, length                                          8
//! codes, ids        u32                                                    4
//! dense ranks       dense variables before every 512th                     4
//! indices           of coefficients, u16                                   2
//! ```
//!
//! Each table begins at a multiple of 32 bytes. Nothing of it is kept on the host: the parts are made when they are copied.

use std::ops::Range;

use super::patterns::PatternTable;
use super::rows::{Place, Run};
use super::{limbs, R1csShape};

/// Rows of one block of threads.
pub const TILE_ROWS: usize = 256;
/// What tables begin at a multiple of: the largest element's size.
const ALIGNMENT: usize = 32;

/// The tables, in the order in which they lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    Places,
    Patterns,
    Coefficients,
    SmallValues,
    DenseVariables,
    Runs,
    Codes,
    Ids,
    DenseRanks,
    Indices,
}

impl Table {
    pub const ALL: [Table; 10] = [
        Table::Places,
        Table::Patterns,
        Table::Coefficients,
        Table::SmallValues,
        Table::DenseVariables,
        Table::Runs,
        Table::Codes,
        Table::Ids,
        Table::DenseRanks,
        Table::Indices,
    ];

    fn element_bytes(self) -> usize {
        match self {
            Table::Patterns | Table::Coefficients => 32,
            Table::Places => 16,
            Table::SmallValues | Table::DenseVariables | Table::Runs => 8,
            Table::Codes | Table::Ids | Table::DenseRanks => 4,
            Table::Indices => 2,
        }
    }
}

/// Where each table lies: bytes from the beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageLayout {
    ranges: [Range<usize>; 10],
}

impl ImageLayout {
    pub fn range(&self, table: Table) -> Range<usize> {
        self.ranges[table as usize].clone()
    }

    /// Bytes of the whole, the gaps between tables included.
    pub fn num_bytes(&self) -> usize {
        self.ranges[Table::ALL.len() - 1].end.next_multiple_of(ALIGNMENT)
    }
}

impl R1csShape {
    /// Where the tables of its image lie.
    pub fn image_layout(&self) -> ImageLayout {
        let mut end = 0usize;
        let ranges = Table::ALL.map(|table| {
            let start = end.next_multiple_of(ALIGNMENT);
            end = start + table.element_bytes() * self.table_len(table);
            start..end
        });
        ImageLayout { ranges }
    }

    fn table_len(&self, table: Table) -> usize {
        let patterns = self.rows.patterns();
        match table {
            Table::Places => self.num_rows().div_ceil(TILE_ROWS),
            Table::Patterns => patterns.len(),
            Table::Coefficients | Table::SmallValues => self.coefficients.len(),
            Table::DenseVariables => self.classes.dense().words().len(),
            Table::Runs => self.rows.runs().len(),
            Table::Codes | Table::Indices => patterns.codes().len(),
            Table::Ids => self.rows.ids().len(),
            Table::DenseRanks => self.classes.dense().ranks().len(),
        }
    }

    /// Writes the bytes of the image from `offset` on. Gaps between tables are zero.
    ///
    /// # Panics
    /// If they end beyond it, or begin or end within an element: multiples of 32 do not.
    pub fn fill_image(&self, layout: &ImageLayout, offset: usize, to: &mut [u8]) {
        let wanted = offset..offset + to.len();
        assert!(wanted.end <= layout.num_bytes(), "bytes up to {} of {}", wanted.end, layout.num_bytes());
        to.fill(0);
        for table in Table::ALL {
            let range = layout.range(table);
            let (start, end) = (range.start.max(wanted.start), range.end.min(wanted.end));
            if start >= end {
                continue;
            }
            let size = table.element_bytes();
            let [first, last] = [start, end].map(|byte| byte - range.start);
            assert!(first % size == 0 && last % size == 0, "whole elements of {table:?}");
            self.fill_table(table, first / size..last / size, &mut to[start - offset..end - offset]);
        }
    }

    fn fill_table(&self, table: Table, elements: Range<usize>, to: &mut [u8]) {
        let patterns = self.rows.patterns();
        match table {
            Table::Places => {
                let mut to = to.chunks_exact_mut(16);
                self.rows.for_each_place(TILE_ROWS, elements, |place| {
                    let Place { run, offset, anchors } = place;
                    put(to.next(), [run, offset, anchors.aux, anchors.input]);
                });
            }
            Table::Patterns => {
                for (id, to) in elements.zip(to.chunks_exact_mut(32)) {
                    put(Some(to), self.pattern_words(patterns, id));
                }
            }
            Table::Coefficients => {
                for (coefficient, to) in self.coefficients[elements].iter().zip(to.chunks_exact_mut(32)) {
                    to.chunks_exact_mut(8)
                        .zip(limbs(coefficient))
                        .for_each(|(to, limb)| to.copy_from_slice(&limb.to_le_bytes()));
                }
            }
            Table::SmallValues => put_all(&self.small.values()[elements], to, |value| value.to_le_bytes()),
            Table::DenseVariables => {
                put_all(&self.classes.dense().words()[elements], to, |word| word.to_le_bytes());
            }
            Table::Runs => {
                let runs = self.rows.runs()[elements].iter().zip(to.chunks_exact_mut(8));
                runs.for_each(|(&Run { start, length }, to)| put(Some(to), [start, length]));
            }
            Table::Codes => put_all(&patterns.codes()[elements], to, |code| code.to_le_bytes()),
            Table::Ids => put_all(&self.rows.ids()[elements], to, |id| id.to_le_bytes()),
            Table::DenseRanks => {
                put_all(&self.classes.dense().ranks()[elements], to, |rank| rank.to_le_bytes());
            }
            Table::Indices => put_all(&patterns.coefficients()[elements], to, |index| index.to_le_bytes()),
        }
    }

    fn pattern_words(&self, patterns: &PatternTable, id: usize) -> [u32; 8] {
        // Patterns are numbered by u32.
        let pattern = patterns.pattern(id as u32);
        let [end_a, end_b, end_c] = pattern.ends;
        let start = end_c - patterns.entries(id as u32).codes.len() as u32;
        let [aux_step, input_step] = [pattern.aux_step, pattern.input_step].map(|step| step as u32);
        [start, end_a, end_b, end_c, aux_step, input_step, self.small.is_small(id).into(), 0]
    }
}

/// # Panics
/// Unless there is room for just these words.
fn put<const N: usize>(to: Option<&mut [u8]>, words: [u32; N]) {
    let to = to.expect("room for as many elements as were asked for");
    to.chunks_exact_mut(4).zip(words).for_each(|(to, word)| to.copy_from_slice(&word.to_le_bytes()));
}

fn put_all<T: Copy, const N: usize>(elements: &[T], to: &mut [u8], bytes: impl Fn(T) -> [u8; N]) {
    to.chunks_exact_mut(N).zip(elements).for_each(|(to, &element)| to.copy_from_slice(&bytes(element)));
}

#[cfg(test)]
mod tests {
    use bellpepper_core::{Circuit, ConstraintSystem, SynthesisError};
    use blstrs::Scalar;
    use ff::Field;

    use super::super::patterns::Anchors;
    use super::*;

    /// A bit and a chain of products, over and over; now and then a stranger row.
    struct Chain(usize);

    impl Circuit<Scalar> for Chain {
        fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
            let mut last = cs.alloc_input(|| "", || Ok(Scalar::ONE))?;
            for index in 0..self.0 {
                let next = cs.alloc(|| "", || Ok(Scalar::ONE))?;
                let factor = Scalar::from(if index % 700 == 3 { index as u64 } else { 5 });
                cs.enforce(|| "", |lc| lc + (factor, last), |lc| lc + next, |lc| lc + next);
                last = next;
            }
            Ok(())
        }
    }

    #[test]
    fn places_are_those_of_reading_from_the_first_row() {
        let shape = R1csShape::record(Chain(10_000)).unwrap();
        let mut all = Vec::new();
        shape.rows.for_each_place(TILE_ROWS, 0..usize::MAX / TILE_ROWS, |place| all.push(place));
        assert_eq!(all.len(), shape.num_rows().div_ceil(TILE_ROWS));
        // A place's anchors are those of the row before.
        let mut anchors = vec![Anchors::default()];
        shape.rows.for_each(0..shape.num_rows(), |_, _, of_row| anchors.push(of_row));
        for (index, place) in all.iter().enumerate() {
            assert_eq!(place.anchors, anchors[index * TILE_ROWS], "place {index}");
            let before: u32 = shape.rows.runs()[..place.run as usize].iter().map(|run| run.length).sum();
            assert_eq!((before + place.offset) as usize, index * TILE_ROWS);
        }
        for range in [0..1, 15..18, 17..17, 30..40] {
            let mut some = Vec::new();
            shape.rows.for_each_place(TILE_ROWS, range.clone(), |place| some.push(place));
            assert_eq!(some, all[range.start.min(all.len())..range.end.min(all.len())], "{range:?}");
        }
    }

    #[test]
    fn an_image_is_the_same_in_whatever_parts_it_is_made() {
        let shape = R1csShape::record(Chain(3000)).unwrap();
        let layout = shape.image_layout();
        assert!(Table::ALL.iter().all(|&table| layout.range(table).start.is_multiple_of(ALIGNMENT)));
        let mut whole = vec![0xff; layout.num_bytes()];
        shape.fill_image(&layout, 0, &mut whole);
        let mut parts = vec![0xff; layout.num_bytes()];
        for (index, part) in parts.chunks_mut(96).enumerate() {
            shape.fill_image(&layout, 96 * index, part);
        }
        assert_eq!(whole, parts);
        let codes = &whole[layout.range(Table::Codes)];
        let words: Vec<u32> =
            codes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
        assert_eq!(words, shape.rows.patterns().codes());
    }
}
