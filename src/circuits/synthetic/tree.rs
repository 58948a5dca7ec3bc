//! Merkle trees of which only what is asked for exists.
//!
//! ```text
//! SparseTree:  leaves on some paths are given, the nodes beside the paths are drawn, all above is hashed
//! RunTree:     leaves are equal in runs, so a level has few distinct nodes and every leaf has a path
//! ```
//! A sparse tree serves where the challenged leaves are known before the root is; a tree of runs where they follow
//! from it.

use std::collections::{BTreeMap, BTreeSet};

use filecoin_hashers::poseidon::{PoseidonDomain, PoseidonHasher};
use filecoin_hashers::sha256::{Sha256Domain, Sha256Hasher};
use filecoin_hashers::{HashFunction, Hasher};
use rayon::prelude::*;

use crate::circuits::vanilla::{DataPath, Node, SectorTree, TreeForm, TreePath};

/// How a tree hashes siblings into their parent.
pub(super) trait NodeHash {
    /// `children`: the siblings' bytes in order, 32 each.
    fn hash(children: &[u8]) -> Node;
}

/// Replica and column trees.
pub(super) struct Poseidon;

impl NodeHash for Poseidon {
    fn hash(children: &[u8]) -> Node {
        <PoseidonHasher as Hasher>::Function::hash(children).into()
    }
}

/// Data trees: SHA-256 with the two top bits cleared.
pub(super) struct Sha256Nodes;

impl NodeHash for Sha256Nodes {
    fn hash(children: &[u8]) -> Node {
        <Sha256Hasher as Hasher>::Function::hash(children).into()
    }
}

/// A path from a leaf to the root.
pub(super) struct Path {
    leaf: Node,
    root: Node,
    /// From the leaf up: siblings, and the place of the path's own node among them.
    levels: Vec<(Vec<Node>, usize)>,
}

impl Path {
    /// `node(level, index)`: the tree's nodes, leaves at level 0.
    fn of(leaf: usize, form: TreeForm, root: Node, node: impl Fn(usize, usize) -> Node) -> Self {
        let mut index = leaf;
        let levels = form
            .arities()
            .enumerate()
            .map(|(level, arity)| {
                let (first, place) = (index - index % arity, index % arity);
                index /= arity;
                let others = (0..arity).filter(|sibling| *sibling != place);
                (others.map(|sibling| node(level, first + sibling)).collect(), place)
            })
            .collect();
        Self { leaf: node(0, leaf), root, levels }
    }

    pub fn into_tree_path<Tree: SectorTree>(self) -> TreePath<Tree> {
        let levels = self.levels.into_iter();
        let levels =
            levels.map(|(siblings, place)| (siblings.into_iter().map(PoseidonDomain::from).collect(), place));
        TreePath::<Tree>::from_parts(self.leaf.into(), self.root.into(), levels.collect())
    }

    pub fn into_data_path(self) -> DataPath {
        let levels = self.levels.into_iter();
        let levels =
            levels.map(|(siblings, place)| (siblings.into_iter().map(Sha256Domain).collect(), place));
        DataPath::from_parts(Sha256Domain(self.leaf), Sha256Domain(self.root), levels.collect())
    }
}

/// A tree with the nodes on some leaves' paths and beside them.
pub(super) struct SparseTree {
    form: TreeForm,
    /// From the leaves up, by index in the level; the last holds the root alone.
    levels: Vec<BTreeMap<usize, Node>>,
}

impl SparseTree {
    /// Hashes `leaves`, by index, up to a root; `border` gives the nodes beside their paths, called level by level and
    /// in rising order, so that one that draws draws the same every time.
    pub fn build<H: NodeHash>(
        form: TreeForm,
        leaves: BTreeMap<usize, Node>,
        mut border: impl FnMut() -> Node,
    ) -> Self {
        assert!(!leaves.is_empty(), "a tree without leaves has no root");
        let mut levels = Vec::with_capacity(form.arities().count() + 1);
        let mut nodes = leaves;
        for arity in form.arities() {
            let parents: BTreeSet<usize> = nodes.keys().map(|index| index / arity).collect();
            let parents: Vec<usize> = parents.into_iter().collect();
            for child in parents.iter().flat_map(|parent| parent * arity..(parent + 1) * arity) {
                nodes.entry(child).or_insert_with(&mut border);
            }
            let above = parents
                .par_iter()
                .map(|&parent| {
                    let children = (parent * arity..(parent + 1) * arity).flat_map(|child| nodes[&child]);
                    (parent, H::hash(&children.collect::<Vec<u8>>()))
                })
                .collect();
            levels.push(std::mem::replace(&mut nodes, above));
        }
        levels.push(nodes);
        Self { form, levels }
    }

    pub fn root(&self) -> Node {
        self.levels[self.levels.len() - 1][&0]
    }

    /// # Panics
    /// If the leaf is none of those the tree was built from.
    pub fn path(&self, leaf: usize) -> Path {
        Path::of(leaf, self.form, self.root(), |level, index| self.levels[level][&index])
    }
}

/// A level whose nodes are equal in runs of `1 << run_log2`.
struct RunLevel {
    run_log2: u32,
    /// One node per run.
    nodes: Vec<Node>,
}

/// A tree whose leaves are equal in runs of a power of two.
pub(super) struct RunTree {
    form: TreeForm,
    levels: Vec<RunLevel>,
}

impl RunTree {
    /// `leaves`: one per run. Costs as many hashes as there are runs, a few times over.
    pub fn build<H: NodeHash>(form: TreeForm, leaves: Vec<Node>) -> Self {
        let num_leaves: usize = form.arities().product();
        assert!(leaves.len().is_power_of_two() && leaves.len() <= num_leaves, "runs divide the leaves");
        let run_log2 = (num_leaves / leaves.len()).ilog2();
        let mut levels = vec![RunLevel { run_log2, nodes: leaves }];
        for arity in form.arities() {
            let above = levels[levels.len() - 1].parents::<H>(arity);
            levels.push(above);
        }
        Self { form, levels }
    }

    pub fn node(&self, level: usize, index: usize) -> Node {
        let RunLevel { run_log2, nodes } = &self.levels[level];
        nodes[index >> run_log2]
    }

    pub fn root(&self) -> Node {
        self.node(self.levels.len() - 1, 0)
    }

    pub fn path(&self, leaf: usize) -> Path {
        Path::of(leaf, self.form, self.root(), |level, index| self.node(level, index))
    }
}

impl RunLevel {
    fn parents<H: NodeHash>(&self, arity: usize) -> Self {
        let arity_log2 = arity.ilog2();
        // A parent covers part of a run, or several runs.
        let repeats = 1 << self.run_log2.min(arity_log2);
        let nodes = self
            .nodes
            .par_chunks(arity / repeats)
            .map(|runs| {
                let children = runs.iter().flat_map(|node| std::iter::repeat_n(node, repeats)).flatten();
                H::hash(&children.copied().collect::<Vec<u8>>())
            })
            .collect();
        Self { run_log2: self.run_log2.saturating_sub(arity_log2), nodes }
    }
}

#[cfg(test)]
mod tests {
    use storage_proofs_core::merkle::MerkleProofTrait;

    use super::*;
    use crate::circuits::SectorSize;

    fn leaf(number: usize) -> Node {
        let mut node = [0; 32];
        node[..8].copy_from_slice(&(number as u64 * 0x9e37_79b9).to_le_bytes());
        node
    }

    /// All nodes of a small tree, hashed one by one.
    fn whole_tree<H: NodeHash>(form: TreeForm, leaves: Vec<Node>) -> Vec<Vec<Node>> {
        let mut levels = vec![leaves];
        for arity in form.arities() {
            let below = &levels[levels.len() - 1];
            levels.push(below.chunks(arity).map(|children| H::hash(children.as_flattened())).collect());
        }
        levels
    }

    #[test]
    fn a_tree_of_runs_is_the_whole_tree() {
        let form = TreeForm { arity: 8, base_levels: 3, sub_arity: 8, top_arity: 2 };
        for num_runs in [1, 2, 64, 1024, 8192] {
            let runs: Vec<Node> = (0..num_runs).map(leaf).collect();
            let tree = RunTree::build::<Poseidon>(form, runs.clone());
            let leaves = (0..8192).map(|index| runs[index * num_runs / 8192]).collect();
            let whole = whole_tree::<Poseidon>(form, leaves);
            for (level, nodes) in whole.iter().enumerate() {
                let has: Vec<Node> = (0..nodes.len()).map(|index| tree.node(level, index)).collect();
                assert_eq!(has, *nodes, "{num_runs} runs, level {level}");
            }
        }
    }

    #[test]
    fn paths_are_those_of_the_library_at_every_size() {
        for size in SectorSize::ALL {
            let last = size.num_nodes() - 1;
            let picked = [0, 1, 9, last / 3, last];
            let leaves = picked.into_iter().map(|index| (index, leaf(index + 1))).collect();
            let mut drawn = 0;
            let tree = SparseTree::build::<Poseidon>(TreeForm::replica(size), leaves, || {
                drawn += 1;
                leaf(drawn)
            });
            let data_leaves = picked.into_iter().map(|index| (index, leaf(index + 1))).collect();
            let data = SparseTree::build::<Sha256Nodes>(TreeForm::data(size), data_leaves, || leaf(7));
            for index in picked {
                let path = crate::circuits::vanilla::with_tree!(size, checked_path(&tree, index));
                assert_eq!(path, (index, leaf(index + 1), tree.root()), "{size}");
                let path = data.path(index).into_data_path();
                assert!(path.verify() && path.path_index() == index, "{size}");
            }
        }
    }

    fn checked_path<Tree: SectorTree>(tree: &SparseTree, index: usize) -> (usize, Node, Node) {
        let path = tree.path(index).into_tree_path::<Tree>();
        assert!(path.verify());
        (path.path_index(), path.leaf().into(), path.root().into())
    }
}
