//! Where the values of a circuit's variables go, one after another in the circuit's own order.
//!
//! A [`Writer`] fills one stretch of variables. Stretches of equal form (a PoRep's challenges, a PoSt's sectors) have
//! writers of their own and are filled in parallel: [`fill`].

use std::sync::{Mutex, PoisonError};

use blstrs::Scalar;
use ff::{Field, PrimeField};
use rayon::prelude::*;

use crate::groth16::packed::{PackedWitness, VariableClasses};
use crate::loops;

use super::Misfit;

/// Bits of a scalar's decomposition: what `to_bits_le` of the circuits' numbers allocates.
pub(super) const SCALAR_BITS: usize = 255;

/// Fills the variables from `first` on. Values that do not fit make [`Writer::finish`] fail, nothing before: the
/// circuits' code reads like the list of values that it is.
pub(super) struct Writer<'a> {
    classes: &'a VariableClasses,
    /// The next variable.
    at: usize,
    end: usize,
    /// The variable that bit 0 of `bits` is.
    bits_begin: usize,
    bits: Vec<u64>,
    dense: &'a mut [Scalar],
    num_dense: usize,
    inputs: Vec<Scalar>,
    misfit: Option<Misfit>,
    /// Memory that gadgets use for a list of values, always left empty.
    pub spare: Vec<Scalar>,
}

/// What a finished writer leaves.
struct Stretch {
    bits_begin: usize,
    bits: Vec<u64>,
    inputs: Vec<Scalar>,
}

impl<'a> Writer<'a> {
    /// A writer of the variables `first..end`, of which `dense` holds the dense ones.
    fn new(classes: &'a VariableClasses, first: usize, end: usize, dense: &'a mut [Scalar]) -> Self {
        let bits_begin = first / 64 * 64;
        Self {
            classes,
            at: first,
            end,
            bits_begin,
            bits: vec![0; (end - bits_begin).div_ceil(64)],
            dense,
            num_dense: 0,
            inputs: Vec::new(),
            misfit: None,
            spare: Vec::new(),
        }
    }

    /// The next public input.
    pub fn input(&mut self, value: Scalar) {
        self.inputs.push(value);
    }

    /// The next variable, a number.
    pub fn num(&mut self, value: Scalar) {
        if !self.reserve(1) {
            return;
        }
        if self.classes.is_dense(self.at) {
            self.push_dense(value);
        } else if value == Scalar::ONE {
            self.put(1, 1);
        } else if value == Scalar::ZERO {
            self.at += 1;
        } else {
            self.misfit = Some(Misfit::NotABit { aux: self.at });
        }
    }

    /// The next variables, numbers.
    pub fn nums(&mut self, values: &[Scalar]) {
        if !self.reserve(values.len()) {
            return;
        }
        if dense_within(self.classes, self.at, self.at + values.len()) == values.len() {
            let begin = self.num_dense;
            self.dense[begin..begin + values.len()].copy_from_slice(values);
            self.num_dense += values.len();
            self.at += values.len();
        } else {
            values.iter().for_each(|value| self.num(*value));
        }
    }

    /// The next `len` variables, at most 64: the low bits of `value`, lowest first.
    pub fn bits(&mut self, value: u64, len: usize) {
        if len == 0 || !self.reserve(len) {
            return;
        }
        if dense_within(self.classes, self.at, self.at + len) == 0 {
            self.put(value & low_bits(len), len);
        } else {
            (0..len).for_each(|bit| self.num(Scalar::from(value >> bit & 1)));
        }
    }

    /// The next 255 variables: the bits of a scalar given in canonical little-endian form.
    pub fn decomposition(&mut self, node: &[u8; 32]) {
        for (word, bytes) in node.as_chunks::<8>().0.iter().enumerate() {
            self.bits(u64::from_le_bytes(*bytes), (SCALAR_BITS - 64 * word).min(64));
        }
    }

    /// The next variables: `(value, len)` as in [`Self::bits`], `total` bits together.
    pub fn many_bits(&mut self, total: usize, values: impl Iterator<Item = (u64, usize)>) {
        if !self.reserve(total) {
            return;
        }
        // One look at the classes for all: of a SHA-256 block's 26,000 variables none is dense.
        if dense_within(self.classes, self.at, self.at + total) == 0 {
            values.for_each(|(value, len)| self.put(value, len));
        } else {
            values.for_each(|(value, len)| self.bits(value, len));
        }
    }

    /// Whether `len` more variables belong to this writer.
    fn reserve(&mut self, len: usize) -> bool {
        if self.misfit.is_none() && self.at + len > self.end {
            self.misfit = Some(Misfit::Longer { end: self.end });
        }
        self.misfit.is_none()
    }

    fn push_dense(&mut self, value: Scalar) {
        self.dense[self.num_dense] = value;
        self.num_dense += 1;
        self.at += 1;
    }

    /// `value` has no bits beyond `len`, and `len` is 1 to 64.
    fn put(&mut self, value: u64, len: usize) {
        let at = self.at - self.bits_begin;
        let (word, shift) = (at / 64, at % 64);
        self.bits[word] |= value << shift;
        if shift + len > 64 {
            self.bits[word + 1] |= value >> (64 - shift);
        }
        self.at += len;
    }

    fn finish(self) -> Result<Stretch, Misfit> {
        match self.misfit {
            Some(misfit) => Err(misfit),
            None if self.at != self.end => Err(Misfit::Shorter { at: self.at, end: self.end }),
            None => Ok(Stretch { bits_begin: self.bits_begin, bits: self.bits, inputs: self.inputs }),
        }
    }
}

fn low_bits(len: usize) -> u64 {
    u64::MAX >> (64 - len)
}

/// Dense variables in `first..end`.
fn dense_within(classes: &VariableClasses, first: usize, end: usize) -> usize {
    let rank = |aux| if aux == classes.num_aux() { classes.num_dense() } else { classes.dense_rank(aux) };
    rank(end) - rank(first)
}

/// Whose turn it is to have all threads for a large witness.
static TURN: Mutex<()> = Mutex::new(());

/// Variables from which on a witness takes turns. Below, as of a WinningPoSt, it is made in milliseconds, and waits for
/// nobody.
const TAKES_TURNS_AUX: usize = 1 << 23;

/// The witness of a circuit that is a head and then `parts`, each of the same number of variables.
///
/// # Errors
/// If head and parts do not fill the circuit's variables exactly, or a value is no bit where the circuit has one.
pub(super) fn fill<T: Sync>(
    classes: &VariableClasses,
    head: impl FnOnce(&mut Writer<'_>),
    parts: &[T],
    part: impl Fn(&mut Writer<'_>, &T) + Sync,
) -> Result<PackedWitness, Misfit> {
    let num_aux = classes.num_aux();
    // By all threads: of a WindowPoSt partition of 32 GiB sectors these are 4 GB, whose pages are new.
    let mut dense: Vec<Scalar> = loops::run(|| {
        (0..classes.num_dense()).into_par_iter().with_min_len(1 << 16).map(|_| Scalar::ZERO).collect()
    });
    let mut writer = Writer::new(classes, 0, num_aux, &mut dense);
    writer.input(Scalar::ONE);
    head(&mut writer);
    let (begin, num_dense) = (writer.at, writer.num_dense);
    // The head may be of any length.
    writer.end = begin;
    let Stretch { mut bits, mut inputs, .. } = writer.finish()?;
    let part = |writer: &mut Writer<'_>, number: usize| part(writer, &parts[number]);
    let stretches = fill_parts(classes, begin, &mut dense[num_dense..], parts.len(), &part)?;
    for stretch in stretches {
        let words = &mut bits[stretch.bits_begin / 64..];
        words.iter_mut().zip(&stretch.bits).for_each(|(word, bits)| *word |= bits);
        inputs.extend(stretch.inputs);
    }
    Ok(PackedWitness { inputs, bits, dense })
}

/// `part(writer, number)` for each of `num_parts` stretches.
fn fill_parts(
    classes: &VariableClasses,
    begin: usize,
    dense: &mut [Scalar],
    num_parts: usize,
    part: &(dyn Fn(&mut Writer<'_>, usize) + Sync),
) -> Result<Vec<Stretch>, Misfit> {
    let num_aux = classes.num_aux();
    let len = (num_aux - begin) / num_parts.max(1);
    if begin + len * num_parts != num_aux {
        return Err(Misfit::Uneven { num_aux: num_aux - begin, parts: num_parts });
    }
    let mut rest = dense;
    let mut stretches = Vec::with_capacity(num_parts);
    for number in 0..num_parts {
        let first = begin + number * len;
        let (own, others) = rest.split_at_mut(dense_within(classes, first, first + len));
        rest = others;
        stretches.push((first, own));
    }
    // Partitions whose parts keep every thread busy are made one after another, not each of them slowly beside the others: a
    // device waits for the first. A thread of the pool does not wait, since what it waits for may need it; nor does urgent work.
    let is_free = rayon::current_thread_index().is_some() || loops::has_own();
    let takes_turns = num_aux >= TAKES_TURNS_AUX && !is_free;
    let _turn = takes_turns.then(|| TURN.lock().unwrap_or_else(PoisonError::into_inner));
    let write = |(number, (first, dense))| {
        let mut writer = Writer::new(classes, first, first + len, dense);
        part(&mut writer, number);
        writer.finish()
    };
    loops::run(|| stretches.into_par_iter().enumerate().map(write).collect())
}

/// A scalar in canonical little-endian form.
pub(super) fn node(value: &Scalar) -> [u8; 32] {
    value.to_repr()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::groth16::density::Density;
    use crate::groth16::Assignment;

    fn classes(dense: &[bool]) -> VariableClasses {
        let mut density = Density::new(dense.len());
        (0..dense.len()).filter(|&aux| dense[aux]).for_each(|aux| density.set(aux));
        VariableClasses::from_dense(density)
    }

    proptest! {
        /// Whatever is a bit and whatever is dense, a value lands at its own variable.
        #[test]
        fn values_land_where_the_classes_say(
            head in proptest::collection::vec(any::<bool>(), 0..150),
            part in proptest::collection::vec((any::<bool>(), any::<bool>()), 1..150),
            num_parts in 1..4_usize,
        ) {
            let dense = (0..num_parts).flat_map(|_| part.iter().map(|(_, dense)| *dense));
            let dense: Vec<bool> = head.iter().map(|_| true).chain(dense).collect();
            let classes = classes(&dense);
            let values: Vec<bool> = part.iter().map(|(value, _)| *value).collect();
            let parts: Vec<usize> = (0..num_parts).collect();
            let made = fill(
                &classes,
                |writer| head.iter().for_each(|bit| writer.num(Scalar::from(u64::from(*bit) + 5))),
                &parts,
                |writer, number| {
                    writer.input(Scalar::from(*number as u64));
                    for chunk in values.chunks(64) {
                        let word = chunk.iter().rev().fold(0, |word, bit| word << 1 | u64::from(*bit));
                        writer.bits(word, chunk.len());
                    }
                },
            ).unwrap();
            let aux = head.iter().map(|bit| u64::from(*bit) + 5);
            let aux = aux.chain((0..num_parts).flat_map(|_| values.iter().map(|bit| u64::from(*bit))));
            let inputs = std::iter::once(1).chain(0..num_parts as u64);
            let expected = Assignment {
                input_assignment: inputs.map(Scalar::from).collect(),
                aux_assignment: aux.map(Scalar::from).collect(),
            };
            prop_assert!(made.unpack(&classes) == expected);
        }
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let all_bits = classes(&[false; 10]);
        let parts = [(); 2];
        let fill = |value: u64, len| {
            fill(
                &all_bits,
                |_| (),
                &parts,
                |writer, ()| (0..len).for_each(|_| writer.num(Scalar::from(value))),
            )
        };
        assert!(fill(1, 5).is_ok());
        assert_eq!(fill(2, 5).err(), Some(Misfit::NotABit { aux: 0 }));
        assert_eq!(fill(1, 6).err(), Some(Misfit::Longer { end: 5 }));
        assert_eq!(fill(1, 4).err(), Some(Misfit::Shorter { at: 4, end: 5 }));
        let thirds = super::fill(&all_bits, |_| (), &[(); 3], |_, ()| ());
        assert_eq!(thirds.err(), Some(Misfit::Uneven { num_aux: 10, parts: 3 }));
    }
}
