//! The library's check of a whole job, as it passes between Scheduler and Synthesizer.

use cuzk::error::{DeviceError, EngineError, ErrorClass, SynthesisError};
use cuzk::ids::JobId;
use cuzk::messages::device::CancelFlag;
use cuzk::messages::job::Priority;
use cuzk::messages::synthesis::VerifyJob;

use crate::common::on_paused_arbiter;
use crate::kinds::{judged, Verdict};
use crate::rig::{circuit, result, Rig, Settings};
use crate::squares::srs;
use crate::synthesizer::{Said, Subject};

#[test]
fn a_proof_that_the_library_refuses_is_disputed_and_not_the_callers_fault() {
    on_paused_arbiter(async {
        let mut rig = Rig::start(Settings { num_devices: 1, ..Settings::default() });
        rig.device_ready(0, 1);
        let mut job = rig.submit(&circuit("squares", &[2])).await;
        rig.load(60).await;
        let command = rig.placed().await;
        rig.proved(command);
        let verify = rig.verify().await;
        rig.verdict(verify, true);
        rig.judge(Err("is not liked".to_owned())).await;
        let error = result(&mut job).await.unwrap_err();
        let EngineError::Disputed { at, what } = &error else { panic!("{error:?}") };
        assert_eq!((at.job, what.as_str()), (job.ticket.job(), "is not liked"));
        assert_eq!(error.class(), ErrorClass::Bug);
        let status = rig.status().await;
        assert_eq!((status.totals.completed, status.totals.failed), (0, 1));
        assert_eq!(rig.device_status(0).await.invalid_proofs, 0);
        rig.end().await;
    });
}

#[test]
fn a_library_that_refuses_or_panics_is_answered_for() {
    on_paused_arbiter(async {
        let mut subject = Subject::start();
        let prepared = subject.prepare(&srs(), CancelFlag::default()).await.unwrap();
        for (verdict, said) in [
            (Verdict::Accepts, None),
            (Verdict::Refuses, Some("is not liked")),
            (Verdict::Panics, Some("panicked: this library panics on purpose")),
        ] {
            subject.address.do_send(VerifyJob {
                job: JobId(1),
                workload: judged(verdict, &[2]),
                circuit: prepared.clone(),
                proof: vec![1; 192],
                priority: Priority::Normal,
                span: tracing::Span::none(),
            });
            let Said::JobVerified(verified) = subject.next().await else { panic!("the whole is judged") };
            assert_eq!(verified.proof, [1; 192]);
            match (&verified.result, said) {
                (Ok(()), None) => {}
                (Err(what), Some(said)) => assert!(what.contains(said), "{what}"),
                (result, _) => panic!("{verdict:?}: {result:?}"),
            }
        }
        subject.end().await;
    });
}

/// A device that looks at rows itself is the first to see that a witness does not hold.
#[test]
fn b40_a_witness_that_a_device_finds_wrong_ends_its_job_and_blames_no_device() {
    on_paused_arbiter(async {
        let mut rig = Rig::start(Settings { num_devices: 1, ..Settings::default() });
        rig.device_ready(0, 1);
        let mut job = rig.submit(&circuit("squares", &[2])).await;
        rig.load(60).await;
        let held = rig.placed().await;
        let at = held.work.at.clone();
        let source = SynthesisError::Unsatisfied { index: 3, num_constraints: 9 };
        rig.failed(held, DeviceError::Witness { at, source });
        let error = result(&mut job).await.unwrap_err();
        assert!(
            matches!(
                error,
                EngineError::Synthesis { source: SynthesisError::Unsatisfied { index: 3, .. }, .. }
            ),
            "{error:?}"
        );
        let status = rig.status().await;
        assert_eq!(status.devices[0].partitions_failed, 0, "the device found it, and is not at fault");
        rig.end().await;
    });
}
