//! Synthetic sectors: satisfying inputs of any sector size without sealing, for tests and measurements.
//!
//! ```text
//! SyntheticOptions --generate--> SyntheticJob { FilecoinRequest } --write--> manifest.json + vanilla proofs
//! ```
//! Trees and labels exist only where a circuit looks: 32 GiB take seconds. The result satisfies every constraint and
//! the verifier's public inputs, and goes through [`FilecoinRequest::decode`] like any other. It is a forgery all the
//! same, of no use on a network: PoRep's seed and a PoSt's randomness come after the commitments there, and no chain
//! has these. Equal options give equal bytes.

mod output;
mod porep;
mod post;
mod snap;
mod tree;

use blstrs::Scalar;
use ff::{Field, PrimeField};
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::circuits::catalogue::RegisteredProof;
use crate::circuits::vanilla::{with_tree, Node};
use crate::circuits::{CircuitSpec, FilecoinRequest, ProofKind, SectorSize};
use crate::error::RequestError;

pub use output::WriteError;

/// What to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntheticOptions {
    pub kind: ProofKind,
    pub sector_size: SectorSize,
    /// Everything is drawn from it.
    pub seed: u64,
    /// PoRep: challenges of each partition, 1 to the network's. `None`: the network's.
    pub challenges: Option<u32>,
    /// PoRep: partitions, 1 to 255. `None`: the network's.
    pub partitions: Option<u32>,
    /// WindowPoSt: sectors of the partition. `None`: as many as it can have.
    pub sectors: Option<u32>,
}

/// Synthetic inputs of one job.
#[derive(Debug)]
pub struct SyntheticJob {
    /// The request: decoded and proved as any other.
    pub request: FilecoinRequest,
    options: SyntheticOptions,
    registered: RegisteredProof,
    facts: Facts,
}

/// What a manifest says beside the request.
#[derive(Debug, Default)]
struct Facts {
    manifest: Map<String, Value>,
    /// Of its only request.
    request: Map<String, Value>,
}

impl SyntheticOptions {
    /// The network's numbers.
    pub fn new(kind: ProofKind, sector_size: SectorSize, seed: u64) -> Self {
        Self { kind, sector_size, seed, challenges: None, partitions: None, sectors: None }
    }

    /// The circuit that the job is of.
    ///
    /// # Errors
    /// [`RequestError::Field`] naming an option that the kind has not or whose value it cannot have.
    pub fn circuit_spec(&self) -> Result<CircuitSpec, RequestError> {
        let network = CircuitSpec::new(self.kind, self.sector_size);
        let is_porep = self.kind == ProofKind::PorepSealCommit;
        let is_window = self.kind == ProofKind::WindowPostPartition;
        self.check("challenges", self.challenges, is_porep, network.num_challenges())?;
        self.check("partitions", self.partitions, is_porep, u32::from(u8::MAX))?;
        self.check("sectors", self.sectors, is_window, network.max_sectors())?;
        match self.challenges {
            None => Ok(network),
            Some(challenges) => Ok(CircuitSpec::scaled_porep(self.sector_size, challenges)
                .expect("the number of challenges was checked")),
        }
    }

    fn check(&self, field: &str, value: Option<u32>, belongs: bool, most: u32) -> Result<(), RequestError> {
        let Some(value) = value else { return Ok(()) };
        let what = if !belongs {
            format!("is no option of {}", self.kind)
        } else if !(1..=most).contains(&value) {
            format!("needs 1 to {most} for {} sectors, has {value}", self.sector_size)
        } else {
            return Ok(());
        };
        Err(RequestError::Field { field: field.into(), what })
    }

    /// Makes the inputs. 32 GiB: some seconds on two cores, and a few hundred megabytes.
    ///
    /// # Errors
    /// [`RequestError::Field`] for options that cannot be had.
    pub fn generate(&self) -> Result<SyntheticJob, RequestError> {
        let spec = self.circuit_spec()?;
        let rng = self.rng();
        // The functions are told apart by module, the macro takes a name.
        match self.kind {
            ProofKind::PorepSealCommit => {
                use porep::generate;
                with_tree!(self.sector_size, generate(self, &spec, rng))
            }
            ProofKind::SnapDealsUpdate => {
                use snap::generate;
                with_tree!(self.sector_size, generate(self, rng))
            }
            ProofKind::WindowPostPartition | ProofKind::WinningPost => {
                use post::generate;
                with_tree!(self.sector_size, generate(self, rng))
            }
        }
    }

    fn rng(&self) -> ChaCha20Rng {
        let (kind, size) = (self.kind.circuit_prefix(), self.sector_size.suffix());
        let seed = format!("synthetic-sector/v1/{kind}/{size}/{}", self.seed);
        ChaCha20Rng::from_seed(Sha256::digest(seed).into())
    }
}

impl SyntheticJob {
    fn new(
        options: &SyntheticOptions,
        registered: RegisteredProof,
        request: FilecoinRequest,
        facts: Facts,
    ) -> Self {
        Self { request, options: options.clone(), registered, facts }
    }
}

impl Facts {
    fn new() -> Self {
        Self::default()
    }

    fn node(self, name: &str, node: Node) -> Self {
        self.value(name, hex::encode(node).into())
    }

    fn number(self, name: &str, number: u64) -> Self {
        self.value(name, number.into())
    }

    fn value(mut self, name: &str, value: Value) -> Self {
        self.manifest.insert(name.to_owned(), value);
        self
    }

    fn request_value(mut self, name: &str, value: Value) -> Self {
        self.request.insert(name.to_owned(), value);
        self
    }
}

/// Any node of a tree: a field element.
fn random_node(rng: &mut ChaCha20Rng) -> Node {
    Scalar::random(rng).to_repr()
}
