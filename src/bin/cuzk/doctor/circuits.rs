//! The circuits that are configured, or whose parameters are there: their files, and the memory they take.

use std::path::Path;

use cuzk::actors::gpu_device::DeviceConfig;
use cuzk::backend::cpu::host_memory_bytes_under;
use cuzk::circuits::CircuitSpec;
use cuzk::config::Config;
use cuzk::engine::memory::HostBudgets;
use cuzk::policy::capacity::{capacity, Machine};

use super::finding::{Finding, Verdict};
use super::gpus::Gpu;
use super::root::Root;
use crate::params::{find, Found};
use crate::plan::figures;
use crate::ui;

/// Partitions that one GPU proves side by side, where nothing else is configured.
const LANES: u32 = 2;

pub fn check(root: &Root, config: &Config, params_dir: &Path, gpus: &[Gpu]) -> Vec<Finding> {
    let found = match find(params_dir) {
        Ok(found) => found,
        Err(failure) => {
            let advice =
                "name another folder ([srs] params_dir, FIL_PROOFS_PARAMETER_CACHE), or let this user in";
            return vec![Finding::problem("parameters", failure.message, advice)];
        }
    };
    let is_configured = |found: &Found| config.srs.warmup.contains(&found.spec.to_string());
    let chosen: Vec<&Found> =
        found.iter().filter(|found| found.bytes.is_some() || is_configured(found)).collect();
    if chosen.is_empty() {
        let advice =
            "`cuzk params fetch` gets those of PoRep and SnapDeals of 32 GiB sectors; `cuzk params generate \
                      wpost-2k` makes TEST parameters";
        let what = format!("{}: there are none, and [srs] warmup names none", params_dir.display());
        return vec![Finding::warn("parameters", what, advice)];
    }
    let mut findings = Vec::new();
    for found in chosen {
        findings.push(files_of(found));
        findings.extend(memory_for(root, config, &found.spec, gpus, is_configured(found)));
    }
    findings
}

/// Only looks: reading them is `params check`'s.
fn files_of(found: &Found) -> Finding {
    let name = format!("{} parameters", found.spec);
    let fetch = format!("`cuzk params fetch {}`", found.spec);
    let again = format!("remove {}, and {fetch}", found.path.display());
    match found.state {
        "present" if !found.has_vk => {
            Finding::warn(name, "the verifying key (.vk) is missing", format!("{fetch} brings it"))
        }
        "present" => {
            let size = ui::bytes(found.bytes.unwrap_or(0));
            let expected = found.spec.params_bytes().filter(|_| !found.spec.is_scaled());
            match expected {
                Some(expected) if found.bytes != Some(expected) => {
                    let what = format!("{size}, where {} are expected", ui::bytes(expected));
                    Finding::warn(
                        name,
                        what,
                        format!("`cuzk params check {}` says whether they are right", found.spec),
                    )
                }
                _ => Finding::fine(name, format!("there, {size}")),
            }
        }
        "missing" => Finding::problem(name, "missing, and [srs] warmup names them", fetch),
        state => Finding::problem(name, state, again),
    }
}

fn memory_for(
    root: &Root,
    config: &Config,
    spec: &CircuitSpec,
    gpus: &[Gpu],
    is_configured: bool,
) -> Option<Finding> {
    let name = format!("{spec} memory");
    let host_bytes = host_memory_bytes_under(root.path());
    let (fits, what) = if gpus.is_empty() {
        let needs = spec.memory()?.total_bytes();
        let budget = HostBudgets::of(host_bytes, true).total_bytes();
        (
            needs <= budget,
            format!("needs {} on the host, which gives {}", ui::bytes(needs), ui::bytes(budget)),
        )
    } else {
        on_gpus(config, spec, gpus, host_bytes)?
    };
    if fits {
        return Some(Finding::fine(name, what));
    }
    let advice = "a machine with more memory; `cuzk plan` says what one would do";
    let verdict = if is_configured { Verdict::Problem } else { Verdict::Warn };
    Some(Finding { verdict, ..Finding::warn(name, what, advice) })
}

/// By the plans that the engine makes, on the smallest of the GPUs.
fn on_gpus(config: &Config, spec: &CircuitSpec, gpus: &[Gpu], host_bytes: u64) -> Option<(bool, String)> {
    let circuit = figures(spec).ok()?;
    let smallest = gpus.iter().min_by_key(|gpu| gpu.memory_bytes)?;
    let device_budget_bytes = match config.gpus.memory_budget.bytes() {
        Some(bytes) => bytes.min(smallest.memory_bytes),
        None => DeviceConfig::default().budget_bytes_of(smallest.memory_bytes),
    };
    let host_budget_bytes = match config.memory.budget.bytes() {
        Some(bytes) => bytes,
        None => HostBudgets::of(host_bytes, false).engine_bytes,
    };
    let num_lanes = match config.gpus.gpu_workers_per_device {
        0 => LANES,
        configured => configured,
    };
    let num_gpus = u32::try_from(gpus.len()).unwrap_or(u32::MAX);
    let batch_partitions = if config.gpus.share_passes { config.scheduler.batch_partitions } else { 1 };
    let machine = Machine { num_gpus, device_budget_bytes, host_budget_bytes, num_lanes, batch_partitions };
    Some(match capacity(&machine, &circuit) {
        Ok(answer) => {
            let what = format!(
                "{} at a time on {}, limited by {}; {} of {} on {}",
                ui::count(answer.concurrency.into(), "partition"),
                ui::count(num_gpus.into(), "GPU"),
                answer.limited_by,
                ui::bytes(answer.device.peak_bytes),
                ui::bytes(answer.device.budget_bytes),
                smallest.name
            );
            (true, what)
        }
        Err(error) => (false, format!("does not fit: {error}")),
    })
}
