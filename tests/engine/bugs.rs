//! Failures that no input is to blame for: they are said to be bugs, no proof is returned, and the engine goes on.

use std::sync::Arc;

use bellpepper_core::{Circuit, ConstraintSystem, SynthesisError as CircuitError};
use blstrs::Scalar;
use cuzk::circuits::{CustomCircuit, SrsSource};
use cuzk::error::{EngineError, ErrorClass, SynthesisError};
use cuzk::ids::CircuitId;
use cuzk::messages::job::{Payload, ProofRequest};

use crate::kinds::{judged, Verdict};
use crate::simulation::{config, prove, simulate};
use crate::squares::{holds, request, srs};

#[test]
fn b32_a_proof_that_only_our_verifier_accepts_is_a_bug_and_not_returned() {
    simulate(config("sim:1"), |engine| async move {
        for (verdict, said) in [(Verdict::Refuses, "is not liked"), (Verdict::Panics, "panics on purpose")] {
            let request = ProofRequest::new(Payload::Workload(judged(verdict, &[2, 3])));
            let error = prove(&engine, request).await.unwrap_err();
            assert!(matches!(error, EngineError::Disputed { .. }), "{error:?}");
            assert!(error.to_string().contains(said), "{error}");
            assert_eq!(error.class(), ErrorClass::Bug, "{error}");
        }
        let status = engine.wait_status(|status| status.totals.failed == 2).await.unwrap();
        assert_eq!((status.totals.completed, status.totals.invalid_proofs), (0, 0), "no device is blamed");
        let outcome = prove(&engine, request("", &[4])).await.unwrap();
        assert!(holds(&outcome.proof, &[4]));
        let accepted = ProofRequest::new(Payload::Workload(judged(Verdict::Accepts, &[5])));
        assert!(holds(&prove(&engine, accepted).await.unwrap().proof, &[5]));
    });
}

/// Its blank instance is no input of a job.
#[derive(Clone)]
struct PanicsBlank;

impl Circuit<Scalar> for PanicsBlank {
    fn synthesize<CS: ConstraintSystem<Scalar>>(self, _: &mut CS) -> Result<(), CircuitError> {
        panic!("this blank circuit panics on purpose");
    }
}

#[test]
fn a_blank_circuit_that_panics_is_a_bug_and_others_are_proved() {
    simulate(config("sim:1"), |engine| async move {
        let name = CircuitId::new("panics-blank");
        let source = SrsSource::Memory(Arc::clone(&srs()));
        let circuit = CustomCircuit::new(name, source, PanicsBlank, vec![(PanicsBlank, vec![])]);
        let request_blank = ProofRequest::new(Payload::Workload(circuit.into_workload()));
        let error = prove(&engine, request_blank).await.unwrap_err();
        let EngineError::Synthesis { source, .. } = &error else { panic!("{error:?}") };
        assert!(matches!(source, SynthesisError::PreparationPanicked(_)), "{source:?}");
        assert_eq!(error.class(), ErrorClass::Bug);
        assert!(holds(&prove(&engine, request("", &[4])).await.unwrap().proof, &[4]));
    });
}
