//! Panics of code that is not ours to trust: caught with all that comes with them.

use std::any::Any;
use std::panic::{catch_unwind, AssertUnwindSafe};

/// What a caught panic said: its payload is text unless somebody panicked with a value of their own.
pub(crate) fn panic_text(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message").to_owned()
}

/// Runs `work`; a panic is given back as its text. Never unwinds: a panic's payload may be any value, also one whose own
/// drop panics, and so may that panic's.
///
/// What a panic may have left half done is to be `work`'s own, and dropped with it. (The process's panic hook still
/// prints it.)
pub(crate) fn catch<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| {
        let text = panic_text(payload.as_ref());
        if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            // There may be a third in it, and so on without end: leaking a value is what ends this.
            std::mem::forget(second);
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each one's drop panics with the next, and the last one's with text.
    struct Bomb(u32);

    impl Drop for Bomb {
        fn drop(&mut self) {
            if self.0 > 0 {
                std::panic::panic_any(Bomb(self.0 - 1));
            }
            panic!("the payload of this panic panics on purpose");
        }
    }

    #[test]
    fn a_result_and_the_text_of_a_panic_come_back() {
        assert_eq!(catch(|| 3), Ok(3));
        assert_eq!(catch(|| -> u32 { panic!("on {}", "purpose") }), Err("on purpose".to_owned()));
        assert_eq!(catch(|| -> u32 { std::panic::panic_any(7) }), Err("no message".to_owned()));
    }

    #[test]
    fn payloads_whose_drop_panics_do_not_get_out() {
        for depth in 0..4 {
            assert_eq!(catch(|| -> u32 { std::panic::panic_any(Bomb(depth)) }), Err("no message".to_owned()));
        }
    }
}
