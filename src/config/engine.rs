//! What the configuration means to an engine.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Config, DeviceChoice, GpusConfig};
use crate::actors::gpu_device::{DeviceConfig, FactorySpawner};
use crate::backend::cpu::host_memory_bytes;
use crate::backend::sim::SimFleet;
use crate::circuits::CircuitSpec;
use crate::engine::memory::HostBudgets;
use crate::engine::preload;
use crate::engine::{DeviceSpec, EngineConfig};
use crate::error::ConfigError;
use crate::ids::DeviceId;
use crate::journal::{JournalConfig, Retention};
use crate::messages::lifecycle::RuntimeSettings;
use crate::policy::batch::BatchPolicy;
use crate::policy::selector::DeviceSelector;
use crate::policy::shared_pass::parking_lanes;

/// Backends that this build can drive, by the names that devices are asked for with.
pub const BACKENDS_BUILT: &[&str] =
    if cfg!(feature = "cuda") { &["cpu", "sim", "cuda"] } else { &["cpu", "sim"] };
/// Backends that another build of this program could drive.
pub const BACKENDS_NOT_BUILT: &[&str] = if cfg!(feature = "cuda") { &[] } else { &["cuda"] };

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
            use_folds: self.srs.folds,
            max_queued_jobs: self.scheduler.max_queued_jobs as usize,
            max_attempts: self.scheduler.max_attempts,
            retained_results: self.scheduler.retained_results as usize,
            aging_step: seconds(self.scheduler.aging_step_s),
            affinity_limit: seconds(self.scheduler.affinity_limit_s),
            journal: self.journal_config(),
            device_start_limit: seconds(self.gpus.start_limit_s),
            max_restarts: self.gpus.max_restarts,
            restart_window: seconds(self.gpus.restart_window_s),
            quarantine: seconds(self.gpus.quarantine_s),
            batches: self.batches(),
            cpu_fallback: self.gpus.cpu_fallback,
            idle_limit: (self.srs.idle_limit_s > 0).then(|| seconds(self.srs.idle_limit_s)),
            ..EngineConfig::default()
        };
        engine.reserved_for_critical = self.reserved_for_critical(&engine.devices)?;
        let params_dir = self.params_dir();
        let circuits = self.warmup_circuits()?.into_iter();
        engine.warmup = circuits.map(|spec| preload::circuit(spec, &params_dir)).collect();
        if self.synthesis.threads > 0 {
            engine.synthesis_threads = self.synthesis.threads as usize;
        }
        let has_cpu_device = self.gpus.cpu_fallback
            || engine.devices.iter().any(|spec| matches!(spec, DeviceSpec::Cpu { .. }));
        let budgets = self.host_budgets(has_cpu_device)?;
        engine.host_memory_budget_bytes = budgets.engine_bytes;
        engine.device.budget_bytes = self.gpus.memory_budget.bytes();
        if matches!(engine.devices[..], [DeviceSpec::Cpu { .. }]) {
            engine.device.budget_bytes = Some(budgets.cpu_device_bytes);
        }
        engine.device.critical_reserve_bytes = self.gpus.critical_reserve.0;
        engine.device.self_test = self.gpus.self_test;
        Ok(engine)
    }

    /// What of this can be given to an engine that runs. `has_cpu_device`: it has one.
    ///
    /// # Errors
    /// [`ConfigError::Value`] if the memory budgets together are more than there is.
    pub fn runtime_settings(&self, has_cpu_device: bool) -> Result<RuntimeSettings, ConfigError> {
        let seconds = Duration::from_secs;
        Ok(RuntimeSettings {
            max_queued_jobs: self.scheduler.max_queued_jobs as usize,
            max_attempts: self.scheduler.max_attempts,
            retained_results: self.scheduler.retained_results as usize,
            affinity_limit: seconds(self.scheduler.affinity_limit_s),
            batches: self.batches(),
            idle_limit: (self.srs.idle_limit_s > 0).then(|| seconds(self.srs.idle_limit_s)),
            host_memory_budget_bytes: self.host_budgets(has_cpu_device)?.engine_bytes,
        })
    }

    /// How long results are kept.
    pub fn journal_retention(&self) -> Retention {
        Retention {
            count: self.journal.retention_count as usize,
            age: Duration::from_secs(self.journal.retention_age_s),
        }
    }

    /// The journal, if there is to be one.
    fn journal_config(&self) -> Option<JournalConfig> {
        let path = &self.journal.path;
        let retention = self.journal_retention();
        (!path.is_empty()).then(|| JournalConfig { retention, ..JournalConfig::file(path) })
    }

    fn host_budgets(&self, has_cpu_device: bool) -> Result<HostBudgets, ConfigError> {
        let cpu_device = if has_cpu_device { self.gpus.memory_budget.bytes() } else { None };
        let fixed = [self.memory.budget.bytes(), cpu_device];
        HostBudgets::with_fixed(host_memory_bytes(), has_cpu_device, fixed)
    }

    /// The circuits of `[srs] warmup`.
    ///
    /// # Errors
    /// [`ConfigError::Value`] naming one that is not known, or is listed twice.
    pub(super) fn warmup_circuits(&self) -> Result<Vec<CircuitSpec>, ConfigError> {
        let value = |what: String| ConfigError::Value { key: "srs.warmup".to_owned(), what };
        let mut specs: Vec<CircuitSpec> = Vec::new();
        for id in &self.srs.warmup {
            let spec = CircuitSpec::by_id(id)
                .ok_or_else(|| value(format!("`{id}` is no circuit: `cuzk circuits` lists them")))?;
            if specs.contains(&spec) {
                return Err(value(format!("{id} is listed twice")));
            }
            specs.push(spec);
        }
        Ok(specs)
    }

    /// The ids of `[gpus] critical_devices`, which are named as devices are chosen.
    fn reserved_for_critical(&self, devices: &[DeviceSpec]) -> Result<BTreeSet<DeviceId>, ConfigError> {
        let ids: Vec<DeviceId> = devices.iter().map(DeviceSpec::device_id).collect();
        let mut reserved = BTreeSet::new();
        for name in &self.gpus.critical_devices {
            let named = match ids.iter().find(|id| id.as_str().eq_ignore_ascii_case(name)) {
                Some(id) => vec![id.clone()],
                None => self.ids_of_selector(name)?,
            };
            if named.is_empty() || !named.iter().all(|id| ids.contains(id)) {
                let all: Vec<&str> = ids.iter().map(DeviceId::as_str).collect();
                let what = format!("`{name}` is none of the devices that prove: {}", all.join(", "));
                return Err(ConfigError::Value { key: "gpus.critical_devices".to_owned(), what });
            }
            reserved.extend(named);
        }
        Ok(reserved)
    }

    /// The CUDA devices that `name` selects.
    fn ids_of_selector(&self, name: &str) -> Result<Vec<DeviceId>, ConfigError> {
        let Ok(selector) = name.parse::<DeviceSelector>() else { return Ok(Vec::new()) };
        if !cfg!(feature = "cuda") {
            return Ok(Vec::new());
        }
        let specs = cuda_specs(&[selector], self.lanes())?;
        Ok(specs.iter().map(DeviceSpec::device_id).collect())
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
            DeviceChoice::Auto | DeviceChoice::Cuda(_) => Ok(None),
        }
    }

    /// Whether this build can drive the devices that are asked for. Opens none, and needs no driver.
    ///
    /// # Errors
    /// [`ConfigError::Value`] for `gpus.devices`.
    pub fn check_devices_built(&self) -> Result<(), ConfigError> {
        match &self.gpus.devices {
            DeviceChoice::Cuda(_) if !BACKENDS_BUILT.contains(&"cuda") => {
                Err(ConfigError::Value { key: "gpus.devices".to_owned(), what: WITHOUT_CUDA.to_owned() })
            }
            _ => Ok(()),
        }
    }

    fn device_specs(&self) -> Result<Vec<DeviceSpec>, ConfigError> {
        self.check_devices_built()?;
        match &self.gpus.devices {
            DeviceChoice::Auto => match cuda_specs(&[], self.lanes()) {
                Ok(gpus) => Ok(gpus),
                Err(reason) => {
                    // Documented, and yet no matter of course where GPUs could be driven.
                    if cfg!(feature = "cuda") {
                        tracing::warn!(%reason, "no GPU is used: the CPU proves");
                    }
                    Ok(vec![self.cpu_spec()])
                }
            },
            DeviceChoice::Cpu => Ok(vec![self.cpu_spec()]),
            DeviceChoice::Sim(fleet) => sim_specs(fleet),
            DeviceChoice::Cuda(selectors) => cuda_specs(selectors, self.lanes()),
        }
    }

    fn cpu_spec(&self) -> DeviceSpec {
        let GpusConfig { gpu_workers_per_device, cpu_threads, .. } = self.gpus;
        DeviceSpec::Cpu { threads: cpu_threads as usize, lanes: gpu_workers_per_device.max(1) }
    }

    fn lanes(&self) -> GpuLanes {
        let normal = match self.gpus.gpu_workers_per_device {
            0 => DEFAULT_LANES_PER_GPU,
            lanes => lanes,
        };
        let parking = if self.gpus.share_passes { parking_lanes(self.batches()) } else { 0 };
        GpuLanes { normal, parking }
    }

    fn batches(&self) -> BatchPolicy {
        BatchPolicy {
            max_partitions: self.scheduler.batch_partitions,
            max_time: Duration::from_secs(self.scheduler.batch_limit_s),
        }
    }
}

/// Lanes of each GPU: for partitions side by side, and for those that wait to share a pass.
#[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "without CUDA there is no GPU"))]
struct GpuLanes {
    normal: u32,
    parking: u32,
}

/// One partition is copied to the device while the other is computed.
const DEFAULT_LANES_PER_GPU: u32 = 2;

#[cfg(feature = "cuda")]
fn cuda_specs(selectors: &[DeviceSelector], lanes: GpuLanes) -> Result<Vec<DeviceSpec>, ConfigError> {
    let factories = crate::cuda::backend::select_devices(selectors, lanes.normal)?;
    let factories = factories.into_iter().map(|factory| factory.with_parking_lanes(lanes.parking));
    Ok(factories.map(|factory| DeviceSpec::Spawner(FactorySpawner::boxed(factory))).collect())
}

#[cfg(not(feature = "cuda"))]
fn cuda_specs(_: &[DeviceSelector], _: GpuLanes) -> Result<Vec<DeviceSpec>, ConfigError> {
    Err(ConfigError::Value { key: "gpus.devices".to_owned(), what: WITHOUT_CUDA.to_owned() })
}

const WITHOUT_CUDA: &str = "this program was built without CUDA (cargo feature `cuda`): use `cpu`";

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
            engine.host_memory_budget_bytes + device_bytes
        };
        let mut config = Config::default();
        assert!(total(&config) <= host_bytes / 10 * 9);
        config.memory.budget = "256MiB".parse().unwrap();
        assert!(total(&config) <= host_bytes / 10 * 9);
        config.gpus.memory_budget = "128MiB".parse().unwrap();
        assert!(total(&config) <= host_bytes / 10 * 9);
        config.memory.budget = MemoryBudget::Size(ByteSize(host_bytes));
        let error = config.engine_config().unwrap_err();
        assert!(
            matches!(error, ConfigError::Value { ref key, .. } if key.contains("memory.budget")),
            "{error}"
        );
    }

    #[test]
    fn a_journal_is_what_its_keys_say() {
        let mut config = Config::default();
        assert!(config.engine_config().unwrap().journal.is_none());
        config.journal.path = "/var/lib/cuzk/journal".to_owned();
        config.journal.retention_age_s = 60;
        let journal = config.engine_config().unwrap().journal.unwrap();
        assert_eq!(journal.medium.path(), std::path::Path::new("/var/lib/cuzk/journal"));
        assert_eq!(journal.retention, Retention { count: 10_000, age: Duration::from_secs(60) });
    }

    #[test]
    fn b05_only_what_is_not_built_is_refused_by_name() {
        let mut config = Config::default();
        assert_eq!(config.check_devices_built(), Ok(()));
        config.gpus.devices = DeviceChoice::Cuda(Vec::new());
        let refused = ConfigError::Value {
            key: "gpus.devices".to_owned(),
            what: "this program was built without CUDA (cargo feature `cuda`): use `cpu`".to_owned(),
        };
        if cfg!(feature = "cuda") {
            assert_eq!(config.check_devices_built(), Ok(()));
        } else {
            assert_eq!(config.check_devices_built(), Err(refused.clone()));
            assert_eq!(config.engine_config().err(), Some(refused));
        }
    }

    #[test]
    fn every_backend_is_built_or_not() {
        let mut all = [BACKENDS_BUILT, BACKENDS_NOT_BUILT].concat();
        all.sort_unstable();
        assert_eq!(all, ["cpu", "cuda", "sim"]);
    }
}
