//! What the system says of this process, under the names that Prometheus' own clients use.

use std::fs;

use cuzk::telemetry::process::resident_bytes;

/// Of `times` in `/proc`: part of the kernel's interface, the same on every machine that CUDA runs on.
const CLOCK_TICKS_PER_S: f64 = 100.0;

/// Figures of this process; `None` where the system does not tell.
#[derive(Clone, Copy, Debug, Default)]
pub struct Process {
    pub cpu_s: Option<f64>,
    pub resident_bytes: Option<u64>,
    pub num_open_files: Option<u64>,
}

impl Process {
    pub fn now() -> Self {
        let stat = fs::read_to_string("/proc/self/stat").ok();
        Self {
            cpu_s: stat.as_deref().and_then(cpu_s),
            resident_bytes: resident_bytes(),
            num_open_files: fs::read_dir("/proc/self/fd").ok().map(|files| files.count() as u64),
        }
    }
}

/// User and system time, fields 14 and 15 of proc(5). The second field is a name that may hold anything.
fn cpu_s(stat: &str) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some((user + system) as f64 / CLOCK_TICKS_PER_S)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_whatever_the_process_is_called() {
        let stat = "42 (a) b) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0";
        assert_eq!(cpu_s(stat), Some(3.0));
        assert_eq!(cpu_s("42 (short) S 1"), None);
        let process = Process::now();
        assert!(process.resident_bytes.is_some_and(|bytes| bytes > 100_000));
        assert!(process.num_open_files.is_some_and(|files| files > 0) && process.cpu_s.is_some());
    }
}
