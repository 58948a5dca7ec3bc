//! The event log: events as JSON lines in a file, written by a thread of its own.
//!
//! Memory is bounded: between the actors and the writer there is room for [`CAPACITY`] events, and what does not fit
//! is counted and dropped, since an actor must not wait for a disk. The log then says how many are missing, and where.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crossbeam_channel::{bounded, Receiver, Sender};

use crate::error::ConfigError;
use crate::messages::events::{Event, EventConsumer, EventKind, EventSink, EVENT_FORMAT};

/// Events between the actors and the writer, some 10 MiB of them. Too low: a slow disk loses events of a burst.
pub const CAPACITY: usize = 1 << 16;

/// How long the end of a log waits for room in a full channel.
const CLOSE_LIMIT: Duration = Duration::from_secs(10);

enum Entry {
    Event(Event),
    Close,
}

/// Keeps an event log open. Drop it after the engine: what is still on its way is written then.
#[must_use = "the log ends when this is dropped"]
pub struct EventLog {
    entries: Sender<Entry>,
    writer: Option<JoinHandle<()>>,
}

struct ToWriter {
    entries: Sender<Entry>,
    num_dropped: Arc<AtomicU64>,
}

impl EventConsumer for ToWriter {
    fn consume(&self, event: Event) {
        // Also refused after the log was closed: then nobody misses it.
        if self.entries.try_send(Entry::Event(event)).is_err() {
            self.num_dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl EventLog {
    /// Creates the file, over one that is there, and starts its writer.
    ///
    /// # Errors
    /// [`ConfigError::Value`] for `telemetry.event_log` if the file cannot be created or the system refuses a thread.
    pub fn create(path: &Path) -> Result<(EventSink, Self), ConfigError> {
        let bad = |error: std::io::Error| ConfigError::Value {
            key: "telemetry.event_log".to_owned(),
            what: format!("{}: {error}", path.display()),
        };
        let file = File::create(path).map_err(bad)?;
        let (entries, receiver) = bounded(CAPACITY);
        let num_dropped = Arc::new(AtomicU64::new(0));
        let writer = Writer {
            out: BufWriter::new(file),
            path: path.to_owned(),
            num_dropped: Arc::clone(&num_dropped),
            has_failed: false,
        };
        let thread = std::thread::Builder::new()
            .name("cuzk-events".into())
            .spawn(move || writer.run(&receiver))
            .map_err(bad)?;
        let sink = EventSink::to(ToWriter { entries: entries.clone(), num_dropped });
        sink.emit(|| EventKind::LogStarted { format: EVENT_FORMAT, unix_ms: unix_ms() });
        Ok((sink, Self { entries, writer: Some(thread) }))
    }
}

impl Drop for EventLog {
    fn drop(&mut self) {
        if self.entries.send_timeout(Entry::Close, CLOSE_LIMIT).is_err() {
            tracing::error!("the event log cannot be closed: its disk does not answer");
            return;
        }
        if self.writer.take().is_some_and(|writer| writer.join().is_err()) {
            tracing::error!("the event log's writer ended by a panic");
        }
    }
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

struct Writer {
    out: BufWriter<File>,
    path: PathBuf,
    num_dropped: Arc<AtomicU64>,
    has_failed: bool,
}

impl Writer {
    fn run(mut self, entries: &Receiver<Entry>) {
        while let Ok(entry) = entries.recv() {
            let Entry::Event(event) = entry else { break };
            let count = self.num_dropped.swap(0, Ordering::Relaxed);
            if count > 0 {
                self.write(&Event { at_us: event.at_us, kind: EventKind::EventsDropped { count } });
            }
            self.write(&event);
            if entries.is_empty() {
                let flushed = self.out.flush();
                self.check(flushed);
            }
        }
        let flushed = self.out.flush();
        self.check(flushed);
    }

    fn write(&mut self, event: &Event) {
        // After a failure the channel is still emptied: actors must not find it full for good.
        if self.has_failed {
            return;
        }
        let written = serde_json::to_writer(&mut self.out, event)
            .map_err(std::io::Error::from)
            .and_then(|()| self.out.write_all(b"\n"));
        self.check(written);
    }

    fn check(&mut self, done: std::io::Result<()>) {
        if let Err(error) = done {
            if !std::mem::replace(&mut self.has_failed, true) {
                tracing::error!(path = %self.path.display(), %error, "the event log ends here");
            }
        }
    }
}

/// Reads an event log. A last line that was cut short by the end of its process is left out.
///
/// # Errors
/// With the number of the first line that is no event, or the system's error.
pub fn read_events(path: &Path) -> Result<Vec<Event>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut events = Vec::new();
    for (index, line) in text.lines().enumerate() {
        match serde_json::from_str::<Event>(line) {
            Ok(event) => events.push(event),
            Err(_) if line.trim().is_empty() => {}
            Err(_) if !text.ends_with('\n') && index + 1 == text.lines().count() => {}
            Err(error) => return Err(format!("{}, line {}: {error}", path.display(), index + 1)),
        }
    }
    match events.first().map(|event| &event.kind) {
        Some(EventKind::LogStarted { format, .. }) if *format > EVENT_FORMAT => Err(format!(
            "{}: of format {format}, and this program reads up to {EVENT_FORMAT}",
            path.display()
        )),
        // Actors on other threads may be a moment late with what they say.
        _ => {
            events.sort_by_key(|event| event.at_us);
            Ok(events)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dropped(count: u64) -> EventKind {
        EventKind::EventsDropped { count }
    }

    #[test]
    fn what_was_told_is_in_the_file_once_the_log_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        let (sink, log) = EventLog::create(&path).unwrap();
        (1..=1000).for_each(|count| sink.emit(|| dropped(count)));
        drop(log);
        // Told too late: no panic, and nothing is written.
        sink.emit(|| dropped(0));
        let events = read_events(&path).unwrap();
        assert!(matches!(events[0].kind, EventKind::LogStarted { format: EVENT_FORMAT, .. }));
        let counts = events[1..].iter().map(|event| match event.kind {
            EventKind::EventsDropped { count } => count,
            _ => panic!("{event:?}"),
        });
        assert!(counts.eq(1..=1000));
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let (entries, receiver) = bounded(4);
        let num_dropped = Arc::new(AtomicU64::new(0));
        let sink = EventSink::to(ToWriter { entries, num_dropped: Arc::clone(&num_dropped) });
        (0..10).for_each(|count| sink.emit(|| dropped(count)));
        assert_eq!((receiver.len(), num_dropped.load(Ordering::Relaxed)), (4, 6));
    }

    #[test]
    fn a_cut_last_line_is_left_out_and_any_other_bad_line_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        let line = r#"{"at_us":1,"event":"events_dropped","count":2}"#;
        std::fs::write(&path, format!("{line}\n{line}\n{{\"at_us\":3,\"ev")).unwrap();
        assert_eq!(read_events(&path).unwrap().len(), 2);
        std::fs::write(&path, format!("{line}\nnonsense\n{line}\n")).unwrap();
        assert!(read_events(&path).unwrap_err().contains("line 2"));
        std::fs::write(&path, "{\"at_us\":1,\"event\":\"log_started\",\"format\":99,\"unix_ms\":0}\n")
            .unwrap();
        assert!(read_events(&path).unwrap_err().contains("format 99"));
    }
}
