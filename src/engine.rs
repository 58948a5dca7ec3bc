//! [`Engine`]: build, submit, await, cancel. The only handle a host touches.
//!
//! ```no_run
//! use cuzk::circuits::FilecoinRequest;
//! use cuzk::engine::{Engine, EngineConfig};
//! use cuzk::messages::job::{Payload, ProofRequest};
//!
//! # fn request() -> FilecoinRequest { FilecoinRequest::default() }
//! let engine = Engine::start(EngineConfig::default())?;
//! let job = engine.submit_blocking(ProofRequest::new(Payload::Filecoin(Box::new(request()))))?;
//! let outcome = job.wait_blocking()?;
//! println!("{} bytes, verified", outcome.proof.len());
//! # Ok::<(), cuzk::error::EngineError>(())
//! ```

mod block;
pub mod config;
mod deadline;
mod handle;
mod journal;
pub mod memory;
pub mod preload;
mod system;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use actix::{Message, Recipient};
use tokio::sync::{oneshot, watch};

use self::block::block_on;
pub use self::config::{DeviceSpec, EngineConfig, Workers};
use self::deadline::Clock;
pub use self::deadline::Deadlines;
pub use self::handle::{JobEvents, JobHandle};
use self::journal::{JournalLinks, JournalWay};
pub use self::preload::Preload;
use crate::actors::supervisor::{EngineLinks, Supervisor};
use crate::actors::synthesizer::pool::WorkerPool;
use crate::actors::ArbiterLayout;
use crate::circuits::Undecoded;
use crate::error::{ConfigError, EngineError, ScheduleError};
use crate::ids::JobId;
use crate::journal::{JournalConfig, Retention};
use crate::messages::job::{
    BlindingSource, CancelJob, CancelOutcome, JobAccepted, Payload, Priority, ProofRequest, SubmitJob,
};
use crate::messages::journal::Durability;
use crate::messages::lifecycle::{Reconfigure, RuntimeSettings, Shutdown};
use crate::messages::status::{EngineStatus, Readiness};
use crate::messages::synthesis::{DecodeRequest, DecodedRequest};

/// A running engine. Clones are cheap and speak to the same one, from any thread, in any runtime or none.
///
/// Its actors live on threads of their own. When the last clone and the last [`JobHandle`] are dropped, jobs that are
/// left (detached ones) are cancelled and every thread is joined; [`Engine::shutdown`] lets them finish first.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    links: EngineLinks,
    /// `None`: the engine has no journal.
    journal: Option<JournalLinks>,
    /// `true` once every thread of the engine has ended, but for its last few instructions.
    stopped: watch::Receiver<bool>,
    /// Somebody wants it to stop.
    is_told_to_stop: AtomicBool,
    deadlines: Deadlines,
    clock: Clock,
    /// `None`: the actors live on the host's own arbiter, or the thread was joined.
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("stopped", &*self.inner.stopped.borrow()).finish_non_exhaustive()
    }
}

impl Engine {
    /// Starts an engine on threads of its own and returns as soon as it takes jobs; devices may still be opening
    /// (see [`Engine::wait_ready`]).
    ///
    /// # Errors
    /// [`EngineError::Config`] if the configuration is contradictory, [`EngineError::Journal`] if the journal cannot be
    /// opened, [`EngineError::Internal`] if the system refuses a thread.
    pub fn start(mut config: EngineConfig) -> Result<Self, EngineError> {
        check(&config)?;
        // Inside the actor only where the clock is a simulation's: a host's code may be slow, and panic.
        config.synthesis_threads = config.synthesis_threads.max(1);
        let (started, journal) = journal::start(config.journal.as_ref(), JournalWay::Thread)?;
        let (pool, workers) = start_pool(&config)?;
        let clock =
            Clock::start().map_err(|error| internal(format!("no thread for the engine's clock: {error}")))?;
        let (stopped_sender, stopped) = watch::channel(false);
        let (links_sender, links) = oneshot::channel();
        let deadlines = config.deadlines;
        let config = config.into_supervisor();
        let thread = std::thread::Builder::new()
            .name("cuzk-system".into())
            .spawn(move || system::run(config, pool, workers, started, links_sender, stopped_sender))
            .map_err(|error| internal(format!("no thread for the engine: {error}")))?;
        let links = block_on(links).map_err(|_| internal("the engine's thread ended at once".into()))?;
        Ok(Self::new(Inner {
            links,
            journal,
            stopped,
            is_told_to_stop: AtomicBool::new(false),
            deadlines,
            clock,
            thread: Mutex::new(Some(thread)),
        }))
    }

    /// Starts the actors on the current arbiter of a running actix system: for simulations, where a paused clock is
    /// then exact. Blocking methods must not be called on that thread. The layout is
    /// [`ArbiterLayout::SingleThread`], whatever the configuration says.
    ///
    /// # Errors
    /// As [`Engine::start`].
    ///
    /// # Panics
    /// If there is no current arbiter.
    pub async fn start_on_current_arbiter(mut config: EngineConfig) -> Result<Self, EngineError> {
        use actix::Actor;
        check(&config)?;
        config.arbiter_layout = ArbiterLayout::SingleThread;
        let ((started, _), journal) = journal::start(config.journal.as_ref(), JournalWay::Inline)?;
        let (pool, workers) = start_pool(&config)?;
        let (stopped_sender, stopped) = watch::channel(false);
        let (links_sender, links) = oneshot::channel();
        let (arbiters_sender, arbiters) = oneshot::channel();
        let deadlines = config.deadlines;
        Supervisor::new(config.into_supervisor(), pool, links_sender, arbiters_sender)
            .with_journal(started)
            .start();
        actix_rt::spawn(async move {
            // All on this arbiter: there is none to join. Worker threads end by themselves with the pool.
            drop(workers);
            let _ = arbiters.await;
            stopped_sender.send_replace(true);
        });
        let links = links.await.map_err(|_| internal("the supervisor did not start".into()))?;
        Ok(Self::new(Inner {
            links,
            journal,
            stopped,
            is_told_to_stop: AtomicBool::new(false),
            deadlines,
            clock: Clock::here(),
            thread: Mutex::new(None),
        }))
    }

    fn new(inner: Inner) -> Self {
        Self { inner: Arc::new(inner) }
    }

    /// Decodes, validates and accepts a request. A refused one leaves no trace. With a journal, the job is in it before
    /// this returns ([`JobHandle::is_durable`]); after a restart this waits until every job of the journal is queued
    /// again, but for CRITICAL work.
    ///
    /// # Errors
    /// [`EngineError::Request`] naming the field, [`EngineError::Schedule`] if the queue is full, the engine is
    /// shutting down or no device can ever serve it, [`EngineError::Journal`] if the journal cannot be written,
    /// [`EngineError::NoAnswer`] if an actor does not answer in time.
    pub async fn submit(&self, request: ProofRequest) -> Result<JobHandle, EngineError> {
        // At the highest level: every line about a job names it, whatever the filter lets through.
        let span = tracing::error_span!("job", job = tracing::field::Empty, request_id = %request.request_id);
        let priority = request.priority;
        let rank = priority.unwrap_or_else(|| own_priority(&request.payload));
        if rank != Priority::Critical {
            self.wait_recovered().await?;
        }
        let keep_bytes = self.inner.journal.is_some() && matches!(request.blinding, BlindingSource::OsRandom);
        let undecoded = match request.payload {
            Payload::Workload(workload) => Ok(DecodedRequest { workload, encoded: None }),
            Payload::Filecoin(request) => Err(Undecoded::Filecoin(request)),
            Payload::Encoded(work) => Err(Undecoded::Encoded(work)),
        };
        let DecodedRequest { workload, encoded } = match undecoded {
            Ok(decoded) => decoded,
            Err(request) => {
                let decode = self.inner.links.decode.borrow().clone();
                // Lives as long as somebody waits here.
                let caller = Arc::new(());
                let caller_seen = Some(Arc::downgrade(&caller));
                let request = DecodeRequest { request, priority: rank, keep_bytes, caller: caller_seen };
                let decoded = self
                    .ask("decode a request", &decode, request, self.inner.deadlines.decode)
                    .await
                    .map_err(|error| self.synthesizer_error(error));
                drop(caller);
                decoded??
            }
        };
        let submit = SubmitJob {
            request_id: request.request_id,
            workload,
            priority,
            deadline: request.deadline,
            blinding: request.blinding,
            placement: request.placement,
            encoded,
            span,
        };
        let accepted = self.ask_scheduler("submit a job", &self.inner.links.submit, submit).await??;
        self.acknowledge(accepted).await
    }

    /// The job is ours once it is where it has to be.
    async fn acknowledge(&self, mut accepted: JobAccepted) -> Result<JobHandle, EngineError> {
        if let Durability::Writing(written) = accepted.durability {
            let limit = self.inner.deadlines.answer;
            accepted.durability = match self.inner.clock.within(limit, written).await {
                Some(Ok(written)) => {
                    written?;
                    Durability::Written
                }
                // It has ended meanwhile, and the disk has not said that it has anything of it.
                Some(Err(_)) if accepted.result.borrow().is_some() => Durability::NotJournalled,
                Some(Err(_)) => return Err(self.unreachable()),
                // The disk hangs. Nobody has the job's ticket then: it is let go.
                None => return Err(no_answer("write a job to the journal", limit)),
            };
        }
        Ok(JobHandle::new(self.clone(), accepted))
    }

    /// As [`Engine::submit`], blocking. Not for the threads of an async runtime.
    ///
    /// # Errors
    /// As [`Engine::submit`].
    pub fn submit_blocking(&self, request: ProofRequest) -> Result<JobHandle, EngineError> {
        block_on(self.submit(request))
    }

    /// Cancels a job, whoever waits for it. Idempotent. Where there is a journal, its answer waits until no later process will
    /// prove the job.
    ///
    /// # Errors
    /// [`EngineError::Schedule`] if the engine has stopped, [`EngineError::NoAnswer`] if it does not answer in time,
    /// [`EngineError::Journal`] if the job has ended and the journal cannot be written: try again.
    pub async fn cancel(&self, job: JobId) -> Result<CancelOutcome, EngineError> {
        self.ask_scheduler("cancel a job", &self.inner.links.cancel, CancelJob { job }).await?
    }

    /// As [`Engine::cancel`], blocking.
    ///
    /// # Errors
    /// As [`Engine::cancel`].
    pub fn cancel_blocking(&self, job: JobId) -> Result<CancelOutcome, EngineError> {
        block_on(self.cancel(job))
    }

    /// Other settings from now on; [`crate::config::Config::runtime_settings`] makes them. Nothing that was let in under the
    /// former ones is put out. Waits for nothing.
    pub fn reconfigure(&self, settings: RuntimeSettings) {
        self.inner.links.reconfigure.do_send(Reconfigure { settings });
    }

    /// The engine's state: the last snapshot that was published. Waits for nothing, least of all for proving.
    pub fn status(&self) -> Arc<EngineStatus> {
        let links = &self.inner.links;
        let status = links.status.borrow().clone();
        // Of a Scheduler that dies its status goes first.
        if links.submit.connected() && links.status.has_changed().is_ok() {
            return status;
        }
        // The last words of a Scheduler that is no more: nothing is ready whose state nobody knows.
        let reasons = vec![self.unreachable().to_string()];
        Arc::new(EngineStatus { ready: false, degraded: false, reasons, ..EngineStatus::clone(&status) })
    }

    /// Whether the engine can prove, and what is not as it should be: for health checks. Waits for nothing.
    pub fn readiness(&self) -> Readiness {
        self.status().readiness()
    }

    /// Waits until no device is left, or no Synthesizer, and none will come back, and says why: nothing will ever be
    /// proved again, and a process had better end with an error.
    ///
    /// # Errors
    /// [`EngineError::Schedule`] if the engine stops before: because it was told to, or because its Scheduler died, and
    /// then a process had better end too.
    pub async fn wait_fatal(&self) -> Result<String, EngineError> {
        let status = self.wait_status(|status| status.fatal.is_some()).await?;
        Ok(status.fatal.clone().expect("waited until there is a reason"))
    }

    /// Waits until the published state is as wanted, and gives that state.
    ///
    /// # Errors
    /// [`EngineError::Schedule`] if the engine stops before.
    pub async fn wait_status(
        &self,
        mut is_wanted: impl FnMut(&EngineStatus) -> bool,
    ) -> Result<Arc<EngineStatus>, EngineError> {
        let mut status = self.inner.links.status.clone();
        let reached = status.wait_for(|status| is_wanted(status)).await.map(|status| Arc::clone(&status));
        reached.map_err(|_| self.unreachable())
    }

    /// As [`Engine::wait_status`], blocking.
    ///
    /// # Errors
    /// As [`Engine::wait_status`].
    pub fn wait_status_blocking(
        &self,
        is_wanted: impl FnMut(&EngineStatus) -> bool,
    ) -> Result<Arc<EngineStatus>, EngineError> {
        block_on(self.wait_status(is_wanted))
    }

    /// Waits until jobs are accepted, the warmup list is loaded, and at least one device can prove.
    ///
    /// # Errors
    /// [`EngineError::Schedule`] if every device was given up, or the engine stops before.
    pub async fn wait_ready(&self) -> Result<(), EngineError> {
        let mut status = self.inner.links.status.clone();
        let is_settled = |status: &EngineStatus| status.ready || status.draining || status.fatal.is_some();
        let settled = status.wait_for(|status| is_settled(status)).await;
        match settled {
            _ if !self.inner.links.submit.connected() => Err(self.unreachable()),
            Ok(status) if status.ready => Ok(()),
            Ok(status) => {
                let fatal = status.fatal.clone();
                Err(ScheduleError::NoDevice(fatal.unwrap_or_else(|| status.reasons.join("; "))).into())
            }
            Err(_) => Err(self.unreachable()),
        }
    }

    /// As [`Engine::wait_ready`], blocking.
    ///
    /// # Errors
    /// As [`Engine::wait_ready`].
    pub fn wait_ready_blocking(&self) -> Result<(), EngineError> {
        block_on(self.wait_ready())
    }

    /// Takes no new jobs, lets accepted ones finish for `drain` at most, then ends those that are left with
    /// [`ScheduleError::Draining`], stops every actor and joins every thread. Any clone may call it, more than once;
    /// the shortest `drain` counts.
    pub async fn shutdown(&self, drain: Duration) {
        self.inner.is_told_to_stop.store(true, Ordering::Release);
        self.inner.links.shutdown.do_send(Shutdown { drain });
        let mut stopped = self.inner.stopped.clone();
        // An error means that the sender is gone, and the thread with it.
        let _ = stopped.wait_for(|stopped| *stopped).await;
        self.inner.join();
    }

    /// As [`Engine::shutdown`], blocking.
    pub fn shutdown_blocking(&self, drain: Duration) {
        block_on(self.shutdown(drain));
    }

    /// An actor's answer, waited for until `limit` has passed. What was not begun by then is not done.
    async fn ask<M>(
        &self,
        asked: &'static str,
        actor: &Recipient<M>,
        question: M,
        limit: Duration,
    ) -> Result<M::Result, EngineError>
    where
        M: Message + Send + 'static,
        M::Result: Send,
    {
        match self.inner.clock.within(limit, actor.send(question)).await {
            Some(answer) => answer.map_err(|_| self.unreachable()),
            None => Err(no_answer(asked, limit)),
        }
    }

    /// What the Scheduler answers: at once, or when its journal has.
    async fn ask_scheduler<M>(
        &self,
        asked: &'static str,
        scheduler: &Recipient<M>,
        question: M,
    ) -> Result<M::Result, EngineError>
    where
        M: Message + Send + 'static,
        M::Result: Send,
    {
        self.ask(asked, scheduler, question, self.inner.deadlines.answer).await
    }

    /// The Scheduler's channels are closed.
    fn unreachable(&self) -> EngineError {
        let is_draining = self.inner.links.status.borrow().draining;
        if is_draining || self.inner.is_told_to_stop.load(Ordering::Acquire) {
            ScheduleError::Draining.into()
        } else {
            ScheduleError::Stopped.into()
        }
    }

    /// The Synthesizer's are, and the Scheduler may know more of that.
    fn synthesizer_error(&self, error: EngineError) -> EngineError {
        match error {
            EngineError::Schedule(ScheduleError::Stopped) if self.inner.links.submit.connected() => {
                let reasons = self.status().reasons.join("; ");
                let reason = if reasons.is_empty() { "it died and is rebuilt".to_owned() } else { reasons };
                ScheduleError::NoSynthesizer(reason).into()
            }
            error => error,
        }
    }
}

impl Inner {
    fn join(&self) {
        self.clock.stop();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(thread) = thread else { return };
        // A handle that is dropped by the engine's own thread cannot wait for that thread.
        if thread.thread().id() != std::thread::current().id() && thread.join().is_err() {
            tracing::error!("the engine's thread ended by a panic");
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.is_told_to_stop.store(true, Ordering::Release);
        self.links.shutdown.do_send(Shutdown { drain: Duration::ZERO });
        self.join();
    }
}

/// The kind's own priority, as far as it is known before decoding. It is that of the decoding itself.
fn own_priority(payload: &Payload) -> Priority {
    match payload {
        // Without a kind it will be refused: its place in the order does not matter.
        Payload::Filecoin(request) => {
            request.proof_kind.map_or(Priority::Normal, |kind| Priority::of(kind.work_kind()))
        }
        Payload::Encoded(_) => Priority::Normal,
        Payload::Workload(workload) => Priority::of(workload.kind()),
    }
}

fn no_answer(asked: &'static str, limit: Duration) -> EngineError {
    EngineError::NoAnswer { asked, limit_ms: limit.as_millis() as u64 }
}

fn internal(what: String) -> EngineError {
    EngineError::Internal { what }
}

fn start_pool(
    config: &EngineConfig,
) -> Result<(WorkerPool, crate::actors::synthesizer::pool::WorkerThreads), EngineError> {
    if let Workers::Simulated(host) = &config.workers {
        return Ok(WorkerPool::simulated(config.synthesis_threads, Arc::clone(host)));
    }
    WorkerPool::start(config.synthesis_threads)
        .map_err(|error| internal(format!("no threads for synthesis: {error}")))
}

fn check(config: &EngineConfig) -> Result<(), ConfigError> {
    let value = |key: &str, what: String| ConfigError::Value { key: key.into(), what };
    if config.max_attempts == 0 {
        return Err(value("max_attempts", "needs 1 at least, has 0".into()));
    }
    if let Some(JournalConfig { retention: Retention { count: 0, .. }, .. }) = &config.journal {
        return Err(value("journal.retention_count", "needs 1 at least, has 0".into()));
    }
    let mut formats = BTreeSet::new();
    for decoder in &config.decoders {
        if !formats.insert(decoder.format()) {
            return Err(value("decoders", format!("format `{}` is listed twice", decoder.format())));
        }
    }
    let mut names = BTreeSet::new();
    for device in &config.devices {
        if !names.insert(device.device_id()) {
            return Err(value("devices", format!("{} is listed twice", device.device_id())));
        }
    }
    if let Some(unknown) = config.reserved_for_critical.iter().find(|id| !names.contains(id)) {
        return Err(value("reserved_for_critical", format!("{unknown} is not one of the devices")));
    }
    let mut circuits = BTreeSet::new();
    for workload in &config.warmup {
        if !circuits.insert(workload.circuit().clone()) {
            return Err(value("warmup", format!("{} is listed twice", workload.circuit())));
        }
    }
    Ok(())
}
