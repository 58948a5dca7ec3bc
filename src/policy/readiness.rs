//! Whether the engine can prove, and what is not as it should be: one answer, from facts alone.

use crate::messages::status::Readiness;
use crate::policy::health::Health;
use crate::policy::role::Role;

/// Whether a device, or the Synthesizer, is in service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceFact<'a> {
    Starting,
    Ready,
    /// Lost or dead; it is being rebuilt or will be tried again.
    Withdrawn(&'a str),
    /// Given up for good.
    Gone(&'a str),
}

/// One device.
#[derive(Clone, Copy, Debug)]
pub struct DeviceFact<'a> {
    pub id: &'a str,
    pub role: Role,
    pub service: ServiceFact<'a>,
    pub health: Health,
}

/// The whole engine.
#[derive(Clone, Debug)]
pub struct EngineFacts<'a> {
    pub draining: bool,
    pub synthesizer: ServiceFact<'a>,
    /// What keeps the journal from being written: work is refused meanwhile.
    pub journal_failure: Option<&'a str>,
    /// Jobs of the journal that are still to be queued again.
    pub num_recovering: usize,
    /// Jobs of the journal that processes ended over: each waits until all others have ended.
    pub num_held_back: usize,
    /// Circuits that are to be loaded before the engine counts as ready, and are not.
    pub warming: Vec<&'a str>,
    /// Circuits of that list that could not be loaded, and why.
    pub warmup_failures: Vec<(&'a str, &'a str)>,
    pub devices: Vec<DeviceFact<'a>>,
}

/// The answer. Ready means: jobs are accepted, what was to be loaded is loaded, and at least one device can prove now.
/// Fatal means: no device is left, or no Synthesizer, and none will come back, so a process may as well end.
pub fn readiness(facts: &EngineFacts<'_>) -> Readiness {
    let is_gone = |device: &DeviceFact<'_>| matches!(device.service, ServiceFact::Gone(_));
    let regular_gone = facts.devices.iter().filter(|device| device.role != Role::Fallback).all(is_gone);
    let serves = |device: &DeviceFact<'_>| {
        device.service == ServiceFact::Ready
            && device.health != Health::Quarantined
            && (device.role != Role::Fallback || regular_gone)
    };
    let fatal = match facts.synthesizer {
        _ if facts.devices.iter().all(is_gone) => Some(why_no_device(facts)),
        ServiceFact::Gone(reason) => Some(format!("the synthesizer was given up: {reason}")),
        _ => None,
    };
    let ready = !facts.draining
        && facts.synthesizer == ServiceFact::Ready
        && facts.journal_failure.is_none()
        && facts.warming.is_empty()
        && facts.devices.iter().any(serves);
    let reasons = reasons(facts, regular_gone);
    Readiness { ready, degraded: ready && !reasons.is_empty(), fatal, reasons }
}

fn why_no_device(facts: &EngineFacts<'_>) -> String {
    let gone = facts.devices.iter().filter_map(|device| match device.service {
        ServiceFact::Gone(reason) => Some(format!("{}: {reason}", device.id)),
        _ => None,
    });
    let gone: Vec<String> = gone.collect();
    if gone.is_empty() {
        "no device is configured".to_owned()
    } else {
        format!("no device is left: {}", gone.join("; "))
    }
}

fn reasons(facts: &EngineFacts<'_>, regular_gone: bool) -> Vec<String> {
    let mut reasons = Vec::new();
    if facts.draining {
        reasons.push("engine is shutting down".to_owned());
    }
    reasons.extend(service_reason("the synthesizer", facts.synthesizer));
    match (facts.journal_failure, facts.num_recovering) {
        (Some(failure), _) => reasons.push(failure.to_owned()),
        (None, 0) => {}
        (None, jobs) => reasons.push(format!("{jobs} jobs of the journal are still to be queued again")),
    }
    match facts.num_held_back {
        0 => {}
        1 => reasons.push("a job that earlier processes ended over waits for all others".to_owned()),
        jobs => reasons.push(format!("{jobs} jobs that earlier processes ended over wait for all others")),
    }
    reasons.extend(facts.warming.iter().map(|circuit| format!("{circuit} is being loaded")));
    let failed = facts.warmup_failures.iter();
    reasons.extend(failed.map(|(circuit, what)| format!("{circuit} was not loaded: {what}")));
    reasons.extend(facts.devices.iter().filter_map(device_reason));
    let fallback = facts.devices.iter().find(|device| device.role == Role::Fallback);
    if let Some(fallback) = fallback.filter(|_| regular_gone) {
        reasons.push(format!("{} proves in place of the devices that are lost", fallback.id));
    }
    if facts.devices.is_empty() {
        reasons.push("no device is configured".to_owned());
    }
    reasons
}

fn device_reason(device: &DeviceFact<'_>) -> Option<String> {
    let id = device.id;
    service_reason(id, device.service).or_else(|| match device.health {
        Health::Healthy => None,
        Health::Degraded => Some(format!("{id} is degraded: it failed lately")),
        Health::Probation => {
            Some(format!("{id} is on probation: one partition at a time until one succeeds"))
        }
        Health::Quarantined => {
            Some(format!("{id} is quarantined: it failed too often, and will be tried again"))
        }
    })
}

fn service_reason(id: &str, service: ServiceFact<'_>) -> Option<String> {
    match service {
        ServiceFact::Starting => Some(format!("{id} is starting")),
        ServiceFact::Withdrawn(reason) => Some(format!("{id} is out of service: {reason}")),
        ServiceFact::Gone(reason) => Some(format!("{id} was given up: {reason}")),
        ServiceFact::Ready => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HEALTHS: [Health; 4] = [Health::Healthy, Health::Degraded, Health::Probation, Health::Quarantined];
    const ROLES: [Role; 3] = [Role::General, Role::ReservedForCritical, Role::Fallback];
    const SERVICES: [ServiceFact<'static>; 4] = [
        ServiceFact::Starting,
        ServiceFact::Ready,
        ServiceFact::Withdrawn("it hung"),
        ServiceFact::Gone("it fell off the bus"),
    ];

    fn facts(devices: &[(usize, usize, usize)]) -> EngineFacts<'static> {
        let device = |&(role, service, health): &(usize, usize, usize)| DeviceFact {
            id: "sim-0",
            role: ROLES[role],
            service: SERVICES[service],
            health: HEALTHS[health],
        };
        EngineFacts {
            draining: false,
            synthesizer: ServiceFact::Ready,
            journal_failure: None,
            num_recovering: 0,
            num_held_back: 0,
            warming: Vec::new(),
            warmup_failures: Vec::new(),
            devices: devices.iter().map(device).collect(),
        }
    }

    #[test]
    fn a_healthy_engine_has_nothing_to_say() {
        let expected = Readiness { ready: true, degraded: false, fatal: None, reasons: Vec::new() };
        assert_eq!(readiness(&facts(&[(0, 1, 0)])), expected);
    }

    #[test]
    fn one_device_less_is_degraded_and_none_is_fatal() {
        let one = readiness(&facts(&[(0, 1, 0), (0, 3, 0)]));
        assert!(one.ready && one.degraded && one.fatal.is_none());
        assert_eq!(one.reasons, ["sim-0 was given up: it fell off the bus"]);
        let none = readiness(&facts(&[(0, 3, 0)]));
        assert_eq!(none.fatal.as_deref(), Some("no device is left: sim-0: it fell off the bus"));
        assert!(!none.ready && !none.degraded);
        assert_eq!(readiness(&facts(&[])).fatal.as_deref(), Some("no device is configured"));
    }

    #[test]
    fn a_synthesizer_that_is_down_holds_readiness_back_and_one_that_was_given_up_is_fatal() {
        let down = ServiceFact::Withdrawn("it died too often");
        let down = readiness(&EngineFacts { synthesizer: down, ..facts(&[(0, 1, 0)]) });
        assert_eq!(down.reasons, ["the synthesizer is out of service: it died too often"]);
        assert!(!down.ready && down.fatal.is_none());
        let gone = ServiceFact::Gone("it died too often");
        let gone = readiness(&EngineFacts { synthesizer: gone, ..facts(&[(0, 1, 0)]) });
        assert_eq!(gone.fatal.as_deref(), Some("the synthesizer was given up: it died too often"));
        assert!(!gone.ready);
    }

    #[test]
    fn b54_a_fallback_counts_only_when_nothing_else_is_left_and_never_in_silence() {
        let waits = readiness(&facts(&[(0, 2, 0), (2, 1, 0)]));
        assert!(!waits.ready, "the device may come back: {waits:?}");
        let used = readiness(&facts(&[(0, 3, 0), (2, 1, 0)]));
        assert!(used.ready && used.degraded && used.fatal.is_none());
        assert!(used.reasons.iter().any(|reason| reason.contains("proves in place of")), "{used:?}");
    }

    #[test]
    fn a_journal_that_cannot_be_written_holds_readiness_back_and_recovery_does_not() {
        let failing = EngineFacts { journal_failure: Some("the disk is full"), ..facts(&[(0, 1, 0)]) };
        assert_eq!(readiness(&failing).reasons, ["the disk is full"]);
        assert!(!readiness(&failing).ready);
        let recovering = EngineFacts { num_recovering: 3, ..facts(&[(0, 1, 0)]) };
        assert!(readiness(&recovering).ready && readiness(&recovering).degraded);
        let held_back = EngineFacts { num_held_back: 2, ..facts(&[(0, 1, 0)]) };
        assert!(readiness(&held_back).ready && readiness(&held_back).degraded);
        assert_eq!(
            readiness(&held_back).reasons,
            ["2 jobs that earlier processes ended over wait for all others"]
        );
    }

    #[test]
    fn what_is_to_be_loaded_holds_readiness_back_and_a_failure_does_not() {
        let warming = EngineFacts { warming: vec!["winning-32g"], ..facts(&[(0, 1, 0)]) };
        assert_eq!(readiness(&warming).reasons, ["winning-32g is being loaded"]);
        assert!(!readiness(&warming).ready);
        let failures = vec![("winning-32g", "not found")];
        let failed = EngineFacts { warmup_failures: failures, ..facts(&[(0, 1, 0)]) };
        assert!(readiness(&failed).ready && readiness(&failed).degraded);
    }

    proptest! {
        /// Whatever is the case: who is not ready says why, who is degraded is ready and says why, and what is fatal is
        /// not ready.
        #[test]
        fn there_is_always_a_reason(
            devices in prop::collection::vec((0usize..3, 0usize..4, 0usize..4), 0..5),
            draining: bool,
            synthesizer in 0usize..4,
            warms: bool,
            journal_fails: bool,
        ) {
            let warming = if warms { vec!["a"] } else { Vec::new() };
            let journal_failure = journal_fails.then_some("the disk is full");
            let synthesizer = SERVICES[synthesizer];
            let facts = EngineFacts { draining, synthesizer, journal_failure, warming, ..facts(&devices) };
            let answer = readiness(&facts);
            prop_assert!(answer.ready || !answer.reasons.is_empty());
            prop_assert_eq!(answer.degraded, answer.ready && !answer.reasons.is_empty());
            prop_assert!(answer.fatal.is_none() || !answer.ready);
            let all_gone = devices.iter().all(|(_, service, _)| *service == 3);
            let is_fatal = all_gone || matches!(synthesizer, ServiceFact::Gone(_));
            prop_assert_eq!(answer.fatal.is_some(), is_fatal);
        }
    }
}
