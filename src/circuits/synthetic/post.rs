//! Sealed sectors as far as a PoSt looks: its challenges follow from randomness and sector numbers, not from the trees,
//! so each sector's replica tree is hashed up from drawn leaves with drawn nodes beside their paths.

use filecoin_hashers::poseidon::{PoseidonDomain, PoseidonHasher};
use filecoin_hashers::{HashFunction, Hasher};
use filecoin_proofs::FallbackPoStSectorProof;
use rand_chacha::ChaCha20Rng;
use rand_core::{RngCore, SeedableRng};
use serde_json::{json, Map, Value};
use storage_proofs_core::sector::SectorId;
use storage_proofs_post::fallback::{self, PublicSector};

use super::tree::{Poseidon, SparseTree};
use super::{random_node, Facts, SyntheticJob, SyntheticOptions};
use crate::circuits::catalogue::{ProofVersion, RegisteredProof};
use crate::circuits::library::refused_request;
use crate::circuits::post::{challenged_leaf, public_params, PublicInputs};
use crate::circuits::request::prover_id;
use crate::circuits::vanilla::{Node, SectorTree, TreeForm};
use crate::circuits::{parallel, FilecoinRequest, ProofKind};
use crate::error::RequestError;

pub(super) fn generate<Tree: SectorTree>(
    options: &SyntheticOptions,
    mut rng: ChaCha20Rng,
) -> Result<SyntheticJob, RequestError> {
    let version = match options.kind {
        ProofKind::WindowPostPartition => ProofVersion::V1_2,
        _ => ProofVersion::V1,
    };
    let registered = RegisteredProof { kind: options.kind, sector_size: options.sector_size, version };
    let config = registered.post_config();
    let params = public_params::<Tree>(&config).map_err(refused_request)?;
    let num_sectors = options.sectors.map_or(config.sector_count, |sectors| sectors as usize);
    let miner_id = 1000 + u64::from(rng.next_u32() % 1_000_000);
    let mut randomness = random_node(&mut rng);
    // As the chain's actors clear them.
    randomness[31] &= 0b0011_1111;
    let numbers = rising_numbers(num_sectors, &mut rng);
    let public =
        |sector: &u64| PublicSector { id: SectorId::from(*sector), comm_r: PoseidonDomain::default() };
    let inputs = PublicInputs {
        randomness: randomness.into(),
        prover_id: prover_id(miner_id).into(),
        sectors: numbers.iter().map(public).collect(),
        k: Some(0),
    };
    let seeds: Vec<Node> = numbers
        .iter()
        .map(|_| {
            let mut seed = [0; 32];
            rng.fill_bytes(&mut seed);
            seed
        })
        .collect();
    let form = TreeForm::replica(options.sector_size);
    let sector = |place: usize| {
        let leaf = |number| challenged_leaf(&config, &params.vanilla_params, &inputs, place, number) as usize;
        let leaves = (0..config.challenge_count).map(leaf).collect();
        Sector::draw::<Tree>(numbers[place], leaves, form, seeds[place])
    };
    let sectors = parallel::map(seeds.len(), &sector);
    let sectors: Vec<Sector> = sectors.into_iter().collect::<Result<_, _>>()?;
    let facts = facts(&sectors, randomness);
    let request = FilecoinRequest {
        proof_kind: Some(options.kind),
        sector_size: options.sector_size.bytes(),
        registered_proof: registered.number(),
        vanilla_proofs: sectors.into_iter().map(|sector| sector.proof).collect(),
        miner_id,
        randomness: randomness.to_vec(),
        ..FilecoinRequest::default()
    };
    Ok(SyntheticJob::new(options, registered, request, facts))
}

/// Numbers of a miner's sectors: some are missing in between.
fn rising_numbers(num_sectors: usize, rng: &mut ChaCha20Rng) -> Vec<u64> {
    let mut number = u64::from(rng.next_u32() % 1_000_000);
    let numbers = (0..num_sectors).map(|_| {
        number += 1 + u64::from(rng.next_u32() % 8);
        number
    });
    numbers.collect()
}

fn facts(sectors: &[Sector], randomness: Node) -> Facts {
    let listed: Vec<Value> = sectors
        .iter()
        .map(|sector| json!({ "sector_number": sector.number, "comm_r": hex::encode(sector.comm_r) }))
        .collect();
    let leaves: Map<String, Value> =
        sectors.iter().map(|sector| (sector.number.to_string(), json!(sector.leaves))).collect();
    Facts::new()
        .node("randomness", randomness)
        .value("sectors", listed.clone().into())
        .value("challenged_leaves", leaves.into())
        .request_value("sectors", listed.into())
}

/// One sector and its vanilla proof.
struct Sector {
    number: u64,
    comm_r: Node,
    leaves: Vec<usize>,
    /// bincode
    proof: Vec<u8>,
}

impl Sector {
    fn draw<Tree: SectorTree>(
        number: u64,
        leaves: Vec<usize>,
        form: TreeForm,
        seed: Node,
    ) -> Result<Self, RequestError> {
        let mut rng = ChaCha20Rng::from_seed(seed);
        let comm_c = random_node(&mut rng);
        let drawn = leaves.iter().map(|&leaf| (leaf, random_node(&mut rng))).collect();
        let tree = SparseTree::build::<Poseidon>(form, drawn, || random_node(&mut rng));
        let (comm_c, comm_r_last): (PoseidonDomain, PoseidonDomain) = (comm_c.into(), tree.root().into());
        let comm_r = <PoseidonHasher as Hasher>::Function::hash2(&comm_c, &comm_r_last);
        let paths = leaves.iter().map(|&leaf| tree.path(leaf).into_tree_path::<Tree>());
        let sector =
            fallback::SectorProof::<Tree::Proof> { inclusion_proofs: paths.collect(), comm_c, comm_r_last };
        let proof = FallbackPoStSectorProof::<Tree> {
            sector_id: SectorId::from(number),
            comm_r,
            vanilla_proof: fallback::Proof { sectors: vec![sector] },
        };
        let proof = bincode::serialize(&proof).map_err(refused_request)?;
        Ok(Self { number, comm_r: comm_r.into(), leaves, proof })
    }
}
