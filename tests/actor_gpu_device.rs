//! The device actor, message by message, on simulated devices with virtual time and on the host's processor.

mod common;
#[path = "actor_gpu_device/conversation.rs"]
mod conversation;
#[path = "actor_gpu_device/faults.rs"]
mod faults;
#[path = "actor_gpu_device/gathering.rs"]
mod gathering;
#[path = "actor_gpu_device/host.rs"]
mod host;
#[path = "actor_gpu_device/memory.rs"]
mod memory;
#[path = "actor_gpu_device/passes.rs"]
mod passes;
#[path = "actor_gpu_device/random.rs"]
mod random;

use std::sync::Arc;
use std::time::Duration;

use common::device::{DeviceRig, Fact};
use common::fixtures::Fixture;
use common::{on_arbiter, on_paused_arbiter, stopped};
use cuzk::actors::gpu_device::{DeviceConfig, DeviceSpawner, FactorySpawner};
use cuzk::backend::cpu::{CpuBackend, CpuConfig, CpuFactory};
use cuzk::backend::sim::{FaultScript, SimConfig, SimFactory, SimProver};
use cuzk::backend::{
    BackendEvent, BackendFactory, BackendWaker, DeviceBackend, LaneIndex, LaneLayout, Stage, WatchdogConfig,
};
use cuzk::error::{DeviceError, ErrorClass, PlanError, SrsError};
use cuzk::messages::device::{CancelFlag, EvictSrs, LaneCredit, LaneKind, PartitionFailed};
use cuzk::messages::job::Priority;
use cuzk::messages::lifecycle::{Drain, StopActor};
use cuzk::messages::srs::Eviction;
use cuzk::policy::plan::{least_budget_bytes, plan, ProvePlan, ShapeSummary, SrsSummary};
use tokio::time::Instant;

const MS: Duration = Duration::from_millis(1);
/// Time of every simulated stage.
const STAGE: Duration = Duration::from_millis(10);

fn sim(faults: &str) -> SimConfig {
    SimConfig {
        stage_durations: [STAGE; 9],
        prover: SimProver::Fake,
        faults: faults.parse::<FaultScript>().expect("the script is well-formed"),
        watchdog: WatchdogConfig { floor: 100 * MS, upload_floor: 200 * MS, factor: 3 },
        ..SimConfig::default()
    }
}

fn real(faults: &str) -> SimConfig {
    SimConfig { prover: SimProver::Real, ..sim(faults) }
}

fn spawner(config: SimConfig) -> Arc<dyn DeviceSpawner> {
    FactorySpawner::boxed(SimFactory::new(config))
}

async fn ready(config: SimConfig) -> DeviceRig {
    DeviceRig::ready(&spawner(config), DeviceConfig::default()).await
}

async fn ready_with_budget(config: SimConfig, budget_bytes: u64) -> DeviceRig {
    let device = DeviceConfig { budget_bytes: Some(budget_bytes), ..DeviceConfig::default() };
    DeviceRig::ready(&spawner(config), device).await
}

fn fixture() -> Fixture {
    Fixture::new("small", 31)
}

fn summaries(fixture: &Fixture) -> (ShapeSummary, SrsSummary) {
    (ShapeSummary::of(&fixture.shape), SrsSummary::of(&fixture.srs))
}

/// The plan with all the memory there could be.
fn roomy_plan(fixture: &Fixture) -> ProvePlan {
    let (shape, srs) = summaries(fixture);
    plan(&shape, &srs, u64::MAX / 2).expect("there is room")
}

fn least_bytes(fixture: &Fixture) -> u64 {
    let (shape, srs) = summaries(fixture);
    least_budget_bytes(&shape, &srs)
}

fn is_cancelled(failed: &PartitionFailed) -> bool {
    matches!(failed.error, DeviceError::Cancelled { .. })
}
