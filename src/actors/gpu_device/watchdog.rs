//! How long a stage may run before its device counts as hung.

use std::collections::HashMap;
use std::time::Duration;

use crate::backend::{Stage, WatchdogConfig};
use crate::ids::CircuitId;

/// Most measurements kept. An embedding host may name any number of circuits; beyond this all are learnt anew.
const MAX_MEASUREMENTS: usize = 4_096;

/// Learns what is slow and what is hung.
#[derive(Debug)]
pub struct Watchdog {
    config: WatchdogConfig,
    slowest: HashMap<(CircuitId, Stage), Duration>,
}

impl Watchdog {
    pub fn new(config: WatchdogConfig) -> Self {
        Self { config, slowest: HashMap::new() }
    }

    /// `max(floor of the stage, factor * slowest seen for this circuit and stage)`.
    pub fn limit(&self, circuit: &CircuitId, stage: Stage) -> Duration {
        let floor = match stage {
            Stage::Upload => self.config.upload_floor,
            _ => self.config.floor,
        };
        let learnt = self
            .slowest
            .get(&(circuit.clone(), stage))
            .map_or(Duration::ZERO, |slowest| slowest.saturating_mul(self.config.factor.max(1)));
        floor.max(learnt)
    }

    /// A stage ended by itself after `elapsed`.
    pub fn learn(&mut self, circuit: &CircuitId, stage: Stage, elapsed: Duration) {
        if self.slowest.len() >= MAX_MEASUREMENTS {
            self.slowest.clear();
        }
        let slowest = self.slowest.entry((circuit.clone(), stage)).or_default();
        *slowest = (*slowest).max(elapsed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b46_limits_know_the_phase_and_learn() {
        let second = Duration::from_secs(1);
        let config = WatchdogConfig { floor: 5 * second, upload_floor: 100 * second, factor: 3 };
        let mut watchdog = Watchdog::new(config);
        let (large, small) = (CircuitId::new("large"), CircuitId::new("small"));
        assert_eq!(watchdog.limit(&large, Stage::Upload), 100 * second);
        assert_eq!(watchdog.limit(&large, Stage::SumH), 5 * second);

        watchdog.learn(&large, Stage::SumH, 4 * second);
        watchdog.learn(&large, Stage::SumH, 2 * second);
        assert_eq!(watchdog.limit(&large, Stage::SumH), 12 * second);
        assert_eq!(watchdog.limit(&large, Stage::SumL), 5 * second, "another stage");
        assert_eq!(watchdog.limit(&small, Stage::SumH), 5 * second, "another circuit");
    }
}
