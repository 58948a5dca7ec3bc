//! What the fuzz targets share.

use std::sync::Once;

/// libfuzzer-sys aborts at every panic, also at those that the tested code catches (it calls libraries that panic on
/// bad input). After this call only a panic that leaves the target ends it, which is the failure looked for.
pub fn let_caught_panics_be() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| drop(std::panic::take_hook()));
}
