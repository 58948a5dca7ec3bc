//! What the fuzz targets share.

use std::path::{Path, PathBuf};
use std::sync::Once;

/// libfuzzer-sys aborts at every panic, also at those that the tested code catches (it calls libraries that panic on
/// bad input). After this call only a panic that leaves the target ends it, which is the failure looked for.
pub fn let_caught_panics_be() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| drop(std::panic::take_hook()));
}

/// Runs `read` on a file of these bytes: one per process and name, in memory where there is such a folder.
///
/// # Panics
/// If the file cannot be written.
pub fn with_file<T>(name: &str, bytes: &[u8], read: impl FnOnce(&Path) -> T) -> T {
    let shared_memory = PathBuf::from("/dev/shm");
    let dir = if shared_memory.is_dir() { shared_memory } else { std::env::temp_dir() };
    let path = dir.join(format!("cuzk-fuzz-{name}-{}", std::process::id()));
    std::fs::write(&path, bytes).expect("the folder can be written");
    let result = read(&path);
    std::fs::remove_file(&path).expect("it was just written");
    result
}
