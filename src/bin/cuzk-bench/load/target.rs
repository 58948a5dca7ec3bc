//! Who proves: an engine in this process, or a daemon.

use std::time::Duration;

use cuzk::engine::Engine;
use cuzk::error::EngineError;
use cuzk::messages::job::{Payload, ProofOutcome, ProofRequest};
use cuzk_wire::client::{connect, Client};
use cuzk_wire::v1::await_proof_response::Status as End;
use cuzk_wire::v1::{AwaitProofResponse, GetStatusRequest, ProveRequest, SubmitProofRequest};

use super::inputs::Input;
use super::Setup;
use crate::Failure;

/// How often a daemon is asked whether it is ready yet.
const READY_INTERVAL: Duration = Duration::from_millis(100);
const READY_LIMIT: Duration = Duration::from_secs(120);

pub enum Target {
    Embedded(Engine),
    Daemon { client: Box<Client>, address: String },
}

/// A proof, and where its time went.
pub struct Proved {
    pub proof: Vec<u8>,
    pub queue: Duration,
    pub circuit_load: Duration,
    pub synthesis: Duration,
    pub device: Duration,
    /// Of each partition.
    pub devices: Vec<String>,
}

/// Why there is no proof.
#[derive(Clone, Debug)]
pub struct NoProof {
    /// `caller`, `retry`, `device-lost`, `cancelled`, `bug`, or the call's own code.
    pub class: String,
    pub what: String,
}

impl Target {
    pub fn embedded(setup: &Setup) -> Result<Self, Failure> {
        let mut config = setup.config.engine_config().map_err(Failure::usage)?;
        config.params_dir.clone_from(&setup.params);
        // That of the configuration is the daemon's.
        config.journal = None;
        let engine = Engine::start(config).map_err(Failure::failed)?;
        engine.wait_ready_blocking().map_err(Failure::failed)?;
        Ok(Self::Embedded(engine))
    }

    pub async fn daemon(setup: &Setup<'_>) -> Result<Self, Failure> {
        let endpoint = setup.args.daemon.endpoint(&setup.config).map_err(Failure::usage)?;
        let address = endpoint.address.to_string();
        let client = connect(&endpoint).await.map_err(Failure::failed)?;
        let target = Self::Daemon { client: Box::new(client), address };
        target.wait_ready().await?;
        Ok(target)
    }

    /// Waits until a device can prove.
    pub async fn wait_ready(&self) -> Result<(), Failure> {
        let Self::Daemon { client, address } = self else { return Ok(()) };
        let mut client = Client::clone(client);
        let wait = async {
            loop {
                let status =
                    client.get_status(GetStatusRequest {}).await.map_err(Failure::failed)?.into_inner();
                if status.ready {
                    return Ok(());
                }
                tokio::time::sleep(READY_INTERVAL).await;
            }
        };
        let late = |_| Failure::failed(format!("the daemon at {address} is not ready after {READY_LIMIT:?}"));
        tokio::time::timeout(READY_LIMIT, wait).await.map_err(late)?
    }

    pub fn name(&self) -> String {
        match self {
            Self::Embedded(_) => "embedded".to_owned(),
            Self::Daemon { address, .. } => address.clone(),
        }
    }

    /// One job, from its inputs to its proof.
    pub async fn prove(&self, request_id: String, input: &Input) -> Result<Proved, NoProof> {
        match self {
            Self::Embedded(engine) => embedded(engine, request_id, input).await,
            Self::Daemon { client, .. } => by_daemon(Client::clone(client), request_id, input).await,
        }
    }

    /// An engine is ended here; a daemon is not ours.
    pub fn stop(&self) {
        if let Self::Embedded(engine) = self {
            engine.shutdown_blocking(Duration::ZERO);
        }
    }
}

async fn embedded(engine: &Engine, request_id: String, input: &Input) -> Result<Proved, NoProof> {
    let mut request = ProofRequest::new(Payload::Filecoin(Box::new(input.request.clone())));
    request.request_id = request_id;
    let job = engine.submit(request).await.map_err(engine_error)?;
    job.wait().await.map(|outcome| of_outcome(&outcome)).map_err(engine_error)
}

fn engine_error(error: EngineError) -> NoProof {
    NoProof { class: error.class().as_str().to_owned(), what: error.to_string() }
}

fn of_outcome(outcome: &ProofOutcome) -> Proved {
    let timings = &outcome.timings;
    Proved {
        proof: outcome.proof.clone(),
        queue: timings.queue_wait,
        circuit_load: timings.circuit_load,
        synthesis: timings.synthesis,
        device: timings.stages.iter().map(|(_, time)| *time).sum(),
        devices: outcome.devices.iter().map(ToString::to_string).collect(),
    }
}

async fn by_daemon(mut client: Client, request_id: String, input: &Input) -> Result<Proved, NoProof> {
    let message = input.request.clone().into_wire();
    let message = message.map_err(|error| NoProof { class: "caller".to_owned(), what: error.to_string() })?;
    let submit = Some(SubmitProofRequest { request_id, ..message });
    let answer = client.prove(ProveRequest { submit }).await.map_err(|status| NoProof {
        class: format!("{:?}", status.code()),
        what: status.message().to_owned(),
    })?;
    of_response(answer.into_inner().result.unwrap_or_default())
}

fn of_response(response: AwaitProofResponse) -> Result<Proved, NoProof> {
    let ms = Duration::from_millis;
    if response.status() != End::Completed {
        let class = match response.error_class.as_str() {
            "" => response.status().as_str_name().to_lowercase(),
            class => class.to_owned(),
        };
        return Err(NoProof { class, what: response.error_message });
    }
    Ok(Proved {
        queue: ms(response.queue_wait_ms),
        circuit_load: ms(response.srs_load_ms),
        synthesis: ms(response.synthesis_ms),
        device: ms(response.gpu_compute_ms),
        devices: response.devices,
        proof: response.proof,
    })
}
