//! The service `cuzk.v1.ProvingEngine`: each call as the engine's methods, its answer by `answer.rs` and `status.rs`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cuzk::circuits::request::{RequestPriority, WireRequest};
use cuzk::circuits::CircuitSpec;
use cuzk::engine::{preload, JobHandle, Preload};
use cuzk::error::{EngineError, RequestError};
use cuzk::ids::{CircuitId, DeviceId};
use cuzk::messages::job::{CancelOutcome, Payload, Priority, ProofRequest};
use cuzk::messages::srs::{Eviction, Residence};
use cuzk_wire::v1::await_proof_response::Status as End;
use cuzk_wire::v1::proving_engine_server::ProvingEngine;
use cuzk_wire::v1::{
    self, AwaitProofRequest, AwaitProofResponse, CancelProofRequest, CancelProofResponse, DeviceResidence,
    DrainResponse, EvictSrsRequest, EvictSrsResponse, GetMetricsRequest, GetMetricsResponse,
    GetStatusRequest, GetStatusResponse, ListJobsRequest, ListJobsResponse, PreloadSrsRequest,
    PreloadSrsResponse, ProveRequest, ProveResponse, ReloadRequest, ReloadResponse, SubmitProofRequest,
    SubmitProofResponse,
};
use tonic::{Extensions, Request, Response, Status};

use crate::answer;
use crate::connection::Peer;
use crate::daemon::{Daemon, DrainRequest};
use crate::guard::CallDeadline;
use crate::http;
use crate::limits::Charge;
use crate::status;

/// See the module.
pub struct Service {
    daemon: Arc<Daemon>,
    http: http::State,
}

impl Service {
    pub fn new(daemon: Arc<Daemon>, http: http::State) -> Self {
        Self { daemon, http }
    }

    fn refuse_while_draining(&self) -> Result<(), Status> {
        if self.daemon.is_draining() {
            return Err(Status::unavailable("the daemon is shutting down: try again once it is back"));
        }
        Ok(())
    }

    /// Has the job accepted. `limit`: after this nobody needs it any more.
    async fn submit(
        &self,
        submit: SubmitProofRequest,
        limit: Option<Duration>,
        charge: Option<Arc<Charge>>,
    ) -> Result<JobHandle, EngineError> {
        let WireRequest { request_id, priority, deadline_ms, request } = WireRequest::from_wire(submit)?;
        let own_limit = (deadline_ms > 0).then(|| Duration::from_millis(deadline_ms));
        let request = ProofRequest {
            request_id,
            priority: of_wire(priority),
            deadline: own_limit.into_iter().chain(limit).min(),
            ..ProofRequest::new(Payload::Filecoin(Box::new(request)))
        };
        let accepted = self.daemon.engine.submit(request).await;
        // It is decoded: what it took on the way is free.
        drop(charge);
        accepted
    }

    async fn find(&self, job_id: &str) -> Result<Option<cuzk::ids::JobId>, Status> {
        self.daemon.engine.find(job_id).await.map_err(|error| answer::refusal(&error))
    }
}

fn of_wire(priority: RequestPriority) -> Option<Priority> {
    match priority {
        RequestPriority::Unspecified => None,
        RequestPriority::Low => Some(Priority::Low),
        RequestPriority::Normal => Some(Priority::Normal),
        RequestPriority::High => Some(Priority::High),
        RequestPriority::Critical => Some(Priority::Critical),
    }
}

/// What the guard put into the request.
fn charge(extensions: &mut Extensions) -> Option<Arc<Charge>> {
    extensions.remove::<Arc<Charge>>()
}

fn unknown_job(job_id: &str) -> Status {
    Status::not_found(format!("job `{job_id}` is not known, or its result is no longer kept"))
}

/// A `proof_kind` that is none is the caller's program's fault, and answered as such; what else may be wrong with a request is
/// the job's failure.
fn check_kind(submit: &SubmitProofRequest) -> Result<(), Status> {
    match v1::ProofKind::try_from(submit.proof_kind) {
        Ok(v1::ProofKind::Unspecified) => Err(Status::invalid_argument("proof_kind: is missing")),
        Err(_) => Err(Status::invalid_argument(format!("proof_kind: {} is none known", submit.proof_kind))),
        Ok(_) => Ok(()),
    }
}

fn circuit_spec(circuit_id: &str) -> Result<CircuitSpec, Status> {
    CircuitSpec::by_id(circuit_id).ok_or_else(|| {
        Status::invalid_argument(format!("circuit_id: `{circuit_id}` is no circuit, such as porep-32g"))
    })
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[tonic::async_trait]
impl ProvingEngine for Service {
    async fn submit_proof(
        &self,
        mut request: Request<SubmitProofRequest>,
    ) -> Result<Response<SubmitProofResponse>, Status> {
        self.refuse_while_draining()?;
        let charge = charge(request.extensions_mut());
        let submit = request.into_inner();
        check_kind(&submit)?;
        let job = self.submit(submit, None, charge).await.map_err(|error| answer::refusal(&error))?;
        let response = SubmitProofResponse {
            job_id: job.name().to_owned(),
            queue_position: job.queue_position(),
            assigned_gpu: self.device_of(job.name()),
            attached: job.is_attached(),
            durable: job.is_durable(),
        };
        job.detach();
        Ok(Response::new(response))
    }

    async fn await_proof(
        &self,
        request: Request<AwaitProofRequest>,
    ) -> Result<Response<AwaitProofResponse>, Status> {
        let AwaitProofRequest { job_id, timeout_ms } = request.into_inner();
        let job = self.find(&job_id).await?.ok_or_else(|| unknown_job(&job_id))?;
        let wait = async {
            let job = self.daemon.engine.attach(job).await?;
            let result = match &job {
                Some(job) => Some(job.wait().await),
                None => None,
            };
            Ok::<_, EngineError>(result)
        };
        let waited = if timeout_ms == 0 {
            wait.await
        } else {
            match tokio::time::timeout(Duration::from_millis(timeout_ms), wait).await {
                Ok(waited) => waited,
                Err(_) => {
                    let status = End::Timeout.into();
                    return Ok(Response::new(AwaitProofResponse { job_id, status, ..Default::default() }));
                }
            }
        };
        let result = waited.map_err(|error| answer::refusal(&error))?.ok_or_else(|| unknown_job(&job_id))?;
        answer::end(job_id, &result).map(Response::new)
    }

    async fn prove(&self, mut request: Request<ProveRequest>) -> Result<Response<ProveResponse>, Status> {
        self.refuse_while_draining()?;
        let deadline = request.extensions().get::<CallDeadline>().copied();
        let charge = charge(request.extensions_mut());
        let submit = request.into_inner().submit;
        let submit = submit.ok_or_else(|| Status::invalid_argument("submit: is missing"))?;
        check_kind(&submit)?;
        let limit = deadline.map(|CallDeadline(at)| at.saturating_duration_since(Instant::now()));
        let request_id = submit.request_id.clone();
        let result = match self.submit(submit, limit, charge).await {
            // Dropping it, as happens when the caller goes away, gives the job up unless somebody else waits for it.
            Ok(job) => {
                let result = job.wait().await;
                if let Err(error @ EngineError::DeadlineExceeded { .. }) = &result {
                    return Err(answer::refusal(error));
                }
                answer::end(job.name().to_owned(), &result)?
            }
            Err(error) if is_refused_job(&error) => answer::failed(request_id, &error),
            Err(error) => return Err(answer::refusal(&error)),
        };
        Ok(Response::new(ProveResponse { result: Some(result) }))
    }

    async fn cancel_proof(
        &self,
        request: Request<CancelProofRequest>,
    ) -> Result<Response<CancelProofResponse>, Status> {
        let CancelProofRequest { job_id } = request.into_inner();
        let outcome = match self.find(&job_id).await? {
            Some(job) => self.daemon.engine.cancel(job).await.map_err(|error| answer::refusal(&error))?,
            None => CancelOutcome::Unknown,
        };
        Ok(Response::new(CancelProofResponse {
            was_running: outcome == CancelOutcome::WasRunning,
            was_known: outcome != CancelOutcome::Unknown,
            had_ended: outcome == CancelOutcome::AlreadyEnded,
        }))
    }

    async fn get_status(&self, _: Request<GetStatusRequest>) -> Result<Response<GetStatusResponse>, Status> {
        Ok(Response::new(status::status(&self.daemon)))
    }

    async fn get_metrics(
        &self,
        _: Request<GetMetricsRequest>,
    ) -> Result<Response<GetMetricsResponse>, Status> {
        Ok(Response::new(GetMetricsResponse { prometheus_text: http::prometheus(&self.http) }))
    }

    async fn preload_srs(
        &self,
        request: Request<PreloadSrsRequest>,
    ) -> Result<Response<PreloadSrsResponse>, Status> {
        self.refuse_while_draining()?;
        let PreloadSrsRequest { circuit_id, pinned, host_only } = request.into_inner();
        let spec = circuit_spec(&circuit_id)?;
        let workload = preload::circuit(spec, &self.daemon.config().params_dir());
        let preload = Preload { workload, pinned, on_devices: !host_only };
        let loaded = self.daemon.engine.preload(preload).await.map_err(|error| answer::refusal(&error))?;
        Ok(Response::new(PreloadSrsResponse {
            already_loaded: loaded.was_loaded,
            load_time_ms: ms(loaded.elapsed),
            host_bytes: loaded.host_bytes,
            devices: loaded.devices.iter().map(residence).collect(),
        }))
    }

    async fn evict_srs(
        &self,
        request: Request<EvictSrsRequest>,
    ) -> Result<Response<EvictSrsResponse>, Status> {
        let EvictSrsRequest { circuit_id } = request.into_inner();
        circuit_spec(&circuit_id)?;
        let circuit = CircuitId::new(circuit_id);
        let evicted = self.daemon.engine.evict(&circuit).await.map_err(|error| answer::refusal(&error))?;
        let on_devices: u64 = evicted.devices.iter().map(|(_, eviction)| freed_bytes(*eviction)).sum();
        let freed_bytes = evicted.host_bytes + on_devices;
        Ok(Response::new(EvictSrsResponse { was_loaded: freed_bytes > 0, freed_bytes }))
    }

    async fn list_jobs(&self, _: Request<ListJobsRequest>) -> Result<Response<ListJobsResponse>, Status> {
        Ok(Response::new(status::jobs(&self.daemon)))
    }

    async fn drain(&self, request: Request<v1::DrainRequest>) -> Result<Response<DrainResponse>, Status> {
        let limit_ms = request.into_inner().limit_ms;
        let jobs = self.daemon.engine.status().jobs.len() as u64;
        tracing::info!(jobs, "a caller asks the daemon to end");
        self.daemon.drain(DrainRequest { limit_ms: (limit_ms > 0).then_some(limit_ms) });
        Ok(Response::new(DrainResponse { jobs }))
    }

    async fn reload(&self, request: Request<ReloadRequest>) -> Result<Response<ReloadResponse>, Status> {
        let peer = request.extensions().get::<Peer>();
        let asked_by = peer.map_or("a caller", |peer| peer.name.as_str());
        let reloaded = self.daemon.reload(asked_by).map_err(Status::failed_precondition)?;
        let crate::reload::Reloaded { applied, needs_restart } = reloaded;
        Ok(Response::new(ReloadResponse { applied, needs_restart }))
    }
}

impl Service {
    /// The first device that works for the job; empty: none yet.
    fn device_of(&self, name: &str) -> String {
        let status = self.daemon.engine.status();
        let job = status.jobs.iter().find(|job| job.name == name);
        job.and_then(|job| job.devices.first().cloned()).unwrap_or_default()
    }
}

/// The request itself is what is wrong: the same one fails again, so it is the job's failure and not the call's.
fn is_refused_job(error: &EngineError) -> bool {
    match error {
        EngineError::Request(RequestError::Unsupported { .. }) => false,
        EngineError::Request(_) | EngineError::Srs { .. } | EngineError::Synthesis { .. } => true,
        _ => false,
    }
}

fn residence((device, residence): &(DeviceId, Residence)) -> DeviceResidence {
    let (word, error_message) = match residence {
        Residence::Resident { .. } => ("resident", String::new()),
        Residence::Streamed => ("streamed", String::new()),
        Residence::InPlace => ("in-place", String::new()),
        Residence::Failed(error) => ("failed", error.to_string()),
    };
    DeviceResidence {
        device: device.to_string(),
        residence: word.to_owned(),
        size_bytes: residence.num_bytes(),
        error_message,
    }
}

fn freed_bytes(eviction: Eviction) -> u64 {
    match eviction {
        Eviction::Absent => 0,
        Eviction::Freed { num_bytes } | Eviction::WhenIdle { num_bytes } => num_bytes,
    }
}
