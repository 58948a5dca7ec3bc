//! A partition's vanilla proofs, checked as the library would, but with the place of what is wrong.

use std::fmt;

use filecoin_hashers::poseidon::{PoseidonDomain, PoseidonHasher};
use filecoin_hashers::sha256::Sha256Hasher;
use filecoin_hashers::{HashFunction, Hasher};
use storage_proofs_core::drgraph::Graph;
use storage_proofs_core::merkle::MerkleProofTrait;

use super::library_form::{library_proof, parents};
use super::{Column, Partition, PublicInputs, PublicParams, VanillaProof};
use crate::circuits::library::refused_request;
use crate::circuits::parallel;
use crate::circuits::vanilla::c1::ChallengeProof;
use crate::circuits::vanilla::{check_path, refuse, SectorTree};
use crate::error::RequestError;

/// Checks a partition as the library would (storage-proofs-porep `stacked/vanilla/proof_scheme.rs`,
/// `verify_all_partitions`), but says where it fails.
pub(super) fn check_partition<Tree: SectorTree>(
    number: usize,
    challenges: Vec<ChallengeProof>,
    params: &PublicParams<Tree>,
    inputs: &PublicInputs,
) -> Result<Partition<Tree>, RequestError> {
    let vanilla = &params.vanilla_params;
    let tau = inputs.tau.as_ref().expect("public inputs were made with both commitments");
    let challenged = inputs.challenges(&vanilla.challenges, vanilla.graph.size(), Some(number));
    let (proofs, challenges): (Vec<VanillaProof<Tree>>, Vec<_>) = challenges
        .into_iter()
        .zip(&challenged)
        .enumerate()
        .map(|(challenge, (proof, &leaf))| {
            library_proof(&format!("partition {number} challenge {challenge}"), proof, leaf, params)
        })
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .unzip();
    let (comm_c, comm_r_last) = (proofs[0].comm_c(), proofs[0].comm_r_last());
    if <PoseidonHasher as Hasher>::Function::hash2(&comm_c, &comm_r_last) != tau.comm_r {
        return refuse(
            format_args!("partition {number}"),
            "comm_r is not the hash of the roots of its column and replica trees",
        );
    }
    // Eight milliseconds of a core each at 32 GiB, of which a job has 180.
    let checked = parallel::map(proofs.len(), &|challenge| {
        let at = format!("partition {number} challenge {challenge}");
        let (proof, leaf) = (&proofs[challenge], challenged[challenge]);
        check_challenge(&at, proof, leaf, params, inputs, &comm_c, &comm_r_last)
    });
    // The first one's error, whichever came first.
    checked.into_iter().collect::<Result<(), _>>()?;
    Ok(Partition { proofs, challenges })
}

fn check_challenge<Tree: SectorTree>(
    at: &str,
    proof: &VanillaProof<Tree>,
    leaf: usize,
    params: &PublicParams<Tree>,
    inputs: &PublicInputs,
    comm_c: &PoseidonDomain,
    comm_r_last: &PoseidonDomain,
) -> Result<(), RequestError> {
    let tau = inputs.tau.as_ref().expect("public inputs were made with both commitments");
    check_path(format_args!("{at} comm_d path"), &proof.comm_d_proofs, leaf, tau.comm_d.as_ref())?;
    check_path(format_args!("{at} comm_r_last path"), &proof.comm_r_last_proof, leaf, comm_r_last.as_ref())?;
    let columns = &proof.replica_column_proofs;
    check_column::<Tree>(format_args!("{at} column c_x"), &columns.c_x, leaf, comm_c)?;
    let (drg_parents, exp_parents) = parents(leaf, params).map_err(refused_request)?;
    for (parent, (column, &leaf)) in columns.drg_parents.iter().zip(&drg_parents).enumerate() {
        check_column::<Tree>(
            format_args!("{at} column drg_parents[{parent}]"),
            column,
            leaf as usize,
            comm_c,
        )?;
    }
    for (parent, (column, &leaf)) in columns.exp_parents.iter().zip(&exp_parents).enumerate() {
        check_column::<Tree>(
            format_args!("{at} column exp_parents[{parent}]"),
            column,
            leaf as usize,
            comm_c,
        )?;
    }
    for (row, labeling) in proof.labeling_proofs.iter().enumerate() {
        let label = columns.c_x.get_node_at_layer(row + 1).map_err(refused_request)?;
        if !labeling.verify(&inputs.replica_id, label) {
            let what = "label is not the one of its parents and the replica id";
            return refuse(format_args!("{at} column c_x row {row}"), what);
        }
    }
    let (data, replica) = (proof.comm_d_proofs.leaf(), proof.comm_r_last_proof.leaf());
    if !proof.encoding_proof.verify::<Sha256Hasher>(&inputs.replica_id, &replica, &data) {
        return refuse(at, "replica leaf is not the data leaf encoded with the last label");
    }
    Ok(())
}

fn check_column<Tree: SectorTree>(
    at: impl fmt::Display,
    column: &Column<Tree>,
    leaf: usize,
    comm_c: &PoseidonDomain,
) -> Result<(), RequestError> {
    if column.verify(leaf as u32, comm_c) {
        return Ok(());
    }
    refuse(
        at,
        format_args!(
            "its rows do not hash to a leaf whose path leads to leaf {leaf} of the column tree {}",
            hex::encode(comm_c)
        ),
    )
}
