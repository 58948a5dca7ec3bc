//! synthesizer
