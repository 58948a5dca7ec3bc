//! Spans that a collector gets by OTLP: one that listens in this process.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use cuzk_wire::v1::await_proof_response::Status as End;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::trace::v1::Span;
use rustix::process::Signal;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{unbounded_channel, UnboundedReceiver, UnboundedSender};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use super::requests::{prove, window};
use super::rig::Setup;

/// Hands on whatever it gets.
struct Collector {
    got: UnboundedSender<ExportTraceServiceRequest>,
}

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let kept = self.got.send(request.into_inner());
        kept.map_err(|_| Status::unavailable("the test is over"))?;
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

/// Its endpoint, and what it gets.
async fn collector() -> (String, UnboundedReceiver<ExportTraceServiceRequest>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let (got, requests) = unbounded_channel();
    let served = Server::builder().add_service(TraceServiceServer::new(Collector { got }));
    tokio::spawn(served.serve_with_incoming(TcpListenerStream::new(listener)));
    (endpoint, requests)
}

fn traced(endpoint: &str) -> Setup {
    let mut setup = Setup::new("sim:1");
    setup.sections = format!("[telemetry]\notlp_endpoint = \"{endpoint}\"\n");
    setup
}

fn text<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a str> {
    let found = attributes.iter().find(|attribute| attribute.key == key)?;
    match found.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_s_spans_arrive_with_its_partitions_and_stages_within() {
    let (endpoint, mut requests) = collector().await;
    let mut daemon = traced(&endpoint).start().await;
    let mut client = daemon.client().await;
    let submit = window("traced");
    let secret = submit.vanilla_proofs[0].clone();
    let result = client.prove(prove(submit)).await.unwrap().into_inner().result.unwrap();
    assert_eq!(result.status(), End::Completed, "{result:?}");
    // At the end it sends what it still has.
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.exit_code().await, 0, "{}", daemon.log_text());

    let mut spans: Vec<Span> = Vec::new();
    while let Ok(request) = requests.try_recv() {
        for of_service in request.resource_spans {
            let resource = of_service.resource.expect("it says who sends");
            assert_eq!(text(&resource.attributes, "service.name"), Some("cuzk-daemon"));
            spans.extend(of_service.scope_spans.into_iter().flat_map(|scope| scope.spans));
        }
    }
    let named = |name: &str| spans.iter().filter(|span| span.name == name).collect::<Vec<&Span>>();
    let [job] = named("job")[..] else { panic!("not one job: {spans:?}") };
    assert_eq!(text(&job.attributes, "request_id"), Some("traced"));
    let [partition] = named("partition")[..] else { panic!("not one partition: {spans:?}") };
    assert_eq!(partition.parent_span_id, job.span_id);
    // Those of the device's self-test belong to no job.
    let stages = named("stage").into_iter().filter(|stage| !stage.parent_span_id.is_empty());
    let stages: Vec<&Span> = stages.collect();
    let names: BTreeSet<&str> = stages.iter().filter_map(|span| text(&span.attributes, "stage")).collect();
    assert!(names.contains("sum_h") && names.contains("assemble"), "{names:?}");
    for stage in stages {
        assert_eq!((&stage.parent_span_id, &stage.trace_id), (&partition.span_id, &job.trace_id));
        assert!(stage.end_time_unix_nano >= stage.start_time_unix_nano);
    }
    let all = format!("{spans:?}");
    let piece = &secret[secret.len() / 2..secret.len() / 2 + 16];
    assert!(!all.contains(&hex::encode(piece)) && !all.contains(&format!("{piece:?}")), "an input is sent");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_not_there_costs_neither_proofs_nor_the_end() {
    // Its port was free a moment ago, and nobody listens.
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let mut daemon = traced(&format!("http://{free}")).start().await;
    let mut client = daemon.client().await;
    let result = client.prove(prove(window("untraced"))).await.unwrap().into_inner().result.unwrap();
    assert_eq!(result.status(), End::Completed, "{result:?}");
    let begun = Instant::now();
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.exit_code().await, 0);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}
