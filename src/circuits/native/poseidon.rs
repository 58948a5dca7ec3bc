//! Poseidon with all the intermediate values that the circuits allocate, in their order.
//!
//! The circuit is neptune's first one (`neptune::circuit::poseidon_hash`): of every S-box the input, its square, its
//! fourth power and its output with the round key added; of the first round, whose inputs exist already, all but the
//! input, and nothing of the constant domain tag; at the end the hash.

use std::sync::LazyLock;

use blstrs::Scalar;
use ff::Field;
use filecoin_hashers::{
    POSEIDON_CONSTANTS_11, POSEIDON_CONSTANTS_2, POSEIDON_CONSTANTS_4, POSEIDON_CONSTANTS_8,
};
use neptune::poseidon::PoseidonConstants;
use neptune::Arity;
use storage_proofs_update::constants::POSEIDON_CONSTANTS_GEN_RANDOMNESS;

use super::dot::{dot, limbs, Limbs};
use super::writer::Writer;

/// Nodes of tree columns with two layers, commitments, and inner nodes of arity 2.
pub(super) static ARITY_2: LazyLock<Poseidon<3>> = LazyLock::new(|| Poseidon::new(&POSEIDON_CONSTANTS_2));
pub(super) static ARITY_4: LazyLock<Poseidon<5>> = LazyLock::new(|| Poseidon::new(&POSEIDON_CONSTANTS_4));
pub(super) static ARITY_8: LazyLock<Poseidon<9>> = LazyLock::new(|| Poseidon::new(&POSEIDON_CONSTANTS_8));
/// Columns with eleven layers.
pub(super) static ARITY_11: LazyLock<Poseidon<12>> = LazyLock::new(|| Poseidon::new(&POSEIDON_CONSTANTS_11));
/// SnapDeals' randomness: arity 2 with a domain tag of its own.
pub(super) static RANDOMNESS: LazyLock<Poseidon<3>> =
    LazyLock::new(|| Poseidon::new(&POSEIDON_CONSTANTS_GEN_RANDOMNESS));

/// The hash of `preimage`, by the number of its elements.
///
/// # Panics
/// If no Filecoin circuit hashes that many.
pub(super) fn hash(writer: &mut Writer<'_>, preimage: &[Scalar]) -> Scalar {
    match preimage.len() {
        2 => ARITY_2.hash(writer, preimage),
        4 => ARITY_4.hash(writer, preimage),
        8 => ARITY_8.hash(writer, preimage),
        11 => ARITY_11.hash(writer, preimage),
        other => panic!("no circuit hashes {other} elements"),
    }
}

/// The hash of `preimage` alone, by the number of its elements.
///
/// # Panics
/// If no Filecoin circuit hashes that many.
pub(in crate::circuits) fn value(preimage: &[Scalar]) -> Scalar {
    match preimage.len() {
        2 => ARITY_2.value(preimage),
        4 => ARITY_4.value(preimage),
        8 => ARITY_8.value(preimage),
        11 => ARITY_11.value(preimage),
        other => panic!("no circuit hashes {other} elements"),
    }
}

/// Takes the values that a circuit allocates where the hash alone is asked for.
struct Untraced;

impl Extend<Scalar> for Untraced {
    fn extend<I: IntoIterator<Item = Scalar>>(&mut self, _values: I) {}
}

/// The permutation of `W` elements, its constants prepared as neptune's optimised form has them.
pub(super) struct Poseidon<const W: usize> {
    /// The first element after its S-box: the domain tag and the keys are constants.
    first: Scalar,
    first_keys: [Scalar; W],
    /// Added after the S-boxes of full rounds; the last round has none.
    full_keys: Vec<[Scalar; W]>,
    partial_keys: Vec<Scalar>,
    /// `[output][input]`, like `before_partial`.
    mds: [[Limbs; W]; W],
    /// In place of `mds` in the last full round before the partial ones.
    before_partial: [[Limbs; W]; W],
    sparse: Vec<Sparse<W>>,
    half_full_rounds: usize,
}

/// A partial round's matrix: its first output is a dot product, the others add a multiple of the first element.
struct Sparse<const W: usize> {
    first: [Limbs; W],
    /// `[output - 1]`
    rest: Vec<Scalar>,
}

impl<const W: usize> Poseidon<W> {
    fn new<A: Arity<Scalar>>(constants: &PoseidonConstants<Scalar, A>) -> Self {
        assert_eq!(constants.width(), W, "the width is the arity and one");
        let keys = &constants.compressed_round_constants;
        let half = constants.half_full_rounds;
        let row = |begin: usize| -> [Scalar; W] { std::array::from_fn(|i| keys[begin + i]) };
        let before_partial = W * (1 + half);
        let after_partial = before_partial + constants.partial_rounds;
        let early = (0..half).map(|round| row(W * (1 + round)));
        let late = (0..half - 1).map(|round| row(after_partial + W * round));
        let first_keys = row(0);
        let full_keys: Vec<[Scalar; W]> = early.chain(late).collect();
        let tag = constants.domain_tag + first_keys[0];
        let matrix =
            |rows: &[Vec<Scalar>]| std::array::from_fn(|j| std::array::from_fn(|i| limbs(&rows[i][j])));
        Self {
            first: tag * tag.square().square() + full_keys[0][0],
            first_keys,
            partial_keys: keys[before_partial..after_partial].to_vec(),
            full_keys,
            mds: matrix(&constants.mds_matrices.m),
            before_partial: matrix(&constants.pre_sparse_matrix),
            sparse: constants
                .sparse_matrixes
                .iter()
                .map(|sparse| Sparse::new(&sparse.w_hat, &sparse.v_rest))
                .collect(),
            half_full_rounds: half,
        }
    }

    /// Writes the hash of `W - 1` elements as the circuit does, and returns it.
    pub fn hash(&self, writer: &mut Writer<'_>, preimage: &[Scalar]) -> Scalar {
        let mut values = std::mem::take(&mut writer.spare);
        let hash = self.trace(preimage, &mut values);
        writer.nums(&values);
        values.clear();
        writer.spare = values;
        hash
    }

    /// The hash alone.
    pub fn value(&self, preimage: &[Scalar]) -> Scalar {
        self.trace(preimage, &mut Untraced)
    }

    /// The hash, and every value that the circuit allocates for it.
    fn trace(&self, preimage: &[Scalar], values: &mut impl Extend<Scalar>) -> Scalar {
        let mut state = self.first_round(preimage, values);
        for round in 1..self.half_full_rounds {
            let last = round + 1 == self.half_full_rounds;
            let matrix = if last { &self.before_partial } else { &self.mds };
            state = Self::full_round(values, &state, &self.full_keys[round], matrix);
        }
        for (key, sparse) in self.partial_keys.iter().zip(&self.sparse) {
            let first = s_box(values, state[0], *key);
            state = sparse.apply(first, &state);
        }
        for keys in &self.full_keys[self.half_full_rounds..] {
            state = Self::full_round(values, &state, keys, &self.mds);
        }
        let state = Self::full_round(values, &state, &[Scalar::ZERO; W], &self.mds);
        values.extend([state[1]]);
        state[1]
    }

    fn first_round(&self, preimage: &[Scalar], values: &mut impl Extend<Scalar>) -> [Scalar; W] {
        assert_eq!(preimage.len() + 1, W, "as many elements as the arity");
        let mut state = [self.first; W];
        let keys = self.first_keys.iter().zip(&self.full_keys[0]).skip(1);
        for ((element, preimage), (before, after)) in state[1..].iter_mut().zip(preimage).zip(keys) {
            let x = preimage + before;
            let [x2, x4] = powers(x);
            *element = x4 * x + after;
            values.extend([x2, x4, *element]);
        }
        apply(&self.mds, &state)
    }

    fn full_round(
        values: &mut impl Extend<Scalar>,
        state: &[Scalar; W],
        keys: &[Scalar; W],
        matrix: &[[Limbs; W]; W],
    ) -> [Scalar; W] {
        let state = std::array::from_fn(|i| s_box(values, state[i], keys[i]));
        apply(matrix, &state)
    }
}

/// Square and fourth power. By multiplications: blst's square of a scalar takes half again as long as its product.
fn powers(x: Scalar) -> [Scalar; 2] {
    let x2 = x * x;
    [x2, x2 * x2]
}

fn s_box(values: &mut impl Extend<Scalar>, x: Scalar, key: Scalar) -> Scalar {
    let [x2, x4] = powers(x);
    let x5 = x4 * x + key;
    values.extend([x, x2, x4, x5]);
    x5
}

fn apply<const W: usize>(matrix: &[[Limbs; W]; W], state: &[Scalar; W]) -> [Scalar; W] {
    let state = state.each_ref().map(limbs);
    std::array::from_fn(|output| dot(&matrix[output], &state))
}

impl<const W: usize> Sparse<W> {
    fn new(first: &[Scalar], rest: &[Scalar]) -> Self {
        Self { first: std::array::from_fn(|i| limbs(&first[i])), rest: rest.to_vec() }
    }

    /// `first` is the new first element, `state` holds the others.
    fn apply(&self, first: Scalar, state: &[Scalar; W]) -> [Scalar; W] {
        let mut after = *state;
        after[0] = first;
        let sum = dot(&self.first, &after.each_ref().map(limbs));
        after[1..].iter_mut().zip(&self.rest).for_each(|(element, factor)| *element += first * factor);
        after[0] = sum;
        after
    }
}
