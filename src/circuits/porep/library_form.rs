//! Vanilla proofs in the library's form, and in the native witness's.

use filecoin_hashers::poseidon::{PoseidonDomain, PoseidonHasher};
use storage_proofs_core::drgraph::Graph;
use storage_proofs_porep::stacked::{self, TOTAL_PARENTS};

use super::{Column, Columns, PublicParams, VanillaProof};
use crate::circuits::library::{refused, refused_request};
use crate::circuits::native;
use crate::circuits::vanilla::c1::{ChallengeProof, ColumnProof};
use crate::circuits::vanilla::{refuse, DataPath, SectorTree, TreePath};
use crate::error::{RequestError, SynthesisError};

type Labeling = stacked::LabelingProof<PoseidonHasher>;
type Encoding = stacked::EncodingProof<PoseidonHasher>;

/// A node's parents in the base graph and in the expander graph.
pub(in crate::circuits) fn parents<Tree: SectorTree>(
    leaf: usize,
    params: &PublicParams<Tree>,
) -> Result<(Vec<u32>, Vec<u32>), SynthesisError> {
    let graph = &params.vanilla_params.graph;
    let mut drg_parents = vec![0; graph.base_graph().degree()];
    graph.base_graph().parents(leaf, &mut drg_parents).map_err(refused)?;
    let mut exp_parents = vec![0; graph.expansion_degree()];
    graph.expanded_parents(leaf, &mut exp_parents).map_err(refused)?;
    Ok((drg_parents, exp_parents))
}

/// The library's form of a proof of node `leaf`, and the native witness's.
pub(super) fn library_proof<Tree: SectorTree>(
    at: &str,
    proof: ChallengeProof,
    leaf: usize,
    params: &PublicParams<Tree>,
) -> Result<(VanillaProof<Tree>, native::porep::Challenge), RequestError> {
    if let Some(labeling) = proof.labeling_proofs.iter().find(|labeling| labeling.node != leaf as u64) {
        let what = format_args!("is of node {}, challenge is node {leaf}", labeling.node);
        return refuse(format_args!("{at} labeling_proofs"), what);
    }
    let (drg_parents, exp_parents) = parents(leaf, params).map_err(refused_request)?;
    let columns = proof.replica_column_proofs;
    let (c_x, own) = library_column::<Tree>(columns.c_x, leaf as u32);
    let (drg_parents, native_drg_parents) = library_columns::<Tree>(columns.drg_parents, &drg_parents);
    let (exp_parents, native_exp_parents) = library_columns::<Tree>(columns.exp_parents, &exp_parents);
    let columns = stacked::ReplicaColumnProof { c_x, drg_parents, exp_parents };
    let data_path = proof.comm_d_proofs.into_data_path();
    let replica_path = proof.comm_r_last_proof.into_tree_path::<Tree>();
    let challenge = native::porep::Challenge {
        challenge: leaf as u64,
        data: native::Path::new(&data_path),
        replica: native::Path::new(&replica_path),
        column: own.into_path(),
        drg_parents: native_drg_parents,
        exp_parents: native_exp_parents,
    };
    Ok((assemble(leaf, data_path, replica_path, columns, params.vanilla_params.num_layers), challenge))
}

/// The proof of node `leaf`: its paths and columns, and the labels that follow from them.
pub(in crate::circuits) fn assemble<Tree: SectorTree>(
    leaf: usize,
    comm_d_proofs: DataPath,
    comm_r_last_proof: TreePath<Tree>,
    columns: Columns<Tree>,
    num_layers: usize,
) -> VanillaProof<Tree> {
    let labeling_proofs: Vec<Labeling> = (1..=num_layers)
        .map(|layer| Labeling::new(layer as u32, leaf as u64, parent_labels::<Tree>(&columns, layer)))
        .collect();
    let encoding_proof =
        Encoding::new(num_layers as u32, leaf as u64, parent_labels::<Tree>(&columns, num_layers));
    VanillaProof {
        comm_d_proofs,
        comm_r_last_proof,
        replica_column_proofs: columns,
        labeling_proofs,
        encoding_proof,
    }
}

fn library_columns<Tree: SectorTree>(
    columns: Vec<ColumnProof>,
    leaves: &[u32],
) -> (Vec<Column<Tree>>, Vec<native::porep::Column>) {
    columns.into_iter().zip(leaves).map(|(column, &leaf)| library_column::<Tree>(column, leaf)).unzip()
}

fn library_column<Tree: SectorTree>(column: ColumnProof, leaf: u32) -> (Column<Tree>, native::porep::Column) {
    let path = column.inclusion_proof.into_tree_path::<Tree>();
    let native = native::porep::Column::new(column.column.rows.clone(), native::Path::new(&path));
    let rows = column.column.rows.into_iter().map(PoseidonDomain::from).collect();
    (Column::<Tree>::new(leaf, rows, path), native)
}

/// The labels that a node's label in `layer` (from 1) is made of: those of its base parents in the same layer and,
/// above the first, of its expander parents in the layer below, repeated to fill the hash's blocks.
fn parent_labels<Tree: SectorTree>(columns: &Columns<Tree>, layer: usize) -> Vec<PoseidonDomain> {
    let label = |column: &Column<Tree>, layer| {
        *column.get_node_at_layer(layer).expect("columns were checked to have a row per layer")
    };
    let mut labels: Vec<_> = columns.drg_parents.iter().map(|column| label(column, layer)).collect();
    if layer > 1 {
        labels.extend(columns.exp_parents.iter().map(|column| label(column, layer - 1)));
    }
    labels.into_iter().cycle().take(TOTAL_PARENTS).collect()
}
