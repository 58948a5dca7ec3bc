//! Which variables of a list occur in a query.

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

    /// The bits, the first variable in the lowest bit of the first word: `[ceil(len / 64)]`, zero beyond `len`.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Indices of the set variables, rising.
    pub fn iter_ones(&self) -> impl Iterator<Item = usize> + '_ {
        self.words.iter().enumerate().flat_map(|(word_index, &word)| {
            let mut rest = word;
            std::iter::from_fn(move || {
                let bit = rest.trailing_zeros() as usize;
                rest &= rest.checked_sub(1)?;
                Some(64 * word_index + bit)
            })
        })
    }

    /// Bytes held in memory.
    pub fn num_bytes(&self) -> u64 {
        8 * self.words.len() as u64
    }
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
    }
}
