//! SHA-256 with all the intermediate words that the circuits allocate, in their order.
//!
//! A block's variables are bits of some 900 words: schedule terms, round terms, sums with their carries. Which bit of
//! which word a variable is, the block's [`BlockLayout`] says: runs of consecutive bits of one word. The layouts are
//! found by [`super::discover`] and stored in `layouts/sha256.txt`. There is one per [`BlockKind`], since constants in
//! a block's message and state allocate nothing.

use std::cell::Cell;
use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use blstrs::Scalar;
use ff::PrimeField;

use super::writer::{node, Writer};

/// SHA-256's initial state (FIPS 180-4, 5.3.3).
pub(super) const INITIAL_STATE: [u32; 8] =
    [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];

/// SHA-256's round constants (FIPS 180-4, 4.2.2).
#[rustfmt::skip]
const ROUND_CONSTANTS: [u32; 64] = [
    0x428a_2f98, 0x7137_4491, 0xb5c0_fbcf, 0xe9b5_dba5, 0x3956_c25b, 0x59f1_11f1, 0x923f_82a4, 0xab1c_5ed5,
    0xd807_aa98, 0x1283_5b01, 0x2431_85be, 0x550c_7dc3, 0x72be_5d74, 0x80de_b1fe, 0x9bdc_06a7, 0xc19b_f174,
    0xe49b_69c1, 0xefbe_4786, 0x0fc1_9dc6, 0x240c_a1cc, 0x2de9_2c6f, 0x4a74_84aa, 0x5cb0_a9dc, 0x76f9_88da,
    0x983e_5152, 0xa831_c66d, 0xb003_27c8, 0xbf59_7fc7, 0xc6e0_0bf3, 0xd5a7_9147, 0x06ca_6351, 0x1429_2967,
    0x27b7_0a85, 0x2e1b_2138, 0x4d2c_6dfc, 0x5338_0d13, 0x650a_7354, 0x766a_0abb, 0x81c2_c92e, 0x9272_2c85,
    0xa2bf_e8a1, 0xa81a_664b, 0xc24b_8b70, 0xc76c_51a3, 0xd192_e819, 0xd699_0624, 0xf40e_3585, 0x106a_a070,
    0x19a4_c116, 0x1e37_6c08, 0x2748_774c, 0x34b0_bcb5, 0x391c_0cb3, 0x4ed8_aa4a, 0x5b9c_ca4f, 0x682e_6ff3,
    0x748f_82ee, 0x78a5_636f, 0x84c8_7814, 0x8cc7_0208, 0x90be_fffa, 0xa450_6ceb, 0xbef9_a3f7, 0xc671_78f2,
];

/// A node as SHA-256 reads it: big-endian words.
pub(super) type NodeWords = [u32; 8];

/// Parents that a label is made of, repeated (storage-proofs-porep `TOTAL_PARENTS`).
const LABEL_PARENTS: usize = 37;

/// Bits of a label's message: replica id, layer and node number, parents.
const LABEL_MESSAGE_BITS: u32 = 256 * (2 + LABEL_PARENTS as u32);

const PAIR_MESSAGE_BITS: u32 = 512;

/// The blocks that Filecoin's circuits hash. A node in a message has 255 variable bits; its top bit is a constant 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockKind {
    /// Replica id, layer (a constant), number of the node; the state is a constant.
    LabelFirst,
    /// Two parents.
    LabelMiddle,
    /// A parent and the padding.
    LabelLast,
    /// Two nodes; the state is a constant.
    PairFirst,
    /// Nothing but padding.
    PairLast,
}

impl BlockKind {
    pub const ALL: [Self; 5] =
        [Self::LabelFirst, Self::LabelMiddle, Self::LabelLast, Self::PairFirst, Self::PairLast];

    pub fn name(self) -> &'static str {
        match self {
            Self::LabelFirst => "label-first",
            Self::LabelMiddle => "label-middle",
            Self::LabelLast => "label-last",
            Self::PairFirst => "pair-first",
            Self::PairLast => "pair-last",
        }
    }

    pub fn has_constant_state(self) -> bool {
        matches!(self, Self::LabelFirst | Self::PairFirst)
    }

    /// Of each word of the message, the bits that are variables, and the constants in the others' places.
    pub fn message_form(self, layer: u32) -> ([u32; 16], [u32; 16]) {
        const NODE: NodeWords = [!0, !0, !0, !0, !0, !0, !0, !0x80];
        const CONSTANT: NodeWords = [0; 8];
        let (variable, constant) = match self {
            Self::LabelFirst => ((NODE, [0, !0, !0, 0, 0, 0, 0, 0]), (CONSTANT, label_place(layer, 0))),
            Self::LabelMiddle | Self::PairFirst => ((NODE, NODE), (CONSTANT, CONSTANT)),
            Self::LabelLast => ((NODE, CONSTANT), (CONSTANT, padding(LABEL_MESSAGE_BITS))),
            Self::PairLast => ((CONSTANT, CONSTANT), (padding(0), [0, 0, 0, 0, 0, 0, 0, PAIR_MESSAGE_BITS])),
        };
        (block(variable.0, variable.1), block(constant.0, constant.1))
    }
}

/// The eight words after a label's replica id.
fn label_place(layer: u32, node: u64) -> NodeWords {
    [layer, (node >> 32) as u32, node as u32, 0, 0, 0, 0, 0]
}

/// The end of a message that fills all but the last eight words of its last block.
fn padding(message_bits: u32) -> NodeWords {
    [1 << 31, 0, 0, 0, 0, 0, 0, message_bits]
}

fn block(left: NodeWords, right: NodeWords) -> [u32; 16] {
    std::array::from_fn(|word| if word < 8 { left[word] } else { right[word - 8] })
}

/// The schedule's terms for one word: parts and whole of both sigmas, and the sum with its carries.
const SCHEDULE_SIGNALS: [&str; 5] = ["s0a", "s0", "s1a", "s1", "sum"];

/// A round's terms, in the order of its computation. `majbc` interleaves the bits of `maj` and `bc`, as the circuit
/// allocates them; both occur alone where constants make the other superfluous.
const ROUND_SIGNALS: [&str; 10] = ["e", "s1a", "s1", "ch", "a", "s0a", "s0", "maj", "bc", "majbc"];

const ROUNDS_BEGIN: usize = SCHEDULE_SIGNALS.len() * 48;
const STATE_BEGIN: usize = ROUNDS_BEGIN + ROUND_SIGNALS.len() * 64;
pub(super) const NUM_SIGNALS: usize = STATE_BEGIN + 8;

/// Everything that one block's computation goes through, word by word.
pub(super) type Signals = [u64; NUM_SIGNALS];

/// A signal's name: `w17.s0a`, `r05.majbc`, `h3`.
pub(super) fn signal_name(signal: usize) -> String {
    if signal >= STATE_BEGIN {
        return format!("h{}", signal - STATE_BEGIN);
    }
    let (prefix, first, terms, at) = match signal.checked_sub(ROUNDS_BEGIN) {
        None => ('w', 16, &SCHEDULE_SIGNALS[..], signal),
        Some(at) => ('r', 0, &ROUND_SIGNALS[..], at),
    };
    format!("{prefix}{:02}.{}", first + at / terms.len(), terms[at % terms.len()])
}

/// One compression, with all its signals.
pub(super) fn compress(state: &mut [u32; 8], message: &[u32; 16], signals: &mut Signals) {
    let schedule = schedule(message, signals);
    let [mut a_sum, mut e_sum] = [u64::from(state[0]), u64::from(state[4])];
    let [_, mut b, mut c, mut d, _, mut f, mut g, mut h] = *state;
    let rounds = signals[ROUNDS_BEGIN..STATE_BEGIN].as_chunks_mut::<{ ROUND_SIGNALS.len() }>().0;
    for ((key, word), out) in ROUND_CONSTANTS.iter().zip(&schedule).zip(rounds) {
        let (a, e) = (a_sum as u32, e_sum as u32);
        let s1a = e.rotate_right(6) ^ e.rotate_right(11);
        let s1 = s1a ^ e.rotate_right(25);
        let ch = (e & f) ^ (!e & g);
        let s0a = a.rotate_right(2) ^ a.rotate_right(13);
        let s0 = s0a ^ a.rotate_right(22);
        let bc = b & c;
        let maj = (a & b) ^ (a & c) ^ bc;
        let majbc = spread(maj) | spread(bc) << 1;
        let [s1a_out, s1_out, ch_out, s0a_out, s0_out, maj_out, bc_out] =
            [s1a, s1, ch, s0a, s0, maj, bc].map(u64::from);
        *out = [e_sum, s1a_out, s1_out, ch_out, a_sum, s0a_out, s0_out, maj_out, bc_out, majbc];
        let first = sum([h, s1, ch, *key, *word]);
        e_sum = first + u64::from(d);
        a_sum = first + sum([s0, maj]);
        (h, g, f, d, c, b) = (g, f, e, c, b, a);
    }
    // The last round's sums of a and e get the old state added before they are reduced.
    let after = [a_sum, b.into(), c.into(), d.into(), e_sum, f.into(), g.into(), h.into()];
    for ((state, after), out) in state.iter_mut().zip(after).zip(&mut signals[STATE_BEGIN..]) {
        *out = after + u64::from(*state);
        *state = *out as u32;
    }
}

fn schedule(message: &[u32; 16], signals: &mut Signals) -> [u32; 64] {
    let mut words = [0; 64];
    words[..16].copy_from_slice(message);
    let terms = signals[..ROUNDS_BEGIN].as_chunks_mut::<{ SCHEDULE_SIGNALS.len() }>().0;
    for (t, out) in (16..64).zip(terms) {
        let (x, y) = (words[t - 15], words[t - 2]);
        let s0a = x.rotate_right(7) ^ x.rotate_right(18);
        let s0 = s0a ^ x >> 3;
        let s1a = y.rotate_right(17) ^ y.rotate_right(19);
        let s1 = s1a ^ y >> 10;
        let total = sum([words[t - 16], s0, words[t - 7], s1]);
        *out = [s0a.into(), s0.into(), s1a.into(), s1.into(), total];
        words[t] = total as u32;
    }
    words
}

fn sum<const N: usize>(words: [u32; N]) -> u64 {
    words.into_iter().map(u64::from).sum()
}

/// The bits of `word` at the even places.
fn spread(word: u32) -> u64 {
    let mut x = u64::from(word);
    x = (x | x << 16) & 0x0000_ffff_0000_ffff;
    x = (x | x << 8) & 0x00ff_00ff_00ff_00ff;
    x = (x | x << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    x = (x | x << 2) & 0x3333_3333_3333_3333;
    (x | x << 1) & 0x5555_5555_5555_5555
}

/// Consecutive variables that are consecutive bits of one signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub signal: u16,
    /// The signal's bit that the first variable is.
    pub first: u8,
    /// 1 to 64.
    pub len: u8,
    /// The variables are the bits' complements.
    pub inverted: bool,
}

impl Run {
    fn value(self, signals: &Signals) -> u64 {
        let flip = if self.inverted { u64::MAX } else { 0 };
        (signals[usize::from(self.signal)] ^ flip) >> self.first & u64::MAX >> (64 - self.len)
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.inverted { "!" } else { "" };
        write!(f, "{mark}{} {} {}", signal_name(self.signal.into()), self.first, self.len)
    }
}

impl FromStr for Run {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let refuse = || format!("`{line}` is no run of a signal's bits");
        let [name, first, len] = *line.split(' ').collect::<Vec<_>>() else { return Err(refuse()) };
        let inverted = name.starts_with('!');
        let name = name.trim_start_matches('!');
        let signal = SIGNAL_NAMES.iter().position(|known| known == name).ok_or_else(refuse)?;
        let number = |text: &str| text.parse::<u8>().map_err(|_| refuse());
        let run = Self { signal: signal as u16, first: number(first)?, len: number(len)?, inverted };
        if !(1..=64).contains(&run.len) || u16::from(run.first) + u16::from(run.len) > 64 {
            return Err(refuse());
        }
        Ok(run)
    }
}

static SIGNAL_NAMES: LazyLock<Vec<String>> = LazyLock::new(|| (0..NUM_SIGNALS).map(signal_name).collect());

/// The variables that one block of a kind allocates, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BlockLayout {
    runs: Vec<Run>,
    num_variables: usize,
}

impl BlockLayout {
    pub fn new(runs: Vec<Run>) -> Self {
        let num_variables = runs.iter().map(|run| usize::from(run.len)).sum();
        Self { runs, num_variables }
    }

    pub fn num_variables(&self) -> usize {
        self.num_variables
    }

    /// The bits that the variables have.
    pub fn values<'a>(&'a self, signals: &'a Signals) -> impl Iterator<Item = (u64, usize)> + 'a {
        self.runs.iter().map(|run| (run.value(signals), usize::from(run.len)))
    }
}

/// A layout for every kind of block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layouts([BlockLayout; BlockKind::ALL.len()]);

/// The layouts that the program was built with.
pub(super) static LAYOUTS: LazyLock<Layouts> = LazyLock::new(|| {
    include_str!("layouts/sha256.txt").parse().expect("the tests read the file that is compiled in")
});

impl Layouts {
    /// `layouts` in the order of [`BlockKind::ALL`].
    pub fn new(layouts: [BlockLayout; BlockKind::ALL.len()]) -> Self {
        Self(layouts)
    }

    pub fn of(&self, kind: BlockKind) -> &BlockLayout {
        &self.0[kind as usize]
    }
}

impl fmt::Display for Layouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# The variables of SHA-256 blocks in Filecoin's circuits, found by matching the library's synthesis.")?;
        writeln!(f, "# Made by `cuzk-bench layouts`; never edited. A line: signal (! complements it), first bit, bits.")?;
        for (kind, layout) in BlockKind::ALL.iter().zip(&self.0) {
            writeln!(f, "block {} {}", kind.name(), layout.num_variables)?;
            layout.runs.iter().try_for_each(|run| writeln!(f, "{run}"))?;
        }
        Ok(())
    }
}

impl FromStr for Layouts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut lines = text.lines().filter(|line| !line.starts_with('#')).peekable();
        let mut layouts = Vec::with_capacity(BlockKind::ALL.len());
        for kind in BlockKind::ALL {
            let heading = lines.next().unwrap_or_default();
            let mut runs = Vec::new();
            while let Some(line) = lines.next_if(|line| !line.starts_with("block ")) {
                runs.push(line.parse()?);
            }
            let layout = BlockLayout::new(runs);
            if heading != format!("block {} {}", kind.name(), layout.num_variables) {
                return Err(format!(
                    "`{heading}` begins {} variables of {}",
                    layout.num_variables,
                    kind.name()
                ));
            }
            layouts.push(layout);
        }
        match lines.next() {
            Some(line) => Err(format!("`{line}` follows the last block")),
            None => Ok(Self(layouts.try_into().expect("one was made of each kind"))),
        }
    }
}

thread_local! {
    /// Time spent in blocks by this thread, while it is measured.
    static IN_BLOCKS: Cell<Option<Duration>> = const { Cell::new(None) };
}

/// What `work` gives, and how much of its time the calling thread spent in SHA-256 blocks: computed, and put in the
/// order of their variables.
pub(super) fn time_blocks<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    IN_BLOCKS.set(Some(Duration::ZERO));
    let made = work();
    (made, IN_BLOCKS.take().unwrap_or_default())
}

/// A message that is being hashed.
struct Hashing<'l> {
    layouts: &'l Layouts,
    state: [u32; 8],
    signals: Signals,
}

impl Hashing<'static> {
    fn begin() -> Self {
        Self { layouts: &LAYOUTS, state: INITIAL_STATE, signals: [0; NUM_SIGNALS] }
    }
}

impl Hashing<'_> {
    fn block(&mut self, writer: &mut Writer<'_>, kind: BlockKind, left: NodeWords, right: NodeWords) {
        let begun = IN_BLOCKS.get().map(|before| (before, Instant::now()));
        compress(&mut self.state, &block(left, right), &mut self.signals);
        let layout = self.layouts.of(kind);
        writer.many_bits(layout.num_variables(), layout.values(&self.signals));
        if let Some((before, begun)) = begun {
            IN_BLOCKS.set(Some(before + begun.elapsed()));
        }
    }

    /// Packs the digest's low 254 bits into a number.
    fn finish(self, writer: &mut Writer<'_>) -> Scalar {
        let digest = digest_scalar(&self.state);
        writer.num(digest);
        digest
    }
}

/// A digest's low 254 bits.
fn digest_scalar(state: &[u32; 8]) -> Scalar {
    let mut bytes = [0; 32];
    bytes.as_chunks_mut::<4>().0.iter_mut().zip(state).for_each(|(bytes, word)| *bytes = word.to_be_bytes());
    bytes[31] &= 0x3f;
    Scalar::from_repr_vartime(bytes).expect("254 bits are below the modulus")
}

/// A node as SHA-256 reads it.
pub(super) fn node_words(node: &[u8; 32]) -> NodeWords {
    let words = node.as_chunks::<4>().0;
    std::array::from_fn(|word| u32::from_be_bytes(words[word]))
}

/// The parent of two nodes in a data tree: both nodes' bits, the hash's two blocks, the digest
/// (filecoin-hashers `sha256.rs`, `hash2_circuit` and `hash_multi_leaf_circuit`).
pub(super) fn hash_pair(writer: &mut Writer<'_>, left: &Scalar, right: &Scalar) -> Scalar {
    let (left, right) = (node(left), node(right));
    writer.decomposition(&left);
    writer.decomposition(&right);
    let mut hashing = Hashing::begin();
    hashing.block(writer, BlockKind::PairFirst, node_words(&left), node_words(&right));
    hashing.block(writer, BlockKind::PairLast, padding(0), [0, 0, 0, 0, 0, 0, 0, PAIR_MESSAGE_BITS]);
    hashing.finish(writer)
}

/// A label (storage-proofs-porep `create_label_circuit`): its message's blocks and the digest. `parents` are repeated
/// in their order.
pub(super) fn label(
    writer: &mut Writer<'_>,
    replica_id: NodeWords,
    layer: u32,
    challenge: u64,
    parents: &[NodeWords],
) -> Scalar {
    let mut hashing = Hashing::begin();
    hashing.block(writer, BlockKind::LabelFirst, replica_id, label_place(layer, challenge));
    let parent = |number: usize| parents[number % parents.len()];
    for number in (0..LABEL_PARENTS - 1).step_by(2) {
        hashing.block(writer, BlockKind::LabelMiddle, parent(number), parent(number + 1));
    }
    hashing.block(writer, BlockKind::LabelLast, parent(LABEL_PARENTS - 1), padding(LABEL_MESSAGE_BITS));
    hashing.finish(writer)
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;

    #[test]
    fn compression_is_sha256() {
        let (mut state, mut signals) = (INITIAL_STATE, [0; NUM_SIGNALS]);
        let text: Vec<u8> = (0..128).collect();
        for half in text.as_chunks::<64>().0 {
            let words = half.as_chunks::<4>().0;
            compress(&mut state, &std::array::from_fn(|word| u32::from_be_bytes(words[word])), &mut signals);
        }
        compress(&mut state, &block(padding(0), [0, 0, 0, 0, 0, 0, 0, 1024]), &mut signals);
        let mut digest: [u8; 32] = Sha256::digest(&text).into();
        digest[31] &= 0x3f;
        assert_eq!(node(&digest_scalar(&state)), digest);
    }

    #[test]
    fn the_stored_layouts_read_and_write_back() {
        let stored = include_str!("layouts/sha256.txt");
        assert_eq!(stored.parse::<Layouts>().unwrap().to_string(), stored);
        assert_eq!(LAYOUTS.of(BlockKind::LabelMiddle).num_variables(), 26_158);
    }

    #[test]
    fn a_damaged_layout_is_refused_by_its_line() {
        let stored = include_str!("layouts/sha256.txt");
        let refused = |text: &str| text.parse::<Layouts>().unwrap_err();
        assert_eq!(
            refused(&stored.replacen("w16.sum 0 34", "w16.sum 31 34", 1)),
            "`w16.sum 31 34` is no run of a signal's bits"
        );
        assert_eq!(
            refused(&stored.replacen("w16.sum", "w15.sum", 1)),
            "`w15.sum 0 34` is no run of a signal's bits"
        );
        let shorter = stored.replacen("w16.sum 0 34\n", "", 1);
        assert!(refused(&shorter).starts_with("`block label-first "), "{}", refused(&shorter));
        assert_eq!(refused(&format!("{stored}block other 0\n")), "`block other 0` follows the last block");
    }
}
