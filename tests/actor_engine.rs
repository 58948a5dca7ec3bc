//! Scheduler, Synthesizer and Supervisor, message by message: whoever else they speak to is the test.

#[path = "actor_engine/books.rs"]
mod books;
mod common;
#[path = "actor_engine/devices.rs"]
mod devices;
#[path = "actor_engine/disputed.rs"]
mod disputed;
#[path = "actor_engine/keys.rs"]
mod keys;
#[path = "engine/kinds.rs"]
#[allow(dead_code, reason = "the engine's tests use the rest")]
mod kinds;
#[path = "actor_engine/rig.rs"]
mod rig;
#[path = "engine/squares.rs"]
#[allow(dead_code, reason = "the engine's tests use the rest")]
mod squares;
#[path = "actor_engine/supervisor.rs"]
mod supervisor;
#[path = "actor_engine/synthesizer.rs"]
mod synthesizer;

use std::time::Duration;

use cuzk::error::{DeviceError, EngineError};
use cuzk::messages::job::{CancelOutcome, Priority};

use common::on_paused_arbiter;
use rig::{Rig, Settings};

const MS: Duration = Duration::from_millis(1);
