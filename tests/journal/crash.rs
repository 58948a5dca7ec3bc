//! The power goes at every write of the journal in turn.
//!
//! The disk of these tests keeps what was synchronised, and of later writes nothing, everything, or any part: in any
//! order, torn at sectors. A journal that is opened on that must hold what was acknowledged, all of the transaction
//! that was cut or nothing of it, and go on.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use cuzk::journal::{Medium, OpenBackend, StorageBackend, Store};
use rand::{Rng, RngCore};

use crate::common::seeds;
use crate::model::{Model, KEEP_ALL};
use crate::records::{accept, workload};

const SECTOR_BYTES: usize = 512;

#[derive(Debug, Clone)]
enum Change {
    Write { offset: usize, data: Vec<u8> },
    SetLen(usize),
}

#[derive(Debug, Default)]
struct State {
    /// What the program sees.
    view: Vec<u8>,
    /// What is on the disk for good.
    durable: Vec<u8>,
    /// Since then.
    pending: Vec<Change>,
    num_ops: u64,
    /// The number of the first change that does not happen, and after which nothing does.
    cut_at: u64,
}

/// A disk whose power can be cut.
#[derive(Clone, Debug, Default)]
pub struct CrashDisk(Arc<Mutex<State>>);

/// What is left of changes that were not synchronised.
#[derive(Clone, Copy, Debug)]
pub enum Left {
    Nothing,
    Everything,
    /// Any part, by a seed.
    Part(u64),
}

impl CrashDisk {
    pub fn holding(image: Vec<u8>, cut_at: u64) -> Self {
        let state = State { view: image.clone(), durable: image, cut_at, ..State::default() };
        Self(Arc::new(Mutex::new(state)))
    }

    pub fn new(cut_at: u64) -> Self {
        Self::holding(Vec::new(), cut_at)
    }

    pub fn medium(&self) -> Medium {
        Medium::Backend(Arc::new(self.clone()))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    pub fn num_ops(&self) -> u64 {
        self.state().num_ops
    }

    pub fn view(&self) -> Vec<u8> {
        self.state().view.clone()
    }

    /// What is found after the power is back.
    pub fn left(&self, left: Left) -> Vec<u8> {
        let state = self.state();
        let mut rng = match left {
            Left::Nothing => return state.durable.clone(),
            Left::Everything => None,
            Left::Part(seed) => Some(seeds::rng_of(seed)),
        };
        let mut image = state.durable.clone();
        for change in &state.pending {
            match change {
                Change::SetLen(len) if rng.as_mut().is_none_or(|rng| rng.gen()) => image.resize(*len, 0),
                Change::SetLen(_) => {}
                Change::Write { offset, data } => {
                    for (index, sector) in data.chunks(SECTOR_BYTES).enumerate() {
                        if rng.as_mut().is_none_or(|rng| rng.next_u32() % 3 > 0) {
                            let start = offset + index * SECTOR_BYTES;
                            if image.len() < start + sector.len() {
                                image.resize(start + sector.len(), 0);
                            }
                            image[start..start + sector.len()].copy_from_slice(sector);
                        }
                    }
                }
            }
        }
        image
    }
}

impl State {
    /// One more change.
    ///
    /// # Errors
    /// If the power is gone.
    fn step(&mut self) -> io::Result<()> {
        self.num_ops += 1;
        if self.num_ops >= self.cut_at {
            return Err(io::Error::other("the power is cut"));
        }
        Ok(())
    }
}

impl OpenBackend for CrashDisk {
    fn name(&self) -> String {
        "<crash>".to_owned()
    }

    fn open(&self) -> io::Result<Box<dyn StorageBackend>> {
        Ok(Box::new(self.clone()))
    }
}

impl StorageBackend for CrashDisk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state().view.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.state();
        let range = offset as usize..offset as usize + out.len();
        out.copy_from_slice(state.view.get(range).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.state();
        state.step()?;
        state.view.resize(len as usize, 0);
        state.pending.push(Change::SetLen(len as usize));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.state();
        state.step()?;
        state.durable = state.view.clone();
        state.pending.clear();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        let change = Change::Write { offset: offset as usize, data: data.to_vec() };
        if let Err(error) = state.step() {
            // It may have begun.
            if state.num_ops == state.cut_at {
                state.pending.push(change);
            }
            return Err(error);
        }
        let offset = offset as usize;
        state.view[offset..offset + data.len()].copy_from_slice(data);
        state.pending.push(change);
        Ok(())
    }
}

/// Runs the workload until the power is cut. What was acknowledged, and what was being written.
fn run_until_cut(disk: &CrashDisk) -> (Model, Model) {
    let mut acknowledged = Model::new();
    let Ok((mut store, _)) = Store::open(disk.medium(), KEEP_ALL) else {
        return (acknowledged.clone(), acknowledged);
    };
    for ops in workload() {
        let mut attempted = acknowledged.clone();
        attempted.apply(&ops);
        if store.commit(ops, 0).is_err() {
            return (acknowledged, attempted);
        }
        acknowledged = attempted;
    }
    (acknowledged.clone(), acknowledged)
}

/// An empty journal, and how many changes the workload makes to it.
fn empty_journal() -> (Vec<u8>, u64) {
    let disk = CrashDisk::new(u64::MAX);
    drop(Store::open(disk.medium(), KEEP_ALL).unwrap());
    let image = disk.view();
    let disk = CrashDisk::holding(image.clone(), u64::MAX);
    run_until_cut(&disk);
    (image, disk.num_ops())
}

/// The journal on `image` holds one of the two, and can be written.
fn check(image: Vec<u8>, acknowledged: &Model, attempted: &Model, what: &str) {
    let disk = CrashDisk::holding(image, u64::MAX);
    let (mut store, contents) =
        Store::open(disk.medium(), KEEP_ALL).unwrap_or_else(|error| panic!("{what}: {error}"));
    let mut found = Model::from(contents);
    assert!(found == *acknowledged || found == *attempted, "{what}: {found:#?} of {attempted:#?}");
    for job in found.jobs.keys() {
        store.reader().request(*job).unwrap_or_else(|error| panic!("{what}: {error}"));
    }
    let more = vec![accept(100, 3_000)];
    found.apply(&more);
    store.commit(more, 0).unwrap_or_else(|error| panic!("{what}: {error}"));
    drop(store);
    let (_, contents) =
        Store::open(disk.medium(), KEEP_ALL).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(Model::from(contents), found, "{what}");
}

#[test]
fn b49_power_cut_at_any_write_loses_nothing_that_was_acknowledged() {
    let (image, num_ops) = empty_journal();
    let seed = seeds::seed();
    println!("CUZK_TEST_SEED={seed}, {num_ops} changes");
    assert!(num_ops > 100, "the workload is to have many places to be cut at: {num_ops}");
    for cut_at in 1..=num_ops {
        let disk = CrashDisk::holding(image.clone(), cut_at);
        let (acknowledged, attempted) = run_until_cut(&disk);
        let parts = (0..3).map(|index| Left::Part(seed ^ (cut_at << 8) ^ index));
        for left in [Left::Nothing, Left::Everything].into_iter().chain(parts) {
            check(disk.left(left), &acknowledged, &attempted, &format!("cut at {cut_at}, {left:?}"));
        }
    }
}

/// The power goes again while the journal is opened after the first cut.
#[test]
fn b49_a_second_power_cut_during_the_recovery_loses_nothing_either() {
    let (image, num_ops) = empty_journal();
    let seed = seeds::seed();
    println!("CUZK_TEST_SEED={seed}");
    for cut_at in (1..=num_ops).step_by(7) {
        let disk = CrashDisk::holding(image.clone(), cut_at);
        let (acknowledged, attempted) = run_until_cut(&disk);
        let left = disk.left(Left::Part(seed ^ cut_at));
        for second_cut in 1.. {
            let disk = CrashDisk::holding(left.clone(), second_cut);
            let opened = Store::open(disk.medium(), KEEP_ALL);
            let is_open = opened.is_ok();
            drop(opened);
            let again = disk.left(Left::Part(seed ^ second_cut));
            let what = format!("cut at {cut_at}, again at {second_cut}");
            check(again, &acknowledged, &attempted, &what);
            if is_open && disk.num_ops() < second_cut {
                break;
            }
        }
    }
}
