//! `cuzk doctor` on made-up machines: whole ones, broken ones, and where there is nothing to look at.

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use crate::{command, cuzk, params, Done};

/// A folder in the place of `/`.
struct Machine(TempDir);

impl Machine {
    fn empty() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Sixteen cores, 256 GiB, a driver, one GPU at full width, on one node.
    fn good() -> Self {
        let machine = Self::empty();
        let core = "processor : 0\nmodel name : AMD EPYC\nflags : fpu adx bmi2 avx2 sha_ni\n\n";
        machine.file("proc/cpuinfo", &core.repeat(16));
        machine.file("proc/meminfo", "MemTotal: 268435456 kB\nHugePages_Total: 0\nHugepagesize: 2048 kB\n");
        machine.file(
            "proc/self/limits",
            "Limit  Soft Limit  Hard Limit  Units\nMax open files  65536  65536  files\nMax locked memory  unlimited  \
             unlimited  bytes\n",
        );
        machine.file("proc/net/tcp", "  sl  local_address\n");
        machine.file("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
        machine.file("sys/devices/system/node/node0/cpulist", "0-15\n");
        machine.file(
            "proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun\n",
        );
        machine.gpu("0000:1b:00.0", "16", "16", "0");
        for file in ["nvidiactl", "nvidia-uvm", "nvidia0"] {
            machine.file(&format!("dev/{file}"), "");
        }
        machine.file("run/systemd/timesync/synchronized", "");
        machine
    }

    fn file(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn gpu(&self, address: &str, width: &str, widest: &str, node: &str) {
        let folder = format!("sys/bus/pci/devices/{address}");
        for (name, value) in [
            ("vendor", "0x10de"),
            ("class", "0x030200"),
            ("current_link_width", width),
            ("max_link_width", widest),
            ("current_link_speed", "2.5 GT/s PCIe"),
            ("max_link_speed", "32.0 GT/s PCIe"),
            ("numa_node", node),
        ] {
            self.file(&format!("{folder}/{name}"), value);
        }
    }

    fn doctor(&self, params: &str, more: &[&str]) -> Done {
        let root = self.0.path().to_str().unwrap();
        let args = ["doctor", "--json", "--root", root, "--params", params];
        cuzk(&[&args[..], more].concat())
    }

    /// Verdict and advice of a check.
    fn finding(&self, name: &str) -> (String, String, String) {
        found(&self.doctor(params(), &[]), name)
    }
}

#[track_caller]
fn found(run: &Done, name: &str) -> (String, String, String) {
    let lines = run.json_lines();
    let line =
        lines.iter().find(|line| line["check"] == name).unwrap_or_else(|| panic!("{name}: {}", run.stdout));
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (text(&line["verdict"]), text(&line["what"]), text(&line["advice"]))
}

#[test]
fn a_good_machine_is_fine() {
    let run = Machine::good().doctor(params(), &[]).expect(0);
    let lines = run.json_lines();
    let (total, findings) = lines.split_last().unwrap();
    assert_eq!(total["total"]["problems"], 0);
    assert_eq!(total["total"]["checks"], findings.len());
    for finding in findings {
        // Built without `cuda` it says so of a machine with a GPU.
        let is_fine = finding["verdict"] == "fine" || finding["check"] == "cuda";
        assert!(is_fine, "{finding}");
        assert_eq!(
            finding["advice"] == "",
            finding["verdict"] == "fine",
            "what is not fine has advice: {finding}"
        );
    }
    let names: Vec<&str> = findings.iter().map(|finding| finding["check"].as_str().unwrap()).collect();
    for name in [
        "processor",
        "memory",
        "large pages",
        "open files",
        "locked memory",
        "clock",
        "driver",
        "device files",
    ] {
        assert!(names.contains(&name), "{name} of {names:?}");
    }
    for name in
        ["gpu 0000:1b:00.0 link", "wpost-2k parameters", "wpost-2k memory", "daemon socket", "daemon port"]
    {
        assert!(names.contains(&name), "{name} of {names:?}");
    }
}

#[test]
fn where_nothing_can_be_looked_at_it_still_ends_well() {
    let run = Machine::empty().doctor("/nonexistent/parameters", &[]).expect(0);
    assert!(found(&run, "parameters").2.contains("cuzk params fetch"));
    assert_eq!(found(&run, "memory").0, "warn");
    assert_eq!(found(&run, "processor").0, "warn");
    assert_eq!(found(&run, "limits").0, "warn");
    // A root that is not there at all, and one that is a file.
    for root in ["/nonexistent", "/proc/self/cmdline"] {
        cuzk(&["doctor", "--root", root, "--params", "/nonexistent"]).expect(0);
    }
    // The machine that the tests run on, whatever it is.
    let here = cuzk(&["doctor", "--params", params()]);
    assert!(here.code <= 1, "{}", here.stderr);
    assert!(here.stdout.lines().last().unwrap().contains("checks: "), "{}", here.stdout);
}

#[test]
fn a_configuration_that_cannot_be_used_is_a_finding() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("cuzk.toml");
    fs::write(&config, "[gpus]\ndevices = \"gpu\"\n").unwrap();
    let run = Machine::good().doctor(params(), &["--config", config.to_str().unwrap()]).expect(1);
    let (verdict, what, advice) = found(&run, "configuration");
    assert_eq!(verdict, "problem");
    assert!(what.contains("gpus.devices") && advice.contains("check-config"), "{what} {advice}");
    assert_eq!(found(&run, "driver").0, "fine", "the rest is looked at too");
}

#[test]
fn each_lack_has_its_advice() {
    let machine = Machine::good();
    machine.file("proc/cpuinfo", "processor : 0\nmodel name : QEMU\nflags : fpu adx bmi2 avx2\n");
    machine.file("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
    machine.file("proc/meminfo", "MemTotal: 268435456 kB\nHugePages_Total: 100000\nHugepagesize: 2048 kB\n");
    machine.file(
        "proc/self/limits",
        "Max open files  128  128  files\nMax locked memory  8388608  8388608  bytes\n",
    );
    machine.file("proc/self/cgroup", "0::/system.slice/cuzk.service\n");
    machine.file("sys/fs/cgroup/system.slice/memory.max", "1073741824\n");
    machine.file("sys/fs/cgroup/system.slice/cuzk.service/cpu.max", "100000 100000\n");
    machine.gpu("0000:1b:00.0", "4", "16", "-1");
    machine.file("sys/devices/system/node/node1/cpulist", "16-31\n");
    machine.file("proc/net/tcp", "  sl  local\n   0: 0100007F:265D 00000000:0000 0A 0\n");
    let run = machine.doctor(params(), &[]).expect(1);
    for (name, verdict, said) in [
        ("processor", "warn", "sha_ni"),
        ("large pages", "warn", "switched off"),
        ("huge pages", "warn", "195.3 GiB"),
        ("open files", "problem", "128"),
        ("locked memory", "warn", "8.0 MiB"),
        ("memory", "warn", "1.0 GiB of the host's 256.0 GiB"),
        ("cpu limit", "warn", "1.0 cores"),
        ("gpu 0000:1b:00.0 link", "warn", "x4 of x16"),
        ("gpu 0000:1b:00.0 numa", "warn", "unknown node"),
        ("daemon port", "warn", "9821"),
    ] {
        let (has, what, advice) = found(&run, name);
        assert_eq!(has, verdict, "{name}: {what}");
        assert!(what.contains(said) && !advice.is_empty(), "{name}: {what}");
    }
}

#[test]
fn a_driver_that_is_old_or_missing_matters_where_gpus_are_wanted() {
    let machine = Machine::good();
    machine.file("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Module  535.161.08  Sun\n");
    let (verdict, what, advice) = machine.finding("driver");
    assert_eq!((verdict.as_str(), what.as_str()), ("problem", "NVIDIA 535.161.08"));
    assert!(advice.contains("580"), "{advice}");

    fs::remove_dir_all(machine.0.path().join("proc/driver")).unwrap();
    assert_eq!(machine.finding("driver").0, "warn", "a GPU without a driver");
    fs::remove_dir_all(machine.0.path().join("sys/bus")).unwrap();
    assert_eq!(machine.finding("driver").0, "fine", "no GPU, and none is asked for");

    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("cuzk.toml");
    fs::write(&config, "[gpus]\ndevices = \"cuda\"\n").unwrap();
    let run = machine.doctor(params(), &["--config", config.to_str().unwrap()]).expect(1);
    assert_eq!(found(&run, "driver").0, "problem", "it is asked for");
}

#[test]
fn configured_circuits_need_their_files_and_their_memory() {
    let machine = Machine::good();
    machine.file("proc/meminfo", "MemTotal: 4194304 kB\n");
    let root = machine.0.path().to_str().unwrap().to_owned();
    let mut doctor = command(&["doctor", "--json", "--root", &root, "--params", params()]);
    let run =
        Done::of(doctor.env("CUZK_SRS_WARMUP", "[\"porep-32g\", \"wpost-2k\"]").output().unwrap()).expect(1);
    let (verdict, _, advice) = found(&run, "porep-32g parameters");
    assert_eq!(verdict, "problem");
    assert!(advice.contains("cuzk params fetch porep-32g"), "{advice}");
    assert_eq!(found(&run, "porep-32g memory").0, "problem");
    assert_eq!(found(&run, "wpost-2k memory").0, "fine");
    assert!(run.stderr.contains("2 problems"), "{}", run.stderr);

    // A damaged file is one whether it is configured or not.
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(crate::params_file_name("wpost-2k")), "short").unwrap();
    let run = machine.doctor(dir.path().to_str().unwrap(), &[]).expect(1);
    assert_eq!(found(&run, "wpost-2k parameters").1, "damaged");
}

#[test]
fn a_dead_socket_is_told_from_a_live_one() {
    let machine = Machine::good();
    assert_eq!(machine.finding("daemon socket").0, "fine");
    let root = machine.0.path().to_str().unwrap().to_owned();
    let mut doctor = command(&["doctor", "--json", "--root", &root, "--params", params()]);
    let run = Done::of(doctor.env("CUZK_DAEMON_LISTEN", "unix:///run/cuzk/cuzk.sock").output().unwrap());
    assert_eq!(found(&run, "daemon socket").1, "/run/cuzk/cuzk.sock: no daemon is there", "named once");
    let path = machine.0.path().join("run/curio/cuzk.sock");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let listener = UnixListener::bind(&path).unwrap();
    let (verdict, what, _) = machine.finding("daemon socket");
    assert!(verdict == "fine" && what.contains("one answers"), "{what}");
    drop(listener);
    assert!(Path::new(&path).exists());
    let (verdict, what, advice) = machine.finding("daemon socket");
    assert!(verdict == "warn" && what.contains("refused") && advice.contains("start"), "{what}");
}

#[test]
fn text_says_what_to_do_below_what_is_wrong() {
    let machine = Machine::good();
    machine.file("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
    let root = machine.0.path().to_str().unwrap();
    let run = cuzk(&["doctor", "--quiet", "--root", root, "--params", params()]).expect(0);
    let lines: Vec<&str> = run.stdout.lines().collect();
    let at = lines.iter().position(|line| line.contains("large pages")).unwrap();
    assert!(lines[at].starts_with("warn "), "{}", lines[at]);
    assert!(lines[at + 1].trim_start().starts_with("-> echo madvise"), "{}", lines[at + 1]);
    assert!(!lines.iter().any(|line| line.starts_with("fine")), "{}", run.stdout);
}
