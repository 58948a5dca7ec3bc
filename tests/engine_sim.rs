//! The engine on simulated devices with scripted faults, named by behaviour.
//!
//! Each test has an engine of its own. Where time matters, all actors are on one arbiter whose clock is paused: hours
//! pass in no time, and every run is the same.

mod common;

#[path = "engine/answers.rs"]
mod answers;
#[path = "engine/bugs.rs"]
mod bugs;
#[path = "engine/deaths.rs"]
mod deaths;
#[path = "engine/devices.rs"]
mod devices;
#[path = "engine/faults.rs"]
mod faults;
#[path = "engine/filecoin.rs"]
mod filecoin;
#[path = "engine/kinds.rs"]
mod kinds;
#[path = "engine/lifeline.rs"]
mod lifeline;
#[path = "engine/order.rs"]
mod order;
#[path = "engine/parameter_files.rs"]
mod parameter_files;
#[path = "engine/passes.rs"]
mod passes;
#[path = "engine/pressure.rs"]
mod pressure;
#[path = "engine/roles.rs"]
mod roles;
#[path = "engine/simulation.rs"]
mod simulation;
#[path = "engine/squares.rs"]
mod squares;
#[path = "engine/store.rs"]
mod store;
#[path = "engine/wrong_keys.rs"]
mod wrong_keys;
