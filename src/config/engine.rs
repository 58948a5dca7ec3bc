//! What the configuration means to an engine.

use std::time::Duration;

use super::{Config, DeviceChoice};
use crate::engine::{DeviceSpec, EngineConfig};
use crate::error::ConfigError;

impl Config {
    /// The engine's settings, its devices chosen.
    ///
    /// # Errors
    /// [`ConfigError::Value`] if this build cannot drive the devices that are asked for.
    pub fn engine_config(&self) -> Result<EngineConfig, ConfigError> {
        let seconds = Duration::from_secs;
        let mut engine = EngineConfig {
            devices: self.device_specs()?,
            params_dir: self.params_dir(),
            shape_cache_dir: Some(self.cache_dir().join("shapes")),
            verdict_dir: Some(self.cache_dir().join("verdicts")),
            max_queued_jobs: self.scheduler.max_queued_jobs as usize,
            max_attempts: self.scheduler.max_attempts,
            retained_results: self.scheduler.retained_results as usize,
            aging_step: seconds(self.scheduler.aging_step_s),
            affinity_limit: seconds(self.scheduler.affinity_limit_s),
            device_start_limit: seconds(self.gpus.start_limit_s),
            max_restarts: self.gpus.max_restarts,
            restart_window: seconds(self.gpus.restart_window_s),
            quarantine: seconds(self.gpus.quarantine_s),
            ..EngineConfig::default()
        };
        if self.synthesis.threads > 0 {
            engine.synthesis_threads = self.synthesis.threads as usize;
        }
        engine.host_memory_budget_bytes =
            self.memory.witness_budget.bytes().unwrap_or_else(default_witness_budget_bytes);
        engine.device.budget_bytes = self.gpus.memory_budget.bytes();
        engine.device.critical_reserve_bytes = self.gpus.critical_reserve.0;
        engine.device.self_test = self.gpus.self_test;
        Ok(engine)
    }

    fn device_specs(&self) -> Result<Vec<DeviceSpec>, ConfigError> {
        match self.gpus.devices {
            DeviceChoice::Auto | DeviceChoice::Cpu => Ok(vec![self.cpu_spec()]),
            DeviceChoice::Sim(_) => Err(ConfigError::Value {
                key: "gpus.devices".to_owned(),
                what: "no simulated devices yet".to_owned(),
            }),
            DeviceChoice::Cuda => Err(ConfigError::Value {
                key: "gpus.devices".to_owned(),
                what: "this program was built without CUDA: use `cpu`, or a build with the feature `cuda`"
                    .to_owned(),
            }),
        }
    }

    fn cpu_spec(&self) -> DeviceSpec {
        DeviceSpec::Cpu { threads: self.gpus.cpu_threads as usize, lanes: self.gpus.gpu_workers_per_device }
    }
}

/// Half of the host's memory: the other half is for proving keys and circuit shapes, which are as large.
fn default_witness_budget_bytes() -> u64 {
    host_memory_bytes().map_or_else(|| EngineConfig::default().host_memory_budget_bytes, |bytes| bytes / 2)
}

/// The lower of the machine's memory and the cgroup's limit; `None` where neither is told.
fn host_memory_bytes() -> Option<u64> {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let limit = |path: &str| read(path)?.trim().parse::<u64>().ok();
    let machine = read("/proc/meminfo").as_deref().and_then(meminfo_total_bytes);
    // Version 2 says "max" for no limit, version 1 a number above all memory.
    let cgroup =
        limit("/sys/fs/cgroup/memory.max").or_else(|| limit("/sys/fs/cgroup/memory/memory.limit_in_bytes"));
    machine.into_iter().chain(cgroup).min()
}

/// `MemTotal:       24689764 kB` of `/proc/meminfo`.
fn meminfo_total_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_from_meminfo() {
        let text = "MemFree:  1 kB\nMemTotal:       24689764 kB\n";
        assert_eq!(meminfo_total_bytes(text), Some(24_689_764 * 1024));
        assert_eq!(meminfo_total_bytes("MemFree: 1 kB\n"), None);
    }

    #[test]
    fn b05_cuda_is_refused_by_name() {
        let mut config = Config::default();
        config.gpus.devices = DeviceChoice::Cuda;
        let error = config.engine_config().unwrap_err().to_string();
        assert!(error.contains("built without CUDA"), "{error}");
    }
}
