//! With feature `cuda`: compiles `kernels/*.cu` and hands the results to `src/cuda/module.rs`. Without it: nothing.
//!
//! Each kernel file becomes one fatbin (machine code for the architectures below, PTX for the others), and
//! `OUT_DIR/kernel_images.rs` lists them as `(name, bytes)`. Where there is no nvcc the list is empty and the
//! build goes on with a warning; the CUDA backend then reports "built without kernels".
//!
//! | variable | meaning |
//! |---|---|
//! | `NVCC` | the compiler to use; else `$CUDA_PATH`, `$CUDA_HOME`, `$CUDA_ROOT`, `.nvcc`, `PATH`, `/usr/local/cuda`, `/opt/cuda` are searched |
//! | `CUZK_KERNELS=require` | a missing nvcc is an error (CI, releases) |
//! | `CUZK_CUDA_ARCHS=90,120` | machine code for these only, and no PTX: quick builds while developing |

use std::collections::hash_map::DefaultHasher;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Machine code is made for these where nvcc knows them: A100, A6000 and RTX 30, L40 and RTX 40, H100 and H200,
/// RTX 50 and RTX PRO.
const MACHINE_CODE: [&str; 5] = ["80", "86", "89", "90", "120"];
/// PTX, for the driver to compile on all others. It is translated upwards only, so the oldest matters most.
const PTX: [&str; 2] = ["80", "90"];

const VARIABLES: [&str; 7] =
    ["NVCC", "CUDA_PATH", "CUDA_HOME", "CUDA_ROOT", "PATH", "CUZK_KERNELS", "CUZK_CUDA_ARCHS"];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if env::var_os("CARGO_FEATURE_CUDA").is_none() {
        return;
    }
    println!("cargo:rerun-if-changed=kernels");
    for variable in VARIABLES.iter().filter(|variable| **variable != "PATH") {
        println!("cargo:rerun-if-env-changed={variable}");
    }
    let out_dir = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for build scripts"));
    let mut targets = Vec::new();
    let images = match find_nvcc() {
        Some(nvcc) => {
            targets = self::targets(&nvcc);
            compile_all(&nvcc, &out_dir, &targets)
        }
        None if env::var("CUZK_KERNELS").is_ok_and(|value| value == "require") => {
            panic!("CUZK_KERNELS=require, and no nvcc was found; kernels/setup-nvcc.sh installs one")
        }
        None => {
            println!("cargo:warning=no nvcc found: built without kernels, GPUs cannot be used (kernels/setup-nvcc.sh installs one)");
            Vec::new()
        }
    };
    write_list(&out_dir, &images);
    // `arch=compute_90,code=sm_90` is listed as `sm_90`.
    let names: Vec<&str> = targets.iter().filter_map(|target| target.rsplit('=').next()).collect();
    fs::write(out_dir.join("kernel_targets.rs"), format!("&{names:?}")).expect("OUT_DIR is writable");
}

/// `KernelImage` entries, for `include!`.
fn write_list(out_dir: &Path, images: &[(String, PathBuf)]) {
    let mut list = String::from("&[\n");
    for (name, path) in images {
        let bytes =
            format!("{{ static IMAGE: &Aligned<[u8]> = &Aligned(*include_bytes!({path:?})); &IMAGE.0 }}");
        writeln!(list, "    KernelImage {{ name: {name:?}, fatbin: {bytes} }},")
            .expect("writing to a String cannot fail");
    }
    list.push_str("]\n");
    fs::write(out_dir.join("kernel_images.rs"), list).expect("OUT_DIR is writable");
}

fn find_nvcc() -> Option<PathBuf> {
    if let Some(nvcc) = env::var_os("NVCC") {
        return Some(nvcc.into());
    }
    let roots = ["CUDA_PATH", "CUDA_HOME", "CUDA_ROOT"].iter().filter_map(env::var_os).map(PathBuf::from);
    let from_path =
        env::var_os("PATH").map(|path| env::split_paths(&path).collect::<Vec<_>>()).unwrap_or_default();
    roots
        .map(|root| root.join("bin"))
        .chain(virtual_environment())
        .chain(from_path)
        .chain(["/usr/local/cuda/bin".into(), "/opt/cuda/bin".into()])
        .map(|folder| folder.join("nvcc"))
        .find(|nvcc| nvcc.is_file())
}

/// `.nvcc/lib/python3.*/site-packages/nvidia/cu13/bin`, where `setup-nvcc.sh` puts the compiler.
fn virtual_environment() -> Option<PathBuf> {
    let versions = fs::read_dir(".nvcc/lib").ok()?;
    versions
        .flatten()
        .map(|version| version.path().join("site-packages/nvidia/cu13/bin"))
        .find(|bin| bin.is_dir())
}

fn compile_all(nvcc: &Path, out_dir: &Path, targets: &[String]) -> Vec<(String, PathBuf)> {
    let mut sources: Vec<PathBuf> = files_in(Path::new("kernels"), "cu");
    sources.sort();
    let version = output_of(nvcc, "--version");
    let headers = files_in(Path::new("kernels/math"), "cuh");
    sources
        .iter()
        .map(|source| {
            let name = source.file_stem().and_then(OsStr::to_str).expect("kernel files have plain names");
            let image = out_dir.join(format!("{name}.fatbin"));
            compile(nvcc, source, &image, targets, fingerprint(source, &headers, targets, &version));
            (name.to_owned(), image)
        })
        .collect()
}

/// The `-gencode` values, from what is wanted and what this nvcc supports.
fn targets(nvcc: &Path) -> Vec<String> {
    let known = output_of(nvcc, "--list-gpu-code") + &output_of(nvcc, "--list-gpu-arch");
    let knows = |name: String| known.lines().any(|line| line.trim() == name);
    let chosen = env::var("CUZK_CUDA_ARCHS").ok();
    let wanted: Vec<&str> = match &chosen {
        Some(list) => list.split(',').map(str::trim).collect(),
        None => MACHINE_CODE.to_vec(),
    };
    let mut targets: Vec<String> = wanted
        .iter()
        .filter(|arch| knows(format!("sm_{arch}")))
        .map(|arch| format!("arch=compute_{arch},code=sm_{arch}"))
        .collect();
    if chosen.is_none() {
        let ptx = PTX.iter().filter(|arch| knows(format!("compute_{arch}")));
        targets.extend(ptx.map(|arch| format!("arch=compute_{arch},code=compute_{arch}")));
    }
    assert!(!targets.is_empty(), "{} supports none of the architectures {wanted:?}", nvcc.display());
    targets
}

/// Compiles one file, unless its image was made from the same text by the same compiler.
fn compile(nvcc: &Path, source: &Path, image: &Path, targets: &[String], fingerprint: String) {
    let stamp = image.with_extension("stamp");
    if image.is_file() && fs::read_to_string(&stamp).is_ok_and(|made_from| made_from == fingerprint) {
        return;
    }
    let mut command = Command::new(nvcc);
    command.args(["-std=c++17", "-O3", "-fatbin", "--threads", "0"]).args(own_options(source));
    for target in targets {
        command.arg("-gencode").arg(target);
    }
    let status =
        command.arg("-o").arg(image).arg(source).status().expect("nvcc was found and can be started");
    assert!(status.success(), "nvcc failed on {}: {status}", source.display());
    fs::write(stamp, fingerprint).expect("OUT_DIR is writable");
}

/// What a kernel file asks for in a line of its own, `// nvcc: OPTION...`.
fn own_options(source: &Path) -> Vec<String> {
    let text = fs::read_to_string(source).expect("a kernel file that was listed can be read");
    let options = text.lines().filter_map(|line| line.strip_prefix("// nvcc: "));
    options.flat_map(str::split_whitespace).map(str::to_owned).collect()
}

fn fingerprint(source: &Path, headers: &[PathBuf], targets: &[String], version: &str) -> String {
    let mut hasher = DefaultHasher::new();
    (targets, version).hash(&mut hasher);
    let mut headers = headers.to_vec();
    headers.sort();
    for file in headers.iter().map(PathBuf::as_path).chain([source]) {
        fs::read(file).expect("a kernel file that was listed can be read").hash(&mut hasher);
    }
    format!("{:016x}", hasher.finish())
}

fn files_in(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let files = entries.map(|entry| entry.expect("a folder that was opened can be listed").path());
    files.filter(|file| file.extension() == Some(OsStr::new(extension))).collect()
}

fn output_of(nvcc: &Path, argument: &str) -> String {
    let output = Command::new(nvcc).arg(argument).output();
    let output = output.unwrap_or_else(|error| panic!("{} {argument}: {error}", nvcc.display()));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
