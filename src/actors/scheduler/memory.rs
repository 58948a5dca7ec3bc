//! Host memory that others hold: reserved before they take it, released when they have let go of it.

use std::any::Any;
use std::sync::Weak;

use crate::policy::admission::ByteBudget;

/// Somebody who may still hold memory: gone once nothing is left of it.
pub(super) type Holder = Weak<dyn Any + Send + Sync>;

/// A budget of host memory. What is given up while a worker thread or a device still holds it counts until that is
/// over: a cancelled stage ends when it ends.
pub(super) struct HostMemory {
    budget: ByteBudget,
    lingering: Vec<Lingering>,
}

struct Lingering {
    num_bytes: u64,
    holders: Vec<Holder>,
}

impl Lingering {
    fn is_held(&self) -> bool {
        self.holders.iter().any(|holder| holder.strong_count() > 0)
    }
}

impl HostMemory {
    pub fn new(limit_bytes: u64) -> Self {
        Self { budget: ByteBudget::new(limit_bytes), lingering: Vec::new() }
    }

    /// As [`ByteBudget::reserve`].
    #[must_use]
    pub fn reserve(&mut self, num_bytes: u64) -> bool {
        self.collect();
        self.budget.reserve(num_bytes)
    }

    /// As [`ByteBudget::reserve_beyond`].
    pub fn reserve_beyond(&mut self, num_bytes: u64) {
        self.budget.reserve_beyond(num_bytes);
    }

    /// Nobody holds it any more.
    pub fn release(&mut self, num_bytes: u64) {
        self.budget.release(num_bytes);
    }

    /// Releases `num_bytes` once every holder is gone: now, or at a later [`Self::collect`].
    pub fn release_after(&mut self, num_bytes: u64, holders: Vec<Holder>) {
        let lingering = Lingering { num_bytes, holders };
        if lingering.is_held() {
            self.lingering.push(lingering);
        } else {
            self.budget.release(num_bytes);
        }
    }

    /// Takes back what its holders have let go of.
    pub fn collect(&mut self) {
        let budget = &mut self.budget;
        self.lingering.retain(|lingering| {
            let is_held = lingering.is_held();
            if !is_held {
                budget.release(lingering.num_bytes);
            }
            is_held
        });
    }

    pub fn lingering_bytes(&self) -> u64 {
        self.lingering.iter().map(|lingering| lingering.num_bytes).sum()
    }

    pub fn reserved_bytes(&self) -> u64 {
        self.budget.reserved_bytes()
    }

    pub fn limit_bytes(&self) -> u64 {
        self.budget.limit_bytes()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn what_is_held_counts_until_it_is_let_go() {
        let mut memory = HostMemory::new(100);
        assert!(memory.reserve(60) && !memory.reserve(60));
        let (first, second) = (Arc::new(1u8), Arc::new(2u16));
        let holders: Vec<Holder> = vec![Arc::downgrade(&first) as Holder, Arc::downgrade(&second) as Holder];
        memory.release_after(60, holders);
        drop(first);
        assert!(!memory.reserve(60), "one holder is left");
        assert_eq!((memory.reserved_bytes(), memory.lingering_bytes()), (60, 60));
        drop(second);
        assert!(memory.reserve(60));
        memory.release_after(60, Vec::new());
        assert_eq!((memory.reserved_bytes(), memory.lingering_bytes()), (0, 0));
    }
}
