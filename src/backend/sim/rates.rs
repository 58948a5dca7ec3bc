//! Faults that come by chance, the same ones for the same seed.

use super::script::FaultKind;
use crate::backend::Stage;

/// Chances of faults per partition that a device begins, in millionths.
///
/// What strikes a partition depends on the seed, the device and the partition's number in the device's life alone, not
/// on when or in which order things happen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultRates {
    seed: u64,
    per_million: Vec<(FaultKind, u32)>,
}

impl FaultRates {
    /// No faults.
    pub fn none() -> Self {
        Self::default()
    }

    pub fn of_seed(seed: u64) -> Self {
        Self { seed, per_million: Vec::new() }
    }

    /// Adds a kind of fault that strikes `per_million` of a million partitions, in a stage drawn by chance (a wrong proof
    /// in the last one).
    #[must_use]
    pub fn with(mut self, kind: FaultKind, per_million: u32) -> Self {
        self.per_million.push((kind, per_million));
        self
    }

    /// Faults that strike this stage of the `ordinal`-th partition of device `index`.
    pub(super) fn at(&self, index: u32, ordinal: u64, stage: Stage) -> impl Iterator<Item = FaultKind> + '_ {
        self.per_million.iter().enumerate().filter_map(move |(which, (kind, per_million))| {
            let drawn = mix(&[self.seed, index.into(), ordinal, which as u64]);
            let strikes = drawn % 1_000_000 < u64::from(*per_million);
            let struck = match kind {
                FaultKind::Corrupt => Stage::Assemble,
                _ => [Stage::Upload, Stage::Quotient, Stage::SumH, Stage::SumBG2][(drawn >> 40) as usize % 4],
            };
            (strikes && struck == stage).then_some(*kind)
        })
    }
}

/// A number that looks random, of numbers that do not: splitmix64 (Steele, Lea, Flood 2014), one round per word.
pub fn mix(words: &[u64]) -> u64 {
    words.iter().fold(0x9e37_79b9_7f4a_7c15, |state, word| {
        let mut z = (state ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_come_at_their_rate_and_are_the_same_again() {
        let rates = FaultRates::of_seed(7).with(FaultKind::Hang, 20_000).with(FaultKind::Corrupt, 5_000);
        let count = |kind: FaultKind| {
            let strikes = |ordinal: &u64| {
                Stage::ALL.into_iter().any(|stage| rates.at(0, *ordinal, stage).any(|fault| fault == kind))
            };
            (1..=100_000).filter(strikes).count()
        };
        // Within five standard deviations: a fixed seed, so this holds always or never.
        assert!((1_780..2_220).contains(&count(FaultKind::Hang)), "{}", count(FaultKind::Hang));
        assert!((390..610).contains(&count(FaultKind::Corrupt)), "{}", count(FaultKind::Corrupt));
        assert_eq!(count(FaultKind::Hang), count(FaultKind::Hang));
        assert_eq!(count(FaultKind::Sticky), 0);
    }
}
