//! What every call passes before it is served: token, limits, deadline; and what its answer passes.
//!
//! Limits are of the whole daemon. What is over them is refused and not kept waiting: callers that wait hold memory too.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{ready, Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::{Body as HttpBody, Frame};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;
use tonic::body::Body;
use tonic::{Code, Status};
use tower::{Layer, Service};

use crate::connection::Peer;
use crate::daemon::Daemon;

/// The limits, and what is used of them.
pub struct Limits {
    calls: Arc<Semaphore>,
    bytes: Arc<ByteBudget>,
    rate: Rate,
    slow_client: Duration,
    max_calls: u32,
}

impl Limits {
    pub fn new(config: &cuzk::config::DaemonConfig) -> Arc<Self> {
        Arc::new(Self {
            calls: Arc::new(Semaphore::new(config.max_calls as usize)),
            bytes: Arc::new(ByteBudget { limit: config.max_bytes_in_flight.0, used: AtomicU64::new(0) }),
            rate: Rate::default(),
            slow_client: Duration::from_secs(config.slow_client_limit_s),
            max_calls: config.max_calls,
        })
    }

    /// Waits until no call is being served.
    pub async fn wait_idle(&self) {
        // An error means that the limit is gone, and every call with it.
        let _ = self.calls.acquire_many(self.max_calls).await;
    }
}

/// Bytes of requests, all together.
struct ByteBudget {
    limit: u64,
    used: AtomicU64,
}

/// The bytes of one request: counted as they come, given back when this is dropped.
pub struct Charge {
    all: Arc<ByteBudget>,
    own: AtomicU64,
}

impl Charge {
    fn add(&self, num_bytes: u64) -> Result<(), Status> {
        self.own.fetch_add(num_bytes, Ordering::Relaxed);
        let used = self.all.used.fetch_add(num_bytes, Ordering::Relaxed).saturating_add(num_bytes);
        if used <= self.all.limit {
            return Ok(());
        }
        let limit = self.all.limit;
        Err(Status::resource_exhausted(format!(
            "requests of {used} B are being received, limit {limit} B: try again"
        )))
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.all.used.fetch_sub(self.own.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Calls that begin in one second. A second's worth may begin at once.
#[derive(Default)]
struct Rate {
    window: Mutex<Option<Instant>>,
    begun: AtomicU32,
}

impl Rate {
    /// Whether one more may begin now; `limit` 0: any number.
    fn admit(&self, limit: u32) -> bool {
        if limit == 0 {
            return true;
        }
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if window.is_none_or(|since| now.duration_since(since) >= Duration::from_secs(1)) {
            *window = Some(now);
            self.begun.store(0, Ordering::Relaxed);
        }
        self.begun.fetch_add(1, Ordering::Relaxed) < limit
    }
}

/// When the caller stops waiting, as it said in `grpc-timeout`.
#[derive(Clone, Copy, Debug)]
pub struct CallDeadline(pub Instant);

/// Puts a [`Guarded`] around a service.
#[derive(Clone)]
pub struct Guard {
    pub daemon: Arc<Daemon>,
    pub limits: Arc<Limits>,
    /// Calls come over the network: they need a token, if there are any.
    pub needs_token: bool,
}

impl<S> Layer<S> for Guard {
    type Service = Guarded<S>;

    fn layer(&self, inner: S) -> Guarded<S> {
        Guarded { inner, guard: self.clone() }
    }
}

/// A service that is only reached by calls that may.
#[derive(Clone)]
pub struct Guarded<S> {
    inner: S,
    guard: Guard,
}

type Answer<E> = Pin<Box<dyn Future<Output = Result<Response<Body>, E>> + Send>>;

impl<S> Service<Request<Body>> for Guarded<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Answer<S::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (request, permit, deadline) = match self.guard.admit(request) {
            Ok(admitted) => admitted,
            Err(status) => return Box::pin(async move { Ok(status.into_http()) }),
        };
        // Made before the library's own timer: it ends first, and with the right code.
        let sleep = deadline.map(|CallDeadline(at)| tokio::time::sleep_until(at.into()));
        let answer = self.inner.call(request);
        Box::pin(async move {
            let _permit = permit;
            let answered = match sleep {
                None => answer.await,
                Some(sleep) => tokio::select! {
                    biased;
                    answered = answer => answered,
                    // The call is dropped, and with it what nobody else waits for.
                    () = sleep => Ok(Status::deadline_exceeded("the caller's time is over").into_http()),
                },
            };
            answered.map(with_right_code)
        })
    }
}

type Admitted = (Request<Body>, OwnedSemaphorePermit, Option<CallDeadline>);

impl Guard {
    fn admit(&self, mut request: Request<Body>) -> Result<Admitted, Status> {
        let is_health = request.uri().path().starts_with("/grpc.health.v1.Health/");
        if self.needs_token && !is_health {
            let given = request.headers().get(http::header::AUTHORIZATION).map(|value| value.as_bytes());
            if !self.daemon.tokens.allow(given) {
                let peer = request.extensions().get::<Peer>().map_or("unknown", |Peer(peer)| peer.as_str());
                tracing::warn!(peer, "a call without a token that is known is refused");
                return Err(Status::unauthenticated(
                    "a bearer token is needed, and this is none of those known",
                ));
            }
        }
        if !self.limits.rate.admit(self.daemon.config().daemon.max_calls_per_s) {
            return Err(Status::resource_exhausted("too many calls a second: try again later"));
        }
        let permit = Arc::clone(&self.limits.calls).try_acquire_owned();
        let permit =
            permit.map_err(|_| Status::resource_exhausted("too many calls at a time: try again later"))?;
        let deadline = timeout(request.headers())
            .and_then(|timeout| Instant::now().checked_add(timeout))
            .map(CallDeadline);
        let charge = Arc::new(Charge { all: Arc::clone(&self.limits.bytes), own: AtomicU64::new(0) });
        // Whoever serves the call drops it once the request is decoded.
        request.extensions_mut().insert(Arc::clone(&charge));
        if let Some(deadline) = deadline {
            request.extensions_mut().insert(deadline);
        }
        let slow_client = self.limits.slow_client;
        let request = request.map(|body| Body::new(Metered { body, charge, slow_client, idle: None }));
        Ok((request, permit, deadline))
    }
}

/// `grpc-timeout`: up to eight digits and a unit.
fn timeout(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

/// The library calls a message that is too large OUT_OF_RANGE; every other implementation, RESOURCE_EXHAUSTED.
fn with_right_code(mut response: Response<Body>) -> Response<Body> {
    const STATUS: &str = "grpc-status";
    let too_large = "too%20large";
    let headers = response.headers_mut();
    let is_code = headers.get(STATUS).is_some_and(|code| code == "11");
    let says_so = headers.get("grpc-message").and_then(|text| text.to_str().ok());
    if is_code && says_so.is_some_and(|text| text.contains(too_large)) {
        let code = http::HeaderValue::from(Code::ResourceExhausted as i32);
        headers.insert(STATUS, code);
    }
    response
}

/// A request's body, whose bytes are counted, and which may not stand still.
struct Metered {
    body: Body,
    charge: Arc<Charge>,
    slow_client: Duration,
    /// Runs while the next bytes are waited for.
    idle: Option<Pin<Box<Sleep>>>,
}

impl HttpBody for Metered {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(context) {
            this.idle = None;
            let counted = frame.map(|frame| {
                let frame = frame?;
                let num_bytes = frame.data_ref().map_or(0, Bytes::len);
                this.charge.add(num_bytes as u64).map(|()| frame)
            });
            return Poll::Ready(counted);
        }
        let limit = this.slow_client;
        let idle = this.idle.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        ready!(idle.as_mut().poll(context));
        let what = format!("the request stood still for {} s", limit.as_secs());
        Poll::Ready(Some(Err(Status::deadline_exceeded(what))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_read_as_the_protocol_writes_them() {
        let of = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-timeout", text.parse().unwrap());
            timeout(&headers)
        };
        assert_eq!(of("1800S"), Some(Duration::from_secs(1800)));
        assert_eq!(of("250m"), Some(Duration::from_millis(250)));
        assert_eq!(of("99999999H"), Some(Duration::from_secs(99_999_999 * 3600)));
        for wrong in ["", "S", "1", "123456789S", "1x", "-1S"] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn bytes_are_given_back_however_a_request_ends() {
        let all = Arc::new(ByteBudget { limit: 100, used: AtomicU64::new(0) });
        let charge = |num_bytes| {
            let charge = Charge { all: Arc::clone(&all), own: AtomicU64::new(0) };
            charge.add(num_bytes).map(|()| charge)
        };
        let first = charge(60).ok().unwrap();
        assert_eq!(charge(50).err().unwrap().code(), Code::ResourceExhausted);
        assert_eq!(all.used.load(Ordering::Relaxed), 60, "what was refused is not counted");
        drop(first);
        assert_eq!(all.used.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_rate_is_kept_within_a_second() {
        let rate = Rate::default();
        assert_eq!((0..5).filter(|_| rate.admit(3)).count(), 3);
        assert!(Rate::default().admit(0));
    }
}
