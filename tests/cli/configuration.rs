//! What `check-config` finds, and where a configuration comes from.

use std::fs;
use std::path::Path;

use crate::{command, cuzk, path, Run};

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
