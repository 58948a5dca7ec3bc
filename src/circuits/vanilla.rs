//! vanilla
