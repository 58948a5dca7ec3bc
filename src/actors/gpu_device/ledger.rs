//! The books of one device's memory: every reservation is counted once, and comes back by being dropped.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

/// Who asks for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Leaves the critical reserve alone.
    Normal,
    /// May use the whole budget.
    Critical,
}

/// A reservation that there is no room for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    pub needs_bytes: u64,
    pub has_bytes: u64,
}

/// Reserved and free memory of one device.
///
/// Invariants, asserted at every change: what is reserved never exceeds the budget, what [`Claim::Normal`] holds never
/// exceeds the budget less the critical reserve, and nothing is given back that was not taken.
#[derive(Clone)]
pub struct MemoryLedger {
    books: Rc<RefCell<Books>>,
}

#[derive(Debug)]
struct Books {
    budget_bytes: u64,
    critical_reserve_bytes: u64,
    normal_bytes: u64,
    critical_bytes: u64,
}

impl Books {
    fn reserved_bytes(&self) -> u64 {
        self.normal_bytes + self.critical_bytes
    }

    fn limit_bytes(&self, claim: Claim) -> u64 {
        match claim {
            Claim::Normal => self.budget_bytes - self.critical_reserve_bytes,
            Claim::Critical => self.budget_bytes,
        }
    }

    fn available_bytes(&self, claim: Claim) -> u64 {
        let free = self.budget_bytes - self.reserved_bytes();
        match claim {
            Claim::Normal => free.min(self.limit_bytes(claim) - self.normal_bytes),
            Claim::Critical => free,
        }
    }

    fn held_by(&mut self, claim: Claim) -> &mut u64 {
        match claim {
            Claim::Normal => &mut self.normal_bytes,
            Claim::Critical => &mut self.critical_bytes,
        }
    }

    fn check(&self) {
        assert!(
            self.reserved_bytes() <= self.budget_bytes,
            "more memory reserved than the device has: {self:?}"
        );
        assert!(
            self.normal_bytes <= self.limit_bytes(Claim::Normal),
            "normal work holds memory of the critical reserve: {self:?}"
        );
    }
}

impl MemoryLedger {
    /// A reserve beyond the budget is cut to it.
    pub fn new(budget_bytes: u64, critical_reserve_bytes: u64) -> Self {
        let books = Books {
            budget_bytes,
            critical_reserve_bytes: critical_reserve_bytes.min(budget_bytes),
            normal_bytes: 0,
            critical_bytes: 0,
        };
        Self { books: Rc::new(RefCell::new(books)) }
    }

    pub fn budget_bytes(&self) -> u64 {
        self.books.borrow().budget_bytes
    }

    pub fn reserved_bytes(&self) -> u64 {
        self.books.borrow().reserved_bytes()
    }

    /// The most `claim` could ever have: on an otherwise empty device.
    pub fn limit_bytes(&self, claim: Claim) -> u64 {
        self.books.borrow().limit_bytes(claim)
    }

    /// The most `claim` can have now.
    pub fn available_bytes(&self, claim: Claim) -> u64 {
        self.books.borrow().available_bytes(claim)
    }

    /// # Errors
    /// [`Refused`] with both numbers; nothing has changed then.
    pub fn reserve(&self, bytes: u64, claim: Claim) -> Result<Reservation, Refused> {
        let mut books = self.books.borrow_mut();
        let has_bytes = books.available_bytes(claim);
        if bytes > has_bytes {
            return Err(Refused { needs_bytes: bytes, has_bytes });
        }
        *books.held_by(claim) += bytes;
        books.check();
        Ok(Reservation { books: Rc::clone(&self.books), bytes, claim })
    }
}

impl fmt::Debug for MemoryLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.books.borrow().fmt(f)
    }
}

/// Memory that is spoken for. Dropping it gives it back, also while a panic unwinds.
pub struct Reservation {
    books: Rc<RefCell<Books>>,
    bytes: u64,
    claim: Claim,
}

impl Reservation {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    #[cfg(test)]
    fn claim(&self) -> Claim {
        self.claim
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reservation({} B, {:?})", self.bytes, self.claim)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut books = self.books.borrow_mut();
        let held = books.held_by(self.claim);
        // A second panic while unwinding would abort the process, so the books are set right without asserting.
        *held = held.saturating_sub(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{catch_unwind, AssertUnwindSafe};

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, Debug)]
    enum Operation {
        Acquire {
            bytes: u64,
            critical: bool,
        },
        Release {
            index: usize,
        },
        /// Acquires and panics while holding it.
        Panic {
            bytes: u64,
        },
    }

    fn operation() -> impl Strategy<Value = Operation> {
        prop_oneof![
            4 => (0u64..400, any::<bool>()).prop_map(|(bytes, critical)| Operation::Acquire { bytes, critical }),
            4 => any::<usize>().prop_map(|index| Operation::Release { index }),
            1 => (0u64..400).prop_map(|bytes| Operation::Panic { bytes }),
        ]
    }

    fn apply(operation: Operation, ledger: &MemoryLedger, held: &mut Vec<Reservation>) {
        match operation {
            Operation::Acquire { bytes, critical } => {
                let claim = if critical { Claim::Critical } else { Claim::Normal };
                let available = ledger.available_bytes(claim);
                match ledger.reserve(bytes, claim) {
                    Ok(reservation) => held.push(reservation),
                    Err(refused) => {
                        assert!(bytes > available, "refused although there was room");
                        assert_eq!(refused, Refused { needs_bytes: bytes, has_bytes: available });
                    }
                }
            }
            Operation::Release { index } => {
                if !held.is_empty() {
                    held.swap_remove(index % held.len());
                }
            }
            Operation::Panic { bytes } => {
                // `resume_unwind` unwinds as a panic does, without printing ten thousand of them.
                let unwound = catch_unwind(AssertUnwindSafe(|| {
                    let _held = ledger.reserve(bytes, Claim::Normal);
                    std::panic::resume_unwind(Box::new("scripted"));
                }));
                assert!(unwound.is_err());
            }
        }
    }

    proptest! {
        // 100 runs of 1,000 operations: the 10^5 of the behaviour.
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn b06_leases_are_exact(
            budget in 0u64..2_000,
            reserve in 0u64..500,
            operations in proptest::collection::vec(operation(), 1_000),
        ) {
            let ledger = MemoryLedger::new(budget, reserve);
            let mut held = Vec::new();
            for operation in operations {
                apply(operation, &ledger, &mut held);
                let sum: u64 = held.iter().map(Reservation::bytes).sum();
                prop_assert_eq!(ledger.reserved_bytes(), sum);
                prop_assert!(sum <= budget);
                let normal: u64 =
                    held.iter().filter(|r| r.claim() == Claim::Normal).map(Reservation::bytes).sum();
                prop_assert!(normal <= budget - reserve.min(budget));
            }
            drop(held);
            prop_assert_eq!(ledger.reserved_bytes(), 0);
            prop_assert_eq!(ledger.available_bytes(Claim::Critical), budget);
        }
    }

    #[test]
    fn b15_an_impossible_reservation_names_both_numbers() {
        let ledger = MemoryLedger::new(1 << 30, 0);
        let refused = ledger.reserve(2 << 30, Claim::Normal).expect_err("twice the budget");
        assert_eq!(refused, Refused { needs_bytes: 2 << 30, has_bytes: 1 << 30 });
    }
}
