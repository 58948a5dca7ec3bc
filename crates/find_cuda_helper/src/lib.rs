#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

use std::path::PathBuf;

/// Emits nothing but the rebuild rule: `cuda_shim` defines every symbol that `cust_raw` declares.
pub fn include_cuda() {
    println!("cargo:rerun-if-changed=build.rs");
}

/// No toolkit is searched for. Part of the interface of the crate this one replaces.
pub fn find_cuda_root() -> Option<PathBuf> {
    None
}

/// No library folder is searched for. Part of the interface of the crate this one replaces.
pub fn find_cuda_lib_dirs() -> Vec<PathBuf> {
    Vec::new()
}
