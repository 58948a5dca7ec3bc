//! SnapDeals: the proofs that new data was encoded into a sealed, empty sector.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use blstrs::Scalar;
use filecoin_hashers::poseidon::{PoseidonDomain, PoseidonHasher};
use filecoin_hashers::sha256::{Sha256Domain, Sha256Hasher};
use filecoin_hashers::{HashFunction, Hasher};
use storage_proofs_core::compound_proof::{self, CompoundProof};
use storage_proofs_core::merkle::MerkleProofTrait;
use storage_proofs_update::constants::h_default;
use storage_proofs_update::{
    phi, rho, ChallengeProof, Challenges, EmptySectorUpdate, EmptySectorUpdateCompound, PartitionProof,
    PublicInputs, PublicParams,
};

use crate::circuits::catalogue::RegisteredProof;
use crate::circuits::library::{
    accepted, answers_of_header, compares_streamed, prepared_key, read_proofs, refused,
};
use crate::circuits::request::{FilecoinRequest, JobHeader};
use crate::circuits::vanilla::{
    check_data_path, check_tree_path, refuse, with_tree, SectorTree, UpdatePartitionProof,
};
use crate::circuits::workload::partition_of;
use crate::circuits::{native, parallel, CircuitSpec, ProofKind, SectorSize, WorkKind, Workload};
use crate::error::{RequestError, SynthesisError};
use crate::groth16::sink::{synthesis, Synthesis};
use crate::groth16::{PackedWitness, R1csShape, VerifyingKey};
use crate::ids::PartitionIndex;

type Compound<Tree> = EmptySectorUpdateCompound<Tree>;
type Scheme<Tree> = EmptySectorUpdate<Tree>;
type VanillaProof<Tree> = PartitionProof<Tree>;

/// A decoded SnapDeals request.
struct SnapJob<Tree: SectorTree> {
    header: JobHeader,
    params: PublicParams,
    /// With `k` 0; every use names its partition.
    inputs: PublicInputs,
    partitions: Vec<VanillaProof<Tree>>,
}

impl<Tree: SectorTree> fmt::Debug for SnapJob<Tree> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SnapJob")
            .field("header", &self.header)
            .field("partitions", &self.partitions.len())
            .finish_non_exhaustive()
    }
}

/// Decodes and checks a SnapDeals request.
pub(super) fn decode(
    request: &FilecoinRequest,
    params_dir: &Path,
) -> Result<Arc<dyn Workload>, RequestError> {
    let registered = request.registered(ProofKind::SnapDealsUpdate)?;
    with_tree!(registered.sector_size, decode_tree(request, registered, params_dir))
}

fn decode_tree<Tree: SectorTree>(
    request: &FilecoinRequest,
    registered: RegisteredProof,
    params_dir: &Path,
) -> Result<Arc<dyn Workload>, RequestError> {
    let sector_size = registered.sector_size;
    let params = PublicParams::from_sector_size(sector_size.bytes());
    let inputs = PublicInputs {
        k: 0,
        comm_r_old: request.commitment("comm_r_old", &request.comm_r_old)?.into(),
        comm_d_new: Sha256Domain(request.commitment("comm_d_new", &request.comm_d_new)?),
        comm_r_new: request.commitment("comm_r_new", &request.comm_r_new)?.into(),
        h: h_default(params.sector_nodes),
    };
    let (needs, has) = (params.partition_count, request.vanilla_proofs.len());
    if needs != has {
        let what = format!("needs {needs} (one per partition of {sector_size} sectors), has {has}");
        return Err(request.field_error("vanilla_proofs", what));
    }
    let decoded = parallel::map(needs, &|number| {
        decode_partition(number, &request.vanilla_proofs[number], sector_size, &params, &inputs)
    });
    // The first one's error, whichever came first.
    let partitions = decoded.into_iter().collect::<Result<_, _>>()?;
    let spec = CircuitSpec::new(ProofKind::SnapDealsUpdate, sector_size);
    let header = JobHeader::new(request, registered, &spec, params_dir, request.sector_number);
    Ok(Arc::new(SnapJob::<Tree> { header, params, inputs, partitions }))
}

fn decode_partition<Tree: SectorTree>(
    number: usize,
    bytes: &[u8],
    sector_size: SectorSize,
    params: &PublicParams,
    inputs: &PublicInputs,
) -> Result<VanillaProof<Tree>, RequestError> {
    let at = format!("vanilla_proofs[{number}]");
    let params_of = |size: SectorSize| PublicParams::from_sector_size(size.bytes());
    let read = UpdatePartitionProof::read(
        &at,
        bytes,
        sector_size,
        |size| params_of(size).challenge_count,
        |size| params_of(size).apex_leaf_count,
    )?;
    let proof = VanillaProof {
        comm_c: read.comm_c.into(),
        apex_leafs: read.apex_leafs.into_iter().map(Sha256Domain).collect(),
        challenge_proofs: read
            .challenge_proofs
            .into_iter()
            .map(|challenge| ChallengeProof {
                proof_r_old: challenge.proof_r_old.into_tree_path::<Tree>(),
                proof_d_new: challenge.proof_d_new.into_data_path(),
                proof_r_new: challenge.proof_r_new.into_tree_path::<Tree>(),
            })
            .collect(),
    };
    check_partition(&at, number, &proof, params, inputs)?;
    Ok(proof)
}

/// Checks a partition as the library would (storage-proofs-update `vanilla.rs`, `verify`) and, beyond that, the apex
/// tree as the circuit does; and says where it fails.
fn check_partition<Tree: SectorTree>(
    at: &str,
    number: usize,
    proof: &VanillaProof<Tree>,
    params: &PublicParams,
    inputs: &PublicInputs,
) -> Result<(), RequestError> {
    let first = &proof.challenge_proofs[0];
    let (root_old, root_new) = (first.proof_r_old.root(), first.proof_r_new.root());
    let comms = [("comm_r_old", root_old, inputs.comm_r_old), ("comm_r_new", root_new, inputs.comm_r_new)];
    for (name, root, comm_r) in comms {
        if <PoseidonHasher as Hasher>::Function::hash2(&proof.comm_c, &root) != comm_r {
            return refuse(
                at,
                format_args!("{name} is not the hash of its comm_c and of its replica paths' root"),
            );
        }
    }
    let phi = phi(&inputs.comm_d_new, &inputs.comm_r_old);
    let challenges = Challenges::new(params.sector_nodes, inputs.comm_r_new, number);
    let challenges: Vec<usize> = challenges.map(|leaf| leaf as usize).collect();
    let checked = parallel::map(proof.challenge_proofs.len(), &|challenge| {
        let at = format!("{at} challenge {challenge}");
        let (paths, leaf) = (&proof.challenge_proofs[challenge], challenges[challenge]);
        check_own_partition(&at, paths, number, params)?;
        check_tree_path(format_args!("{at} old replica path"), &paths.proof_r_old, leaf, root_old.as_ref())?;
        check_data_path(
            format_args!("{at} new data path"),
            &paths.proof_d_new,
            leaf,
            inputs.comm_d_new.as_ref(),
        )?;
        check_tree_path(format_args!("{at} new replica path"), &paths.proof_r_new, leaf, root_new.as_ref())?;
        check_encoding(&at, paths, rho(&phi, (leaf >> (params.challenge_bit_len - inputs.h)) as u32))?;
        check_apex_leaf(&at, paths, leaf, &proof.apex_leafs, params)
    });
    // The first one's error, whichever came first.
    checked.into_iter().collect::<Result<(), _>>()?;
    check_apex_tree(at, number, proof, params)
}

/// A path into another partition's part of the sector means that partitions were swapped or repeated.
fn check_own_partition<Tree: SectorTree>(
    at: &str,
    paths: &ChallengeProof<Tree>,
    number: usize,
    params: &PublicParams,
) -> Result<(), RequestError> {
    let leaf = paths.proof_d_new.path_index();
    let belongs_to = leaf >> (params.challenge_bit_len - params.partition_bit_len);
    if belongs_to == number {
        return Ok(());
    }
    refuse(at, format_args!("leads to leaf {leaf} of partition {belongs_to}, but is partition {number}'s"))
}

fn check_encoding<Tree: SectorTree>(
    at: &str,
    paths: &ChallengeProof<Tree>,
    rho: Scalar,
) -> Result<(), RequestError> {
    let old: Scalar = paths.proof_r_old.leaf().into();
    let data: Scalar = paths.proof_d_new.leaf().into();
    if PoseidonDomain::from(old + data * rho) == paths.proof_r_new.leaf() {
        return Ok(());
    }
    refuse(at, "the new replica's leaf is not the old one's with the new data encoded into it")
}

fn hash2(left: &Sha256Domain, right: &Sha256Domain) -> Sha256Domain {
    <Sha256Hasher as Hasher>::Function::hash2(left, right)
}

/// Hashes `node` up through `levels` of a data path.
fn climb(node: Sha256Domain, levels: &[(Vec<Sha256Domain>, usize)]) -> Sha256Domain {
    levels.iter().fold(node, |node, (siblings, index)| match index {
        0 => hash2(&node, &siblings[0]),
        _ => hash2(&siblings[0], &node),
    })
}

/// The node of a data path at the apex leaves' height must be the apex leaf above the challenge.
fn check_apex_leaf<Tree: SectorTree>(
    at: &str,
    paths: &ChallengeProof<Tree>,
    leaf: usize,
    apex_leafs: &[Sha256Domain],
    params: &PublicParams,
) -> Result<(), RequestError> {
    let height = params.challenge_bit_len - params.partition_bit_len - params.apex_leaf_bit_len;
    let node = climb(paths.proof_d_new.leaf(), &paths.proof_d_new.path()[..height]);
    let index = (leaf >> height) % params.apex_leaf_count;
    if apex_leafs[index] == node {
        return Ok(());
    }
    refuse(at, format_args!("new data path passes a node that is not apex leaf {index}"))
}

/// The apex leaves must hash to `comm_d_new` through the partition's part of the data paths.
fn check_apex_tree<Tree: SectorTree>(
    at: &str,
    number: usize,
    proof: &VanillaProof<Tree>,
    params: &PublicParams,
) -> Result<(), RequestError> {
    let mut row = proof.apex_leafs.clone();
    while row.len() > 1 {
        row = row.chunks(2).map(|pair| hash2(&pair[0], &pair[1])).collect();
    }
    let data_path = &proof.challenge_proofs[0].proof_d_new;
    let height = params.challenge_bit_len - params.partition_bit_len;
    if climb(row[0], &data_path.path()[height..]) == data_path.root() {
        return Ok(());
    }
    refuse(at, format_args!("apex leaves do not hash to comm_d_new's partition {number}"))
}

impl<Tree: SectorTree> SnapJob<Tree> {
    /// The library's own circuit of a partition.
    fn library_circuit(&self, partition: PartitionIndex) -> Result<Synthesis<'static>, SynthesisError> {
        let proof = partition_of(&self.partitions, partition)?;
        let number = Some(partition.0 as usize);
        <Compound<Tree> as CompoundProof<Scheme<Tree>, _>>::circuit(
            &self.inputs,
            (),
            proof,
            &self.params,
            number,
        )
        .map(synthesis)
        .map_err(refused)
    }
}

impl<Tree: SectorTree> Workload for SnapJob<Tree> {
    fn kind(&self) -> WorkKind {
        WorkKind::SnapUpdate
    }

    answers_of_header!();

    fn num_partitions(&self) -> u32 {
        self.partitions.len() as u32
    }

    fn record_shape(&self) -> Result<R1csShape, SynthesisError> {
        R1csShape::record_synthesis(blank(self.header.registered.sector_size)?)
    }

    fn synthesize(
        &self,
        partition: PartitionIndex,
        shape: &R1csShape,
    ) -> Result<PackedWitness, SynthesisError> {
        let proof = partition_of(&self.partitions, partition)?;
        let (params, inputs) = (&self.params, &self.inputs);
        let arities = || native::Path::new(&proof.challenge_proofs[0].proof_r_old).arities();
        native::make(
            &self.circuit().to_string(),
            || native::check_snap::<Tree>(params, inputs.h, &arities()),
            || {
                let number = partition.0 as usize;
                native::snap::witness(
                    shape.classes(),
                    &native::snap::Partition { params, inputs, number, proof },
                )
            },
            || PackedWitness::collect(self.library_circuit(partition)?, shape),
        )
    }

    compares_streamed!();

    fn public_inputs(&self, partition: PartitionIndex) -> Result<Vec<Scalar>, SynthesisError> {
        partition_of(&self.partitions, partition)?;
        let number = Some(partition.0 as usize);
        <Compound<Tree> as CompoundProof<Scheme<Tree>, _>>::generate_public_inputs(
            &self.inputs,
            &self.params,
            number,
        )
        .map_err(refused)
    }

    fn verify_job(&self, vk: &VerifyingKey, proof: &[u8]) -> Result<(), RequestError> {
        let key = prepared_key(vk);
        let proofs = read_proofs(proof, self.partitions.len(), &key)?;
        let params: compound_proof::PublicParams<'_, Scheme<Tree>> = compound_proof::PublicParams {
            vanilla_params: self.params.clone(),
            partitions: Some(self.partitions.len()),
            priority: false,
        };
        accepted(<Compound<Tree> as CompoundProof<Scheme<Tree>, _>>::verify(
            &params,
            &self.inputs,
            &proofs,
            &(),
        ))
    }
}

/// The blank circuit.
pub(super) fn blank(sector_size: SectorSize) -> Result<Synthesis<'static>, SynthesisError> {
    Ok(with_tree!(sector_size, blank_tree(sector_size)))
}

fn blank_tree<Tree: SectorTree>(sector_size: SectorSize) -> Synthesis<'static> {
    let params = PublicParams::from_sector_size(sector_size.bytes());
    synthesis(<Compound<Tree> as CompoundProof<Scheme<Tree>, _>>::blank_circuit(&params))
}
