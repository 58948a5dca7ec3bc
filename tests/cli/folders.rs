//! Folders of parameters that cannot be entered, written or filled, and what killed processes leave in them.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::{command, cuzk, params, path, Run, WINDOW};

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
    let run = Run::of(run).expect(2);
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

    let says_so = |run: &Run| run.stderr.contains(&left) && run.stderr.contains("3.0 MiB");
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
    let args = ["params", "generate", "winning-2k", "--params", dir_name];
    let mut child = command(&args).stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let unfinished = || {
        let entries = fs::read_dir(dir.path()).unwrap();
        entries
            .filter_map(Result::ok)
            .any(|entry| entry.file_name().to_str().unwrap().starts_with(".unfinished-"))
    };
    while !unfinished() {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it wrote anything");
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(unfinished());
    let list = cuzk(&["params", "list", "--params", dir_name]).expect(0);
    assert!(list.stderr.contains("left behind"), "{}", list.stderr);
    cuzk(&["params", "generate", "wpost-2k", "--params", dir_name]).expect(0);
    assert!(!unfinished());
}

#[test]
fn check_config_names_what_could_not_be_used() {
    let dir = tempfile::tempdir().unwrap();
    let file = path(&dir, "cuzk.toml");
    let check = |text: &str| {
        fs::write(&file, text).unwrap();
        cuzk(&["check-config", &file])
    };
    for log in ["README.md/cuzk.log", "/nonexistent/cuzk.log", "/proc/self/cuzk.log", "tests"] {
        let run = check(&format!("[logging]\nfile = \"{log}\"\n")).expect(2);
        assert!(run.stderr.starts_with(&format!("error: logging.file: {log}: ")), "{}", run.stderr);
        assert_eq!(run.stdout, "");
    }
    let log = path(&dir, "cuzk.log");
    check(&format!("[logging]\nfile = \"{log}\"\n")).expect(0);
    assert!(!Path::new(&log).exists(), "nothing is made by a check");

    let cuda = check("[gpus]\ndevices = \"cuda\"\n");
    if cfg!(feature = "cuda") {
        cuda.expect(0);
    } else {
        let cuda = cuda.expect(2);
        assert!(
            cuda.stderr.contains("gpus.devices") && cuda.stderr.contains("built without CUDA"),
            "{}",
            cuda.stderr
        );
    }
}

#[test]
fn an_empty_variable_names_no_configuration() {
    let run = |value: &str| Run::of(command(&["check-config"]).env("CUZK_CONFIG", value).output().unwrap());
    assert_eq!(run("").expect(0).stdout, cuzk(&["check-config"]).expect(0).stdout);
    assert!(run("/nonexistent").expect(2).stderr.contains("/nonexistent"));
}

/// Every line for scripts has the same fields, whatever happened.
#[test]
fn every_outcome_of_verify_has_its_line() {
    let params = params();
    let two = "tests/data/filecoin/window-2k/two-partitions";
    let manifest = format!("{two}/manifest.json");
    let good = fs::read(format!("{two}/proof.bin")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let proof = path(&dir, "proof");
    let verify = |manifest: &str, bytes: &[u8], more: &[&str], code: i32| -> Vec<Value> {
        fs::write(&proof, bytes).unwrap();
        let args = [&["verify", manifest, &proof, "--json", "--params", params], more].concat();
        let run = cuzk(&args).expect(code);
        let lines = run.json_lines();
        for line in &lines {
            for field in ["file", "request", "circuit", "partitions", "verified"] {
                assert!(line.as_object().unwrap().contains_key(field), "{field}: {line}");
            }
            assert_eq!(line["verified"], line["error"].is_null(), "{line}");
            assert_eq!(line["error"].is_null(), line["error"]["message"].is_null(), "{line}");
        }
        let failed = code != 0;
        assert_eq!(run.stderr.lines().last().is_some_and(|line| line.starts_with("error: ")), failed);
        lines
    };
    let verified = |lines: &[Value]| lines.iter().map(|line| line["verified"] == true).collect::<Vec<_>>();
    assert_eq!(verified(&verify(&manifest, &good, &[], 0)), [true, true]);
    // The second request's proof in the place of the first as well, and the other way round.
    assert_eq!(verified(&verify(&manifest, &[&good[192..], &good[192..]].concat(), &[], 1)), [false, true]);
    assert_eq!(verified(&verify(&manifest, &[&good[..192], &good[..192]].concat(), &[], 1)), [true, false]);

    let error = |lines: Vec<Value>| {
        assert_eq!(lines.len(), 1, "{lines:?}");
        lines[0]["error"]["message"].as_str().unwrap().to_owned()
    };
    assert!(error(verify(&manifest, &good[1..], &[], 3)).contains("needs 384 B"));
    assert!(error(verify("/nonexistent.json", &good, &[], 3)).contains("/nonexistent.json"));
    assert!(error(verify(&manifest, &good, &["--request", "7"], 2)).contains("no such one"));
    let porep = "tests/data/filecoin/winning-2k/sector-1/manifest.json";
    assert!(error(verify(porep, &good[..192], &[], 3)).contains("verifying key not found"));
}

#[test]
fn a_proof_in_hex_is_taken_as_people_pass_it_on() {
    let manifest = format!("{WINDOW}/manifest.json");
    let hex = hex::encode(fs::read(format!("{WINDOW}/proof.bin")).unwrap());
    let wrapped: Vec<&str> = (0..hex.len()).step_by(64).map(|at| &hex[at..hex.len().min(at + 64)]).collect();
    let dir = tempfile::tempdir().unwrap();
    let file = path(&dir, "proof.hex");
    let verify = |text: &str| {
        fs::write(&file, text).unwrap();
        cuzk(&["verify", &manifest, &file, "--params", params()])
    };
    let upper = hex.to_uppercase();
    for text in
        [format!("0x{hex}\n"), wrapped.join("\n"), wrapped.join(" \r\n"), format!("\u{feff}0X{upper}")]
    {
        verify(&text).expect(0);
    }
    assert!(verify(&hex[1..]).expect(3).stderr.contains("hex"));
    assert!(verify(&hex[2..]).expect(3).stderr.contains("has 191 B"));
}
