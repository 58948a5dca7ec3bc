//! Callers that send slowly, too much at a time or nothing, in frames that no library would send.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use cuzk_wire::v1::GetStatusRequest;
use tonic::Code;

use super::rig::{status, Daemon, Setup, LIMIT};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

// Types and flags of frames: RFC 9113, section 6.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

/// HTTP/2 by hand.
struct Raw {
    socket: UnixStream,
}

impl Raw {
    /// A connection that has begun.
    fn connect(daemon: &Daemon) -> Self {
        let mut raw = Self { socket: silent(daemon) };
        raw.socket.write_all(PREFACE).unwrap();
        raw.send(SETTINGS, 0, 0, &[]);
        raw
    }

    fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        // The other side may have closed: the test looks at what it reads.
        let _ = self.socket.write_all(&frame);
    }

    /// The next frame; `None`: the connection is closed.
    fn read(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.read_exact(&mut head)?;
        let number = |bytes: &[u8]| bytes.iter().fold(0, |number, byte| (number << 8) | u32::from(*byte));
        let mut payload = vec![0; number(&head[..3]) as usize];
        self.read_exact(&mut payload)?;
        Some(Frame { kind: head[3], flags: head[4], stream: number(&head[5..]), payload })
    }

    fn read_exact(&mut self, bytes: &mut [u8]) -> Option<()> {
        match self.socket.read_exact(bytes) {
            Ok(()) => Some(()),
            Err(error) => {
                let timed_out = matches!(error.kind(), std::io::ErrorKind::WouldBlock);
                assert!(!timed_out, "the connection is kept open");
                None
            }
        }
    }

    /// The next frame that is wanted, while everything that a live client answers is answered.
    fn read_until(&mut self, is_wanted: impl Fn(&Frame) -> bool) -> Option<Frame> {
        loop {
            let frame = self.read()?;
            if is_wanted(&frame) {
                return Some(frame);
            }
            if matches!(frame.kind, SETTINGS | PING) && frame.flags & ACK == 0 {
                let payload = if frame.kind == PING { &frame.payload[..] } else { &[] };
                self.send(frame.kind, ACK, 0, payload);
            }
        }
    }

    /// Reads and answers nothing until the daemon closes it.
    fn wait_closed(&mut self) {
        while self.read().is_some() {}
    }
}

/// A connection that has said nothing.
fn silent(daemon: &Daemon) -> UnixStream {
    let socket = UnixStream::connect(daemon.setup.socket()).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    socket
}

/// The headers of a call of `Prove`, and these (RFC 7541: literals that are neither indexed nor compressed).
fn headers(more: &[(&str, &str)]) -> Vec<u8> {
    let call = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/cuzk.v1.ProvingEngine/Prove"),
        (":authority", "localhost"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    let mut block = Vec::new();
    for (name, value) in call.iter().chain(more) {
        block.push(0);
        push_string(&mut block, name);
        push_string(&mut block, value);
    }
    block
}

fn push_string(block: &mut Vec<u8>, text: &str) {
    let mut length = text.len();
    if length < 127 {
        block.push(length as u8);
    } else {
        block.push(127);
        length -= 127;
        while length >= 128 {
            block.push((length % 128 + 128) as u8);
            length /= 128;
        }
        block.push(length as u8);
    }
    block.extend(text.as_bytes());
}

/// One that has little patience and little room. Not less: who is to be kept must answer in that time, on a busy machine too.
async fn impatient() -> Daemon {
    let mut setup = Setup::new("sim:1");
    setup.daemon =
        "slow_client_limit_s = 3\nmax_connections = 12\nmax_header_bytes = \"4KiB\"\nstatus_listen = \"127.0.0.1:0\""
            .to_owned();
    setup.start().await
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_say_nothing_or_nonsense_or_stop_are_closed() {
    let daemon = impatient().await;
    let begun = Instant::now();
    let mut nonsense = silent(&daemon);
    nonsense.write_all(&[b'\r'; 4096]).unwrap();
    let mut half_a_preface = silent(&daemon);
    half_a_preface.write_all(&PREFACE[..20]).unwrap();
    let mut begun_and_silent = Raw::connect(&daemon);
    // Headers that go on, and do not: until they have ended the connection can say nothing else.
    let mut half_headers = Raw::connect(&daemon);
    half_headers.send(HEADERS, 0, 1, &headers(&[])[..10]);
    for mut socket in [silent(&daemon), nonsense, half_a_preface] {
        // The end, or an error: it is not kept open.
        let ended = socket.read_to_end(&mut Vec::new());
        assert!(!ended.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock));
    }
    begun_and_silent.wait_closed();
    half_headers.wait_closed();
    println!("all were closed after {:?}", begun.elapsed());
    status(&mut daemon.client().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_stands_still_or_drips_ends_its_call_and_no_other() {
    let daemon = impatient().await;
    let mut raw = Raw::connect(&daemon);
    // A message of 1000 bytes is promised, and ten come; and one comes drop by drop.
    let promise = [0, 0, 0, 3, 0xe8];
    for stream in [1, 3] {
        raw.send(HEADERS, END_HEADERS, stream, &headers(&[]));
        raw.send(DATA, 0, stream, &promise);
    }
    raw.send(DATA, 0, 1, &[b'x'; 10]);
    let mut dripping = raw.socket.try_clone().unwrap();
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let dripper = std::thread::spawn(move || {
        // A frame of one byte on stream 3 each time that nobody says to stop.
        while stopped.recv_timeout(Duration::from_millis(100)) == Err(RecvTimeoutError::Timeout) {
            dripping.write_all(&[0, 0, 1, DATA, 0, 0, 0, 0, 3, b'x']).unwrap();
        }
    });
    for _ in 0..2 {
        let is_answer = |frame: &Frame| frame.kind == HEADERS && frame.flags & END_STREAM != 0;
        let answer = raw.read_until(is_answer).expect("the connection lives: it answers when it is asked");
        assert!([1, 3].contains(&answer.stream));
    }
    drop(stop);
    dripper.join().unwrap();
    // The same connection's next call is served.
    raw.send(HEADERS, END_HEADERS, 5, &headers(&[]));
    raw.send(DATA, END_STREAM, 5, &[0, 0, 0, 0, 0]);
    let answer = raw.read_until(|frame| frame.kind == HEADERS && frame.stream == 5);
    assert!(answer.is_some(), "the connection is closed");
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_beyond_the_limit_and_floods_of_resets_do_no_harm() {
    let daemon = impatient().await;
    // By the library, which is told the limit by the daemon.
    let mut client = daemon.client().await;
    let mut request = tonic::Request::new(GetStatusRequest {});
    request.metadata_mut().insert("x-large", "y".repeat(64 << 10).parse().unwrap());
    assert!(client.get_status(request).await.is_err());
    // By hand, in several frames: the call is refused, and the connection's others go on; or it is closed.
    let mut raw = Raw::connect(&daemon);
    let block = headers(&[("x-large", &"y".repeat(40 << 10))]);
    let (first, rest) = block.split_at(16 << 10);
    raw.send(HEADERS, END_STREAM, 1, first);
    let (second, third) = rest.split_at(16 << 10);
    raw.send(CONTINUATION, 0, 1, second);
    raw.send(CONTINUATION, END_HEADERS, 1, third);
    let refused = raw.read_until(|frame| matches!(frame.kind, HEADERS | RST_STREAM | GOAWAY));
    // 431 is no entry of HPACK's table: its status is a literal, after the index of `:status`.
    let is_served =
        refused.is_some_and(|frame| frame.kind == HEADERS && frame.payload.first() == Some(&0x88));
    assert!(!is_served, "40 KiB of headers are served");
    // Headers without an end: the daemon does not keep them all.
    let mut endless = Raw::connect(&daemon);
    endless.send(HEADERS, 0, 1, &headers(&[]));
    for _ in 0..1000 {
        endless.send(CONTINUATION, 0, 1, &[0; 1024]);
    }
    endless.wait_closed();
    // Streams that are begun and reset, again and again.
    let mut flood = Raw::connect(&daemon);
    for index in 0..5000 {
        flood.send(HEADERS, END_HEADERS, 2 * index + 1, &headers(&[]));
        flood.send(RST_STREAM, 0, 2 * index + 1, &[0, 0, 0, 8]);
    }
    flood.wait_closed();
    let mut client = daemon.client().await;
    assert_eq!(status(&mut client).await.jobs, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_beyond_the_limit_are_closed_and_places_are_free_again() {
    let mut setup = Setup::new("sim:1");
    setup.daemon = "max_connections = 3".to_owned();
    let daemon = setup.start().await;
    let mut client = daemon.client().await;
    status(&mut client).await;
    // The client has one; the connections by which the daemon was waited for may not be gone yet.
    let mut held: Vec<Raw> = Vec::new();
    let begun = Instant::now();
    while held.len() < 2 {
        let mut raw = Raw::connect(&daemon);
        if raw.read().is_some() {
            held.push(raw);
        }
        assert!(begun.elapsed() < LIMIT);
    }
    assert!(Raw::connect(&daemon).read().is_none(), "a fourth connection is served");
    // Who is there is served all the same, and whoever comes after one has gone.
    status(&mut client).await;
    held.pop();
    while Raw::connect(&daemon).read().is_none() {
        assert!(begun.elapsed() < LIMIT, "the place stays taken");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_a_second_are_limited_by_connection_and_in_total() {
    let mut setup = Setup::new("sim:1");
    setup.daemon = "max_calls_per_s_per_connection = 20".to_owned();
    let daemon = setup.start().await;
    let (mut wild, mut other) = (daemon.client().await, daemon.client().await);
    let refused = async |client: &mut super::rig::Client, calls: u32| {
        let mut messages = Vec::new();
        for _ in 0..calls {
            if let Err(refused) = client.get_status(GetStatusRequest {}).await {
                assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
                messages.push(refused.message().to_owned());
            }
        }
        messages
    };
    let begun = Instant::now();
    let messages = refused(&mut wild, 500).await;
    // A second's worth in each second that this took, and in the one that it began in.
    let admitted = 500 - messages.len() as u64;
    assert!((20..=20 * (begun.elapsed().as_secs() + 1)).contains(&admitted), "{admitted}");
    assert!(messages.iter().all(|message| message.contains("on this connection")), "{messages:?}");
    assert!(refused(&mut other, 10).await.is_empty(), "another connection pays for it");
    // In total, and at once: the file is read again.
    let text = std::fs::read_to_string(daemon.setup.config_file()).unwrap();
    let text = text.replace("max_calls_per_s_per_connection = 20", "max_calls_per_s = 5");
    std::fs::write(daemon.setup.config_file(), text).unwrap();
    let mut fresh = daemon.client().await;
    let reloaded = fresh.reload(cuzk_wire::v1::ReloadRequest {}).await.unwrap().into_inner();
    assert_eq!(reloaded.applied, ["daemon.max_calls_per_s", "daemon.max_calls_per_s_per_connection"]);
    let begun = Instant::now();
    let messages = [refused(&mut wild, 100).await, refused(&mut other, 100).await].concat();
    let admitted = 200 - messages.len() as u64;
    assert!((1..=5 * (begun.elapsed().as_secs() + 2)).contains(&admitted), "{admitted}");
    assert!(messages.iter().all(|message| message.starts_with("too many calls a second:")), "{messages:?}");
}

/// What is answered until the connection is closed.
fn answered(socket: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    if let Err(error) = socket.read_to_end(&mut answer) {
        assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "the connection is kept open");
    }
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn http_closes_on_those_that_dawdle_or_send_too_much() {
    let daemon = impatient().await;
    let address = daemon.status_address();
    let connect = || {
        let socket = TcpStream::connect(&address).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        socket
    };
    let mut silent = connect();
    let mut half = connect();
    half.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\nx-half: ").unwrap();
    // Of one that was answered, too.
    let mut idle = connect();
    idle.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    assert!(answered(&mut idle).starts_with("HTTP/1.1 200 OK"));
    assert!(!answered(&mut half).contains("200 OK"));
    answered(&mut silent);
    let mut large = connect();
    let _ = large.write_all(format!("GET /healthz HTTP/1.1\r\nx-large: {}", "y".repeat(64 << 10)).as_bytes());
    let refused = answered(&mut large);
    assert!(refused.is_empty() || refused.starts_with("HTTP/1.1 431"), "{refused}");
}

/// Whether what has been asked of HTTP is answered; else the connection is closed.
fn is_served(socket: &mut TcpStream) -> bool {
    if socket.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").is_err() {
        return false;
    }
    let mut answer = [0; 15];
    match socket.read_exact(&mut answer) {
        Ok(()) => answer == *b"HTTP/1.1 200 OK",
        Err(error) => {
            assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "neither answered nor closed");
            false
        }
    }
}

/// As many as HTTP has, whatever comes, apart from those of gRPC.
#[tokio::test(flavor = "multi_thread")]
async fn connections_of_http_beyond_the_limit_are_closed_and_grpc_does_not_notice() {
    let mut setup = Setup::new("sim:1");
    // Longer than the test: nobody is closed for being silent.
    setup.daemon =
        "slow_client_limit_s = 600\nmax_connections = 12\nstatus_listen = \"127.0.0.1:0\"".to_owned();
    let daemon = setup.start().await;
    let address = daemon.status_address();
    let connect = || {
        let socket = TcpStream::connect(&address).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        socket
    };
    let mut crowd: Vec<TcpStream> = (0..100).map(|_| connect()).collect();
    crowd.retain_mut(is_served);
    assert_eq!(crowd.len(), 64, "those that are served of a hundred");
    status(&mut daemon.client().await).await;
    drop(crowd);
    let begun = Instant::now();
    while !is_served(&mut connect()) {
        assert!(begun.elapsed() < LIMIT, "no place is free again");
    }
}

/// However few files the daemon may have open, its health is told.
#[tokio::test(flavor = "multi_thread")]
async fn connections_leave_descriptors_for_everything_else() {
    let mut setup = Setup::new("sim:1");
    setup.daemon = "slow_client_limit_s = 600\nstatus_listen = \"127.0.0.1:0\"".to_owned();
    setup.max_files = Some(64);
    let mut daemon = setup.start().await;
    daemon.log_with("16 connections at a time instead of daemon.max_connections (256)").await;
    let idle: Vec<UnixStream> = (0..100).map(|_| silent(&daemon)).collect();
    assert_eq!(daemon.http("/healthz").0, 200);
    drop(idle);
    daemon.wait_ready().await;
}
