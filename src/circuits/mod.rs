//! What is proved: a [`Workload`] is a job's statement and its witnesses, whatever the circuit.
//!
//! ```text
//! FilecoinRequest --decode--> Workload (porep | snap | window_post | winning_post)
//! bellpepper Circuit + SRS -----> Workload (custom)
//! SyntheticOptions --generate--> FilecoinRequest (tests and measurements)
//! EncodedWork --a host's WorkDecoder--> Workload
//! ```

pub mod catalogue;
pub mod check;
pub mod custom;
pub mod encoded;
mod library;
pub mod manifest;
pub mod native;
mod parallel;
pub mod porep;
mod post;
pub mod request;
pub mod snap;
pub mod synthetic;
pub mod vanilla;
pub mod window_post;
pub mod winning_post;
pub mod workload;

pub use catalogue::{CircuitSpec, ProofKind, SectorSize};
pub use custom::CustomCircuit;
pub use encoded::{EncodedWork, Undecoded, WorkDecoder};
pub use request::FilecoinRequest;
pub use workload::{catch_panic, ParameterFile, SrsSource, WorkKind, Workload};
