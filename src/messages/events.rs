//! What happens in the engine, as typed events, and the handle through which actors tell it.
//!
//! ```text
//! Scheduler ──┐
//! GpuDevice ──┼─ EventSink::emit ──> EventConsumer: a file (event_log.rs), or a simulation's books
//! GpuDevice ──┘
//! ```
//!
//! A sink that is off costs one comparison: the event is not even built. Events carry names, numbers and error texts,
//! never a proof's inputs: there is no field that could hold `r`, `s`, a witness or a vanilla proof.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::backend::Stage;
use crate::circuits::WorkKind;
use crate::ids::{Attempt, CircuitId, DeviceId, JobId, PartitionIndex, WorkRef};
use crate::messages::job::Priority;

/// Version of the event format: the first event of a log names it.
pub const EVENT_FORMAT: u32 = 1;

/// Something that happened, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Microseconds since the sink was made, on the engine's clock.
    pub at_us: u64,
    #[serde(flatten)]
    pub kind: EventKind,
}

/// One attempt at one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AttemptRef {
    pub job: JobId,
    pub partition: PartitionIndex,
    pub attempt: Attempt,
}

impl AttemptRef {
    /// `None`: `at` names no attempt (a self-test, a whole job).
    pub fn of(at: &WorkRef) -> Option<Self> {
        Some(Self { job: at.job, partition: at.partition?, attempt: at.attempt? })
    }
}

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobOutcome {
    Completed,
    Failed,
    Cancelled,
    /// Its deadline passed.
    Expired,
}

/// What happened. Sizes in bytes, times in microseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum EventKind {
    /// The first event of a log. `unix_ms`: the system's clock then.
    LogStarted {
        format: u32,
        unix_ms: u64,
    },
    /// So many events before this one were lost: the writer could not keep up.
    EventsDropped {
        count: u64,
    },
    /// A device takes work (again).
    DeviceReady {
        device: DeviceId,
        name: String,
        backend: String,
        num_lanes: u32,
        num_critical_lanes: u32,
        memory_bytes: u64,
    },
    /// A device takes no work any more. `gone`: for good.
    DeviceDown {
        device: DeviceId,
        gone: bool,
        reason: String,
    },
    /// `healthy`, `degraded`, `probation`, `quarantined`, from now on.
    DeviceHealth {
        device: DeviceId,
        health: String,
    },
    /// A proving key is (no longer) on a device.
    KeyResident {
        device: DeviceId,
        circuit: CircuitId,
        resident: bool,
    },
    /// Memory of a device, whenever it changed. `reserved_bytes`: by plans and keys; `in_use_bytes`: as the backend
    /// says.
    DeviceMemory {
        device: DeviceId,
        reserved_bytes: u64,
        in_use_bytes: u64,
    },
    /// Reserved host memory, whenever it changed: of witnesses, and of circuits.
    HostMemory {
        witness_bytes: u64,
        circuit_bytes: u64,
    },
    /// A circuit's shape and proving key are in host memory.
    CircuitReady {
        circuit: CircuitId,
        num_bytes: u64,
        /// Reading, checking and recording, without the wait for memory.
        #[serde(default)]
        elapsed_us: u64,
    },
    JobAccepted {
        job: JobId,
        request_id: String,
        kind: WorkKind,
        circuit: CircuitId,
        priority: Priority,
        num_partitions: u32,
        /// From acceptance.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline_us: Option<u64>,
    },
    /// A request that left no trace: the queue was full, or no device could take it.
    JobRefused {
        kind: WorkKind,
        reason: String,
    },
    /// A witness is asked for; `num_bytes` are reserved for it.
    WitnessBegun {
        job: JobId,
        partition: PartitionIndex,
        num_bytes: u64,
    },
    WitnessMade {
        job: JobId,
        partition: PartitionIndex,
        elapsed_us: u64,
    },
    /// An attempt is given to a device.
    Placed {
        #[serde(flatten)]
        at: AttemptRef,
        device: DeviceId,
        critical_lane: bool,
    },
    StageDone {
        #[serde(flatten)]
        at: AttemptRef,
        device: DeviceId,
        lane: u32,
        stage: Stage,
        elapsed_us: u64,
    },
    /// A device made a proof, not verified yet. Its memory without resident keys: planned and measured.
    PartitionProved {
        #[serde(flatten)]
        at: AttemptRef,
        device: DeviceId,
        planned_bytes: u64,
        peak_bytes: u64,
    },
    /// The proof holds.
    PartitionVerified {
        #[serde(flatten)]
        at: AttemptRef,
        device: DeviceId,
    },
    /// An attempt gave no valid proof. `invalid`: it gave a wrong one.
    AttemptFailed {
        #[serde(flatten)]
        at: AttemptRef,
        device: DeviceId,
        invalid: bool,
        reason: String,
    },
    JobEnded {
        job: JobId,
        kind: WorkKind,
        outcome: JobOutcome,
        num_partitions: u32,
        retries: u32,
        /// From acceptance until a witness was first asked for, without the circuit's loading.
        queue_us: u64,
        /// From acceptance until now.
        total_us: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
}

/// Who takes events in. Called on the actors' own threads: must not wait.
pub trait EventConsumer: Send + Sync {
    fn consume(&self, event: Event);
}

/// The handle that actors hold. Clones tell the same consumer. `Default` is off.
#[derive(Clone, Default)]
pub struct EventSink {
    target: Option<Arc<Target>>,
}

struct Target {
    begun: Instant,
    consumer: Box<dyn EventConsumer>,
}

impl EventSink {
    /// Times count from now, on the clock of the current runtime if there is one.
    pub fn to(consumer: impl EventConsumer + 'static) -> Self {
        Self { target: Some(Arc::new(Target { begun: Instant::now(), consumer: Box::new(consumer) })) }
    }

    /// Tells `consumer` too, after whoever is told already. Times go on counting from where this sink's began.
    #[must_use]
    pub fn with(self, consumer: impl EventConsumer + 'static) -> Self {
        let Some(first) = self.target else { return Self::to(consumer) };
        let begun = first.begun;
        let consumer = Box::new(Both { first, second: Box::new(consumer) });
        Self { target: Some(Arc::new(Target { begun, consumer })) }
    }

    /// Nobody listens.
    pub fn off() -> Self {
        Self::default()
    }

    pub fn is_on(&self) -> bool {
        self.target.is_some()
    }

    /// Tells what `what` makes; if nobody listens it is not called.
    pub fn emit(&self, what: impl FnOnce() -> EventKind) {
        if let Some(target) = &self.target {
            let at_us = target.begun.elapsed().as_micros() as u64;
            target.consumer.consume(Event { at_us, kind: what() });
        }
    }
}

/// Two who are told the same.
struct Both {
    first: Arc<Target>,
    second: Box<dyn EventConsumer>,
}

impl EventConsumer for Both {
    fn consume(&self, event: Event) {
        self.first.consumer.consume(event.clone());
        self.second.consume(event);
    }
}

impl fmt::Debug for EventSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_on() { "EventSink(on)" } else { "EventSink(off)" })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn a_sink_that_is_off_builds_nothing() {
        EventSink::off().emit(|| panic!("nobody listens"));
    }

    #[test]
    fn a_second_consumer_is_told_the_same() {
        struct Count(Arc<Mutex<Vec<Event>>>);
        impl EventConsumer for Count {
            fn consume(&self, event: Event) {
                self.0.lock().unwrap().push(event);
            }
        }
        let (first, second) = (Arc::default(), Arc::default());
        let sink = EventSink::off().with(Count(Arc::clone(&first))).with(Count(Arc::clone(&second)));
        sink.emit(|| EventKind::EventsDropped { count: 3 });
        assert_eq!(first.lock().unwrap().len(), 1);
        assert_eq!(*first.lock().unwrap(), *second.lock().unwrap());
    }

    #[test]
    fn events_are_one_flat_json_object_each() {
        struct Lines(Arc<Mutex<Vec<String>>>);
        impl EventConsumer for Lines {
            fn consume(&self, event: Event) {
                self.0.lock().unwrap().push(serde_json::to_string(&event).unwrap());
            }
        }
        let lines = Arc::new(Mutex::new(Vec::new()));
        let sink = EventSink::to(Lines(Arc::clone(&lines)));
        let at = AttemptRef { job: JobId(7), partition: PartitionIndex(3), attempt: Attempt(2) };
        let kind = EventKind::StageDone {
            at,
            device: DeviceId::new("sim-0"),
            lane: 1,
            stage: Stage::SumBG2,
            elapsed_us: 1500,
        };
        sink.emit(|| kind.clone());
        let line = lines.lock().unwrap().pop().unwrap();
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["event"], "stage_done");
        assert_eq!(value["stage"], Stage::SumBG2.as_str());
        assert_eq!(
            (&value["job"], &value["partition"], &value["attempt"]),
            (&7.into(), &3.into(), &2.into())
        );
        assert_eq!(serde_json::from_str::<Event>(&line).unwrap().kind, kind);
    }
}
