//! Merkle paths: their forms at each sector size, strict reading, and the libraries' own types made of them.

use std::fmt;

use filecoin_hashers::poseidon::{PoseidonDomain, PoseidonHasher};
use filecoin_hashers::sha256::Sha256Domain;
use filecoin_proofs::types::DataTree;
use serde::Deserialize;
use storage_proofs_core::merkle::{MerkleProof, MerkleProofTrait, MerkleTreeTrait};

use super::{check_count, check_node, refuse, Node};
use crate::circuits::{native, SectorSize};
use crate::error::RequestError;

/// The shape of a sector's replica and column trees: arity 8 throughout, except for the topmost level of 64 GiB.
pub(in crate::circuits) trait SectorTree:
    MerkleTreeTrait<Hasher = PoseidonHasher> + 'static
{
}

impl<Tree: MerkleTreeTrait<Hasher = PoseidonHasher> + 'static> SectorTree for Tree {}

/// Calls a function that is generic over a [`SectorTree`] with the tree of a [`SectorSize`].
macro_rules! with_tree {
    ($sector_size:expr, $function:ident($($argument:expr),* $(,)?)) => {
        match $sector_size {
            $crate::circuits::SectorSize::Size2KiB
            | $crate::circuits::SectorSize::Size8MiB
            | $crate::circuits::SectorSize::Size512MiB => {
                $function::<filecoin_proofs::constants::SectorShapeBase>($($argument),*)
            }
            $crate::circuits::SectorSize::Size32GiB => {
                $function::<filecoin_proofs::constants::SectorShapeSub8>($($argument),*)
            }
            $crate::circuits::SectorSize::Size64GiB => {
                $function::<filecoin_proofs::constants::SectorShapeTop2>($($argument),*)
            }
        }
    };
}

pub(in crate::circuits) use with_tree;

/// A path in a replica tree or a column tree (Poseidon).
pub(in crate::circuits) type TreePath<Tree> = MerkleProof<
    PoseidonHasher,
    <Tree as MerkleTreeTrait>::Arity,
    <Tree as MerkleTreeTrait>::SubTreeArity,
    <Tree as MerkleTreeTrait>::TopTreeArity,
>;

/// A path in a data tree (SHA-256, arity 2).
pub(in crate::circuits) type DataPath = <DataTree as MerkleTreeTrait>::Proof;

/// The form that every path of a tree has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::circuits) struct TreeForm {
    /// Of all levels of the base trees.
    pub arity: usize,
    /// Of one base tree.
    pub base_levels: usize,
    /// Of the level that joins base trees, 0 where there is one base tree.
    pub sub_arity: usize,
    /// Of the level above, 0 where there is none.
    pub top_arity: usize,
}

impl TreeForm {
    /// Replica and column trees.
    pub fn replica(sector_size: SectorSize) -> Self {
        let (sub_arity, top_arity) = match sector_size {
            SectorSize::Size2KiB | SectorSize::Size8MiB | SectorSize::Size512MiB => (0, 0),
            SectorSize::Size32GiB => (8, 0),
            SectorSize::Size64GiB => (8, 2),
        };
        let base_nodes = sector_size.num_nodes() / sub_arity.max(1) / top_arity.max(1);
        Self { arity: 8, base_levels: base_nodes.ilog2() as usize / 3, sub_arity, top_arity }
    }

    /// The tree over a sector's data.
    pub fn data(sector_size: SectorSize) -> Self {
        let base_levels = sector_size.num_nodes().ilog2() as usize;
        Self { arity: 2, base_levels, sub_arity: 0, top_arity: 0 }
    }

    /// The arity of every level, from the leaves up.
    pub fn arities(self) -> impl Iterator<Item = usize> + Clone {
        let compound = [self.sub_arity, self.top_arity].into_iter().filter(|arity| *arity > 0);
        std::iter::repeat_n(self.arity, self.base_levels).chain(compound)
    }

    /// Length of one path in bincode: tag, root, leaf, and for each part (base, sub, top) its number of levels and its
    /// levels.
    pub(super) fn bincode_bytes(self) -> usize {
        let levels: usize = self.arities().map(|arity| 8 + (arity - 1) * 32 + 8).sum();
        4 + 32 + 32 + self.num_parts() * 8 + levels
    }

    /// The parts of a path: base, sub and top.
    fn num_parts(self) -> usize {
        1 + usize::from(self.sub_arity > 0) + usize::from(self.top_arity > 0)
    }
}

/// Mirrors `storage_proofs_core::merkle::MerkleProof`.
#[derive(Deserialize)]
pub(in crate::circuits) struct MerklePath {
    data: PathData,
}

/// The order of the fields is that of bincode.
#[derive(Deserialize)]
enum PathData {
    Single { root: Node, leaf: Node, path: Levels },
    Sub { base_proof: Levels, sub_proof: Levels, root: Node, leaf: Node },
    Top { base_proof: Levels, sub_proof: Levels, top_proof: Levels, root: Node, leaf: Node },
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

impl PathData {
    fn root_and_leaf(&self) -> (&Node, &Node) {
        match self {
            Self::Single { root, leaf, .. } | Self::Sub { root, leaf, .. } | Self::Top { root, leaf, .. } => {
                (root, leaf)
            }
        }
    }

    /// The levels of the base, sub and top tree, as far as there are any.
    fn parts(&self) -> [Option<&Levels>; 3] {
        match self {
            Self::Single { path, .. } => [Some(path), None, None],
            Self::Sub { base_proof, sub_proof, .. } => [Some(base_proof), Some(sub_proof), None],
            Self::Top { base_proof, sub_proof, top_proof, .. } => {
                [Some(base_proof), Some(sub_proof), Some(top_proof)]
            }
        }
    }

    /// Root, leaf and all levels from the leaf up.
    fn into_levels(self) -> (Node, Node, Vec<Level>) {
        match self {
            Self::Single { root, leaf, path } => (root, leaf, path.path),
            Self::Sub { base_proof, sub_proof, root, leaf } => {
                (root, leaf, [base_proof.path, sub_proof.path].into_iter().flatten().collect())
            }
            Self::Top { base_proof, sub_proof, top_proof, root, leaf } => {
                let parts = [base_proof.path, sub_proof.path, top_proof.path];
                (root, leaf, parts.into_iter().flatten().collect())
            }
        }
    }
}

impl MerklePath {
    /// Fails unless the path has `form` and consists of field elements.
    pub fn check_form(&self, at: impl fmt::Display, form: TreeForm) -> Result<(), RequestError> {
        let (root, leaf) = self.data.root_and_leaf();
        check_node(&at, "root", root)?;
        check_node(&at, "leaf", leaf)?;
        let parts = self.data.parts();
        check_count(&at, "parts (base, sub, top)", form.num_parts(), parts.iter().flatten().count())?;
        let [base, sub, top] = parts.map(|part| part.map_or(&[][..], |levels| &levels.path));
        let is_whole = |arity: usize| usize::from(arity > 0);
        check_count(&at, "levels", form.base_levels, base.len())?;
        check_count(&at, "levels in the sub tree", is_whole(form.sub_arity), sub.len())?;
        check_count(&at, "levels in the top tree", is_whole(form.top_arity), top.len())?;
        let levels = base.iter().chain(sub).chain(top);
        for (number, (level, arity)) in levels.zip(form.arities()).enumerate() {
            let at = format_args!("{at} level {number}");
            check_count(at, "siblings", arity - 1, level.hashes.len())?;
            if level.index >= arity as u64 {
                return refuse(at, format_args!("index {} is not below the arity {arity}", level.index));
            }
            for node in &level.hashes {
                check_node(at, "sibling", node)?;
            }
        }
        Ok(())
    }

    /// The library's form. Checked before with [`Self::check_form`].
    pub fn into_tree_path<Tree: SectorTree>(self) -> TreePath<Tree> {
        let (root, leaf, levels) = self.data.into_levels();
        let level = |level: Level| {
            (level.hashes.into_iter().map(PoseidonDomain::from).collect(), level.index as usize)
        };
        TreePath::<Tree>::from_parts(leaf.into(), root.into(), levels.into_iter().map(level).collect())
    }

    /// The library's form. Checked before with [`Self::check_form`].
    pub fn into_data_path(self) -> DataPath {
        let (root, leaf, levels) = self.data.into_levels();
        let level =
            |level: Level| (level.hashes.into_iter().map(Sha256Domain).collect(), level.index as usize);
        DataPath::from_parts(Sha256Domain(leaf), Sha256Domain(root), levels.into_iter().map(level).collect())
    }
}

/// Fails unless `path` proves the leaf at `leaf_index` of the data tree with `root`.
pub(in crate::circuits) fn check_data_path(
    at: impl fmt::Display,
    path: &DataPath,
    leaf_index: usize,
    root: &[u8],
) -> Result<(), RequestError> {
    check_path(at, path, leaf_index, root, || path.verify())
}

/// Fails unless `path` proves the leaf at `leaf_index` of the replica or column tree with `root`.
pub(in crate::circuits) fn check_tree_path<P>(
    at: impl fmt::Display,
    path: &P,
    leaf_index: usize,
    root: &[u8],
) -> Result<(), RequestError>
where
    P: MerkleProofTrait<Hasher = PoseidonHasher>,
{
    // By the hash of our own witnesses, which is quicker. Before a path is refused the library has looked at it too.
    let leads = || native::Path::new(path).leads(path.leaf().into(), leaf_index as u64, path.root().into());
    check_path(at, path, leaf_index, root, || leads() || path.verify())
}

/// `verifies`: whether the path's levels lead from its leaf to its own root.
fn check_path<P>(
    at: impl fmt::Display,
    path: &P,
    leaf_index: usize,
    root: &[u8],
    verifies: impl FnOnce() -> bool,
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
    if !verifies() {
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
