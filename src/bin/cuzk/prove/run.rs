//! Running jobs through an engine, several at a time, with their progress shown.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{bounded, select, unbounded, Receiver};
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

/// How long a signalled process waits for its devices to let go of what they do. A CPU's stage takes longer for a
/// large circuit; nothing is lost when it is cut off, since a result is written whole at the end.
const STOP_LIMIT: Duration = Duration::from_millis(1500);

/// A job, and how to blind it.
pub struct Task {
    pub job: Job,
    pub blinding: BlindingSource,
    /// The recorded proof must come out.
    pub replay: bool,
}

impl Task {
    /// The job, if what it needs cannot be had.
    pub fn refuse(self, failure: &Failure) -> BadJob {
        let Job { file, request, circuit, .. } = self.job;
        BadJob { file, request, circuit, failure: failure.clone() }
    }
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
/// If a signal came, or `done` fails: what was running is then cancelled. A device that does not let go of its work in
/// time is left behind, for the end of the process to stop.
pub fn prove_all(
    engine: &Engine,
    tasks: Vec<Task>,
    ui: Ui,
    interrupts: &Interrupts,
    mut done: impl FnMut(Finished) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut missing = tasks.len();
    let work = Arc::new(Work {
        several: tasks.len() > 1,
        waiting: Mutex::new(VecDeque::from(tasks)),
        board: Board::new(ui),
    });
    let (workers, finished) = start_workers(engine, &work, missing.min(JOBS_IN_FLIGHT_MAX))?;
    while missing > 0 {
        let failure = select! {
            recv(finished) -> result => {
                let result = result.expect("every worker sends what it takes");
                missing -= 1;
                match work.board.suspend(|| done(result)) {
                    Ok(()) => continue,
                    Err(failure) => failure,
                }
            }
            recv(interrupts.arrived) -> signal => {
                ui.note("stopping; once more stops at once");
                interrupted(signal.expect("signals are listened to for good"))
            }
        };
        stop(engine, &work);
        return Err(failure);
    }
    for worker in workers {
        // It has sent all its results: how it ends is of no interest.
        let _ = worker.join();
    }
    Ok(())
}

/// What the workers share.
struct Work {
    waiting: Mutex<VecDeque<Task>>,
    board: Board,
    /// More than one job: lines name the request too.
    several: bool,
}

impl Work {
    fn next(&self) -> Option<Task> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

/// Threads that wait for one job each, and what they send. They are not scoped: after a signal nobody waits for them.
fn start_workers(
    engine: &Engine,
    work: &Arc<Work>,
    num_workers: usize,
) -> Result<(Vec<JoinHandle<()>>, Receiver<Finished>), Failure> {
    let (send, finished) = unbounded();
    let start = |_| {
        let (engine, work, send) = (engine.clone(), Arc::clone(work), send.clone());
        let run = move || {
            while let Some(task) = work.next() {
                // The receiver is gone after a signal: then nobody wants results.
                if send.send(prove(&engine, task, &work)).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("job".to_owned()).spawn(run).map_err(no_thread)
    };
    let workers = (0..num_workers).map(start).collect::<Result<_, Failure>>()?;
    Ok((workers, finished))
}

fn no_thread(error: std::io::Error) -> Failure {
    Failure::proving("threads", format!("the system refuses a thread: {error}"))
}

/// Ends the engine without draining it. It waits for its devices to let go, and one that hangs never does: past the
/// limit the engine is kept from being dropped, since dropping it waits too, and ends with the process.
fn stop(engine: &Engine, work: &Work) {
    work.waiting.lock().unwrap_or_else(PoisonError::into_inner).clear();
    let (send, stopped) = bounded(1);
    let stopping = engine.clone();
    let run = move || {
        stopping.shutdown_blocking(Duration::ZERO);
        // Past the limit nobody waits for it.
        let _ = send.send(());
    };
    let started = std::thread::Builder::new().name("stop".to_owned()).spawn(run);
    if started.is_err() || stopped.recv_timeout(STOP_LIMIT).is_err() {
        std::mem::forget(engine.clone());
    }
}

fn prove(engine: &Engine, task: Task, work: &Work) -> Finished {
    let Task { job, blinding, replay } = task;
    let mut label = job.file.display().to_string();
    if work.several {
        label = format!("{label} [{}]", job.request);
    }
    let (mut circuit, mut partitions) = (job.circuit, None);
    let mut request = ProofRequest::new(Payload::Filecoin(Box::new(job.statement)));
    request.request_id = job.request_id;
    request.priority = job.priority;
    request.blinding = blinding;
    let line = work.board.line(label.clone());
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
        _ => Err(Failure::refuted(
            "proof",
            "the proof is valid, and is not the recorded one: the parameters are others than the manifest's \
             (`cuzk params check` says which), or the prover is wrong",
        )),
    }
}
