//! Registered proofs: the chain's numbers for kind, sector size and version.

use std::fmt;

use filecoin_proofs::constants::{
    WINDOW_POST_CHALLENGE_COUNT, WINNING_POST_CHALLENGE_COUNT, WINNING_POST_SECTOR_COUNT,
};
use filecoin_proofs::{PoRepConfig, PoStConfig, PoStType};
use storage_proofs_core::api_version::{ApiFeature, ApiVersion};

use super::{CircuitSpec, ProofKind, SectorSize};
use crate::error::RequestError;

/// Versions of a kind's proof. They share the circuit; challenges, graph or aggregation differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProofVersion {
    /// The first: legacy PoRep and WindowPoSt, the only one of WinningPoSt and SnapDeals.
    V1,
    /// PoRep: today's interactive one.
    V1_1,
    /// PoRep: challenges from a synthetic set.
    SyntheticPoRep,
    /// PoRep: challenges from the replica's commitment; the network's proof is an aggregate.
    NonInteractivePoRep,
    /// WindowPoSt: a sector's challenges do not depend on its place. The chain calls it `V1_1`.
    V1_2,
}

impl ProofVersion {
    /// As in the names of registered proofs.
    fn proof_name(self) -> &'static str {
        match self {
            Self::V1 => "V1",
            Self::V1_1 => "V1_1",
            Self::SyntheticPoRep => "V1_1_Feat_SyntheticPoRep",
            Self::NonInteractivePoRep => "V1_2_Feat_NonInteractivePoRep",
            Self::V1_2 => "V1_2",
        }
    }

    /// The kind's versions, in the order of their numbers.
    fn of(kind: ProofKind) -> &'static [(u64, Self)] {
        match kind {
            ProofKind::PorepSealCommit => {
                &[(0, Self::V1), (5, Self::V1_1), (10, Self::SyntheticPoRep), (15, Self::NonInteractivePoRep)]
            }
            ProofKind::SnapDealsUpdate | ProofKind::WinningPost => &[(0, Self::V1)],
            ProofKind::WindowPostPartition => &[(5, Self::V1), (10, Self::V1_2)],
        }
    }
}

impl fmt::Display for ProofVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V1 => "V1",
            Self::V1_1 => "V1_1",
            Self::SyntheticPoRep => "V1_1 synthetic",
            Self::NonInteractivePoRep => "V1_2 non-interactive",
            Self::V1_2 => "V1_2",
        })
    }
}

/// One of the chain's registered proofs. Its number's table is that of `RegisteredSealProof`,
/// `RegisteredUpdateProof` or `RegisteredPoStProof`, after the kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RegisteredProof {
    pub kind: ProofKind,
    pub sector_size: SectorSize,
    pub version: ProofVersion,
}

impl RegisteredProof {
    /// All registered proofs of a kind, in the order of their numbers.
    pub fn all(kind: ProofKind) -> Vec<Self> {
        ProofVersion::of(kind)
            .iter()
            .flat_map(|&(_, version)| {
                SectorSize::ALL.into_iter().map(move |sector_size| Self { kind, sector_size, version })
            })
            .collect()
    }

    /// The chain's number.
    pub fn number(&self) -> u64 {
        let base = ProofVersion::of(self.kind)
            .iter()
            .find(|(_, version)| *version == self.version)
            .map(|(base, _)| *base)
            .expect("a registered proof has one of its kind's versions");
        base + self.sector_size.index()
    }

    /// The variant's name in `filecoin-proofs-api`.
    pub fn name(&self) -> String {
        let post = match self.kind {
            ProofKind::PorepSealCommit | ProofKind::SnapDealsUpdate => "",
            ProofKind::WindowPostPartition => "Window",
            ProofKind::WinningPost => "Winning",
        };
        format!("StackedDrg{post}{}{}", self.sector_size.proof_name(), self.version.proof_name())
    }

    /// The kind's proof of this number.
    ///
    /// # Errors
    /// [`RequestError::Unsupported`] naming the number, and size and version if it is another kind's.
    pub fn from_number(kind: ProofKind, number: u64) -> Result<Self, RequestError> {
        if let Some(proof) = Self::all(kind).into_iter().find(|proof| proof.number() == number) {
            return Ok(proof);
        }
        let numbers: Vec<u64> = Self::all(kind).iter().map(Self::number).collect();
        let (first, last) = (numbers[0], numbers[numbers.len() - 1]);
        let other = Self::other_post_kind(kind)
            .and_then(|other| Self::all(other).into_iter().find(|proof| proof.number() == number))
            .map(|other| format!("is {other}, of {}; ", other.kind))
            .unwrap_or_default();
        Err(RequestError::Unsupported {
            what: format!("registered_proof {number} {other}has no sector size and version of {kind}: {first} to {last}"),
        })
    }

    /// The kind's proof of this name, as Rust and Go write it.
    pub fn from_name(kind: ProofKind, name: &str) -> Option<Self> {
        Self::all(kind).into_iter().find(|proof| proof.name() == name)
    }

    /// WindowPoSt and WinningPoSt share one table.
    fn other_post_kind(kind: ProofKind) -> Option<ProofKind> {
        match kind {
            ProofKind::WindowPostPartition => Some(ProofKind::WinningPost),
            ProofKind::WinningPost => Some(ProofKind::WindowPostPartition),
            ProofKind::PorepSealCommit | ProofKind::SnapDealsUpdate => None,
        }
    }

    /// The library's settings for a PoRep; those that `filecoin-proofs-api` gives (`registry.rs`, `as_v1_config`).
    ///
    /// # Panics
    /// For the other kinds.
    pub fn porep_config(&self) -> PoRepConfig {
        assert_eq!(self.kind, ProofKind::PorepSealCommit, "{self}");
        let (api_version, api_features) = match self.version {
            ProofVersion::V1 => (ApiVersion::V1_0_0, vec![]),
            ProofVersion::V1_1 => (ApiVersion::V1_1_0, vec![]),
            ProofVersion::SyntheticPoRep => (ApiVersion::V1_2_0, vec![ApiFeature::SyntheticPoRep]),
            ProofVersion::NonInteractivePoRep => (ApiVersion::V1_2_0, vec![ApiFeature::NonInteractivePoRep]),
            ProofVersion::V1_2 => unreachable!("{self}: no version of PoRep"),
        };
        // The number, then a nonce that is zero.
        let mut porep_id = [0; 32];
        porep_id[..8].copy_from_slice(&self.number().to_le_bytes());
        PoRepConfig::new_groth16_with_features(self.sector_size.bytes(), porep_id, api_version, api_features)
            .expect("one feature contradicts none")
    }

    /// The library's settings for a PoSt; those that `filecoin-proofs-api` gives (`registry.rs`, `as_v1_config`).
    ///
    /// # Panics
    /// For the other kinds.
    pub fn post_config(&self) -> PoStConfig {
        let (typ, challenge_count, sector_count) = match self.kind {
            ProofKind::WinningPost => {
                (PoStType::Winning, WINNING_POST_CHALLENGE_COUNT, WINNING_POST_SECTOR_COUNT)
            }
            ProofKind::WindowPostPartition => {
                let sectors = CircuitSpec::new(self.kind, self.sector_size).max_sectors() as usize;
                (PoStType::Window, WINDOW_POST_CHALLENGE_COUNT, sectors)
            }
            ProofKind::PorepSealCommit | ProofKind::SnapDealsUpdate => panic!("{self} is no PoSt's"),
        };
        let api_version = match self.version {
            ProofVersion::V1_2 => ApiVersion::V1_2_0,
            _ => ApiVersion::V1_0_0,
        };
        let sector_size = filecoin_proofs::SectorSize(self.sector_size.bytes());
        PoStConfig { sector_size, challenge_count, sector_count, typ, priority: true, api_version }
    }
}

impl fmt::Display for RegisteredProof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, {} {})", self.number(), self.name(), self.sector_size, self.version)
    }
}
