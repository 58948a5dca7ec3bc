//! The engine's errors and results as the wire says them.
//!
//! A job that was accepted and then failed is gRPC OK with status FAILED: Curio shows that message to its operator, and no
//! other. A call that did not get that far is a gRPC error, whose code says whether to try again.

use cuzk::error::{EngineError, ErrorClass, RequestError, ScheduleError};
use cuzk::messages::job::{JobResult, ProofOutcome};
use cuzk_wire::v1::await_proof_response::Status as End;
use cuzk_wire::v1::AwaitProofResponse;
use tonic::Status;

/// A call that was refused.
pub fn refusal(error: &EngineError) -> Status {
    let text = error.to_string();
    match error {
        EngineError::Request(RequestError::Unsupported { .. }) => Status::unimplemented(text),
        EngineError::Request(_) | EngineError::Config(_) => Status::invalid_argument(text),
        EngineError::Schedule(error) => match error {
            ScheduleError::QueueFull { .. } => Status::resource_exhausted(text),
            ScheduleError::Draining
            | ScheduleError::NoDevice(_)
            | ScheduleError::NoSynthesizer(_)
            | ScheduleError::Stopped => Status::unavailable(text),
            ScheduleError::HostMemory { .. } | ScheduleError::CircuitInUse { .. } => {
                Status::failed_precondition(text)
            }
            ScheduleError::LetGo { .. } => Status::aborted(text),
        },
        EngineError::DeadlineExceeded { .. } => Status::deadline_exceeded(text),
        EngineError::Cancelled { .. } => Status::cancelled(text),
        _ => match error.class() {
            ErrorClass::Caller => Status::failed_precondition(text),
            ErrorClass::Retry | ErrorClass::DeviceLost => Status::unavailable(text),
            ErrorClass::Cancelled => Status::cancelled(text),
            ErrorClass::Bug => Status::internal(text),
        },
    }
}

/// How a job ended.
///
/// # Errors
/// Where nothing can be said of the job: this process ends before it does, and the next one proves it.
pub fn end(job_id: String, result: &JobResult) -> Result<AwaitProofResponse, Status> {
    let error = match result {
        Ok(outcome) => return Ok(completed(job_id, outcome)),
        Err(error) => error,
    };
    match error {
        EngineError::Schedule(
            ScheduleError::Draining
            | ScheduleError::NoDevice(_)
            | ScheduleError::NoSynthesizer(_)
            | ScheduleError::Stopped,
        ) => Err(refusal(error)),
        EngineError::Cancelled { .. } => Ok(AwaitProofResponse {
            job_id,
            status: End::Cancelled.into(),
            error_message: error.to_string(),
            error_class: error.class().as_str().to_owned(),
            ..AwaitProofResponse::default()
        }),
        _ => Ok(failed(job_id, error)),
    }
}

/// A job that has no proof, and why.
pub fn failed(job_id: String, error: &EngineError) -> AwaitProofResponse {
    AwaitProofResponse {
        job_id,
        status: End::Failed.into(),
        error_message: error.to_string(),
        error_class: error.class().as_str().to_owned(),
        ..AwaitProofResponse::default()
    }
}

fn completed(job_id: String, outcome: &ProofOutcome) -> AwaitProofResponse {
    let ms = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let timings = &outcome.timings;
    AwaitProofResponse {
        job_id,
        status: End::Completed.into(),
        proof: outcome.proof.clone(),
        queue_wait_ms: ms(timings.queue_wait),
        srs_load_ms: ms(timings.circuit_load),
        synthesis_ms: ms(timings.synthesis),
        gpu_compute_ms: ms(timings.stages.iter().map(|(_, time)| *time).sum()),
        total_ms: ms(timings.total),
        devices: outcome.devices.iter().map(ToString::to_string).collect(),
        retries: outcome.retries,
        circuit_id: outcome.circuit.to_string(),
        ..AwaitProofResponse::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuzk::ids::{JobId, WorkRef};
    use tonic::Code;

    #[test]
    fn b61_the_reason_of_a_failure_is_in_an_ok_answer() {
        let field = RequestError::Field { field: "randomness".into(), what: "needs 32 B, has 3 B".into() };
        let answer = end("a".into(), &Err(EngineError::Request(field))).unwrap();
        assert_eq!(answer.status(), End::Failed);
        assert_eq!(answer.error_message, "randomness: needs 32 B, has 3 B");
        assert_eq!(answer.error_class, "caller");
        let cancelled = EngineError::Cancelled { at: WorkRef::job(JobId(1)) };
        assert_eq!(end("a".into(), &Err(cancelled)).unwrap().status(), End::Cancelled);
    }

    #[test]
    fn what_may_be_tried_again_has_a_code_that_says_so() {
        let code = |error: ScheduleError| refusal(&error.into()).code();
        assert_eq!(code(ScheduleError::QueueFull { jobs: 1, limit: 1 }), Code::ResourceExhausted);
        assert_eq!(code(ScheduleError::Draining), Code::Unavailable);
        assert_eq!(code(ScheduleError::NoDevice("x".into())), Code::Unavailable);
        let draining = end("a".into(), &Err(ScheduleError::Draining.into())).unwrap_err();
        assert_eq!(draining.code(), Code::Unavailable);
        let unsupported = RequestError::Unsupported { what: "4KiB".into() };
        assert_eq!(refusal(&unsupported.into()).code(), Code::Unimplemented);
    }
}
