//! Floor 1: the driver's functions as they are called here.
//!
//! The handle types are those of `cust`'s bindings. The functions are declared again, because there a result is a
//! Rust enum of CUDA 11.4's codes and drivers return codes that were added since, which would be undefined
//! behaviour: here a result is a plain integer. `cuda_shim` defines the symbols.

use std::ffi::{c_char, c_int, c_uint, c_void};

use cuda_shim as _;
pub(super) use cust::sys::{
    CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent, CUfunction, CUfunction_attribute,
    CUmemAllocationHandleType, CUmemAllocationType, CUmemLocation, CUmemLocationType, CUmemPoolProps,
    CUmemoryPool, CUmodule, CUstream, CUuuid,
};

pub(super) const CU_CTX_SCHED_BLOCKING_SYNC: c_uint = 4;
pub(super) const CU_STREAM_NON_BLOCKING: c_uint = 1;
pub(super) const CU_EVENT_DEFAULT: c_uint = 0;
pub(super) const CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: c_int = 4;

extern "C" {
    pub(super) fn cuInit(flags: c_uint) -> c_int;
    pub(super) fn cuDriverGetVersion(version: *mut c_int) -> c_int;
    pub(super) fn cuGetErrorName(code: c_int, text: *mut *const c_char) -> c_int;
    pub(super) fn cuGetErrorString(code: c_int, text: *mut *const c_char) -> c_int;

    pub(super) fn cuDeviceGetCount(count: *mut c_int) -> c_int;
    pub(super) fn cuDeviceGet(device: *mut CUdevice, ordinal: c_int) -> c_int;
    pub(super) fn cuDeviceGetUuid(uuid: *mut CUuuid, device: CUdevice) -> c_int;
    pub(super) fn cuDeviceGetPCIBusId(text: *mut c_char, length: c_int, device: CUdevice) -> c_int;
    pub(super) fn cuDeviceGetName(text: *mut c_char, length: c_int, device: CUdevice) -> c_int;
    pub(super) fn cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice) -> c_int;
    pub(super) fn cuDeviceGetAttribute(
        value: *mut c_int,
        attribute: CUdevice_attribute,
        device: CUdevice,
    ) -> c_int;
    pub(super) fn cuMemPoolCreate(pool: *mut CUmemoryPool, properties: *const CUmemPoolProps) -> c_int;
    pub(super) fn cuMemPoolDestroy(pool: CUmemoryPool) -> c_int;
    pub(super) fn cuMemPoolSetAttribute(pool: CUmemoryPool, attribute: c_int, value: *mut c_void) -> c_int;
    pub(super) fn cuMemPoolTrimTo(pool: CUmemoryPool, bytes_to_keep: usize) -> c_int;

    pub(super) fn cuCtxCreate_v2(context: *mut CUcontext, flags: c_uint, device: CUdevice) -> c_int;
    pub(super) fn cuCtxDestroy_v2(context: CUcontext) -> c_int;
    pub(super) fn cuCtxSetCurrent(context: CUcontext) -> c_int;
    pub(super) fn cuCtxGetCurrent(context: *mut CUcontext) -> c_int;
    pub(super) fn cuCtxSynchronize() -> c_int;
    pub(super) fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) -> c_int;

    pub(super) fn cuStreamCreateWithPriority(stream: *mut CUstream, flags: c_uint, priority: c_int) -> c_int;
    pub(super) fn cuStreamDestroy_v2(stream: CUstream) -> c_int;
    pub(super) fn cuStreamSynchronize(stream: CUstream) -> c_int;
    pub(super) fn cuStreamQuery(stream: CUstream) -> c_int;
    pub(super) fn cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint) -> c_int;
    pub(super) fn cuLaunchHostFunc(
        stream: CUstream,
        function: unsafe extern "C" fn(*mut c_void),
        data: *mut c_void,
    ) -> c_int;

    pub(super) fn cuEventCreate(event: *mut CUevent, flags: c_uint) -> c_int;
    pub(super) fn cuEventDestroy_v2(event: CUevent) -> c_int;
    pub(super) fn cuEventRecord(event: CUevent, stream: CUstream) -> c_int;
    pub(super) fn cuEventQuery(event: CUevent) -> c_int;
    pub(super) fn cuEventSynchronize(event: CUevent) -> c_int;
    pub(super) fn cuEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent) -> c_int;

    pub(super) fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> c_int;
    pub(super) fn cuMemAllocFromPoolAsync(
        pointer: *mut CUdeviceptr,
        bytes: usize,
        pool: CUmemoryPool,
        stream: CUstream,
    ) -> c_int;
    pub(super) fn cuMemFreeAsync(pointer: CUdeviceptr, stream: CUstream) -> c_int;
    pub(super) fn cuMemHostAlloc(pointer: *mut *mut c_void, bytes: usize, flags: c_uint) -> c_int;
    pub(super) fn cuMemFreeHost(pointer: *mut c_void) -> c_int;
    pub(super) fn cuMemcpyHtoDAsync_v2(
        to: CUdeviceptr,
        from: *const c_void,
        bytes: usize,
        stream: CUstream,
    ) -> c_int;
    pub(super) fn cuMemcpyDtoHAsync_v2(
        to: *mut c_void,
        from: CUdeviceptr,
        bytes: usize,
        stream: CUstream,
    ) -> c_int;
    pub(super) fn cuMemcpyDtoDAsync_v2(
        to: CUdeviceptr,
        from: CUdeviceptr,
        bytes: usize,
        stream: CUstream,
    ) -> c_int;
    pub(super) fn cuMemsetD8Async(to: CUdeviceptr, value: u8, bytes: usize, stream: CUstream) -> c_int;

    pub(super) fn cuModuleLoadData(module: *mut CUmodule, image: *const c_void) -> c_int;
    pub(super) fn cuModuleUnload(module: CUmodule) -> c_int;
    pub(super) fn cuModuleGetFunction(
        function: *mut CUfunction,
        module: CUmodule,
        name: *const c_char,
    ) -> c_int;
    pub(super) fn cuFuncGetAttribute(
        value: *mut c_int,
        attribute: CUfunction_attribute,
        function: CUfunction,
    ) -> c_int;
    pub(super) fn cuFuncSetAttribute(
        function: CUfunction,
        attribute: CUfunction_attribute,
        value: c_int,
    ) -> c_int;
    pub(super) fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: *mut c_int,
        function: CUfunction,
        block_threads: c_int,
        shared_bytes: usize,
    ) -> c_int;
    pub(super) fn cuLaunchKernel(
        function: CUfunction,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared_bytes: c_uint,
        stream: CUstream,
        parameters: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> c_int;
}
