//! What only the machine can say: temperatures, power and clocks of its GPUs, by NVIDIA's management library where there
//! is one; and which parameter files lie on its disk. Looked at on a thread of its own, since a driver or a disk may take
//! its time.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crossbeam_channel::{bounded, Receiver, RecvTimeoutError, Sender};
use cuzk::circuits::CircuitSpec;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};
use serde::Serialize;

/// How often GPUs are asked.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(2);
/// The folder of parameter files is looked at, and an absent driver looked for, at every so many samples.
const SAMPLES_PER_SCAN: u64 = 15;

/// What a GPU says of itself. What it cannot say is `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Sensors {
    pub temperature_celsius: Option<u32>,
    pub power_watts: Option<f64>,
    pub power_limit_watts: Option<f64>,
    /// Part of the last moments in which a kernel ran, from 0 to 1.
    pub utilization: Option<f64>,
    pub sm_clock_mhz: Option<u32>,
    pub memory_clock_mhz: Option<u32>,
    /// By all processes.
    pub memory_used_bytes: Option<u64>,
}

/// What was seen last.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// By UUID, as devices are named.
    pub gpus: BTreeMap<String, Sensors>,
    /// Sizes of the parameter files that are there, by circuit.
    pub key_files: BTreeMap<String, u64>,
}

/// Looks, and keeps what it saw.
pub struct Sampler {
    sample: Arc<Mutex<Sample>>,
    /// The thread ends when it is dropped.
    _stop: Sender<()>,
}

impl Sampler {
    /// # Errors
    /// The system's, if it refuses a thread.
    pub fn start(params_dir: PathBuf) -> std::io::Result<Self> {
        let sample: Arc<Mutex<Sample>> = Arc::default();
        let (stop, stopped) = bounded(0);
        let thread_sample = Arc::clone(&sample);
        std::thread::Builder::new()
            .name("cuzk-sensors".into())
            .spawn(move || watch(&params_dir, &thread_sample, &stopped))?;
        Ok(Self { sample, _stop: stop })
    }

    /// Always sees the same.
    #[cfg(test)]
    pub fn fixed(sample: Sample) -> Self {
        Self { sample: Arc::new(Mutex::new(sample)), _stop: bounded(0).0 }
    }

    pub fn last(&self) -> Sample {
        self.sample.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn watch(params_dir: &Path, sample: &Mutex<Sample>, stopped: &Receiver<()>) {
    let keep = |change: &dyn Fn(&mut Sample)| {
        change(&mut sample.lock().unwrap_or_else(PoisonError::into_inner));
    };
    let mut library = None;
    for number in 0_u64.. {
        if number.is_multiple_of(SAMPLES_PER_SCAN) {
            let key_files = key_files(params_dir);
            keep(&|sample: &mut Sample| sample.key_files.clone_from(&key_files));
            if library.is_none() {
                library = open();
            }
        }
        if let Some(nvml) = &library {
            let gpus = gpus(nvml);
            if let Err(error) = &gpus {
                tracing::debug!(%error, "the GPUs' sensors cannot be read");
                library = None;
            }
            let gpus = gpus.unwrap_or_default();
            keep(&|sample: &mut Sample| sample.gpus.clone_from(&gpus));
        }
        if stopped.recv_timeout(SAMPLE_INTERVAL) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

fn open() -> Option<Nvml> {
    let opened = Nvml::init();
    opened.inspect_err(|error| tracing::debug!(%error, "no sensors of GPUs")).ok()
}

fn gpus(nvml: &Nvml) -> Result<BTreeMap<String, Sensors>, NvmlError> {
    let mut gpus = BTreeMap::new();
    for index in 0..nvml.device_count()? {
        // One that fell off the bus does not silence the others.
        let Ok(gpu) = nvml.device_by_index(index) else { continue };
        if let Ok(uuid) = gpu.uuid() {
            gpus.insert(uuid, sensors(&gpu));
        }
    }
    Ok(gpus)
}

fn sensors(gpu: &Device<'_>) -> Sensors {
    let watts = |milliwatts: u32| f64::from(milliwatts) / 1000.0;
    Sensors {
        temperature_celsius: gpu.temperature(TemperatureSensor::Gpu).ok(),
        power_watts: gpu.power_usage().ok().map(watts),
        power_limit_watts: gpu.enforced_power_limit().ok().map(watts),
        utilization: gpu.utilization_rates().ok().map(|rates| f64::from(rates.gpu) / 100.0),
        sm_clock_mhz: gpu.clock_info(Clock::SM).ok(),
        memory_clock_mhz: gpu.clock_info(Clock::Memory).ok(),
        memory_used_bytes: gpu.memory_info().ok().map(|memory| memory.used),
    }
}

fn key_files(params_dir: &Path) -> BTreeMap<String, u64> {
    let size = |spec: CircuitSpec| {
        let file = std::fs::metadata(params_dir.join(spec.params_file())).ok()?;
        file.is_file().then(|| (spec.id().to_string(), file.len()))
    };
    CircuitSpec::all().into_iter().filter_map(size).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameter_files_that_are_there_are_found_with_their_sizes() {
        let dir = tempfile::tempdir().unwrap();
        assert!(key_files(dir.path()).is_empty());
        assert!(key_files(&dir.path().join("nothing")).is_empty());
        let spec = CircuitSpec::all().remove(0);
        std::fs::write(dir.path().join(spec.params_file()), [0; 7]).unwrap();
        std::fs::write(dir.path().join("other"), [0; 9]).unwrap();
        let found = key_files(dir.path());
        assert_eq!(found.into_iter().collect::<Vec<_>>(), [(spec.id().to_string(), 7)]);
    }
}
