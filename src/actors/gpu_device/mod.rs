//! gpu_device
mod config;
mod spawn;

use actix::{Actor, Context, Handler};
pub use config::{DeviceConfig, DevicePeers};
pub use spawn::{DeviceHandle, DeviceSpawner, FactorySpawner};
use std::sync::Arc;

use crate::backend::{BackendFactory, DeviceBackend};
use crate::error::DeviceError;
use crate::messages::device::{EvictSrs, ProvePartition};
use crate::messages::lifecycle::Drain;
use crate::messages::status::{DeviceStatus, GetDeviceStatus};

pub struct GpuDevice<B: DeviceBackend> {
    #[allow(dead_code)]
    factory: Arc<dyn BackendFactory<Backend = B>>,
}
impl<B: DeviceBackend> GpuDevice<B> {
    pub fn new(
        factory: Arc<dyn BackendFactory<Backend = B>>,
        config: DeviceConfig,
        peers: DevicePeers,
    ) -> Self {
        let _ = (config, peers);
        Self { factory }
    }
}
impl<B: DeviceBackend> Actor for GpuDevice<B> {
    type Context = Context<Self>;
}
impl<B: DeviceBackend> Handler<ProvePartition> for GpuDevice<B> {
    type Result = ();
    fn handle(&mut self, _: ProvePartition, _: &mut Context<Self>) {}
}
impl<B: DeviceBackend> Handler<EvictSrs> for GpuDevice<B> {
    type Result = Result<bool, DeviceError>;
    fn handle(&mut self, _: EvictSrs, _: &mut Context<Self>) -> Self::Result {
        Ok(false)
    }
}
impl<B: DeviceBackend> Handler<Drain> for GpuDevice<B> {
    type Result = ();
    fn handle(&mut self, _: Drain, _: &mut Context<Self>) {}
}
impl<B: DeviceBackend> Handler<GetDeviceStatus> for GpuDevice<B> {
    type Result = DeviceStatus;
    fn handle(&mut self, _: GetDeviceStatus, _: &mut Context<Self>) -> DeviceStatus {
        todo!()
    }
}
