//! Asks the daemon again and again, on a thread of its own; a daemon that went away is looked for until it is back.

use std::time::Duration;

use crossbeam_channel::{bounded, Receiver, Sender};
use cuzk_wire::client::{connect, Client, Endpoint};
use tonic::Code;

use super::super::runtime;
use super::super::snapshot::Snapshot;
use crate::failure::Failure;

/// What a look at the daemon gave: its state, or why there is none.
pub type Update = Result<Box<Snapshot>, String>;

/// A daemon that does not answer by then counts as away.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// Looks that nobody has taken yet: with more, a screen that stands still would show the past.
const UPDATES_MAX: usize = 2;

pub struct Source {
    pub updates: Receiver<Update>,
}

impl Source {
    /// The thread ends with the process, or when nobody takes what it sends.
    pub fn start(endpoint: Endpoint, interval: Duration) -> Result<Self, Failure> {
        let (send, updates) = bounded(UPDATES_MAX);
        let runtime = runtime()?;
        let run = move || runtime.block_on(ask(&endpoint, interval, &send));
        std::thread::Builder::new()
            .name("source".to_owned())
            .spawn(run)
            .map_err(|error| Failure::proving("threads", format!("the system refuses a thread: {error}")))?;
        Ok(Self { updates })
    }
}

async fn ask(endpoint: &Endpoint, interval: Duration, send: &Sender<Update>) {
    let mut client: Option<Client> = None;
    loop {
        let update = look(endpoint, &mut client).await;
        if update.is_err() {
            // Made anew: what is there next may be another daemon.
            client = None;
        }
        if send.send(update).is_err() {
            return;
        }
        tokio::time::sleep(interval).await;
    }
}

async fn look(endpoint: &Endpoint, client: &mut Option<Client>) -> Update {
    if client.is_none() {
        *client = Some(connect(endpoint).await.map_err(|error| error.to_string())?);
    }
    let client = client.as_mut().expect("it was made above");
    match tokio::time::timeout(ANSWER_LIMIT, Snapshot::take(client)).await {
        Ok(Ok(snapshot)) => Ok(Box::new(snapshot)),
        Ok(Err(status)) if status.code() == Code::Unavailable => Err("the daemon went away".to_owned()),
        Ok(Err(status)) => Err(status.message().to_owned()),
        Err(_) => Err(format!("no answer for {} s", ANSWER_LIMIT.as_secs())),
    }
}
