//! Builds a program of `kernels/host` under sanitizers.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles `kernels/host/<name>.cpp` with the C++17 compiler that `CXX` names, or `c++`.
///
/// # Panics
/// Without a compiler, or if it refuses the program.
pub fn build(name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels/host").join(name).with_extension("cpp");
    let harness = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("kernels_host_{name}"));
    let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
    let output = Command::new(&compiler)
        .args(["-std=c++17", "-O1", "-g", "-Wall", "-Wextra", "-Werror"])
        .args(["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-o"])
        .arg(&harness)
        .arg(&source)
        .output()
        .unwrap_or_else(|error| {
            panic!("this test needs a C++ compiler; {compiler:?} cannot be started: {error}")
        });
    assert!(
        output.status.success(),
        "{compiler:?}: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    harness
}
