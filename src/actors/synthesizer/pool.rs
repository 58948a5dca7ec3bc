//! The worker threads: a bounded channel of tasks. They outlive a Synthesizer that is rebuilt. In a simulation they are
//! timers of the current arbiter.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use actix::Recipient;
use crossbeam_channel::{bounded, select, unbounded, Receiver, Sender, TrySendError};
use rayon::{ThreadBuilder, ThreadPool, ThreadPoolBuilder};

use super::host::HostWork;
use crate::error::catch;
use crate::loops;
use crate::messages::synthesis::WorkerFreed;

/// Work for a worker.
pub struct Task {
    pub work: Box<dyn FnOnce() + Send>,
    /// How long a simulated worker takes over it.
    pub takes: Duration,
    /// Its loops are run by threads of their own ([`crate::loops`]).
    pub is_express: bool,
}

/// The pool did not take the task.
pub struct Refused(pub Task);

/// The sending end. Clones feed the same threads; these end when the last clone is gone.
#[derive(Clone)]
pub struct WorkerPool {
    workers: Workers,
    num_threads: usize,
}

#[derive(Clone)]
enum Workers {
    Threads {
        tasks: Sender<(Task, Recipient<WorkerFreed>)>,
        /// Tasks that will not be run. No more than waited at a time, and a Synthesizer limits that.
        discards: Sender<Task>,
    },
    Simulated(Arc<dyn HostWork>),
}

/// The threads themselves, to be joined after every [`WorkerPool`] is gone.
pub struct WorkerThreads(Vec<JoinHandle<()>>);

/// Threads for the loops of express tasks, as many as rayon has: where both have work, the system divides the cores.
///
/// # Errors
/// If the system refuses a thread.
fn start_express() -> std::io::Result<(Arc<ThreadPool>, Vec<JoinHandle<()>>)> {
    let mut threads = Vec::new();
    let spawn = |thread: ThreadBuilder| {
        let name = format!("cuzk-worker-express-{}", thread.index());
        threads.push(std::thread::Builder::new().name(name).spawn(|| thread.run())?);
        Ok(())
    };
    let pool =
        ThreadPoolBuilder::new().num_threads(rayon::current_num_threads()).spawn_handler(spawn).build();
    Ok((Arc::new(pool.map_err(std::io::Error::other)?), threads))
}

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
    /// One thread more than `num_threads` is started, for work that does not wait ([`WorkerPool::num_threads`] does not
    /// count it). `num_threads` 0: tasks run where they are given, for simulations on a paused clock.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub fn start(num_threads: usize) -> std::io::Result<(Self, WorkerThreads)> {
        // Twice the threads: a rebuilt Synthesizer may add a full set behind its predecessor's.
        let num_started = if num_threads == 0 { 0 } else { num_threads + 1 };
        let (tasks, receiver) = bounded(2 * num_started.max(1));
        let (discards, discarded) = unbounded();
        let mut threads = Vec::new();
        if num_started > 0 {
            let (express, express_threads) = start_express()?;
            for index in 0..num_started {
                let (receiver, discarded, express) =
                    (receiver.clone(), discarded.clone(), Arc::clone(&express));
                let name = format!("cuzk-worker-{index}");
                let thread = std::thread::Builder::new().name(name);
                threads.push(thread.spawn(move || work(&receiver, &discarded, &express))?);
            }
            // These end when the last worker has let go of them.
            threads.extend(express_threads);
        }
        Ok((Self { workers: Workers::Threads { tasks, discards }, num_threads }, WorkerThreads(threads)))
    }

    /// Workers that only take their time, on the clock of the arbiter that [`WorkerPool::run`] is called on, and then
    /// do what `host` does.
    pub fn simulated(num_workers: usize, host: Arc<dyn HostWork>) -> (Self, WorkerThreads) {
        let pool = Self { workers: Workers::Simulated(host), num_threads: num_workers.max(1) };
        (pool, WorkerThreads(Vec::new()))
    }

    /// What does the work instead of this machine.
    pub(super) fn simulated_host(&self) -> Option<Arc<dyn HostWork>> {
        match &self.workers {
            Workers::Threads { .. } => None,
            Workers::Simulated(host) => Some(Arc::clone(host)),
        }
    }

    pub fn num_threads(&self) -> usize {
        self.num_threads
    }

    /// Gives a task to the next free thread; `freed` is told when it is done.
    ///
    /// # Errors
    /// [`Refused`] with the task, if the channel is full.
    pub fn run(&self, task: Task, freed: Recipient<WorkerFreed>) -> Result<(), Refused> {
        let tasks = match &self.workers {
            Workers::Threads { tasks, .. } if self.num_threads > 0 => tasks,
            Workers::Threads { .. } => {
                run_task(task, &freed);
                return Ok(());
            }
            Workers::Simulated(_) => {
                actix_rt::spawn(async move {
                    tokio::time::sleep(task.takes).await;
                    run_task(task, &freed);
                });
                return Ok(());
            }
        };
        tasks.try_send((task, freed)).map_err(|error| match error {
            TrySendError::Full((task, _)) | TrySendError::Disconnected((task, _)) => Refused(task),
        })
    }

    /// Has tasks dropped that will never be run: by the threads, after what they are at. What tasks are made of is partly the
    /// host's, and may take its time over its end, or panic.
    pub fn discard(&self, tasks: impl IntoIterator<Item = Task>) {
        for task in tasks {
            match &self.workers {
                Workers::Threads { discards, .. } if self.num_threads > 0 => {
                    if let Err(unsent) = discards.send(task) {
                        drop_task(unsent.into_inner());
                    }
                }
                _ => drop_task(task),
            }
        }
    }
}

/// A thread. When the last sending end is gone, what was sent is still done, and what was discarded dropped. Idle ones wait for
/// both: somebody may wait for an answer that only the drop of a task gives.
fn work(
    tasks: &Receiver<(Task, Recipient<WorkerFreed>)>,
    discarded: &Receiver<Task>,
    express: &Arc<ThreadPool>,
) {
    loop {
        select! {
            recv(tasks) -> task => match task {
                Ok((task, freed)) if task.is_express => {
                    let express = Arc::clone(express);
                    let work = Box::new(move || loops::with(&express, task.work));
                    run_task(Task { work, ..task }, &freed);
                }
                Ok((task, freed)) => run_task(task, &freed),
                Err(_) => break,
            },
            // An error: the sending ends are gone, and `tasks` says so too once it is empty.
            recv(discarded) -> task => task.into_iter().for_each(drop_task),
        }
    }
    discarded.try_iter().for_each(drop_task);
}

fn drop_task(task: Task) {
    if let Err(what) = catch(|| drop(task)) {
        tracing::error!(%what, "a task that is not done any more panicked when it was dropped");
    }
}

/// Tells the Synthesizer when it is dropped, so that no way out of a task can lose a thread.
struct Occupied<'f>(&'f Recipient<WorkerFreed>);

impl Drop for Occupied<'_> {
    fn drop(&mut self) {
        self.0.do_send(WorkerFreed);
    }
}

/// Never unwinds: nothing would replace the thread.
fn run_task(task: Task, freed: &Recipient<WorkerFreed>) {
    let ended = catch(|| {
        let _occupied = Occupied(freed);
        // Tasks turn panics of the work itself into typed errors; this is for a defect in the task's own frame.
        if let Err(what) = catch(task.work) {
            tracing::error!(%what, "a worker task panicked outside its work");
        }
    });
    // Only the log can have panicked; it is not asked to tell that.
    drop(ended);
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::RecvTimeoutError;

    use super::*;

    #[test]
    fn what_is_discarded_is_dropped_by_a_thread_that_has_nothing_to_do() {
        let (pool, threads) = WorkerPool::start(1).unwrap();
        let (held, dropped) = bounded::<()>(1);
        let work = Box::new(move || drop(held));
        pool.discard([Task { work, takes: Duration::ZERO, is_express: false }]);
        let limit = Duration::from_secs(60);
        assert_eq!(dropped.recv_timeout(limit), Err(RecvTimeoutError::Disconnected), "it is still held");
        drop(pool);
        threads.join();
    }
}
