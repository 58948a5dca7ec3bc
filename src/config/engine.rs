//! What the configuration means to an engine.

use std::time::Duration;

use super::{Config, DeviceChoice, GpusConfig};
use crate::actors::gpu_device::{DeviceConfig, FactorySpawner};
use crate::backend::cpu::host_memory_bytes;
use crate::backend::sim::SimFleet;
use crate::engine::memory::HostBudgets;
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
        let has_cpu_device = engine.devices.iter().any(|spec| matches!(spec, DeviceSpec::Cpu { .. }));
        let budgets = self.host_budgets(has_cpu_device)?;
        engine.host_memory_budget_bytes = budgets.witness_bytes;
        engine.circuit_memory_budget_bytes = budgets.circuit_bytes;
        engine.device.budget_bytes = self.gpus.memory_budget.bytes();
        if matches!(engine.devices[..], [DeviceSpec::Cpu { .. }]) {
            engine.device.budget_bytes = Some(budgets.cpu_device_bytes);
        }
        engine.device.critical_reserve_bytes = self.gpus.critical_reserve.0;
        engine.device.self_test = self.gpus.self_test;
        Ok(engine)
    }

    fn host_budgets(&self, has_cpu_device: bool) -> Result<HostBudgets, ConfigError> {
        let cpu_device = if has_cpu_device { self.gpus.memory_budget.bytes() } else { None };
        let fixed = [self.memory.circuit_budget.bytes(), self.memory.witness_budget.bytes(), cpu_device];
        HostBudgets::with_fixed(host_memory_bytes(), has_cpu_device, fixed)
    }

    /// The smallest budget that any chosen device will have, where that can be told before it is opened.
    ///
    /// # Errors
    /// As [`Config::engine_config`].
    pub(super) fn known_device_budget_bytes(&self) -> Result<Option<u64>, ConfigError> {
        if let Some(bytes) = self.gpus.memory_budget.bytes() {
            return Ok(Some(bytes));
        }
        match &self.gpus.devices {
            DeviceChoice::Sim(fleet) => {
                let fleet: SimFleet = fleet.parse()?;
                let totals = fleet.devices().iter().map(|device| device.memory_bytes);
                Ok(totals.min().map(|total| DeviceConfig::default().budget_bytes_of(total)))
            }
            DeviceChoice::Cpu => Ok(Some(self.host_budgets(true)?.cpu_device_bytes)),
            DeviceChoice::Auto if !cfg!(feature = "cuda") => {
                Ok(Some(self.host_budgets(true)?.cpu_device_bytes))
            }
            DeviceChoice::Auto | DeviceChoice::Cuda => Ok(None),
        }
    }

    fn device_specs(&self) -> Result<Vec<DeviceSpec>, ConfigError> {
        match &self.gpus.devices {
            DeviceChoice::Auto | DeviceChoice::Cpu => Ok(vec![self.cpu_spec()]),
            DeviceChoice::Sim(fleet) => sim_specs(fleet),
            DeviceChoice::Cuda => Err(ConfigError::Value {
                key: "gpus.devices".to_owned(),
                what: "this program was built without CUDA: no build proves on GPUs yet, use `cpu`"
                    .to_owned(),
            }),
        }
    }

    fn cpu_spec(&self) -> DeviceSpec {
        let GpusConfig { gpu_workers_per_device, cpu_threads, .. } = self.gpus;
        DeviceSpec::Cpu { threads: cpu_threads as usize, lanes: gpu_workers_per_device }
    }
}

fn sim_specs(text: &str) -> Result<Vec<DeviceSpec>, ConfigError> {
    let fleet: SimFleet = text.parse()?;
    let spawner = |factory| DeviceSpec::Spawner(FactorySpawner::boxed(factory));
    Ok(fleet.factories().into_iter().map(spawner).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ByteSize, MemoryBudget};

    #[test]
    fn budgets_of_the_host_add_up_whatever_is_set() {
        let host_bytes = host_memory_bytes();
        let total = |config: &Config| {
            let engine = config.engine_config().unwrap();
            let device_bytes = engine.device.budget_bytes.unwrap_or(0);
            engine.circuit_memory_budget_bytes + engine.host_memory_budget_bytes + device_bytes
        };
        let mut config = Config::default();
        assert!(total(&config) <= host_bytes / 10 * 9);
        config.memory.witness_budget = "256MiB".parse().unwrap();
        config.gpus.memory_budget = "128MiB".parse().unwrap();
        assert!(total(&config) <= host_bytes / 10 * 9);
        config.memory.circuit_budget = MemoryBudget::Size(ByteSize(host_bytes));
        let error = config.engine_config().unwrap_err();
        assert!(
            matches!(error, ConfigError::Value { ref key, .. } if key.contains("memory.circuit_budget")),
            "{error}"
        );
    }

    #[test]
    fn b05_cuda_is_refused_by_name() {
        let mut config = Config::default();
        config.gpus.devices = DeviceChoice::Cuda;
        let error = config.engine_config().unwrap_err().to_string();
        assert!(error.contains("built without CUDA"), "{error}");
    }
}
