//! The reference: what was asked, and what may therefore be answered. It knows nothing of how the engine decides.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use cuzk::engine::{Engine, JobEvents};
use cuzk::error::{DeviceError, EngineError, PlanError, ScheduleError};
use cuzk::ids::{DeviceId, JobId, PartitionIndex};
use cuzk::messages::job::{JobEvent, JobResult, Placement, Priority};
use cuzk::messages::status::{EngineDeviceStatus, EngineStatus};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::jobs::proof_of;
use super::order::{Asked, Order};

/// A device that refused work is left alone for a moment, and looked at again at the next tick.
const MAX_IDLE: Duration = Duration::from_millis(200);

/// A request as the life makes it. Equal ones are the same work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    pub request_id: String,
    pub circuit: &'static str,
    pub xs: Vec<u64>,
    pub is_broken: bool,
    pub placement: Placement,
}

/// Where a partition is, by the job's events.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stand {
    /// The job goes on after a restart: it may have got as far as a device before anybody listened.
    Unheard,
    Waiting,
    /// Its witness is there, or its last attempt failed.
    Ready,
    Placed {
        device: DeviceId,
    },
    Verified {
        device: DeviceId,
    },
}

#[derive(Clone, Debug)]
struct Part {
    stand: Stand,
    num_placed: u32,
    /// Every device that it was on.
    tried: BTreeSet<DeviceId>,
    /// Attempts on devices that nobody was told of.
    num_unheard: u32,
}

impl Part {
    fn new(stand: Stand) -> Self {
        Self { stand, num_placed: 0, tried: BTreeSet::new(), num_unheard: 0 }
    }

    /// Whether each of `candidates` may have had it.
    fn was_tried_by(&self, candidates: &[DeviceId]) -> bool {
        let num_missing = candidates.iter().filter(|device| !self.tried.contains(device)).count();
        num_missing as u32 <= self.num_unheard + u32::from(self.stand == Stand::Unheard)
    }
}

/// One job.
pub struct Record {
    pub id: JobId,
    pub statement: Statement,
    pub priority: Priority,
    /// Since when it has that priority: somebody who attaches may raise it.
    priority_since: Instant,
    /// The latest of all callers'; `None`: one of them has none.
    pub deadline: Option<Instant>,
    /// Somebody asked for its end.
    pub cancel_is_asked: bool,
    /// A cancel was accepted: no other end is right any more.
    pub is_cancelled: bool,
    /// Cancelled after its end.
    pub is_let_go: bool,
    /// Nobody waits for it any more; it may have been done before that was heard.
    pub is_dropped: bool,
    parts: Vec<Part>,
    result: Option<JobResult>,
    /// How often each caller was told the end.
    ends_told: Vec<u32>,
}

impl Record {
    pub fn is_live(&self) -> bool {
        self.result.is_none()
    }

    /// It ended because no device was left for it, and nobody has cancelled it since: an engine that is started later may have
    /// one.
    fn wants_device(&self) -> bool {
        let ended = matches!(self.result, Some(Err(EngineError::Schedule(ScheduleError::NoDevice(_)))));
        ended && !self.is_let_go
    }

    /// As another engine finds it in a journal. Nobody has told it yet how it ends.
    fn left_by_a_kill(&self) -> Self {
        let parts = self.parts.iter().map(|_| Part::new(Stand::Unheard));
        Self {
            statement: self.statement.clone(),
            cancel_is_asked: false,
            is_cancelled: false,
            is_let_go: false,
            is_dropped: false,
            parts: parts.collect(),
            result: self.result.clone().filter(Result::is_ok),
            ends_told: Vec::new(),
            ..*self
        }
    }

    /// Nobody's clock went on for so long.
    pub fn postpone(&mut self, pause: Duration) {
        self.deadline = self.deadline.map(|deadline| deadline + pause);
        self.priority_since += pause;
    }

    /// It has ended with a proof: the same request is served with it.
    pub fn has_proof(&self) -> bool {
        matches!(self.result, Some(Ok(_)))
    }
}

/// All jobs of one engine.
pub struct Book {
    pub engine: Engine,
    pub max_attempts: u32,
    pub reserved: BTreeSet<DeviceId>,
    pub records: Vec<Record>,
    pub order: Order,
    /// The engine was told to end its jobs.
    pub is_stopping: bool,
    /// Those who listen, and find fault by panicking.
    pub listeners: Vec<JoinHandle<()>>,
}

pub type SharedBook = Rc<RefCell<Book>>;

impl Book {
    pub fn num_live(&self) -> usize {
        self.records.iter().filter(|record| record.is_live()).count()
    }

    pub fn num_live_critical(&self) -> usize {
        let is_critical = |record: &&Record| record.is_live() && record.priority == Priority::Critical;
        self.records.iter().filter(is_critical).count()
    }

    pub fn index_of(&self, id: JobId) -> Option<usize> {
        self.records.iter().position(|record| record.id == id)
    }

    /// The job that an equal request must attach to.
    pub fn same_work(&self, statement: &Statement) -> Option<JobId> {
        let is_same =
            |record: &&Record| record.statement == *statement && (record.is_live() || record.has_proof());
        self.records.iter().rev().find(is_same).map(|record| record.id)
    }

    /// A job was accepted that is not known.
    pub fn open(&mut self, id: JobId, statement: Statement, priority: Priority, deadline: Option<Instant>) {
        let parts = statement.xs.iter().map(|_| Part::new(Stand::Waiting));
        self.records.push(Record {
            id,
            parts: parts.collect(),
            statement,
            priority,
            priority_since: Instant::now(),
            deadline,
            cancel_is_asked: false,
            is_cancelled: false,
            is_let_go: false,
            is_dropped: false,
            result: None,
            ends_told: Vec::new(),
        });
    }

    /// What an engine must know that is started from the journal as it is now: jobs that have not ended or ended for want of
    /// a device, and proofs.
    pub fn left_by_a_kill(&self) -> Vec<Record> {
        let is_kept = |record: &&Record| record.is_live() || record.has_proof() || record.wants_device();
        self.records.iter().filter(is_kept).map(Record::left_by_a_kill).collect()
    }

    /// One more caller shares a live job.
    pub fn attach(&mut self, index: usize, priority: Priority, deadline: Option<Instant>) {
        let record = &mut self.records[index];
        if !record.is_live() {
            return;
        }
        record.is_dropped = false;
        if priority > record.priority {
            record.priority = priority;
            record.priority_since = Instant::now();
        }
        record.deadline = record.deadline.zip(deadline).map(|(one, two)| one.max(two));
    }

    fn take_event(&mut self, index: usize, caller: usize, event: JobEvent) {
        if let JobEvent::Finished(result) = event {
            return self.take_end(index, caller, result);
        }
        // Every caller hears the same; the first has heard all of it.
        if caller > 0 {
            return;
        }
        match event {
            JobEvent::WitnessReady { partition, .. } => {
                let stand = self.stand(index, partition);
                // A Synthesizer never dies here: a witness is made once.
                assert!(
                    matches!(stand, Stand::Waiting | Stand::Unheard),
                    "a witness was made twice: {stand:?}"
                );
                *stand = Stand::Ready;
            }
            JobEvent::Placed { partition, device } => self.take_placed(index, partition, device),
            JobEvent::PartitionVerified { partition, device } => {
                let part = self.placed_part(index, partition, "proved");
                let is_right =
                    part.stand == Stand::Unheard || part.stand == Stand::Placed { device: device.clone() };
                assert!(is_right, "proved by {device} and placed otherwise: {:?}", part.stand);
                part.stand = Stand::Verified { device };
            }
            JobEvent::PartitionRetried { partition, reason } => {
                self.placed_part(index, partition, &reason).stand = Stand::Ready;
            }
            _ => {}
        }
    }

    /// A partition of which is told what only happens to one that is on a device.
    fn placed_part(&mut self, index: usize, partition: PartitionIndex, what: &str) -> &mut Part {
        let part = &mut self.records[index].parts[partition.0 as usize];
        match part.stand {
            Stand::Placed { .. } => {}
            Stand::Unheard => {
                part.num_placed += 1;
                part.num_unheard += 1;
            }
            _ => panic!("a partition that is nowhere: {what}"),
        }
        part
    }

    fn stand(&mut self, index: usize, partition: PartitionIndex) -> &mut Stand {
        &mut self.records[index].parts[partition.0 as usize].stand
    }

    fn take_placed(&mut self, index: usize, partition: PartitionIndex, device: DeviceId) {
        let record = &self.records[index];
        if let Placement::Device(wanted) = &record.statement.placement {
            assert_eq!(*wanted, device, "placed elsewhere than asked");
        }
        let is_critical = record.priority == Priority::Critical;
        assert!(is_critical || !self.reserved.contains(&device), "{device} is reserved for CRITICAL work");
        let part = &mut self.records[index].parts[partition.0 as usize];
        // A device that was busy after all gives a partition back without a word to the caller.
        let may_be_placed = matches!(part.stand, Stand::Ready | Stand::Placed { .. } | Stand::Unheard);
        assert!(may_be_placed, "placed without a witness, or after its proof: {:?}", part.stand);
        part.num_placed += 1;
        part.tried.insert(device.clone());
        part.stand = Stand::Placed { device };
    }

    /// Looks at what the engine did since the last time, in the order in which it did it.
    pub fn check_order(&mut self, status: &EngineStatus) {
        let asked = |id: JobId| {
            let record = self.records.iter().find(|record| record.id == id)?;
            Some(Asked {
                priority: record.priority,
                priority_since: record.priority_since,
                placement: &record.statement.placement,
            })
        };
        self.order.check(asked);
        assert_eq!(self.order.num_placed(), status.totals.dispatched, "what is given out is told");
        let is_idle = |device: &EngineDeviceStatus| {
            device.state == "ready" && device.health == "healthy" && device.lanes_busy == 0
        };
        let mut general = status
            .devices
            .iter()
            .filter(|device| !self.reserved.contains(&DeviceId::new(device.id.as_str())));
        if general.all(is_idle) {
            let waited = self.order.longest_wait(asked);
            assert!(waited <= MAX_IDLE, "a partition waits for {waited:?} while every device is idle");
        }
    }

    fn take_end(&mut self, index: usize, caller: usize, result: JobResult) {
        let record = &mut self.records[index];
        record.ends_told[caller] += 1;
        assert_eq!(record.ends_told[caller], 1, "job {} was answered twice", record.id);
        if let Some(known) = &record.result {
            let is_same = match (known, &result) {
                (Ok(one), Ok(two)) => one.proof == two.proof,
                (Err(one), Err(two)) => one.to_string() == two.to_string(),
                _ => false,
            };
            assert!(is_same, "job {} has two ends: {known:?} and {result:?}", record.id);
            return;
        }
        record.result = Some(result.clone());
        match result {
            Ok(outcome) => self.check_proof(index, &outcome.proof, &outcome.devices),
            Err(error) => self.check_error(index, &error),
        }
    }

    fn check_proof(&self, index: usize, proof: &[u8], devices: &[DeviceId]) {
        let record = &self.records[index];
        assert!(!record.statement.is_broken, "job {} proves what is not so", record.id);
        assert!(!record.is_cancelled, "job {} ends with a proof after its cancel", record.id);
        let expected: Vec<u8> = record.statement.xs.iter().flat_map(|&x| proof_of(x).to_bytes()).collect();
        assert_eq!(proof, expected, "job {} is answered wrongly", record.id);
        let verified: Vec<DeviceId> = record
            .parts
            .iter()
            .map(|part| match &part.stand {
                Stand::Verified { device } => device.clone(),
                other => panic!("job {} ends while a partition is {other:?}", record.id),
            })
            .collect();
        assert_eq!(devices, verified, "job {} names other devices", record.id);
    }

    fn check_error(&self, index: usize, error: &EngineError) {
        let record = &self.records[index];
        let status = self.engine.status();
        let now = Instant::now();
        let is_allowed = match error {
            EngineError::Cancelled { .. } => record.cancel_is_asked || record.is_dropped,
            EngineError::DeadlineExceeded { .. } => record.deadline.is_some_and(|deadline| deadline <= now),
            EngineError::Synthesis { .. } => record.statement.is_broken,
            EngineError::Schedule(ScheduleError::Draining) => self.is_stopping,
            EngineError::Schedule(ScheduleError::NoDevice(_)) => {
                status.devices.iter().any(|device| device.state == "gone")
            }
            EngineError::Device(error) => self.is_exhausted(record, error, &status),
            _ => false,
        };
        assert!(is_allowed, "job {} ({:?}) ends with: {error}", record.id, record.statement);
        assert!(
            !record.is_cancelled || matches!(error, EngineError::Cancelled { .. }),
            "job {} was cancelled and ends with: {error}",
            record.id
        );
    }

    /// A partition had all its attempts; or for want of memory: every device that may take it has had it, or none has what the
    /// circuit needs at least, and then nothing of it is placed.
    fn is_exhausted(&self, record: &Record, error: &DeviceError, status: &EngineStatus) -> bool {
        if record.parts.iter().any(|part| part.num_placed >= self.max_attempts) {
            return true;
        }
        let is_open_to = |id: &DeviceId| {
            let is_wanted = match &record.statement.placement {
                Placement::Any => true,
                Placement::Device(wanted) => wanted == id,
            };
            is_wanted && (record.priority == Priority::Critical || !self.reserved.contains(id))
        };
        let alive = status.devices.iter().filter(|device| device.state != "gone");
        let candidates: Vec<DeviceId> =
            alive.map(|device| DeviceId::new(device.id.as_str())).filter(is_open_to).collect();
        let was_tried_by_all = || record.parts.iter().any(|part| part.was_tried_by(&candidates));
        match error {
            DeviceError::Plan { source: PlanError::InsufficientVram { needs_bytes, has_bytes }, .. } => {
                let was_placed = record.parts.iter().any(|part| part.num_placed > 0);
                needs_bytes > has_bytes && (!was_placed || was_tried_by_all())
            }
            DeviceError::OutOfVram { .. } => was_tried_by_all(),
            _ => false,
        }
    }

    /// No job is lost: those that the engine has are those that have not ended. `false`: it has not told all yet.
    pub fn agrees_with(&self, status: &EngineStatus) -> bool {
        let live: BTreeSet<String> = self
            .records
            .iter()
            .filter(|record| record.is_live())
            .map(|record| record.id.to_string())
            .collect();
        let known: BTreeSet<String> = status.jobs.iter().map(|job| job.job.clone()).collect();
        live == known
    }

    /// Every job has ended, and every caller was told so, once.
    pub fn check_all_answered(&self) {
        for record in &self.records {
            assert!(!record.is_live(), "job {} was lost: {:?}", record.id, record.parts);
            assert!(
                record.ends_told.iter().all(|told| *told == 1),
                "job {}: {:?}",
                record.id,
                record.ends_told
            );
        }
    }
}

/// Follows a caller's events to their end.
pub fn listen(book: &SharedBook, index: usize, mut events: JobEvents) {
    let caller = {
        let told = &mut book.borrow_mut().records[index].ends_told;
        told.push(0);
        told.len() - 1
    };
    let shared = Rc::clone(book);
    let listener = actix_rt::spawn(async move {
        while let Some(event) = events.next().await {
            shared.borrow_mut().take_event(index, caller, event);
        }
    });
    book.borrow_mut().listeners.push(listener);
}

mod tests {
    use super::*;

    #[test]
    fn a_partition_that_some_device_has_not_had_is_not_given_up_for_want_of_memory() {
        let devices = [DeviceId::new("sim-0"), DeviceId::new("sim-1")];
        let mut part = Part::new(Stand::Ready);
        assert!(!part.was_tried_by(&devices));
        part.tried.insert(devices[1].clone());
        assert!(!part.was_tried_by(&devices) && part.was_tried_by(&devices[1..]));
        part.tried.insert(devices[0].clone());
        assert!(part.was_tried_by(&devices));
        // After a restart nobody knows where it was first.
        let mut part = Part::new(Stand::Unheard);
        assert!(!part.was_tried_by(&devices) && part.was_tried_by(&devices[..1]));
        (part.stand, part.num_unheard) = (Stand::Ready, 2);
        assert!(part.was_tried_by(&devices));
    }
}
