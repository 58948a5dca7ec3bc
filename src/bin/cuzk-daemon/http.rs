//! HTTP: whether the process lives and can prove, what it does, and a page to look at.
//!
//! ```text
//! /healthz   200 while the actors' hearts beat, else 503        open to all
//! /readyz    200 if jobs are accepted and can be proved, else 503, with reasons
//! /metrics   Prometheus' text format                            metrics.rs, text.rs
//! /status    everything, as JSON                                status.rs
//! /          a page that shows /status, live                    page.html    open to all: it holds no data itself
//!
//! Engine::status ─────────────────────────────┐
//! EventSink ──> history.rs (recent past) ─────┼──> /status, /metrics
//! pulse.rs (heartbeats), sensors.rs (NVML) ───┘
//! ```
//!
//! Nothing here asks an actor: every answer is made of what was published, so a probe never waits for proving.

mod connections;
mod history;
mod metrics;
mod process;
mod pulse;
mod queue;
mod sensors;
mod srs;
mod status;
#[cfg(test)]
mod tests;
mod text;

use std::path::PathBuf;
use std::sync::{Arc, LazyLock};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::extract::{Request, State as Shared};
use axum::http::header::{self, HeaderName, HeaderValue};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{middleware, Json, Router};
use base64::Engine as _;
use cuzk::engine::Engine;
use serde::Serialize;
use sha2::{Digest, Sha256};

pub use self::connections::{serve, Limits};
pub use self::history::History;
pub use self::metrics::prometheus;
use self::pulse::{Beat, Pulse};
use self::sensors::{Sample, Sampler};

const PAGE: &str = include_str!("http/page.html");

/// What the answers are made of. Clones are cheap and share it.
#[derive(Clone)]
pub struct State {
    inner: Arc<Inner>,
}

struct Inner {
    engine: Engine,
    history: History,
    pulse: Pulse,
    sampler: Sampler,
    started_at: SystemTime,
}

impl State {
    /// `history` has been told of the engine's events from its start. `params_dir`: of the parameter files.
    ///
    /// # Errors
    /// The system's, if it refuses a thread.
    pub fn start(engine: Engine, history: History, params_dir: PathBuf) -> std::io::Result<Self> {
        Self::with_sampler(engine, history, Sampler::start(params_dir)?)
    }

    fn with_sampler(engine: Engine, history: History, sampler: Sampler) -> std::io::Result<Self> {
        let pulse = Pulse::start(engine.clone())?;
        let inner = Inner { engine, history, pulse, sampler, started_at: SystemTime::now() };
        Ok(Self { inner: Arc::new(inner) })
    }

    fn engine(&self) -> &Engine {
        &self.inner.engine
    }

    fn history(&self) -> &History {
        &self.inner.history
    }

    fn beats(&self) -> Vec<Beat> {
        self.inner.pulse.beats()
    }

    fn sample(&self) -> Sample {
        self.inner.sampler.last()
    }

    fn started_unix_s(&self) -> f64 {
        self.inner.started_at.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
    }
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Whether a request with this `Authorization` header may be told anything.
pub type Allow = Arc<dyn Fn(Option<&[u8]>) -> bool + Send + Sync>;

/// The routes. `/healthz` says nothing of work and `/` holds no data: they are open to whoever reaches them.
pub fn router(state: State, allow: Allow) -> Router {
    let guarded = Router::new()
        .route("/readyz", get(readyz))
        .route("/metrics", get(serve_metrics))
        .route("/status", get(serve_status))
        .layer(middleware::from_fn_with_state(allow, check_token))
        .with_state(state.clone());
    Router::new()
        .route("/", get(page))
        .route("/healthz", get(healthz))
        .with_state(state)
        .merge(guarded)
        .fallback(not_found)
        .layer(middleware::map_response(with_headers))
}

async fn check_token(Shared(allow): Shared<Allow>, request: Request, next: Next) -> Response {
    let given = request.headers().get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
    if allow(given) {
        return next.run(request).await;
    }
    let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
    (StatusCode::UNAUTHORIZED, challenge, "a token is needed: Authorization: Bearer …\n").into_response()
}

/// The page's own script and style, named by their digests, and nothing else; data from where the page came from.
static CONTENT_SECURITY_POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let policy = format!(
        "default-src 'none'; script-src {}; style-src {}; connect-src 'self'; img-src data:; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
        source_of(PAGE, "script"),
        source_of(PAGE, "style"),
    );
    HeaderValue::from_str(&policy).expect("base64 and plain words")
});

/// A policy's source expression for the one inline element of this name.
///
/// # Panics
/// If the page has none: a test reads it.
fn source_of(page: &str, element: &str) -> String {
    let (_, rest) = page.split_once(&format!("<{element}>")).expect("the page has one");
    let (content, _) = rest.split_once(&format!("</{element}>")).expect("and it ends");
    let digest = base64::engine::general_purpose::STANDARD.encode(Sha256::digest(content));
    format!("'sha256-{digest}'")
}

async fn with_headers(mut response: Response) -> Response {
    let fixed = [
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ];
    let headers = response.headers_mut();
    headers.extend(fixed.map(|(name, value)| (name, HeaderValue::from_static(value))));
    headers.insert(header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY.clone());
    response
}

fn typed(content_type: &'static str, body: impl IntoResponse) -> Response {
    ([(header::CONTENT_TYPE, content_type)], body).into_response()
}

async fn page() -> Response {
    typed("text/html; charset=utf-8", PAGE)
}

async fn not_found() -> Response {
    let body = "not found: /, /healthz, /readyz, /metrics and /status are here\n";
    (StatusCode::NOT_FOUND, typed("text/plain; charset=utf-8", body)).into_response()
}

fn ok_if(is_ok: bool) -> StatusCode {
    if is_ok {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    }
}

/// Whether the process works at all: a supervisor of processes may end one that does not.
#[derive(Serialize)]
struct Health {
    alive: bool,
    heartbeats: Vec<Beat>,
}

async fn healthz(Shared(state): Shared<State>) -> Response {
    let heartbeats = state.beats();
    let alive = heartbeats.iter().all(Beat::is_alive);
    (ok_if(alive), Json(Health { alive, heartbeats })).into_response()
}

async fn readyz(Shared(state): Shared<State>) -> Response {
    let readiness = state.engine().readiness();
    (ok_if(readiness.ready), Json(readiness)).into_response()
}

async fn serve_metrics(Shared(state): Shared<State>) -> Response {
    typed("text/plain; version=0.0.4; charset=utf-8", prometheus(&state))
}

async fn serve_status(Shared(state): Shared<State>) -> Response {
    Json(status::status(&state)).into_response()
}
