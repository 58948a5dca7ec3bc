//! The Groth16 proof system on the host: the reference of every device backend.
//!
//! A proof is made in these steps, each a function of its own, so that a backend can run them as stages:
//!
//! ```text
//! circuit -> R1csShape (once)          shape.rs, shape_recorder.rs, shape_file.rs, shape_cache.rs; sink.rs
//! circuit -> PackedWitness             packing.rs     a bit per aux variable that the constraints make one
//! circuit -> Assignment                assignment.rs  a scalar per variable; packed.rs packs it
//! shape x witness -> row values        shape/evaluate.rs   a = A·w, b = B·w, c = C·w
//! row values -> quotient               domain.rs      coefficients of (a·b - c) / Z
//! queries x scalars -> QuerySums       msm.rs, prover.rs
//! key, shape -> Fold (once)           fold.rs   C is part of its points, the quotient is taken in values
//! vk, QuerySums, r, s -> Proof         proof.rs, prover.rs
//! vk, public inputs, Proof -> verdict  verify.rs
//! ```

pub mod assignment;
pub mod density;
pub mod domain;
pub mod fold;
pub mod generate;
pub mod msm;
pub mod packed;
mod packing;
mod pippenger;
pub mod proof;
pub mod prover;
pub mod shape;
pub mod shape_cache;
mod shape_file;
mod shape_recorder;
pub mod sink;
pub mod srs;
pub mod srs_file;
mod unfinished;
pub mod verify;

pub use assignment::Assignment;
pub use blstrs::Scalar;
pub use packed::{PackedWitness, VariableClasses};
pub use proof::Proof;
pub use prover::{Blinding, QuerySums};
pub use shape::{Matrix, R1csShape};
pub use srs::{Srs, VerifyingKey};
pub use verify::PreparedVerifyingKey;
