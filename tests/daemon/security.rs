//! Whom the daemon lets in, as those meet it who are not.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use cuzk_wire::v1::proving_engine_client::ProvingEngineClient;
use cuzk_wire::v1::{CancelProofRequest, GetMetricsRequest, GetStatusRequest};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Status};
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::HealthCheckRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::ServerReflectionRequest;

use super::certificates::Authority;
use super::requests::{prove, window};
use super::rig::{Daemon, Setup};

const TOKEN: &str = "not-a-secret-of-anybody-0001";
const OTHER_TOKEN: &str = "not-a-secret-of-anybody-0002";

/// Serves TCP beside its socket file, to those with a token; `settings`: more lines of `[daemon]`.
async fn guarded(mut setup: Setup, settings: &str) -> Daemon {
    let tokens = setup.dir.path().join("tokens");
    fs::write(&tokens, format!("# who may\n{TOKEN}\n")).unwrap();
    setup.daemon = format!("token_file = \"{}\"\n{settings}", tokens.display());
    setup.args = vec!["--listen".to_owned(), format!("unix://{},127.0.0.1:0", setup.socket().display())];
    setup.start().await
}

fn with_token<T>(message: T, authorization: Option<&str>) -> Request<T> {
    let mut request = Request::new(message);
    if let Some(authorization) = authorization {
        request.metadata_mut().insert("authorization", authorization.parse().unwrap());
    }
    request
}

/// Health is for whoever can connect: it says nothing of work.
async fn check_health(channel: Channel) -> Result<(), Status> {
    let request = HealthCheckRequest { service: String::new() };
    HealthClient::new(channel).check(request).await.map(drop)
}

async fn get_status(channel: Channel, authorization: Option<&str>) -> Result<(), Status> {
    let request = with_token(GetStatusRequest {}, authorization);
    ProvingEngineClient::new(channel).get_status(request).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_call_over_the_network_needs_a_token_that_is_known_and_health_none() {
    let daemon = guarded(Setup::new("sim:1"), "").await;
    let endpoint = Endpoint::from_shared(format!("http://{}", daemon.tcp_address())).unwrap();
    let channel = endpoint.connect().await.unwrap();
    check_health(channel.clone()).await.unwrap();
    let wrong = [
        None,
        Some("Bearer".to_owned()),
        Some(TOKEN.to_owned()),
        Some(format!("Basic {TOKEN}")),
        Some(format!("Bearer {OTHER_TOKEN}")),
        Some(format!("Bearer {}", &TOKEN[..TOKEN.len() - 1])),
        Some(format!("Bearer {TOKEN}0")),
    ];
    for authorization in &wrong {
        let refused = get_status(channel.clone(), authorization.as_deref()).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unauthenticated, "{authorization:?}");
    }
    // Whatever the call is.
    let mut client = ProvingEngineClient::new(channel.clone());
    let codes = [
        client.prove(prove(window("nobody's"))).await.map(drop),
        client.cancel_proof(CancelProofRequest { job_id: "any".into() }).await.map(drop),
        client.get_metrics(GetMetricsRequest {}).await.map(drop),
        list_services(channel.clone()).await,
    ];
    for refused in codes {
        assert_eq!(refused.unwrap_err().code(), Code::Unauthenticated);
    }
    get_status(channel, Some(&format!("Bearer {TOKEN}"))).await.unwrap();
    // Over the socket file its permissions say who may.
    daemon.client().await.get_status(GetStatusRequest {}).await.unwrap();
    let log = daemon.log_with("no token that is known").await;
    assert_eq!(log.matches("no token that is known").count(), 1, "a caller fills the log: {log}");
    assert!(!log.contains(TOKEN) && !log.contains(OTHER_TOKEN));
}

async fn list_services(channel: Channel) -> Result<(), Status> {
    let list = MessageRequest::ListServices(String::new());
    let list = ServerReflectionRequest { host: String::new(), message_request: Some(list) };
    let mut client = ServerReflectionClient::new(channel);
    let mut answers = client.server_reflection_info(tokio_stream::iter([list])).await?.into_inner();
    answers.message().await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn another_token_counts_once_the_file_was_read_again_and_the_old_one_no_more() {
    let daemon = guarded(Setup::new("sim:1"), "").await;
    let endpoint = Endpoint::from_shared(format!("http://{}", daemon.tcp_address())).unwrap();
    let channel = endpoint.connect().await.unwrap();
    fs::write(daemon.setup.dir.path().join("tokens"), format!("{OTHER_TOKEN}\n")).unwrap();
    get_status(channel.clone(), Some(&format!("Bearer {TOKEN}"))).await.unwrap();
    let reloaded = daemon.client().await.reload(cuzk_wire::v1::ReloadRequest {}).await.unwrap().into_inner();
    assert_eq!(reloaded.applied, ["daemon.token_file (its content)"]);
    let refused = get_status(channel.clone(), Some(&format!("Bearer {TOKEN}"))).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    get_status(channel, Some(&format!("Bearer {OTHER_TOKEN}"))).await.unwrap();
}

/// A connection as a client with these certificates makes it, and one call over it that needs no token: an error is TLS's.
async fn over_tls(address: &str, ca: &str, identity: Option<&(String, String)>) -> Result<Channel, String> {
    let pem = |path: &str| fs::read(path).unwrap();
    let mut tls =
        ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem(ca))).domain_name("localhost");
    if let Some((certificate, key)) = identity {
        tls = tls.identity(Identity::from_pem(pem(certificate), pem(key)));
    }
    let endpoint = Endpoint::from_shared(format!("https://{address}")).unwrap().tls_config(tls).unwrap();
    let channel = endpoint.connect().await.map_err(|error| format!("{error:?}"))?;
    check_health(channel.clone()).await.map_err(|status| format!("{status:?}"))?;
    Ok(channel)
}

/// What a plain connection is told until it is closed.
fn plain_text(address: &str) -> Vec<u8> {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    socket.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00").unwrap();
    let mut told = Vec::new();
    match socket.read_to_end(&mut told) {
        Ok(_) => told,
        Err(error) => {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "it is not kept open");
            told
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_tls_nobody_gets_in_without_a_certificate_of_our_authority_and_a_token() {
    let setup = Setup::new("sim:1");
    let ours = Authority::new(setup.dir.path(), "ours");
    let other = Authority::new(setup.dir.path(), "other");
    let (cert, key) = ours.sign("localhost");
    let client_ca = ours.path();
    let settings = format!("tls_cert = \"{cert}\"\ntls_key = \"{key}\"\ntls_client_ca = \"{client_ca}\"\n");
    let daemon = guarded(setup, &settings).await;
    let address = daemon.tcp_address();

    let told = plain_text(&address);
    // An alert of TLS at most, and nothing of HTTP/2, whose first frame would be SETTINGS.
    assert!(told.is_empty() || told[0] == 0x15, "{told:?}");
    for identity in [None, Some(other.sign("operator")), Some(ours.sign_expired("operator"))] {
        let refused = over_tls(&address, &client_ca, identity.as_ref()).await;
        assert!(refused.is_err(), "{identity:?} is let in");
    }
    let ours_too = ours.sign("operator");
    // The other way round: a client that trusts another authority does not take our certificate.
    assert!(over_tls(&address, &other.path(), Some(&ours_too)).await.is_err());
    let channel = over_tls(&address, &client_ca, Some(&ours_too)).await.unwrap();
    for authorization in [None, Some(format!("Bearer {OTHER_TOKEN}"))] {
        let refused = get_status(channel.clone(), authorization.as_deref()).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unauthenticated, "{authorization:?}");
    }
    get_status(channel, Some(&format!("Bearer {TOKEN}"))).await.unwrap();
    // The socket file has neither TLS nor tokens.
    daemon.client().await.get_status(GetStatusRequest {}).await.unwrap();
}
