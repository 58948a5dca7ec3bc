//! Finds out which bit of which signal every variable of a SHA-256 block is, by matching the library's own synthesis.
//!
//! A block is synthesized on [`NUM_SAMPLES`] random inputs. Every variable then has a fingerprint, its bits over the
//! samples, and so has every bit of every signal of [`compress`]. Where several signals fit a variable (a carry that is
//! always 0, a term that constants reduce to another), the one is taken that goes on to fit the longest: variables
//! come in runs. Chance makes two different functions' 128 bits equal with probability 2⁻¹²⁸ a pair.
//!
//! This survives another version of the library that allocates in another order, or other combinations of the same
//! terms; a variable that is none of the signals is an error that names it.

use std::collections::HashMap;

use bellpepper_core::boolean::{AllocatedBit, Boolean};
use bellpepper_core::{Circuit, ConstraintSystem, SynthesisError as CircuitError};
use bellperson::gadgets::sha256::sha256_compression_function;
use bellperson::gadgets::uint32::UInt32;
use blstrs::Scalar;
use ff::Field;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::names::variable_name;
use super::sha256::{compress, BlockKind, BlockLayout, Layouts, Run, INITIAL_STATE, NUM_SIGNALS};
use crate::error::SynthesisError;
use crate::groth16::sink::synthesis;
use crate::groth16::Assignment;

const NUM_SAMPLES: usize = 128;

/// Bits of a signal that can be variables.
const SIGNAL_BITS: usize = 64;

/// Why a layout could not be found.
#[derive(Debug, thiserror::Error)]
pub enum DiscoveryError {
    /// The library allocates something that is not among the signals: `sha256.rs` has to learn it.
    #[error("block {block}: variable {aux} ({name}) is no bit of any signal")]
    Unmatched { block: &'static str, aux: usize, name: String },
    /// A variable is 0 or 1 in some samples only: it is no bit.
    #[error("block {block}: variable {aux} ({name}) is not a bit")]
    NotABit { block: &'static str, aux: usize, name: String },
    #[error(transparent)]
    Synthesis(#[from] SynthesisError),
}

/// A block's inputs.
#[derive(Clone)]
pub(super) struct BlockSample {
    kind: BlockKind,
    layer: u32,
    pub state: [u32; 8],
    pub message: [u32; 16],
}

impl BlockSample {
    /// A block of `kind` whose variable bits are `bits`, word by word.
    pub fn new(kind: BlockKind, layer: u32, mut bits: impl FnMut() -> u32) -> Self {
        let (variable, constant) = kind.message_form(layer);
        let message = std::array::from_fn(|word| bits() & variable[word] | constant[word]);
        let random_state = std::array::from_fn(|_| bits());
        let state = if kind.has_constant_state() { INITIAL_STATE } else { random_state };
        Self { kind, layer, state, message }
    }

    /// The variables of the inputs, which come before the block's own.
    pub fn num_inputs(&self) -> usize {
        let (variable, _) = self.kind.message_form(self.layer);
        let message: u32 = variable.iter().map(|word| word.count_ones()).sum();
        message as usize + if self.kind.has_constant_state() { 0 } else { 256 }
    }
}

impl Circuit<Scalar> for BlockSample {
    fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), CircuitError> {
        let (variable, _) = self.kind.message_form(self.layer);
        let mut message = Vec::with_capacity(512);
        for bit in 0..512 {
            let (word, shift) = (bit / 32, 31 - bit % 32);
            let value = self.message[word] >> shift & 1 == 1;
            message.push(if variable[word] >> shift & 1 == 1 {
                AllocatedBit::alloc(cs.namespace(|| format!("message {bit}")), Some(value))?.into()
            } else {
                Boolean::constant(value)
            });
        }
        let state = (0..8).map(|word| match self.kind.has_constant_state() {
            true => Ok(UInt32::constant(self.state[word])),
            false => UInt32::alloc(cs.namespace(|| format!("state {word}")), Some(self.state[word])),
        });
        let state = state.collect::<Result<Vec<_>, _>>()?;
        sha256_compression_function(cs.namespace(|| "block"), &message, &state).map(drop)
    }
}

/// Finds the layouts of all kinds of blocks. Any seed gives the same.
///
/// # Errors
/// [`DiscoveryError`], naming the variable that could not be matched.
pub(super) fn discover(seed: u64) -> Result<Layouts, DiscoveryError> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let layouts =
        BlockKind::ALL.iter().map(|kind| discover_block(*kind, &mut rng)).collect::<Result<Vec<_>, _>>()?;
    Ok(Layouts::new(layouts.try_into().expect("one was made of each kind")))
}

fn discover_block(kind: BlockKind, rng: &mut ChaCha8Rng) -> Result<BlockLayout, DiscoveryError> {
    let samples: Vec<BlockSample> =
        (0..NUM_SAMPLES).map(|_| BlockSample::new(kind, rng.gen_range(1..=11), || rng.gen())).collect();
    match_variables(&samples, &signal_fingerprints(&samples))
}

/// The runs of `signals` that the block's variables are.
fn match_variables(
    samples: &[BlockSample],
    signals: &[[u128; SIGNAL_BITS]],
) -> Result<BlockLayout, DiscoveryError> {
    let variables = variable_fingerprints(samples)?;
    let mut places: HashMap<u128, Vec<Place>> = HashMap::new();
    for (place, fingerprint) in Place::all(signals) {
        places.entry(fingerprint).or_default().push(place);
    }
    let mut runs = Vec::new();
    let mut at = 0;
    while at < variables.len() {
        let candidates = places.get(&variables[at]).map_or(&[][..], Vec::as_slice);
        let longest = candidates
            .iter()
            .map(|place| (place, place.fitting(signals, &variables[at..])))
            // Of equally long runs the first: signals are in the order of the computation.
            .rev()
            .max_by_key(|(_, len)| *len);
        let Some((place, len)) = longest else {
            let (block, aux) = (samples[0].kind.name(), samples[0].num_inputs() + at);
            let name = variable_name(synthesis(samples[0].clone()), aux);
            return Err(DiscoveryError::Unmatched { block, aux: at, name });
        };
        runs.push(place.run(len));
        at += len;
    }
    Ok(BlockLayout::new(runs))
}

/// A bit of a signal, or its complement.
#[derive(Clone, Copy)]
struct Place {
    signal: usize,
    bit: usize,
    inverted: bool,
}

impl Place {
    fn all(signals: &[[u128; SIGNAL_BITS]]) -> impl Iterator<Item = (Self, u128)> + '_ {
        let places = [false, true].into_iter().flat_map(|inverted| {
            (0..NUM_SIGNALS)
                .flat_map(move |signal| (0..SIGNAL_BITS).map(move |bit| Self { signal, bit, inverted }))
        });
        places.map(|place| (place, place.fingerprint(signals)))
    }

    fn fingerprint(self, signals: &[[u128; SIGNAL_BITS]]) -> u128 {
        signals[self.signal][self.bit] ^ if self.inverted { u128::MAX } else { 0 }
    }

    /// How many of the next variables are this and the following bits.
    fn fitting(self, signals: &[[u128; SIGNAL_BITS]], variables: &[u128]) -> usize {
        let bits = (self.bit..SIGNAL_BITS).map(|bit| Self { bit, ..self }.fingerprint(signals));
        bits.zip(variables).take_while(|(bit, variable)| bit == *variable).count()
    }

    fn run(self, len: usize) -> Run {
        Run { signal: self.signal as u16, first: self.bit as u8, len: len as u8, inverted: self.inverted }
    }
}

/// The block's own variables over the samples.
fn variable_fingerprints(samples: &[BlockSample]) -> Result<Vec<u128>, DiscoveryError> {
    let mut fingerprints: Vec<u128> = Vec::new();
    for (number, sample) in samples.iter().enumerate() {
        let num_inputs = sample.num_inputs();
        let values = Assignment::collect(synthesis(sample.clone()))?.aux_assignment;
        fingerprints.resize(values.len() - num_inputs, 0);
        for (at, value) in values[num_inputs..].iter().enumerate() {
            if *value == Scalar::ONE {
                fingerprints[at] |= 1 << number;
            } else if *value != Scalar::ZERO {
                let name = variable_name(synthesis(sample.clone()), num_inputs + at);
                return Err(DiscoveryError::NotABit { block: sample.kind.name(), aux: at, name });
            }
        }
    }
    Ok(fingerprints)
}

fn signal_fingerprints(samples: &[BlockSample]) -> Vec<[u128; SIGNAL_BITS]> {
    let mut fingerprints = vec![[0; SIGNAL_BITS]; NUM_SIGNALS];
    for (number, sample) in samples.iter().enumerate() {
        let (mut state, mut signals) = (sample.state, [0; NUM_SIGNALS]);
        compress(&mut state, &sample.message, &mut signals);
        for (fingerprints, signal) in fingerprints.iter_mut().zip(signals) {
            for (bit, fingerprint) in fingerprints.iter_mut().enumerate() {
                *fingerprint |= u128::from(signal >> bit & 1) << number;
            }
        }
    }
    fingerprints
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::circuits::native::sha256::{signal_name, LAYOUTS};

    /// Words that make carries and choices as extreme as they get.
    const EXTREMES: [u32; 6] = [0, !0, 1, 1 << 31, !0 >> 1, 0x5555_5555];

    #[test]
    fn extreme_blocks_have_the_librarys_values() {
        for (kind, first, second) in BlockKind::ALL.into_iter().flat_map(|kind| {
            EXTREMES.into_iter().flat_map(move |first| EXTREMES.map(|second| (kind, first, second)))
        }) {
            let mut words = [first, second].into_iter().cycle();
            let sample = BlockSample::new(kind, 11, || words.next().unwrap());
            let library = Assignment::collect(synthesis(sample.clone())).unwrap().aux_assignment;
            let (mut state, mut signals) = (sample.state, [0; NUM_SIGNALS]);
            compress(&mut state, &sample.message, &mut signals);
            let bits = LAYOUTS.of(kind).values(&signals);
            let native =
                bits.flat_map(|(value, len)| (0..len).map(move |bit| Scalar::from(value >> bit & 1)));
            assert!(
                library[sample.num_inputs()..].iter().copied().eq(native),
                "{kind:?} {first:x} {second:x}"
            );
        }
    }

    /// As in a library that allocates what the model of a block does not know.
    #[test]
    fn a_variable_that_is_no_signal_is_named() {
        let mut rng = ChaCha8Rng::seed_from_u64(9);
        let samples: Vec<BlockSample> =
            (0..NUM_SAMPLES).map(|_| BlockSample::new(BlockKind::PairFirst, 1, || rng.gen())).collect();
        let mut signals = signal_fingerprints(&samples);
        match_variables(&samples, &signals).unwrap();
        let unknown = (0..NUM_SIGNALS).find(|signal| signal_name(*signal) == "w17.s1").unwrap();
        signals[unknown] = [0; SIGNAL_BITS];
        let error = match_variables(&samples, &signals).unwrap_err();
        let DiscoveryError::Unmatched { block, aux, name } = &error else { panic!("{error}") };
        assert_eq!(*block, "pair-first");
        // Its name is the library's own, and the message has all three.
        let of_library = variable_name(synthesis(samples[0].clone()), samples[0].num_inputs() + aux);
        assert_eq!(*name, of_library);
        assert!(name.contains('/') && name.contains("xor"), "{name}");
        assert!(error.to_string().contains(&format!("variable {aux} ({name}) is no bit")), "{error}");
    }

    #[test]
    fn two_seeds_find_the_stored_layouts() {
        for seed in [1, 2] {
            let found = discover(seed).unwrap();
            assert!(found == *LAYOUTS, "seed {seed}: run `cuzk-bench layouts`");
        }
    }
}
