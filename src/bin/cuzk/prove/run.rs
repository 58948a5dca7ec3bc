//! Running jobs through an engine, several at a time, with their progress shown.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crossbeam_channel::{select, unbounded};
use cuzk::backend::Stage;
use cuzk::engine::Engine;
use cuzk::error::EngineError;
use cuzk::messages::job::{BlindingSource, JobEvent, Payload, ProofOutcome, ProofRequest};

use crate::failure::Failure;
use crate::input::{BadJob, Job};
use crate::interrupt::{interrupted, Interrupts};
use crate::progress::{Board, BoardLine};
use crate::ui::{self, Ui};

/// Jobs that are in the engine at a time: enough to keep many devices busy, and below the queue's limit.
const JOBS_IN_FLIGHT_MAX: usize = 64;

/// A job, and how to blind it.
pub struct Task {
    pub job: Job,
    pub blinding: BlindingSource,
    /// The recorded proof must come out.
    pub replay: bool,
}

/// How one job ended.
pub struct Finished {
    pub file: PathBuf,
    pub request: usize,
    pub circuit: Option<String>,
    /// `None`: the job ended before its input was decoded.
    pub partitions: Option<u32>,
    pub result: Result<Proved, Failure>,
}

/// A proof, verified.
pub struct Proved {
    pub outcome: Arc<ProofOutcome>,
    /// It equals the recorded one.
    pub replayed: bool,
}

impl Finished {
    /// A job that was refused before it reached the engine.
    pub fn refused(job: BadJob) -> Self {
        Self {
            file: job.file,
            request: job.request,
            circuit: job.circuit,
            partitions: None,
            result: Err(job.failure),
        }
    }
}

/// Proves all tasks and calls `done` with each as it ends, in that order.
///
/// # Errors
/// If a signal came: what was running is then cancelled.
pub fn prove_all(
    engine: &Engine,
    tasks: Vec<Task>,
    ui: Ui,
    interrupts: &Interrupts,
    mut done: impl FnMut(Finished),
) -> Result<(), Failure> {
    let num_workers = tasks.len().min(JOBS_IN_FLIGHT_MAX);
    let several = tasks.len() > 1;
    let mut missing = tasks.len();
    let waiting = Mutex::new(VecDeque::from(tasks));
    let board = Board::new(ui);
    let (send, finished) = unbounded();
    std::thread::scope(|scope| {
        for _ in 0..num_workers {
            let (waiting, board, send) = (&waiting, &board, send.clone());
            scope.spawn(move || {
                while let Some(task) = next(waiting) {
                    // The receiver is gone after a signal: then nobody wants results.
                    if send.send(prove(engine, task, board, several)).is_err() {
                        return;
                    }
                }
            });
        }
        while missing > 0 {
            select! {
                recv(finished) -> result => {
                    let result = result.expect("every worker sends what it takes");
                    missing -= 1;
                    board.suspend(|| done(result));
                }
                recv(interrupts.arrived) -> signal => {
                    let failure = interrupted(signal.expect("signals are listened to for good"));
                    ui.note("stopping at the end of the running stage; once more stops at once");
                    waiting.lock().unwrap_or_else(PoisonError::into_inner).clear();
                    engine.shutdown_blocking(Duration::ZERO);
                    return Err(failure);
                }
            }
        }
        Ok(())
    })
}

fn next(waiting: &Mutex<VecDeque<Task>>) -> Option<Task> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
}

fn prove(engine: &Engine, task: Task, board: &Board, several: bool) -> Finished {
    let Task { job, blinding, replay } = task;
    let mut label = job.file.display().to_string();
    if several {
        label = format!("{label} [{}]", job.request);
    }
    let (mut circuit, mut partitions) = (job.circuit, None);
    let mut request = ProofRequest::new(Payload::Filecoin(Box::new(job.statement)));
    request.request_id = job.request_id;
    request.priority = job.priority;
    request.blinding = blinding;
    let line = board.line(label.clone());
    let result = follow(engine, request, &line, &mut circuit, &mut partitions)
        .map_err(Failure::from)
        .and_then(|outcome| compare(outcome, job.recorded.proof.as_deref(), replay))
        .map_err(|failure| failure.in_file(&label));
    drop(line);
    Finished { file: job.file, request: job.request, circuit, partitions, result }
}

/// Submits the request and shows its progress until it ends.
fn follow(
    engine: &Engine,
    request: ProofRequest,
    line: &BoardLine,
    circuit: &mut Option<String>,
    partitions: &mut Option<u32>,
) -> Result<Arc<ProofOutcome>, EngineError> {
    line.detail("checking the input");
    let mut handle = engine.submit_blocking(request)?;
    for event in handle.events().blocking_iter() {
        if let JobEvent::Accepted { circuit: id, num_partitions, .. } = &event {
            *circuit = Some(id.to_string());
            *partitions = Some(*num_partitions);
        }
        show(&event, line);
    }
    handle.wait_blocking()
}

fn show(event: &JobEvent, line: &BoardLine) {
    match event {
        JobEvent::Accepted { circuit, num_partitions, .. } => {
            line.step(&format!("{circuit}, {}", ui::count(u64::from(*num_partitions), "partition")));
        }
        JobEvent::CircuitLoading { circuit, what, done, total } => {
            let percent = done.saturating_mul(100).checked_div(*total).unwrap_or(0);
            line.detail(&format!("{circuit}: loading {what} {percent} %"));
        }
        JobEvent::CircuitReady { circuit } => line.step(&format!("{circuit} is loaded")),
        JobEvent::WitnessReady { partition, elapsed } => {
            line.step(&format!(
                "partition {partition}: witness made and checked ({})",
                ui::duration(*elapsed)
            ));
        }
        JobEvent::Placed { partition, device } => {
            line.detail(&format!("partition {partition}: {} on {device}", Stage::ALL[0]));
        }
        JobEvent::StageDone { partition, device, stage, elapsed } => {
            line.step(&format!("partition {partition}: {stage} on {device} ({})", ui::duration(*elapsed)));
            // A bar names what runs now, not what ended.
            match Stage::ALL.get(stage.index() + 1) {
                Some(next) => line.detail(&format!("partition {partition}: {next} on {device}")),
                None => line.detail(&format!("partition {partition}: verifying")),
            }
        }
        JobEvent::PartitionVerified { partition, .. } => {
            line.step(&format!("partition {partition}: verified"))
        }
        JobEvent::PartitionRetried { partition, reason } => {
            line.step(&format!("partition {partition}: proved again, since {reason}"));
        }
        JobEvent::Finished(_) => {}
    }
}

fn compare(outcome: Arc<ProofOutcome>, recorded: Option<&[u8]>, replay: bool) -> Result<Proved, Failure> {
    if !replay {
        return Ok(Proved { outcome, replayed: false });
    }
    match recorded {
        Some(recorded) if recorded == outcome.proof => Ok(Proved { outcome, replayed: true }),
        _ => Err(Failure::proving(
            "proof",
            "the proof is valid, and is not the recorded one: the parameters are others than the manifest's \
             (`cuzk params check` says which), or the prover is wrong",
        )),
    }
}
