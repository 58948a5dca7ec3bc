//! gpu_device
