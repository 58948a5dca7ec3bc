//! Load, time and memory: nothing starves, nothing alarms without cause, and what is released goes where it should.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use cuzk::actors::gpu_device::DeviceConfig;
use cuzk::backend::sim::SimFleet;
use cuzk::backend::WatchdogConfig;
use cuzk::circuits::{CustomCircuit, SrsSource};
use cuzk::engine::{DeviceSpec, EngineConfig};
use cuzk::ids::CircuitId;
use cuzk::messages::job::{Payload, Priority, ProofRequest};
use cuzk::policy::batch::BatchPolicy;
use tokio::time::Instant;

use crate::simulation::{config, prove, simulate, submit_all, with_priority};
use crate::squares::{holds, request, srs, Squares, NUM_SQUARINGS};

#[test]
fn b24_critical_work_every_300_ms_starves_nothing_and_costs_no_finished_partition() {
    simulate(config("sim:1;stage=25ms"), |engine| async move {
        engine.wait_ready().await.unwrap();
        let xs: Vec<u64> = (2..22).collect();
        let low = engine.submit(with_priority(Priority::Low, request("", &xs))).await.unwrap();
        let begun = Instant::now();
        let mut critical = Vec::new();
        while low.result().is_none() {
            let request = with_priority(Priority::Critical, request("", &[100 + critical.len() as u64]));
            critical.push(engine.submit(request).await.unwrap());
            tokio::time::sleep(Duration::from_millis(300)).await;
            assert!(begun.elapsed() < Duration::from_secs(60), "LOW starves");
        }
        // 20 partitions of 200 ms, and two thirds of the time for the others.
        assert!(begun.elapsed() <= Duration::from_secs(15), "{:?}", begun.elapsed());
        assert!(holds(&low.wait().await.unwrap().proof, &xs));
        for (index, job) in critical.iter().enumerate() {
            assert!(holds(&job.wait().await.unwrap().proof, &[100 + index as u64]));
        }
        let totals = engine.status().totals;
        assert_eq!(totals.dispatched, 20 + critical.len() as u64, "nothing was proved twice");
        assert_eq!(totals.retried, 0);
    });
}

#[test]
fn b46_a_slow_load_and_an_idle_hour_are_no_alarm() {
    let mut fleet: SimFleet = "sim:1;stage=500ms".parse().unwrap();
    fleet.device_mut(0).unwrap().srs_load_duration = Duration::from_secs(60);
    let devices = fleet.devices().iter().cloned().map(Box::new).map(DeviceSpec::Sim).collect();
    let watchdog =
        WatchdogConfig { floor: Duration::from_secs(5), upload_floor: Duration::from_secs(100), factor: 8 };
    let device = DeviceConfig { watchdog: Some(watchdog), ..DeviceConfig::default() };
    simulate(EngineConfig { devices, device, ..config("sim:1") }, |engine| async move {
        engine.wait_ready().await.unwrap();
        let begun = Instant::now();
        prove(&engine, request("", &[2])).await.unwrap();
        assert!(begun.elapsed() > Duration::from_secs(60), "{:?}", begun.elapsed());
        tokio::time::sleep(Duration::from_secs(3600)).await;
        prove(&engine, request("", &[3, 4])).await.unwrap();
        let status = engine.status();
        let device = &status.devices[0];
        assert_eq!((device.restarts, device.partitions_failed, device.health.as_str()), (0, 0, "healthy"));
        assert_eq!((status.totals.retried, status.totals.dispatched), (0, 3));
        assert!(status.ready && !status.degraded, "{:?}", status.reasons);
    });
}

fn of_circuit(name: &str, x: u64) -> ProofRequest {
    let instances = vec![(Squares::of(x), Squares::of(x).public_inputs())];
    let blank = Squares::blank(NUM_SQUARINGS);
    let workload = CustomCircuit::new(CircuitId::new(name), SrsSource::Memory(srs()), blank, instances);
    ProofRequest::new(Payload::Workload(workload.into_workload()))
}

/// The circuits of 12 jobs that come in turn, in the order in which one device proves them.
fn order_of_proofs(batches: BatchPolicy) -> Vec<&'static str> {
    // One key fits: with room for both there would be nothing to change.
    let (key_bytes, work_bytes) = crate::store::device_bytes();
    let budget_bytes = Some(key_bytes + work_bytes);
    let device = DeviceConfig { budget_bytes, self_test: false, ..DeviceConfig::default() };
    simulate(EngineConfig { batches, device, ..config("sim:1;stage=10ms") }, |engine| async move {
        engine.wait_ready().await.unwrap();
        let names = ["a", "b"];
        let order = Rc::new(RefCell::new(Vec::new()));
        let jobs = submit_all(&engine, (0..12).map(|x| of_circuit(names[x as usize % 2], 2 + x))).await;
        let waiters: Vec<_> = jobs
            .into_iter()
            .zip(2..)
            .map(|(job, x)| {
                let order = Rc::clone(&order);
                actix_rt::spawn(async move {
                    assert!(holds(&job.wait().await.unwrap().proof, &[x]), "each has its own result");
                    order.borrow_mut().push(names[x as usize % 2]);
                })
            })
            .collect();
        for waiter in waiters {
            waiter.await.unwrap();
        }
        order.take()
    })
}

#[test]
fn a_device_proves_a_bounded_batch_of_one_circuit_before_it_changes() {
    let num_changes = |order: &[&str]| order.windows(2).filter(|pair| pair[0] != pair[1]).count();
    let max_time = Duration::from_secs(60);
    let batched = order_of_proofs(BatchPolicy { max_partitions: 4, max_time });
    assert_eq!(num_changes(&batched), 3, "{batched:?}");
    assert_eq!(batched[..4], ["a"; 4], "{batched:?}");
    let alone = order_of_proofs(BatchPolicy { max_partitions: 1, max_time });
    assert_eq!(num_changes(&alone), 11, "{alone:?}");
    let short = order_of_proofs(BatchPolicy { max_partitions: 100, max_time: Duration::from_millis(170) });
    assert!(num_changes(&short) >= 3, "three partitions of 80 ms begin within the time: {short:?}");
}
