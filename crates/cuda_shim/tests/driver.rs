//! The shim without a driver and with one. Both are made here: an empty `libcuda.so.1` cannot be loaded,
//! and a small C library stands for a driver. The loader reads its search path when a process starts, so
//! each case runs in a child: this same test binary, with one ignored test chosen by name.

use std::ffi::{c_char, c_int, c_uint, c_void, CStr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr;

use cuda_shim as _;

extern "C" {
    fn cuInit(flags: c_uint) -> c_int;
    fn cuDeviceGetCount(count: *mut c_int) -> c_int;
    fn cuGetErrorString(code: c_int, text: *mut *const c_char) -> c_int;
    fn cuGetErrorName(code: c_int, text: *mut *const c_char) -> c_int;
    fn cuLaunchKernel(
        function: *mut c_void,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared_bytes: c_uint,
        stream: *mut c_void,
        parameters: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> c_int;
}

const FAKE_DRIVER: &str = r#"
int cuInit(unsigned flags) { return flags == 7 ? 0 : 3; }
int cuGetErrorString(int code, const char **text) {
    if (code != 42) return 1;
    *text = "the driver's own text";
    return 0;
}
int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **params, void **extra) {
    return f == (void *)1 && gx == 2 && gy == 3 && gz == 4 && bx == 5 && by == 6 && bz == 7 && shared == 8
        && stream == (void *)9 && params == (void **)10 && extra == (void **)11 ? 1234 : -1;
}
int cuLaunchKernelEx(void) { return 77; }
"#;

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn run_child(test: &str, library_folder: &Path) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture"])
        .env("LD_LIBRARY_PATH", library_folder)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{test}: {}\n{text}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
}

fn text(ask: unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int, code: c_int) -> String {
    let mut text = ptr::null();
    // SAFETY: `text` is valid for one write.
    assert_eq!(unsafe { ask(code, &mut text) }, 0);
    assert!(!text.is_null());
    // SAFETY: both text functions give static NUL-terminated strings.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned()
}

fn launch() -> c_int {
    let at = |address: usize| address as *mut c_void;
    // SAFETY: no driver, or the fake one, which only compares the values.
    unsafe { cuLaunchKernel(at(1), 2, 3, 4, 5, 6, 7, 8, at(9), at(10).cast(), at(11).cast()) }
}

#[test]
fn without_a_driver_every_call_returns_100() {
    let folder = folder("no-driver");
    std::fs::write(folder.join("libcuda.so.1"), b"").unwrap();
    run_child("child_without_driver", &folder);
}

#[test]
#[ignore = "run by without_a_driver_every_call_returns_100"]
fn child_without_driver() {
    let mut count = -1;
    // SAFETY: `count` is valid for one write.
    assert_eq!(unsafe { cuDeviceGetCount(&mut count) }, 100, "before cuInit");
    // SAFETY: no preconditions.
    assert_eq!(unsafe { cuInit(0) }, 100);
    // SAFETY: no preconditions.
    assert_eq!(unsafe { cuInit(0) }, 100, "again");
    // SAFETY: `count` is valid for one write.
    assert_eq!(unsafe { cuDeviceGetCount(&mut count) }, 100);
    assert_eq!(count, -1, "nothing is written");
    assert_eq!(launch(), 100);
    assert_eq!(text(cuGetErrorName, 100), "CUDA_ERROR_NO_DEVICE");
    assert_eq!(text(cuGetErrorString, 912), "unrecognized CUDA error code");
    let why = cuda_shim::driver().unwrap_err();
    assert!(why.to_string().contains("libcuda.so.1"), "{why}");
    assert!(cuda_shim::resolve(c"cuLaunchKernelEx").is_none());
}

#[test]
fn with_a_driver_calls_reach_it_unchanged() {
    let folder = folder("fake-driver");
    let source = folder.join("driver.c");
    std::fs::write(&source, FAKE_DRIVER).unwrap();
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o"])
        .arg(folder.join("libcuda.so.1"))
        .arg(&source)
        .status()
        .expect("this test needs a C compiler named cc");
    assert!(compiled.success());
    run_child("child_with_driver", &folder);
}

#[test]
#[ignore = "run by with_a_driver_calls_reach_it_unchanged"]
fn child_with_driver() {
    assert_eq!(launch(), 100, "before cuInit nothing is loaded");
    // SAFETY: no preconditions.
    assert_eq!(unsafe { cuInit(0) }, 3, "the driver's answer comes back");
    // SAFETY: no preconditions.
    assert_eq!(unsafe { cuInit(7) }, 0);
    assert_eq!(launch(), 1234, "eleven arguments, five of them on the stack");
    let mut count = -1;
    // SAFETY: `count` is valid for one write.
    assert_eq!(unsafe { cuDeviceGetCount(&mut count) }, 500, "the fake driver lacks it");
    assert_eq!(text(cuGetErrorString, 42), "the driver's own text");
    assert_eq!(text(cuGetErrorString, 43), "unrecognized CUDA error code");
    assert_eq!(text(cuGetErrorName, 42), "CUDA_ERROR_UNRECOGNIZED", "the fake driver lacks this function");
    assert!(cuda_shim::resolve(c"cuLaunchKernelEx").is_some());
    assert_eq!(cuda_shim::driver(), Ok(()));
}
