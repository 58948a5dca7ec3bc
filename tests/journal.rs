//! The journal: alone, under crashes at every write, in an engine, and in a process that is killed.

mod common;

#[path = "journal/crash.rs"]
mod crash;
#[path = "journal/damage.rs"]
mod damage;
#[path = "journal/deaths.rs"]
mod deaths;
#[path = "journal/encoded.rs"]
mod encoded;
#[path = "journal/engine.rs"]
mod engine;
#[path = "journal/full_disk.rs"]
mod full_disk;
#[path = "journal/kill.rs"]
mod kill;
#[path = "journal/latency.rs"]
mod latency;
#[path = "journal/migration.rs"]
mod migration;
#[path = "journal/model.rs"]
mod model;
#[path = "journal/records.rs"]
mod records;
#[path = "engine/simulation.rs"]
#[allow(dead_code, reason = "the engine's tests use the rest")]
mod simulation;
#[path = "engine/squares.rs"]
#[allow(dead_code, reason = "the engine's tests use the rest")]
mod squares;
