//! Opening GPUs, and choosing which.

use std::time::Duration;

use super::CudaBackend;
use crate::backend::{BackendFactory, BackendWaker, DeviceInfo, WatchdogConfig};
use crate::cuda::{self, kernel_targets, CudaError};
use crate::error::{ConfigError, DeviceError};
use crate::ids::DeviceId;
use crate::policy::selector::DeviceSelector;

/// Opens one GPU. Plain data; the context is made on the thread that opens it.
#[derive(Clone, Debug)]
pub struct CudaFactory {
    device: cuda::DeviceInfo,
    /// Its place among the visible devices; for display.
    ordinal: u32,
    num_lanes: u32,
    num_parking_lanes: u32,
}

impl CudaFactory {
    /// `num_lanes`: partitions side by side, besides the lane for CRITICAL work. Two overlap the upload of one with
    /// the kernels of the other.
    pub fn new(device: cuda::DeviceInfo, ordinal: u32, num_lanes: u32) -> Self {
        Self { device, ordinal, num_lanes, num_parking_lanes: 0 }
    }

    /// The same with room for so many partitions that wait for others, to share a pass over what the card streams with
    /// them ([`crate::policy::shared_pass::parking_lanes`]). 0, as it is made: they do not.
    #[must_use]
    pub fn with_parking_lanes(mut self, num_parking_lanes: u32) -> Self {
        self.num_parking_lanes = num_parking_lanes;
        self
    }
}

impl BackendFactory for CudaFactory {
    type Backend = CudaBackend;

    fn device_id(&self) -> DeviceId {
        self.device.id.clone()
    }

    fn backend(&self) -> &'static str {
        "cuda"
    }

    fn open(&self, waker: BackendWaker) -> Result<CudaBackend, DeviceError> {
        let info = DeviceInfo {
            id: self.device.id.clone(),
            ordinal: self.ordinal,
            name: self.device.name.clone(),
            backend: "cuda",
            memory_total_bytes: self.device.memory_bytes,
        };
        let num_lanes = (self.num_lanes, self.num_parking_lanes);
        CudaBackend::open(info, &self.device, num_lanes, waker).map_err(|error| DeviceError::Open {
            device: format!("{} ({})", self.device.id, self.device.name),
            what: self.why_not(&error),
        })
    }

    /// A stage of a 32 GiB proof takes under a second on any card that can hold it; a stage that streams its points
    /// over a slow link some seconds.
    fn watchdog(&self) -> WatchdogConfig {
        WatchdogConfig {
            floor: Duration::from_secs(60),
            upload_floor: Duration::from_secs(300),
            ..WatchdogConfig::default()
        }
    }
}

impl CudaFactory {
    /// What to do about it, where the driver's own words do not say.
    fn why_not(&self, error: &CudaError) -> String {
        let CudaError::Call { code, .. } = error else { return error.to_string() };
        let driver = self.device.driver_version;
        let driver = format!("{}.{}", driver / 1000, driver % 1000 / 10);
        match code.0 {
            // No machine code for it, and no PTX that it could be made from.
            209 => format!(
                "compute capability {} is not in this build, which has {}: rebuild with CUZK_CUDA_ARCHS",
                self.device.compute_capability,
                kernel_targets().join(", ")
            ),
            // PTX of a newer toolkit, or an image this driver cannot read.
            200 | 222 | 803 => format!(
                "the driver supports CUDA {driver}, the kernels were compiled by a newer toolkit: update the driver ({error})"
            ),
            // A fault of any context ends CUDA in the whole process, on every device of it (see cuda/mod.rs).
            700..=719 => format!("CUDA is lost to this process after a fault on a device: restart the process ({error})"),
            _ => error.to_string(),
        }
    }
}

/// The GPUs that `selectors` name, in the driver's order; every visible one if there are no selectors.
///
/// # Errors
/// [`ConfigError::Value`] for key `gpus.devices`: no driver, no kernels in this build, no device, or a selector that
/// matches none of them; it lists what is visible.
pub fn select_devices(selectors: &[DeviceSelector], num_lanes: u32) -> Result<Vec<CudaFactory>, ConfigError> {
    let refuse = |what: String| ConfigError::Value { key: "gpus.devices".to_owned(), what };
    if cuda::kernel_images().is_empty() {
        return Err(refuse(CudaError::NoKernels.to_string()));
    }
    let devices = cuda::devices().map_err(|error| refuse(error.to_string()))?;
    if devices.is_empty() {
        return Err(refuse("the CUDA driver shows no device".to_owned()));
    }
    let matches = |selector: &DeviceSelector, ordinal: usize, device: &cuda::DeviceInfo| {
        selector.matches(device.id.as_str(), &device.pci_bus_id, ordinal as u32)
    };
    for selector in selectors {
        if !devices.iter().enumerate().any(|(ordinal, device)| matches(selector, ordinal, device)) {
            let visible: Vec<String> = devices
                .iter()
                .enumerate()
                .map(|(ordinal, device)| {
                    format!("{ordinal}: {} {} ({})", device.id, device.pci_bus_id, device.name)
                })
                .collect();
            return Err(refuse(format!("no device is `{selector}`; visible: {}", visible.join("; "))));
        }
    }
    let chosen = devices.into_iter().enumerate().filter(|(ordinal, device)| {
        selectors.is_empty() || selectors.iter().any(|selector| matches(selector, *ordinal, device))
    });
    Ok(chosen.map(|(ordinal, device)| CudaFactory::new(device, ordinal as u32, num_lanes)).collect())
}
