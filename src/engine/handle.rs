//! A submitted job, as its caller holds it.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use tokio::sync::{mpsc, watch};

use super::block::block_on;
use super::Engine;
use crate::error::{EngineError, ScheduleError};
use crate::ids::JobId;
use crate::messages::job::{CancelOutcome, JobAccepted, JobEvent, JobResult, JobTicket};

/// One caller's interest in a job. Dropping it cancels the job, unless somebody else waits for it too; see
/// [`JobHandle::detach`].
#[derive(Debug)]
pub struct JobHandle {
    // Dropped in this order: the ticket must be given back while the engine is there.
    ticket: JobTicket,
    request_id: String,
    name: String,
    queue_position: u32,
    attached: bool,
    is_durable: bool,
    events: Option<mpsc::UnboundedReceiver<JobEvent>>,
    result: watch::Receiver<Option<JobResult>>,
    engine: Engine,
}

impl JobHandle {
    pub(super) fn new(engine: Engine, accepted: JobAccepted) -> Self {
        let JobAccepted { request_id, name, queue_position, attached, ticket, events, result, durability } =
            accepted;
        let is_durable = durability.is_durable();
        Self {
            ticket,
            request_id,
            name,
            queue_position,
            attached,
            is_durable,
            events: Some(events),
            result,
            engine,
        }
    }

    pub fn id(&self) -> JobId {
        self.ticket.job()
    }

    /// As submitted, or the one that was made for it.
    pub fn request_id(&self) -> &str {
        &self.request_id
    }

    /// What the job is found by ([`Engine::find`]): the request id, unless that was taken by other work. It stays as long as
    /// the job is known.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Jobs that were to be served before it and had not begun when this handle was made.
    pub fn queue_position(&self) -> u32 {
        self.queue_position
    }

    /// The same work was known already: this handle shares its job.
    pub fn is_attached(&self) -> bool {
        self.attached
    }

    /// The job is in the journal: it is proved even if the process is killed, and its result is kept. Not so without a
    /// journal, for a decoded `Workload`, and for given blinding values, which are never written.
    pub fn is_durable(&self) -> bool {
        self.is_durable
    }

    /// What happens, from the first event on; the last is [`JobEvent::Finished`]. May be called once: later calls
    /// give an empty stream.
    pub fn events(&mut self) -> JobEvents {
        JobEvents { events: self.events.take() }
    }

    /// Waits for the end.
    ///
    /// # Errors
    /// Why there is no proof. [`ScheduleError::Stopped`]: the engine ended before the job did.
    pub async fn wait(&self) -> JobResult {
        let mut result = self.result.clone();
        let ended = result.wait_for(Option::is_some).await;
        match ended {
            Ok(result) => result.clone().expect("waited until there is one"),
            // The Scheduler died with its table.
            Err(_) => Err(ScheduleError::Stopped.into()),
        }
    }

    /// As [`JobHandle::wait`], blocking. Not for the threads of an async runtime.
    ///
    /// # Errors
    /// As [`JobHandle::wait`].
    pub fn wait_blocking(&self) -> JobResult {
        block_on(self.wait())
    }

    /// The result, if the job has ended.
    pub fn result(&self) -> Option<JobResult> {
        self.result.borrow().clone()
    }

    /// Cancels the job, whoever else waits for it. Idempotent.
    ///
    /// # Errors
    /// As [`Engine::cancel`].
    pub async fn cancel(&self) -> Result<CancelOutcome, EngineError> {
        self.engine.cancel(self.id()).await
    }

    /// As [`JobHandle::cancel`], blocking.
    ///
    /// # Errors
    /// As [`JobHandle::cancel`].
    pub fn cancel_blocking(&self) -> Result<CancelOutcome, EngineError> {
        block_on(self.cancel())
    }

    /// Lets the job go on with nobody waiting. The same request attaches to it again.
    pub fn detach(self) -> JobId {
        let id = self.ticket.job();
        self.ticket.detach();
        id
    }
}

/// The events of one job: a [`Stream`], a plain `next().await`, or a blocking iterator.
#[derive(Debug)]
pub struct JobEvents {
    events: Option<mpsc::UnboundedReceiver<JobEvent>>,
}

impl JobEvents {
    /// The next event; `None` after [`JobEvent::Finished`].
    pub async fn next(&mut self) -> Option<JobEvent> {
        match &mut self.events {
            Some(events) => events.recv().await,
            None => None,
        }
    }

    /// The events one by one, blocking. Not for the threads of an async runtime.
    pub fn blocking_iter(mut self) -> impl Iterator<Item = JobEvent> {
        std::iter::from_fn(move || block_on(self.next()))
    }
}

impl Stream for JobEvents {
    type Item = JobEvent;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<JobEvent>> {
        match &mut self.events {
            Some(events) => events.poll_recv(context),
            None => Poll::Ready(None),
        }
    }
}
