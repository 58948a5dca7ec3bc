//! From the start of the process to its exit code.
//!
//! ```text
//! configuration -> logs -> exposure checked -> sockets (B07) -> engine -> served, READY=1
//!      a signal, `Drain`            -> nothing new, jobs finish, answers go out, servers stop -> 0
//!      no device is left            -> jobs are answered, servers stop                       -> 1
//! ```

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use cuzk::config::Config;
use cuzk::engine::Engine;
use cuzk::journal::JournalConfig;
use cuzk::messages::events::EventSink;
use cuzk::telemetry::event_log::EventLog;
use cuzk::telemetry::LogFilter;
use sd_notify::NotifyState;
use signal_hook::iterator::Signals;
use tokio::sync::{watch, Semaphore};
use tokio::task::JoinSet;

use crate::args::Args;
use crate::daemon::Daemon;
use crate::failure::Failure;
use crate::guard::Limits;
use crate::listen::{self, Listener, SocketFile};
use crate::security::{self, Tokens};
use crate::{http, notify, serve, signals};

/// How long answers and connections may take once every job has ended.
const LAST_ANSWERS: Duration = Duration::from_secs(5);
/// Of a caller that neither reads nor closes.
const LAST_CONNECTIONS: Duration = Duration::from_millis(700);

/// Everything that can be refused before anything is opened.
///
/// # Errors
/// What is wrong with the configuration.
pub fn check(config: &Config) -> Result<Vec<Vec<u8>>, Failure> {
    security::check_exposure(&config.daemon)?;
    security::tls(&config.daemon)?;
    config.check_devices_built()?;
    if !config.telemetry.otlp_endpoint.is_empty() && !cfg!(feature = "otlp") {
        return Err(Failure::config(
            "telemetry.otlp_endpoint: this program was built without the feature `otlp`",
        ));
    }
    Tokens::default().read(&config.daemon.token_file)
}

/// Lives until it is asked to end, or cannot go on.
///
/// # Errors
/// Why it ended otherwise than asked.
pub async fn run(args: Args, config: Config, filter: LogFilter, signals: Signals) -> Result<(), Failure> {
    config.warnings.iter().for_each(|warning| tracing::warn!("configuration: {warning}"));
    let tokens = Tokens::default();
    tokens.replace(check(&config)?);
    let config = Arc::new(config);
    let mut listeners = listen::open(&config.daemon).await?;
    // Removed when this function ends, however it does.
    let _files: Vec<SocketFile> = listeners.iter_mut().filter_map(Listener::take_file).collect();
    let status_listener = http_listener(&config).await?;

    let (daemon, history, _event_log) = start(args, Arc::clone(&config), tokens, filter)?;
    signals::serve(signals, Arc::clone(&daemon))?;
    let state = http::State::start(daemon.engine.clone(), history, config.params_dir())
        .map_err(|error| Failure::failed(format!("no thread for HTTP: {error}")))?;

    let mut servers = Servers::new();
    let limits = Limits::new(&config.daemon);
    let places = Arc::new(Semaphore::new(config.daemon.max_connections as usize));
    for listener in listeners {
        say_listening(&listener);
        let served = serve::grpc(&daemon, &state, listener, &limits, &places, servers.stop())?;
        servers.tasks.spawn(served);
    }
    if let Some(listener) = status_listener {
        servers.tasks.spawn(serve::http(Arc::clone(&daemon), listener, state, servers.stop()));
    }
    let health = tokio::spawn(notify::keep_telling(Arc::clone(&daemon)));
    notify::tell(&[NotifyState::Ready]);
    let ended = until_the_end(&daemon, &mut servers).await;
    notify::tell(&[NotifyState::Stopping]);
    wait_idle(&limits).await;
    servers.end().await;
    health.abort();
    ended
}

async fn http_listener(config: &Config) -> Result<Option<tokio::net::TcpListener>, Failure> {
    let address = &config.daemon.status_listen;
    if address.is_empty() {
        return Ok(None);
    }
    match tokio::net::TcpListener::bind(address).await {
        Ok(listener) => Ok(Some(listener)),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => Err(Failure::in_use(format!(
            "daemon.status_listen: {address}: another process listens there: stop it, or use another port"
        ))),
        Err(error) => Err(Failure::config(format!("daemon.status_listen: {address}: {error}"))),
    }
}

fn start(
    args: Args,
    config: Arc<Config>,
    tokens: Tokens,
    filter: LogFilter,
) -> Result<(Arc<Daemon>, http::History, Option<EventLog>), Failure> {
    let mut engine_config = config.engine_config()?;
    engine_config.journal = match config.daemon_journal() {
        Some(path) => {
            Some(JournalConfig { retention: config.journal_retention(), ..JournalConfig::file(path) })
        }
        None => {
            tracing::warn!("no journal: jobs and results do not outlive the process; set [daemon] state_dir");
            None
        }
    };
    let history = http::History::start().map_err(|error| Failure::failed(format!("no thread: {error}")))?;
    let (log_sink, event_log) = match config.telemetry.event_log.as_str() {
        "" => (EventSink::off(), None),
        path => EventLog::create(path.as_ref()).map(|(sink, log)| (sink, Some(log)))?,
    };
    engine_config.events = log_sink.with(history.consumer());
    let engine = Engine::start(engine_config)?;
    Ok((Daemon::new(engine, args, config, tokens, filter), history, event_log))
}

fn say_listening(listener: &Listener) {
    tracing::info!(address = listener.address(), "serving gRPC");
}

/// Serves until the end is asked for and every job has ended, or until nothing can be served any more.
async fn until_the_end(daemon: &Arc<Daemon>, servers: &mut Servers) -> Result<(), Failure> {
    let mut draining = daemon.draining();
    let fatal = daemon.engine.clone();
    let ended = tokio::select! {
        _ = draining.wait_for(Option::is_some) => Ok(()),
        Ok(reason) = fatal.wait_fatal() => Err(Failure::failed(format!("no device is left: {reason}"))),
        failed = servers.failed() => Err(failed),
    };
    match &ended {
        Ok(()) => drain(daemon).await,
        Err(failure) => {
            tracing::error!(%failure, "the daemon ends");
            // Callers are answered: what could be proved by nobody is for the next process.
            daemon.engine.shutdown(Duration::ZERO).await;
        }
    }
    ended
}

/// Lets jobs finish, for as long as the shortest limit that anybody asked for.
async fn drain(daemon: &Arc<Daemon>) {
    notify::tell(&[NotifyState::Stopping]);
    let mut draining = daemon.draining();
    let mut stopping = JoinSet::new();
    loop {
        let asked = draining.borrow_and_update().and_then(|request| request.limit_ms);
        let configured = Duration::from_secs(daemon.config().daemon.drain_limit_s);
        let limit = asked.map_or(configured, Duration::from_millis);
        let engine = daemon.engine.clone();
        stopping.spawn(async move { engine.shutdown(limit).await });
        tokio::select! {
            _ = stopping.join_next() => return,
            // Somebody is in more of a hurry: the engine keeps the shortest.
            changed = draining.changed() => changed.expect("the daemon holds the sender"),
        }
    }
}

/// Every answer is on its way.
async fn wait_idle(limits: &Limits) {
    if tokio::time::timeout(LAST_ANSWERS, limits.wait_idle()).await.is_err() {
        tracing::warn!("a caller takes no answer: the daemon ends without it");
    }
}

/// The servers, each a task.
struct Servers {
    tasks: JoinSet<Result<(), Failure>>,
    stop: watch::Sender<bool>,
}

impl Servers {
    fn new() -> Self {
        Self { tasks: JoinSet::new(), stop: watch::channel(false).0 }
    }

    /// Ends when the servers are to stop.
    fn stop(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut stop = self.stop.subscribe();
        async move {
            // An error: the servers are gone.
            let _ = stop.wait_for(|stop| *stop).await;
        }
    }

    /// The first that ends by itself.
    async fn failed(&mut self) -> Failure {
        match self.tasks.join_next().await {
            Some(Ok(Err(failure))) => failure,
            Some(Ok(Ok(()))) => Failure::failed("a server ended by itself"),
            Some(Err(error)) => Failure::failed(format!("a server failed: {error}")),
            None => std::future::pending().await,
        }
    }

    /// Accepts nothing more, and lets connections close.
    async fn end(mut self) {
        self.stop.send_replace(true);
        let ended =
            tokio::time::timeout(LAST_CONNECTIONS, async { while self.tasks.join_next().await.is_some() {} });
        if ended.await.is_err() {
            tracing::debug!("connections that callers keep open are closed");
        }
    }
}
