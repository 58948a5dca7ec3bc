//! NVIDIA GPUs: driver, device files, machine code for each, links.

use cuzk::config::{Config, DeviceChoice};

use super::finding::Finding;
use super::root::Root;

/// The first driver of CUDA 13, by which the kernels are compiled.
const DRIVER_MAJOR_MIN: u32 = 580;
/// PCI vendor of NVIDIA.
const VENDOR: &str = "0x10de";
/// PCI classes of graphics cards and of 3D controllers, which data-centre cards are.
const CLASSES: [&str; 2] = ["0x0300", "0x0302"];

/// What a GPU offers, as far as it can be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// What it is called in findings: `gpu 0000:1b:00.0`.
    pub name: String,
    pub memory_bytes: u64,
}

/// The findings, and the GPUs that the driver gives this process.
pub fn check(root: &Root, config: &Config) -> (Vec<Finding>, Vec<Gpu>) {
    let on_bus = on_bus(root);
    let mut findings = vec![driver(root, config, on_bus.len())];
    findings.extend(device_files(root, on_bus.len()));
    let (opened, gpus) = opened(root, config);
    findings.extend(opened);
    let num_nodes =
        root.list("/sys/devices/system/node").iter().filter(|name| name.starts_with("node")).count();
    for address in &on_bus {
        findings.extend(link(root, address));
        findings.extend(place(root, address, num_nodes));
    }
    (findings, gpus)
}

/// PCI addresses of NVIDIA's GPUs.
fn on_bus(root: &Root) -> Vec<String> {
    let is_gpu = |address: &String| {
        let read =
            |what: &str| root.read(&format!("/sys/bus/pci/devices/{address}/{what}")).unwrap_or_default();
        read("vendor") == VENDOR && CLASSES.iter().any(|class| read("class").starts_with(class))
    };
    root.list("/sys/bus/pci/devices").into_iter().filter(is_gpu).collect()
}

/// Whether the configuration cannot do without a GPU.
fn needs_gpu(config: &Config) -> bool {
    matches!(config.gpus.devices, DeviceChoice::Cuda(_))
}

fn driver(root: &Root, config: &Config, num_on_bus: usize) -> Finding {
    let Some(text) = root.read("/proc/driver/nvidia/version") else {
        let install = format!(
            "install the NVIDIA driver, {DRIVER_MAJOR_MIN} or later; in a container, start it with GPUs \
                               (--gpus all, the device plugin)"
        );
        return match (needs_gpu(config), num_on_bus) {
            (true, _) => {
                Finding::problem("driver", "none is loaded, and [gpus] devices asks for CUDA", install)
            }
            (false, 0) => Finding::fine("driver", "none, and no NVIDIA GPU: the CPU proves"),
            (false, _) => Finding::warn("driver", "none is loaded, though there is an NVIDIA GPU", install),
        };
    };
    let is_version = |word: &&str| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.');
    let version = text.split_whitespace().find(is_version).unwrap_or("of unknown version");
    let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
    match major {
        Some(major) if major < DRIVER_MAJOR_MIN => {
            let advice = format!("install {DRIVER_MAJOR_MIN} or later: the kernels are compiled by CUDA 13");
            Finding::problem("driver", format!("NVIDIA {version}"), advice)
        }
        _ => Finding::fine("driver", format!("NVIDIA {version}")),
    }
}

/// Whether this user may open what the driver's library opens.
fn device_files(root: &Root, num_on_bus: usize) -> Option<Finding> {
    use rustix::fs::{access, Access};
    if num_on_bus == 0 && !root.exists("/dev/nvidiactl") {
        return None;
    }
    let numbered =
        |name: &String| name.strip_prefix("nvidia").is_some_and(|number| number.parse::<u32>().is_ok());
    let cards: Vec<String> = root.list("/dev").into_iter().filter(numbered).collect();
    let mut files = vec!["nvidiactl".to_owned(), "nvidia-uvm".to_owned()];
    files.extend(cards.iter().cloned());
    let may_open = |name: &&String| {
        access(root.join(&format!("/dev/{name}")), Access::READ_OK | Access::WRITE_OK).is_err()
    };
    let closed: Vec<String> = files.iter().filter(may_open).map(|name| format!("/dev/{name}")).collect();
    let name = "device files";
    if cards.is_empty() {
        let advice =
            "load the driver's modules (nvidia-modprobe -u -c 0); in a container, start it with GPUs";
        return Some(Finding::warn(name, "there is none of a GPU", advice));
    }
    if closed.is_empty() {
        return Some(Finding::fine(name, format!("{} may be opened", files.len())));
    }
    let advice =
        "nvidia-modprobe -u makes those that are missing; DeviceAllow= and groups decide who may open them";
    Some(Finding::problem(name, format!("{} cannot be opened", closed.join(", ")), advice))
}

/// What the driver says of its GPUs, and whether this program has code for them.
#[cfg(feature = "cuda")]
fn opened(root: &Root, config: &Config) -> (Vec<Finding>, Vec<Gpu>) {
    if !root.is_real() {
        return (Vec::new(), Vec::new());
    }
    let devices = match cuzk::cuda::devices() {
        Ok(devices) => devices,
        Err(error) => {
            let advice = "see `driver` above; NVIDIA_VISIBLE_DEVICES and CUDA_VISIBLE_DEVICES hide GPUs too";
            let finding = if needs_gpu(config) {
                Finding::problem("cuda", error.to_string(), advice)
            } else {
                Finding::fine("cuda", format!("not in use: {error}"))
            };
            return (vec![finding], Vec::new());
        }
    };
    let targets = cuzk::cuda::kernel_targets();
    let mut findings = Vec::new();
    if devices.is_empty() && needs_gpu(config) {
        let advice = "NVIDIA_VISIBLE_DEVICES and CUDA_VISIBLE_DEVICES may hide them";
        findings.push(Finding::problem("cuda", "the driver shows this process no GPU", advice));
    }
    let mut gpus = Vec::new();
    for device in devices {
        let name = format!("gpu {}", device.pci_bus_id);
        let capability = device.compute_capability;
        let what = format!(
            "{}, {}, compute capability {capability}",
            device.name,
            crate::ui::bytes(device.memory_bytes)
        );
        findings.push(code_for(&name, &what, (capability.major, capability.minor), targets));
        gpus.push(Gpu { name, memory_bytes: device.memory_bytes });
    }
    (findings, gpus)
}

#[cfg(not(feature = "cuda"))]
fn opened(root: &Root, config: &Config) -> (Vec<Finding>, Vec<Gpu>) {
    let advice = "build with --features cuda, or install the package, whose programs are";
    let finding = if needs_gpu(config) {
        Finding::problem("cuda", "this program was built without it", advice)
    } else if on_bus(root).is_empty() {
        Finding::fine("cuda", "this program was built without it, and there is no GPU")
    } else {
        Finding::warn("cuda", "this program was built without it: its GPUs stay idle", advice)
    };
    (vec![finding], Vec::new())
}

/// Machine code runs on the same major version from its minor on; PTX is compiled for later ones by the driver.
#[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "only a build with CUDA has GPUs to ask it of"))]
fn code_for(name: &str, what: &str, capability: (u32, u32), targets: &[&str]) -> Finding {
    let number = |text: &str| text.parse::<u32>().ok().map(|number| (number / 10, number % 10));
    let machine = targets.iter().filter_map(|target| number(target.strip_prefix("sm_")?));
    let ptx = targets.iter().filter_map(|target| number(target.strip_prefix("compute_")?));
    let all = targets.join(", ");
    if machine.into_iter().any(|(major, minor)| major == capability.0 && minor <= capability.1) {
        return Finding::fine(name, format!("{what}: machine code is built in"));
    }
    if ptx.into_iter().any(|target| target <= capability) {
        let advice = format!("the driver compiles the kernels at every first start; built in are {all}");
        return Finding::warn(name, format!("{what}: no machine code is built in"), advice);
    }
    let advice = if targets.is_empty() {
        "build with an nvcc (kernels/setup-nvcc.sh), or install the package".to_owned()
    } else {
        format!("it cannot prove with this program, which is built for {all}")
    };
    Finding::problem(name, format!("{what}: no kernels for it"), advice)
}

/// Width and speed against what card and slot can do. An idle card lowers its speed, so only the width is a fault.
fn link(root: &Root, address: &str) -> Option<Finding> {
    let read = |what: &str| root.read(&format!("/sys/bus/pci/devices/{address}/{what}"));
    let (width, widest) = (read("current_link_width")?, read("max_link_width")?);
    let speed = read("current_link_speed").unwrap_or_else(|| "unknown speed".to_owned());
    let fastest = read("max_link_speed").unwrap_or_else(|| "unknown".to_owned());
    let name = format!("gpu {address} link");
    let what = format!("x{width} of x{widest}, {speed} now, {fastest} at most");
    let (width, widest) = (width.parse::<u32>().ok()?, widest.parse::<u32>().ok()?);
    if width == 0 || width >= widest {
        return Some(Finding::fine(name, what));
    }
    let advice = "seat the card anew, or move it to a slot of its width: keys are copied over this link";
    Some(Finding::warn(name, what, advice))
}

/// Which memory is near it, on hosts with several.
fn place(root: &Root, address: &str, num_nodes: usize) -> Option<Finding> {
    if num_nodes < 2 {
        return None;
    }
    let node = root.read(&format!("/sys/bus/pci/devices/{address}/numa_node"))?;
    let name = format!("gpu {address} numa");
    if node.starts_with('-') {
        let advice =
            "the firmware does not tell: memory may be far from the card; look for NUMA settings in the BIOS";
        return Some(Finding::warn(name, format!("unknown node of {num_nodes}"), advice));
    }
    Some(Finding::fine(name, format!("node {node} of {num_nodes}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Verdict;

    #[test]
    fn code_is_for_the_same_major_version_or_compiled_upwards() {
        let targets = ["sm_80", "sm_86", "sm_90", "compute_80", "compute_90"];
        let verdict = |major, minor| code_for("gpu", "card", (major, minor), &targets).verdict;
        assert_eq!(verdict(9, 0), Verdict::Fine);
        assert_eq!(verdict(8, 9), Verdict::Fine, "sm_86 runs on 8.9");
        assert_eq!(verdict(10, 0), Verdict::Warn);
        assert_eq!(verdict(7, 5), Verdict::Problem);
        assert_eq!(code_for("gpu", "card", (9, 0), &[]).verdict, Verdict::Problem);
        assert_eq!(code_for("gpu", "card", (12, 1), &["sm_120"]).verdict, Verdict::Fine);
    }
}
