//! The worker threads: a bounded channel of tasks. They outlive a Synthesizer that is rebuilt.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::thread::JoinHandle;

use actix::Recipient;
use crossbeam_channel::{bounded, Receiver, Sender, TrySendError};

use crate::messages::synthesis::WorkerFreed;

/// Work for a thread.
pub type Task = Box<dyn FnOnce() + Send>;

/// The pool did not take the task.
pub struct Refused(pub Task);

/// The sending end. Clones feed the same threads; these end when the last clone is gone.
#[derive(Clone)]
pub struct WorkerPool {
    tasks: Sender<(Task, Recipient<WorkerFreed>)>,
    num_threads: usize,
}

/// The threads themselves, to be joined after every [`WorkerPool`] is gone.
pub struct WorkerThreads(Vec<JoinHandle<()>>);

impl WorkerThreads {
    /// Waits until every thread has finished its task and ended.
    pub fn join(self) {
        for thread in self.0 {
            if thread.join().is_err() {
                tracing::error!("a worker thread ended by a panic outside its tasks");
            }
        }
    }
}

impl WorkerPool {
    /// `num_threads` 0: tasks run where they are given, for simulations on a paused clock.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub fn start(num_threads: usize) -> std::io::Result<(Self, WorkerThreads)> {
        // Twice the threads: a rebuilt Synthesizer may add a full set behind its predecessor's.
        let (sender, receiver) = bounded(2 * num_threads.max(1));
        let threads = (0..num_threads)
            .map(|index| {
                let receiver = receiver.clone();
                std::thread::Builder::new()
                    .name(format!("cuzk-worker-{index}"))
                    .spawn(move || work(&receiver))
            })
            .collect::<std::io::Result<Vec<_>>>()?;
        Ok((Self { tasks: sender, num_threads }, WorkerThreads(threads)))
    }

    pub fn num_threads(&self) -> usize {
        self.num_threads
    }

    /// Gives a task to the next free thread; `freed` is told when it is done.
    ///
    /// # Errors
    /// [`Refused`] with the task, if the channel is full.
    pub fn run(&self, task: Task, freed: Recipient<WorkerFreed>) -> Result<(), Refused> {
        if self.num_threads == 0 {
            run_task(task, &freed);
            return Ok(());
        }
        self.tasks.try_send((task, freed)).map_err(|error| match error {
            TrySendError::Full((task, _)) | TrySendError::Disconnected((task, _)) => Refused(task),
        })
    }
}

fn work(tasks: &Receiver<(Task, Recipient<WorkerFreed>)>) {
    while let Ok((task, freed)) = tasks.recv() {
        run_task(task, &freed);
    }
}

fn run_task(task: Task, freed: &Recipient<WorkerFreed>) {
    // Tasks turn panics of the work itself into typed errors; this is for a defect in the task's own frame.
    if catch_unwind(AssertUnwindSafe(task)).is_err() {
        tracing::error!("a worker task panicked outside its work");
    }
    freed.do_send(WorkerFreed);
}
