//! Which threads run the loops of the work at hand.
//!
//! Rayon takes what comes from a thread that is not its own after everything that it has begun: the loop of an urgent task
//! would wait for those of every witness under way. So the Synthesizer's workers run urgent tasks [`with`] a second pool.
//!
//! Only loops go to a pool, never whole tasks. A pool's thread that waits for a part of its loop takes up another meanwhile, on
//! its own stack: where a task had gone there beneath a lock that the other one takes too, it would wait for itself.

use std::cell::RefCell;
use std::sync::Arc;

use rayon::ThreadPool;

thread_local! {
    /// Of the task that this thread is at; `None`: rayon's own.
    static POOL: RefCell<Option<Arc<ThreadPool>>> = const { RefCell::new(None) };
}

/// Puts back what a thread had before.
struct Reset(Option<Arc<ThreadPool>>);

impl Drop for Reset {
    fn drop(&mut self) {
        POOL.set(self.0.take());
    }
}

/// Does `work`; its loops are run by `pool`.
pub fn with<R>(pool: &Arc<ThreadPool>, work: impl FnOnce() -> R) -> R {
    let _reset = Reset(POOL.replace(Some(Arc::clone(pool))));
    work()
}

/// Runs a loop by the threads that are this task's, or by rayon's. It must take no lock, and for no one else.
pub fn run<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    match POOL.with_borrow(Option::clone) {
        Some(pool) => pool.install(work),
        None => work(),
    }
}

/// Whether this thread's task has threads of its own.
pub fn has_own() -> bool {
    POOL.with_borrow(Option::is_some)
}

#[cfg(test)]
mod tests {
    use std::panic::{catch_unwind, AssertUnwindSafe};

    use super::*;

    fn thread() -> Option<String> {
        std::thread::current().name().map(str::to_owned)
    }

    #[test]
    fn loops_run_where_their_task_says_and_nothing_is_left_of_it() {
        let here = thread();
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).thread_name(|_| "own".to_owned()).build();
        let pool = Arc::new(pool.unwrap());
        assert_eq!(run(thread), here);
        with(&pool, || {
            assert!(has_own());
            assert_eq!(thread(), here, "the task itself stays");
            assert_eq!(run(thread).as_deref(), Some("own"));
            // A loop within a loop is run where that one is.
            assert_eq!(run(|| run(thread)).as_deref(), Some("own"));
        });
        let panicked = catch_unwind(AssertUnwindSafe(|| with(&pool, || run(|| panic!("on purpose")))));
        assert!(panicked.is_err());
        assert!(!has_own());
        assert_eq!(run(thread), here);
    }
}
