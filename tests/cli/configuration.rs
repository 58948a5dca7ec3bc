//! What `check-config` finds, and where a configuration comes from.

use std::fs;
use std::path::Path;

use crate::{command, cuzk, params, path, Done, WINDOW};

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
    let run = |value: &str| Done::of(command(&["check-config"]).env("CUZK_CONFIG", value).output().unwrap());
    assert_eq!(run("").expect(0).stdout, cuzk(&["check-config"]).expect(0).stdout);
    assert!(run("/nonexistent").expect(2).stderr.contains("/nonexistent"));
}

#[test]
fn parameters_are_looked_for_where_the_flag_says_then_the_configuration_then_the_variable() {
    let dir = tempfile::tempdir().unwrap();
    let manifest = format!("{WINDOW}/manifest.json");
    let prove = |variable: &str, config: &str, flag: Option<&str>| {
        let file = path(&dir, "cuzk.toml");
        fs::write(&file, config).unwrap();
        let mut args = vec!["prove", &manifest, "--json", "--config", &file];
        args.extend(flag.iter().flat_map(|dir| ["--params", dir]));
        let run = Done::of(command(&args).env("FIL_PROOFS_PARAMETER_CACHE", variable).output().unwrap());
        let line = run.json_lines().remove(0);
        (run.code, line["error"]["message"].as_str().unwrap_or_default().to_owned())
    };
    let config = |dir: &str| format!("[srs]\nparams_dir = \"{dir}\"\n");
    assert_eq!(prove(params(), "", None).0, 0, "the variable");
    assert_eq!(
        prove("/nowhere/variable", &config(params()), None).0,
        0,
        "the configuration before the variable"
    );
    let all = prove("/nowhere/variable", &config("/nowhere/configuration"), Some(params()));
    assert_eq!(all.0, 0, "the flag before both");
    for (variable, config, flag, named) in [
        ("/nowhere/variable", String::new(), None, "/nowhere/variable"),
        (params(), config("/nowhere/configuration"), None, "/nowhere/configuration"),
        (params(), config(params()), Some("/nowhere/flag"), "/nowhere/flag"),
    ] {
        let (code, message) = prove(variable, &config, flag);
        assert!(code == 3 && message.contains(named), "{named}: {code} {message}");
    }
}
