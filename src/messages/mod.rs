//! Typed messages, one file per conversation. Commands are imperative, facts past tense, questions `Get…`.

pub mod device;
pub mod job;
pub mod lifecycle;
pub mod srs;
pub mod status;
pub mod synthesis;
