//! Starting a device actor without knowing its backend: what the Supervisor holds per device.

use std::fmt;
use std::sync::Arc;

use actix::{Actor, ArbiterHandle, Recipient};

use crate::actors::gpu_device::{DeviceConfig, DevicePeers, GpuDevice};
use crate::backend::BackendFactory;
use crate::ids::DeviceId;
use crate::messages::lifecycle::{DeviceAddress, Drain, StopActor};

/// A device that can be started, and started again after its actor died. `cuda`, `cpu` and `sim` mix freely in a
/// `Vec<Arc<dyn DeviceSpawner>>`.
pub trait DeviceSpawner: Send + Sync {
    fn device_id(&self) -> DeviceId;

    /// `cpu`, `sim`, `cuda`.
    fn backend(&self) -> &'static str;

    /// Starts a fresh actor on `arbiter` and returns at once; the actor opens its backend there and then says
    /// `DeviceReady`, or `DeviceLost` if it cannot. A dead arbiter gives a handle that is not connected.
    fn start(&self, arbiter: &ArbiterHandle, config: DeviceConfig, peers: DevicePeers) -> DeviceHandle;
}

/// A started device actor, as its Supervisor sees it.
#[derive(Clone, Debug)]
pub struct DeviceHandle {
    pub id: DeviceId,
    pub address: DeviceAddress,
    pub drain: Recipient<Drain>,
    /// For one that does not drain in time.
    pub stop: Recipient<StopActor>,
}

impl DeviceHandle {
    /// `false` once the actor has stopped or died of a panic (nobody is told about a panic).
    pub fn connected(&self) -> bool {
        self.drain.connected()
    }
}

/// [`DeviceSpawner`] of any backend, by its factory.
pub struct FactorySpawner<F> {
    factory: Arc<F>,
}

impl<F: BackendFactory> FactorySpawner<F> {
    pub fn new(factory: F) -> Self {
        Self { factory: Arc::new(factory) }
    }

    /// The same as a trait object.
    pub fn boxed(factory: F) -> Arc<dyn DeviceSpawner> {
        Arc::new(Self::new(factory))
    }
}

impl<F: BackendFactory> fmt::Debug for FactorySpawner<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FactorySpawner({})", self.factory.device_id())
    }
}

impl<F: BackendFactory> DeviceSpawner for FactorySpawner<F> {
    fn device_id(&self) -> DeviceId {
        self.factory.device_id()
    }

    fn backend(&self) -> &'static str {
        self.factory.backend()
    }

    fn start(&self, arbiter: &ArbiterHandle, config: DeviceConfig, peers: DevicePeers) -> DeviceHandle {
        let factory = Arc::clone(&self.factory);
        let actor = GpuDevice::<F::Backend>::start_in_arbiter(arbiter, move |_| {
            GpuDevice::new(factory, config, peers)
        });
        DeviceHandle {
            id: self.factory.device_id(),
            address: DeviceAddress {
                prove: actor.clone().recipient(),
                evict: actor.clone().recipient(),
                preload: actor.clone().recipient(),
            },
            drain: actor.clone().recipient(),
            stop: actor.recipient(),
        }
    }
}
