//! Test parameters with known secrets: the bytes bellperson's `generate_random_parameters` makes, by fixed-base
//! tables and streamed to the file. Anyone can forge proofs for them.

use std::path::Path;

use rand_core::RngCore;

use crate::error::SrsError;
use crate::groth16::R1csShape;

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generated {
    pub params_bytes: u64,
    pub params_sha256: [u8; 32],
    pub vk_bytes: u64,
    pub vk_sha256: [u8; 32],
}

/// Makes parameters for `shape` from `rng` (drawn as bellperson does) and writes the parameter file and the `.vk`
/// file, both atomically. `progress(done, total)` counts points.
pub fn generate_params<R: RngCore>(
    shape: &R1csShape,
    rng: &mut R,
    params_path: &Path,
    vk_path: &Path,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Generated, SrsError> {
    let _ = (shape, rng, params_path, vk_path, progress);
    todo!()
}

/// The same in memory, for tests and embedding hosts that try things out: small circuits only.
pub fn generate_srs<R: RngCore>(shape: &R1csShape, rng: &mut R) -> Result<crate::groth16::Srs, SrsError> {
    let _ = (shape, rng);
    todo!()
}
