#![doc = include_str!("../README.md")]

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
compile_error!("cuda_shim knows Linux on x86-64 and aarch64; build without the `cuda` feature elsewhere");

mod load;
mod symbols;

use std::arch::naked_asm;
use std::ffi::{c_char, c_int, c_uint, c_void, CStr};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::OnceLock;

use symbols::for_each_jump;

/// What every entry point but `cuInit` returns without a driver: `CUDA_ERROR_NO_DEVICE`.
pub const NO_DEVICE: c_int = 100;
/// What an entry point returns that the loaded driver does not have: `CUDA_ERROR_NOT_FOUND`.
pub const NOT_FOUND: c_int = 500;
const INVALID_VALUE: c_int = 1;

/// Why there is no driver: the dynamic loader's own message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoDriver(pub String);

impl std::fmt::Display for NoDriver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the CUDA driver could not be loaded: {}", self.0)
    }
}

impl std::error::Error for NoDriver {}

macro_rules! define_slots {
    ($($name:ident,)*) => {
        /// The slot of each jump; fieldless, so that `as usize` is the place in the list.
        #[allow(non_camel_case_types, clippy::enum_variant_names)]
        #[derive(Clone, Copy)]
        enum Slot { $($name,)* }

        const NUM_SLOTS: usize = [$(stringify!($name),)*].len();

        /// NUL-terminated names, in slot order.
        static NAMES: [&str; NUM_SLOTS] = [$(concat!(stringify!($name), "\0"),)*];
    };
}
for_each_jump!(define_slots);

/// Where each jump goes. Written by [`driver`] once, before its `OnceLock` is set; read by the jumps
/// with single aligned 8-byte loads, which both architectures perform atomically.
static TABLE: [AtomicPtr<c_void>; NUM_SLOTS] = initial_table();

const fn initial_table() -> [AtomicPtr<c_void>; NUM_SLOTS] {
    let mut table = [const { AtomicPtr::new(no_device as *mut c_void) }; NUM_SLOTS];
    table[Slot::cuInit as usize] = AtomicPtr::new(load_then_init as *mut c_void);
    table
}

/// Stands for every function while no driver is loaded. The arguments are left alone: in both calling
/// conventions the caller owns them.
extern "C" fn no_device() -> c_int {
    NO_DEVICE
}

/// Stands for a function that the loaded driver does not export.
extern "C" fn not_found() -> c_int {
    NOT_FOUND
}

/// `cuInit` until the driver is loaded, and for good where there is none.
extern "C" fn load_then_init(flags: c_uint) -> c_int {
    if driver().is_err() {
        return NO_DEVICE;
    }
    let Some(init) = resolve(c"cuInit") else { return NOT_FOUND };
    // SAFETY: the driver's `cuInit` has had this signature since CUDA 2.
    let init = unsafe { std::mem::transmute::<NonNull<c_void>, extern "C" fn(c_uint) -> c_int>(init) };
    init(flags)
}

static DRIVER: OnceLock<Result<load::Library, NoDriver>> = OnceLock::new();

fn library() -> &'static Result<load::Library, NoDriver> {
    DRIVER.get_or_init(|| {
        let library = load::Library::open(c"libcuda.so.1").map_err(NoDriver)?;
        for (slot, name) in TABLE.iter().zip(NAMES) {
            let name =
                CStr::from_bytes_with_nul(name.as_bytes()).expect("concat! ended the name with its only NUL");
            let target = library.symbol(name).map_or(not_found as *mut c_void, NonNull::as_ptr);
            slot.store(target, Ordering::Release);
        }
        Ok(library)
    })
}

/// Loads `libcuda.so.1` if that was not tried before, and fills the table. Does not call the driver.
///
/// # Errors
/// The loader's message, when the library is absent or cannot be loaded.
pub fn driver() -> Result<(), NoDriver> {
    library().as_ref().map(|_| ()).map_err(Clone::clone)
}

/// The address of a driver function that the table does not hold, or `None` where the driver lacks it
/// or is absent. The caller gives it the signature of the driver's documentation.
pub fn resolve(name: &CStr) -> Option<NonNull<c_void>> {
    library().as_ref().ok()?.symbol(name)
}

macro_rules! define_jumps {
    ($($name:ident,)*) => { $(
        /// Jumps to the driver's function of this name.
        ///
        /// # Safety
        /// As the driver's documentation says; declared without arguments because it only jumps.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub unsafe extern "C" fn $name() {
            #[cfg(target_arch = "x86_64")]
            naked_asm!("jmp qword ptr [rip + {table} + {offset}]", table = sym TABLE, offset = const Slot::$name as usize * 8);
            #[cfg(target_arch = "aarch64")]
            naked_asm!(
                "adrp x16, {table} + {offset}",
                "ldr x16, [x16, :lo12:{table} + {offset}]",
                "br x16",
                table = sym TABLE,
                offset = const Slot::$name as usize * 8,
            );
        }
    )* };
}
for_each_jump!(define_jumps);

type ErrorText = unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int;

/// Asks the driver's own text function; what it cannot name is called `otherwise`. Returns 0 (success)
/// unless `text` is null, which is the caller's error.
///
/// # Safety
/// `text` is null or valid for one write.
unsafe fn error_text(
    function: &CStr,
    code: c_int,
    text: *mut *const c_char,
    otherwise: &'static CStr,
) -> c_int {
    if text.is_null() {
        return INVALID_VALUE;
    }
    let mut from_driver: *const c_char = ptr::null();
    // Only a driver that is loaded already is asked: formatting an error must not load one.
    let loaded = DRIVER.get().and_then(|library| library.as_ref().ok()?.symbol(function));
    if let Some(address) = loaded {
        // SAFETY: both text functions have this signature in every driver.
        let ask = unsafe { std::mem::transmute::<NonNull<c_void>, ErrorText>(address) };
        // SAFETY: `from_driver` is a valid place for the pointer to a static string of the driver.
        if unsafe { ask(code, &mut from_driver) } != 0 {
            from_driver = ptr::null();
        }
    }
    let answer = if from_driver.is_null() { otherwise.as_ptr() } else { from_driver };
    // SAFETY: not null, and valid for one write by this function's contract.
    unsafe { text.write(answer) };
    0
}

/// The text of an error code; succeeds for every code.
///
/// # Safety
/// `text` is null or valid for one write.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub unsafe extern "C" fn cuGetErrorString(code: c_int, text: *mut *const c_char) -> c_int {
    let otherwise = match code {
        NO_DEVICE => c"no CUDA driver or no CUDA-capable device",
        _ => c"unrecognized CUDA error code",
    };
    // SAFETY: the same contract.
    unsafe { error_text(c"cuGetErrorString", code, text, otherwise) }
}

/// The name of an error code; succeeds for every code.
///
/// # Safety
/// `text` is null or valid for one write.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub unsafe extern "C" fn cuGetErrorName(code: c_int, text: *mut *const c_char) -> c_int {
    let otherwise = match code {
        NO_DEVICE => c"CUDA_ERROR_NO_DEVICE",
        _ => c"CUDA_ERROR_UNRECOGNIZED",
    };
    // SAFETY: the same contract.
    unsafe { error_text(c"cuGetErrorName", code, text, otherwise) }
}
