//! A simulator to plan with: the real Supervisor, Scheduler, Synthesizer and GpuDevice actors on the `sim` backend and on
//! a simulated host, all on one arbiter whose clock is paused, so that years of load pass in minutes and every run of a
//! seed is the same.
//!
//! ```text
//! scenario.rs ──> machine.rs   EngineConfig: devices, budgets, a host of host.rs
//!             ──> arrivals.rs  one task per stream submits jobs (workload.rs) as a caller would
//!                     │
//!                  Engine ── real actors ── events ──> books.rs ──> report.rs: figures, claims, text, JSON
//! ```
//!
//! Simulated are only: how long a stage or a task takes, what memory there is, what fails, and whether a proof is
//! right. Everything that decides or keeps books is the engine's own.

mod arrivals;
mod books;
mod host;
mod machine;
mod report;
pub mod scenario;
mod spans;
mod workload;

use std::fs::File;
use std::io::BufWriter;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use actix::System;
use tokio::time::Instant;

use self::arrivals::Callers;
use self::books::{Books, BooksConsumer};
pub use self::machine::Machine;
pub use self::report::{ClaimResult, DeviceReport, KindReport, Percentiles, Report};
pub use self::scenario::{Arrivals, Scenario};
use crate::engine::Engine;
use crate::error::{ConfigError, EngineError};
use crate::messages::events::{Event, EventSink};

/// What differs from the scenario, and what is wanted besides the report.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Instead of the scenario's.
    pub seed: Option<u64>,
    /// Instead of the scenario's.
    pub hours: Option<f64>,
    /// Every event, as JSON lines.
    pub events: Option<PathBuf>,
    /// Keep the events of this part of the simulated time: to draw it.
    pub keep: Option<Range<Duration>>,
}

/// What a simulation gives.
#[derive(Debug)]
pub struct Simulated {
    pub report: Report,
    /// Those that were asked for.
    pub events: Vec<Event>,
}

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub enum SimulationError {
    #[error(transparent)]
    Scenario(#[from] ConfigError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("{path}: {source}")]
    Events {
        path: String,
        #[source]
        source: std::io::Error,
    },
}

/// How long jobs that are under way at the horizon may take to end.
const DRAIN_LIMIT: Duration = Duration::from_secs(7 * 24 * 3600);

/// Runs a scenario to its end.
///
/// # Errors
/// [`SimulationError`] if the scenario contradicts itself, or its events cannot be written.
///
/// # Panics
/// On a thread that is in an async runtime already: the simulation makes one of its own, with its own clock.
pub fn simulate(scenario: &Scenario, options: Options) -> Result<Simulated, SimulationError> {
    let mut scenario = scenario.clone();
    scenario.seed = options.seed.unwrap_or(scenario.seed);
    scenario.hours = options.hours.unwrap_or(scenario.hours);
    scenario.validate()?;
    let file = options.events.as_ref().map(|path| {
        let created = File::create(path).map(BufWriter::new);
        created.map_err(|source| SimulationError::Events { path: path.display().to_string(), source })
    });
    let books = Arc::new(Books::new(scenario.horizon(), options.keep, file.transpose()?));
    let system = System::with_tokio_rt(|| {
        // No I/O driver: the clock would ask the system for events before every step.
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime without I/O needs nothing of the system")
    });
    let machine = Machine::new(scenario)?;
    system.block_on(run(&machine, &books))?;
    // What is left of the actors holds the books: they end with their runtime.
    drop(system);
    let (figures, events) = books.finish().map_err(|source| {
        let path = options.events.map(|path| path.display().to_string()).unwrap_or_default();
        SimulationError::Events { path, source }
    })?;
    let report = Report::new(machine.scenario(), figures, machine.num_wrong());
    Ok(Simulated { report, events })
}

async fn run(machine: &Machine, books: &Arc<Books>) -> Result<(), EngineError> {
    let events = EventSink::to(BooksConsumer(Arc::clone(books)));
    let engine = Engine::start_on_current_arbiter(machine.engine_config(events)?).await?;
    let horizon = Instant::now() + machine.scenario().horizon();
    let callers = Callers::start(machine, &engine, horizon);
    tokio::time::sleep_until(horizon).await;
    engine.shutdown(DRAIN_LIMIT).await;
    callers.join().await;
    Ok(())
}
