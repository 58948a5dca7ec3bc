//! A peer that records what it is told.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::time::Duration;

use actix::{Actor, Addr, Context, Handler, Message, Recipient};
use tokio::sync::mpsc::{unbounded_channel, UnboundedReceiver, UnboundedSender};

/// How long [`ProbeHandle::next`] waits, in the arbiter's own (virtual or real) time, before the test fails.
const PATIENCE: Duration = Duration::from_secs(3600);

/// An actor that passes everything it is told to its [`ProbeHandle`], in the order in which it was sent. It takes every
/// message type that a `T` can be made from; `T` is the one message of interest, or an enum of facts.
pub struct Probe<T> {
    record: UnboundedSender<T>,
}

impl<T: 'static> Actor for Probe<T> {
    type Context = Context<Self>;
}

impl<M, T> Handler<M> for Probe<T>
where
    M: Message<Result = ()> + 'static,
    T: From<M> + 'static,
{
    type Result = ();

    fn handle(&mut self, message: M, _: &mut Context<Self>) {
        // The test may have dropped its end already; then nobody reads any more.
        let _ = self.record.send(message.into());
    }
}

/// Starts a probe of one message type on the current arbiter.
pub fn probe<M>() -> (Recipient<M>, ProbeHandle<M>)
where
    M: Message<Result = ()> + Send + Debug + 'static,
{
    let (address, handle) = probe_all();
    (address.recipient(), handle)
}

/// Starts a probe of every message type that makes a `T`: one actor, so that the order across types is kept.
pub fn probe_all<T: Debug + 'static>() -> (Addr<Probe<T>>, ProbeHandle<T>) {
    let (record, receiver) = unbounded_channel();
    (Probe { record }.start(), ProbeHandle { receiver, skipped: VecDeque::new() })
}

/// The test's end of a probe.
pub struct ProbeHandle<T> {
    receiver: UnboundedReceiver<T>,
    /// Looked at by [`ProbeHandle::find`] and left for later.
    skipped: VecDeque<T>,
}

impl<T: Debug> ProbeHandle<T> {
    /// The next message, oldest first; waits for it.
    ///
    /// # Panics
    /// If none comes.
    pub async fn next(&mut self) -> T {
        if let Some(message) = self.skipped.pop_front() {
            return message;
        }
        self.receive().await
    }

    /// The first message for which `pick` gives a value; the ones before it stay for later calls.
    ///
    /// # Panics
    /// If none comes.
    pub async fn find<R>(&mut self, mut pick: impl FnMut(&T) -> Option<R>) -> R {
        for index in 0..self.skipped.len() {
            if let Some(found) = pick(&self.skipped[index]) {
                self.skipped.remove(index);
                return found;
            }
        }
        loop {
            let message = self.receive().await;
            match pick(&message) {
                Some(found) => return found,
                None => self.skipped.push_back(message),
            }
        }
    }

    /// Everything recorded so far, without waiting.
    pub fn drain(&mut self) -> Vec<T> {
        let mut all: Vec<T> = self.skipped.drain(..).collect();
        while let Ok(message) = self.receiver.try_recv() {
            all.push(message);
        }
        all
    }

    /// # Panics
    /// If a message comes within `quiet` of the arbiter's time.
    pub async fn expect_silence(&mut self, quiet: Duration) {
        assert!(self.skipped.is_empty(), "unread: {:?}", self.skipped);
        if let Ok(Some(message)) = tokio::time::timeout(quiet, self.receiver.recv()).await {
            panic!("expected silence, got {message:?}");
        }
    }

    async fn receive(&mut self) -> T {
        match tokio::time::timeout(PATIENCE, self.receiver.recv()).await {
            Ok(Some(message)) => message,
            Ok(None) => panic!("the probe stopped; unread: {:?}", self.skipped),
            Err(_) => panic!("no such message came; unread: {:?}", self.skipped),
        }
    }
}
