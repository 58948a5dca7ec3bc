//! How much memory the host has for this process: what the machine has, or what its control groups allow.

use std::path::{Path, PathBuf};

/// Memory assumed where the system does not say how much there is.
const FALLBACK_MEMORY_BYTES: u64 = 8 << 30;

/// Where control groups are mounted.
const CGROUP_ROOT: &str = "/sys/fs/cgroup";

/// The host's memory, or the lowest limit of the control groups that this process is in (version 2 or 1), in bytes.
pub fn host_memory_bytes() -> u64 {
    host_memory_bytes_under(Path::new("/"))
}

/// The same by the files of the system below `root`.
pub fn host_memory_bytes_under(root: &Path) -> u64 {
    let below = |path: &Path| root.join(path.strip_prefix("/").unwrap_or(path));
    let read = |path: &Path| std::fs::read_to_string(below(path)).ok();
    let total = read(Path::new("/proc/meminfo")).and_then(|text| total_of(&text));
    let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let limits = limit_files(&groups).into_iter().filter_map(|file| limit_of(&read(&file)?));
    limits.chain(total).min().unwrap_or(FALLBACK_MEMORY_BYTES)
}

/// `MemTotal` of `/proc/meminfo`, which is in KiB.
fn total_of(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find(|line| line.starts_with("MemTotal:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

/// The files that may limit a process of these groups (`/proc/self/cgroup`, cgroups(7)): of its own group and of every
/// one above it. In a container the group's path may not exist below the mount; then the mount itself is its group.
fn limit_files(groups: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        let (root, name) = match controllers {
            "" => (PathBuf::from(CGROUP_ROOT), "memory.max"),
            _ if controllers.split(',').any(|controller| controller == "memory") => {
                (Path::new(CGROUP_ROOT).join("memory"), "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let own = root.join(path.trim_start_matches('/'));
        files.extend(own.ancestors().take_while(|dir| dir.starts_with(&root)).map(|dir| dir.join(name)));
    }
    files
}

/// `max`, or a number of bytes. Version 1 writes a number near 2^63 for "no limit", which no host's memory exceeds.
fn limit_of(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_name_the_files_of_every_level() {
        let files =
            |text| limit_files(text).iter().map(|file| file.display().to_string()).collect::<Vec<_>>();
        assert_eq!(
            files("0::/system.slice/cuzk.service\n"),
            [
                "/sys/fs/cgroup/system.slice/cuzk.service/memory.max",
                "/sys/fs/cgroup/system.slice/memory.max",
                "/sys/fs/cgroup/memory.max"
            ]
        );
        assert_eq!(
            files("12:pids:/a\n5:cpu,memory:/docker/ab\n"),
            [
                "/sys/fs/cgroup/memory/docker/ab/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/docker/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes"
            ]
        );
        assert_eq!(files("nonsense"), [""; 0]);
    }

    #[test]
    fn limits_and_totals_are_read() {
        assert_eq!(limit_of("max\n"), None);
        assert_eq!(limit_of("1073741824\n"), Some(1 << 30));
        assert_eq!(total_of("MemTotal:       16 kB\nMemFree: 1 kB\n"), Some(16 << 10));
        assert_eq!(total_of("MemFree: 1 kB\n"), None);
        assert!(host_memory_bytes() > 64 << 20);
    }
}
