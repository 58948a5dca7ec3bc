//! The Filecoin circuits that are known: names, sizes, parameter files, registered proof numbers.
//!
//! Four kinds times five sector sizes; and, for tests of sizes between those, PoRep circuits scaled down to fewer
//! challenges, which no network has.

mod kinds;
mod registered;
mod sizes;

use std::cmp::Ordering;
use std::fmt;
use std::num::NonZeroU32;

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use sha2::{Digest, Sha256};

use crate::circuits::{porep, snap, window_post, winning_post};
use crate::error::SynthesisError;
use crate::groth16::sink::Synthesis;
use crate::groth16::R1csShape;
use crate::ids::CircuitId;

pub use kinds::{ProofKind, SectorSize};
pub use registered::{ProofVersion, RegisteredProof};
pub use sizes::{CircuitSizes, MemoryNeeds};

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

    /// Whether networks have sectors of this size, and not only tests.
    fn is_of_networks(&self) -> bool {
        !matches!(self.sector_size, SectorSize::Size2KiB | SectorSize::Size8MiB) && !self.is_scaled()
    }

    /// How to come by its parameter files, for people: a network's are fetched; those of a test size may be made, and
    /// then anybody can prove anything with them.
    pub fn how_to_get_params(&self) -> String {
        if self.is_of_networks() {
            format!("`cuzk params fetch {self}` gets it")
        } else {
            format!("`cuzk params generate {self}` makes a TEST key, whose secrets everybody knows")
        }
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
