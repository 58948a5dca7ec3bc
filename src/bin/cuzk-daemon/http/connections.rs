//! Connections of HTTP: so many at a time, none that dawdles over a request's head, stays silent between two, or does not take
//! its answer.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{watch, Semaphore};
use tokio::task::JoinSet;
use tokio::time::Sleep;

/// A browser has six at most, and whoever scrapes metrics one. Without a limit, connections that do nothing would take the
/// file descriptors of the callers whom gRPC serves.
const CONNECTIONS_MAX: usize = 64;

/// How long accepting is left alone after it failed, as it does without free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The library takes no smaller buffer for a request's head.
const HEAD_BYTES_MIN: usize = 8 << 10;

/// What a connection may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// For a request's head, from the end of the answer before it, or from the connection's beginning; and for an answer to be
    /// taken, from when the system holds no more of it for its reader.
    pub patience: Duration,
    pub head_bytes: usize,
}

/// Serves until `stop` ends, and then until the answers that are on their way have gone out.
pub async fn serve(listener: TcpListener, router: Router, limits: Limits, stop: impl Future<Output = ()>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let (stopping, _) = watch::channel(false);
    let mut connections = JoinSet::new();
    let mut stop = std::pin::pin!(stop);
    loop {
        let socket = tokio::select! {
            () = &mut stop => break,
            // Those that have ended, so that they are not kept.
            Some(_) = connections.join_next() => continue,
            accepted = accept(&listener) => accepted,
        };
        let Some(socket) = socket else { continue };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            tracing::debug!("too many connections of HTTP: one more is closed");
            continue;
        };
        let connection = serve_one(socket, router.clone(), limits, stopping.subscribe());
        connections.spawn(async move {
            connection.await;
            drop(place);
        });
    }
    drop(listener);
    stopping.send_replace(true);
    while connections.join_next().await.is_some() {}
}

async fn accept(listener: &TcpListener) -> Option<TcpStream> {
    let accepted: io::Result<_> = listener.accept().await;
    match accepted {
        Ok((socket, _)) => Some(socket),
        Err(error) => {
            tracing::warn!(%error, "a connection of HTTP cannot be accepted");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

async fn serve_one(
    socket: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    limits: Limits,
    mut stopping: watch::Receiver<bool>,
) {
    let mut builder = Builder::new(TokioExecutor::new()).http1_only();
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.patience)
        .max_buf_size(limits.head_bytes.max(HEAD_BYTES_MIN));
    let socket = Patient { socket, patience: limits.patience, until: None };
    let connection = builder.serve_connection(TokioIo::new(socket), TowerToHyperService::new(router));
    let mut connection = std::pin::pin!(connection);
    let stopped = async {
        // An error: whoever would tell it is gone, which is the same.
        let _ = stopping.wait_for(|stopping| *stopping).await;
    };
    let ended = tokio::select! {
        served = connection.as_mut() => Some(served),
        () = stopped => None,
    };
    let served = match ended {
        Some(served) => served,
        None => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = served {
        // Who sent nothing or took nothing in time, or no HTTP.
        tracing::debug!(%error, "a connection of HTTP ended");
    }
}

/// A socket whose reader must take what is written so far within a time, however it takes it: one that reads a byte now and
/// then would hold a place as long as it likes.
struct Patient<S> {
    socket: S,
    patience: Duration,
    /// Runs from the first write that had to wait until all was taken.
    until: Option<Pin<Box<Sleep>>>,
}

impl<S> Patient<S> {
    /// What a write that has to wait comes to.
    fn wait<T>(&mut self, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        let patience = self.patience;
        let until = self.until.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        until.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.socket).poll_write(context, bytes) {
            Poll::Pending => self.wait(context),
            written => written,
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.socket).poll_write_vectored(context, slices) {
            Poll::Pending => self.wait(context),
            written => written,
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    /// Called when all that there is to write was written.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.socket).poll_flush(context) {
            Poll::Pending => self.wait(context),
            flushed => {
                self.until = None;
                flushed
            }
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.socket).poll_shutdown(context) {
            Poll::Pending => self.wait(context),
            shut => shut,
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{duplex, AsyncReadExt, AsyncWriteExt, DuplexStream};
    use tokio::time::Instant;

    use super::*;

    const LIMITS: Limits = Limits { patience: Duration::from_secs(30), head_bytes: 8 << 10 };
    const BODY_BYTES: usize = 100_000;
    /// More than any test takes of a clock that is paused: it jumps there if nobody ends before.
    const FOR_EVER: Duration = Duration::from_secs(86_400);

    /// A client of which the system holds a KiB, that has asked for a large answer; and how long the connection was served.
    async fn asked() -> (DuplexStream, tokio::task::JoinHandle<Duration>) {
        let (mut client, socket) = duplex(1 << 10);
        let router = Router::new().route("/", get(|| async { "x".repeat(BODY_BYTES) }));
        let served = tokio::spawn(async move {
            let (_stop, stopping) = watch::channel(false);
            let begun = Instant::now();
            let served = serve_one(socket, router, LIMITS, stopping);
            tokio::time::timeout(FOR_EVER, served).await.expect("it does not last for ever");
            begun.elapsed()
        });
        client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        (client, served)
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_nobody_takes_or_that_drips_ends_the_connection() {
        let in_time = LIMITS.patience..LIMITS.patience + Duration::from_secs(1);
        let (_client, served) = asked().await;
        let took = served.await.unwrap();
        assert!(in_time.contains(&took), "{took:?}");
        let (mut client, served) = asked().await;
        let reader = tokio::spawn(async move {
            while let Ok(1..) = client.read(&mut [0]).await {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        let took = served.await.unwrap();
        assert!(in_time.contains(&took), "{took:?} with a byte a second");
        reader.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_taken_slowly_and_in_time_is_whole_and_so_is_the_next() {
        let is_whole = |taken: &[u8]| {
            let head = taken.windows(4).position(|four| four == b"\r\n\r\n");
            head.is_some_and(|head| taken.len() == head + 4 + BODY_BYTES)
        };
        let (mut client, served) = asked().await;
        for request in 0..3 {
            let mut taken = Vec::new();
            while !is_whole(&taken) {
                // Some 20 s for each answer.
                tokio::time::sleep(Duration::from_millis(200)).await;
                let mut piece = vec![0; 1 << 10];
                let length = client.read(&mut piece).await.unwrap();
                assert!(length > 0, "the connection was closed over answer {request}");
                taken.extend(&piece[..length]);
            }
            client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        }
        drop(client);
        served.await.unwrap();
    }
}
