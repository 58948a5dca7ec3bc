//! The Filecoin circuits that are known: names, sizes, parameter files, registered proof numbers.

use serde::{Deserialize, Serialize};

/// The wire's proof kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ProofKind {
    PorepSealCommit,
    SnapDealsUpdate,
    WindowPostPartition,
    WinningPost,
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

/// One circuit of one sector size, e.g. `porep-2k`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CircuitSpec {
    pub kind: ProofKind,
    pub sector_size: SectorSize,
}
