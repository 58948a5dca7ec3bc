//! Large messages, and callers that ask for too much.

use std::fs;

use cuzk::telemetry::process::status_bytes;
use cuzk_wire::v1::await_proof_response::Status as End;
use cuzk_wire::v1::{ProofKind, SubmitProofRequest};
use cuzk_wire::CONTRACT;
use tonic::transport::{Channel, Endpoint};
use tonic::Code;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::HealthCheckRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::ServerReflectionRequest;

use super::requests::{prove, window};
use super::rig::Setup;

const MIB: usize = 1 << 20;

/// A request of this many bytes, of which none is a C1.
fn large(num_bytes: usize) -> SubmitProofRequest {
    SubmitProofRequest {
        request_id: format!("large-{num_bytes}"),
        proof_kind: ProofKind::PorepSealCommit.into(),
        // Beside this the message has a few more.
        vanilla_proof: vec![b'x'; num_bytes - 64].into(),
        ..SubmitProofRequest::default()
    }
}

/// The most memory that the process ever had, in bytes.
fn peak_bytes(pid: u32) -> usize {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    status_bytes(&status, "VmHWM").unwrap() as usize
}

#[tokio::test(flavor = "multi_thread")]
async fn b55_messages_of_256_mib_reach_the_parser_and_larger_ones_are_refused() {
    let daemon = Setup::new("sim:1").start().await;
    let mut client = daemon.client().await;
    let before = peak_bytes(daemon.pid());
    for mib in [200, 129, 255] {
        let result = client.prove(prove(large(mib * MIB))).await.unwrap().into_inner().result.unwrap();
        assert_eq!(result.status(), End::Failed);
        assert!(result.error_message.contains("no valid JSON of its kind"), "{result:?}");
        if mib == 200 {
            let grown = peak_bytes(daemon.pid()) - before;
            let factor = grown as f64 / (200 * MIB) as f64;
            println!("a request of 200 MiB took {factor:.3} times its size");
            assert!(factor <= 1.2, "{factor}");
        }
    }
    let error = client.prove(prove(large(257 * MIB))).await.unwrap_err();
    assert_eq!(error.code(), Code::ResourceExhausted, "{error}");
    let result = client.prove(prove(window("alive"))).await.unwrap().into_inner().result.unwrap();
    assert_eq!(result.status(), End::Completed);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_find_no_room_beyond_the_limit_and_find_it_again() {
    let mut setup = Setup::new("sim:1");
    setup.daemon = "max_bytes_in_flight = \"257MiB\"\nmax_calls = 3".to_owned();
    let daemon = setup.start().await;
    let client = daemon.client().await;
    let call = |num_bytes| {
        let mut client = client.clone();
        tokio::spawn(async move { client.prove(prove(large(num_bytes))).await })
    };
    let calls = [call(200 * MIB), call(200 * MIB), call(200 * MIB)];
    let mut codes = Vec::new();
    for call in calls {
        codes.push(call.await.unwrap().map(drop).map_err(|error| error.code()));
    }
    // How many meet depends on the machine; what does is said so.
    assert!(codes.iter().all(|code| matches!(code, Ok(()) | Err(Code::ResourceExhausted))), "{codes:?}");
    assert!(call(200 * MIB).await.unwrap().is_ok(), "the room is free again");
}

async fn channel(setup: &Setup) -> Channel {
    let endpoint = Endpoint::from_shared(format!("unix://{}", setup.socket().display())).unwrap();
    endpoint.connect().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn b56_reflection_and_health_are_served() {
    let daemon = Setup::new("sim:1").start().await;
    let channel = channel(&daemon.setup).await;
    let mut health = HealthClient::new(channel.clone());
    for service in ["", "cuzk.v1.ProvingEngine"] {
        let request = HealthCheckRequest { service: service.to_owned() };
        let answer = health.check(request).await.unwrap().into_inner();
        assert_eq!(answer.status(), ServingStatus::Serving, "{service}");
    }
    let mut reflection = ServerReflectionClient::new(channel);
    let ask = |message| ServerReflectionRequest { host: String::new(), message_request: Some(message) };
    let list = ask(MessageRequest::ListServices(String::new()));
    let mut answers =
        reflection.server_reflection_info(tokio_stream::iter([list])).await.unwrap().into_inner();
    let answer = answers.message().await.unwrap().unwrap().message_response.unwrap();
    let MessageResponse::ListServicesResponse(services) = answer else { panic!("{answer:?}") };
    let names: Vec<String> = services.service.into_iter().map(|service| service.name).collect();
    for name in ["cuzk.v1.ProvingEngine", "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"] {
        assert!(names.iter().any(|known| known == name), "{name} is not in {names:?}");
    }
    let contract = String::from_utf8_lossy(CONTRACT);
    assert!(contract.contains("ProvingEngine"));
}
