//! What can go wrong with a device, as values.

use std::ffi::{c_char, c_int, CStr};
use std::fmt;
use std::ptr;

use super::sys;
use crate::ids::DeviceId;

/// A failure of a CUDA device, or the absence of one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CudaError {
    /// No driver library on this machine. Use the CPU backend, or install NVIDIA's driver.
    #[error("no CUDA driver: {0}")]
    NoDriver(String),

    /// The binary holds no kernels because there was no nvcc when it was built. Rebuild after
    /// `kernels/setup-nvcc.sh`.
    #[error("this program was built without CUDA kernels")]
    NoKernels,

    /// The binary holds kernels, but none of this name: a mistake in the calling code.
    #[error("no kernel file named {0:?} is built in")]
    UnknownKernels(String),

    /// A driver call failed. [`is_sticky`](Self::is_sticky) says whether the context is lost with it.
    #[error("{call} failed{}: {code}", On(.device))]
    Call { call: &'static str, code: CudaCode, device: Option<DeviceId> },

    /// An allocation would exceed its reservation: the plan's estimate was too low. Replan.
    #[error("{asked_bytes} B asked of a reservation on {device} that has {left_bytes} B left")]
    OverReservation { asked_bytes: u64, left_bytes: u64, device: DeviceId },

    /// The driver has no memory for an allocation that a plan allowed: another process holds it.
    #[error("{asked_bytes} B of device memory refused on {device}")]
    Allocation { asked_bytes: u64, device: DeviceId },

    /// Not the device: the host could not do its part.
    #[error("{0}")]
    Host(String),

    /// The witness does not satisfy this constraint.
    #[error("constraint {index} of {num_constraints} is not satisfied")]
    Unsatisfied { index: usize, num_constraints: usize },

    /// Lengths that do not fit together; a mistake in the calling code. Nothing was launched.
    #[error("{what}: needs {needs}, has {has}")]
    Shape { what: &'static str, needs: usize, has: usize },
}

/// ` on GPU-…`, or nothing for calls that concern no device.
struct On<'a>(&'a Option<DeviceId>);

impl fmt::Display for On<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |device| write!(f, " on {device}"))
    }
}

/// A driver's result code other than success, known to this program or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CudaCode(pub i32);

impl CudaCode {
    pub(super) const OUT_OF_MEMORY: c_int = 2;
    pub(super) const NO_DEVICE: c_int = 100;
    pub(super) const NOT_READY: c_int = 600;

    /// The driver's name for the code, or `CUDA_ERROR_UNRECOGNIZED`.
    pub fn name(self) -> String {
        driver_text(sys::cuGetErrorName, self.0)
    }
}

/// `CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access was encountered`.
impl fmt::Display for CudaCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.name(), self.0, driver_text(sys::cuGetErrorString, self.0))
    }
}

fn driver_text(ask: unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int, code: c_int) -> String {
    let mut text = ptr::null();
    // SAFETY: `text` is valid for one write; the shim's two text functions may be called at any time.
    let result = unsafe { ask(code, &mut text) };
    if result != 0 || text.is_null() {
        return String::from("?");
    }
    // SAFETY: not null; a static NUL-terminated string of the driver or the shim.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

impl CudaError {
    /// The context is unusable: every later call in it fails the same way. Drop all its handles and make a new
    /// one. Codes: `cuda.h`, those whose text says the context or the process cannot be used any further.
    pub fn is_sticky(&self) -> bool {
        let Self::Call { code, .. } = self else { return false };
        // ECC, NVLink, graphics; illegal address, launch timeout; assert; hardware stack, illegal instruction,
        // misaligned address, address space, program counter, launch failure; contained, tensor memory, unknown.
        matches!(code.0, 214 | 219 | 220 | 700 | 702 | 710 | 714..=719 | 721 | 999)
    }

    /// The device has no memory left for what was asked.
    pub fn is_out_of_memory(&self) -> bool {
        match self {
            Self::Call { code, .. } => code.0 == CudaCode::OUT_OF_MEMORY,
            Self::Allocation { .. } => true,
            _ => false,
        }
    }
}

/// A call's result as a `Result`, for calls that concern no device or one not yet known by name.
pub(super) fn check(call: &'static str, code: c_int) -> Result<(), CudaError> {
    check_on(call, code, None)
}

pub(super) fn check_on(call: &'static str, code: c_int, device: Option<&DeviceId>) -> Result<(), CudaError> {
    match code {
        0 => Ok(()),
        code => Err(CudaError::Call { call, code: CudaCode(code), device: device.cloned() }),
    }
}
