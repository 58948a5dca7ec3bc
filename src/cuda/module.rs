//! Kernels: the images that `build.rs` embedded, loaded into a context, and their launches.

use std::ffi::{c_int, c_void, CStr};
use std::ptr;
use std::rc::Rc;

use super::{sys, Context, CudaError, DeviceBuffer, DeviceData, DeviceSlice, Stream};

/// One compiled file of `kernels/`.
pub struct KernelImage {
    /// The file's name without `.cu`.
    pub name: &'static str,
    /// Machine code for several architectures and PTX; the driver picks.
    pub fatbin: &'static [u8],
}

/// The driver reads the image's headers in place.
#[allow(dead_code)] // A program that was built without nvcc has no image to align.
#[repr(C, align(16))]
struct Aligned<T: ?Sized>(T);

static KERNEL_IMAGES: &[KernelImage] = include!(concat!(env!("OUT_DIR"), "/kernel_images.rs"));

/// The kernel files in this program; empty when it was built without nvcc.
pub fn kernel_images() -> &'static [KernelImage] {
    KERNEL_IMAGES
}

/// What they were compiled for: `sm_90` is machine code, `compute_80` is PTX for the driver to compile.
pub fn kernel_targets() -> &'static [&'static str] {
    include!(concat!(env!("OUT_DIR"), "/kernel_targets.rs"))
}

/// A kernel file loaded into a context. Clones share it.
#[derive(Clone)]
pub struct Module {
    inner: Rc<ModuleInner>,
}

struct ModuleInner {
    raw: sys::CUmodule,
    context: Context,
}

impl Module {
    /// Loads a file of `kernels/` by its name without extension: 0.14 ms, or 0.1 s and more where the driver must
    /// compile PTX. Blocks.
    ///
    /// # Errors
    /// [`CudaError::NoKernels`], [`CudaError::UnknownKernels`], or the driver's failure
    /// (`CUDA_ERROR_NO_BINARY_FOR_GPU` on an architecture older than all that are built in).
    pub fn load(context: &Context, name: &str) -> Result<Self, CudaError> {
        if KERNEL_IMAGES.is_empty() {
            return Err(CudaError::NoKernels);
        }
        let image = KERNEL_IMAGES.iter().find(|image| image.name == name);
        let image = image.ok_or_else(|| CudaError::UnknownKernels(name.to_owned()))?;
        context.bind()?;
        let mut raw = ptr::null_mut();
        // SAFETY: valid for one write; the image is a whole fatbin, aligned and alive for ever.
        let code = unsafe { sys::cuModuleLoadData(&mut raw, image.fatbin.as_ptr().cast()) };
        context.check("cuModuleLoadData", code)?;
        Ok(Self { inner: Rc::new(ModuleInner { raw, context: context.clone() }) })
    }

    /// A kernel by its `extern "C"` name.
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_FOUND`.
    pub fn function(&self, name: &CStr) -> Result<Function, CudaError> {
        let context = &self.inner.context;
        context.bind()?;
        let mut raw = ptr::null_mut();
        // SAFETY: valid for one write; the module is alive and the name NUL-terminated.
        let code = unsafe { sys::cuModuleGetFunction(&mut raw, self.inner.raw, name.as_ptr()) };
        context.check("cuModuleGetFunction", code)?;
        Ok(Function { raw, module: self.clone() })
    }
}

impl Drop for ModuleInner {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: loaded by `load`, unloaded once; every `Function` holds the module.
            let code = unsafe { sys::cuModuleUnload(self.raw) };
            if code != 0 {
                tracing::warn!(device = %self.context.device().id, code, "a CUDA module could not be unloaded");
            }
        }
    }
}

/// Grid and block of a one-dimensional launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchShape {
    pub blocks: u32,
    pub threads_per_block: u32,
    /// Dynamic shared memory.
    pub shared_bytes: u32,
}

impl LaunchShape {
    /// Blocks enough for one thread per element. At least one block: an empty grid is an error of the driver.
    pub fn for_elements(num_elements: u32, threads_per_block: u32) -> Self {
        let blocks = num_elements.div_ceil(threads_per_block).max(1);
        Self { blocks, threads_per_block, shared_bytes: 0 }
    }
}

/// A kernel's arguments in order.
#[derive(Default)]
pub struct Arguments {
    /// One slot each; smaller values lie at the start of theirs (both supported architectures are little-endian).
    slots: Vec<u64>,
}

impl Arguments {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn buffer<T: DeviceData>(mut self, buffer: &DeviceBuffer<T>) -> Self {
        self.slots.push(buffer.pointer());
        self
    }

    pub fn slice<T: DeviceData>(mut self, slice: DeviceSlice<'_, T>) -> Self {
        self.slots.push(slice.pointer());
        self
    }

    pub fn u32(mut self, value: u32) -> Self {
        self.slots.push(value.into());
        self
    }

    pub fn u64(mut self, value: u64) -> Self {
        self.slots.push(value);
        self
    }
}

/// A kernel.
#[derive(Clone)]
pub struct Function {
    raw: sys::CUfunction,
    module: Module,
}

impl Function {
    /// Puts a launch into the stream (4 to 5 µs). Does not wait; failures of the kernel itself appear later.
    ///
    /// # Safety
    /// - The arguments are those of the kernel, in number, order and type.
    /// - Every buffer is as long as the kernel's documentation says, for this shape and these values.
    /// - Buffers that the kernel writes are not used by other work at the same time, and all buffers are alive
    ///   until the stream has passed the launch (dropping one afterwards is fine: it is freed in stream order, if
    ///   `stream` is the buffer's own or ordered before it by an event).
    ///
    /// # Errors
    /// The driver's refusal, or an earlier failure of the context.
    pub unsafe fn launch(
        &self,
        stream: &Stream,
        shape: LaunchShape,
        mut arguments: Arguments,
    ) -> Result<(), CudaError> {
        let context = stream.context();
        context.bind()?;
        let mut pointers: Vec<*mut c_void> =
            arguments.slots.iter_mut().map(|slot| ptr::from_mut(slot).cast()).collect();
        // SAFETY: the argument values are copied during the call; the rest is this function's contract.
        let code = unsafe {
            sys::cuLaunchKernel(
                self.raw,
                shape.blocks,
                1,
                1,
                shape.threads_per_block,
                1,
                1,
                shape.shared_bytes,
                stream.raw(),
                pointers.as_mut_ptr(),
                ptr::null_mut(),
            )
        };
        context.check("cuLaunchKernel", code)
    }

    /// Lets launches ask for up to `bytes` of dynamic shared memory; above 48 KiB a kernel has to opt in.
    ///
    /// # Errors
    /// The driver's refusal of more than [`super::DeviceInfo::shared_bytes_per_block`].
    pub fn allow_shared_bytes(&self, bytes: u32) -> Result<(), CudaError> {
        let context = &self.module.inner.context;
        context.bind()?;
        let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the function lives as long as its module; the attribute takes an int.
        let code = unsafe { sys::cuFuncSetAttribute(self.raw, attribute, bytes as c_int) };
        context.check("cuFuncSetAttribute", code)
    }

    fn attribute(&self, attribute: sys::CUfunction_attribute) -> Result<u32, CudaError> {
        let context = &self.module.inner.context;
        context.bind()?;
        let mut value: c_int = 0;
        // SAFETY: valid for one write; the function lives as long as its module.
        let code = unsafe { sys::cuFuncGetAttribute(&mut value, attribute, self.raw) };
        context.check("cuFuncGetAttribute", code)?;
        Ok(value.max(0) as u32)
    }

    /// Registers per thread.
    ///
    /// # Errors
    /// The driver's failure.
    pub fn num_registers(&self) -> Result<u32, CudaError> {
        self.attribute(sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)
    }

    /// Bytes of local memory per thread: spills and call frames.
    ///
    /// # Errors
    /// The driver's failure.
    pub fn local_bytes(&self) -> Result<u32, CudaError> {
        self.attribute(sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)
    }

    /// How many blocks of this size one multiprocessor holds at once.
    ///
    /// # Errors
    /// The driver's failure.
    pub fn blocks_per_multiprocessor(
        &self,
        threads_per_block: u32,
        shared_bytes: u32,
    ) -> Result<u32, CudaError> {
        let context = &self.module.inner.context;
        context.bind()?;
        let mut blocks = 0;
        // SAFETY: valid for one write; the function lives as long as its module.
        let code = unsafe {
            let (threads, shared) = (threads_per_block as c_int, shared_bytes as usize);
            sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, self.raw, threads, shared)
        };
        context.check("cuOccupancyMaxActiveBlocksPerMultiprocessor", code)?;
        Ok(blocks.max(0) as u32)
    }
}
