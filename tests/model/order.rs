//! What the engine did, in the order in which it did it: no CRITICAL work is passed over.
//!
//! The callers of different jobs are told of them each by its own channel, in no order between them: a job that is placed
//! second may be heard of first. The event log is one sequence, so order is judged by it alone.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cuzk::ids::{DeviceId, JobId, PartitionIndex};
use cuzk::messages::events::{Event, EventConsumer, EventKind, EventSink};
use cuzk::messages::job::{Placement, Priority};
use tokio::time::Instant;

const QUARANTINED: &str = "quarantined";

/// What was told and not yet looked at.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<Event>>>);

impl EventConsumer for Told {
    fn consume(&self, event: Event) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }
}

/// What the caller side knows of a job that has not ended.
pub struct Asked<'a> {
    pub priority: Priority,
    /// Since when it has that priority.
    pub priority_since: Instant,
    pub placement: &'a Placement,
}

/// The engine's events so far.
pub struct Order {
    told: Told,
    begun: Instant,
    /// Partitions that have a witness and were on no device yet.
    ready_since: BTreeMap<(JobId, PartitionIndex), Instant>,
    quarantined: BTreeSet<DeviceId>,
    ended: BTreeSet<JobId>,
    num_placed: u64,
}

impl Order {
    /// And the sink by which the engine tells it. `ended`: jobs of an earlier engine, whose proofs this one was left.
    pub fn new(ended: BTreeSet<JobId>) -> (Self, EventSink) {
        let told = Told::default();
        let begun = Instant::now();
        let sink = EventSink::to(told.clone());
        let (ready_since, quarantined) = (BTreeMap::new(), BTreeSet::new());
        (Self { told, begun, ready_since, quarantined, ended, num_placed: 0 }, sink)
    }

    /// Looks at all that was told since the last time, oldest first. `asked`: of a job, by its callers.
    ///
    /// # Panics
    /// If CRITICAL work that could have gone to a device was passed over by other work, or something is proved of a job that
    /// has ended.
    pub fn check<'a>(&mut self, asked: impl Fn(JobId) -> Option<Asked<'a>>) {
        let events = take(&mut *self.told.0.lock().unwrap_or_else(PoisonError::into_inner));
        for (index, event) in events.iter().enumerate() {
            let now = self.begun + Duration::from_micros(event.at_us);
            match &event.kind {
                EventKind::WitnessMade { job, partition, .. } => {
                    self.ready_since.insert((*job, *partition), now);
                }
                EventKind::Placed { at, device, .. } => {
                    // If it fails it is not back here: where it may still go is known to the engine alone.
                    self.ready_since.remove(&(at.job, at.partition));
                    self.num_placed += 1;
                    assert!(!self.ended.contains(&at.job), "job {} is proved after its end", at.job);
                    // A device's health is told after what follows from it.
                    let is_last_resort =
                        self.quarantined.contains(device) || is_quarantined_now(device, &events[index..]);
                    if !is_last_resort {
                        self.check_inversion(now, at.job, device, &asked);
                    }
                }
                EventKind::JobEnded { job, .. } => {
                    self.ready_since.retain(|(other, _), _| other != job);
                    self.ended.insert(*job);
                }
                EventKind::DeviceHealth { device, health } if health == QUARANTINED => {
                    self.quarantined.insert(device.clone());
                }
                EventKind::DeviceHealth { device, .. } => {
                    self.quarantined.remove(device);
                }
                _ => {}
            }
        }
    }

    /// CRITICAL work that could have gone to this device, and was there before, must have gone first.
    fn check_inversion<'a>(
        &self,
        now: Instant,
        job: JobId,
        device: &DeviceId,
        asked: &impl Fn(JobId) -> Option<Asked<'a>>,
    ) {
        let placed = asked(job).expect("a job is placed after it was accepted");
        if placed.priority == Priority::Critical {
            return;
        }
        for ((other, partition), since) in self.ready_since.iter().filter(|(_, since)| **since < now) {
            let other_asked = asked(*other).expect("a witness is made after its job was accepted");
            let is_wanted = match other_asked.placement {
                Placement::Any => true,
                Placement::Device(wanted) => wanted == device,
            };
            let goes_first =
                is_wanted && other_asked.priority == Priority::Critical && other_asked.priority_since < now;
            assert!(
                !goes_first,
                "{device} is given {:?} work of job {job} while partition {partition} of CRITICAL job {other} waits \
                 since {:?}",
                placed.priority,
                now - *since
            );
        }
    }

    /// For how long some partition has waited that any device may take and none was given yet.
    pub fn longest_wait<'a>(&self, asked: impl Fn(JobId) -> Option<Asked<'a>>) -> Duration {
        let may_go_anywhere =
            |job: JobId| asked(job).is_some_and(|asked| matches!(asked.placement, Placement::Any));
        let waiting = self.ready_since.iter().filter(|((job, _), _)| may_go_anywhere(*job));
        waiting.map(|(_, since)| since.elapsed()).max().unwrap_or_default()
    }

    /// How many attempts were given to devices.
    pub fn num_placed(&self) -> u64 {
        self.num_placed
    }
}

/// Whether `device` is told to be quarantined in the same instant. `events`: from that instant on.
fn is_quarantined_now(device: &DeviceId, events: &[Event]) -> bool {
    events.iter().take_while(|event| event.at_us == events[0].at_us).any(|event| match &event.kind {
        EventKind::DeviceHealth { device: other, health } => other == device && health == QUARANTINED,
        _ => false,
    })
}

mod tests {
    use std::panic::{catch_unwind, AssertUnwindSafe};

    use cuzk::ids::Attempt;
    use cuzk::messages::events::AttemptRef;

    use super::*;

    const NORMAL: JobId = JobId(3);
    const CRITICAL: JobId = JobId(4);

    fn witness_made(job: JobId) -> EventKind {
        EventKind::WitnessMade { job, partition: PartitionIndex(1), elapsed_us: 0 }
    }

    fn placed(job: JobId) -> EventKind {
        let at = AttemptRef { job, partition: PartitionIndex(1), attempt: Attempt(1) };
        EventKind::Placed { at, device: DeviceId::new("sim-0"), critical_lane: false }
    }

    fn quarantined() -> EventKind {
        EventKind::DeviceHealth { device: DeviceId::new("sim-0"), health: QUARANTINED.to_owned() }
    }

    /// Both jobs have a witness; 9 ms later `then` is told, all at once. Whether that is found to be in order.
    fn is_in_order(then: Vec<EventKind>) -> bool {
        let (mut order, _) = Order::new(BTreeSet::new());
        let begun = order.begun;
        let asked = |job: JobId| {
            let priority = if job == CRITICAL { Priority::Critical } else { Priority::Normal };
            Some(Asked { priority, priority_since: begun, placement: &Placement::Any })
        };
        let first = [witness_made(NORMAL), witness_made(CRITICAL)].map(|kind| Event { at_us: 1_000, kind });
        let second = then.into_iter().map(|kind| Event { at_us: 10_000, kind });
        order.told.0.lock().unwrap().extend(first.into_iter().chain(second));
        catch_unwind(AssertUnwindSafe(|| order.check(asked))).is_ok()
    }

    #[test]
    fn critical_work_that_is_passed_over_is_found() {
        assert!(is_in_order(vec![placed(CRITICAL), placed(NORMAL)]));
        assert!(!is_in_order(vec![placed(NORMAL), placed(CRITICAL)]));
        assert!(!is_in_order(vec![placed(NORMAL)]));
        // The last resort of work that may go nowhere else; its health is told behind what follows from it.
        assert!(is_in_order(vec![placed(NORMAL), quarantined()]));
        assert!(is_in_order(vec![quarantined(), placed(NORMAL)]));
    }

    #[test]
    fn what_is_proved_after_its_job_has_ended_is_found() {
        let (mut order, _) = Order::new(BTreeSet::from([NORMAL]));
        order.told.0.lock().unwrap().push(Event { at_us: 0, kind: placed(NORMAL) });
        assert!(catch_unwind(AssertUnwindSafe(|| order.check(|_| None))).is_err());
    }
}
