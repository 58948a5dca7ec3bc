//! Devices and contexts.

use std::ffi::{c_char, c_int, CStr};
use std::marker::PhantomData;
use std::rc::Rc;
use std::{fmt, ptr};

use super::error::{check, check_on, CudaCode};
use super::{sys, CudaError};
use crate::ids::DeviceId;

/// What a device is, as the driver tells it before any context exists. Plain data; may go to any thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// `GPU-<uuid>`, as `nvidia-smi -L` prints it.
    pub id: DeviceId,
    pub name: String,
    /// `0000:1b:00.0`.
    pub pci_bus_id: String,
    pub memory_bytes: u64,
    pub compute_capability: ComputeCapability,
    pub num_multiprocessors: u32,
    /// The highest clock of the multiprocessors; 0 where the driver does not tell.
    pub clock_khz: u32,
    pub l2_bytes: u64,
    /// Shared memory a block may ask for by opting in.
    pub shared_bytes_per_block: u32,
    /// The driver's CUDA version, as 1000 major + 10 minor.
    pub driver_version: u32,
    /// The driver's number for it. Private: no function outside takes a GPU number.
    handle: sys::CUdevice,
}

/// 9.0 for an H200.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ComputeCapability {
    pub major: u32,
    pub minor: u32,
}

impl fmt::Display for ComputeCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The devices this process may use, in the driver's order (`CUDA_VISIBLE_DEVICES` is applied by the driver).
/// Empty where there is a driver but no device. The first call initialises the driver (0.2 to 0.5 s).
///
/// # Errors
/// [`CudaError::NoDriver`] without a driver; otherwise the driver's own failure.
pub fn devices() -> Result<Vec<DeviceInfo>, CudaError> {
    cuda_shim::driver().map_err(|error| CudaError::NoDriver(error.0))?;
    // SAFETY: no preconditions; may be called again.
    match unsafe { sys::cuInit(0) } {
        CudaCode::NO_DEVICE => return Ok(Vec::new()),
        code => check("cuInit", code)?,
    }
    let mut driver_version = 0;
    // SAFETY: valid for one write.
    check("cuDriverGetVersion", unsafe { sys::cuDriverGetVersion(&mut driver_version) })?;
    let mut count = 0;
    // SAFETY: valid for one write.
    check("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&mut count) })?;
    (0..count).map(|ordinal| DeviceInfo::read(ordinal, driver_version as u32)).collect()
}

impl DeviceInfo {
    fn read(ordinal: c_int, driver_version: u32) -> Result<Self, CudaError> {
        let mut handle = 0;
        // SAFETY: valid for one write; the ordinal is below the count.
        check("cuDeviceGet", unsafe { sys::cuDeviceGet(&mut handle, ordinal) })?;
        let mut uuid = sys::CUuuid { bytes: [0; 16] };
        // SAFETY: valid for one write of 16 bytes.
        check("cuDeviceGetUuid", unsafe { sys::cuDeviceGetUuid(&mut uuid, handle) })?;
        let mut memory_bytes = 0;
        // SAFETY: valid for one write.
        check("cuDeviceTotalMem", unsafe { sys::cuDeviceTotalMem_v2(&mut memory_bytes, handle) })?;
        use sys::CUdevice_attribute as Attribute;
        let attribute = |attribute| attribute_of(handle, attribute);
        Ok(Self {
            id: DeviceId::new(uuid_name(uuid.bytes)),
            name: text_of("cuDeviceGetName", sys::cuDeviceGetName, handle)?,
            pci_bus_id: text_of("cuDeviceGetPCIBusId", sys::cuDeviceGetPCIBusId, handle)?,
            memory_bytes: memory_bytes as u64,
            compute_capability: ComputeCapability {
                major: attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                minor: attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            },
            num_multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            clock_khz: attribute(Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE).unwrap_or(0),
            l2_bytes: attribute(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?.into(),
            shared_bytes_per_block: attribute(
                Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
            )?,
            driver_version,
            handle,
        })
    }
}

fn attribute_of(device: sys::CUdevice, attribute: sys::CUdevice_attribute) -> Result<u32, CudaError> {
    let mut value = 0;
    // SAFETY: valid for one write; the device is the driver's own.
    check("cuDeviceGetAttribute", unsafe { sys::cuDeviceGetAttribute(&mut value, attribute, device) })?;
    Ok(value.max(0) as u32)
}

type ReadText = unsafe extern "C" fn(*mut c_char, c_int, sys::CUdevice) -> c_int;

fn text_of(call: &'static str, read: ReadText, device: sys::CUdevice) -> Result<String, CudaError> {
    let mut text = [0 as c_char; 256];
    // SAFETY: valid for the 256 bytes it is told of, the last of which stays NUL.
    check(call, unsafe { read(text.as_mut_ptr(), 255, device) })?;
    // SAFETY: NUL-terminated within the array.
    Ok(unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned())
}

fn uuid_name(bytes: [c_char; 16]) -> String {
    let hex = hex::encode(bytes.map(|byte| byte as u8));
    format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// A CUDA context of our own on one device, for the thread that made it. Clones share it; it ends with the last
/// clone, and every stream, buffer and module holds one.
#[derive(Clone)]
pub struct Context {
    inner: Rc<ContextInner>,
}

struct ContextInner {
    raw: sys::CUcontext,
    /// Device memory is allocated here. Of this context alone: the device's default pool is an embedding host's, and
    /// its settings are not ours to change.
    pool: sys::CUmemoryPool,
    info: DeviceInfo,
    /// Handles are used on the thread that made them. `Rc` says so already; this says it on purpose.
    _thread_bound: PhantomData<*const ()>,
}

impl Context {
    /// Makes a context (0.13 to 0.22 s) whose synchronising calls sleep instead of spinning, with a memory pool that
    /// keeps freed memory until [`trim`](Self::trim).
    ///
    /// # Errors
    /// The driver's failure, such as out of memory on a full device.
    pub fn new(info: &DeviceInfo) -> Result<Self, CudaError> {
        let mut raw = ptr::null_mut();
        // SAFETY: valid for one write; the device handle came from the driver.
        let code = unsafe { sys::cuCtxCreate_v2(&mut raw, sys::CU_CTX_SCHED_BLOCKING_SYNC, info.handle) };
        check_on("cuCtxCreate", code, Some(&info.id))?;
        // From here on it is destroyed with `inner`, whatever fails.
        let pool = ptr::null_mut();
        let mut inner = ContextInner { raw, pool, info: info.clone(), _thread_bound: PhantomData };
        inner.pool = new_pool(info)?;
        keep_freed_memory(inner.pool, info)?;
        Ok(Self { inner: Rc::new(inner) })
    }

    /// Whether this context is current on the calling thread, as a host may want to know of its own.
    ///
    /// # Errors
    /// The driver's failure.
    pub fn is_current(&self) -> Result<bool, CudaError> {
        let mut current = ptr::null_mut();
        // SAFETY: valid for one write.
        self.check("cuCtxGetCurrent", unsafe { sys::cuCtxGetCurrent(&mut current) })?;
        Ok(current == self.inner.raw)
    }

    pub fn device(&self) -> &DeviceInfo {
        &self.inner.info
    }

    /// Makes this context current on the calling thread, whatever was current before.
    pub(super) fn bind(&self) -> Result<(), CudaError> {
        // SAFETY: the context lives as long as `self`.
        self.check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(self.inner.raw) })
    }

    pub(super) fn check(&self, call: &'static str, code: c_int) -> Result<(), CudaError> {
        check_on(call, code, Some(&self.inner.info.id))
    }

    /// Waits until all work of this context is done.
    ///
    /// # Errors
    /// The first failure of that work.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        self.bind()?;
        // SAFETY: this context is current.
        self.check("cuCtxSynchronize", unsafe { sys::cuCtxSynchronize() })
    }

    /// Free and total bytes of the device, over all processes.
    ///
    /// # Errors
    /// The driver's failure.
    pub fn memory_info(&self) -> Result<(u64, u64), CudaError> {
        self.bind()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: both valid for one write; this context is current.
        self.check("cuMemGetInfo", unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) })?;
        Ok((free as u64, total as u64))
    }

    pub(super) fn pool(&self) -> sys::CUmemoryPool {
        self.inner.pool
    }

    /// Gives freed memory back to the system, down to `bytes_to_keep`. Does not wait: memory whose free the device
    /// has not reached yet stays.
    ///
    /// # Errors
    /// The driver's failure.
    pub fn trim(&self, bytes_to_keep: u64) -> Result<(), CudaError> {
        self.bind()?;
        // SAFETY: the pool lives as long as `self`.
        let code = unsafe { sys::cuMemPoolTrimTo(self.inner.pool, bytes_to_keep as usize) };
        self.check("cuMemPoolTrimTo", code)
    }
}

/// A pool of memory on the device, for this process alone.
fn new_pool(info: &DeviceInfo) -> Result<sys::CUmemoryPool, CudaError> {
    let properties = sys::CUmemPoolProps {
        allocType: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        handleTypes: sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
        location: sys::CUmemLocation {
            type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
            id: info.handle,
        },
        win32SecurityAttributes: ptr::null_mut(),
        reserved: [0; 64],
    };
    let mut pool = ptr::null_mut();
    // SAFETY: valid for one write; the properties are read during the call, and zero is the default of what later
    // drivers keep in `reserved`.
    let code = unsafe { sys::cuMemPoolCreate(&mut pool, &properties) };
    check_on("cuMemPoolCreate", code, Some(&info.id))?;
    Ok(pool)
}

/// Without this every synchronisation gives freed memory back to the system, and allocating it again costs
/// milliseconds instead of microseconds.
fn keep_freed_memory(pool: sys::CUmemoryPool, info: &DeviceInfo) -> Result<(), CudaError> {
    let mut threshold = u64::MAX;
    let value = (&raw mut threshold).cast();
    // SAFETY: this attribute is a u64, read during the call.
    let code = unsafe { sys::cuMemPoolSetAttribute(pool, sys::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, value) };
    check_on("cuMemPoolSetAttribute", code, Some(&info.id))
}

impl Drop for ContextInner {
    fn drop(&mut self) {
        let mut current = ptr::null_mut();
        // SAFETY: valid for one write.
        let known = unsafe { sys::cuCtxGetCurrent(&mut current) } == 0;
        if !self.pool.is_null() {
            // SAFETY: made by `new` and destroyed once. The driver keeps what is still on its way to be freed.
            let code = unsafe { sys::cuMemPoolDestroy(self.pool) };
            if code != 0 {
                tracing::warn!(device = %self.info.id, code, "a pool of device memory could not be destroyed");
            }
        }
        // SAFETY: made by `new` and destroyed once; nothing that uses it is left, since all hold a clone.
        let code = unsafe { sys::cuCtxDestroy_v2(self.raw) };
        if code != 0 {
            tracing::warn!(device = %self.info.id, code, "a CUDA context could not be destroyed");
        }
        if known && current == self.raw {
            // SAFETY: a null context is allowed; the thread must not keep one that is gone.
            unsafe { sys::cuCtxSetCurrent(ptr::null_mut()) };
        }
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Context({})", self.inner.info.id)
    }
}
