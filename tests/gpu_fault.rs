//! A real fault of a GPU. The only test of its program: the fault ends CUDA in the process. Needs a GPU.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use common::device::DeviceRig;
use common::fixtures::Fixture;
use common::on_arbiter;
use cuzk::actors::gpu_device::{DeviceConfig, DeviceSpawner, FactorySpawner};
use cuzk::backend::{
    BackendEvent, BackendFactory, BackendWaker, DeviceBackend, DeviceInfo, FinishedProof, LaneIndex,
    LaneLayout, MemoryModel, PartitionWork, Stage,
};
use cuzk::cuda::backend::{select_devices, CudaBackend, CudaFactory};
use cuzk::error::DeviceError;
use cuzk::ids::{CircuitId, DeviceId};
use cuzk::policy::plan::{ProvePlan, QuerySet};

/// The backend, whose context is lost on demand.
struct Sabotaged {
    inner: CudaBackend,
    fault_wanted: Arc<AtomicBool>,
}

struct SabotagedFactory {
    inner: CudaFactory,
    fault_wanted: Arc<AtomicBool>,
}

impl BackendFactory for SabotagedFactory {
    type Backend = Sabotaged;

    fn device_id(&self) -> DeviceId {
        self.inner.device_id()
    }

    fn backend(&self) -> &'static str {
        "cuda"
    }

    fn open(&self, waker: BackendWaker) -> Result<Sabotaged, DeviceError> {
        let inner = self.inner.open(waker)?;
        Ok(Sabotaged { inner, fault_wanted: Arc::clone(&self.fault_wanted) })
    }
}

impl DeviceBackend for Sabotaged {
    fn info(&self) -> DeviceInfo {
        self.inner.info()
    }
    fn lanes(&self) -> LaneLayout {
        self.inner.lanes()
    }
    fn stages_ahead(&self) -> u32 {
        self.inner.stages_ahead()
    }
    fn memory_model(&self) -> MemoryModel {
        self.inner.memory_model()
    }
    fn begin(&mut self, lane: LaneIndex, work: PartitionWork, plan: &ProvePlan) -> Result<(), DeviceError> {
        self.inner.begin(lane, work, plan)
    }
    fn enqueue(&mut self, lane: LaneIndex, stage: Stage) -> Result<(), DeviceError> {
        if stage == Stage::SumL && self.fault_wanted.swap(false, Ordering::AcqRel) {
            self.inner.provoke_fault().expect("the kernel is built in");
        }
        self.inner.enqueue(lane, stage)
    }
    fn poll(&mut self) -> Vec<BackendEvent> {
        self.inner.poll()
    }
    fn take_proof(&mut self, lane: LaneIndex) -> Result<FinishedProof, DeviceError> {
        self.inner.take_proof(lane)
    }
    fn abort(&mut self, lane: LaneIndex) {
        self.inner.abort(lane);
    }
    fn resident(&self, circuit: &CircuitId) -> QuerySet {
        self.inner.resident(circuit)
    }
    fn evict_srs(&mut self, circuit: &CircuitId) -> bool {
        self.inner.evict_srs(circuit)
    }
    fn memory_in_use_bytes(&self) -> u64 {
        self.inner.memory_in_use_bytes()
    }
    fn trim(&mut self) {
        self.inner.trim();
    }
}

/// The partition fails with a typed error, the actor reports its device lost, and whoever opens a device afterwards is
/// told to restart the process.
#[test]
fn a_lost_context_is_a_typed_error_and_never_a_proof() {
    on_arbiter(async {
        let fixture = Fixture::new("fault", 4000);
        let all = || select_devices(&[], 1).expect("this test needs a GPU and a build with kernels");
        let fault_wanted = Arc::new(AtomicBool::new(false));
        let factory = SabotagedFactory { inner: all().remove(0), fault_wanted: Arc::clone(&fault_wanted) };
        let sabotaged: Arc<dyn DeviceSpawner> = FactorySpawner::boxed(factory);
        let mut rig = DeviceRig::ready(&sabotaged, DeviceConfig::default()).await;
        rig.prove(fixture.work(1, 0));
        assert_eq!(rig.proved().await.proof, fixture.expected_proof(), "before the fault");
        fault_wanted.store(true, Ordering::Release);
        rig.prove(fixture.work(1, 1));
        let failed = rig.failed().await;
        assert!(matches!(failed.error, DeviceError::Fault { .. }), "{:?}", failed.error);
        assert!(failed.error.to_string().contains("ILLEGAL_ADDRESS"), "{}", failed.error);
        rig.lost().await;
        for factory in all() {
            let mut rig = DeviceRig::start(&FactorySpawner::boxed(factory), DeviceConfig::default());
            let lost = rig.lost().await;
            assert!(lost.error.to_string().contains("restart the process"), "{}", lost.error);
        }
    });
}
