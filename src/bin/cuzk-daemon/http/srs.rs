//! Where proving keys are: hot on a device, warm in host memory, cold on disk.

use cuzk::messages::status::EngineStatus;
use serde::Serialize;

use super::sensors::Sample;

/// How far a key is from work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// On a device.
    Hot,
    /// In host memory.
    Warm,
    /// On disk.
    Cold,
}

impl Tier {
    /// Stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hot => "hot",
            Self::Warm => "warm",
            Self::Cold => "cold",
        }
    }
}

/// One place where a key is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Residence {
    pub circuit: String,
    pub tier: Tier,
    /// Of a hot one.
    pub device: Option<String>,
    /// Hot: device memory that it holds. Warm: host memory that is reserved for it and its circuit. Cold: of the file.
    pub num_bytes: u64,
    /// Being loaded: not there yet.
    pub loading: bool,
    /// It stays until it is evicted.
    pub pinned: bool,
    /// Jobs of the circuit that have not ended.
    pub num_jobs: u64,
}

/// Each place of each key, by circuit, the nearest place first.
pub fn residences(status: &EngineStatus, sample: &Sample) -> Vec<Residence> {
    let num_jobs = |circuit: &str| status.jobs.iter().filter(|job| job.circuit == circuit).count() as u64;
    let is_pinned = |circuit: &str| status.circuits.iter().any(|warm| warm.circuit == circuit && warm.pinned);
    let place = |circuit: &str, tier, num_bytes| Residence {
        circuit: circuit.to_owned(),
        tier,
        device: None,
        num_bytes,
        loading: false,
        pinned: false,
        num_jobs: num_jobs(circuit),
    };
    let mut residences = Vec::new();
    for device in &status.devices {
        residences.extend(device.resident_srs.iter().map(|circuit| {
            let num_bytes = device.srs_bytes.get(circuit).copied().unwrap_or(0);
            let pinned = is_pinned(circuit);
            Residence { device: Some(device.id.clone()), pinned, ..place(circuit, Tier::Hot, num_bytes) }
        }));
    }
    residences.extend(status.circuits.iter().map(|warm| Residence {
        loading: warm.state != "ready",
        pinned: warm.pinned,
        ..place(&warm.circuit, Tier::Warm, warm.num_bytes)
    }));
    let cold = sample.key_files.iter();
    residences.extend(cold.map(|(circuit, &num_bytes)| place(circuit, Tier::Cold, num_bytes)));
    residences.sort_by(|a, b| (&a.circuit, a.tier, &a.device).cmp(&(&b.circuit, b.tier, &b.device)));
    residences
}
