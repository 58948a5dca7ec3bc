//! Which circuits' queries are on the device, and who uses them: least recently used goes first, in use never.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use crate::actors::gpu_device::ledger::Reservation;
use crate::groth16::Srs;
use crate::ids::CircuitId;
use crate::policy::plan::QuerySet;

/// What is on the device for one circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    Absent,
    /// These queries of this very SRS.
    Here {
        queries: QuerySet,
        bytes: u64,
        in_use: bool,
    },
    /// Queries of another SRS under the same name: the host has replaced its key.
    Replaced {
        in_use: bool,
    },
}

/// The queries that are, or are being, loaded. Their memory is held here.
#[derive(Debug, Default)]
pub struct SrsCache {
    entries: HashMap<CircuitId, Entry>,
    /// Counts uses; the order of `last_used`.
    num_uses: u64,
    /// Counts changes of what is loaded.
    num_changes: u64,
}

#[derive(Debug)]
struct Entry {
    /// Tells one SRS from another; the host store keeps it alive, not this cache.
    srs: Weak<Srs>,
    queries: QuerySet,
    /// More than one if the set grew.
    memory: Vec<Reservation>,
    num_users: u32,
    last_used: u64,
    /// An upload of it has ended.
    loaded: bool,
    /// Nobody will ask for it again: it goes with its last user.
    unwanted: bool,
}

impl Entry {
    fn bytes(&self) -> u64 {
        self.memory.iter().map(Reservation::bytes).sum()
    }
}

impl SrsCache {
    pub fn presence(&self, circuit: &CircuitId, srs: &Arc<Srs>) -> Presence {
        match self.entries.get(circuit) {
            None => Presence::Absent,
            Some(entry) if std::ptr::eq(entry.srs.as_ptr(), Arc::as_ptr(srs)) => {
                Presence::Here { queries: entry.queries, bytes: entry.bytes(), in_use: entry.num_users > 0 }
            }
            Some(entry) => Presence::Replaced { in_use: entry.num_users > 0 },
        }
    }

    /// Counts a user of `queries` of this circuit; `memory` is for those that were not there yet.
    pub fn pin(
        &mut self,
        circuit: &CircuitId,
        srs: &Arc<Srs>,
        queries: QuerySet,
        memory: Option<Reservation>,
    ) {
        self.num_uses += 1;
        let entry = self.entries.entry(circuit.clone()).or_insert_with(|| Entry {
            srs: Arc::downgrade(srs),
            queries: QuerySet::NONE,
            memory: Vec::new(),
            num_users: 0,
            last_used: 0,
            loaded: false,
            unwanted: false,
        });
        entry.unwanted = false;
        entry.queries = entry.queries.union(queries);
        entry.memory.extend(memory);
        entry.num_users += 1;
        entry.last_used = self.num_uses;
    }

    /// An upload ended. `true` if it is the first of this circuit: its queries are resident from now on.
    pub fn mark_loaded(&mut self, circuit: &CircuitId) -> bool {
        match self.entries.get_mut(circuit) {
            Some(entry) => {
                let is_first = !std::mem::replace(&mut entry.loaded, true);
                self.num_changes += u64::from(is_first);
                is_first
            }
            None => false,
        }
    }

    /// An entry in use is to go as soon as it is idle, unless somebody asks for it again before.
    pub fn evict_when_idle(&mut self, circuit: &CircuitId) {
        if let Some(entry) = self.entries.get_mut(circuit) {
            entry.unwanted = true;
        }
    }

    /// Takes a user off. `true` if the entry is now of no use: nobody uses it, and it was never loaded or is no longer
    /// wanted.
    ///
    /// # Panics
    /// If the circuit has no user: the actor's books are wrong.
    pub fn unpin(&mut self, circuit: &CircuitId) -> bool {
        let entry = self.entries.get_mut(circuit).expect("a pinned circuit is never removed");
        entry.num_users = entry.num_users.checked_sub(1).expect("each unpin follows its pin");
        entry.num_users == 0 && (!entry.loaded || entry.unwanted)
    }

    /// `None` if it is not there, `Some(true)` if a lane uses it.
    pub fn in_use(&self, circuit: &CircuitId) -> Option<bool> {
        self.entries.get(circuit).map(|entry| entry.num_users > 0)
    }

    /// Memory that a circuit's queries hold; 0 if it is not there.
    pub fn bytes_of(&self, circuit: &CircuitId) -> u64 {
        self.entries.get(circuit).map_or(0, Entry::bytes)
    }

    /// Forgets an idle circuit and gives its memory back; `None` if it was not there. The caller frees the device's.
    ///
    /// # Panics
    /// If it is in use.
    pub fn remove(&mut self, circuit: &CircuitId) -> Option<Removed> {
        let entry = self.entries.remove(circuit)?;
        assert_eq!(entry.num_users, 0, "srs of {circuit} is in use");
        self.num_changes += 1;
        Some(Removed { was_loaded: entry.loaded })
    }

    /// The idle circuit whose last use is longest ago, `except` apart.
    pub fn least_recently_used(&self, except: &CircuitId) -> Option<CircuitId> {
        self.idle(except).min_by_key(|(_, entry)| entry.last_used).map(|(circuit, _)| circuit.clone())
    }

    /// Memory that evicting every idle circuit, `except` apart, would give back.
    pub fn idle_bytes(&self, except: &CircuitId) -> u64 {
        self.idle(except).map(|(_, entry)| entry.bytes()).sum()
    }

    /// Differs from what it was if other queries are loaded than then.
    pub fn num_changes(&self) -> u64 {
        self.num_changes
    }

    /// Circuits with loaded queries, by name.
    pub fn loaded(&self) -> Vec<CircuitId> {
        let mut circuits: Vec<CircuitId> = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.loaded)
            .map(|(circuit, _)| circuit.clone())
            .collect();
        circuits.sort();
        circuits
    }

    fn idle<'a>(&'a self, except: &'a CircuitId) -> impl Iterator<Item = (&'a CircuitId, &'a Entry)> {
        self.entries.iter().filter(move |(circuit, entry)| entry.num_users == 0 && *circuit != except)
    }
}

/// What was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removed {
    pub was_loaded: bool,
}
