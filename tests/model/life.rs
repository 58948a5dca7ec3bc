//! One life: an engine on simulated devices, and everything that callers, devices and time do to it, from one seed.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use cuzk::engine::{DeviceSpec, Engine, EngineConfig, JobHandle, Preload};
use cuzk::error::{EngineError, ScheduleError};
use cuzk::ids::{CircuitId, DeviceId, JobId};
use cuzk::journal::{JournalConfig, Medium, MemoryDisk};
use cuzk::messages::job::{CancelOutcome, Payload, Placement, Priority, ProofRequest};
use cuzk::messages::status::EngineStatus;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha20Rng;
use tokio::time::Instant;

use super::devices::{lock, Shared};
use super::jobs::{decoders, encoded, workload, CIRCUITS, XS};
use super::machine::{config, Machine};
use super::order::Order;
use super::reference::{listen, Book, Record, SharedBook, Statement};

/// Passes over streamed queries that partitions shared, in all lives so far.
pub static NUM_SHARED: AtomicU64 = AtomicU64::new(0);

const MS: Duration = Duration::from_millis(1);
const NUM_STEPS: u32 = 24;
/// More than any life takes: a job that is not answered by then is lost.
const PATIENCE: Duration = Duration::from_secs(3600);

/// When the first engine of a life starts, since 1970.
const START: Duration = Duration::from_secs(1_000_000);

/// What an engine is started from.
struct Beginning {
    /// `None`: no journal.
    disk: Option<MemoryDisk>,
    time_of_day: Duration,
    /// What it must find on the disk.
    left: Vec<Record>,
}

/// One engine of a life.
struct World {
    engine: Engine,
    book: SharedBook,
    shared: Shared,
    disk: Option<MemoryDisk>,
    begun: Instant,
    time_of_day: Duration,
    max_queued_jobs: usize,
    devices: Vec<DeviceId>,
    /// Callers that wait, with the job of each.
    handles: Vec<(usize, JobHandle)>,
}

impl World {
    async fn begin(machine: Machine, beginning: Beginning, rng: &mut ChaCha20Rng) -> Self {
        let Beginning { disk, time_of_day, left } = beginning;
        let (shared, begun) = (Shared::default(), Instant::now());
        for record in &left {
            lock(&shared).statements.insert(record.id, record.statement.xs.clone());
        }
        let proved: BTreeSet<JobId> =
            left.iter().filter(|record| record.has_proof()).map(|record| record.id).collect();
        let (order, events) = Order::new(proved);
        let journal = disk.as_ref().map(|disk| JournalConfig {
            time_of_start: Some(time_of_day),
            ..JournalConfig::on(Medium::Backend(Arc::new(disk.clone())))
        });
        let config = EngineConfig { events, journal, decoders: decoders(), ..config(machine, &shared, rng) };
        let devices = config.devices.iter().map(DeviceSpec::device_id).collect();
        let (max_queued_jobs, max_attempts) = (config.max_queued_jobs, config.max_attempts);
        let reserved = config.reserved_for_critical.clone();
        let engine = Engine::start_on_current_arbiter(config).await.expect("the configuration is good");
        let book = Book {
            engine: engine.clone(),
            max_attempts,
            reserved,
            records: left,
            order,
            is_stopping: false,
            listeners: Vec::new(),
        };
        let book = Rc::new(RefCell::new(book));
        let handles = Vec::new();
        let mut world =
            Self { engine, book, shared, disk, begun, time_of_day, max_queued_jobs, devices, handles };
        world.attach_to_what_was_left().await;
        world
    }

    /// Every job that was acknowledged and had not ended is there, and so is every proof; nothing else is.
    async fn attach_to_what_was_left(&mut self) {
        let left: Vec<(JobId, bool)> =
            self.book.borrow().records.iter().map(|record| (record.id, record.is_live())).collect();
        let recovered = self.engine.recovered();
        let live: Vec<JobId> = left.iter().filter(|(_, is_live)| *is_live).map(|(id, _)| *id).collect();
        assert_eq!(recovered.iter().map(|job| job.job).collect::<Vec<_>>(), live, "jobs of the journal");
        for (index, (id, is_live)) in left.into_iter().enumerate() {
            if let Some(job) = recovered.iter().find(|job| job.job == id) {
                self.book.borrow_mut().records[index].priority = job.priority;
            }
            let handle = self.engine.attach(id).await.expect("the engine lives");
            let mut handle = handle.unwrap_or_else(|| panic!("job {id} was lost by the restart"));
            assert!(handle.is_durable());
            assert!(is_live || handle.result().is_some_and(|result| result.is_ok()), "job {id} has a proof");
            listen(&self.book, index, handle.events());
            self.handles.push((index, handle));
        }
        self.settle().await;
    }

    /// The process is killed: what is left is what its journal holds at this instant.
    async fn kill(self, rng: &mut ChaCha20Rng) -> Beginning {
        let (now, disk) = (Instant::now(), self.disk.as_ref().map(MemoryDisk::fork));
        let time_of_day = self.time_of_day + (now - self.begun);
        let mut left = match &disk {
            Some(_) => self.book.borrow().left_by_a_kill(),
            None => Vec::new(),
        };
        // What becomes of it is of no account any more, but this process needs its arbiter back.
        self.end(rng).await;
        left.iter_mut().for_each(|record| record.postpone(now.elapsed()));
        Beginning { disk, time_of_day, left }
    }

    async fn step(&mut self, rng: &mut ChaCha20Rng) {
        match rng.gen_range(0..20) {
            0..=7 => self.submit(rng).await,
            8 => self.cancel(rng).await,
            9 => self.drop_one(rng),
            10 => self.evict(rng).await,
            11 => self.preload(rng),
            12..=18 => tokio::time::sleep(MS * rng.gen_range(0..60)).await,
            _ => tokio::time::sleep(MS * rng.gen_range(0..2_000)).await,
        }
        self.settle().await;
        self.check(&self.engine.status());
    }

    fn statement(&self, rng: &mut ChaCha20Rng) -> Statement {
        let known = &self.book.borrow().records;
        if let (true, Some(record)) = (rng.gen_bool(0.25), known.choose(rng)) {
            return record.statement.clone();
        }
        let num_partitions = [1, 1, 1, 2, 2, 3][rng.gen_range(0..6)];
        let placement = match self.devices.choose(rng) {
            Some(device) if rng.gen_bool(0.1) => Placement::Device(device.clone()),
            _ => Placement::Any,
        };
        Statement {
            request_id: format!("request-{}", rng.gen_range(0..6)),
            circuit: CIRCUITS[rng.gen_range(0..3)],
            xs: (0..num_partitions).map(|_| rng.gen_range(XS)).collect(),
            is_broken: rng.gen_bool(0.05),
            placement,
        }
    }

    async fn submit(&mut self, rng: &mut ChaCha20Rng) {
        let statement = self.statement(rng);
        let levels = [Priority::Low, Priority::Normal, Priority::Normal, Priority::High, Priority::Critical];
        let priority = levels[rng.gen_range(0..5)];
        let limit = rng.gen_bool(0.15).then(|| MS * rng.gen_range(1..400));
        let Statement { circuit, xs, is_broken, .. } = &statement;
        let payload = match &self.disk {
            Some(_) => encoded(circuit, xs, *is_broken),
            None => Payload::Workload(workload(circuit, xs, *is_broken)),
        };
        let request = ProofRequest {
            request_id: statement.request_id.clone(),
            priority: Some(priority),
            deadline: limit,
            placement: statement.placement.clone(),
            ..ProofRequest::new(payload)
        };
        let same = self.book.borrow().same_work(&statement);
        let is_full = self.is_full(priority);
        // It will share that job: what follows from it may be heard before the reply.
        if let Some(index) = same.and_then(|id| self.book.borrow().index_of(id)) {
            let deadline = limit.map(|limit| Instant::now() + limit);
            self.book.borrow_mut().attach(index, priority, deadline);
        }
        match self.engine.submit(request).await {
            Ok(handle) => self.accepted(handle, statement, priority, limit, (same, is_full)),
            Err(EngineError::Schedule(ScheduleError::QueueFull { .. })) => {
                assert!(is_full && same.is_none(), "refused although there is room");
            }
            Err(EngineError::Schedule(ScheduleError::NoDevice(reason))) => {
                self.check_no_device(&statement, priority, &reason);
            }
            Err(error) => panic!("{statement:?} is refused: {error}"),
        }
    }

    fn is_full(&self, priority: Priority) -> bool {
        let book = self.book.borrow();
        match priority {
            Priority::Critical => book.num_live_critical() >= 4 * self.max_queued_jobs,
            _ => book.num_live() >= self.max_queued_jobs,
        }
    }

    fn accepted(
        &mut self,
        mut handle: JobHandle,
        statement: Statement,
        priority: Priority,
        limit: Option<Duration>,
        (same, is_full): (Option<JobId>, bool),
    ) {
        let deadline = limit.map(|limit| Instant::now() + limit);
        assert_eq!(handle.is_durable(), self.disk.is_some(), "what is acknowledged is in the journal");
        let index = {
            let mut book = self.book.borrow_mut();
            match book.index_of(handle.id()) {
                Some(index) => {
                    assert!(handle.is_attached(), "two jobs have one id");
                    assert_eq!(book.records[index].statement, statement, "attached to other work");
                    assert_eq!(same, Some(handle.id()), "attached to another job of that work");
                    index
                }
                None => {
                    assert!(!handle.is_attached() && same.is_none(), "{statement:?} is known as {same:?}");
                    assert!(!is_full, "accepted although the queue is full");
                    lock(&self.shared).statements.insert(handle.id(), statement.xs.clone());
                    book.open(handle.id(), statement, priority, deadline);
                    book.records.len() - 1
                }
            }
        };
        listen(&self.book, index, handle.events());
        self.handles.push((index, handle));
    }

    fn check_no_device(&self, statement: &Statement, priority: Priority, reason: &str) {
        let status = self.engine.status();
        let book = self.book.borrow();
        let is_usable = |device: &cuzk::messages::status::EngineDeviceStatus| {
            let id = DeviceId::new(device.id.as_str());
            let is_wanted = match &statement.placement {
                Placement::Any => true,
                Placement::Device(wanted) => *wanted == id,
            };
            let is_open_to = priority == Priority::Critical || !book.reserved.contains(&id);
            is_wanted && is_open_to && device.state != "gone"
        };
        assert!(!status.devices.iter().any(is_usable), "{statement:?} at {priority:?} is refused: {reason}");
    }

    async fn cancel(&mut self, rng: &mut ChaCha20Rng) {
        let (index, id) = {
            let book = self.book.borrow();
            if book.records.is_empty() {
                return;
            }
            let index = rng.gen_range(0..book.records.len());
            (index, book.records[index].id)
        };
        self.book.borrow_mut().records[index].cancel_is_asked = true;
        let outcome = self.engine.cancel(id).await.expect("the engine lives");
        let record = &mut self.book.borrow_mut().records[index];
        match outcome {
            CancelOutcome::WasQueued | CancelOutcome::WasRunning => {
                assert!(!record.has_proof(), "cancelled after its end");
                record.is_cancelled = true;
            }
            // Also of what the engine's own end had left for the next one.
            CancelOutcome::AlreadyEnded => record.is_let_go = true,
            CancelOutcome::Unknown => panic!("job {id} is not known any more"),
        }
    }

    fn drop_one(&mut self, rng: &mut ChaCha20Rng) {
        if self.handles.is_empty() {
            return;
        }
        let (index, handle) = self.handles.swap_remove(rng.gen_range(0..self.handles.len()));
        drop(handle);
        if !self.handles.iter().any(|(other, _)| *other == index) {
            self.book.borrow_mut().records[index].is_dropped = true;
        }
    }

    async fn evict(&mut self, rng: &mut ChaCha20Rng) {
        let circuit = CIRCUITS[rng.gen_range(0..3)];
        let is_live = |book: &Book| {
            book.records.iter().any(|record| record.is_live() && record.statement.circuit == circuit)
        };
        let is_used = is_live(&self.book.borrow());
        match self.engine.evict(&CircuitId::new(circuit)).await {
            Ok(_) => assert!(!is_used, "{circuit} was let go under its jobs"),
            Err(EngineError::Schedule(ScheduleError::CircuitInUse { .. })) => {
                assert!(is_used, "{circuit} is not in use");
            }
            Err(error) => panic!("{circuit} is not let go: {error}"),
        }
    }

    /// Nobody waits for it: it may have to wait for devices and memory.
    fn preload(&self, rng: &mut ChaCha20Rng) {
        let workload = workload(CIRCUITS[rng.gen_range(0..3)], &[2], false);
        let preload = Preload { workload, pinned: rng.gen_bool(0.3), on_devices: rng.gen_bool(0.7) };
        let engine = self.engine.clone();
        let preloading = actix_rt::spawn(async move {
            if let Err(error) = engine.preload(preload).await {
                let is_expected = matches!(error, EngineError::Schedule(_) | EngineError::Device(_));
                assert!(is_expected, "a preload ends with: {error}");
            }
        });
        self.book.borrow_mut().listeners.push(preloading);
    }

    /// Lets everything happen that can happen at this instant.
    async fn settle(&self) {
        for round in 0..200 {
            // Its answer is behind all that was said to the Scheduler before.
            let answer = self.engine.cancel(JobId(u64::MAX)).await.expect("the engine lives");
            assert_eq!(answer, CancelOutcome::Unknown);
            for _ in 0..16 {
                tokio::task::yield_now().await;
            }
            // What happens at one instant takes some messages to and fro.
            if round >= 3 && self.book.borrow().agrees_with(&self.engine.status()) {
                return;
            }
        }
        let status = self.engine.status();
        panic!("the engine's jobs are {:?}", status.jobs);
    }

    fn check(&self, status: &EngineStatus) {
        for device in &status.devices {
            assert!(device.lanes_busy <= device.num_lanes + 1, "{device:?}");
            assert!(device.memory_reserved_bytes <= device.memory_budget_bytes, "{device:?}");
            assert!(device.memory_in_use_bytes <= device.memory_reserved_bytes, "{device:?}");
        }
        let totals = &status.totals;
        let num_ended = totals.completed + totals.failed + totals.cancelled;
        let num_begun = totals.accepted + totals.recovered;
        assert_eq!(num_begun, num_ended + status.jobs.len() as u64, "{totals:?}");
        self.check_devices();
        self.book.borrow_mut().check_order(status);
        assert!(status.circuit_memory_pinned_bytes <= status.circuit_memory_reserved_bytes, "{status:?}");
        assert!(status.ready || !status.reasons.is_empty(), "{status:?}");
    }

    fn check_devices(&self) {
        let mut observed = lock(&self.shared);
        let violations = std::mem::take(&mut observed.violations);
        assert!(violations.is_empty(), "{violations:?}");
        let book = self.book.borrow();
        for (job, what) in observed.suspicions.drain(..) {
            let record = job.and_then(|job| book.index_of(job)).map(|index| &book.records[index]);
            assert!(record.is_some_and(|record| record.priority == Priority::Critical), "{what}");
        }
    }

    /// Lets everything end by itself: then nothing may be held any more but keys.
    async fn finish(&self) {
        let is_idle = |status: &EngineStatus| {
            status.jobs.is_empty()
                && status.host_memory_reserved_bytes == 0
                && status.devices.iter().all(|device| {
                    let has_memory = device.memory_reserved_bytes > 0;
                    let has_keys = !device.resident_srs.is_empty();
                    device.lanes_busy == 0 && (device.state != "ready" || has_memory == has_keys)
                })
        };
        let idle = tokio::time::timeout(PATIENCE, self.engine.wait_status(is_idle)).await;
        let Ok(idle) = idle else { panic!("not all is let go: {:?}", self.engine.status()) };
        idle.expect("the engine lives");
        self.settle().await;
    }

    /// Ends the engine: by itself, within a while, or at once.
    async fn end(mut self, rng: &mut ChaCha20Rng) {
        let drain = match rng.gen_range(0..4) {
            0 => Duration::ZERO,
            1 => MS * rng.gen_range(1..300),
            _ => {
                self.finish().await;
                Duration::ZERO
            }
        };
        self.book.borrow_mut().is_stopping = true;
        let stopped = tokio::time::timeout(PATIENCE, self.engine.shutdown(drain)).await;
        stopped.expect("the engine stops");
        let listeners = std::mem::take(&mut self.book.borrow_mut().listeners);
        for listener in listeners {
            listener.await.expect("whoever listens finds no fault");
        }
        self.book.borrow_mut().check_order(&self.engine.status());
        self.book.borrow().check_all_answered();
        self.check_devices();
        NUM_SHARED.fetch_add(lock(&self.shared).num_shared, Ordering::Relaxed);
        // A device that did not drain in time is told to stop, and does so behind its mail.
        for _ in 0..200 {
            if lock(&self.shared).nothing_is_open() {
                break;
            }
            tokio::task::yield_now().await;
        }
        assert!(lock(&self.shared).nothing_is_open(), "a device is still owned");
        self.handles.clear();
    }
}

/// A whole life: one engine after the other, as after restarts of the process, some with a journal between them.
pub async fn live(seed: u64) {
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    let num_engines = if rng.gen_bool(0.2) { 2 } else { 1 };
    let num_devices = rng.gen_range(1..4);
    let machine = Machine { num_devices, reserves: num_devices > 1 && rng.gen_bool(0.3) };
    let has_journal = num_engines > 1 && rng.gen_bool(0.7);
    let disk = has_journal.then(MemoryDisk::default);
    let mut beginning = Beginning { disk, time_of_day: START, left: Vec::new() };
    for engine in 1..=num_engines {
        let mut world = World::begin(machine, beginning, &mut rng).await;
        for _ in 0..NUM_STEPS / num_engines {
            world.step(&mut rng).await;
        }
        if engine == num_engines {
            return world.end(&mut rng).await;
        }
        beginning = world.kill(&mut rng).await;
    }
}
