//! Typed messages, one file per conversation. Commands are imperative, facts past tense, questions `Get…`.

pub mod device;
pub mod events;
pub mod job;
pub mod journal;
pub mod lifecycle;
pub mod srs;
pub mod status;
pub mod synthesis;
