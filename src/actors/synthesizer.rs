//! The Synthesizer: CPU worker threads for everything that takes time on the host.
//!
//! ```text
//! Engine, Scheduler --commands--> Synthesizer --tasks (bounded channel)--> worker threads --facts--> Scheduler
//! ```
//!
//! The actor itself only orders tasks: it hands one to the pool when a thread is free, and keeps the others ranked.
//! Verification goes before everything, since it finishes what is nearly done; all else goes by priority, so that a
//! CRITICAL job waits for no other's work at any step. Within a level decoding goes first, since a caller waits for
//! it; then circuits, then the host's own proofs, then witnesses. One thread more than there are cores for is kept for
//! verification and CRITICAL work, which then need not wait for the end of a witness that takes a minute; nor do their
//! loops, which have threads beside rayon's ([`crate::loops`]). A task's panic becomes a typed error, and the thread
//! survives, whatever was panicked with. Nothing that a host has written (its workloads' methods, their drop) runs in the
//! actor itself.

mod circuits;
pub mod host;
pub mod pool;
mod tasks;

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, ActorContext, AsyncContext, Context, Handler, Recipient, ResponseFuture};
use tokio::sync::oneshot;

use self::host::{HostTask, HostWork, RealHost, Unanswered};
use self::pool::{Refused, Task, WorkerPool};
use crate::circuits::WorkDecoder;
use crate::error::{catch, EngineError, ScheduleError};
use crate::messages::job::Priority;
use crate::messages::lifecycle::StopActor;
use crate::messages::synthesis::{
    CheckKey, DecodeRequest, DecodedRequest, MeasureCircuit, PrepareCircuit, SynthesizeWitness,
    SynthesizerAddress, SynthesizerPeers, VerifyJob, VerifyProofs, WorkerFreed,
};
use crate::policy::admission::limit_of;

/// Folders and limits.
#[derive(Clone, Debug)]
pub struct SynthesizerConfig {
    pub params_dir: PathBuf,
    pub shape_cache_dir: Option<PathBuf>,
    pub verdict_dir: Option<PathBuf>,
    /// A key is used folded where its fold is beside its parameter file, if both and the shape are no more than that while
    /// they are loaded: the engine's host memory, where a plain key will do if a folded one is too large. `None`: never.
    pub fold_limit_bytes: Option<u64>,
    /// Of a host's own formats.
    pub decoders: Vec<Arc<dyn WorkDecoder>>,
    /// Requests that may wait to be decoded; CRITICAL ones have a limit of their own ([`limit_of`]).
    pub max_waiting_decodes: usize,
}

/// What kind of task, in order of service within a priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TaskClass {
    Verify,
    Decode,
    Measure,
    Prepare,
    CheckKey,
    Witness,
}

/// Smaller goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct TaskRank {
    // The order is that of the fields; `false` before `true`, the highest priority first.
    is_not_verify: bool,
    priority: Reverse<Priority>,
    class: TaskClass,
    arrival: u64,
}

impl TaskRank {
    fn new(class: TaskClass, priority: Priority, arrival: u64) -> Self {
        Self { is_not_verify: class != TaskClass::Verify, priority: Reverse(priority), class, arrival }
    }

    /// It may take the thread that is kept for such work, and its loops have threads of their own.
    fn is_express(&self) -> bool {
        !self.is_not_verify || self.priority.0 == Priority::Critical
    }
}

/// Requests that wait to be decoded.
#[derive(Clone, Copy, Debug, Default)]
struct WaitingDecodes {
    all: usize,
    critical: usize,
}

/// See the module.
pub struct Synthesizer {
    config: SynthesizerConfig,
    pool: WorkerPool,
    host: Arc<dyn HostWork>,
    /// Shared with tasks: a clone of nine addresses costs more than some of them.
    peers: Arc<SynthesizerPeers>,
    waiting: BTreeMap<TaskRank, Task>,
    waiting_decodes: WaitingDecodes,
    busy_threads: usize,
    arrivals: u64,
    freed: Option<Recipient<WorkerFreed>>,
    /// Told to stop: tells those whose request was never decoded this apart from a defect.
    stopping: Rc<Cell<bool>>,
}

/// After a restart the pool may still be full of the predecessor's tasks, of whose end nobody tells us.
const FULL_POOL_RETRY: Duration = Duration::from_millis(50);

impl Synthesizer {
    pub fn new(config: SynthesizerConfig, pool: WorkerPool, peers: SynthesizerPeers) -> Self {
        let host = pool.simulated_host().unwrap_or_else(|| Arc::new(RealHost { config: config.clone() }));
        Self {
            config,
            pool,
            host,
            peers: Arc::new(peers),
            waiting: BTreeMap::new(),
            waiting_decodes: WaitingDecodes::default(),
            busy_threads: 0,
            arrivals: 0,
            freed: None,
            stopping: Rc::default(),
        }
    }

    /// What peers may say to the Synthesizer at `address`.
    pub fn address(address: &actix::Addr<Self>) -> SynthesizerAddress {
        SynthesizerAddress {
            decode: address.clone().recipient(),
            measure: address.clone().recipient(),
            prepare: address.clone().recipient(),
            witness: address.clone().recipient(),
            verify: address.clone().recipient(),
            check_key: address.clone().recipient(),
            verify_job: address.clone().recipient(),
        }
    }

    fn add(
        &mut self,
        class: TaskClass,
        priority: Priority,
        work: Box<dyn FnOnce() + Send>,
        takes: Duration,
        ctx: &mut Context<Self>,
    ) {
        self.arrivals += 1;
        let rank = TaskRank::new(class, priority, self.arrivals);
        self.waiting.insert(rank, Task { work, takes, is_express: rank.is_express() });
        self.feed(ctx);
    }

    fn give(&mut self, command: HostTask, ctx: &mut Context<Self>) {
        let (class, priority) = (command.class(), command.priority());
        let takes = self.host.duration(&command);
        let (host, peers) = (Arc::clone(&self.host), Arc::clone(&self.peers));
        let unanswered = Unanswered::of(&command);
        let work = Box::new(move || {
            if let Err(what) = catch(|| host.run(command, &peers)) {
                unanswered.answer(what, &peers);
            }
        });
        self.add(class, priority, work, takes, ctx);
    }

    /// Hands tasks to the pool while threads are free.
    fn feed(&mut self, ctx: &mut Context<Self>) {
        while let Some((rank, _)) = self.waiting.first_key_value() {
            if self.busy_threads >= self.pool.num_threads().max(1) + usize::from(rank.is_express()) {
                return;
            }
            let Some((rank, task)) = self.waiting.pop_first() else { return };
            let freed = self.freed.clone().expect("set when the actor started");
            match self.pool.run(task, freed) {
                Ok(()) => {
                    self.busy_threads += 1;
                    if rank.class == TaskClass::Decode {
                        self.waiting_decodes.all -= 1;
                        self.waiting_decodes.critical -= usize::from(rank.priority.0 == Priority::Critical);
                    }
                }
                Err(Refused(task)) => {
                    self.waiting.insert(rank, task);
                    ctx.run_later(FULL_POOL_RETRY, |actor, ctx| actor.feed(ctx));
                    return;
                }
            }
        }
    }
}

impl Drop for Synthesizer {
    /// Told to stop, or dead: what still waits is not done any more.
    fn drop(&mut self) {
        self.pool.discard(std::mem::take(&mut self.waiting).into_values());
    }
}

impl Actor for Synthesizer {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.freed = Some(ctx.address().recipient());
    }
}

impl Handler<WorkerFreed> for Synthesizer {
    type Result = ();

    fn handle(&mut self, _: WorkerFreed, ctx: &mut Self::Context) {
        self.busy_threads = self.busy_threads.saturating_sub(1);
        self.feed(ctx);
    }
}

impl Handler<DecodeRequest> for Synthesizer {
    type Result = ResponseFuture<Result<DecodedRequest, EngineError>>;

    fn handle(&mut self, decode: DecodeRequest, ctx: &mut Self::Context) -> Self::Result {
        let waiting = self.waiting_decodes;
        let jobs = if decode.priority == Priority::Critical { waiting.critical } else { waiting.all };
        let limit = limit_of(decode.priority, self.config.max_waiting_decodes);
        if jobs >= limit {
            let full = ScheduleError::QueueFull { jobs, limit };
            return Box::pin(async move { Err(full.into()) });
        }
        let (reply, decoded) = oneshot::channel();
        let (params_dir, decoders) = (self.config.params_dir.clone(), self.config.decoders.clone());
        self.waiting_decodes.all += 1;
        self.waiting_decodes.critical += usize::from(decode.priority == Priority::Critical);
        let work = Box::new(move || {
            if decode.caller.is_some_and(|caller| caller.strong_count() == 0) {
                return;
            }
            // The caller may have gone away meanwhile; then nobody needs the answer.
            let _ = reply.send(tasks::decode(decode.request, decode.keep_bytes, &params_dir, &decoders));
        });
        self.add(TaskClass::Decode, decode.priority, work, Duration::ZERO, ctx);
        let stopping = Rc::clone(&self.stopping);
        Box::pin(async move {
            decoded.await.unwrap_or_else(|_| {
                Err(if stopping.get() {
                    ScheduleError::Draining.into()
                } else {
                    // A panic of the request's is an answer: what is lost was lost with this actor.
                    ScheduleError::NoSynthesizer("it died and is being rebuilt".into()).into()
                })
            })
        })
    }
}

/// Commands that a worker answers.
macro_rules! to_worker {
    ($($command:ty => $task:ident),* $(,)?) => {$(
        impl Handler<$command> for Synthesizer {
            type Result = ();

            fn handle(&mut self, command: $command, ctx: &mut Self::Context) {
                self.give(HostTask::$task(command), ctx);
            }
        }
    )*};
}

to_worker! {
    MeasureCircuit => Measure,
    PrepareCircuit => Prepare,
    SynthesizeWitness => Witness,
    VerifyProofs => Verify,
    CheckKey => CheckKey,
    VerifyJob => VerifyJob,
}

impl Handler<StopActor> for Synthesizer {
    type Result = ();

    fn handle(&mut self, _: StopActor, ctx: &mut Self::Context) {
        self.stopping.set(true);
        ctx.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verification_first_then_priority_then_class_then_arrival() {
        let expected = [
            TaskRank::new(TaskClass::Verify, Priority::Critical, 9),
            TaskRank::new(TaskClass::Verify, Priority::Low, 8),
            TaskRank::new(TaskClass::Decode, Priority::Critical, 7),
            TaskRank::new(TaskClass::Witness, Priority::Critical, 5),
            TaskRank::new(TaskClass::Witness, Priority::Critical, 6),
            TaskRank::new(TaskClass::Decode, Priority::Normal, 4),
            TaskRank::new(TaskClass::Measure, Priority::Normal, 6),
            TaskRank::new(TaskClass::Prepare, Priority::Normal, 3),
            TaskRank::new(TaskClass::CheckKey, Priority::Normal, 2),
            TaskRank::new(TaskClass::Witness, Priority::Low, 1),
        ];
        let mut ranks = expected;
        ranks.reverse();
        ranks.sort();
        assert_eq!(ranks, expected);
    }
}
