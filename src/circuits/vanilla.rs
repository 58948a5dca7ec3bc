//! Vanilla proofs as they come from outside: strict reading, and the checks that the libraries leave to panics.
//!
//! The types here mirror the libraries' serde forms. Reading into them instead of into the libraries' own types lets
//! every error name its place, and keeps what a circuit could not take (other numbers of levels or siblings, nodes
//! that are no field elements) from ever reaching library code. Only trees with one layer of arity 8 are read.

pub(super) mod c1;

use std::fmt;

use bincode::Options;
use blstrs::Scalar;
use ff::PrimeField;
use filecoin_hashers::poseidon::PoseidonDomain;
use filecoin_hashers::sha256::Sha256Domain;
use filecoin_proofs::constants::SectorShapeBase;
use filecoin_proofs::types::DataTree;
use serde::de::DeserializeOwned;
use serde::Deserialize;
use storage_proofs_core::merkle::{MerkleProofTrait, MerkleTreeTrait};

use crate::circuits::SectorSize;
use crate::error::RequestError;

/// A tree node: a scalar in canonical little-endian form, or a SHA-256 digest with the two top bits cleared.
pub(super) type Node = [u8; 32];

/// A path in a replica tree or a column tree (Poseidon, arity 8).
pub(super) type ReplicaPath = <SectorShapeBase as MerkleTreeTrait>::Proof;

/// A path in a data tree (SHA-256, arity 2).
pub(super) type DataPath = <DataTree as MerkleTreeTrait>::Proof;

/// An error at a place in a vanilla proof.
pub(super) fn refuse<T>(at: impl fmt::Display, what: impl fmt::Display) -> Result<T, RequestError> {
    Err(RequestError::VanillaProof { at: at.to_string(), what: what.to_string() })
}

/// Fails unless `has` is `needs`.
pub(super) fn check_count(
    at: impl fmt::Display,
    what: &str,
    needs: usize,
    has: usize,
) -> Result<(), RequestError> {
    if needs == has {
        return Ok(());
    }
    refuse(at, format_args!("needs {needs} {what}, has {has}"))
}

pub(super) fn is_canonical(node: &Node) -> bool {
    Scalar::from_repr_vartime(*node).is_some()
}

/// Fails unless the node is a canonical field element: the libraries panic on others (`from_repr failure`).
pub(super) fn check_node(at: impl fmt::Display, name: &str, node: &Node) -> Result<(), RequestError> {
    if is_canonical(node) {
        return Ok(());
    }
    refuse(at, format_args!("{name} {} is no canonical field element", hex::encode(node)))
}

/// The form that every path of a tree has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TreeForm {
    pub arity: usize,
    pub levels: usize,
}

impl TreeForm {
    /// Replica and column trees.
    pub fn replica(sector_size: SectorSize) -> Self {
        Self { arity: 8, levels: sector_size.num_nodes().ilog2() as usize / 3 }
    }

    /// The tree over a sector's data.
    pub fn data(sector_size: SectorSize) -> Self {
        Self { arity: 2, levels: sector_size.num_nodes().ilog2() as usize }
    }

    /// Length of one path in bincode: tag, root, leaf, number of levels, levels.
    fn bincode_bytes(self) -> usize {
        4 + 32 + 32 + 8 + self.levels * (8 + (self.arity - 1) * 32 + 8)
    }
}

/// Mirrors `storage_proofs_core::merkle::MerkleProof`.
#[derive(Deserialize)]
pub(super) struct MerklePath {
    data: PathData,
}

/// Trees of other shapes have `Sub` and `Top` paths.
#[derive(Deserialize)]
enum PathData {
    Single { root: Node, leaf: Node, path: Levels },
}

#[derive(Deserialize)]
struct Levels {
    path: Vec<Level>,
}

#[derive(Deserialize)]
struct Level {
    hashes: Vec<Node>,
    index: u64,
}

impl MerklePath {
    /// Fails unless the path has `form` and consists of field elements.
    pub fn check_form(&self, at: impl fmt::Display, form: TreeForm) -> Result<(), RequestError> {
        let PathData::Single { root, leaf, path } = &self.data;
        check_node(&at, "root", root)?;
        check_node(&at, "leaf", leaf)?;
        check_count(&at, "levels", form.levels, path.path.len())?;
        for (number, level) in path.path.iter().enumerate() {
            let at = format_args!("{at} level {number}");
            check_count(at, "siblings", form.arity - 1, level.hashes.len())?;
            if level.index >= form.arity as u64 {
                return refuse(
                    at,
                    format_args!("index {} is not below the arity {}", level.index, form.arity),
                );
            }
            for node in &level.hashes {
                check_node(at, "sibling", node)?;
            }
        }
        Ok(())
    }

    /// The library's form. Checked before with [`Self::check_form`].
    pub fn into_replica_path(self) -> ReplicaPath {
        let PathData::Single { root, leaf, path } = self.data;
        let level = |level: Level| {
            (level.hashes.into_iter().map(PoseidonDomain::from).collect(), level.index as usize)
        };
        ReplicaPath::from_parts(leaf.into(), root.into(), path.path.into_iter().map(level).collect())
    }

    /// The library's form. Checked before with [`Self::check_form`].
    pub fn into_data_path(self) -> DataPath {
        let PathData::Single { root, leaf, path } = self.data;
        let level =
            |level: Level| (level.hashes.into_iter().map(Sha256Domain).collect(), level.index as usize);
        DataPath::from_parts(
            Sha256Domain(leaf),
            Sha256Domain(root),
            path.path.into_iter().map(level).collect(),
        )
    }
}

/// Fails unless `path` proves the leaf at `leaf_index` of the tree with `root`.
pub(super) fn check_path<P>(
    at: impl fmt::Display,
    path: &P,
    leaf_index: usize,
    root: &[u8],
) -> Result<(), RequestError>
where
    P: MerkleProofTrait,
{
    if path.path_index() != leaf_index {
        return refuse(
            at,
            format_args!("leads to leaf {}, challenge is leaf {leaf_index}", path.path_index()),
        );
    }
    if !path.verify() {
        return refuse(at, "does not lead from its leaf to its root");
    }
    let own_root = path.root();
    let own_root: &[u8] = own_root.as_ref();
    if own_root != root {
        let (has, needs) = (hex::encode(own_root), hex::encode(root));
        return refuse(at, format_args!("ends in root {has}, the tree's is {needs}"));
    }
    Ok(())
}

/// Mirrors `filecoin_proofs::FallbackPoStSectorProof`.
#[derive(Deserialize)]
pub(super) struct PostSectorProof {
    pub sector_id: u64,
    pub comm_r: Node,
    pub vanilla_proof: PostProof,
}

#[derive(Deserialize)]
pub(super) struct PostProof {
    pub sectors: Vec<PostSector>,
}

#[derive(Deserialize)]
pub(super) struct PostSector {
    pub inclusion_proofs: Vec<MerklePath>,
    pub comm_c: Node,
    pub comm_r_last: Node,
}

impl PostSectorProof {
    /// Reads one sector's proof with `num_paths` paths.
    pub fn read(
        at: &str,
        bytes: &[u8],
        sector_size: SectorSize,
        num_paths: usize,
    ) -> Result<Self, RequestError> {
        let length = |size| 8 + 32 + 8 + 8 + num_paths * TreeForm::replica(size).bincode_bytes() + 64;
        let proof: Self = read_bincode(at, bytes, sector_size, length)?;
        check_node(at, "comm_r", &proof.comm_r)?;
        check_count(at, "sectors", 1, proof.vanilla_proof.sectors.len())?;
        let sector = &proof.vanilla_proof.sectors[0];
        check_node(at, "comm_c", &sector.comm_c)?;
        check_node(at, "comm_r_last", &sector.comm_r_last)?;
        check_count(at, "paths", num_paths, sector.inclusion_proofs.len())?;
        for (number, path) in sector.inclusion_proofs.iter().enumerate() {
            path.check_form(format_args!("{at} path {number}"), TreeForm::replica(sector_size))?;
        }
        Ok(proof)
    }
}

/// Mirrors `storage_proofs_update::PartitionProof`.
#[derive(Deserialize)]
pub(super) struct UpdatePartitionProof {
    pub comm_c: Node,
    pub apex_leafs: Vec<Node>,
    pub challenge_proofs: Vec<UpdateChallengeProof>,
}

#[derive(Deserialize)]
pub(super) struct UpdateChallengeProof {
    pub proof_r_old: MerklePath,
    pub proof_d_new: MerklePath,
    pub proof_r_new: MerklePath,
}

impl UpdatePartitionProof {
    /// Reads one partition's proof with `num_challenges` challenges and `num_apex_leafs` apex leaves.
    pub fn read(
        at: &str,
        bytes: &[u8],
        sector_size: SectorSize,
        num_challenges: impl Fn(SectorSize) -> usize,
        num_apex_leafs: impl Fn(SectorSize) -> usize,
    ) -> Result<Self, RequestError> {
        let length = |size| {
            let paths = 2 * TreeForm::replica(size).bincode_bytes() + TreeForm::data(size).bincode_bytes();
            32 + 8 + 32 * num_apex_leafs(size) + 8 + num_challenges(size) * paths
        };
        let proof: Self = read_bincode(at, bytes, sector_size, length)?;
        check_node(at, "comm_c", &proof.comm_c)?;
        check_count(at, "apex leaves", num_apex_leafs(sector_size), proof.apex_leafs.len())?;
        for leaf in &proof.apex_leafs {
            check_node(at, "apex leaf", leaf)?;
        }
        check_count(at, "challenges", num_challenges(sector_size), proof.challenge_proofs.len())?;
        let (replica, data) = (TreeForm::replica(sector_size), TreeForm::data(sector_size));
        for (number, challenge) in proof.challenge_proofs.iter().enumerate() {
            challenge
                .proof_r_old
                .check_form(format_args!("{at} challenge {number} old replica path"), replica)?;
            challenge.proof_d_new.check_form(format_args!("{at} challenge {number} new data path"), data)?;
            challenge
                .proof_r_new
                .check_form(format_args!("{at} challenge {number} new replica path"), replica)?;
        }
        Ok(proof)
    }
}

/// Reads bincode 1 with fixed-width integers. Its length follows from the sector size, so it is known before
/// anything is read or allocated; claimed lengths within are limited by it.
fn read_bincode<T: DeserializeOwned>(
    at: &str,
    bytes: &[u8],
    sector_size: SectorSize,
    length: impl Fn(SectorSize) -> usize,
) -> Result<T, RequestError> {
    let (needs, has) = (length(sector_size), bytes.len());
    if needs != has {
        let supported = SectorSize::ALL.into_iter().filter(|size| size.is_supported());
        let other = supported
            .filter(|size| length(*size) == has)
            .map(|size| format!(", the length for {size} sectors"))
            .next()
            .unwrap_or_default();
        return refuse(at, format_args!("needs {needs} B for {sector_size} sectors, has {has} B{other}"));
    }
    bincode::DefaultOptions::new()
        .with_fixint_encoding()
        .with_limit(has as u64)
        .reject_trailing_bytes()
        .deserialize(bytes)
        .or_else(|error| refuse(at, format_args!("does not decode: {error}")))
}
