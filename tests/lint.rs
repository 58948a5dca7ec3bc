//! Rules about the tree that no compiler checks: what is never called, and that documents name what is there.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Everything below `dir` but what is built: build folders, and folders that begin with a dot.
fn walk(dir: &Path, visit: &mut impl FnMut(&Path)) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if name.starts_with('.') || (name == "target" && path.is_dir()) {
            continue;
        }
        visit(&path);
        if path.is_dir() && !path.is_symlink() {
            walk(&path, visit);
        }
    }
}

fn rust_files() -> Vec<PathBuf> {
    let mut files = Vec::new();
    walk(root(), &mut |path| {
        if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path.to_owned());
        }
    });
    files
}

/// Two threads of a process that change and read its environment race, and a variable that says which GPU to use is
/// the bug this engine exists to exclude.
#[test]
fn b51_no_environment_variable_is_ever_written() {
    let files = rust_files();
    for wanted in
        ["build.rs", "src/lib.rs", "crates/cuda_shim/src/lib.rs", "fuzz/src/lib.rs", "tests/lint.rs"]
    {
        assert!(files.contains(&root().join(wanted)), "{wanted} is not looked at");
    }
    // Put together here, so that this file does not contain them.
    let writers = [["set", "var"].join("_"), ["remove", "var"].join("_")];
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
        for word in words {
            assert!(!writers.iter().any(|writer| writer == word), "{} calls {word}", file.display());
        }
    }
}

/// The part of ARCHITECTURE.md under a heading.
fn chapter(heading: &str) -> String {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let (_, rest) = text.split_once(&format!("\n## {heading}\n")).expect("the heading is there");
    rest.split("\n## ").next().unwrap().to_owned()
}

/// What stands in backquotes in the first column of a table.
fn first_column(table: &str) -> Vec<String> {
    let cells = table.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2).map(str::to_owned)).collect()
}

#[test]
fn the_code_map_has_every_folder_of_the_source() {
    let map = first_column(&chapter("Code map"));
    let mut folders = Vec::new();
    walk(&root().join("src"), &mut |path| {
        if path.is_dir() {
            folders.push(format!("{}/", path.strip_prefix(root()).unwrap().display()));
        }
    });
    assert!(folders.len() > 15, "{folders:?}");
    for folder in &folders {
        // `src/bin/` has nothing but folders.
        assert!(
            map.contains(folder) || folder == "src/bin/",
            "{folder} is new: give it a line in ARCHITECTURE.md's code map (`{folder}` in the first column)"
        );
    }
    for entry in map.iter().filter(|entry| entry.starts_with("src/") && !entry.contains('{')) {
        assert!(root().join(entry).exists(), "{entry} is gone: take it out of ARCHITECTURE.md's code map");
    }
}

#[test]
fn the_table_of_dependencies_has_every_one_of_them() {
    let manifest: toml::Table = fs::read_to_string(root().join("Cargo.toml")).unwrap().parse().unwrap();
    let names = |section: &str| -> BTreeSet<&str> {
        manifest[section].as_table().unwrap().keys().map(String::as_str).collect()
    };
    let dependencies = names("dependencies");
    let of_tests = names("dev-dependencies");
    let table = first_column(&chapter("Dependencies"));
    let is_listed = |dependency: &str| {
        table.iter().any(|entry| match entry.strip_suffix('*') {
            Some(prefix) => dependency.starts_with(prefix),
            None => entry == dependency,
        })
    };
    for dependency in &dependencies {
        assert!(
            is_listed(dependency),
            "{dependency} is new: say in ARCHITECTURE.md's table of dependencies why it is there"
        );
    }
    for entry in table.iter().filter(|entry| !entry.ends_with('*')) {
        assert!(
            dependencies.contains(entry.as_str()) || of_tests.contains(entry.as_str()),
            "{entry} is gone: take it out of ARCHITECTURE.md's table"
        );
    }
}

/// The layers of ARCHITECTURE.md, the lowest first.
const LAYERS: [&[&str]; 9] = [
    &["error", "ids", "loops"],
    &["groth16"],
    &["circuits", "inspect", "params"],
    &["messages", "policy", "backend"],
    &["journal"],
    &["actors", "cuda"],
    &["engine"],
    &["config", "telemetry", "timeline", "simulation"],
    &["lib"],
];

#[test]
fn modules_use_their_own_layer_and_those_below() {
    let layer = |module: &str| {
        LAYERS.iter().position(|layer| layer.contains(&module)).unwrap_or_else(|| {
            panic!("src/{module} is new: give it a layer here, and in ARCHITECTURE.md after the code map")
        })
    };
    let source = root().join("src");
    for file in rust_files() {
        let Ok(path) = file.strip_prefix(&source) else { continue };
        let module = path.components().next().unwrap().as_os_str().to_str().unwrap().trim_end_matches(".rs");
        if module == "bin" {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        for rest in code.flat_map(|line| line.split("crate::").skip(1)) {
            let used: String = rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
            assert!(
                used.is_empty() || layer(&used) <= layer(module),
                "{} uses crate::{used}, of a layer above its own",
                file.display()
            );
        }
    }
}
