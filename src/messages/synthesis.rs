//! synthesis
