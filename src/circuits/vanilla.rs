//! Vanilla proofs as they come from outside: strict reading, and the checks that the libraries leave to panics.
//!
//! The types here mirror the libraries' serde forms. Reading into them instead of into the libraries' own types lets
//! every error name its place, and keeps what a circuit could not take (other numbers of levels or siblings, nodes
//! that are no field elements) from ever reaching library code.

pub(super) mod c1;
mod path;

use std::fmt;
use std::sync::LazyLock;

use bincode::Options;
use blstrs::Scalar;
use ff::{Field, PrimeField};
use serde::de::DeserializeOwned;
use serde::Deserialize;

use crate::circuits::SectorSize;
use crate::error::RequestError;

pub(super) use path::{
    check_data_path, check_tree_path, with_tree, DataPath, MerklePath, SectorTree, TreeForm, TreePath,
};

/// A tree node: a scalar in canonical little-endian form, or a SHA-256 digest with the two top bits cleared.
pub(super) type Node = [u8; 32];

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

/// Below the modulus. A comparison, without the multiplication that making a scalar would take: a WindowPoSt partition of
/// 32 GiB sectors has two million nodes.
pub(super) fn is_canonical(node: &Node) -> bool {
    node.iter().rev().lt(MODULUS.iter().rev())
}

/// The order of the scalar field, as nodes are written.
static MODULUS: LazyLock<Node> = LazyLock::new(|| {
    let mut bytes = (-Scalar::ONE).to_repr();
    // Odd, so that nothing is carried.
    bytes[0] += 1;
    bytes
});

/// Fails unless the node is a canonical field element: the libraries panic on others (`from_repr failure`).
pub(super) fn check_node(at: impl fmt::Display, name: &str, node: &Node) -> Result<(), RequestError> {
    if is_canonical(node) {
        return Ok(());
    }
    refuse(at, format_args!("{name} {} is no canonical field element", hex::encode(node)))
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
        let other = SectorSize::ALL
            .into_iter()
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
