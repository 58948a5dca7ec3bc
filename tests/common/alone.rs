//! Tests whose figures are those of a whole process: each runs in a process of its own, which is this binary again.

use std::process::Command;

/// Set in the process that is for one test alone.
const MARK: &str = "CUZK_TEST_ALONE";

/// Blocks of this size and more are given back to the system when they are freed. glibc's own limit adapts itself to what a
/// program frees, up to 32 MiB: a key and a witness of a real circuit are larger and always go back. The circuits of tests
/// are a fraction of that, so the limit is too.
const GIVEN_BACK: &str = "glibc.malloc.mmap_threshold=262144";

/// Runs `test` in a process that has done nothing before; `name` is that of the test function which calls this.
///
/// # Panics
/// If it fails there: its output has said how.
pub fn alone(name: &str, test: impl FnOnce()) {
    if std::env::var_os(MARK).is_some() {
        return test();
    }
    let binary = std::env::current_exe().expect("a test knows where it is");
    let output = Command::new(binary)
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(MARK, "1")
        .env("GLIBC_TUNABLES", GIVEN_BACK)
        .output()
        .expect("a test binary can be run");
    let (said, complained) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    print!("{said}");
    eprint!("{complained}");
    assert!(said.contains("1 passed"), "{name} in a process of its own: {}", output.status);
}
