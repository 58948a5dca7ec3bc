//! Registered proofs: the chain's numbers for kind, sector size and version.

use std::fmt;

use filecoin_proofs_api::{RegisteredPoStProof, RegisteredSealProof};

use super::{ProofKind, SectorSize};
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

    /// The library's name for a PoRep; `None` for the other kinds.
    pub(crate) fn as_seal_proof(&self) -> Option<RegisteredSealProof> {
        use RegisteredSealProof as R;
        let versions: [R; 4] = match self.sector_size {
            SectorSize::Size2KiB => [
                R::StackedDrg2KiBV1,
                R::StackedDrg2KiBV1_1,
                R::StackedDrg2KiBV1_1_Feat_SyntheticPoRep,
                R::StackedDrg2KiBV1_2_Feat_NonInteractivePoRep,
            ],
            SectorSize::Size8MiB => [
                R::StackedDrg8MiBV1,
                R::StackedDrg8MiBV1_1,
                R::StackedDrg8MiBV1_1_Feat_SyntheticPoRep,
                R::StackedDrg8MiBV1_2_Feat_NonInteractivePoRep,
            ],
            SectorSize::Size512MiB => [
                R::StackedDrg512MiBV1,
                R::StackedDrg512MiBV1_1,
                R::StackedDrg512MiBV1_1_Feat_SyntheticPoRep,
                R::StackedDrg512MiBV1_2_Feat_NonInteractivePoRep,
            ],
            SectorSize::Size32GiB => [
                R::StackedDrg32GiBV1,
                R::StackedDrg32GiBV1_1,
                R::StackedDrg32GiBV1_1_Feat_SyntheticPoRep,
                R::StackedDrg32GiBV1_2_Feat_NonInteractivePoRep,
            ],
            SectorSize::Size64GiB => [
                R::StackedDrg64GiBV1,
                R::StackedDrg64GiBV1_1,
                R::StackedDrg64GiBV1_1_Feat_SyntheticPoRep,
                R::StackedDrg64GiBV1_2_Feat_NonInteractivePoRep,
            ],
        };
        let index =
            ProofVersion::of(ProofKind::PorepSealCommit).iter().position(|(_, v)| *v == self.version)?;
        (self.kind == ProofKind::PorepSealCommit).then_some(versions[index])
    }

    /// The library's name for a PoSt; `None` for the other kinds.
    pub(crate) fn as_post_proof(&self) -> Option<RegisteredPoStProof> {
        use RegisteredPoStProof as R;
        let [winning, window_v1, window_v1_2] = match self.sector_size {
            SectorSize::Size2KiB => {
                [R::StackedDrgWinning2KiBV1, R::StackedDrgWindow2KiBV1, R::StackedDrgWindow2KiBV1_2]
            }
            SectorSize::Size8MiB => {
                [R::StackedDrgWinning8MiBV1, R::StackedDrgWindow8MiBV1, R::StackedDrgWindow8MiBV1_2]
            }
            SectorSize::Size512MiB => {
                [R::StackedDrgWinning512MiBV1, R::StackedDrgWindow512MiBV1, R::StackedDrgWindow512MiBV1_2]
            }
            SectorSize::Size32GiB => {
                [R::StackedDrgWinning32GiBV1, R::StackedDrgWindow32GiBV1, R::StackedDrgWindow32GiBV1_2]
            }
            SectorSize::Size64GiB => {
                [R::StackedDrgWinning64GiBV1, R::StackedDrgWindow64GiBV1, R::StackedDrgWindow64GiBV1_2]
            }
        };
        match (self.kind, self.version) {
            (ProofKind::WinningPost, ProofVersion::V1) => Some(winning),
            (ProofKind::WindowPostPartition, ProofVersion::V1) => Some(window_v1),
            (ProofKind::WindowPostPartition, ProofVersion::V1_2) => Some(window_v1_2),
            _ => None,
        }
    }
}

impl fmt::Display for RegisteredProof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, {} {})", self.number(), self.name(), self.sector_size, self.version)
    }
}
