//! The engine's own thread: an actix system of its own, and the join of everything that ran under it.

use actix::Actor;
use actix_rt::{Arbiter, System};
use tokio::sync::{oneshot, watch};

use crate::actors::supervisor::{EngineLinks, Supervisor, SupervisorConfig};
use crate::actors::synthesizer::pool::{WorkerPool, WorkerThreads};
use crate::journal::{JournalThread, OpenJournal};

/// A journal for the Scheduler, and the thread that writes it.
pub(super) type StartedJournal = (Option<OpenJournal>, Option<JournalThread>);

/// Runs until the Supervisor has stopped. Then every arbiter, every worker thread and the system itself have ended.
pub(super) fn run(
    config: SupervisorConfig,
    pool: WorkerPool,
    workers: WorkerThreads,
    journal: StartedJournal,
    links: oneshot::Sender<EngineLinks>,
    stopped: watch::Sender<bool>,
) {
    let (journal, journal_thread) = journal;
    let system = System::new();
    let arbiters: Vec<Arbiter> = system.block_on(async move {
        let (arbiters_sender, arbiters) = oneshot::channel();
        Supervisor::new(config, pool, links, arbiters_sender).with_journal(journal).start();
        // An error: the Supervisor died. Its arbiters can no longer be joined; the end of the system stops them.
        arbiters.await.unwrap_or_default()
    });
    for arbiter in &arbiters {
        arbiter.stop();
    }
    for arbiter in arbiters {
        if arbiter.join().is_err() {
            tracing::error!("a device's thread ended by a panic");
        }
    }
    System::current().stop();
    // Drops the actors of this thread, and with the Synthesizer the pool's sending end.
    if let Err(error) = system.run() {
        tracing::error!(%error, "the engine's system did not end as it should");
    }
    workers.join();
    // Its writer went with the Scheduler: what it was asked for is written now.
    if let Some(thread) = journal_thread {
        thread.join();
    }
    stopped.send_replace(true);
}
