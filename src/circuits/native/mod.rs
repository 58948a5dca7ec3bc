//! Witnesses of Filecoin's circuits straight from their vanilla proofs, without the library's synthesis.
//!
//! ```text
//! vanilla proof -> porep.rs | snap.rs | post.rs     the circuit's values in its own order of allocation
//!                  merkle.rs, poseidon.rs, sha256.rs the gadgets' values, SHA-256 by layout tables
//!                  writer.rs                         bits and dense values -> PackedWitness, parts in parallel
//! library       -> discover.rs -> layouts/sha256.txt (offline: `cuzk-bench layouts`)
//! library       -> check.rs                          a small instance, before a circuit's first witness
//! library       -> stream.rs                         any instance, in the memory of its packed witness (tests)
//! ```
//!
//! Nothing of this is believed: before the first witness of a circuit a small instance of its kind is made in both
//! ways and compared (`check.rs`), and every witness has to satisfy all constraints before it is used. What does not
//! agree is made by the library, and said (`make`).

mod check;
mod discover;
mod dot;
mod merkle;
mod names;
pub(super) mod porep;
mod poseidon;
pub(super) mod post;
mod sha256;
pub(super) mod snap;
mod stream;
mod writer;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

pub(super) use check::{check_porep, check_post, check_snap};
pub use discover::DiscoveryError;
pub(super) use merkle::Path;
pub(super) use poseidon::value as hash;
pub(super) use stream::compare_streamed;

use crate::error::SynthesisError;
use crate::groth16::packed::PackedWitness;

/// The native witness is not one of the circuit's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    #[error("variable {aux} is a bit in the circuit, its value is neither 0 nor 1")]
    NotABit { aux: usize },
    #[error("there are more values than variables up to {end}")]
    Longer { end: usize },
    #[error("values end at variable {at}, the circuit's go on to {end}")]
    Shorter { at: usize, end: usize },
    #[error("{num_aux} variables do not divide into {parts} equal parts")]
    Uneven { num_aux: usize, parts: usize },
}

/// Finds the layouts of SHA-256 blocks anew, in the form of the file that is compiled in. Any seed finds the same.
///
/// # Errors
/// [`DiscoveryError`] names the variable that nothing matches.
pub fn discover_layouts(seed: u64) -> Result<String, DiscoveryError> {
    discover::discover(seed).map(|layouts| layouts.to_string())
}

/// The layouts that the program was built with.
pub fn stored_layouts() -> &'static str {
    include_str!("layouts/sha256.txt")
}

/// What `work` gives, and how much of its time the calling thread spent on SHA-256 in native witnesses. Other threads'
/// is not counted: run it in a pool of one.
pub fn time_sha256<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    sha256::time_blocks(work)
}

/// Witnesses that the library had to make, since the program was started.
static NUM_FALLBACKS: AtomicU64 = AtomicU64::new(0);

/// Witnesses that the library had to make because the native ones are not the circuit's, since the program started.
pub fn num_fallbacks() -> u64 {
    NUM_FALLBACKS.load(Ordering::Relaxed)
}

/// What became of the check of each kind of circuit. A check is made once, by whoever comes first; others wait for it.
static VERDICTS: Mutex<Option<HashMap<String, Arc<OnceLock<bool>>>>> = Mutex::new(None);

/// Makes a witness by `native`, if `check` finds that native witnesses of circuits like `circuit` are the library's;
/// else by `library`.
pub(super) fn make(
    circuit: &str,
    check: impl FnOnce() -> Result<(), String>,
    native: impl FnOnce() -> Result<PackedWitness, Misfit>,
    library: impl FnOnce() -> Result<PackedWitness, SynthesisError>,
) -> Result<PackedWitness, SynthesisError> {
    if is_trusted(circuit, check) {
        match native() {
            Ok(witness) => return Ok(witness),
            Err(misfit) => warn(circuit, &misfit.to_string()),
        }
    }
    NUM_FALLBACKS.fetch_add(1, Ordering::Relaxed);
    library()
}

fn is_trusted(circuit: &str, check: impl FnOnce() -> Result<(), String>) -> bool {
    let verdict = {
        let mut verdicts = VERDICTS.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(verdicts.get_or_insert_default().entry(circuit.to_owned()).or_default())
    };
    *verdict.get_or_init(|| match check() {
        Ok(()) => true,
        Err(why) => {
            warn(circuit, &why);
            false
        }
    })
}

fn warn(circuit: &str, why: &str) {
    tracing::warn!(
        circuit,
        why,
        "native witnesses are not this circuit's: its library makes them, which is slow"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn witness(inputs: usize) -> PackedWitness {
        PackedWitness { inputs: vec![Default::default(); inputs], bits: Vec::new(), dense: Vec::new() }
    }

    #[test]
    fn what_does_not_agree_is_made_by_the_library() {
        let library = || Ok(witness(2));
        let made =
            |circuit: &str, check, native| make(circuit, || check, || native, library).unwrap().inputs.len();
        let before = num_fallbacks();
        assert_eq!(made("agrees", Ok(()), Ok(witness(1))), 1);
        assert_eq!(num_fallbacks(), before);
        assert_eq!(made("differs", Err("variable 3 differs".into()), Ok(witness(1))), 2);
        let unasked = make("differs", || panic!("checked once"), || panic!("not trusted"), library);
        assert_eq!(unasked.unwrap().inputs.len(), 2);
        assert_eq!(made("longer", Ok(()), Err(Misfit::Longer { end: 4 })), 2);
        assert_eq!(num_fallbacks(), before + 3);
    }
}
