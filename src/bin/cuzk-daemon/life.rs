//! From the start of the process to its exit code.
//!
//! ```text
//! configuration -> logs -> exposure checked -> sockets (B07) -> engine -> served, READY=1
//!      a signal, `Drain`            -> nothing new, jobs finish, answers go out, servers stop -> 0
//!      no device is left, or an actor that the engine cannot be without
//!                                   -> jobs are answered, servers stop                       -> 1
//! ```

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cuzk::config::Config;
use cuzk::engine::Engine;
use cuzk::journal::JournalConfig;
use cuzk::messages::events::EventSink;
use cuzk::telemetry::event_log::EventLog;
use cuzk::telemetry::LogFilter;
use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};
use sd_notify::NotifyState;
use signal_hook::iterator::Signals;
use tokio::sync::{watch, Semaphore};
use tokio::task::JoinSet;

use crate::args::Args;
use crate::daemon::Daemon;
use crate::failure::Failure;
use crate::limits::Limits;
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
    listen::check(&config.daemon)?;
    security::check_exposure(&config.daemon)?;
    security::with_tls(tonic::transport::Server::builder(), &config.daemon)?;
    check_folders(config)?;
    config.check_devices_built()?;
    if !config.telemetry.otlp_endpoint.is_empty() && !cfg!(feature = "otlp") {
        return Err(Failure::config(
            "telemetry.otlp_endpoint: this program was built without the feature `otlp`",
        ));
    }
    Tokens::default().read(&config.daemon.token_file)
}

/// Folders are the operator's to make: with whose permissions is not for us to guess.
fn check_folders(config: &Config) -> Result<(), Failure> {
    let state_dir = Path::new(&config.daemon.state_dir);
    let log_dir = Path::new(&config.logging.file).parent();
    for (key, folder) in [("daemon.state_dir", Some(state_dir)), ("logging.file", log_dir)] {
        let named = folder.filter(|folder| !folder.as_os_str().is_empty());
        let Some(folder) = named else { continue };
        let problem = match folder.metadata() {
            Ok(found) if found.is_dir() => continue,
            Ok(_) => "is no folder".to_owned(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => "is not there: make it".to_owned(),
            Err(error) => format!("cannot be looked into: {error}"),
        };
        return Err(Failure::config(format!("{key}: the folder {} {problem}", folder.display())));
    }
    Ok(())
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
    let places = Arc::new(Semaphore::new(connection_places(config.daemon.max_connections)));
    for listener in listeners {
        say_listening(&listener);
        let served = serve::grpc(&daemon, &state, listener, &limits, &places, servers.stop())?;
        servers.tasks.spawn(served);
    }
    if let Some(listener) = status_listener {
        let served = serve::http(Arc::clone(&daemon), listener, state, servers.stop());
        servers.tasks.spawn(async {
            served.await;
            Ok(())
        });
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

/// Descriptors that are not those of gRPC: HTTP's connections, sockets, the journal, logs, devices, parameter files.
const OTHER_DESCRIPTORS: u64 = 192;

/// gRPC connections at a time: as many as are configured, and leave descriptors for everything else. The process's limit is
/// raised as far as it may be.
fn connection_places(configured: u32) -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    let limit = if setrlimit(Resource::Nofile, raised).is_ok() { raised } else { limit };
    let descriptors = limit.current.unwrap_or(u64::MAX);
    let room = descriptors.saturating_sub(OTHER_DESCRIPTORS).max(descriptors / 4).max(1);
    if room < u64::from(configured) {
        tracing::warn!(
            descriptors,
            "{room} connections at a time instead of daemon.max_connections ({configured}): raise the limit of open files \
             (ulimit -n; LimitNOFILE= in the unit)"
        );
    }
    room.min(configured.into()) as usize
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
        reason = engine_failed(&fatal) => Err(Failure::failed(reason)),
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

/// Why the engine will never prove anything again, although nobody has told it to stop.
async fn engine_failed(engine: &Engine) -> String {
    match engine.wait_fatal().await {
        Ok(reason) => reason,
        // It has stopped by itself.
        Err(error) => error.to_string(),
    }
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

#[cfg(test)]
mod tests {
    use cuzk::backend::sim::SimFleet;
    use cuzk::engine::{DeviceSpec, EngineConfig};
    use cuzk::messages::events::{Event, EventConsumer, EventKind};

    use super::*;

    /// Panics in whoever tells it that a device is ready: the Scheduler.
    struct Fatal;

    impl EventConsumer for Fatal {
        fn consume(&self, event: Event) {
            let is_ready = matches!(event.kind, EventKind::DeviceReady { .. });
            assert!(!is_ready, "the scheduler is to die of this, on purpose");
        }
    }

    #[tokio::test]
    async fn a_daemon_whose_scheduler_died_has_a_reason_to_end() {
        let fleet: SimFleet = "sim:1".parse().unwrap();
        let devices = fleet.devices().iter().cloned().map(Box::new).map(DeviceSpec::Sim).collect();
        let events = EventSink::to(Fatal);
        let engine =
            Engine::start(EngineConfig { devices, events, synthesis_threads: 1, ..EngineConfig::default() })
                .unwrap();
        let reason = engine_failed(&engine).await;
        assert!(reason.contains("its scheduler died"), "{reason}");
        engine.shutdown(Duration::ZERO).await;
    }
}
