//! A partition's vanilla proofs, checked as the library would, but with the place of what is wrong.

use filecoin_hashers::poseidon::{PoseidonDomain, PoseidonHasher};
use filecoin_hashers::sha256::Sha256Hasher;
use filecoin_hashers::{HashFunction, Hasher};
use storage_proofs_core::drgraph::Graph;
use storage_proofs_core::merkle::MerkleProofTrait;

use super::library_form::{library_proof, parents};
use super::{Column, Partition, PublicInputs, PublicParams, VanillaProof};
use crate::circuits::library::refused_request;
use crate::circuits::vanilla::c1::ChallengeProof;
use crate::circuits::vanilla::{check_data_path, check_tree_path, refuse, SectorTree};
use crate::circuits::{native, parallel};
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
    // Milliseconds of a core each at 32 GiB, of which a job has 180.
    let checked = parallel::map(proofs.len(), &|challenge| {
        let at = format!("partition {number} challenge {challenge}");
        let (proof, own) = (&proofs[challenge], &challenges[challenge]);
        check_challenge(&at, proof, own, params, inputs, &comm_c, &comm_r_last)
    });
    // The first one's error, whichever came first.
    checked.into_iter().collect::<Result<(), _>>()?;
    Ok(Partition { proofs, challenges })
}

/// `own` is the same proof as the native witness reads it.
fn check_challenge<Tree: SectorTree>(
    at: &str,
    proof: &VanillaProof<Tree>,
    own: &native::porep::Challenge,
    params: &PublicParams<Tree>,
    inputs: &PublicInputs,
    comm_c: &PoseidonDomain,
    comm_r_last: &PoseidonDomain,
) -> Result<(), RequestError> {
    let leaf = own.challenge as usize;
    let tau = inputs.tau.as_ref().expect("public inputs were made with both commitments");
    check_data_path(format_args!("{at} comm_d path"), &proof.comm_d_proofs, leaf, tau.comm_d.as_ref())?;
    check_tree_path(
        format_args!("{at} comm_r_last path"),
        &proof.comm_r_last_proof,
        leaf,
        comm_r_last.as_ref(),
    )?;
    let columns = &proof.replica_column_proofs;
    let num_layers = params.vanilla_params.num_layers;
    let (drg_parents, exp_parents) = parents(leaf, params).map_err(refused_request)?;
    let own_columns = [(&columns.c_x, &own.column, leaf as u32)];
    check_columns::<Tree>(&|_| format!("{at} column c_x"), own_columns, comm_c, num_layers)?;
    for (name, columns, own, leaves) in [
        ("drg_parents", &columns.drg_parents, &own.drg_parents, &drg_parents),
        ("exp_parents", &columns.exp_parents, &own.exp_parents, &exp_parents),
    ] {
        let paths = own.iter().map(native::porep::Column::path);
        let parents =
            columns.iter().zip(paths).zip(leaves).map(|((column, path), &leaf)| (column, path, leaf));
        check_columns::<Tree>(
            &|parent| format!("{at} column {name}[{parent}]"),
            parents,
            comm_c,
            num_layers,
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

/// Fails unless every column's rows hash to the leaf that is said beside it of the column tree, as its path proves. `at` names
/// the column with a number.
fn check_columns<'c, Tree: SectorTree>(
    at: &dyn Fn(usize) -> String,
    columns: impl IntoIterator<Item = (&'c Column<Tree>, &'c native::Path, u32)>,
    comm_c: &PoseidonDomain,
    num_layers: usize,
) -> Result<(), RequestError> {
    let mut rows = Vec::with_capacity(num_layers);
    for (number, (column, path, leaf)) in columns.into_iter().enumerate() {
        rows.clear();
        for layer in 1..=num_layers {
            rows.push((*column.get_node_at_layer(layer).map_err(refused_request)?).into());
        }
        // By the hash of our own witnesses, which is quicker and climbs the path once, not twice. Before a column is
        // refused the library has looked at it too.
        let leads =
            column.root() == *comm_c && path.leads(native::hash(&rows), leaf.into(), (*comm_c).into());
        if !leads && !column.verify(leaf, comm_c) {
            return refuse(
                at(number),
                format_args!(
                    "its rows do not hash to a leaf whose path leads to leaf {leaf} of the column tree {}",
                    hex::encode(comm_c)
                ),
            );
        }
    }
    Ok(())
}
