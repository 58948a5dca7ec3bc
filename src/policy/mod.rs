//! Pure decisions: no actix, no clock, no I/O. Properties are proved here by proptest.

pub mod admission;
pub mod batch;
pub mod capacity;
pub mod health;
pub mod host_memory;
pub mod lagrange_plan;
pub mod msm_plan;
pub mod ntt_plan;
pub mod placement;
pub mod plan;
pub mod queue;
pub mod readiness;
pub mod role;
pub mod selector;
pub mod shared_pass;
