//! What the system says of this process's memory.

/// Resident memory of this process; `None` where the system does not tell.
pub fn resident_bytes() -> Option<u64> {
    status_bytes(&own_status()?, "VmRSS")
}

/// The most memory that this process has had so far; `None` where the system does not tell.
pub fn peak_resident_bytes() -> Option<u64> {
    status_bytes(&own_status()?, "VmHWM")
}

fn own_status() -> Option<String> {
    std::fs::read_to_string("/proc/self/status").ok()
}

/// A size in a process's `/proc/PID/status` (proc_pid_status(5)), such as that of `VmRSS`.
pub fn status_bytes(status: &str, field: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_found_by_their_names() {
        let status = "Name:\tVmRSS: 1 kB\nVmRSSx:\t 3 kB\nVmRSS:\t  12 kB\nThreads:\t4\n";
        assert_eq!(status_bytes(status, "VmRSS"), Some(12_288));
        assert_eq!(status_bytes(status, "Threads"), None);
        assert_eq!(status_bytes(status, "VmHWM"), None);
        let (now, peak) = (resident_bytes().unwrap(), peak_resident_bytes().unwrap());
        assert!(now > 100_000 && peak >= now / 2);
    }
}
