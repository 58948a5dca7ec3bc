//! The kernels compiled for the host under AddressSanitizer and UndefinedBehaviorSanitizer, against the CPU. Needs a C++17
//! compiler named by `CXX`, or `c++`; fails without one.
//!
//! One program for all: their harnesses are compiled beside one another.

#[path = "kernels_host/arithmetic.rs"]
mod arithmetic;
#[path = "kernels_host/fixed_base.rs"]
mod fixed_base;
#[path = "kernels_host/fold.rs"]
mod fold;
#[path = "common/harness.rs"]
mod harness;
#[path = "common/kernel_cases.rs"]
mod kernel_cases;
#[path = "kernels_host/msm.rs"]
mod msm;
#[path = "common/msm_cases.rs"]
mod msm_cases;
#[path = "kernels_host/ntt.rs"]
mod ntt;
#[path = "common/ntt_cases.rs"]
mod ntt_cases;
#[path = "kernels_host/spmv.rs"]
mod spmv;
#[path = "common/spmv_cases.rs"]
mod spmv_cases;
#[path = "common/synthetic.rs"]
mod synthetic;
