//! Questions about state, and their snapshots.

use actix::prelude::{Message, MessageResponse};
use serde::Serialize;

/// Question to a device.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "DeviceStatus")]
pub struct GetDeviceStatus;

/// A device's state at one moment. Sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, MessageResponse)]
pub struct DeviceStatus {
    pub id: String,
    pub name: String,
    pub backend: String,
    pub health: String,
    pub num_lanes: u32,
    pub lanes_busy: u32,
    pub budget_bytes: u64,
    pub reserved_bytes: u64,
    pub in_use_bytes: u64,
    pub resident_srs: Vec<String>,
    pub partitions_proved: u64,
    pub partitions_failed: u64,
}
