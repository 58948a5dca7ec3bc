//! Recorded shapes, kept between runs: one file per circuit and verifying key.
//!
//! The file's name has the digest of the whole verifying key. That is made for one circuit only, so that a circuit
//! whose code changed, and whose keys were therefore made anew, does not meet its old shape under the same id. What is
//! in the file is believed only with the digest that it carries (`shape_file.rs`), and only if it fits the proving key.

use std::path::{Path, PathBuf};

use group::GroupEncoding;
use sha2::{Digest, Sha256};

use crate::error::SrsError;
use crate::groth16::{R1csShape, Srs, VerifyingKey};
use crate::ids::CircuitId;

/// The circuit's shape: the one stored in `dir` if it is whole and fits `srs`, else what `record` makes, which is then
/// stored. Without a folder it is recorded.
///
/// # Errors
/// `record`'s own, and [`SrsError::Mismatch`] if the circuit and the proving key are no pair: nothing is stored then.
/// A shape that cannot be stored is no error, since the next start is only slower without it.
pub fn load_or_record<E: From<SrsError>>(
    dir: Option<&Path>,
    circuit: &CircuitId,
    srs: &Srs,
    record: impl FnOnce() -> Result<R1csShape, E>,
) -> Result<R1csShape, E> {
    let path = dir.map(|dir| shape_path(dir, circuit, &srs.vk));
    if let Some(path) = path.as_ref().filter(|path| path.exists()) {
        match R1csShape::load(path).and_then(|shape| srs.check_fits(&shape).map(|()| shape)) {
            Ok(shape) => return Ok(shape),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "stored shape is not usable, recording it anew");
            }
        }
    }
    let shape = record()?;
    srs.check_fits(&shape)?;
    if let Some(path) = path {
        if let Err(error) = shape.save(&path) {
            tracing::warn!(%error, "shape could not be stored");
        }
    }
    Ok(shape)
}

fn shape_path(dir: &Path, circuit: &CircuitId, vk: &VerifyingKey) -> PathBuf {
    let mut hasher = Sha256::new();
    for point in [&vk.alpha_g1, &vk.beta_g1, &vk.delta_g1].into_iter().chain(&vk.ic) {
        hasher.update(point.to_bytes());
    }
    for point in [&vk.beta_g2, &vk.gamma_g2, &vk.delta_g2] {
        hasher.update(point.to_bytes());
    }
    dir.join(format!("{}-{}.shape", file_name(circuit), hex::encode(hasher.finalize())))
}

/// The circuit's name, as the names of its files begin.
pub fn file_name(circuit: &CircuitId) -> String {
    let is_safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    circuit.as_str().chars().map(|c| if is_safe(c) { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use bellpepper_core::{Circuit, ConstraintSystem, SynthesisError as CircuitError};
    use blstrs::Scalar;
    use rand_chacha::ChaCha20Rng;
    use rand_core::SeedableRng;

    use super::*;
    use crate::groth16::generate::generate_srs;

    /// `x^(num_squares + 1)` by squares; the last is the input.
    struct Powers {
        num_squares: usize,
    }

    impl Circuit<Scalar> for Powers {
        fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), CircuitError> {
            let absent = || Err(CircuitError::AssignmentMissing);
            let mut x = cs.alloc(|| "", absent)?;
            for _ in 0..self.num_squares {
                let square = cs.alloc(|| "", absent)?;
                cs.enforce(|| "", |lc| lc + x, |lc| lc + x, |lc| lc + square);
                x = square;
            }
            let y = cs.alloc_input(|| "", absent)?;
            cs.enforce(|| "", |lc| lc + x, |lc| lc + CS::one(), |lc| lc + y);
            Ok(())
        }
    }

    fn shape(num_squares: usize) -> R1csShape {
        R1csShape::record(Powers { num_squares }).unwrap()
    }

    fn srs_of(shape: &R1csShape) -> Srs {
        generate_srs(shape, &mut ChaCha20Rng::from_seed([7; 32])).unwrap()
    }

    /// A folder, and how often the circuit was recorded.
    struct Cache {
        dir: tempfile::TempDir,
        recorded: Cell<u32>,
    }

    impl Cache {
        fn new() -> Self {
            Self { dir: tempfile::tempdir().unwrap(), recorded: Cell::new(0) }
        }

        fn get(&self, srs: &Srs, num_squares: usize) -> Result<R1csShape, SrsError> {
            load_or_record(Some(self.dir.path()), &CircuitId::new("powers/x".to_owned()), srs, || {
                self.recorded.set(self.recorded.get() + 1);
                Ok(shape(num_squares))
            })
        }

        fn files(&self) -> Vec<PathBuf> {
            let entries = std::fs::read_dir(self.dir.path()).unwrap();
            entries.map(|entry| entry.unwrap().path()).collect()
        }
    }

    #[test]
    fn a_shape_is_recorded_once_per_circuit_and_key() {
        let cache = Cache::new();
        let (small, srs) = (shape(3), srs_of(&shape(3)));
        for _ in 0..2 {
            assert!(cache.get(&srs, 3).unwrap() == small);
        }
        assert_eq!(cache.recorded.get(), 1);
        let name = cache.files()[0].file_name().unwrap().to_str().unwrap().to_owned();
        let digest = name.strip_prefix("powers_x-").unwrap().strip_suffix(".shape").unwrap();
        assert_eq!(digest.len(), 64, "{name}");

        // Any point of the key is part of the name.
        let mut other = srs_of(&small);
        other.vk.ic.swap(0, 1);
        cache.get(&other, 3).unwrap();
        assert_eq!((cache.recorded.get(), cache.files().len()), (2, 2));
    }

    #[test]
    fn the_shape_of_a_wrong_pair_is_not_stored() {
        let cache = Cache::new();
        let error = cache.get(&srs_of(&shape(3)), 9).unwrap_err();
        assert!(matches!(error, SrsError::Mismatch { .. }), "{error}");
        assert_eq!(cache.files(), Vec::<PathBuf>::new());
    }

    #[test]
    fn a_stored_shape_that_is_damaged_or_of_another_circuit_is_recorded_anew() {
        let cache = Cache::new();
        let (small, srs) = (shape(3), srs_of(&shape(3)));
        cache.get(&srs, 3).unwrap();
        let file = cache.files().remove(0);
        let bytes = std::fs::read(&file).unwrap();

        std::fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
        assert!(cache.get(&srs, 3).unwrap() == small);
        assert_eq!(std::fs::read(&file).unwrap(), bytes);
        // Whole, and under the wrong name.
        shape(9).save(&file).unwrap();
        assert!(cache.get(&srs, 3).unwrap() == small);
        assert_eq!(std::fs::read(&file).unwrap(), bytes);
        assert_eq!(cache.recorded.get(), 3);
    }

    #[test]
    fn a_folder_that_cannot_be_written_costs_only_time() {
        let circuit = CircuitId::new("powers".to_owned());
        let srs = srs_of(&shape(3));
        // A regular file in the folder's place: no one can write there, whatever the user's rights.
        let file = tempfile::NamedTempFile::new().unwrap();
        for dir in [Some(file.path()), None] {
            let recorded = load_or_record::<SrsError>(dir, &circuit, &srs, || Ok(shape(3)));
            assert!(recorded.unwrap() == shape(3));
        }
    }
}
