//! One budget for what the engine takes of the host's memory: circuits (proving keys and shapes) and witnesses.
//!
//! Reserved before it is taken, released when its holder has let go. Two rules keep a small budget slow and not stuck:
//! one witness is always let through, and one circuit that is not pinned. So what is reserved exceeds the limit by one of
//! each at most, and by what CRITICAL work was let through with.

/// What memory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostPart {
    /// Shapes and proving keys.
    Circuits,
    /// Witnesses, and the host's own proofs.
    Witnesses,
}

/// The books of one budget, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostBudget {
    limit_bytes: u64,
    circuit_bytes: u64,
    witness_bytes: u64,
    /// Of the circuits: those that stay whatever happens.
    pinned_bytes: u64,
}

impl HostBudget {
    pub fn new(limit_bytes: u64) -> Self {
        Self { limit_bytes, circuit_bytes: 0, witness_bytes: 0, pinned_bytes: 0 }
    }

    /// Another limit from now on. What is reserved stays so.
    pub fn set_limit(&mut self, limit_bytes: u64) {
        self.limit_bytes = limit_bytes;
    }

    /// Reserves if it fits, or if it is the one that is always let through.
    #[must_use]
    pub fn reserve(&mut self, part: HostPart, num_bytes: u64) -> bool {
        let fits = self.fits(num_bytes) || self.has_none(part);
        if fits {
            self.reserve_beyond(part, num_bytes);
        }
        fits
    }

    /// Reserves only if it is the one that is always let through: what is free goes to somebody else.
    #[must_use]
    pub fn reserve_if_none(&mut self, part: HostPart, num_bytes: u64) -> bool {
        let is_let_through = self.has_none(part);
        if is_let_through {
            self.reserve_beyond(part, num_bytes);
        }
        is_let_through
    }

    /// Reserves over the limit: for memory that is taken already, or for work that must not wait.
    pub fn reserve_beyond(&mut self, part: HostPart, num_bytes: u64) {
        let held = self.held_by(part);
        *held = held.saturating_add(num_bytes);
    }

    /// # Panics
    /// If more is released than was reserved: the books are wrong.
    pub fn release(&mut self, part: HostPart, num_bytes: u64) {
        let held = self.held_by(part);
        *held = held.checked_sub(num_bytes).expect("what is released was reserved before");
    }

    /// Of what is reserved for circuits, this much stays.
    pub fn pin(&mut self, num_bytes: u64) {
        self.pinned_bytes = self.pinned_bytes.saturating_add(num_bytes);
    }

    /// # Panics
    /// If it was not pinned: the books are wrong.
    pub fn unpin(&mut self, num_bytes: u64) {
        self.pinned_bytes =
            self.pinned_bytes.checked_sub(num_bytes).expect("what is unpinned was pinned before");
    }

    /// Whether `num_bytes` more stay within the limit.
    pub fn fits(&self, num_bytes: u64) -> bool {
        self.reserved_bytes().saturating_add(num_bytes) <= self.limit_bytes
    }

    /// Whether `num_bytes` could ever be had beside what is pinned. If not, waiting has no end.
    pub fn could_fit(&self, num_bytes: u64) -> bool {
        self.pinned_bytes.saturating_add(num_bytes) <= self.limit_bytes
    }

    fn has_none(&self, part: HostPart) -> bool {
        match part {
            HostPart::Circuits => self.circuit_bytes <= self.pinned_bytes,
            HostPart::Witnesses => self.witness_bytes == 0,
        }
    }

    fn held_by(&mut self, part: HostPart) -> &mut u64 {
        match part {
            HostPart::Circuits => &mut self.circuit_bytes,
            HostPart::Witnesses => &mut self.witness_bytes,
        }
    }

    pub fn reserved_bytes(&self) -> u64 {
        self.circuit_bytes.saturating_add(self.witness_bytes)
    }

    pub fn part_bytes(&self, part: HostPart) -> u64 {
        match part {
            HostPart::Circuits => self.circuit_bytes,
            HostPart::Witnesses => self.witness_bytes,
        }
    }

    pub fn pinned_bytes(&self) -> u64 {
        self.pinned_bytes
    }

    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_of_each_is_let_through_and_a_pinned_circuit_is_none() {
        let mut budget = HostBudget::new(100);
        assert!(budget.reserve(HostPart::Circuits, 500), "the only circuit");
        assert!(!budget.reserve(HostPart::Circuits, 1));
        assert!(budget.reserve(HostPart::Witnesses, 50), "the only witness");
        assert!(!budget.reserve(HostPart::Witnesses, 1));
        budget.pin(500);
        assert!(budget.reserve(HostPart::Circuits, 30), "the only one that is not pinned");
        assert!(!budget.reserve(HostPart::Circuits, 1));
        assert!(!budget.could_fit(1), "500 are pinned for good");
    }

    #[test]
    fn what_is_left_can_be_kept_for_somebody_else() {
        let mut budget = HostBudget::new(100);
        assert!(budget.reserve_if_none(HostPart::Witnesses, 10));
        assert!(!budget.reserve_if_none(HostPart::Witnesses, 10), "there is room, but not for this");
        assert!(budget.fits(90) && !budget.fits(91));
    }

    #[derive(Clone, Copy, Debug)]
    enum Operation {
        Reserve(HostPart, u64),
        Release(usize),
        Pin(usize),
    }

    fn operation() -> impl Strategy<Value = Operation> {
        let part = prop_oneof![Just(HostPart::Circuits), Just(HostPart::Witnesses)];
        prop_oneof![
            4 => (part, 0u64..120).prop_map(|(part, bytes)| Operation::Reserve(part, bytes)),
            3 => any::<usize>().prop_map(Operation::Release),
            1 => any::<usize>().prop_map(Operation::Pin),
        ]
    }

    proptest! {
        /// Exact at every step; over the limit by one circuit that is not pinned and one witness at most; and back to zero.
        #[test]
        fn the_books_are_exact(operations in prop::collection::vec(operation(), 0..300)) {
            let mut budget = HostBudget::new(150);
            let mut held: Vec<(HostPart, u64, bool)> = Vec::new();
            for operation in operations {
                match operation {
                    Operation::Reserve(part, bytes) => {
                        let pinned = held.iter().filter(|h| h.0 == part && !h.2).map(|h| h.1).sum::<u64>();
                        let expected = budget.reserved_bytes() + bytes <= 150 || pinned == 0;
                        prop_assert_eq!(budget.reserve(part, bytes), expected);
                        if expected {
                            held.push((part, bytes, false));
                        }
                    }
                    Operation::Release(index) if !held.is_empty() => {
                        let (part, bytes, pinned) = held.swap_remove(index % held.len());
                        if pinned {
                            budget.unpin(bytes);
                        }
                        budget.release(part, bytes);
                    }
                    Operation::Pin(index) if !held.is_empty() => {
                        let index = index % held.len();
                        if held[index].0 == HostPart::Circuits && !held[index].2 {
                            held[index].2 = true;
                            budget.pin(held[index].1);
                        }
                    }
                    _ => {}
                }
                let sum = |part| held.iter().filter(|h| h.0 == part).map(|h| h.1).sum::<u64>();
                prop_assert_eq!(budget.part_bytes(HostPart::Circuits), sum(HostPart::Circuits));
                prop_assert_eq!(budget.part_bytes(HostPart::Witnesses), sum(HostPart::Witnesses));
                prop_assert_eq!(budget.pinned_bytes(), held.iter().filter(|h| h.2).map(|h| h.1).sum::<u64>());
            }
            for (part, bytes, pinned) in held.drain(..) {
                if pinned {
                    budget.unpin(bytes);
                }
                budget.release(part, bytes);
            }
            prop_assert_eq!((budget.reserved_bytes(), budget.pinned_bytes()), (0, 0));
        }
    }
}
