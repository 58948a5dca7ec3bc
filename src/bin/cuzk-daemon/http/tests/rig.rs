//! An engine that is served, and a client that is no more than a socket.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use cuzk::actors::{ArbiterLayout, Pace};
use cuzk::engine::{Engine, EngineConfig, JobHandle};
use cuzk::messages::events::EventSink;
use cuzk::messages::job::ProofRequest;
use cuzk::simulation::{Machine, Scenario};
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::http::sensors::{Sample, Sampler, Sensors};
use crate::http::{router, History, State};

const PATIENCE: Duration = Duration::from_secs(60);

/// `tests/machine.toml`, with other faults and fewer devices where a test wants them.
pub fn scenario() -> Scenario {
    toml::from_str(include_str!("machine.toml")).unwrap()
}

pub struct Rig {
    pub engine: Engine,
    pub state: State,
    machine: Machine,
    address: SocketAddr,
    /// Its threads serve until it is dropped.
    _runtime: Runtime,
}

/// Serves `router` on a port of the system's choice.
pub fn serve(router: Router) -> (Runtime, SocketAddr) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let listener = runtime.block_on(tokio::net::TcpListener::bind(("127.0.0.1", 0))).unwrap();
    let address = listener.local_addr().unwrap();
    runtime.spawn(async move { axum::serve(listener, router).await });
    (runtime, address)
}

impl Rig {
    pub fn start(scenario: Scenario) -> Self {
        let machine = Machine::new(scenario).unwrap();
        let history = History::start().unwrap();
        let events = EventSink::to(history.consumer());
        let tick = Duration::from_millis(20);
        let config = EngineConfig {
            arbiter_layout: ArbiterLayout::ThreadPerDevice,
            pace: Pace { scheduler_tick: tick, supervisor_tick: tick, status_interval: Duration::ZERO },
            ..machine.engine_config(events).unwrap()
        };
        let engine = Engine::start(config).unwrap();
        engine.wait_ready_blocking().unwrap();
        let ids = engine.status().devices.iter().map(|device| device.id.clone()).collect::<Vec<_>>();
        let state = State::with_sampler(engine.clone(), history, Sampler::fixed(sample(&ids))).unwrap();
        let (runtime, address) = serve(router(state.clone(), Arc::new(|_| true)));
        Self { engine, state, machine, address, _runtime: runtime }
    }

    /// A job of the scenario's stream of this circuit.
    pub fn submit(&self, circuit: &str, request_id: &str) -> JobHandle {
        let stream = self.machine.scenario().streams.iter().find(|stream| stream.circuit == circuit).unwrap();
        let request = ProofRequest { request_id: request_id.to_owned(), ..self.machine.request(stream) };
        self.engine.submit_blocking(request).unwrap()
    }

    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    pub fn get(&self, path: &str) -> Answer {
        ask(self.address, "GET", path)
    }

    pub fn head(&self, path: &str) -> Answer {
        ask(self.address, "HEAD", path)
    }

    pub fn status(&self) -> Value {
        serde_json::from_str(&self.get("/status").body).unwrap()
    }

    /// Asks for the status until it is as wanted.
    ///
    /// # Panics
    /// If it is not in time.
    pub fn wait_status(&self, what: &str, mut is_wanted: impl FnMut(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let status = self.status();
            if is_wanted(&status) {
                return status;
            }
            assert!(begun.elapsed() < PATIENCE, "waited for {what}: {status:#}");
            // A question every so often: nobody tells.
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }
}

/// Readings of every device, so that everything has something to show, and two files on the disk.
fn sample(devices: &[String]) -> Sample {
    let sensors = |index: usize| Sensors {
        temperature_celsius: Some(58 + 5 * index as u32),
        power_watts: Some(271.0 - 9.5 * index as f64),
        power_limit_watts: Some(300.0),
        utilization: Some(0.97),
        sm_clock_mhz: Some(1785),
        memory_clock_mhz: Some(8001),
        memory_used_bytes: Some(30 << 30),
    };
    let gpus: BTreeMap<String, Sensors> =
        devices.iter().enumerate().map(|(index, id)| (id.clone(), sensors(index))).collect();
    let key_files = [("porep-32g".to_owned(), 48_650_000_000), ("porep-64g".to_owned(), 48_650_000_000)];
    Sample { gpus, key_files: key_files.into() }
}

pub struct Answer {
    pub code: u16,
    pub headers: BTreeMap<String, String>,
    pub body: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

/// One request, one connection.
pub fn ask(address: SocketAddr, method: &str, path: &str) -> Answer {
    ask_with(address, method, path, "")
}

/// As [`ask`], with further header lines.
pub fn ask_with(address: SocketAddr, method: &str, path: &str, headers: &str) -> Answer {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}Connection: close\r\n\r\n")
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let mut lines = head.lines();
    let code = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers = lines.filter_map(|line| line.split_once(": "));
    let headers = headers.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
    Answer { code, headers, body: body.to_owned() }
}

/// The value of a sample of `/metrics`, written as there.
pub fn metric(text: &str, sample: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' ')?.parse().ok())
}
