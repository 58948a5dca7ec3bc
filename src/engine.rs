//! [`Engine`]: build, submit, await, cancel. The only handle a host touches.

pub mod config;

pub use config::{DeviceSpec, EngineConfig};
