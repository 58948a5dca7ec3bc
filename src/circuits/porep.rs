//! porep
