//! How the host's memory is shared out between those who take most of it.

use crate::error::ConfigError;

/// Of the host's memory, in per cent: circuits and witnesses, proving on the CPU. Nine tenths together; the rest is for
/// the program itself and the system. A PoRep of 32 GiB takes some 102 and 17 GB of the two.
const WITH_CPU_DEVICE: [u64; 2] = [65, 25];
/// Where no proof is made in host memory.
const WITHOUT_CPU_DEVICE: [u64; 2] = [90, 0];

/// Names of the two for messages: the keys of the configuration.
const KEYS: [&str; 2] = ["memory.budget", "gpus.memory_budget"];

/// Budgets of host memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostBudgets {
    /// Shapes, proving keys, witnesses.
    pub engine_bytes: u64,
    /// What the CPU device takes to prove.
    pub cpu_device_bytes: u64,
}

impl HostBudgets {
    /// The parts of a host with `host_bytes`.
    pub fn of(host_bytes: u64, has_cpu_device: bool) -> Self {
        let parts = if has_cpu_device { WITH_CPU_DEVICE } else { WITHOUT_CPU_DEVICE };
        Self::from_array(parts.map(|per_cent| host_bytes / 100 * per_cent))
    }

    /// The same where some are fixed (the engine's, the CPU device's): the other takes what these leave of nine tenths of
    /// the host, so that both together are never more.
    ///
    /// # Errors
    /// [`ConfigError::Value`] if the fixed ones are more than that, or leave nothing.
    pub fn with_fixed(
        host_bytes: u64,
        has_cpu_device: bool,
        fixed: [Option<u64>; 2],
    ) -> Result<Self, ConfigError> {
        let parts = if has_cpu_device { WITH_CPU_DEVICE } else { WITHOUT_CPU_DEVICE };
        let shared_bytes = host_bytes / 10 * 9;
        let fixed_bytes = fixed.iter().flatten().fold(0u64, |sum, bytes| sum.saturating_add(*bytes));
        let open_parts: u64 =
            parts.iter().zip(&fixed).filter(|(_, fixed)| fixed.is_none()).map(|(part, _)| part).sum();
        let left_bytes = shared_bytes.checked_sub(fixed_bytes);
        let Some(left_bytes) = left_bytes.filter(|left| *left > 0 || open_parts == 0) else {
            let set: Vec<&str> = KEYS
                .into_iter()
                .zip(&fixed)
                .filter(|(_, fixed)| fixed.is_some())
                .map(|(key, _)| key)
                .collect();
            let what = format!(
                "needs to leave a tenth of the host's {host_bytes} B and something for every other budget; set are \
                 {fixed_bytes} B"
            );
            return Err(ConfigError::Value { key: set.join(" + "), what });
        };
        let share = |part: u64| left_bytes / open_parts.max(1) * part;
        let budgets = [0, 1].map(|index| fixed[index].unwrap_or_else(|| share(parts[index])));
        Ok(Self::from_array(budgets))
    }

    fn from_array([engine_bytes, cpu_device_bytes]: [u64; 2]) -> Self {
        Self { engine_bytes, cpu_device_bytes }
    }

    /// Both of them.
    pub fn total_bytes(&self) -> u64 {
        self.engine_bytes + self.cpu_device_bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn what_is_not_set_takes_what_the_other_leaves() {
        let budgets = HostBudgets::with_fixed(100 * GIB, true, [Some(20 * GIB), None]).unwrap();
        assert_eq!(budgets.engine_bytes, 20 * GIB);
        assert!(budgets.cpu_device_bytes > 60 * GIB && budgets.total_bytes() <= 90 * GIB);
        let both = HostBudgets::with_fixed(100 * GIB, true, [Some(70 * GIB), Some(20 * GIB)]);
        assert_eq!(both.unwrap().total_bytes(), 90 * GIB);
        let error = HostBudgets::with_fixed(100 * GIB, true, [Some(80 * GIB), Some(30 * GIB)]);
        let error = error.unwrap_err().to_string();
        assert!(error.starts_with("memory.budget + gpus.memory_budget: needs to leave"), "{error}");
        HostBudgets::with_fixed(100 * GIB, true, [Some(90 * GIB), None]).unwrap_err();
    }

    proptest! {
        /// Whatever is set, all budgets together are nine tenths of the host at most.
        #[test]
        fn budgets_never_add_up_to_more_than_nine_tenths(
            host in 1u64..1 << 44,
            has_cpu_device: bool,
            fixed in prop::array::uniform2(prop::option::of(0u64..1 << 43)),
        ) {
            prop_assert!(HostBudgets::of(host, has_cpu_device).total_bytes() <= host / 10 * 9);
            if let Ok(budgets) = HostBudgets::with_fixed(host, has_cpu_device, fixed) {
                prop_assert!(budgets.total_bytes() <= host / 10 * 9);
            }
        }
    }
}
