//! `cuzk-bench simulate` and `timeline`, and the event log of `cuzk prove`, as one calls them.

use std::path::Path;
use std::process::{Command, Output};

fn bench(arguments: &[&str]) -> Output {
    let root = env!("CARGO_MANIFEST_DIR");
    Command::new(env!("CARGO_BIN_EXE_cuzk-bench")).args(arguments).current_dir(root).output().unwrap()
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn a_scenario_gives_tables_json_a_picture_and_events_and_these_a_timeline() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let (svg, events, drawn, trace) =
        (file("window.svg"), file("events.jsonl"), file("all.svg"), file("trace.json"));
    let scenario = "scenarios/two-a6000.toml";
    let arguments =
        ["simulate", scenario, "--hours", "0.5", "--span-hours", "0.2", "--svg", svg.to_str().unwrap()];
    let said = stdout(&bench(&[&arguments[..], &["--events", events.to_str().unwrap()]].concat()));
    for word in
        ["two A6000: 0.5 simulated hours", "winning-post", "sim-1", "holds: lost jobs ≤ 0", "times as fast"]
    {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert!(text(&svg).contains("RTX A6000"));

    let json =
        |seed: &str| stdout(&bench(&["simulate", scenario, "--hours", "0.5", "--seed", seed, "--json"]));
    let first = json("5");
    assert_eq!(first, json("5"), "the same to the byte");
    let report: serde_json::Value = serde_json::from_str(&first).unwrap();
    assert_eq!((&report["seed"], &report["lost_jobs"]), (&5.into(), &0.into()));

    let arguments = ["timeline", events.to_str().unwrap(), "--svg", drawn.to_str().unwrap(), "--chrome"];
    let said = stdout(&bench(&[&arguments[..], &[trace.to_str().unwrap()]].concat()));
    assert!(said.contains("sim-0 (RTX A6000)") && said.contains("porep-c2"), "{said}");
    assert!(text(&drawn).contains("</svg>"));
    let trace: serde_json::Value = serde_json::from_str(&text(&trace)).unwrap();
    assert!(trace["traceEvents"].as_array().unwrap().len() > 100);
}

#[test]
fn what_is_wrong_is_said_and_the_exit_code_tells() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bad.toml");
    let good = text(&Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/two-a6000.toml"));
    let fails = |contents: &str, word: &str| {
        std::fs::write(&path, contents).unwrap();
        let output = bench(&["simulate", path.to_str().unwrap(), "--hours", "0.1"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(word), "{said}");
    };
    fails(&good.replace("vram", "wram"), "unknown field `wram`");
    fails(
        &good.replace("utilisation_min = 0.8", "utilisation_min = 1.5"),
        "a claim of the scenario does not hold",
    );
    let output = bench(&["timeline", "no-such-file"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no-such-file"));
    assert_eq!(bench(&["simulate"]).status.code(), Some(2));
}

#[test]
fn a_real_proof_leaves_a_log_that_can_be_drawn() {
    let dir = tempfile::tempdir().unwrap();
    let (params, events) = (dir.path().join("params"), dir.path().join("events.jsonl"));
    let cuzk = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cuzk"));
        command.args(arguments).current_dir(env!("CARGO_MANIFEST_DIR"));
        // The shape's cache of whoever runs this is left alone.
        command.env("CUZK_SRS_CACHE_DIR", dir.path().join("cache"));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let params = params.to_str().unwrap();
    std::fs::create_dir_all(params).unwrap();
    cuzk(&["params", "generate", "wpost-2k", "--params", params]);
    let manifest = "tests/data/filecoin/window-2k/full-partition/manifest.json";
    cuzk(&["prove", manifest, "--params", params, "--device", "cpu", "--events", events.to_str().unwrap()]);
    let summary = stdout(&bench(&["timeline", events.to_str().unwrap(), "--json"]));
    let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
    assert_eq!(summary["kinds"]["window-post"]["completed"], 1);
    assert_eq!(summary["devices"]["cpu"]["partitions_verified"], 1);
    assert_eq!(summary["num_dropped"], 0);
}
