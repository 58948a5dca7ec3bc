//! A loop on several threads that is compiled once for each kind of result, and not once more for each tree and closure.

use rayon::prelude::*;

use crate::loops;

/// `make(index)` for each index below `count`, in order.
pub(super) fn map<R: Send>(count: usize, make: &(dyn Fn(usize) -> R + Sync)) -> Vec<R> {
    loops::run(|| (0..count).into_par_iter().map(make).collect())
}
