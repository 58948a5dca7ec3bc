//! Ten thousand jobs through the real actors, with devices and a host that cost no time: what a partition costs the
//! engine itself.

use std::time::Duration;

use cuzk::engine::{DeviceSpec, Engine, EngineConfig};
use cuzk::messages::events::EventSink;
use cuzk::simulation::{Machine, Scenario};

use super::instant_device::instant_devices;

/// A machine whose host takes no time. Its circuits are small, so that memory holds nobody back but by number.
pub fn machine(num_devices: u32, stage_ms: f64, partitions: u32) -> Machine {
    let text = format!(
        r#"
        name = "load"
        hours = 1.0
        [host]
        workers = 16
        memory = "128GiB"
        read_gib_per_s = 1000.0
        [engine]
        max_queued_jobs = 20000
        [[device]]
        model = "card"
        count = {num_devices}
        vram = "48GiB"
        link_gib_per_s = 10000.0
        [[circuit]]
        id = "porep-2k"
        kind = "porep-c2"
        stage_ms = {{ upload = {stage_ms}, quotient = {stage_ms}, sum_h = {stage_ms}, sum_l = {stage_ms}, sum_a = {stage_ms}, sum_b_g1 = {stage_ms}, sum_b_g2 = {stage_ms}, assemble = {stage_ms} }}
        witness_s = 0.0
        verify_ms = 0
        [[stream]]
        circuit = "porep-2k"
        partitions = {partitions}
        arrivals = {{ backlog = {{ jobs = 1 }} }}
        "#
    );
    let scenario: Scenario = toml::from_str(&text).expect("it is a scenario");
    Machine::new(scenario).expect("it contradicts itself nowhere")
}

/// What it took.
pub struct Overhead {
    pub num_partitions: u64,
    /// Of a processor: others may have had it in between.
    pub processor_time: Duration,
}

impl Overhead {
    pub fn per_partition(&self) -> Duration {
        self.processor_time / self.num_partitions as u32
    }
}

/// How long this thread has had a processor; exact to some milliseconds, at which the system counts it anew.
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux counts a thread's time");
    let nanoseconds = text.split_whitespace().next().and_then(|field| field.parse().ok());
    Duration::from_nanos(nanoseconds.expect("the first field is a number"))
}

/// Submits `num_jobs` on the current arbiter, all before any device is ready, and waits for all. Scheduler, Synthesizer
/// and messages are real; devices answer at once. What it takes of the arbiter's thread, on which all of it runs, counts
/// from the moment the devices are ready.
pub async fn overhead(num_devices: u32, num_jobs: u32, partitions: u32) -> Overhead {
    let machine = machine(num_devices, 0.0, partitions);
    let (open, devices) = instant_devices(num_devices);
    let devices = devices.into_iter().map(DeviceSpec::Spawner).collect();
    let config = machine.engine_config(EventSink::off()).expect("it has no faults");
    let engine =
        Engine::start_on_current_arbiter(EngineConfig { devices, ..config }).await.expect("it starts");
    let request = machine.request(&machine.scenario().streams[0]);
    let mut jobs = Vec::new();
    for _ in 0..num_jobs {
        let mut job = engine.submit(request.clone()).await.expect("the queue has room");
        drop(job.events());
        jobs.push(job);
    }
    let begun = processor_time();
    open.send_replace(true);
    for job in &jobs {
        job.wait().await.expect("nothing fails");
    }
    let processor_time = processor_time() - begun;
    drop(jobs);
    engine.shutdown(Duration::from_secs(1)).await;
    assert_eq!(machine.num_wrong(), 0);
    Overhead { num_partitions: u64::from(num_jobs) * u64::from(partitions), processor_time }
}
