//! CuZK: a Groth16 proving engine on BLS12-381.
//!
//! See `ARCHITECTURE.md` for the bird's-eye view. The list of modules below is the one list of
//! modules; each uses its own layer and those below it.

/// The README's snippet is compiled with the tests, so that it cannot name what is not there.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeSnippets;

pub mod actors;
pub mod backend;
pub mod circuits;
pub mod config;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod engine;
pub mod error;
pub mod groth16;
pub mod ids;
pub mod inspect;
pub mod journal;
pub mod loops;
pub mod messages;
pub mod params;
pub mod policy;
pub mod simulation;
pub mod telemetry;
pub mod timeline;
