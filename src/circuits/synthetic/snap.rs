//! A sector update from data, keys and replicas that are equal in runs.
//!
//! An update's challenges follow from the new replica's root, so every leaf must have a path before they are known.
//! Leaves that are equal in runs allow that: a tree of them has few distinct nodes. A run lies within the nodes that
//! share one encoding factor (`rho` depends on a node's `h` high bits), so that the new replica, `old + data * rho`, is
//! equal in the same runs.

use blstrs::Scalar;
use ff::PrimeField;
use filecoin_hashers::poseidon::{PoseidonDomain, PoseidonHasher};
use filecoin_hashers::sha256::Sha256Domain;
use filecoin_hashers::{HashFunction, Hasher};
use rand_chacha::ChaCha20Rng;
use rand_core::RngCore;
use storage_proofs_update::constants::h_default;
use storage_proofs_update::{phi, rho, ChallengeProof, Challenges, PartitionProof, PublicParams};

use super::tree::{Poseidon, RunTree, Sha256Nodes};
use super::{random_node, Facts, SyntheticJob, SyntheticOptions};
use crate::circuits::catalogue::{ProofVersion, RegisteredProof};
use crate::circuits::library::refused_request;
use crate::circuits::vanilla::{Node, SectorTree, TreeForm};
use crate::circuits::{parallel, FilecoinRequest, ProofKind};
use crate::error::RequestError;

/// Runs of a tree, unless the sector has fewer leaves: four or more in the nodes of each encoding factor (there are
/// 2^10 factors), and a second of hashing.
const MAX_RUNS: usize = 4096;

pub(super) fn generate<Tree: SectorTree>(
    options: &SyntheticOptions,
    mut rng: ChaCha20Rng,
) -> Result<SyntheticJob, RequestError> {
    let registered = RegisteredProof {
        kind: ProofKind::SnapDealsUpdate,
        sector_size: options.sector_size,
        version: ProofVersion::V1,
    };
    let params = PublicParams::from_sector_size(options.sector_size.bytes());
    let update = Update::draw(&params, options, &mut rng);
    let partition = |k| bincode::serialize(&update.partition::<Tree>(k, &params)).map_err(refused_request);
    let proofs = parallel::map(params.partition_count, &partition);
    let proofs: Vec<Vec<u8>> = proofs.into_iter().collect::<Result<_, _>>()?;
    let (miner_id, sector_number) =
        (1000 + u64::from(rng.next_u32() % 1_000_000), 1 + u64::from(rng.next_u32() % 1_000_000));
    let comm_d_new = update.data.root();
    let facts = Facts::new()
        .number("sector_number", sector_number)
        .node("comm_r_old", update.comm_r_old.into())
        .node("comm_r_new", update.comm_r_new.into())
        .node("comm_d_new", comm_d_new);
    let request = FilecoinRequest {
        proof_kind: Some(ProofKind::SnapDealsUpdate),
        sector_size: options.sector_size.bytes(),
        registered_proof: registered.number(),
        vanilla_proofs: proofs,
        sector_number,
        miner_id,
        comm_r_old: Node::from(update.comm_r_old).to_vec(),
        comm_r_new: Node::from(update.comm_r_new).to_vec(),
        comm_d_new: comm_d_new.to_vec(),
        ..FilecoinRequest::default()
    };
    Ok(SyntheticJob::new(options, registered, request, facts))
}

/// A sector before and after its update.
struct Update {
    comm_c: PoseidonDomain,
    old: RunTree,
    data: RunTree,
    new: RunTree,
    comm_r_old: PoseidonDomain,
    comm_r_new: PoseidonDomain,
}

impl Update {
    fn draw(params: &PublicParams, options: &SyntheticOptions, rng: &mut ChaCha20Rng) -> Self {
        let num_runs = params.sector_nodes.min(MAX_RUNS);
        let replica_form = TreeForm::replica(options.sector_size);
        let comm_c = random_node(rng).into();
        let old_leaves: Vec<Node> = (0..num_runs).map(|_| random_node(rng)).collect();
        let data_leaves: Vec<Node> = (0..num_runs).map(|_| random_data(rng)).collect();
        let data = RunTree::build::<Sha256Nodes>(TreeForm::data(options.sector_size), data_leaves.clone());
        let old = RunTree::build::<Poseidon>(replica_form, old_leaves.clone());
        let comm_r = |root: Node| <PoseidonHasher as Hasher>::Function::hash2(&comm_c, &root.into());
        let comm_r_old = comm_r(old.root());
        let phi = phi(&Sha256Domain(data.root()), &comm_r_old);
        let num_factors = 1 << h_default(params.sector_nodes);
        assert!(num_runs >= num_factors, "a run has one encoding factor");
        let factors: Vec<Scalar> = (0..num_factors as u32).map(|high| rho(&phi, high)).collect();
        let encode = |run: usize| {
            let factor = factors[run * num_factors / num_runs];
            (scalar(old_leaves[run]) + scalar(data_leaves[run]) * factor).to_repr()
        };
        let new = RunTree::build::<Poseidon>(replica_form, (0..num_runs).map(encode).collect());
        let comm_r_new = comm_r(new.root());
        Self { comm_c, old, data, new, comm_r_old, comm_r_new }
    }

    fn partition<Tree: SectorTree>(&self, k: usize, params: &PublicParams) -> PartitionProof<Tree> {
        let apex_level = params.challenge_bit_len - params.partition_bit_len - params.apex_leaf_bit_len;
        let first_apex = k * params.apex_leaf_count;
        let apex_leafs = (first_apex..first_apex + params.apex_leaf_count)
            .map(|index| Sha256Domain(self.data.node(apex_level, index)))
            .collect();
        let challenge_proofs = Challenges::new(params.sector_nodes, self.comm_r_new, k)
            .map(|leaf| ChallengeProof {
                proof_r_old: self.old.path(leaf as usize).into_tree_path::<Tree>(),
                proof_d_new: self.data.path(leaf as usize).into_data_path(),
                proof_r_new: self.new.path(leaf as usize).into_tree_path::<Tree>(),
            })
            .collect();
        PartitionProof { comm_c: self.comm_c, apex_leafs, challenge_proofs }
    }
}

fn scalar(node: Node) -> Scalar {
    PoseidonDomain::from(node).into()
}

/// 254 bits, as padded pieces have them.
fn random_data(rng: &mut ChaCha20Rng) -> Node {
    let mut node = [0; 32];
    rng.fill_bytes(&mut node);
    node[31] &= 0b0011_1111;
    node
}
