//! A web server of a test's own, on loopback, that answers as it is told.

use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

pub struct Server {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<(String, Option<usize>)>>>,
    /// Kept open until the server is dropped.
    stalled: Arc<Mutex<Vec<TcpStream>>>,
}

/// One request, and the connection to answer on.
pub struct Request {
    pub path: String,
    /// First byte of the range that is asked for.
    pub range: Option<usize>,
    stream: TcpStream,
    stalled: Arc<Mutex<Vec<TcpStream>>>,
}

impl Server {
    /// `answer` gets the number of the request, from 0.
    pub fn start(answer: impl Fn(usize, &Request) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let stalled = Arc::new(Mutex::new(Vec::new()));
        let (heard, held) = (Arc::clone(&requests), Arc::clone(&stalled));
        let (answer, count) = (Arc::new(answer), Arc::new(AtomicUsize::new(0)));
        // The thread ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                let (heard, held) = (Arc::clone(&heard), Arc::clone(&held));
                let (answer, count) = (Arc::clone(&answer), Arc::clone(&count));
                std::thread::spawn(move || {
                    let Some(request) = Request::read(stream, held) else { return };
                    heard.lock().unwrap().push((request.path.clone(), request.range));
                    answer(count.fetch_add(1, Ordering::SeqCst), &request);
                });
            }
        });
        Self { address, requests, stalled }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn paths(&self) -> Vec<String> {
        self.requests.lock().unwrap().iter().map(|(path, _)| path.clone()).collect()
    }

    pub fn ranges(&self) -> Vec<Option<usize>> {
        self.requests.lock().unwrap().iter().map(|(_, range)| *range).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for stream in self.stalled.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Request {
    fn read(stream: TcpStream, stalled: Arc<Mutex<Vec<TcpStream>>>) -> Option<Self> {
        let mut lines = BufReader::new(stream.try_clone().ok()?).lines();
        let first = lines.next()?.ok()?;
        let path = first.split(' ').nth(1)?.to_owned();
        let mut range = None;
        for line in lines {
            let line = line.ok()?.to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("range: bytes=") {
                range = value.trim_end_matches('-').parse().ok();
            }
        }
        Some(Self { path, range, stream, stalled })
    }

    fn send(&self, head: &str, body: &[u8]) {
        let mut stream = &self.stream;
        // The client may go away whenever it likes.
        let _ =
            write!(stream, "HTTP/1.1 {head}Connection: close\r\n\r\n").and_then(|()| stream.write_all(body));
    }

    fn close(&self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// As a good server does.
    pub fn serve(&self, bytes: &[u8]) {
        match self.range {
            None => self.serve_whole(bytes),
            Some(first) if first >= bytes.len() => {
                let range = format!("Content-Range: bytes */{}\r\n", bytes.len());
                self.refuse("416 Range Not Satisfiable", &range);
            }
            Some(first) => self.serve_from(bytes, first, bytes.len()),
        }
    }

    pub fn serve_whole(&self, bytes: &[u8]) {
        self.serve_as(bytes, bytes.len());
    }

    /// The whole, said to be of another length.
    pub fn serve_as(&self, bytes: &[u8], length: usize) {
        self.send(&format!("200 OK\r\nContent-Length: {length}\r\n"), bytes);
        self.close();
    }

    pub fn serve_from(&self, bytes: &[u8], first: usize, end: usize) {
        self.send(&partial_head(bytes, first), &bytes[first..end]);
        self.close();
    }

    /// What is asked for, but no more than `num_bytes` of it.
    pub fn serve_cut(&self, bytes: &[u8], num_bytes: usize) {
        self.begin(bytes, num_bytes);
        self.close();
    }

    /// The same, with the connection kept open.
    pub fn serve_stalled(&self, bytes: &[u8], num_bytes: usize) {
        self.begin(bytes, num_bytes);
        self.stalled.lock().unwrap().push(self.stream.try_clone().unwrap());
    }

    fn begin(&self, bytes: &[u8], num_bytes: usize) {
        let first = self.range.unwrap_or(0);
        let end = (first + num_bytes).min(bytes.len());
        match self.range {
            None => self.send(&format!("200 OK\r\nContent-Length: {}\r\n", bytes.len()), &bytes[..end]),
            Some(_) => self.send(&partial_head(bytes, first), &bytes[first..end]),
        }
    }

    /// Without a length.
    pub fn serve_chunked(&self, bytes: &[u8]) {
        let mut body = Vec::new();
        for chunk in bytes.chunks(10_000) {
            write!(body, "{:x}\r\n", chunk.len()).unwrap();
            body.extend_from_slice(chunk);
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(b"0\r\n\r\n");
        self.send("200 OK\r\nTransfer-Encoding: chunked\r\n", &body);
        self.close();
    }

    pub fn redirect(&self, to: &str) {
        self.send(&format!("302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n"), b"");
        self.close();
    }

    pub fn refuse(&self, status: &str, headers: &str) {
        self.send(&format!("{status}\r\n{headers}Content-Length: 2\r\n"), b"no");
        self.close();
    }
}

fn partial_head(bytes: &[u8], first: usize) -> String {
    let (last, total) = (bytes.len() - 1, bytes.len());
    format!(
        "206 Partial Content\r\nContent-Range: bytes {first}-{last}/{total}\r\nContent-Length: {}\r\n",
        total - first
    )
}
