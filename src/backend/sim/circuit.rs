//! Circuits that a simulated device stands in for: how large they are, and how long their stages take.

use std::time::Duration;

use super::rates::mix;
use super::state::SimState;
use super::SimConfig;
use crate::backend::{LaneIndex, Stage};
use crate::ids::CircuitId;
use crate::policy::plan::{ProvePlan, Query, QuerySet, ShapeSummary, SrsSummary};

/// A circuit as it is on the device that is simulated, whatever the work that is given in its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimCircuit {
    pub shape: ShapeSummary,
    pub srs: SrsSummary,
    /// By [`Stage::index`], with all queries resident.
    pub stage_durations: [Duration; 9],
}

/// Most that streaming a query may take: a link of one byte a second must not overflow a clock.
const LONGEST_TRANSFER: Duration = Duration::from_secs(86_400);

impl SimConfig {
    /// Whether this stage leaves no room for others of its kind.
    pub(super) fn takes_whole_device(&self, lane: LaneIndex, stage: Stage) -> bool {
        let (normal, critical) = (self.layout.normal, self.layout.critical);
        let is_normal = !(normal..normal + critical).contains(&lane.0);
        self.shares_compute && is_normal && !matches!(stage, Stage::Upload | Stage::Assemble)
    }

    pub(super) fn transfer(&self, num_bytes: u64) -> Duration {
        match self.link_bytes_per_s {
            Some(rate) if num_bytes > 0 => {
                let seconds = num_bytes as f64 / rate.max(1) as f64;
                Duration::from_secs_f64(seconds.min(LONGEST_TRANSFER.as_secs_f64()))
            }
            _ => Duration::ZERO,
        }
    }
}

impl SimState {
    /// How long the stage takes that a lane's partition is about to run by itself, without faults.
    pub(super) fn duration_of(&self, lane: LaneIndex, stage: Stage) -> Duration {
        let Some(partition) = self.partition_of(lane) else { return Duration::ZERO };
        // While one chunk is added up the next one is copied: the slower of the two decides.
        let streamed = streamed_bytes(partition.plan, partition.srs, stage);
        self.work_of_stage(lane, stage).max(self.config().transfer(streamed))
    }

    /// The same without what is streamed meanwhile.
    pub(super) fn work_of_stage(&self, lane: LaneIndex, stage: Stage) -> Duration {
        let config = self.config();
        let Some(partition) = self.partition_of(lane) else { return Duration::ZERO };
        let durations = config
            .circuits
            .get(partition.circuit)
            .map_or(&config.stage_durations, |circuit| &circuit.stage_durations);
        let mut duration = durations[stage.index()] * 1000 / config.speed_per_mille.max(1);
        if config.jitter_per_mille > 0 {
            let spread = u64::from(config.jitter_per_mille) * 2 + 1;
            let drawn =
                mix(&[config.index.into(), partition.ordinal.unwrap_or(0), stage.index() as u64]) % spread;
            let per_mille = (1000 + drawn).saturating_sub(config.jitter_per_mille.into());
            duration = duration * u32::try_from(per_mille).unwrap_or(1000) / 1000;
        }
        if stage == Stage::Upload && partition.loaded_bytes > 0 {
            duration += config.srs_load_duration + config.transfer(partition.loaded_bytes);
        }
        duration
    }
}

/// What of a partition decides how long its stages take.
pub(super) struct PartitionView<'a> {
    pub circuit: &'a CircuitId,
    pub srs: &'a SrsSummary,
    pub plan: &'a ProvePlan,
    pub loaded_bytes: u64,
    pub ordinal: Option<u64>,
}

/// Bytes that pass to the device during a stage.
fn streamed_bytes(plan: &ProvePlan, srs: &SrsSummary, stage: Stage) -> u64 {
    match Query::of_stage(stage) {
        Some(query) if plan.sum(query).streamed => srs.resident_bytes(QuerySet::NONE.with(query)),
        _ => 0,
    }
}
