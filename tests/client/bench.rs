//! `cuzk-bench` under load: through a daemon and embedded.

use std::fs;

use serde_json::Value;

use crate::rig::{bench, params, Daemon, Done, WINDOW};

fn report(run: &Done) -> Value {
    serde_json::from_str(&run.stdout).unwrap_or_else(|error| panic!("{error}: {}", run.stdout))
}

/// Everything that is counted twice is counted alike.
#[track_caller]
fn assert_adds_up(report: &Value) {
    let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{value} in {report}"));
    let jobs = number(&report["jobs"]);
    assert_eq!(jobs, number(&report["completed"]) + number(&report["failed"]));
    assert_eq!(jobs, report["samples"].as_array().unwrap().len() as u64);
    let sum = |field: &str| {
        report["kinds"].as_object().unwrap().values().map(|kind| number(&kind[field])).sum::<u64>()
    };
    for field in ["jobs", "completed", "failed", "verified"] {
        assert_eq!(sum(field), number(&report[field]), "{field}");
    }
    let failures: u64 =
        report["failures"].as_object().unwrap().values().map(|failure| number(&failure["count"])).sum();
    assert_eq!(failures, jobs - number(&report["verified"]));
    let devices = report["devices"].as_object().unwrap();
    let share: f64 = devices.values().map(|device| device["share"].as_f64().unwrap()).sum();
    assert!((share - 1.0).abs() < 1e-9, "{share}");
    for kind in report["kinds"].as_object().unwrap().values() {
        let total = &kind["total_ms"];
        let at = |name: &str| total[name].as_f64().unwrap();
        assert!(at("p50") <= at("p90") && at("p90") <= at("p99") && at("p99") <= at("max"), "{total}");
        assert!(at("max") <= report["wall_ms"].as_f64().unwrap(), "{total}");
    }
}

#[test]
fn stress_of_two_kinds_through_a_daemon_adds_up_and_every_proof_holds() {
    let daemon = Daemon::start();
    let html = daemon.path("report.html").display().to_string();
    let args = ["stress", "--load", "winning-2k=30/min,window-2k=2/s", "--duration", "2s", "--seed", "3"];
    let run = bench(
        &[&args[..], &["--addr", &daemon.addr, "--params", params(), "--json", "--html", &html]].concat(),
    );
    let report = report(&run.expect(0));
    assert_adds_up(&report);
    assert_eq!((&report["command"], &report["failed"]), (&"stress".into(), &0.into()), "{report}");
    assert_eq!(report["verified"], report["jobs"]);
    assert_eq!(report["kinds"].as_object().unwrap().len(), 2);
    let page = fs::read_to_string(html).unwrap();
    assert_eq!(page.matches("<svg").count(), 3);
    assert!(page.contains("winning-2k") && page.ends_with("</html>\n"));
    // Nothing from elsewhere.
    for outside in ["http:", "https:", "src=", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
    // The daemon has counted the same: its jobs, and one of each kind to load its circuit.
    let status = daemon.cuzk(&["status", "--json"]).expect(0).json();
    assert_eq!(status["totals"]["completed"].as_u64().unwrap(), report["jobs"].as_u64().unwrap() + 2);
}

#[test]
fn embedded_is_the_default_and_recorded_inputs_do_as_well() {
    let args = ["single", WINDOW, "--count", "2", "--device", "sim:1", "--params", params(), "--json"];
    let report = report(&bench(&args).expect(0));
    assert_adds_up(&report);
    assert_eq!((&report["target"], &report["verified"]), (&"embedded".into(), &2.into()));
    let args = [
        "batch",
        "window-2k",
        "--count",
        "2",
        "--concurrency",
        "2",
        "--device",
        "sim:2",
        "--params",
        params(),
    ];
    let text = bench(&args).expect(0).stdout;
    assert!(text.contains("2 proofs hold, by cuzk's verifier and by Filecoin's"), "{text}");
}

#[test]
fn a_comparison_runs_the_same_jobs_both_ways() {
    let args = ["batch", "window-2k", "--compare", "--rounds", "1", "--count", "2", "--concurrency", "2"];
    let run = bench(&[&args[..], &["--device", "sim:1", "--params", params(), "--json"]].concat());
    // One round on a machine that does other things says nothing of the ratio: only 1 may say that it is too low.
    assert!([0, 1].contains(&run.code), "{}", run.stderr);
    let comparison = report(&run);
    for side in ["embedded", "daemon"] {
        assert_adds_up(&comparison[side]["last_round"]);
        assert_eq!(comparison[side]["last_round"]["verified"], 2, "{side}");
        assert!(comparison[side]["cpu_s"].as_f64().unwrap() > 0.0, "{side}");
    }
    assert!(comparison["ratio"].as_f64().unwrap() > 0.0);
    assert_eq!(comparison["ratio_by_round"].as_array().unwrap().len(), 1);
}

#[test]
fn what_cannot_be_had_is_wrong_use() {
    for (args, word) in [
        (&["batch", "no-such-kind"][..], "is no circuit"),
        (&["single", "porep-2k"], "cuzk params generate"),
        (&["batch", "winning-2k", "winning-2k"], "named twice"),
        (&["stress", "--load", "winning-2k"], "KIND=RATE"),
        (&["stress", "--load", "winning-2k=1/h", "--duration", "1s"], "no job arrives"),
    ] {
        let run = bench(&[args, &["--params", params()]].concat()).expect(2);
        assert!(run.stderr.contains(word), "{args:?}: {}", run.stderr);
    }
    let run = bench(&["single", "winning-2k", "--params", params(), "--addr", "127.0.0.1:1"]).expect(1);
    assert!(run.stderr.contains("is cuzk-daemon running?"), "{}", run.stderr);
}
