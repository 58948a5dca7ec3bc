//! Host memory that others hold: reserved before they take it, released when they have let go of it.

use std::any::Any;
use std::sync::Weak;

use crate::policy::host_memory::{HostBudget, HostPart};

/// Somebody who may still hold memory: gone once nothing is left of it.
pub(super) type Holder = Weak<dyn Any + Send + Sync>;

/// The budget of host memory. What is given up while a worker thread or a device still holds it counts until that is
/// over: a cancelled stage ends when it ends.
pub(super) struct HostMemory {
    budget: HostBudget,
    lingering: Vec<Lingering>,
}

struct Lingering {
    part: HostPart,
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
        Self { budget: HostBudget::new(limit_bytes), lingering: Vec::new() }
    }

    /// As [`HostBudget::set_limit`].
    pub fn set_limit(&mut self, limit_bytes: u64) {
        self.budget.set_limit(limit_bytes);
    }

    /// As [`HostBudget::reserve`].
    #[must_use]
    pub fn reserve(&mut self, part: HostPart, num_bytes: u64) -> bool {
        self.collect();
        self.budget.reserve(part, num_bytes)
    }

    /// As [`HostBudget::reserve_if_none`].
    #[must_use]
    pub fn reserve_if_none(&mut self, part: HostPart, num_bytes: u64) -> bool {
        self.collect();
        self.budget.reserve_if_none(part, num_bytes)
    }

    /// As [`HostBudget::reserve_beyond`].
    pub fn reserve_beyond(&mut self, part: HostPart, num_bytes: u64) {
        self.budget.reserve_beyond(part, num_bytes);
    }

    /// Nobody holds it any more.
    pub fn release(&mut self, part: HostPart, num_bytes: u64) {
        self.budget.release(part, num_bytes);
    }

    pub fn pin(&mut self, num_bytes: u64) {
        self.budget.pin(num_bytes);
    }

    pub fn unpin(&mut self, num_bytes: u64) {
        self.budget.unpin(num_bytes);
    }

    /// Releases `num_bytes` once every holder is gone: now, or at a later [`Self::collect`].
    pub fn release_after(&mut self, part: HostPart, num_bytes: u64, holders: Vec<Holder>) {
        let lingering = Lingering { part, num_bytes, holders };
        if lingering.is_held() {
            self.lingering.push(lingering);
        } else {
            self.budget.release(part, num_bytes);
        }
    }

    /// Takes back what its holders have let go of.
    pub fn collect(&mut self) {
        let budget = &mut self.budget;
        self.lingering.retain(|lingering| {
            let is_held = lingering.is_held();
            if !is_held {
                budget.release(lingering.part, lingering.num_bytes);
            }
            is_held
        });
    }

    pub fn lingering_bytes(&self, part: HostPart) -> u64 {
        self.lingering.iter().filter(|held| held.part == part).map(|held| held.num_bytes).sum()
    }

    /// Whether `num_bytes` would fit if all that was let go were free already.
    pub fn will_fit(&self, num_bytes: u64) -> bool {
        let lingering_bytes: u64 = self.lingering.iter().map(|held| held.num_bytes).sum();
        let kept_bytes = self.budget.reserved_bytes() - lingering_bytes;
        kept_bytes.saturating_add(num_bytes) <= self.budget.limit_bytes()
    }

    pub fn budget(&self) -> &HostBudget {
        &self.budget
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn what_is_held_counts_until_it_is_let_go() {
        const PART: HostPart = HostPart::Witnesses;
        let mut memory = HostMemory::new(100);
        assert!(memory.reserve(PART, 60) && !memory.reserve(PART, 60));
        let (first, second) = (Arc::new(1u8), Arc::new(2u16));
        let holders: Vec<Holder> = vec![Arc::downgrade(&first) as Holder, Arc::downgrade(&second) as Holder];
        memory.release_after(PART, 60, holders);
        assert!(memory.will_fit(100) && !memory.will_fit(101));
        drop(first);
        assert!(!memory.reserve(PART, 60), "one holder is left");
        assert_eq!((memory.budget().reserved_bytes(), memory.lingering_bytes(PART)), (60, 60));
        drop(second);
        assert!(memory.reserve(PART, 60));
        memory.release_after(PART, 60, Vec::new());
        assert_eq!((memory.budget().reserved_bytes(), memory.lingering_bytes(PART)), (0, 0));
    }
}
