//! Which variables of a list occur in a query.

const BITS_PER_WORD: usize = u64::BITS as usize;
/// Words between two entries of a rank directory.
const WORDS_PER_RANK: usize = 8;

/// Which variables of a list occur in a query: a bit set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Density {
    words: Vec<u64>,
    len: usize,
}

impl Density {
    /// `len` variables, none of them set.
    pub fn new(len: usize) -> Self {
        Self { words: vec![0; len.div_ceil(64)], len }
    }

    /// Number of variables, set or not.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of variables that are set.
    pub fn count_ones(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// # Panics
    /// If `index` is not below [`Density::len`].
    pub fn get(&self, index: usize) -> bool {
        assert!(index < self.len, "variable {index} of {}", self.len);
        self.words[index / 64] >> (index % 64) & 1 == 1
    }

    /// # Panics
    /// If `index` is not below [`Density::len`].
    pub fn set(&mut self, index: usize) {
        assert!(index < self.len, "variable {index} of {}", self.len);
        self.words[index / 64] |= 1 << (index % 64);
    }

    /// Sets the variables that are not set in `other`.
    ///
    /// # Panics
    /// If `other` has another length.
    pub fn set_all_but(&mut self, other: &Density) {
        assert_eq!(self.len, other.len, "as many variables");
        self.words.iter_mut().zip(&other.words).for_each(|(word, other)| *word |= !other);
        let spare = self.words.len() * BITS_PER_WORD - self.len;
        if let Some(last) = self.words.last_mut() {
            *last &= u64::MAX >> spare;
        }
    }

    /// The bits, the first variable in the lowest bit of the first word: `[ceil(len / 64)]`, zero beyond `len`.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Indices of the set variables, rising.
    pub fn iter_ones(&self) -> impl Iterator<Item = usize> + '_ {
        iter_ones(&self.words, 0)
    }

    /// Bytes held in memory.
    pub fn num_bytes(&self) -> u64 {
        8 * self.words.len() as u64
    }
}

/// A bit set with a directory of how many bits are set before every 512th: ranks in constant time, selection by
/// bisection, for a sixteenth more memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankedDensity {
    density: Density,
    /// Entry `k`: set bits before bit `512 k`.
    ranks: Vec<u32>,
    num_ones: usize,
}

impl From<Density> for RankedDensity {
    /// # Panics
    /// If 2^32 bits or more are set; shapes have fewer variables.
    fn from(density: Density) -> Self {
        let mut num_ones = 0;
        let count = |words: &[u64]| {
            let rank = u32::try_from(num_ones).expect("fewer than 2^32 variables");
            num_ones += words.iter().map(|word| word.count_ones() as usize).sum::<usize>();
            rank
        };
        let ranks = density.words.chunks(WORDS_PER_RANK).map(count).collect();
        Self { density, ranks, num_ones }
    }
}

impl std::ops::Deref for RankedDensity {
    type Target = Density;

    fn deref(&self) -> &Density {
        &self.density
    }
}

impl RankedDensity {
    /// As [`Density::count_ones`], without counting.
    pub fn num_ones(&self) -> usize {
        self.num_ones
    }

    /// Entry `k`: set bits before bit `512 k`.
    pub fn ranks(&self) -> &[u32] {
        &self.ranks
    }

    /// Set bits before `index`.
    ///
    /// # Panics
    /// If `index` is not below [`Density::len`].
    pub fn rank(&self, index: usize) -> usize {
        assert!(index < self.density.len, "variable {index} of {}", self.density.len);
        let (word, bit) = (index / BITS_PER_WORD, index % BITS_PER_WORD);
        let block = word / WORDS_PER_RANK;
        let words = &self.density.words;
        let before: u32 = words[block * WORDS_PER_RANK..word].iter().map(|word| word.count_ones()).sum();
        let within = (words[word] & ((1 << bit) - 1)).count_ones();
        (self.ranks[block] + before + within) as usize
    }

    /// As [`Self::rank`]; `index` may also be the length.
    pub fn num_ones_before(&self, index: usize) -> usize {
        if index == self.density.len {
            self.num_ones
        } else {
            self.rank(index)
        }
    }

    /// Indices of the set bits, rising, without the first `num_skipped`.
    pub fn iter_ones_from(&self, num_skipped: usize) -> impl Iterator<Item = usize> + '_ {
        let block = self.ranks.partition_point(|&rank| rank as usize <= num_skipped).saturating_sub(1);
        let mut left = num_skipped - self.ranks.get(block).map_or(0, |&rank| rank as usize);
        let mut word = (block * WORDS_PER_RANK).min(self.density.words.len());
        while let Some(ones) = self.density.words.get(word).map(|word| word.count_ones() as usize) {
            if left < ones {
                break;
            }
            (left, word) = (left - ones, word + 1);
        }
        iter_ones(&self.density.words[word..], word).skip(left)
    }

    /// Bytes held in memory.
    pub fn num_bytes(&self) -> u64 {
        self.density.num_bytes() + 4 * self.ranks.len() as u64
    }
}

/// Positions of the bits set in `words`, the first of which is word `first` of the whole.
fn iter_ones(words: &[u64], first: usize) -> impl Iterator<Item = usize> + '_ {
    words.iter().enumerate().flat_map(move |(index, &word)| {
        let mut rest = word;
        std::iter::from_fn(move || {
            let bit = rest.trailing_zeros() as usize;
            rest &= rest.checked_sub(1)?;
            Some(BITS_PER_WORD * (first + index) + bit)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_a_list_of_flags(flags in proptest::collection::vec(any::<bool>(), 0..300)) {
            let mut density = Density::new(flags.len());
            for (index, _) in flags.iter().enumerate().filter(|(_, set)| **set) {
                density.set(index);
            }
            let ones: Vec<usize> = (0..flags.len()).filter(|&i| flags[i]).collect();
            prop_assert_eq!(density.count_ones(), ones.len());
            prop_assert_eq!(density.iter_ones().collect::<Vec<_>>(), ones);
            prop_assert!((0..flags.len()).all(|i| density.get(i) == flags[i]));
        }

        #[test]
        fn ranks_and_selection_agree_with_counting(
            flags in proptest::collection::vec(prop_oneof![5 => Just(false), 1 => any::<bool>()], 0..3000),
        ) {
            let mut density = Density::new(flags.len());
            for (index, _) in flags.iter().enumerate().filter(|(_, set)| **set) {
                density.set(index);
            }
            let ones: Vec<usize> = density.iter_ones().collect();
            let ranked = RankedDensity::from(density);
            prop_assert_eq!(ranked.num_ones(), ones.len());
            for index in 0..flags.len() {
                prop_assert_eq!(ranked.rank(index), ones.partition_point(|&one| one < index));
            }
            for num_skipped in 0..ones.len() + 2 {
                let expected = ones.get(num_skipped..).unwrap_or_default();
                prop_assert!(ranked.iter_ones_from(num_skipped).eq(expected.iter().copied()));
            }
        }
    }
}
