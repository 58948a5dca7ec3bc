//! What must be refused whatever the kind; panics; custom circuits.

use cuzk::circuits::{catch_panic, CustomCircuit, FilecoinRequest, SrsSource};
use cuzk::error::{RequestError, SynthesisError};
use cuzk::ids::CircuitId;

use crate::common::{assert_refused, changed, refusal, request};

fn porep() -> FilecoinRequest {
    request("porep-2k/sector-1")
}

fn window() -> FilecoinRequest {
    request("window-2k/full-partition")
}

fn winning() -> FilecoinRequest {
    request("winning-2k/sector-1")
}

fn snap() -> FilecoinRequest {
    request("snap-2k/sector-1")
}

#[test]
fn a_request_of_no_kind_or_with_another_kinds_fields_is_refused() {
    assert_refused(FilecoinRequest { proof_kind: None, ..porep() }, &["proof_kind: is missing"]);
    let proofs = || vec![vec![1]];
    assert_refused(
        FilecoinRequest { vanilla_proofs: proofs(), ..porep() },
        &["vanilla_proofs: is no field of POREP"],
    );
    assert_refused(
        FilecoinRequest { vanilla_proof: vec![1], ..window() },
        &["vanilla_proof: is no field of WINDOW"],
    );
    assert_refused(FilecoinRequest { randomness: vec![1], ..snap() }, &["randomness: is no field of SNAP"]);
    assert_refused(
        FilecoinRequest { comm_r_old: vec![1], ..winning() },
        &["comm_r_old: is no field of WINNING"],
    );
    assert_refused(
        FilecoinRequest { partition_index: 1, ..porep() },
        &["partition_index: is no field of POREP"],
    );
}

/// Any one byte of any PoSt or SnapDeals input, changed: refused, and never a panic (which would be "as a whole").
#[test]
fn every_byte_of_a_vanilla_proof_counts() {
    for request in [window(), snap()] {
        let length = request.vanilla_proofs[0].len();
        for at in (0..length).step_by(97) {
            let error = refusal(changed(request.clone(), 0, |bytes| bytes[at] ^= 0x80));
            let RequestError::VanillaProof { at: place, .. } = &error else { panic!("byte {at}: {error:?}") };
            assert!(place.starts_with("vanilla_proofs["), "byte {at}: {error}");
        }
    }
}

#[test]
fn a_panic_becomes_an_error_with_its_message() {
    let error = catch_panic::<()>(|| panic!("no sector {}", 7)).unwrap_err();
    assert_eq!(error, SynthesisError::Panicked("no sector 7".into()));
    let error = catch_panic::<()>(|| std::panic::panic_any(7)).unwrap_err();
    assert_eq!(error, SynthesisError::Panicked("no message".into()));
    assert_eq!(catch_panic(|| Ok(7)), Ok(7));
}

/// A circuit of no constraints.
#[derive(Clone)]
struct Empty;

impl bellpepper_core::Circuit<blstrs::Scalar> for Empty {
    fn synthesize<CS: bellpepper_core::ConstraintSystem<blstrs::Scalar>>(
        self,
        _: &mut CS,
    ) -> Result<(), bellpepper_core::SynthesisError> {
        Ok(())
    }
}

#[test]
fn custom_circuits_are_jobs_of_their_own_unless_their_statement_is_said() {
    let job = |circuit: &str| {
        let srs = SrsSource::File("empty.params".into());
        CustomCircuit::new(CircuitId::new(circuit), srs, Empty, vec![(Empty, Vec::new())])
    };
    let digest = |job: CustomCircuit<Empty>| job.into_workload().digest();
    assert_ne!(digest(job("empty")), digest(job("empty")));
    assert_eq!(digest(job("empty").with_statement(b"one")), digest(job("empty").with_statement(b"one")));
    assert_ne!(digest(job("empty").with_statement(b"one")), digest(job("empty").with_statement(b"two")));
    assert_ne!(digest(job("empty").with_statement(b"one")), digest(job("other").with_statement(b"one")));
}
