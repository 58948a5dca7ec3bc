//! The host: processor, memory and its limits, large pages, limits of processes, clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::finding::Finding;
use super::root::Root;
use crate::ui;

/// Instructions that the curve's and the hashes' code looks for, and what is slower without.
const X86_FEATURES: [(&str, &str); 4] = [
    ("adx", "field arithmetic"),
    ("bmi2", "field arithmetic"),
    ("avx2", "digests of parameter files"),
    ("sha_ni", "SHA-256 of inputs and parameter files"),
];
const ARM_FEATURES: [(&str, &str); 1] = [("sha2", "SHA-256 of inputs and parameter files")];

/// Of open files: parameter files, sockets of callers, what the driver opens for each device.
const OPEN_FILES_MIN: u64 = 256;
const OPEN_FILES_GOOD: u64 = 4096;
/// The driver locks a little of a process's memory for each device.
const LOCKED_BYTES_GOOD: u64 = 64 << 20;
/// Below this not even test circuits of 8 MiB sectors fit.
const MEMORY_BYTES_MIN: u64 = 2 << 30;
/// 2025-01-01: no clock that works says less.
const CLOCK_MIN_S: u64 = 1_735_689_600;
/// 2100-01-01.
const CLOCK_MAX_S: u64 = 4_102_444_800;

pub fn check(root: &Root) -> Vec<Finding> {
    let mut findings = vec![processor(root), memory(root)];
    findings.extend(cgroup_cpu(root));
    findings.push(large_pages(root));
    findings.extend(reserved_pages(root));
    findings.extend(numa(root));
    findings.extend(limits(root));
    findings.push(clock(root, SystemTime::now()));
    findings
}

fn processor(root: &Root) -> Finding {
    let name = "processor";
    let Some(info) = root.read("/proc/cpuinfo") else {
        return Finding::warn(name, "cannot be told: /proc/cpuinfo cannot be read", "mount /proc");
    };
    let field = |key: &str| {
        let value =
            |line: &str| Some(line.strip_prefix(key)?.trim_start().strip_prefix(':')?.trim().to_owned());
        info.lines().find_map(value)
    };
    let num_cores = info.lines().filter(|line| line.starts_with("processor")).count();
    let model = field("model name").unwrap_or_else(|| "unnamed".to_owned());
    let cores = ui::count(num_cores as u64, "core");
    let (flags, wanted) = match field("flags") {
        Some(flags) => (flags, &X86_FEATURES[..]),
        None => (field("Features").unwrap_or_default(), &ARM_FEATURES[..]),
    };
    let flags: Vec<&str> = flags.split_whitespace().collect();
    let missing: Vec<String> = wanted
        .iter()
        .filter(|(feature, _)| !flags.contains(feature))
        .map(|(feature, what)| format!("{feature} ({what})"))
        .collect();
    if missing.is_empty() {
        let has: Vec<&str> = wanted.iter().map(|(feature, _)| *feature).collect();
        return Finding::fine(name, format!("{model}, {cores}, has {}", has.join(", ")));
    }
    let advice = "it works, more slowly; in a virtual machine, pass the host's processor through";
    Finding::warn(name, format!("{model}, {cores}, lacks {}", missing.join(", ")), advice)
}

/// Memory of the host, or what the control groups of this process leave of it.
fn memory(root: &Root) -> Finding {
    let Some(total) = meminfo(root, "MemTotal") else {
        let advice = "mount /proc; until then set [memory] budget";
        return Finding::warn("memory", "cannot be told: /proc/meminfo cannot be read", advice);
    };
    let allowed = cuzk::backend::cpu::host_memory_bytes_under(root.path()).min(total);
    let what = if allowed < total {
        format!("{} of the host's {}, by a control group", ui::bytes(allowed), ui::bytes(total))
    } else {
        ui::bytes(total)
    };
    if allowed < MEMORY_BYTES_MIN {
        let advice = "no circuit but WindowPoSt and WinningPoSt of test sectors fits; raise the limit";
        return Finding::warn("memory", what, advice);
    }
    Finding::fine("memory", what)
}

/// A value of `/proc/meminfo`, in bytes.
fn meminfo(root: &Root, key: &str) -> Option<u64> {
    let text = root.read("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    let number: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(if line.trim_end().ends_with("kB") { number * 1024 } else { number })
}

/// A limit on processor time (control groups, version 2), of the process's group or one above it.
fn cgroup_cpu(root: &Root) -> Option<Finding> {
    let groups = root.read("/proc/self/cgroup")?;
    let mut group = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let mut cores = f64::INFINITY;
    loop {
        let limit = root.read(&format!("/sys/fs/cgroup{}/cpu.max", group.trim_end_matches('/')));
        cores = cores.min(limit.as_deref().and_then(cores_of).unwrap_or(f64::INFINITY));
        match group.rsplit_once('/') {
            Some((above, _)) if !group.trim_matches('/').is_empty() => group = above,
            _ => break,
        }
    }
    if cores.is_infinite() {
        return None;
    }
    let what = format!("a control group allows {cores:.1} cores' time");
    if cores < 2.0 {
        return Some(Finding::warn(
            "cpu limit",
            what,
            "witnesses are made on the CPU: allow more, or devices wait",
        ));
    }
    Some(Finding::fine("cpu limit", what))
}

/// `max 100000`, or quota and period in microseconds.
fn cores_of(cpu_max: &str) -> Option<f64> {
    let (quota, period) = cpu_max.split_once(' ')?;
    Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?)
}

fn large_pages(root: &Root) -> Finding {
    let name = "large pages";
    let Some(modes) = root.read("/sys/kernel/mm/transparent_hugepage/enabled") else {
        return Finding::fine(name, "transparent ones are not known to this kernel");
    };
    let mode = modes.split(['[', ']']).nth(1).unwrap_or("unknown").to_owned();
    if mode == "never" {
        let advice =
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled: keys of tens of gigabytes are then \
                      mapped in fewer pieces";
        return Finding::warn(name, "transparent ones are switched off", advice);
    }
    Finding::fine(name, format!("transparent: {mode}"))
}

/// Pages that are set aside are of no use to this program, and missing to it.
fn reserved_pages(root: &Root) -> Option<Finding> {
    let pages = meminfo(root, "HugePages_Total").filter(|pages| *pages > 0)?;
    let bytes = pages.saturating_mul(meminfo(root, "Hugepagesize")?);
    let total = meminfo(root, "MemTotal")?;
    let what = format!("{} set aside as {pages} huge pages", ui::bytes(bytes));
    if bytes > total / 10 {
        let advice = "nothing of this program uses them: lower vm.nr_hugepages unless another one needs them";
        return Some(Finding::warn("huge pages", what, advice));
    }
    Some(Finding::fine("huge pages", what))
}

fn numa(root: &Root) -> Option<Finding> {
    let is_node =
        |name: &String| name.strip_prefix("node").is_some_and(|number| number.parse::<u32>().is_ok());
    let nodes = root.list("/sys/devices/system/node").into_iter().filter(is_node).count();
    (nodes > 0).then(|| Finding::fine("numa", ui::count(nodes as u64, "node")))
}

fn limits(root: &Root) -> Vec<Finding> {
    let Some(text) = root.read("/proc/self/limits") else {
        let what = "cannot be told: /proc/self/limits cannot be read";
        return vec![Finding::warn("limits", what, "mount /proc")];
    };
    // The soft limit; the hard one follows it.
    let soft = |name: &str| {
        let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
        let value = rest.split_whitespace().next()?;
        Some(value.parse().unwrap_or(u64::MAX))
    };
    let mut findings = Vec::new();
    if let Some(files) = soft("Max open files") {
        let what = if files == u64::MAX { "no limit".to_owned() } else { format!("{files} (ulimit -n)") };
        let advice = "LimitNOFILE=65536 in the service, `ulimit -n 65536` in a shell";
        findings.push(if files < OPEN_FILES_MIN {
            Finding::problem("open files", what, advice)
        } else if files < OPEN_FILES_GOOD {
            Finding::warn("open files", format!("{what}: few for a daemon with many callers"), advice)
        } else {
            Finding::fine("open files", what)
        });
    }
    if let Some(bytes) = soft("Max locked memory") {
        let what = if bytes == u64::MAX {
            "no limit".to_owned()
        } else {
            format!("{} (ulimit -l)", ui::bytes(bytes))
        };
        findings.push(if bytes < LOCKED_BYTES_GOOD && root.exists("/proc/driver/nvidia") {
            let advice = "LimitMEMLOCK=infinity in the service, `ulimit -l unlimited` in a shell, if the driver refuses \
                          staging buffers";
            Finding::warn("locked memory", what, advice)
        } else {
            Finding::fine("locked memory", what)
        });
    }
    findings
}

/// Certificates, deadlines and the age of stored results go by it.
fn clock(root: &Root, now: SystemTime) -> Finding {
    let seconds = now.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    if !(CLOCK_MIN_S..CLOCK_MAX_S).contains(&seconds) {
        let what = format!("says {seconds} s since 1970, which cannot be");
        let advice =
            "set it, and have it kept by a time service: certificates fail, and stored results expire, by it";
        return Finding::problem("clock", what, advice);
    }
    let keepers = [
        ("/run/systemd/timesync/synchronized", "systemd-timesyncd"),
        ("/run/chrony", "chrony"),
        ("/run/ntpd.pid", "ntpd"),
    ];
    match keepers.iter().find(|(path, _)| root.exists(path)) {
        Some((_, keeper)) => Finding::fine("clock", format!("plausible, kept by {keeper}")),
        None => Finding::fine("clock", "plausible; no time service was found, the host may have one"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Verdict;

    #[test]
    fn a_clock_that_cannot_be_right_is_a_problem() {
        let root = Root::new(std::path::Path::new("/nonexistent"));
        let at = |seconds| clock(&root, UNIX_EPOCH + Duration::from_secs(seconds)).verdict;
        assert_eq!(at(0), Verdict::Problem);
        assert_eq!(at(CLOCK_MIN_S), Verdict::Fine);
        assert_eq!(at(CLOCK_MAX_S), Verdict::Problem);
    }

    #[test]
    fn quotas_are_cores() {
        assert_eq!(cores_of("150000 100000"), Some(1.5));
        assert_eq!(cores_of("max 100000"), None);
        assert_eq!(cores_of(""), None);
    }
}
