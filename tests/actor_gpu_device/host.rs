//! The host's processor as a device, on the real clock.

use super::*;

#[test]
fn b35_the_host_proves_tiny_and_odd_sizes_after_a_known_answer() {
    let fixtures = [1, 2, 3, 7, 31, 1025].map(|size| Fixture::new(&format!("size-{size}"), size));
    on_arbiter(async {
        let config = CpuConfig { num_lanes: 1, memory_bytes: 1 << 30, num_threads: None };
        let spawner = FactorySpawner::boxed(CpuFactory::new(config));
        let mut rig = DeviceRig::ready(&spawner, DeviceConfig::default()).await;
        for fixture in &fixtures {
            rig.prove(fixture.work(1, 0));
            let proved = rig.proved().await;
            assert_eq!(proved.proof, fixture.expected_proof());
            assert!(fixture.verifies(&proved.proof));
            assert!(proved.memory_peak_bytes > 0 && proved.memory_peak_bytes <= proved.memory_planned_bytes);
            rig.freed().await;
        }
        let status = rig.status().await;
        assert_eq!((status.reserved_bytes, status.in_use_bytes, status.lanes_busy), (0, 0, 0));
        rig.drain().await;
    });
}

#[test]
fn the_host_gives_a_cancelled_partition_up() {
    on_arbiter(async {
        let fixture = Fixture::new("large", 600);
        let config = CpuConfig { num_lanes: 2, memory_bytes: 1 << 30, num_threads: Some(1) };
        let spawner = FactorySpawner::boxed(CpuFactory::new(config));
        let mut rig = DeviceRig::ready(&spawner, DeviceConfig::default()).await;
        rig.prove(fixture.work(1, 0)).cancel();
        assert!(is_cancelled(&rig.failed().await));
        rig.freed().await;
        let cancel = rig.prove(fixture.work(2, 0));
        rig.stage(Stage::Quotient).await;
        cancel.cancel();
        assert!(is_cancelled(&rig.failed().await));
        rig.freed().await;
        // The same lane is good for the next one.
        rig.prove(fixture.work(3, 0));
        assert_eq!(rig.proved().await.proof, fixture.expected_proof());
        rig.drain().await;
    });
}

#[test]
fn a_panic_of_the_prover_is_a_fault_and_its_thread_lives_on() {
    let fixture = fixture();
    let (wake, woken) = std::sync::mpsc::channel();
    let wake = std::sync::Mutex::new(wake);
    let waker: BackendWaker = Arc::new(move || {
        let wake = wake.lock().expect("no holder panics");
        // The test may have ended.
        let _ = wake.send(());
    });
    let config = CpuConfig { num_lanes: 1, memory_bytes: 1 << 30, num_threads: None };
    let mut backend = CpuFactory::new(config).open(waker).expect("the host is there");
    let lane = LaneIndex(0);
    let plan = roomy_plan(&fixture);
    let next_event = move |backend: &mut CpuBackend| loop {
        if let Some(event) = backend.poll().pop() {
            return event;
        }
        woken.recv().expect("the backend is open");
    };

    // The actor refuses such work; a backend must survive it all the same.
    let mut broken = fixture.work(1, 0);
    let mut witness = fixture.witness.as_ref().clone();
    witness.bits.pop();
    broken.witness = Arc::new(witness);
    backend.begin(lane, broken, &plan).expect("the lane is empty");
    backend.enqueue(lane, Stage::SumL).expect("the lane is idle");
    match next_event(&mut backend) {
        BackendEvent::StageFailed { stage: Stage::SumL, error: DeviceError::Fault { what, .. }, .. } => {
            assert!(what.starts_with("the prover panicked"), "{what}");
        }
        other => panic!("expected a fault, got {other:?}"),
    }

    backend.begin(lane, fixture.work(2, 0), &plan).expect("the lane is empty");
    for stage in Stage::ALL {
        backend.enqueue(lane, stage).expect("the lane is idle");
        let event = next_event(&mut backend);
        assert!(matches!(event, BackendEvent::StageDone { stage: done, .. } if done == stage), "{event:?}");
    }
    let finished = backend.take_proof(lane).expect("it is done");
    assert_eq!(finished.proof, fixture.expected_proof());
    assert!(backend.take_proof(lane).is_err(), "it is taken once");
    assert_eq!(backend.memory_in_use_bytes(), 0);
}
