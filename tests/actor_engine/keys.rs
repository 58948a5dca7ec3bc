//! Whose fault an invalid proof is: the device's, or the key's.

use cuzk::error::{ErrorClass, SrsError};
use cuzk::messages::synthesis::KeyVerdict;

use super::*;
use crate::rig::{circuit, device, result};

/// Two invalid proofs of one partition: the second one is held against nobody yet.
async fn suspect(rig: &mut Rig) -> cuzk::messages::synthesis::CheckKey {
    for index in 0..2 {
        let command = if index == 0 { rig.placed().await } else { rig.next_placed().await };
        rig.proved(command);
        let verify = rig.verify().await;
        rig.verdict(verify, false);
    }
    rig.check_key().await
}

fn totals_by_device(status: &cuzk::messages::status::EngineStatus) -> Vec<(String, u64)> {
    status.devices.iter().map(|device| (device.health.clone(), device.invalid_proofs)).collect()
}

#[test]
fn a_wrong_key_is_found_out_by_the_host_and_no_device_is_blamed() {
    on_paused_arbiter(async {
        let mut rig = Rig::start(Settings::default());
        rig.device_ready(0, 1);
        rig.device_ready(1, 1);
        let mut job = rig.submit(&circuit("squares", &[2])).await;
        rig.load(60).await;
        let check = suspect(&mut rig).await;
        let mut healths: Vec<_> = totals_by_device(&*rig.status().await);
        healths.sort();
        assert_eq!(healths, [("degraded".to_owned(), 1), ("healthy".to_owned(), 0)], "one, not both");

        rig.key_checked(check, KeyVerdict::Wrong);
        let error = result(&mut job).await.unwrap_err();
        let EngineError::Srs { circuit: name, source: SrsError::Unfit { path } } = &error else {
            panic!("{error}")
        };
        assert_eq!((name.as_str(), path.to_str()), ("squares", Some("<memory>")));
        assert_eq!(error.class(), ErrorClass::Caller);
        let status = rig.status().await;
        assert!(totals_by_device(&status).iter().all(|device| *device == ("healthy".to_owned(), 0)));
        assert_eq!((status.totals.invalid_proofs, status.host_memory_reserved_bytes), (2, 0));
        assert_eq!(status.circuits, [], "the next job reads the file anew");
        assert!(rig.evictions.recv().await.unwrap().when_idle);
        rig.nothing_asked().await;
        rig.end().await;
    });
}

#[test]
fn a_right_key_leaves_the_blame_with_the_devices() {
    on_paused_arbiter(async {
        let mut rig = Rig::start(Settings { num_devices: 1, ..Settings::default() });
        rig.device_ready(0, 1);
        let mut job = rig.submit(&circuit("squares", &[2])).await;
        rig.load(60).await;
        let check = suspect(&mut rig).await;
        rig.key_checked(check, KeyVerdict::Right);
        // The last attempt; of this partition the host has been asked before.
        let command = rig.next_placed().await;
        rig.proved(command);
        let verify = rig.verify().await;
        rig.verdict(verify, false);
        let error = result(&mut job).await.unwrap_err();
        assert!(matches!(error, EngineError::Device(DeviceError::InvalidProof { .. })), "{error}");
        assert_eq!(error.class(), ErrorClass::DeviceLost, "the device is to blame, and is left out");
        let status = rig.device_status(0).await;
        assert_eq!((status.health.as_str(), status.invalid_proofs), ("quarantined", 3));
        rig.end().await;
    });
}

#[test]
fn with_a_key_that_has_proved_the_device_is_blamed_at_once_and_the_host_asked_at_the_end() {
    on_paused_arbiter(async {
        let mut rig = Rig::start(Settings { max_attempts: 2, ..Settings::default() });
        rig.device_ready(0, 1);
        rig.device_ready(1, 1);
        let workload = circuit("squares", &[2]);
        let mut good = rig.submit(&workload).await;
        rig.load(60).await;
        let command = rig.placed().await;
        rig.proved(command);
        let verify = rig.verify().await;
        rig.verdict(verify, true);
        rig.agree().await;
        result(&mut good).await.unwrap();

        // One point of the key may be wrong all the same, and matter to this witness alone.
        let mut bad = rig.submit(&workload).await;
        let check = suspect(&mut rig).await;
        let invalid: u64 = totals_by_device(&*rig.status().await).iter().map(|(_, invalid)| invalid).sum();
        assert_eq!(invalid, 1, "the first was blamed, the last waits for the host");
        rig.key_checked(check, KeyVerdict::Wrong);
        let error = result(&mut bad).await.unwrap_err();
        assert!(matches!(error, EngineError::Srs { source: SrsError::Unfit { .. }, .. }), "{error}");
        rig.end().await;
    });
}

#[test]
fn a_valid_proof_meanwhile_settles_it() {
    on_paused_arbiter(async {
        let mut rig = Rig::start(Settings { num_devices: 1, ..Settings::default() });
        rig.device_ready(0, 1);
        let _job = rig.submit(&circuit("squares", &[2, 3])).await;
        rig.load(60).await;
        let first = rig.witness().await;
        let second = rig.witness().await;
        rig.synthesized(first);
        let command = rig.next_placed().await;
        rig.synthesized(second);
        let other = rig.next_placed().await;
        rig.proved(command);
        let verify = rig.verify().await;
        rig.verdict(verify, false);
        let command = rig.next_placed().await;
        rig.proved(command);
        let verify = rig.verify().await;
        rig.verdict(verify, false);
        let check = rig.check_key().await;
        rig.proved(other);
        let verify = rig.verify().await;
        rig.verdict(verify, true);
        // The suspect partition goes on without waiting for the host.
        let command = rig.next_placed().await;
        assert_eq!(rig.device_status(0).await.invalid_proofs, 2);
        rig.key_checked(check, KeyVerdict::Right);
        rig.nothing_asked().await;
        drop(command);
        rig.end().await;
    });
}

#[test]
fn a_cancelled_check_ends_and_gives_its_memory_back() {
    on_paused_arbiter(async {
        let mut rig = Rig::start(Settings { num_devices: 1, ..Settings::default() });
        rig.device_ready(0, 1);
        let job = rig.submit(&circuit("squares", &[2])).await;
        rig.load(60).await;
        let check = suspect(&mut rig).await;
        let reserved_bytes = rig.status().await.host_memory_reserved_bytes;
        rig.cancel(job.ticket.job()).await;
        assert!(check.cancel.is_cancelled());
        assert_eq!(rig.status().await.host_memory_reserved_bytes, reserved_bytes, "the worker holds it");
        rig.key_checked(check, KeyVerdict::Unknown);
        assert_eq!(rig.status().await.host_memory_reserved_bytes, 0);
        assert_eq!(rig.device_status(0).await.invalid_proofs, 1);
        assert_eq!(rig.device_status(0).await.id, device(0).as_str());
        rig.end().await;
    });
}

#[test]
fn a_check_gets_its_memory_before_new_witnesses_and_is_asked_again_of_a_new_synthesizer() {
    on_paused_arbiter(async {
        let budget = 60 + 2 * crate::rig::partition_bytes();
        let mut rig =
            Rig::start(Settings { num_devices: 1, host_budget_bytes: budget, ..Settings::default() });
        rig.device_ready(0, 1);
        let _job = rig.submit(&circuit("squares", &[2, 3, 4])).await;
        rig.load(60).await;
        let first = rig.witness().await;
        let second = rig.witness().await;
        rig.synthesized(first);
        for _ in 0..2 {
            let command = rig.next_placed().await;
            rig.proved(command);
            let verify = rig.verify().await;
            rig.verdict(verify, false);
        }
        // The second witness may give back what the check needs; the third must not get it first.
        rig.nothing_asked().await;
        rig.synthesized(second);
        let command = rig.next_placed().await;
        rig.proved(command);
        let verify = rig.verify().await;
        rig.synthesizer_ready();
        drop(verify);
        let verify = rig.verify().await;
        rig.nothing_asked().await;
        rig.verdict(verify, false);
        // Nothing that runs will make room: the check goes through, and still before the third witness.
        let check = rig.check_key().await;
        rig.synthesizer_ready();
        drop(check);
        rig.check_key().await;
        rig.end().await;
    });
}
