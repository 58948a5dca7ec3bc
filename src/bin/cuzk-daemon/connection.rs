//! Connections as they are accepted: so many at a time, and none that says nothing.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{mpsc, OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;

use crate::limits::{Limits, Usage};
use crate::listen::Listener;

/// Bytes that a connection begins with, of whatever protocol: HTTP/2's preface has as many, TLS's first message more.
const BEGINNING_BYTES: usize = 24;

/// How long accepting is left alone after it failed, as it does without free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A connection. Its place among those at a time is free again when it is dropped.
pub struct Connection {
    socket: Socket,
    /// Runs until it has begun.
    beginning: Option<Pin<Box<Sleep>>>,
    num_read: usize,
    usage: Arc<Usage>,
    _place: OwnedSemaphorePermit,
}

enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

/// Who is at the other end of a connection, and what it uses of the limits.
#[derive(Clone)]
pub struct Peer {
    /// For log lines.
    pub name: String,
    pub usage: Arc<Usage>,
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        Peer { name: self.socket.peer(), usage: Arc::clone(&self.usage) }
    }
}

impl Socket {
    fn peer(&self) -> String {
        match self {
            Self::Unix(socket) => match socket.peer_cred() {
                Ok(who) => format!("uid {}", who.uid()),
                Err(_) => "unix".to_owned(),
            },
            Self::Tcp(socket) => match socket.peer_addr() {
                Ok(address) => address.to_string(),
                Err(_) => "tcp".to_owned(),
            },
        }
    }
}

/// What a listener accepts, until the stream is dropped.
pub fn incoming(
    listener: Listener,
    places: Arc<Semaphore>,
    limits: Arc<Limits>,
) -> ReceiverStream<io::Result<Connection>> {
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        loop {
            let accepted = tokio::select! {
                () = sender.closed() => return,
                accepted = accept(&listener) => accepted,
            };
            let socket = match accepted {
                Ok(socket) => socket,
                Err(error) => {
                    tracing::warn!(%error, address = listener.address(), "a connection cannot be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                tracing::warn!(address = listener.address(), "too many connections: one more is closed");
                continue;
            };
            let beginning = Some(Box::pin(tokio::time::sleep(limits.slow_client)));
            let connection =
                Connection { socket, beginning, num_read: 0, usage: limits.usage(), _place: place };
            if sender.send(Ok(connection)).await.is_err() {
                return;
            }
        }
    });
    ReceiverStream::new(receiver)
}

async fn accept(listener: &Listener) -> io::Result<Socket> {
    match listener {
        Listener::Unix { listener, .. } => listener.accept().await.map(|(socket, _)| Socket::Unix(socket)),
        Listener::Tcp { listener, .. } => {
            let (socket, _) = listener.accept().await?;
            socket.set_nodelay(true)?;
            Ok(Socket::Tcp(socket))
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buffer.filled().len();
        let read = match &mut this.socket {
            Socket::Unix(socket) => Pin::new(socket).poll_read(context, buffer),
            Socket::Tcp(socket) => Pin::new(socket).poll_read(context, buffer),
        };
        let Some(beginning) = &mut this.beginning else { return read };
        match read {
            Poll::Ready(read) => {
                this.num_read += buffer.filled().len() - before;
                if this.num_read >= BEGINNING_BYTES {
                    this.beginning = None;
                }
                Poll::Ready(read)
            }
            Poll::Pending => beginning.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into())),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.socket {
            Socket::Unix(socket) => Pin::new(socket).poll_write(context, bytes),
            Socket::Tcp(socket) => Pin::new(socket).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.socket {
            Socket::Unix(socket) => Pin::new(socket).poll_write_vectored(context, slices),
            Socket::Tcp(socket) => Pin::new(socket).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.socket {
            Socket::Unix(socket) => Pin::new(socket).poll_flush(context),
            Socket::Tcp(socket) => Pin::new(socket).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.socket {
            Socket::Unix(socket) => Pin::new(socket).poll_shutdown(context),
            Socket::Tcp(socket) => Pin::new(socket).poll_shutdown(context),
        }
    }
}
