//! The servers: gRPC with reflection and health on each address, HTTP beside them.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use cuzk_wire::v1::proving_engine_server::{ProvingEngineServer, SERVICE_NAME};
use cuzk_wire::{CONTRACT, MESSAGE_BYTES_MAX};
use tokio::sync::Semaphore;
use tonic::service::Routes;
use tonic::transport::Server;
use tonic_health::server::HealthReporter;
use tonic_health::ServingStatus;

use crate::connection::incoming;
use crate::daemon::Daemon;
use crate::failure::{with_sources, Failure};
use crate::grpc::Service;
use crate::guard::Guard;
use crate::limits::Limits;
use crate::listen::Listener;
use crate::{http, security};

/// Bytes that one call, and one connection, may send before it is told to go on. Small enough that many calls together
/// hold little, large enough for 256 MiB to come at the speed of a local socket.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;

/// Serves gRPC on one address until `stop` ends and its connections have closed.
///
/// # Errors
/// At once if TLS cannot be used; later if serving fails.
pub fn grpc(
    daemon: &Arc<Daemon>,
    state: &http::State,
    listener: Listener,
    limits: &Arc<Limits>,
    places: &Arc<Semaphore>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<impl Future<Output = Result<(), Failure>> + Send + 'static, Failure> {
    let config = daemon.config();
    let is_local_file = matches!(listener, Listener::Unix { .. });
    let address = listener.address();
    let mut server = Server::builder();
    if !is_local_file {
        server = security::with_tls(server, &config.daemon)?;
    }
    let guard = Guard { daemon: Arc::clone(daemon), limits: Arc::clone(limits), needs_token: !is_local_file };
    let mut server = server
        .max_concurrent_streams(config.daemon.max_streams_per_connection)
        .http2_max_header_list_size(u32::try_from(config.daemon.max_header_bytes.0).unwrap_or(u32::MAX))
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        // A silent connection is asked whether it lives; one that stopped in the middle of a frame cannot say so.
        .http2_keepalive_interval(Some(limits.slow_client))
        .http2_keepalive_timeout(Some(limits.slow_client))
        .layer(guard);
    let routes = routes(daemon, state)?;
    let incoming = incoming(listener, Arc::clone(places), Arc::clone(limits));
    Ok(async move {
        let served = server.add_routes(routes).serve_with_incoming_shutdown(incoming, stop).await;
        served.map_err(|error| Failure::failed(format!("{address}: {}", with_sources(&error))))
    })
}

fn routes(daemon: &Arc<Daemon>, state: &http::State) -> Result<Routes, Failure> {
    let engine = ProvingEngineServer::new(Service::new(Arc::clone(daemon), state.clone()))
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(CONTRACT)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let refuse = |error: tonic_reflection::server::Error| Failure::failed(format!("reflection: {error}"));
    let (reporter, health) = tonic_health::server::health_reporter();
    tokio::spawn(keep_health(Arc::clone(daemon), reporter));
    let mut routes = Routes::new(engine);
    routes = routes.add_service(health);
    routes = routes.add_service(reflection().build_v1().map_err(refuse)?);
    // What older clients, grpcurl among them, still ask for.
    routes = routes.add_service(reflection().build_v1alpha().map_err(refuse)?);
    Ok(routes)
}

/// SERVING while jobs are accepted and can be proved.
async fn keep_health(daemon: Arc<Daemon>, reporter: HealthReporter) {
    let mut draining = daemon.draining();
    loop {
        let is_draining = draining.borrow_and_update().is_some();
        let is_serving = daemon.engine.readiness().ready && !is_draining;
        let serving = if is_serving { ServingStatus::Serving } else { ServingStatus::NotServing };
        reporter.set_service_status("", serving).await;
        reporter.set_service_status(SERVICE_NAME, serving).await;
        let ready = daemon.engine.wait_status(|status| status.ready != is_serving);
        tokio::select! {
            changed = ready, if !is_draining => {
                if changed.is_err() {
                    return;
                }
            }
            changed = draining.changed() => {
                if changed.is_err() {
                    return;
                }
            }
        }
    }
}

/// Serves HTTP until `stop` ends.
pub async fn http(
    daemon: Arc<Daemon>,
    listener: tokio::net::TcpListener,
    state: http::State,
    stop: impl Future<Output = ()> + Send + 'static,
) {
    let address = listener.local_addr().map(|address| address.to_string()).unwrap_or_default();
    tracing::info!(address, "serving HTTP");
    let config = daemon.config();
    let limits = http::Limits {
        patience: Duration::from_secs(config.daemon.slow_client_limit_s),
        head_bytes: usize::try_from(config.daemon.max_header_bytes.0).unwrap_or(usize::MAX),
    };
    let allow = Arc::new(move |authorization: Option<&[u8]>| daemon.tokens.allow(authorization));
    http::serve(listener, http::router(state, allow), limits, stop).await;
}
