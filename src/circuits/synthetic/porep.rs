//! A sealed sector of zeros, as far as its challenges look.
//!
//! The challenges of interactive PoRep follow from replica id and seed, which come before the trees. So:
//!
//! 1. the sector is all zeros: its data tree has one node per level;
//! 2. the columns of challenged nodes' parents are drawn, and the challenged nodes' own labels hashed from them, layer
//!    by layer and in rising order, since challenged nodes may be parents of each other;
//! 3. column tree and replica tree are hashed up from those columns with drawn nodes beside the paths.

use std::collections::{BTreeMap, BTreeSet};

use filecoin_hashers::poseidon::{PoseidonDomain, PoseidonHasher};
use filecoin_hashers::sha256::Sha256Domain;
use filecoin_hashers::{HashFunction, Hasher};
use rand_chacha::ChaCha20Rng;
use rand_core::RngCore;
use rayon::prelude::*;
use serde::Serialize;
use sha2::{Digest, Sha256};
use storage_proofs_porep::stacked::{self, generate_replica_id, TOTAL_PARENTS};

use super::tree::{Poseidon, RunTree, Sha256Nodes, SparseTree};
use super::{random_node, Facts, SyntheticJob, SyntheticOptions};
use crate::circuits::catalogue::{ProofVersion, RegisteredProof};
use crate::circuits::library::refused_request;
use crate::circuits::porep::{assemble, parents, public_params, Column, Columns, PublicInputs};
use crate::circuits::porep::{PublicParams, VanillaProof};
use crate::circuits::request::{prover_id, TestScale};
use crate::circuits::vanilla::{Node, SectorTree, TreeForm};
use crate::circuits::{CircuitSpec, FilecoinRequest, ProofKind};
use crate::error::RequestError;

/// The library's `SealCommitPhase1Output` (filecoin-proofs-api `seal.rs`), whose proofs cannot be put in from outside.
#[derive(Serialize)]
struct C1Output<'a, Tree: SectorTree> {
    registered_proof: String,
    /// One entry, under the name of the size's first version.
    #[serde(bound(serialize = "VanillaProof<Tree>: Serialize"))]
    vanilla_proofs: BTreeMap<String, &'a [Vec<VanillaProof<Tree>>]>,
    comm_r: Node,
    comm_d: Node,
    replica_id: PoseidonDomain,
    seed: Node,
    ticket: Node,
}

/// What a sector is sealed under.
struct Sealing {
    miner_id: u64,
    sector_number: u64,
    ticket: Node,
    seed: Node,
}

pub(super) fn generate<Tree: SectorTree>(
    options: &SyntheticOptions,
    spec: &CircuitSpec,
    mut rng: ChaCha20Rng,
) -> Result<SyntheticJob, RequestError> {
    let registered = RegisteredProof {
        kind: ProofKind::PorepSealCommit,
        sector_size: options.sector_size,
        version: ProofVersion::V1_1,
    };
    let config = registered.porep_config();
    let num_partitions = options.partitions.unwrap_or(usize::from(config.partitions) as u32);
    let params = public_params::<Tree>(&config, spec, num_partitions as usize).map_err(refused_request)?;
    let sealing = Sealing::draw(&mut rng);
    let data = RunTree::build::<Sha256Nodes>(TreeForm::data(options.sector_size), vec![[0; 32]]);
    let replica_id: PoseidonDomain = generate_replica_id::<PoseidonHasher, _>(
        &prover_id(sealing.miner_id),
        sealing.sector_number,
        &sealing.ticket,
        Sha256Domain(data.root()),
        &config.porep_id,
    );
    let inputs = PublicInputs { replica_id, seed: Some(sealing.seed), tau: None, k: None };
    let challenges: Vec<Vec<usize>> = (0..num_partitions as usize)
        .map(|k| {
            let vanilla = &params.vanilla_params;
            inputs.challenges(&vanilla.challenges, options.sector_size.num_nodes(), Some(k))
        })
        .collect();
    let labels = Labels::draw(&challenges, &params, replica_id.into(), &mut rng)?;
    let trees = Trees::build(&labels, TreeForm::replica(options.sector_size), &mut rng);
    let proofs: Vec<Vec<VanillaProof<Tree>>> = challenges
        .iter()
        .map(|partition| partition.iter().map(|&leaf| trees.proof(leaf, &labels, &data)).collect())
        .collect();
    let comm_r = <PoseidonHasher as Hasher>::Function::hash2(
        &trees.columns.root().into(),
        &trees.replica.root().into(),
    );
    let first_version = RegisteredProof { version: ProofVersion::V1, ..registered };
    let c1 = C1Output {
        registered_proof: registered.name(),
        vanilla_proofs: BTreeMap::from([(first_version.name(), proofs.as_slice())]),
        comm_r: comm_r.into(),
        comm_d: data.root(),
        replica_id,
        seed: sealing.seed,
        ticket: sealing.ticket,
    };
    let request = FilecoinRequest {
        proof_kind: Some(ProofKind::PorepSealCommit),
        sector_size: options.sector_size.bytes(),
        registered_proof: registered.number(),
        vanilla_proof: serde_json::to_vec(&c1).map_err(refused_request)?,
        sector_number: sealing.sector_number,
        miner_id: sealing.miner_id,
        test_scale: test_scale(options, spec, num_partitions),
        ..FilecoinRequest::default()
    };
    let facts = sealing.facts().node("comm_d", c1.comm_d).node("comm_r", c1.comm_r);
    let facts = facts.node("replica_id", replica_id.into());
    Ok(SyntheticJob::new(options, registered, request, facts))
}

impl Sealing {
    fn draw(rng: &mut ChaCha20Rng) -> Self {
        Self {
            miner_id: 1000 + u64::from(rng.next_u32() % 1_000_000),
            sector_number: 1 + u64::from(rng.next_u32() % 1_000_000),
            ticket: random_node(rng),
            seed: random_node(rng),
        }
    }

    fn facts(&self) -> Facts {
        let facts = Facts::new().number("sector_number", self.sector_number);
        facts.node("ticket", self.ticket).node("seed", self.seed)
    }
}

/// `None` if challenges and partitions are the network's: then the job is like any other.
fn test_scale(options: &SyntheticOptions, spec: &CircuitSpec, partitions: u32) -> Option<TestScale> {
    let network = CircuitSpec::new(ProofKind::PorepSealCommit, options.sector_size);
    let is_scaled = spec.is_scaled() || partitions != network.num_partitions();
    is_scaled.then(|| TestScale { challenges: spec.num_challenges(), partitions })
}

/// The columns of challenged nodes and of their parents.
struct Labels {
    num_layers: usize,
    /// A challenged node's parents in the base graph and in the expander graph.
    parents: BTreeMap<usize, (Vec<u32>, Vec<u32>)>,
    /// By node, a label per layer.
    columns: BTreeMap<usize, Vec<Node>>,
}

impl Labels {
    /// Draws the parents' columns and computes the challenged nodes'.
    fn draw<Tree: SectorTree>(
        challenges: &[Vec<usize>],
        params: &PublicParams<Tree>,
        replica_id: Node,
        rng: &mut ChaCha20Rng,
    ) -> Result<Self, RequestError> {
        let num_layers = params.vanilla_params.num_layers;
        let parents: BTreeMap<usize, (Vec<u32>, Vec<u32>)> = challenges
            .iter()
            .flatten()
            .map(|&leaf| Ok((leaf, parents(leaf, params).map_err(refused_request)?)))
            .collect::<Result<_, RequestError>>()?;
        let all_parents = parents.values().flat_map(|(drg, exp)| drg.iter().chain(exp));
        let nodes: BTreeSet<usize> =
            parents.keys().copied().chain(all_parents.map(|&node| node as usize)).collect();
        let columns =
            nodes.into_iter().map(|node| (node, (0..num_layers).map(|_| random_node(rng)).collect()));
        let mut labels = Self { num_layers, columns: columns.collect(), parents };
        labels.label_challenged(replica_id);
        Ok(labels)
    }

    /// Replaces the challenged nodes' labels by the hashes of their parents': base parents come before a node in its own
    /// layer, expander parents are in the layer before.
    fn label_challenged(&mut self, replica_id: Node) {
        for layer in 0..self.num_layers {
            for (&node, (drg, exp)) in &self.parents {
                let mut labels: Vec<Node> =
                    drg.iter().map(|&parent| self.columns[&(parent as usize)][layer]).collect();
                if layer > 0 {
                    labels.extend(exp.iter().map(|&parent| self.columns[&(parent as usize)][layer - 1]));
                }
                let label = label(replica_id, layer as u32 + 1, node as u64, &labels);
                self.columns.get_mut(&node).expect("challenged nodes have columns")[layer] = label;
            }
        }
    }
}

/// As storage-proofs-porep `stacked/vanilla/labeling_proof.rs` makes it.
fn label(replica_id: Node, layer: u32, node: u64, parents: &[Node]) -> Node {
    let mut hasher = Sha256::new();
    hasher.update(replica_id);
    hasher.update(layer.to_be_bytes());
    hasher.update(node.to_be_bytes());
    hasher.update([0; 20]);
    for parent in parents.iter().cycle().take(TOTAL_PARENTS) {
        hasher.update(parent);
    }
    let mut label: Node = hasher.finalize().into();
    // A label is a field element.
    label[31] &= 0b0011_1111;
    label
}

/// The trees over columns and over the replica.
struct Trees {
    columns: SparseTree,
    replica: SparseTree,
}

impl Trees {
    fn build(labels: &Labels, form: TreeForm, rng: &mut ChaCha20Rng) -> Self {
        let column_hashes: Vec<(usize, Node)> =
            labels.columns.par_iter().map(|(&node, rows)| (node, column_hash(node, rows))).collect();
        let columns =
            SparseTree::build::<Poseidon>(form, column_hashes.into_iter().collect(), || random_node(rng));
        // Data of zeros: the encoded node is the key, which is the last label.
        let encoded = labels.parents.keys().map(|&node| (node, labels.columns[&node][labels.num_layers - 1]));
        let replica = SparseTree::build::<Poseidon>(form, encoded.collect(), || random_node(rng));
        Self { columns, replica }
    }

    fn proof<Tree: SectorTree>(&self, leaf: usize, labels: &Labels, data: &RunTree) -> VanillaProof<Tree> {
        let column = |node: usize| {
            let path = self.columns.path(node).into_tree_path::<Tree>();
            Column::<Tree>::new(node as u32, domains(&labels.columns[&node]), path)
        };
        let (drg_parents, exp_parents) = &labels.parents[&leaf];
        let columns_of = |parents: &[u32]| parents.iter().map(|&parent| column(parent as usize)).collect();
        let columns: Columns<Tree> = stacked::ReplicaColumnProof {
            c_x: column(leaf),
            drg_parents: columns_of(drg_parents),
            exp_parents: columns_of(exp_parents),
        };
        let data_path = data.path(leaf).into_data_path();
        let replica_path = self.replica.path(leaf).into_tree_path::<Tree>();
        assemble(leaf, data_path, replica_path, columns, labels.num_layers)
    }
}

fn domains(rows: &[Node]) -> Vec<PoseidonDomain> {
    rows.iter().copied().map(PoseidonDomain::from).collect()
}

fn column_hash(node: usize, rows: &[Node]) -> Node {
    let column = stacked::Column::<PoseidonHasher>::new(node as u32, domains(rows))
        .expect("columns of any rows can be made");
    PoseidonDomain::from(column.hash()).into()
}
