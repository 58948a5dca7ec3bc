//! The Filecoin circuits that are known: names, sizes, parameter files, registered proof numbers.
//!
//! Four kinds times five sector sizes; and, for tests of sizes between those, PoRep circuits scaled down to fewer
//! challenges, which no network has.

mod registered;
mod sizes;

use std::cmp::Ordering;
use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::circuits::{porep, snap, window_post, winning_post, WorkKind};
use crate::error::{RequestError, SynthesisError};
use crate::groth16::sink::Synthesis;
use crate::groth16::R1csShape;
use crate::ids::CircuitId;

pub use registered::{ProofVersion, RegisteredProof};
pub use sizes::{CircuitSizes, MemoryNeeds};

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
    fn seed_name(self) -> &'static str {
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
    fn proof_name(self) -> &'static str {
        match self {
            Self::Size2KiB => "2KiB",
            Self::Size8MiB => "8MiB",
            Self::Size512MiB => "512MiB",
            Self::Size32GiB => "32GiB",
            Self::Size64GiB => "64GiB",
        }
    }

    /// Index into tables of registered proofs.
    fn index(self) -> u64 {
        match self {
            Self::Size2KiB => 0,
            Self::Size8MiB => 1,
            Self::Size512MiB => 2,
            Self::Size32GiB => 3,
            Self::Size64GiB => 4,
        }
    }

    /// The replica tree's arities: base, sub and top tree.
    fn tree_arities(self) -> &'static str {
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

/// One circuit of one sector size, e.g. `porep-2k`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CircuitSpec {
    pub kind: ProofKind,
    pub sector_size: SectorSize,
    /// Challenges of a scaled-down PoRep; `None` for the network's own circuits.
    test_challenges: Option<NonZeroU32>,
}

impl CircuitSpec {
    /// The network's circuit of this kind and size.
    pub fn new(kind: ProofKind, sector_size: SectorSize) -> Self {
        Self { kind, sector_size, test_challenges: None }
    }

    /// PoRep's circuit with fewer challenges than the network's, e.g. `porep-32g-k1`: the same constraints fewer times
    /// over. For tests and measurements; the network has no key for it. `None` unless the number is 1 to the network's,
    /// which is the network's own circuit.
    pub fn scaled_porep(sector_size: SectorSize, challenges: u32) -> Option<Self> {
        let full = Self::new(ProofKind::PorepSealCommit, sector_size);
        let test_challenges = NonZeroU32::new(challenges)?;
        match challenges.cmp(&full.num_challenges()) {
            Ordering::Less => Some(Self { test_challenges: Some(test_challenges), ..full }),
            Ordering::Equal => Some(full),
            Ordering::Greater => None,
        }
    }

    /// Whether this is no circuit of the network, but one of its circuits with fewer challenges.
    pub fn is_scaled(&self) -> bool {
        self.test_challenges.is_some()
    }

    /// All twenty, by kind, then by size.
    pub fn all() -> Vec<Self> {
        ProofKind::ALL
            .into_iter()
            .flat_map(|kind| SectorSize::ALL.into_iter().map(move |size| Self::new(kind, size)))
            .collect()
    }

    /// By id: `porep-2k`, `wpost-32g`, `porep-32g-k1`.
    pub fn by_id(id: &str) -> Option<Self> {
        if let Some(spec) = Self::all().into_iter().find(|spec| spec.name() == id) {
            return Some(spec);
        }
        let (full, challenges) = id.rsplit_once("-k")?;
        let full = Self::all().into_iter().find(|spec| spec.name() == full)?;
        if full.kind != ProofKind::PorepSealCommit {
            return None;
        }
        // An id has one spelling: not `-k01`, and not the network's own number.
        Self::scaled_porep(full.sector_size, challenges.parse().ok()?).filter(|spec| spec.name() == id)
    }

    /// The id, as jobs, files and reports name the circuit: `porep-2k`.
    pub fn id(&self) -> CircuitId {
        CircuitId::new(self.name())
    }

    fn name(&self) -> String {
        format!("{}-{}", self.kind.circuit_prefix(), self.size_name())
    }

    /// The last part of its id: sector size and, of a scaled-down circuit, its challenges.
    fn size_name(&self) -> String {
        match self.test_challenges {
            Some(challenges) => format!("{}-k{challenges}", self.sector_size.suffix()),
            None => self.sector_size.suffix().to_owned(),
        }
    }

    /// Whether it is one of the large circuits of the network's real sectors, of some 2^26 to 2^27 constraints.
    pub fn is_full_size(&self) -> bool {
        self.is_production() && self.kind != ProofKind::WinningPost && !self.is_scaled()
    }

    /// Partitions of one job. Non-interactive PoRep has more ([`Self::num_noninteractive_partitions`]); a WindowPoSt
    /// request is one partition of a deadline.
    pub fn num_partitions(&self) -> u32 {
        match self.kind {
            ProofKind::PorepSealCommit if self.is_production() => 10,
            ProofKind::SnapDealsUpdate => match self.sector_size {
                SectorSize::Size2KiB => 1,
                SectorSize::Size8MiB => 4,
                SectorSize::Size512MiB | SectorSize::Size32GiB | SectorSize::Size64GiB => 16,
            },
            ProofKind::PorepSealCommit | ProofKind::WindowPostPartition | ProofKind::WinningPost => 1,
        }
    }

    /// Partitions of a non-interactive PoRep; `None` for the other kinds.
    pub fn num_noninteractive_partitions(&self) -> Option<u32> {
        let partitions = if self.is_production() { 126 } else { 13 };
        (self.kind == ProofKind::PorepSealCommit).then_some(partitions)
    }

    /// Challenges of one partition (PoRep, SnapDeals) or of one sector (PoSt).
    pub fn num_challenges(&self) -> u32 {
        if let Some(challenges) = self.test_challenges {
            return challenges.get();
        }
        match self.kind {
            ProofKind::PorepSealCommit if self.is_production() => 18,
            ProofKind::PorepSealCommit => 2,
            ProofKind::SnapDealsUpdate => match self.sector_size {
                SectorSize::Size2KiB | SectorSize::Size8MiB => 10,
                SectorSize::Size512MiB | SectorSize::Size32GiB | SectorSize::Size64GiB => 86,
            },
            ProofKind::WindowPostPartition => 10,
            ProofKind::WinningPost => 66,
        }
    }

    /// Most sectors that one request of this circuit proves.
    pub fn max_sectors(&self) -> u32 {
        match (self.kind, self.sector_size) {
            (ProofKind::WindowPostPartition, SectorSize::Size32GiB) => 2349,
            (ProofKind::WindowPostPartition, SectorSize::Size64GiB) => 2300,
            (ProofKind::WindowPostPartition, _) => 2,
            _ => 1,
        }
    }

    /// 32 GiB and 64 GiB sectors have the network's full number of challenges, the others a test's.
    fn is_production(&self) -> bool {
        matches!(self.sector_size, SectorSize::Size32GiB | SectorSize::Size64GiB)
    }

    /// Layers of the sealed sector's labels (PoRep).
    fn num_layers(&self) -> u32 {
        if self.is_production() {
            11
        } else {
            2
        }
    }

    /// The name of the proving key's file, as Filecoin's libraries name it: `v28-….params`.
    pub fn params_file(&self) -> String {
        format!("v28-{}.params", self.cache_identifier())
    }

    /// The name of the verifying key's file: `v28-….vk`.
    pub fn vk_file(&self) -> String {
        format!("v28-{}.vk", self.cache_identifier())
    }

    /// `<prefix>-<sha256 of the parameter set's identifier>` (storage-proofs-core `parameter_cache.rs`,
    /// `cache_identifier`). The identifiers' formats are frozen there, since file names depend on them.
    pub fn cache_identifier(&self) -> String {
        let tree = format!("merkletree-poseidon_hasher-{}", self.sector_size.tree_arities());
        let (prefix, identifier) = match self.kind {
            ProofKind::PorepSealCommit => {
                (format!("stacked-proof-of-replication-{tree}-sha256_hasher"), self.porep_identifier(&tree))
            }
            ProofKind::SnapDealsUpdate => (
                format!("empty-sector-update-{tree}"),
                format!(
                    "empty_sector_update::PublicParams{{ sector_nodes: {} }}",
                    self.sector_size.num_nodes()
                ),
            ),
            ProofKind::WindowPostPartition => (
                format!("proof-of-spacetime-fallback-{tree}"),
                self.post_identifier(self.num_challenges(), self.max_sectors()),
            ),
            // WinningPoSt is laid out as 66 "sectors" of one challenge each.
            ProofKind::WinningPost => (
                format!("proof-of-spacetime-fallback-{tree}"),
                self.post_identifier(1, self.num_challenges()),
            ),
        };
        format!("{prefix}-{}", hex::encode(Sha256::digest(identifier)))
    }

    fn porep_identifier(&self, tree: &str) -> String {
        let nodes = self.sector_size.num_nodes();
        let graph = format!(
            "stacked_graph::StackedGraph{{expansion_degree: 8 base_graph: \
             drgraph::BucketGraph{{size: {nodes}; degree: 6; hasher: poseidon_hasher}} }}"
        );
        let (layers, challenges) = (self.num_layers(), self.num_challenges());
        format!(
            "layered_drgporep::PublicParams{{ graph: {graph}, challenges: \
             LayerChallenges {{ layers: {layers}, max_count: {challenges} }}, tree: {tree} }}"
        )
    }

    fn post_identifier(&self, challenges: u32, sectors: u32) -> String {
        let bytes = self.sector_size.bytes();
        format!(
            "FallbackPoSt::PublicParams{{sector_size: {bytes}, challenge_count: {challenges}, sector_count: {sectors}}}"
        )
    }

    /// What the seed of this circuit's test parameters is the SHA-256 of.
    pub fn test_params_seed(&self) -> String {
        format!("groth16-test-params/v1/{}/{}", self.kind.seed_name(), self.size_name())
    }

    /// The generator from which this circuit's test parameters are drawn. Anyone can draw the same: these
    /// parameters are for tests only.
    pub fn test_params_rng(&self) -> ChaCha20Rng {
        ChaCha20Rng::from_seed(Sha256::digest(self.test_params_seed()).into())
    }

    /// Records the circuit's matrices from its blank circuit. Takes seconds and up to gigabytes: see
    /// [`Self::sizes`].
    ///
    /// # Errors
    /// [`SynthesisError::Circuit`] if the library refuses to build it.
    pub fn record_shape(&self) -> Result<R1csShape, SynthesisError> {
        R1csShape::record_synthesis(self.blank()?)
    }

    /// The circuit without a witness, for a [`crate::groth16::sink::Sink`] that wants no values.
    ///
    /// # Errors
    /// [`SynthesisError::Circuit`] if the circuit's library refuses.
    pub fn blank(&self) -> Result<Synthesis<'static>, SynthesisError> {
        match self.kind {
            ProofKind::PorepSealCommit => porep::blank(self),
            ProofKind::SnapDealsUpdate => snap::blank(self.sector_size),
            ProofKind::WindowPostPartition => window_post::blank(self.sector_size),
            ProofKind::WinningPost => winning_post::blank(self.sector_size),
        }
    }
}

impl fmt::Display for CircuitSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}
