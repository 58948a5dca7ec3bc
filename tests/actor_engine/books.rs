//! Host memory is reserved before it is taken, and free once its holder has let go.

use cuzk::backend::MemoryModel;
use cuzk::error::ErrorClass;
use cuzk::messages::lifecycle::{DeviceMemory, DeviceReady, Drain, EndJobs};
use cuzk::messages::srs::Residence;
use cuzk::messages::synthesis::{CircuitMeasured, CircuitNeeds};
use cuzk::policy::plan::{ShapeSummary, SrsSummary};

use super::*;
use crate::rig::{circuit, circuit_with, partition_bytes, result};

#[test]
fn a_circuit_is_read_only_once_its_memory_is_reserved() {
    on_paused_arbiter(async {
        let mut rig = Rig::start(Settings { host_budget_bytes: 10_000, ..Settings::default() });
        let first = rig.submit(&circuit("first", &[2])).await;
        rig.load(6000).await;
        let held = rig.witness().await;
        let _second = rig.submit(&circuit("second", &[3])).await;
        let command = rig.measure().await;
        rig.measured(&command, 6000);
        rig.nothing_asked().await;
        assert_eq!(rig.status().await.circuit_memory_reserved_bytes, 6000);

        rig.cancel(first.ticket.job()).await;
        rig.nothing_asked().await;
        assert_eq!(rig.status().await.circuit_memory_reserved_bytes, 6000, "a worker still reads it");
        drop(held);
        let command = rig.prepare().await;
        assert_eq!(command.workload.circuit().as_str(), "second");
        assert_eq!(rig.status().await.circuit_memory_reserved_bytes, 6000);
        // What it takes in the end counts, not what was thought.
        rig.prepared(command, 7500);
        rig.witness().await;
        assert_eq!(rig.status().await.circuit_memory_reserved_bytes, 7500);
        rig.end().await;
    });
}

#[test]
fn a_circuit_that_nobody_waits_for_any_more_is_not_loaded() {
    on_paused_arbiter(async {
        let mut rig = Rig::start(Settings { host_budget_bytes: 10_000, ..Settings::default() });
        let first = rig.submit(&circuit("first", &[2])).await;
        let command = rig.measure().await;
        rig.cancel(first.ticket.job()).await;
        rig.measured(&command, 6000);
        rig.nothing_asked().await;
        assert_eq!(rig.status().await.circuits, []);
        rig.end().await;
    });
}

#[test]
fn a_circuit_of_a_critical_job_does_not_wait_for_memory() {
    on_paused_arbiter(async {
        let mut rig = Rig::start(Settings { host_budget_bytes: 10_000, ..Settings::default() });
        let _first = rig.submit(&circuit("first", &[2])).await;
        rig.load(6000).await;
        rig.witness().await;
        let _critical = rig.submit_as(&circuit("second", &[3]), Priority::Critical).await.unwrap();
        rig.load(6000).await;
        assert_eq!(rig.status().await.circuit_memory_reserved_bytes, 12_000);
        rig.end().await;
    });
}

#[test]
fn jobs_that_come_later_do_not_keep_a_circuit_waiting_for_ever() {
    on_paused_arbiter(async {
        let mut rig = Rig::start(Settings { host_budget_bytes: 10_000, ..Settings::default() });
        let first = rig.submit(&circuit("first", &[2])).await;
        rig.load(6000).await;
        let held = rig.witness().await;
        let _second = rig.submit(&circuit("second", &[3])).await;
        let command = rig.measure().await;
        rig.measured(&command, 6000);
        // Of the circuit that is loaded, and behind the one that waits.
        let _third = rig.submit(&circuit_with("first", &srs_of_first(&held), &[4])).await;
        rig.nothing_asked().await;
        drop(held);
        rig.cancel(first.ticket.job()).await;
        // The first job was the last that kept the circuit; the third begins after the second.
        let mut asked = vec![rig.asked.next().await, rig.asked.next().await];
        asked.sort_by_key(|asked| matches!(asked, rig::Asked::Prepare(_)));
        let Some(rig::Asked::Prepare(command)) = asked.pop() else { panic!("{asked:?}") };
        assert_eq!(command.workload.circuit().as_str(), "second");
        let Some(rig::Asked::Measure(later)) = asked.pop() else { panic!("{asked:?}") };
        assert_eq!(later.circuit.as_str(), "first");
        rig.prepared(command, 6000);
        assert_eq!(rig.witness().await.workload.circuit().as_str(), "second");
        rig.end().await;
    });
}

fn srs_of_first(
    command: &cuzk::messages::synthesis::SynthesizeWitness,
) -> std::sync::Arc<cuzk::groth16::Srs> {
    std::sync::Arc::clone(&command.circuit.srs)
}

#[test]
fn a_circuit_larger_than_the_budget_is_let_through_alone() {
    on_paused_arbiter(async {
        let mut rig = Rig::start(Settings { host_budget_bytes: 10_000, ..Settings::default() });
        let _first = rig.submit(&circuit("first", &[2])).await;
        rig.load(60000).await;
        rig.witness().await;
        rig.end().await;
    });
}

#[test]
fn a_cancelled_witness_counts_until_its_worker_has_let_go() {
    on_paused_arbiter(async {
        let partition_bytes = partition_bytes();
        let mut rig =
            Rig::start(Settings { host_budget_bytes: 6000 + partition_bytes, ..Settings::default() });
        let workload = circuit("squares", &[2]);
        let first = rig.submit(&workload).await;
        rig.load(6000).await;
        let held = rig.witness().await;
        let _second = rig.submit(&workload).await;
        assert_eq!(rig.cancel(first.ticket.job()).await, CancelOutcome::WasQueued);
        assert!(held.cancel.is_cancelled());
        rig.nothing_asked().await;
        assert_eq!(rig.status().await.host_memory_reserved_bytes, partition_bytes);
        drop(held);
        // The other job's witness gets what is free now.
        rig.witness().await;
        assert_eq!(rig.status().await.host_memory_reserved_bytes, partition_bytes);
        rig.end().await;
    });
}

#[test]
fn a_cancelled_partition_counts_until_its_device_has_let_go() {
    on_paused_arbiter(async {
        let mut rig = Rig::start(Settings::default());
        rig.device_ready(0, 1);
        let job = rig.submit(&circuit("squares", &[2])).await;
        rig.load(60).await;
        let held = rig.placed().await;
        assert_eq!(rig.cancel(job.ticket.job()).await, CancelOutcome::WasRunning);
        assert!(held.cancel.is_cancelled());
        assert_eq!(rig.status().await.host_memory_reserved_bytes, partition_bytes());
        let at = held.work.at.clone();
        rig.failed(held, DeviceError::Cancelled { at });
        assert_eq!(rig.status().await.host_memory_reserved_bytes, 0);
        rig.end().await;
    });
}

#[test]
fn a_drain_stops_the_loading_that_nobody_will_use() {
    on_paused_arbiter(async {
        let mut rig = Rig::start(Settings::default());
        let mut job = rig.submit(&circuit("squares", &[2])).await;
        let command = rig.measure().await;
        rig.measured(&command, 60);
        let loading = rig.prepare().await;
        rig.scheduler.do_send(Drain);
        rig.drained.expect_silence(200 * MS).await;
        assert!(!loading.cancel.is_cancelled(), "its job is to be finished");
        rig.scheduler.do_send(EndJobs);
        rig.drained.next().await;
        assert!(loading.cancel.is_cancelled());
        result(&mut job).await.unwrap_err();
        rig.end().await;
    });
}

#[test]
fn what_a_stopped_load_says_at_last_is_nothing_to_the_jobs_of_the_next_one_of_the_same_key() {
    on_paused_arbiter(async {
        let mut rig = Rig::start(Settings::default());
        rig.device_ready(0, 1);
        let squares = circuit("squares", &[2]);
        let mut job = rig.submit(&squares).await;
        let command = rig.measure().await;
        rig.measured(&command, 60);
        let stopped = rig.prepare().await;
        // Its worker is still at it when another one is asked for the same circuit.
        rig.synthesizer_ready();
        let next = rig.measure().await;
        assert!(stopped.cancel.is_cancelled());
        rig.stopped(&stopped);
        rig.nothing_asked().await;
        rig.measured(&next, 60);
        let command = rig.prepare().await;
        rig.stopped(&stopped);
        drop(stopped);
        rig.prepared(command, 60);
        let command = rig.placed().await;
        rig.proved(command);
        let verify = rig.verify().await;
        rig.verdict(verify, true);
        rig.agree().await;
        result(&mut job).await.unwrap();
        rig.end().await;
    });
}

#[test]
fn b11_what_fits_no_device_is_refused_before_its_key_is_read() {
    on_paused_arbiter(async {
        let mut rig = Rig::start(Settings::default());
        rig.device_ready(0, 1);
        let large = |command: &cuzk::messages::synthesis::MeasureCircuit| CircuitMeasured {
            circuit: command.circuit.clone(),
            source: command.source.clone(),
            needs: CircuitNeeds {
                num_bytes: 60,
                shape: ShapeSummary {
                    domain_log2: 26,
                    num_rows: 1 << 26,
                    num_inputs: 2,
                    num_aux: 1 << 26,
                    evaluation: None,
                },
                srs: SrsSummary::new([1 << 26; 5]),
            },
        };
        // One of the two has not opened: it may have the room.
        let unknown = rig.submit(&circuit("first", &[2])).await;
        let command = rig.measure().await;
        rig.scheduler.do_send(large(&command));
        let loading = rig.prepare().await;
        rig.cancel(unknown.ticket.job()).await;

        let roomy = DeviceReady {
            memory: DeviceMemory {
                normal_limit_bytes: 1 << 29,
                critical_limit_bytes: 1 << 40,
                model: MemoryModel::Dedicated,
            },
            ..rig.ready_fact(1, 1)
        };
        rig.scheduler.do_send(roomy);
        let mut job = rig.submit(&circuit("second", &[2])).await;
        let command = rig.measure().await;
        rig.scheduler.do_send(large(&command));
        let error = result(&mut job).await.unwrap_err();
        assert!(matches!(error, EngineError::Device(DeviceError::Plan { .. })), "{error}");
        assert_eq!(error.class(), ErrorClass::Caller, "it fails every time");
        assert!(error.to_string().contains("budget is 536870912 B"), "{error}");
        rig.nothing_asked().await;

        // In the reserve of the second there would be room.
        let _critical = rig.submit_as(&circuit("third", &[2]), Priority::Critical).await.unwrap();
        let command = rig.measure().await;
        rig.scheduler.do_send(large(&command));
        rig.prepare().await;
        drop(loading);
        rig.end().await;
    });
}

#[test]
fn b27_critical_work_has_a_larger_limit_of_its_own_and_a_refusal_says_so() {
    on_paused_arbiter(async {
        let rig = Rig::start(Settings { max_queued_jobs: 2, ..Settings::default() });
        let workload = circuit("squares", &[2]);
        let mut jobs = Vec::new();
        for _ in 0..2 {
            jobs.push(rig.submit(&workload).await);
        }
        for _ in 0..8 {
            jobs.push(rig.submit_as(&workload, Priority::Critical).await.unwrap());
        }
        for priority in [Priority::Normal, Priority::Critical] {
            let error = rig.submit_as(&workload, priority).await.unwrap_err();
            let EngineError::Schedule(cuzk::error::ScheduleError::QueueFull { limit, .. }) = error else {
                panic!("{error}")
            };
            assert_eq!(limit, if priority == Priority::Critical { 8 } else { 2 });
            assert_eq!(error.class(), ErrorClass::Retry);
        }
        rig.end().await;
    });
}

#[test]
fn b28_released_memory_goes_to_the_highest_ranked_waiter() {
    on_paused_arbiter(async {
        let partition_bytes = partition_bytes();
        let budget = 6000 + 2 * partition_bytes;
        let mut rig = Rig::start(Settings { host_budget_bytes: budget, ..Settings::default() });
        let workload = circuit("squares", &[2, 3, 4, 5]);
        let _normal = rig.submit(&workload).await;
        rig.load(6000).await;
        let (first, second) = (rig.witness().await, rig.witness().await);
        rig.nothing_asked().await;
        let high = rig.submit_as(&workload, Priority::High).await.unwrap();
        rig.nothing_asked().await;
        // A partition ends, and with it goes its memory: once its proof is verified.
        rig.device_ready(0, 1);
        rig.synthesized(first);
        let proving = rig.next_placed().await;
        rig.proved(proving);
        let verify = rig.verify().await;
        rig.nothing_asked().await;
        let reserved = rig.status().await.host_memory_reserved_bytes;
        assert_eq!(reserved, 2 * partition_bytes, "it may have to be proved again");
        rig.verdict(verify, true);
        let next = rig.witness().await;
        assert_eq!(next.at.job, high.ticket.job(), "not the job that was there first");
        drop((second, next));
        rig.end().await;
    });
}

#[test]
fn b28_a_circuit_that_waits_gets_what_a_lower_job_releases() {
    on_paused_arbiter(async {
        let partition_bytes = partition_bytes();
        // Beside the first circuit there is room for four partitions; the second circuit takes all of that but one.
        let budget = 6000 + 4 * partition_bytes;
        let mut rig = Rig::start(Settings { host_budget_bytes: budget, ..Settings::default() });
        let _low = rig.submit(&circuit("first", &[2, 3, 4, 5, 6, 7])).await;
        rig.load(6000).await;
        let (first, second) = (rig.witness().await, rig.witness().await);
        let _high = rig.submit_as(&circuit("second", &[2]), Priority::High).await.unwrap();
        let command = rig.measure().await;
        rig.measured(&command, 3 * partition_bytes);
        // There is room for witnesses of the first, but the second goes first.
        rig.synthesized(first);
        rig.nothing_asked().await;
        rig.device_ready(0, 1);
        let proving = rig.next_placed().await;
        rig.proved(proving);
        let verify = rig.verify().await;
        rig.verdict(verify, true);
        rig.nothing_asked().await;
        // The lower job ends, and a worker lets go of what it still had.
        rig.cancel(second.at.job).await;
        drop(second);
        let loading = rig.prepare().await;
        assert_eq!(loading.workload.circuit().as_str(), "second");
        drop(loading);
        rig.end().await;
    });
}

#[test]
fn a_preload_is_asked_of_the_host_and_then_of_each_device() {
    on_paused_arbiter(async {
        let mut rig = Rig::start(Settings::default());
        rig.device_ready(0, 1);
        rig.device_ready(1, 1);
        let answer = rig.preload(&circuit("squares", &[2]), true);
        rig.load(60).await;
        let asked = [rig.asked.next().await, rig.asked.next().await];
        assert_eq!(rig.status().await.host_memory_reserved_bytes, 2 * partition_bytes());
        for asked in asked {
            let rig::Asked::Preload(command) = asked else { panic!("{asked:?}") };
            rig.preloaded(command, Residence::Resident { num_bytes: 33 });
        }
        let loaded = answer.await.expect("the Scheduler lives").unwrap();
        assert_eq!((loaded.host_bytes, loaded.devices.len(), loaded.pinned), (60, 2, true));
        let status = rig.status().await;
        assert_eq!((status.host_memory_reserved_bytes, status.circuit_memory_pinned_bytes), (0, 60));
        // A device that was rebuilt is asked again, and nobody waits for that.
        rig.device_ready(1, 2);
        let rig::Asked::Preload(command) = rig.asked.next().await else { panic!("a preload") };
        assert_eq!(command.credit.device().as_str(), "fake-1");
        // It dies over it: its memory comes back all the same.
        rig.scheduler.do_send(cuzk::messages::lifecycle::ActorDied {
            actor: cuzk::messages::lifecycle::ActorName::Device(crate::rig::device(1)),
        });
        drop(command);
        assert_eq!(rig.status().await.host_memory_reserved_bytes, 0);
        rig.end().await;
    });
}
