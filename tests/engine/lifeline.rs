//! What the engine tells of its work: events and spans.

use std::sync::{Arc, Mutex};

use cuzk::backend::Stage;
use cuzk::engine::EngineConfig;
use cuzk::messages::events::{Event, EventConsumer, EventKind, EventSink, JobOutcome};
use tracing::span::{Attributes, Id};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

use crate::simulation::{config, prove, simulate};
use crate::squares::request;

#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<Event>>>);

impl EventConsumer for Heard {
    fn consume(&self, event: Event) {
        self.0.lock().unwrap().push(event);
    }
}

/// All events of an engine on `fleet` that proves one job of `xs`.
fn heard(fleet: &'static str, xs: &'static [u64]) -> Vec<Event> {
    let heard = Heard::default();
    let consumer = heard.clone();
    // The sink counts on the clock of the arbiter that it is made on.
    crate::common::on_paused_arbiter(async move {
        let config = EngineConfig { events: EventSink::to(consumer), ..config(fleet) };
        let engine = cuzk::engine::Engine::start_on_current_arbiter(config).await.unwrap();
        prove(&engine, request("told", xs)).await.unwrap();
        engine.shutdown(std::time::Duration::from_secs(60)).await;
    });
    let events = std::mem::take(&mut *heard.0.lock().unwrap());
    events
}

fn name_of(event: &Event) -> String {
    let value = serde_json::to_value(event).unwrap();
    value["event"].as_str().unwrap().to_owned()
}

#[test]
fn a_job_is_told_from_its_acceptance_to_its_end() {
    let events = heard("sim:1;stage=10ms", &[3, 5]);
    assert!(events.windows(2).all(|pair| pair[0].at_us <= pair[1].at_us), "in the order of their times");
    let count = |name: &str| events.iter().filter(|event| name_of(event) == name).count();
    let expected = [
        ("device_ready", 1),
        ("circuit_ready", 1),
        ("job_accepted", 1),
        ("witness_begun", 2),
        ("witness_made", 2),
        ("placed", 2),
        ("stage_done", 18),
        ("partition_proved", 2),
        ("partition_verified", 2),
        ("job_ended", 1),
        ("attempt_failed", 0),
    ];
    for (name, times) in expected {
        assert_eq!(count(name), times, "{name}");
    }
    let stages: Vec<(Stage, u64)> = events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::StageDone { at, stage, elapsed_us, .. } if at.partition.0 == 0 => {
                Some((*stage, *elapsed_us))
            }
            _ => None,
        })
        .collect();
    assert_eq!(stages.iter().map(|(stage, _)| *stage).collect::<Vec<_>>(), Stage::ALL);
    assert!(stages.iter().all(|(_, elapsed_us)| *elapsed_us >= 10_000), "{stages:?}");
    let Some(EventKind::JobEnded { outcome, retries, total_us, .. }) =
        events.iter().map(|event| &event.kind).find(|kind| matches!(kind, EventKind::JobEnded { .. }))
    else {
        panic!("the job ended")
    };
    assert_eq!((*outcome, *retries), (JobOutcome::Completed, 0));
    assert!(*total_us >= 180_000, "{total_us}");
    // All memory is told to be free again at the end.
    let last_of_host = events.iter().rev().find_map(|event| match event.kind {
        EventKind::HostMemory { witness_bytes, .. } => Some(witness_bytes),
        _ => None,
    });
    assert_eq!(last_of_host, Some(0));
}

#[test]
fn a_failed_attempt_and_a_lost_device_are_told() {
    let events = heard("sim:2;stage=10ms;0:sticky@1.sum_h", &[3, 5, 7, 9]);
    let failed: Vec<&EventKind> = events
        .iter()
        .map(|event| &event.kind)
        .filter(|kind| matches!(kind, EventKind::AttemptFailed { .. } | EventKind::DeviceDown { .. }))
        .collect();
    assert!(
        failed.iter().any(|kind| matches!(kind, EventKind::AttemptFailed { invalid: false, .. })),
        "{failed:?}"
    );
    assert!(
        failed.iter().any(|kind| matches!(kind, EventKind::DeviceDown { gone: false, .. })),
        "{failed:?}"
    );
    let Some(EventKind::JobEnded { outcome, retries, .. }) =
        events.iter().map(|event| &event.kind).find(|kind| matches!(kind, EventKind::JobEnded { .. }))
    else {
        panic!("the job ended")
    };
    assert_eq!((*outcome, *retries), (JobOutcome::Completed, 1));
}

/// Spans that were made: name, and that of the span around it.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Vec<SpanNames>>>);

/// A span's name, and that of the span around it.
type SpanNames = (&'static str, Option<&'static str>);

impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Spans {
    fn on_new_span(&self, _: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let span = context.span(id).unwrap();
        self.0.lock().unwrap().push((span.name(), span.parent().map(|parent| parent.name())));
    }
}

#[test]
fn every_stage_has_a_span_in_its_partitions_in_its_jobs() {
    let spans = Spans::default();
    let subscriber = tracing_subscriber::registry().with(spans.clone());
    // While there is one subscriber alone, tracing asks that of the thread that first comes by a span whether anybody wants
    // it, for good: a thread of another test, with none, would say no for this one too. Of two, both are asked.
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    tracing::subscriber::with_default(subscriber, || {
        simulate(config("sim:1;stage=10ms"), |engine| async move {
            prove(&engine, request("spanned", &[3])).await.unwrap();
        });
    });
    let spans = spans.0.lock().unwrap();
    let count = |wanted: (&str, Option<&str>)| spans.iter().filter(|span| **span == wanted).count();
    // One more request was made: the one that finds the engine stopped.
    assert_eq!(count(("job", None)), 2, "{spans:?}");
    assert_eq!(count(("partition", Some("job"))), 1);
    assert_eq!(count(("stage", Some("partition"))), 9);
    // The device's self-test belongs to no job.
    assert_eq!(count(("stage", None)), 9);
}
