//! How much of a time is covered by spans of it, which may overlap and come in the order of their ends.

/// Spans that may still overlap with one to come are kept apart; those before them are only counted.
#[derive(Debug, Default)]
pub(super) struct Covered {
    settled_us: u64,
    /// Disjoint, in order.
    recent: Vec<(u64, u64)>,
}

/// Spans kept apart: more than lanes, so that a long stage of one still meets all short ones of the others beside it.
const MAX_RECENT: usize = 256;

impl Covered {
    pub fn add(&mut self, begin_us: u64, end_us: u64) {
        let (mut begin, mut end) = (begin_us, end_us);
        if begin >= end {
            return;
        }
        // Those that touch it are at the end of the list, since spans come in the order of their ends.
        let first = self.recent.partition_point(|span| span.1 < begin);
        for (other_begin, other_end) in self.recent.drain(first..) {
            begin = begin.min(other_begin);
            end = end.max(other_end);
        }
        self.recent.push((begin, end));
        if self.recent.len() > MAX_RECENT {
            self.settled_us +=
                self.recent.drain(..MAX_RECENT / 2).map(|(begin, end)| end - begin).sum::<u64>();
        }
    }

    pub fn total_us(&self) -> u64 {
        self.settled_us + self.recent.iter().map(|(begin, end)| end - begin).sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn overlaps_count_once(mut spans in prop::collection::vec((0usize..500, 0usize..30), 0..120)) {
            spans.sort_by_key(|(begin, length)| begin + length);
            let (mut covered, mut seconds) = (Covered::default(), [false; 600]);
            for (begin, length) in spans {
                covered.add(begin as u64, (begin + length) as u64);
                seconds[begin..begin + length].fill(true);
            }
            prop_assert_eq!(covered.total_us(), seconds.iter().filter(|second| **second).count() as u64);
        }
    }
}
