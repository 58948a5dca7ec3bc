//! Kinds of proofs and sizes of sectors: numbers, names, spellings.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::circuits::WorkKind;
use crate::error::RequestError;

/// The wire's proof kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ProofKind {
    PorepSealCommit,
    SnapDealsUpdate,
    WindowPostPartition,
    WinningPost,
}

impl ProofKind {
    pub const ALL: [Self; 4] =
        [Self::PorepSealCommit, Self::SnapDealsUpdate, Self::WindowPostPartition, Self::WinningPost];

    /// The enum's number on the wire (0 is "unspecified", and no kind).
    pub fn number(self) -> u64 {
        match self {
            Self::PorepSealCommit => 1,
            Self::SnapDealsUpdate => 2,
            Self::WindowPostPartition => 3,
            Self::WinningPost => 4,
        }
    }

    /// The enum's name on the wire.
    pub fn wire_name(self) -> &'static str {
        match self {
            Self::PorepSealCommit => "POREP_SEAL_COMMIT",
            Self::SnapDealsUpdate => "SNAP_DEALS_UPDATE",
            Self::WindowPostPartition => "WINDOW_POST_PARTITION",
            Self::WinningPost => "WINNING_POST",
        }
    }

    /// `None` for 0 and for numbers of no kind.
    pub fn from_number(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.number() == number)
    }

    /// The queue its jobs belong to.
    pub fn work_kind(self) -> WorkKind {
        match self {
            Self::PorepSealCommit => WorkKind::PorepC2,
            Self::SnapDealsUpdate => WorkKind::SnapUpdate,
            Self::WindowPostPartition => WorkKind::WindowPost,
            Self::WinningPost => WorkKind::WinningPost,
        }
    }

    /// The first part of circuit ids.
    pub fn circuit_prefix(self) -> &'static str {
        match self {
            Self::PorepSealCommit => "porep",
            Self::SnapDealsUpdate => "snap",
            Self::WindowPostPartition => "wpost",
            Self::WinningPost => "winning",
        }
    }

    /// The kind's name in the seeds of test parameters.
    pub(super) fn seed_name(self) -> &'static str {
        match self {
            Self::WindowPostPartition => "window",
            Self::PorepSealCommit | Self::SnapDealsUpdate | Self::WinningPost => self.circuit_prefix(),
        }
    }
}

impl fmt::Display for ProofKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.wire_name())
    }
}

impl FromStr for ProofKind {
    type Err = RequestError;

    /// The wire's name in any case, its number, or the queue's name (`porep-c2`, …).
    fn from_str(text: &str) -> Result<Self, RequestError> {
        let by_number = text.parse().ok().and_then(Self::from_number);
        let by_name = || {
            Self::ALL
                .into_iter()
                .find(|kind| text.eq_ignore_ascii_case(kind.wire_name()) || text == kind.work_kind().as_str())
        };
        by_number.or_else(by_name).ok_or_else(|| RequestError::Field {
            field: "proof_kind".into(),
            what: format!(
                "{text:?} is none of POREP_SEAL_COMMIT (1), SNAP_DEALS_UPDATE (2), WINDOW_POST_PARTITION (3), \
                 WINNING_POST (4)"
            ),
        })
    }
}

/// The sector sizes of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum SectorSize {
    Size2KiB,
    Size8MiB,
    Size512MiB,
    Size32GiB,
    Size64GiB,
}

impl SectorSize {
    pub const ALL: [Self; 5] =
        [Self::Size2KiB, Self::Size8MiB, Self::Size512MiB, Self::Size32GiB, Self::Size64GiB];

    pub fn bytes(self) -> u64 {
        match self {
            Self::Size2KiB => 2 << 10,
            Self::Size8MiB => 8 << 20,
            Self::Size512MiB => 512 << 20,
            Self::Size32GiB => 32 << 30,
            Self::Size64GiB => 64 << 30,
        }
    }

    pub fn from_bytes(bytes: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|size| size.bytes() == bytes)
    }

    /// Leaves of the sector's trees: 32-byte nodes.
    pub fn num_nodes(self) -> usize {
        (self.bytes() / 32) as usize
    }

    /// The last part of circuit ids: `2k` … `64g`.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Size2KiB => "2k",
            Self::Size8MiB => "8m",
            Self::Size512MiB => "512m",
            Self::Size32GiB => "32g",
            Self::Size64GiB => "64g",
        }
    }

    /// As in the names of registered proofs: `2KiB` … `64GiB`.
    pub(super) fn proof_name(self) -> &'static str {
        match self {
            Self::Size2KiB => "2KiB",
            Self::Size8MiB => "8MiB",
            Self::Size512MiB => "512MiB",
            Self::Size32GiB => "32GiB",
            Self::Size64GiB => "64GiB",
        }
    }

    /// Index into tables of registered proofs.
    pub(super) fn index(self) -> u64 {
        match self {
            Self::Size2KiB => 0,
            Self::Size8MiB => 1,
            Self::Size512MiB => 2,
            Self::Size32GiB => 3,
            Self::Size64GiB => 4,
        }
    }

    /// The replica tree's arities: base, sub and top tree.
    pub(super) fn tree_arities(self) -> &'static str {
        match self {
            Self::Size2KiB | Self::Size8MiB | Self::Size512MiB => "8-0-0",
            Self::Size32GiB => "8-8-0",
            Self::Size64GiB => "8-8-2",
        }
    }
}

impl FromStr for SectorSize {
    type Err = RequestError;

    /// `32GiB`, `32 GiB` or `32g` in any case, or the number of bytes.
    fn from_str(text: &str) -> Result<Self, RequestError> {
        let by_bytes = text.parse().ok().and_then(Self::from_bytes);
        let by_name = || {
            let is_named = |size: &Self| {
                let names = [size.suffix(), size.proof_name(), &size.to_string()].map(str::to_lowercase);
                names.contains(&text.to_lowercase())
            };
            Self::ALL.into_iter().find(is_named)
        };
        by_bytes.or_else(by_name).ok_or_else(|| RequestError::Field {
            field: "sector_size".into(),
            what: format!("{text:?} is none of 2KiB, 8MiB, 512MiB, 32GiB, 64GiB"),
        })
    }
}

impl fmt::Display for SectorSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Size2KiB => "2 KiB",
            Self::Size8MiB => "8 MiB",
            Self::Size512MiB => "512 MiB",
            Self::Size32GiB => "32 GiB",
            Self::Size64GiB => "64 GiB",
        })
    }
}
