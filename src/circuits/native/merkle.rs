//! Merkle paths as the circuits climb them (storage-proofs-core `gadgets/{por,insertion}.rs`).

use blstrs::Scalar;
use storage_proofs_core::merkle::MerkleProofTrait;

use super::poseidon;
use super::sha256;
use super::writer::Writer;

/// The siblings on the way from a leaf to the root, lowest first.
#[derive(Clone)]
pub(in crate::circuits) struct Path {
    leaf: Scalar,
    levels: Vec<Level>,
}

#[derive(Clone)]
struct Level {
    siblings: Vec<Scalar>,
    /// Of the node among its siblings.
    index: usize,
}

impl Path {
    /// # Panics
    /// If a node is no canonical scalar: paths are checked when they are read.
    pub fn new<P: MerkleProofTrait>(path: &P) -> Self {
        let levels = path.as_pairs().into_iter().map(|(siblings, index)| Level { siblings, index }).collect();
        Self { leaf: path.leaf().into(), levels }
    }

    pub fn leaf(&self) -> Scalar {
        self.leaf
    }

    /// Of every level, lowest first.
    pub fn arities(&self) -> Vec<usize> {
        self.levels.iter().map(|level| level.siblings.len() + 1).collect()
    }

    /// The path's levels from `begin` on, up to `end`.
    fn part(&self, begin: usize, end: usize) -> &[Level] {
        &self.levels[begin..end]
    }

    pub fn num_levels(&self) -> usize {
        self.levels.len()
    }

    /// Whether the path leads from `leaf`, the one at `index` of a Poseidon tree, to its `root`. Of each level one hash is
    /// made, without the values that a circuit allocates for it.
    ///
    /// # Panics
    /// If a level has an arity that no Filecoin tree has: paths are checked when they are read.
    pub fn leads(&self, leaf: Scalar, index: u64, root: Scalar) -> bool {
        let shifts = self.levels.iter().scan(0, |shift, level| {
            let own = *shift;
            *shift += arity_bits(level);
            Some(own)
        });
        let own_index =
            self.levels.iter().zip(shifts).fold(0, |sum, (level, shift)| sum | (level.index as u64) << shift);
        let climb = |node: Scalar, level: &Level| {
            let mut nodes = [Scalar::default(); 8];
            let nodes = &mut nodes[..=level.siblings.len()];
            let (before, after) = level.siblings.split_at(level.index);
            nodes[..level.index].copy_from_slice(before);
            nodes[level.index] = node;
            nodes[level.index + 1..].copy_from_slice(after);
            poseidon::value(nodes)
        };
        self.leaf == leaf && own_index == index && self.levels.iter().fold(leaf, climb) == root
    }

    /// Allocates the siblings of the levels `begin..end`, nothing else.
    pub(super) fn write_siblings(&self, writer: &mut Writer<'_>, begin: usize, end: usize) {
        self.part(begin, end).iter().for_each(|level| writer.nums(&level.siblings));
    }
}

/// What a tree hashes its nodes with.
#[derive(Clone, Copy)]
pub(super) enum Tree {
    Poseidon,
    Sha256,
}

impl Tree {
    fn hash(self, writer: &mut Writer<'_>, nodes: &[Scalar]) -> Scalar {
        match self {
            Self::Poseidon => poseidon::hash(writer, nodes),
            Self::Sha256 => sha256::hash_pair(writer, &nodes[0], &nodes[1]),
        }
    }

    /// Proves that `leaf` is in a tree (`PoRCircuit::synthesize`): index bits, siblings, insertion and hash of every
    /// level, and the leaf's index as a public input.
    pub fn include(self, writer: &mut Writer<'_>, leaf: Scalar, path: &Path) -> Scalar {
        let (mut node, mut leaf_index, mut num_bits) = (leaf, 0, 0);
        for level in &path.levels {
            let arity_bits = arity_bits(level);
            writer.bits(level.index as u64, arity_bits);
            writer.nums(&level.siblings);
            leaf_index |= (level.index as u64) << num_bits;
            num_bits += arity_bits;
            node = self.step(writer, node, &level.siblings, level.index);
        }
        if num_bits > 0 {
            writer.input(Scalar::from(leaf_index));
        }
        node
    }

    /// Climbs the levels `begin..end` of a path whose siblings and index are allocated already
    /// (`por_no_challenge_input`). `index` is that of the node.
    pub fn climb(
        self,
        writer: &mut Writer<'_>,
        node: Scalar,
        index: u64,
        path: &Path,
        begin: usize,
        end: usize,
    ) -> Scalar {
        let mut rest = index;
        path.part(begin, end).iter().fold(node, |node, level| {
            let own = rest as usize & level.siblings.len();
            rest >>= arity_bits(level);
            self.step(writer, node, &level.siblings, own)
        })
    }

    fn step(self, writer: &mut Writer<'_>, node: Scalar, siblings: &[Scalar], index: usize) -> Scalar {
        let mut nodes = [Scalar::default(); 8];
        let nodes = &mut nodes[..=siblings.len()];
        insert(writer, &node, siblings, index, nodes);
        self.hash(writer, nodes)
    }
}

/// The arity is a power of two, checked with the path's form.
fn arity_bits(level: &Level) -> usize {
    (level.siblings.len() + 1).ilog2() as usize
}

/// Puts `node` among its siblings as `insert_2`, `insert_4` and `insert_8` do: every choice between two values is a
/// variable.
fn insert(writer: &mut Writer<'_>, node: &Scalar, siblings: &[Scalar], index: usize, into: &mut [Scalar]) {
    let bit = |number: usize| index >> number & 1 == 1;
    let a = *node;
    match *siblings {
        [b] => {
            into[0] = pick(writer, bit(0), b, a);
            into[1] = pick(writer, bit(0), a, b);
        }
        [b, c, d] => {
            into.copy_from_slice(&insert_4(writer, [bit(0), bit(1)], [a, b, c, d]));
        }
        [b, c, d, e, f, g, h] => {
            into.copy_from_slice(&insert_8(writer, [bit(0), bit(1), bit(2)], [a, b, c, d, e, f, g, h]));
        }
        _ => panic!("no Filecoin tree has arity {}", siblings.len() + 1),
    }
}

fn pick(writer: &mut Writer<'_>, condition: bool, a: Scalar, b: Scalar) -> Scalar {
    let picked = if condition { a } else { b };
    writer.num(picked);
    picked
}

fn insert_4(writer: &mut Writer<'_>, [b0, b1]: [bool; 2], [a, b, c, d]: [Scalar; 4]) -> [Scalar; 4] {
    let p0_x0 = pick(writer, b0, b, a);
    let p0 = pick(writer, b1, b, p0_x0);
    let p1_x0 = pick(writer, b0, a, b);
    let p1 = pick(writer, b1, c, p1_x0);
    let p2_x1 = pick(writer, b0, d, a);
    let p2 = pick(writer, b1, p2_x1, c);
    let p3_x1 = pick(writer, b0, a, d);
    let p3 = pick(writer, b1, p3_x1, d);
    [p0, p1, p2, p3]
}

fn insert_8(
    writer: &mut Writer<'_>,
    [b0, b1, b2]: [bool; 3],
    [a, b, c, d, e, f, g, h]: [Scalar; 8],
) -> [Scalar; 8] {
    let (nor, and) = (!b0 && !b1, b0 && b1);
    writer.bits(u64::from(nor), 1);
    writer.bits(u64::from(and), 1);
    let p0_xx0 = pick(writer, nor, a, b);
    let p0 = pick(writer, b2, b, p0_xx0);
    let p1_x00 = pick(writer, b0, a, b);
    let p1_xx0 = pick(writer, b1, c, p1_x00);
    let p1 = pick(writer, b2, c, p1_xx0);
    let p2_x10 = pick(writer, b0, d, a);
    let p2_xx0 = pick(writer, b1, p2_x10, c);
    let p2 = pick(writer, b2, d, p2_xx0);
    let p3_xx0 = pick(writer, and, a, d);
    let p3 = pick(writer, b2, e, p3_xx0);
    let p4_xx1 = pick(writer, nor, a, f);
    let p4 = pick(writer, b2, p4_xx1, e);
    let p5_x01 = pick(writer, b0, a, f);
    let p5_xx1 = pick(writer, b1, g, p5_x01);
    let p5 = pick(writer, b2, p5_xx1, f);
    let p6_x11 = pick(writer, b0, h, a);
    let p6_xx1 = pick(writer, b1, p6_x11, g);
    let p6 = pick(writer, b2, p6_xx1, g);
    let p7_xx1 = pick(writer, and, a, h);
    let p7 = pick(writer, b2, p7_xx1, h);
    [p0, p1, p2, p3, p4, p5, p6, p7]
}

/// The element of `from` at `index`, halving the list by the index's highest bit first (`insertion::select`).
pub(super) fn select(writer: &mut Writer<'_>, from: &[Scalar], index: usize) -> Scalar {
    let mut left = from.to_vec();
    while left.len() > 1 {
        let half = left.len() / 2;
        let upper = index & half != 0;
        left = (0..half).map(|i| pick(writer, upper, left[half + i], left[i])).collect();
    }
    left[0]
}
