//! Submits jobs from async code, follows one's progress, attaches to it, cancels another, and loses interest in a third.
//!
//! ```text
//! cargo run --release --example 02_submit_and_cancel
//! ```
//!
//! Any runtime will do, or none: the engine's actors live on threads of their own. It exits non-zero if anything is not
//! as it should be.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bellpepper_core::{Circuit, ConstraintSystem, SynthesisError};
use cuzk::circuits::{CustomCircuit, SrsSource};
use cuzk::engine::{DeviceSpec, Engine, EngineConfig};
use cuzk::error::EngineError;
use cuzk::groth16::generate::generate_srs;
use cuzk::groth16::{R1csShape, Scalar, Srs};
use cuzk::ids::CircuitId;
use cuzk::messages::job::{CancelOutcome, JobEvent, Payload, Priority, ProofRequest};
use ff::Field;
use rand::rngs::OsRng;

/// `y = x^(2^n)`, `y` public: work that is as long as one wants.
#[derive(Clone)]
struct Squarings {
    x: Option<Scalar>,
}

const NUM_SQUARINGS: usize = 1 << 12;

impl Squarings {
    fn y(x: Scalar) -> Scalar {
        (0..NUM_SQUARINGS).fold(x, |value, _| value.square())
    }
}

impl Circuit<Scalar> for Squarings {
    fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
        let mut value = self.x;
        let mut last = cs.alloc(|| "x", || value.ok_or(SynthesisError::AssignmentMissing))?;
        for index in 0..NUM_SQUARINGS {
            value = value.map(|value| value.square());
            let value = || value.ok_or(SynthesisError::AssignmentMissing);
            let is_last = index + 1 == NUM_SQUARINGS;
            let next = if is_last { cs.alloc_input(|| "y", value)? } else { cs.alloc(|| "square", value)? };
            cs.enforce(|| "squaring", |lc| lc + last, |lc| lc + last, |lc| lc + next);
            last = next;
        }
        Ok(())
    }
}

/// A job with one partition per value. `statement` names it, so that the same job is known again.
fn request(request_id: &str, srs: &Arc<Srs>, xs: std::ops::Range<u64>) -> ProofRequest {
    let instances = xs.clone().map(|x| {
        let x = Scalar::from(x);
        (Squarings { x: Some(x) }, vec![Squarings::y(x)])
    });
    let job = CustomCircuit::new(
        CircuitId::new("squarings"),
        SrsSource::Memory(Arc::clone(srs)),
        Squarings { x: None },
        instances.collect(),
    );
    let workload = job.with_statement(format!("{xs:?}").as_bytes()).into_workload();
    ProofRequest { request_id: request_id.into(), ..ProofRequest::new(Payload::Workload(workload)) }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let shape = R1csShape::record(Squarings { x: None })?;
    let srs = Arc::new(generate_srs(&shape, &mut OsRng)?);
    let engine = Engine::start(EngineConfig {
        devices: vec![DeviceSpec::Cpu { threads: 0, lanes: 1 }],
        ..EngineConfig::default()
    })?;
    engine.wait_ready().await?;

    // Progress is a stream (`futures_core::Stream`), or `next().await` without any further crate.
    let mut job = engine.submit(request("first", &srs, 2..5)).await?;
    let same = engine.submit(request("first", &srs, 2..5)).await?;
    ensure(same.is_attached() && same.id() == job.id(), "the same request attaches to the same job")?;
    let mut events = job.events();
    let mut num_verified = 0;
    while let Some(event) = events.next().await {
        if let JobEvent::PartitionVerified { partition, device } = event {
            num_verified += 1;
            println!("partition {partition} proved on {device} and verified ({num_verified} of 3)");
        }
    }
    let outcome = job.wait().await?;
    ensure(outcome.proof.len() == 3 * 192, "three proofs")?;
    ensure(same.wait().await?.proof == outcome.proof, "both callers get the same proof")?;

    // Cancelling says what it found, and may be said twice.
    let mut long = engine.submit(request("long", &srs, 100..200)).await?;
    let mut events = long.events();
    while !matches!(events.next().await, Some(JobEvent::StageDone { .. })) {}
    ensure(long.cancel().await? == CancelOutcome::WasRunning, "it ran")?;
    ensure(long.cancel().await? == CancelOutcome::AlreadyEnded, "it has ended")?;
    ensure(matches!(long.wait().await, Err(EngineError::Cancelled { .. })), "its end is the cancellation")?;

    // A handle that is dropped cancels too, so that work stops when its caller goes away. And urgent work does not
    // wait behind it.
    let forgotten = engine.submit(request("forgotten", &srs, 200..300)).await?;
    let id = forgotten.id();
    drop(forgotten);
    let urgent = ProofRequest { priority: Some(Priority::Critical), ..request("urgent", &srs, 7..8) };
    engine.submit(urgent).await?.wait().await?;
    ensure(engine.cancel(id).await? == CancelOutcome::AlreadyEnded, "dropping has cancelled it")?;

    let totals = engine.status().totals;
    println!("completed {}, cancelled {}, attached {}", totals.completed, totals.cancelled, totals.attached);
    ensure((totals.completed, totals.cancelled) == (2, 2), "two of each")?;
    engine.shutdown(Duration::from_secs(10)).await;
    Ok(())
}

fn ensure(holds: bool, what: &str) -> Result<(), String> {
    if holds {
        Ok(())
    } else {
        Err(format!("not as it should be: {what}"))
    }
}
