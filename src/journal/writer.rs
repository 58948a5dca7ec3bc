//! Who writes: a thread of its own, so that no actor waits for a disk. Changes that come while it writes are written
//! together by the next transaction (group commit): one wait for the disk for all of them.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use actix::Recipient;
use crossbeam_channel::{unbounded, Receiver, Sender};

use super::store::{Op, Reader, Store};
use crate::error::JournalError;
use crate::ids::JobId;
use crate::messages::journal::{JournalWritten, WrittenOp};

/// Bytes of one transaction, roughly: requests may have hundreds of megabytes each, and the library holds what it
/// writes in memory.
const BATCH_BYTES_MAX: usize = 256 << 20;

/// Changes of one transaction: bounds how long the first of them waits for the others.
const BATCH_OPS_MAX: usize = 1024;

struct Command {
    op: Op,
    number: u64,
    now_unix_ms: u64,
    answer: Recipient<JournalWritten>,
}

/// The end of the journal that its one user holds. Every change is answered by [`JournalWritten`], in order. Dropping
/// it closes the journal, once what was asked for is written.
pub struct JournalWriter {
    way: Way,
    reader: Reader,
}

enum Way {
    Thread(Sender<Command>),
    /// Where it is called, for simulations: a paused clock would not wait for another thread.
    Inline(Box<Mutex<Store>>),
}

/// The thread, to be joined after its [`JournalWriter`] is gone.
pub struct JournalThread(JoinHandle<()>);

impl JournalThread {
    /// Waits until everything is written and the journal is closed.
    pub fn join(self) {
        if self.0.join().is_err() {
            tracing::error!("the journal's thread ended by a panic");
        }
    }
}

impl JournalWriter {
    /// Writes on a thread of its own.
    ///
    /// # Errors
    /// If the system refuses it.
    pub fn on_thread(store: Store) -> std::io::Result<(Self, JournalThread)> {
        let reader = store.reader();
        let (sender, commands) = unbounded();
        let thread =
            std::thread::Builder::new().name("cuzk-journal".into()).spawn(move || run(store, &commands))?;
        Ok((Self { way: Way::Thread(sender), reader }, JournalThread(thread)))
    }

    /// Writes where it is called, before [`JournalWriter::write`] returns.
    pub fn inline(store: Store) -> Self {
        let reader = store.reader();
        Self { way: Way::Inline(Box::new(Mutex::new(store))), reader }
    }

    pub fn reader(&self) -> Reader {
        self.reader.clone()
    }

    /// Has a change written, and `answer` told of it. `number` comes back with the answer.
    pub fn write(&self, op: Op, number: u64, now_unix_ms: u64, answer: Recipient<JournalWritten>) {
        match &self.way {
            Way::Thread(commands) => {
                let sent = commands.send(Command { op, number, now_unix_ms, answer });
                if let Err(unsent) = sent {
                    let Command { op, number, answer, .. } = unsent.0;
                    let path = self.reader.path();
                    let what = "its thread has died".to_owned();
                    let result = Err(JournalError::Unwritable { path, what });
                    answer.do_send(JournalWritten { ops: vec![written(&op, number)], result });
                }
            }
            Way::Inline(store) => {
                let ops = vec![written(&op, number)];
                let mut store = store.lock().unwrap_or_else(PoisonError::into_inner);
                let result = store.commit(vec![op], now_unix_ms);
                answer.do_send(JournalWritten { ops, result: result.map(Arc::from) });
            }
        }
    }
}

fn written(op: &Op, number: u64) -> WrittenOp {
    let job = op.job().unwrap_or(JobId(0));
    match op {
        Op::Accept { .. } => WrittenOp::Accepted { job, number },
        Op::Update { .. } => WrittenOp::Updated { job, number },
        Op::Finish { .. } => WrittenOp::Finished { job, number },
        Op::TakeInHand { .. } => WrittenOp::TakenInHand { job },
        Op::Forget { .. } => WrittenOp::Forgotten { number },
        Op::Probe => WrittenOp::Other,
    }
}

/// Until the writer is gone and all is written.
fn run(mut store: Store, commands: &Receiver<Command>) {
    while let Ok(first) = commands.recv() {
        let answer = first.answer.clone();
        let now_unix_ms = first.now_unix_ms;
        let mut num_bytes = first.op.num_bytes();
        let mut ops = vec![written(&first.op, first.number)];
        let mut batch = vec![first.op];
        while batch.len() < BATCH_OPS_MAX && num_bytes < BATCH_BYTES_MAX {
            let Ok(next) = commands.try_recv() else { break };
            num_bytes += next.op.num_bytes();
            ops.push(written(&next.op, next.number));
            batch.push(next.op);
        }
        let result = store.commit(batch, now_unix_ms);
        answer.do_send(JournalWritten { ops, result: result.map(Arc::from) });
    }
}
