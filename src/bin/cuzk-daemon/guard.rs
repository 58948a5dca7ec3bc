//! What every call passes before it is served: its connection's rate, token, limits, deadline; and what its answer passes.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{ready, Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::{Body as HttpBody, Frame};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Sleep;
use tonic::body::Body;
use tonic::{Code, Status};
use tower::{Layer, Service};

use crate::connection::Peer;
use crate::daemon::Daemon;
use crate::limits::{Charge, Limits};

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
        let peer = request.extensions().get::<Peer>().expect("every connection of ours has one").clone();
        let config = self.daemon.config();
        // Guessing a token is not to be free, and is to take nothing from those that have one.
        Limits::begin(&peer.usage, &config.daemon)?;
        self.check_token(&request, &peer)?;
        self.limits.begin_of_all(&config.daemon)?;
        let permit = self.limits.place()?;
        let deadline = timeout(request.headers())
            .and_then(|timeout| Instant::now().checked_add(timeout))
            .map(CallDeadline);
        let charge = Arc::new(self.limits.charge(&peer.usage));
        // Whoever serves the call drops it once the request is decoded.
        request.extensions_mut().insert(Arc::clone(&charge));
        if let Some(deadline) = deadline {
            request.extensions_mut().insert(deadline);
        }
        let slow_client = self.limits.slow_client;
        let request =
            request.map(|body| Body::new(Metered { body, charge, slow_client, idle: None, num_came: 0 }));
        Ok((request, permit, deadline))
    }

    fn check_token(&self, request: &Request<Body>, peer: &Peer) -> Result<(), Status> {
        let is_health = request.uri().path().starts_with("/grpc.health.v1.Health/");
        let given = request.headers().get(http::header::AUTHORIZATION).map(|value| value.as_bytes());
        if !self.needs_token || is_health || self.daemon.tokens.allow(given) {
            return Ok(());
        }
        if peer.usage.is_first_refusal() {
            tracing::warn!(
                peer = peer.name,
                "a connection whose calls have no token that is known is refused"
            );
        }
        Err(Status::unauthenticated("a bearer token is needed, and this is none of those known"))
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

/// What a body must bring in each time that it may stand still for: who sends a byte now and then holds a call's place as
/// well as who sends none.
const PROGRESS_BYTES: u64 = 1 << 10;

/// A request's body, whose bytes are counted, and which may not stand still.
struct Metered {
    body: Body,
    charge: Arc<Charge>,
    slow_client: Duration,
    /// Runs from when the next bytes were first waited for until enough have come.
    idle: Option<Pin<Box<Sleep>>>,
    /// Bytes that have come meanwhile.
    num_came: u64,
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
            let counted = frame.map(|frame| {
                let frame = frame?;
                let num_bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
                this.num_came += num_bytes;
                if this.num_came >= PROGRESS_BYTES {
                    (this.idle, this.num_came) = (None, 0);
                }
                this.charge.add(num_bytes).map(|()| frame)
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
}
