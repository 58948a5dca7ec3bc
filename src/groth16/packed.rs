//! Witnesses as they travel: a bit for each variable that the constraints make one, a scalar for each other.
//!
//! Nearly all variables of a circuit that hashes with SHA-256 are bits. Which ones is a property of the circuit
//! ([`VariableClasses`], found by `classify.rs`), so that a witness needs no tags: 70 MB instead of 4.2 GB for a
//! partition of a 32 GiB PoRep.

use std::fmt;

use blstrs::Scalar;
use ff::Field;

pub use crate::error::NotABit;
use crate::groth16::density::{Density, RankedDensity};
use crate::groth16::Assignment;

const BITS_PER_WORD: usize = u64::BITS as usize;

/// Which aux variables are bits (proved by the constraints) and which are dense.
#[derive(Clone, PartialEq, Eq)]
pub struct VariableClasses {
    dense: RankedDensity,
}

impl fmt::Debug for VariableClasses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VariableClasses")
            .field("num_aux", &self.num_aux())
            .field("num_dense", &self.num_dense())
            .finish()
    }
}

impl VariableClasses {
    /// `dense`: a bit per aux variable, set where it is dense.
    pub fn from_dense(dense: Density) -> Self {
        Self { dense: dense.into() }
    }

    pub fn num_aux(&self) -> usize {
        self.dense.len()
    }

    pub fn num_dense(&self) -> usize {
        self.dense.num_ones()
    }

    pub fn num_bits(&self) -> usize {
        self.num_aux() - self.num_dense()
    }

    /// # Panics
    /// If `aux` is not below [`Self::num_aux`].
    #[inline]
    pub fn is_dense(&self, aux: usize) -> bool {
        self.dense.get(aux)
    }

    /// Dense variables before `aux`: the index of `aux` among them, if it is one.
    ///
    /// # Panics
    /// If `aux` is not below [`Self::num_aux`].
    pub fn dense_rank(&self, aux: usize) -> usize {
        self.dense.rank(aux)
    }

    /// A bit per aux variable, set where it is dense.
    pub fn dense(&self) -> &RankedDensity {
        &self.dense
    }

    /// Bytes held in memory.
    pub fn num_bytes(&self) -> u64 {
        self.dense.num_bytes()
    }
}

/// A witness as it travels. A secret: `Debug` prints lengths only.
#[derive(Clone, PartialEq, Eq)]
pub struct PackedWitness {
    /// Public inputs, the leading one included: `[num_inputs]`.
    pub inputs: Vec<Scalar>,
    /// A bit per aux variable at its own position, the first in the lowest bit of the first word; 0 where the
    /// variable is dense, and beyond the last: `[ceil(num_aux / 64)]`.
    pub bits: Vec<u64>,
    /// The dense variables' values, in the order of the variables: `[num_dense]`.
    pub dense: Vec<Scalar>,
}

impl fmt::Debug for PackedWitness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PackedWitness")
            .field("num_inputs", &self.inputs.len())
            .field("num_words", &self.bits.len())
            .field("num_dense", &self.dense.len())
            .finish()
    }
}

/// Takes values in the order of their variables.
pub(super) struct Packer<'a> {
    classes: &'a VariableClasses,
    bits: Vec<u64>,
    dense: Vec<Scalar>,
    /// Variables taken: a multiple of 64, but at the end.
    num_packed: usize,
}

impl<'a> Packer<'a> {
    pub fn new(classes: &'a VariableClasses) -> Self {
        let bits = Vec::with_capacity(classes.num_aux().div_ceil(BITS_PER_WORD));
        Self { classes, bits, dense: Vec::with_capacity(classes.num_dense()), num_packed: 0 }
    }

    pub fn num_packed(&self) -> usize {
        self.num_packed
    }

    /// Variables that are left.
    pub fn room(&self) -> usize {
        self.classes.num_aux() - self.num_packed
    }

    /// Takes the next values: a multiple of 64 of them, unless they are the last.
    ///
    /// # Errors
    /// [`NotABit`], the first.
    ///
    /// # Panics
    /// If there are more values than variables.
    pub fn pack(&mut self, values: &[Scalar]) -> Result<(), NotABit> {
        let end = self.num_packed + values.len();
        assert!(
            self.num_packed.is_multiple_of(BITS_PER_WORD) && end <= self.classes.num_aux(),
            "variables in order"
        );
        for values in values.chunks(BITS_PER_WORD) {
            let is_dense = self.classes.dense.words()[self.bits.len()];
            let mut word = 0;
            for (bit, value) in values.iter().enumerate() {
                if is_dense >> bit & 1 == 1 {
                    self.dense.push(*value);
                } else if *value == Scalar::ONE {
                    word |= 1 << bit;
                } else if *value != Scalar::ZERO {
                    return Err(NotABit { aux: self.num_packed + bit });
                }
            }
            self.bits.push(word);
            self.num_packed += values.len();
        }
        Ok(())
    }

    /// The witness with these inputs, once all variables are there.
    pub fn finish(self, inputs: Vec<Scalar>) -> PackedWitness {
        PackedWitness { inputs, bits: self.bits, dense: self.dense }
    }
}

impl PackedWitness {
    /// # Errors
    /// [`NotABit`], the first variable whose value is neither 0 nor 1 though its class says so.
    ///
    /// # Panics
    /// If `assignment` has another number of aux variables than `classes`.
    pub fn pack(assignment: &Assignment, classes: &VariableClasses) -> Result<Self, NotABit> {
        assert_eq!(assignment.aux_assignment.len(), classes.num_aux(), "values of the classes' circuit");
        let mut packer = Packer::new(classes);
        packer.pack(&assignment.aux_assignment)?;
        Ok(packer.finish(assignment.input_assignment.clone()))
    }

    /// The value of every variable.
    ///
    /// # Panics
    /// If this is no witness of the classes' circuit: see [`Self::fits`].
    pub fn unpack(&self, classes: &VariableClasses) -> Assignment {
        assert!(self.fits(classes), "a witness of the classes' circuit");
        let mut dense = self.dense.iter();
        let value = |aux: usize| match classes.is_dense(aux) {
            true => *dense.next().expect("as many as are dense"),
            false => Scalar::from(u64::from(self.bit(aux))),
        };
        let aux_assignment = (0..classes.num_aux()).map(value).collect();
        Assignment { input_assignment: self.inputs.clone(), aux_assignment }
    }

    /// Whether lengths are those of the classes' circuit and no bit is set where it must not be.
    pub fn fits(&self, classes: &VariableClasses) -> bool {
        let words = classes.dense.words();
        let spare = words.len() * BITS_PER_WORD - classes.num_aux();
        self.bits.len() == words.len()
            && self.dense.len() == classes.num_dense()
            && self.bits.iter().zip(words).all(|(bits, dense)| bits & dense == 0)
            && self.bits.last().is_none_or(|last| spare == 0 || last >> (BITS_PER_WORD - spare) == 0)
    }

    /// The bit of aux variable `aux`: 0 if it is dense.
    ///
    /// # Panics
    /// If there are fewer variables.
    #[inline]
    pub fn bit(&self, aux: usize) -> bool {
        self.bits[aux / BITS_PER_WORD] >> (aux % BITS_PER_WORD) & 1 == 1
    }

    /// Bytes of the values in memory.
    pub fn num_bytes(&self) -> u64 {
        32 * (self.inputs.len() + self.dense.len()) as u64 + 8 * self.bits.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A class for each variable, and values that suit them: dense ones may be 0 or 1 too.
    fn variables() -> impl Strategy<Value = Vec<(bool, u64)>> {
        let variable = (any::<bool>(), any::<u64>()).prop_map(|(is_dense, value)| match is_dense {
            true => (true, value % 5 * (value / 5)),
            false => (false, value % 2),
        });
        proptest::collection::vec(variable, 0..1500)
    }

    fn classes_of(variables: &[(bool, u64)]) -> VariableClasses {
        let mut dense = Density::new(variables.len());
        variables.iter().enumerate().filter(|(_, (is_dense, _))| *is_dense).for_each(|(i, _)| dense.set(i));
        VariableClasses::from_dense(dense)
    }

    fn assignment_of(variables: &[(bool, u64)]) -> Assignment {
        Assignment {
            input_assignment: vec![Scalar::ONE, Scalar::from(7)],
            aux_assignment: variables.iter().map(|(_, value)| Scalar::from(*value)).collect(),
        }
    }

    proptest! {
        #[test]
        fn what_is_packed_is_unpacked(variables in variables()) {
            let (classes, assignment) = (classes_of(&variables), assignment_of(&variables));
            let packed = PackedWitness::pack(&assignment, &classes).unwrap();
            prop_assert!(packed.fits(&classes));
            prop_assert_eq!(packed.bits.len(), variables.len().div_ceil(64));
            prop_assert_eq!(packed.dense.len(), classes.num_dense());
            prop_assert_eq!(packed.num_bytes(), (32 * (2 + packed.dense.len()) + 8 * packed.bits.len()) as u64);
            prop_assert_eq!(packed.unpack(&classes), assignment);
        }

        #[test]
        fn ranks_count_the_dense_variables_before(variables in variables()) {
            let classes = classes_of(&variables);
            let mut num_before = 0;
            for (aux, (is_dense, _)) in variables.iter().enumerate() {
                prop_assert_eq!((classes.is_dense(aux), classes.dense_rank(aux)), (*is_dense, num_before));
                num_before += usize::from(*is_dense);
            }
            prop_assert_eq!(classes.num_dense(), num_before);
            prop_assert_eq!(classes.num_bits(), variables.len() - num_before);
        }

        #[test]
        fn another_value_than_a_bit_is_named(variables in variables(), place: prop::sample::Index, value in 2u64..) {
            let mut bits: Vec<usize> = (0..variables.len()).collect();
            bits.retain(|&aux| !variables[aux].0);
            prop_assume!(!bits.is_empty());
            let aux = bits[place.index(bits.len())];
            for wrong in [Scalar::from(value), -Scalar::ONE] {
                let mut assignment = assignment_of(&variables);
                assignment.aux_assignment[aux] = wrong;
                prop_assert_eq!(PackedWitness::pack(&assignment, &classes_of(&variables)), Err(NotABit { aux }));
            }
        }
    }

    #[test]
    fn a_witness_of_another_circuit_does_not_fit() {
        let variables: Vec<(bool, u64)> = (0..70).map(|i| (i % 7 == 0, 1)).collect();
        let classes = classes_of(&variables);
        let packed = PackedWitness::pack(&assignment_of(&variables), &classes).unwrap();
        let spoilt = |spoil: fn(&mut PackedWitness)| {
            let mut spoilt = packed.clone();
            spoil(&mut spoilt);
            spoilt.fits(&classes)
        };
        assert!(spoilt(|_| ()));
        assert!(!spoilt(|packed| packed.bits[1] |= 1 << 6), "beyond the last variable");
        assert!(!spoilt(|packed| packed.bits[0] |= 1 << 7), "a dense variable");
        assert!(!spoilt(|packed| packed.bits.push(0)));
        assert!(!spoilt(|packed| packed.dense.truncate(3)));
    }

    #[test]
    fn debug_prints_no_values() {
        let packed = PackedWitness { inputs: vec![Scalar::from(77)], bits: vec![77], dense: vec![] };
        assert_eq!(format!("{packed:?}"), "PackedWitness { num_inputs: 1, num_words: 1, num_dense: 0 }");
    }
}
