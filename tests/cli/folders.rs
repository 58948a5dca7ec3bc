//! Folders of parameters that cannot be entered, written or filled, and what killed processes leave in them.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::{command, cuzk, params, params_file_name, path, wpost_params_file, Done, WINDOW};

/// Nobody may enter a regular file, whatever their rights: as with a folder without permission, what is "in" it cannot
/// be looked at, and is not merely missing.
#[test]
fn a_folder_that_cannot_be_entered_is_not_taken_for_an_empty_one() {
    let manifest = format!("{WINDOW}/manifest.json");
    let proof = format!("{WINDOW}/proof.bin");
    for dir in ["README.md", "README.md/parameters"] {
        let commands: [&[&str]; 5] = [
            &["params", "list", "--params", dir],
            &["params", "check", "--params", dir],
            &["params", "check", "wpost-2k", "--params", dir],
            &["prove", &manifest, "--params", dir],
            &["verify", &manifest, &proof, "--params", dir],
        ];
        for args in commands {
            let run = cuzk(args).expect(3);
            assert!(run.stderr.starts_with("error: "), "{args:?}: {}", run.stderr);
            assert!(run.stderr.contains(dir) && run.stderr.contains("Not a directory"), "{}", run.stderr);
            assert!(!run.stderr.contains("not found"), "{args:?}: {}", run.stderr);
        }
        let lines = cuzk(&["prove", &manifest, "--json", "--params", dir]).expect(3).json_lines();
        assert_eq!(lines.len(), 1);
        assert!(lines[0]["error"]["message"].as_str().unwrap().contains("Not a directory"), "{lines:?}");
        cuzk(&["params", "generate", "wpost-2k", "--params", dir]).expect(2);
    }
}

#[test]
fn parameters_for_a_folder_that_cannot_be_written_are_refused_before_they_are_made() {
    // Nobody can make files there, not even root.
    let run = cuzk(&["params", "generate", "wpost-2k", "--params", "/proc/self"]).expect(2);
    assert!(run.stderr.starts_with("error: /proc/self: cannot write: "), "{}", run.stderr);
    assert!(run.stderr.contains("--params"), "{}", run.stderr);
    let run = cuzk(&["params", "generate", "wpost-2k", "--params", "/proc/self/parameters"]).expect(2);
    assert!(run.stderr.starts_with("error: /proc/self/parameters: cannot write: "), "{}", run.stderr);
}

#[test]
fn a_folder_that_fills_up_meanwhile_is_wrong_use_and_left_clean() {
    let dir = tempfile::tempdir().unwrap();
    // A limit on the size of files (in KiB) in the place of a full disk: writing fails half way.
    let limited = r#"trap "" XFSZ; ulimit -f 2000; exec "$@""#;
    let run = Command::new("bash")
        .args(["-c", limited, "bash", env!("CARGO_BIN_EXE_cuzk")])
        .args(["params", "generate", "wpost-2k", "--params"])
        .arg(dir.path())
        .env("XDG_CACHE_HOME", dir.path().join("cache"))
        .output()
        .unwrap();
    let run = Done::of(run).expect(2);
    let (error, folder) = (run.stderr.lines().last().unwrap(), dir.path().display().to_string());
    assert!(error.starts_with(&format!("error: {folder}")) && error.contains("cannot write: "), "{error}");
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn what_a_killed_generation_left_is_said_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let dir_name = dir.path().to_str().unwrap();
    let left = path(&dir, ".unfinished-killed.tmp");
    let held = path(&dir, ".unfinished-held.tmp");
    fs::write(&left, vec![0; 3 << 20]).unwrap();
    fs::write(&held, b"being written").unwrap();
    // As the writer does it, for as long as it lives.
    let writer = File::open(&held).unwrap();
    writer.lock().unwrap();

    let says_so = |run: &Done| run.stderr.contains(&left) && run.stderr.contains("3.0 MiB");
    let listed = cuzk(&["params", "list", "--json", "--params", dir_name]).expect(0);
    assert!(says_so(&listed), "{}", listed.stderr);
    assert!(says_so(&cuzk(&["params", "check", "wpost-2k", "--params", dir_name]).expect(3)));
    assert!(Path::new(&left).exists());

    let generated = cuzk(&["params", "generate", "wpost-2k", "--params", dir_name]).expect(0);
    assert!(says_so(&generated) && !generated.stderr.contains(&held), "{}", generated.stderr);
    assert!(!Path::new(&left).exists() && Path::new(&held).exists());
}

/// The process is killed while it writes: its file is a leftover the moment it is gone.
#[test]
fn a_generation_that_is_killed_is_cleaned_up_by_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let dir_name = dir.path().to_str().unwrap();
    // A file that grows beyond the limit (in KiB) kills its writer, unless that asks to be spared.
    let limited = r#"ulimit -c 0 -f 2000; exec "$@""#;
    let killed = Command::new("bash")
        .args(["-c", limited, "bash", env!("CARGO_BIN_EXE_cuzk")])
        .args(["params", "generate", "wpost-2k", "--params", dir_name])
        .env("XDG_CACHE_HOME", dir.path().join("cache"))
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert_eq!(killed.code(), None, "ended by a signal");
    let unfinished = || {
        let entries = fs::read_dir(dir.path()).unwrap();
        entries
            .filter_map(Result::ok)
            .any(|entry| entry.file_name().to_str().unwrap().starts_with(".unfinished-"))
    };
    assert!(unfinished());
    let list = cuzk(&["params", "list", "--params", dir_name]).expect(0);
    assert!(list.stderr.contains("left behind"), "{}", list.stderr);
    cuzk(&["params", "generate", "wpost-2k", "--params", dir_name]).expect(0);
    assert!(!unfinished());
}

/// Parameters of another circuit under this one's name are a pair that is nobody's: the error says which file it is,
/// and no shape is kept for it.
#[test]
fn a_foreign_parameter_file_is_named_and_leaves_no_shape_behind() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join(params_file_name("winning-2k"));
    fs::copy(wpost_params_file(), &file).unwrap();
    let cache = dir.path().join("cache");
    let prove = |manifest: &str, params: &str| {
        let args = ["prove", manifest, "--json", "--params", params];
        Done::of(command(&args).env("XDG_CACHE_HOME", &cache).output().unwrap())
    };
    let shapes = || -> Vec<String> {
        let entries = fs::read_dir(cache.join("cuzk/shapes")).into_iter().flatten();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    let winning = "tests/data/filecoin/winning-2k/sector-1/manifest.json";
    let run = prove(winning, dir.path().to_str().unwrap()).expect(3);
    let (error, name) = (run.json_lines().remove(0)["error"].clone(), file.display().to_string());
    assert!(error["message"].as_str().unwrap().contains(&format!("{name}: srs does not fit")), "{error}");
    assert!(error["at"].as_str().unwrap().starts_with(&name), "{error}");
    assert_eq!(shapes(), Vec::<String>::new());

    prove(&format!("{WINDOW}/manifest.json"), params()).expect(0);
    let kept = shapes();
    let digest = kept[0].strip_prefix("wpost-2k-").and_then(|rest| rest.strip_suffix(".shape"));
    assert_eq!((kept.len(), digest.map(str::len)), (1, Some(64)), "{kept:?}");
}
