//! NVIDIA GPUs through the driver API. The package's only unsafe code.
//!
//! Four floors; code may go down one floor at a time:
//!
//! ```text
//! floor 4   backend/ generate.rs             a proof's stages on one device: `DeviceBackend`; test parameters
//! floor 3   msm.rs ntt.rs quotient.rs lagrange.rs fold.rs    safe launchers, one per kernel file: check shapes, then launch
//!           spmv.rs witness.rs fixed_base.rs synthetic.rs selftest.rs
//! floor 2   context.rs stream.rs             owned handles, thread-bound; memory charged to reservations
//!           memory.rs module.rs staging.rs
//! floor 1   sys.rs error.rs                  raw calls with results as c_int; CudaError
//! ```
//!
//! - **No driver is needed to build or to start.** The driver's functions are jumps that `cuda_shim` fills at the
//!   first [`devices`] call; without a driver that call is a typed error.
//! - **A handle never leaves its thread.** Each holds its [`Context`], which is an `Rc`; the compiler refuses to
//!   move any of them. A context is our own (`cuCtxCreate`), apart from the primary context that an embedding host
//!   may use, and every operation makes it current first, so that foreign CUDA code on the thread does no harm.
//! - **Nothing waits** but what says so (`synchronize`, `wait`, `read`, `write`); completion is polled, or announced
//!   by a host function ([`Stream::notify`]).
//! - **A sticky error** ([`CudaError::is_sticky`]) ends CUDA in this process: on driver 580 every context of every
//!   device fails from then on, and no new one can be made (benches/RESULTS.md). What was under way ends with typed
//!   errors, nothing unverified is returned, and the process lives on without GPUs until it is restarted.
#![allow(unsafe_code)]
#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks, clippy::multiple_unsafe_ops_per_block)]

pub mod backend;
mod context;
mod error;
pub mod fixed_base;
mod fold;
pub mod generate;
mod lagrange;
mod memory;
mod module;
pub mod msm;
mod ntt;
mod quotient;
pub mod selftest;
pub mod spmv;
mod staging;
mod stream;
mod synthetic;
mod sys;
pub mod witness;

pub use context::{devices, ComputeCapability, Context, DeviceInfo};
pub use error::CudaError;
pub use fold::CudaTransform;
pub use memory::{DeviceBuffer, DeviceData, DeviceSlice, Pending, PinnedBuffer, PinnedPool, Reservation};
pub use module::{kernel_images, kernel_targets, Arguments, Function, KernelImage, LaunchShape, Module};
pub use ntt::{NttDomain, NttKernels, PassKernelInfo};
pub use stream::{Event, Priority, Stream};
pub use synthetic::{generator_multiples, SyntheticKernels, SyntheticSource};
