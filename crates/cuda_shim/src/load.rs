//! The dynamic loader, as far as it is needed.

use std::ffi::{c_char, c_int, c_void, CStr};
use std::ptr::NonNull;

// These are in the C library since glibc 2.34 and in libdl before; the standard library links both.
extern "C" {
    fn dlopen(file: *const c_char, mode: c_int) -> *mut c_void;
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dlerror() -> *const c_char;
}

const RTLD_NOW: c_int = 2;

/// A loaded library; never unloaded, so that its functions stay valid for the process's life.
pub(crate) struct Library(NonNull<c_void>);

// SAFETY: a loader handle belongs to the process, not to a thread.
unsafe impl Send for Library {}
// SAFETY: `dlsym` may be called from any thread.
unsafe impl Sync for Library {}

impl Library {
    /// Loads a library; its symbols stay out of the global scope (`RTLD_LOCAL` is the default).
    pub(crate) fn open(file: &CStr) -> Result<Self, String> {
        // SAFETY: `file` is NUL-terminated. Loading runs the library's constructors, as linking would.
        let handle = unsafe { dlopen(file.as_ptr(), RTLD_NOW) };
        NonNull::new(handle).map(Library).ok_or_else(last_error)
    }

    /// The address of an exported symbol.
    pub(crate) fn symbol(&self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: the handle is open for the process's life and `name` is NUL-terminated.
        NonNull::new(unsafe { dlsym(self.0.as_ptr(), name.as_ptr()) })
    }
}

fn last_error() -> String {
    // SAFETY: `dlerror` has no preconditions.
    let text = unsafe { dlerror() };
    if text.is_null() {
        return "unknown loader error".into();
    }
    // SAFETY: not null, NUL-terminated, valid until this thread's next loader call.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
