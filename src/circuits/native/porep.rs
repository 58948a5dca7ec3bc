//! The witness of a PoRep partition (storage-proofs-porep `stacked/circuit/{proof,params}.rs`).

use blstrs::Scalar;
use ff::PrimeField;
use filecoin_hashers::poseidon::PoseidonDomain;
use filecoin_hashers::sha256::Sha256Domain;

use super::merkle::{Path, Tree};
use super::sha256::{label, node_words, NodeWords};
use super::writer::{fill, node, Writer};
use super::{poseidon, Misfit};
use crate::groth16::packed::{PackedWitness, VariableClasses};

/// What a partition's challenges share.
#[derive(Clone)]
pub(in crate::circuits) struct Commitments {
    pub replica_id: PoseidonDomain,
    pub comm_d: Sha256Domain,
    pub comm_r: PoseidonDomain,
    pub comm_r_last: PoseidonDomain,
    pub comm_c: PoseidonDomain,
}

/// What the circuit reads of one challenge's vanilla proof.
#[derive(Clone)]
pub(in crate::circuits) struct Challenge {
    pub challenge: u64,
    pub data: Path,
    pub replica: Path,
    pub column: Path,
    /// Base parents, then expander parents, each in the graph's order.
    pub drg_parents: Vec<Column>,
    pub exp_parents: Vec<Column>,
}

/// A parent's column of labels and its path in the column tree.
#[derive(Clone)]
pub(in crate::circuits) struct Column {
    /// `[layer]`, canonical.
    rows: Vec<[u8; 32]>,
    path: Path,
}

impl Column {
    pub fn new(rows: Vec<[u8; 32]>, path: Path) -> Self {
        Self { rows, path }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn into_path(self) -> Path {
        self.path
    }

    /// Its labels as SHA-256 reads them.
    fn words(&self) -> Vec<NodeWords> {
        self.rows.iter().map(node_words).collect()
    }
}

/// The witness of a partition.
///
/// # Errors
/// If the circuit whose variables are `classes` is another.
pub(in crate::circuits) fn witness(
    classes: &VariableClasses,
    commitments: &Commitments,
    challenges: &[Challenge],
) -> Result<PackedWitness, Misfit> {
    let replica_id: [u8; 32] = commitments.replica_id.into();
    fill(
        classes,
        |writer| write_head(writer, commitments),
        challenges,
        |writer, challenge| write_challenge(writer, node_words(&replica_id), challenge),
    )
}

fn write_head(writer: &mut Writer<'_>, commitments: &Commitments) {
    let replica_id: Scalar = commitments.replica_id.into();
    let comm_d: Scalar = commitments.comm_d.into();
    let [comm_r, comm_r_last, comm_c]: [Scalar; 3] =
        [commitments.comm_r, commitments.comm_r_last, commitments.comm_c].map(Into::into);
    writer.num(replica_id);
    writer.input(replica_id);
    writer.decomposition(&node(&replica_id));
    for public in [comm_d, comm_r] {
        writer.num(public);
        writer.input(public);
    }
    writer.nums(&[comm_r_last, comm_c]);
    poseidon::hash(writer, &[comm_c, comm_r_last]);
}

fn write_challenge(writer: &mut Writer<'_>, replica_id: NodeWords, challenge: &Challenge) {
    let data_leaf = challenge.data.leaf();
    writer.num(data_leaf);
    Tree::Sha256.include(writer, data_leaf, &challenge.data);
    for column in challenge.drg_parents.iter().chain(&challenge.exp_parents) {
        write_column(writer, column);
    }
    writer.bits(challenge.challenge, 64);
    writer.input(Scalar::from(challenge.challenge));
    let labels = write_labels(writer, replica_id, challenge);
    let key = labels.last().expect("a column has layers");
    let encoded = key + data_leaf;
    writer.num(encoded);
    Tree::Poseidon.include(writer, encoded, &challenge.replica);
    let column = poseidon::hash(writer, &labels);
    Tree::Poseidon.include(writer, column, &challenge.column);
}

fn write_column(writer: &mut Writer<'_>, column: &Column) {
    let scalar =
        |row: &[u8; 32]| Scalar::from_repr_vartime(*row).expect("nodes were checked to be canonical");
    let rows: Vec<Scalar> = column.rows.iter().map(scalar).collect();
    writer.nums(&rows);
    let leaf = poseidon::hash(writer, &rows);
    Tree::Poseidon.include(writer, leaf, &column.path);
}

/// The challenged column's labels: above the first layer a label has the expander parents' labels of the layer below
/// among its parents.
fn write_labels(writer: &mut Writer<'_>, replica_id: NodeWords, challenge: &Challenge) -> Vec<Scalar> {
    let words = |columns: &[Column]| columns.iter().map(Column::words).collect::<Vec<_>>();
    let (drg, exp) = (words(&challenge.drg_parents), words(&challenge.exp_parents));
    let num_layers = drg[0].len();
    let mut labels = Vec::with_capacity(num_layers);
    let mut parents = Vec::with_capacity(drg.len() + exp.len());
    for layer in 0..num_layers {
        parents.clear();
        for (column, words) in challenge.drg_parents.iter().zip(&drg) {
            writer.decomposition(&column.rows[layer]);
            parents.push(words[layer]);
        }
        if let Some(below) = layer.checked_sub(1) {
            for (column, words) in challenge.exp_parents.iter().zip(&exp) {
                writer.decomposition(&column.rows[below]);
                parents.push(words[below]);
            }
        }
        labels.push(label(writer, replica_id, layer as u32 + 1, challenge.challenge, &parents));
    }
    labels
}
