//! Every command with a daemon, and without one.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::Value;

use crate::rig::{command, cuzk, params, Daemon, Done, CUZK, WINDOW, WINNING};

/// The arguments of every command that asks a daemon.
const COMMANDS: [&[&str]; 9] = [
    &["status"],
    &["jobs"],
    &["submit", WINDOW],
    &["await", "a-job"],
    &["cancel", "a-job"],
    &["preload", "wpost-2k"],
    &["evict", "wpost-2k"],
    &["reload"],
    &["drain"],
];

#[test]
fn without_a_daemon_every_command_says_so_in_one_line_and_ends_with_1() {
    let dir = tempfile::tempdir().unwrap();
    let addr = format!("unix://{}", dir.path().join("nobody.sock").display());
    for args in COMMANDS {
        let run = cuzk(&[args, &["--addr", &addr]].concat()).expect(1);
        let said = format!("error: no daemon at {addr}: is cuzk-daemon running?");
        assert!(run.stderr.starts_with(&said) && run.stderr.lines().count() == 1, "{args:?}: {}", run.stderr);
        assert_eq!(run.stdout, "");
    }
    let by_variable =
        Done::of(command(CUZK, &["status"]).env("CUZK_ADDR", &addr).output().unwrap()).expect(1);
    assert!(by_variable.stderr.contains(&addr), "{}", by_variable.stderr);
    let closed = cuzk(&["status", "--addr", "127.0.0.1:1"]).expect(1);
    assert!(closed.stderr.contains("no daemon at 127.0.0.1:1"), "{}", closed.stderr);
    let default = cuzk(&["status"]);
    // Unless somebody runs one there.
    assert!(
        default.code == 0 || default.stderr.contains("unix:///run/curio/cuzk.sock"),
        "{}",
        default.stderr
    );
}

#[test]
fn wrong_use_ends_with_2() {
    for addr in ["nonsense", "unix://relative", "host:port", "host:0"] {
        let run = cuzk(&["status", "--addr", addr]).expect(2);
        assert!(run.stderr.contains("is no address"), "{}", run.stderr);
    }
    let missing = ["status", "--addr", "localhost:1", "--tls-ca", "/nonexistent/ca.pem"];
    assert!(cuzk(&missing).expect(2).stderr.contains("/nonexistent/ca.pem"));
    let missing = ["status", "--addr", "localhost:1", "--token-file", "/nonexistent/token"];
    assert!(cuzk(&missing).expect(2).stderr.contains("/nonexistent/token"));
    for args in [&["submit"][..], &["cancel"], &["await"], &["preload"], &["submit", WINDOW, "--out", "x"]] {
        cuzk(args).expect(2);
    }
}

fn submitted(run: &Done) -> Vec<String> {
    run.json_lines().iter().map(|line| line["job_id"].as_str().expect("a job").to_owned()).collect()
}

#[test]
fn jobs_are_submitted_listed_awaited_and_their_proofs_hold() {
    let daemon = Daemon::start();
    // Nothing to do: what is there is said all the same.
    let status = daemon.cuzk(&["status", "--json"]).expect(0).json();
    assert_eq!(status["devices"].as_array().unwrap().len(), 2, "{status}");
    assert_eq!(status["queues"].as_array().unwrap().len(), 4, "{status}");
    assert_eq!((&status["draining"], &status["totals"]["accepted"]), (&false.into(), &0.into()));
    assert!(daemon.cuzk(&["jobs"]).expect(0).stdout.starts_with("jobs: none"));

    // Two files at once, under one name each; both are answered before either is proved.
    let args = ["submit", WINDOW, WINNING, "--json"];
    let jobs = submitted(&daemon.cuzk(&args).expect(0));
    assert_eq!(jobs.len(), 2);
    let out = daemon.path("proof.bin").display().to_string();
    let ended = daemon.cuzk(&["await", &jobs[0], "--json", "--out", &out]).expect(0).json();
    assert_eq!((&ended["circuit"], &ended["retries"]), (&"wpost-2k".into(), &0.into()), "{ended}");
    assert_eq!(hex::encode(fs::read(&out).unwrap()), ended["proof"].as_str().unwrap());
    assert!(ended["timings_ms"]["device"].as_u64().unwrap() > 0, "{ended}");
    cuzk(&["verify", WINDOW, &out, "--params", params()]).expect(0);
    let text = daemon.cuzk(&["await", &jobs[1]]).expect(0).stdout;
    assert!(text.contains("winning-2k") && text.contains("192 B, verified by the daemon"), "{text}");

    // The same name and inputs again: the proof that is there, checked here as well.
    let args = ["submit", WINDOW, "--request-id", "again", "--wait", "--json"];
    let first = daemon.cuzk(&args).expect(0).json();
    assert_eq!((&first["job_id"], &first["verified_here"]), (&"again".into(), &true.into()), "{first}");
    let second = daemon.cuzk(&args).expect(0).json();
    assert_eq!((&second["attached"], &second["proof"]), (&true.into(), &first["proof"]));
    let unchecked =
        daemon.cuzk(&["submit", WINDOW, "--request-id", "again", "--wait", "--params", "/nonexistent"]);
    let unchecked = unchecked.expect(0);
    assert!(unchecked.stdout.contains("verified by the daemon\n"), "{}", unchecked.stdout);

    let status = daemon.cuzk(&["status"]).expect(0).stdout;
    assert!(status.contains("proofs: 3 completed, 0 failed"), "{status}");
    for word in [": ready, up", "sim-", "wpost-2k", "winning-post", "jobs: none"] {
        assert!(status.contains(word), "{word}: {status}");
    }
}

#[test]
fn jobs_are_cancelled_and_what_is_not_there_ends_with_3() {
    let daemon = Daemon::start();
    // More than both devices have lanes for: the last is still there when it is cancelled.
    let names: Vec<String> = (0..8).map(|number| format!("job-{number}")).collect();
    for name in &names {
        daemon.cuzk(&["submit", WINDOW, "--request-id", name, "--priority", "low"]).expect(0);
    }
    let listed = daemon.cuzk(&["jobs", "--json"]).expect(0).json_lines();
    let last = listed.iter().find(|job| job["job_id"] == names[7].as_str()).expect("it waits");
    assert_eq!((&last["priority"], &last["partitions"]), (&"low".into(), &1.into()), "{last}");
    assert!(daemon.cuzk(&["jobs"]).expect(0).stdout.contains("job-7"));

    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    let cancelled = daemon.cuzk(&[&["cancel", "--json"][..], &all].concat()).expect(0).json_lines();
    assert_eq!(cancelled.len(), 8);
    assert!(cancelled.iter().all(|line| line["was_running"].is_boolean()), "{cancelled:?}");
    let ended = daemon.cuzk(&["await", "job-7", "--json"]).expect(1).json();
    assert_eq!((&ended["error"]["class"], &ended["proof"]), (&"cancelled".into(), &Value::Null), "{ended}");

    let unknown = daemon.cuzk(&["await", "never-heard-of", "--json"]).expect(3).json();
    assert_eq!(unknown["error"]["class"], "caller", "{unknown}");
    assert!(unknown["error"]["message"].as_str().unwrap().contains("never-heard-of"), "{unknown}");
    let unknown = daemon.cuzk(&["cancel", "never-heard-of"]).expect(3);
    assert!(unknown.stderr.contains("never-heard-of"), "{}", unknown.stderr);
    let circuits = daemon.cuzk(&["preload", "no-such-circuit"]).expect(3);
    assert!(circuits.stderr.contains("no-such-circuit"), "{}", circuits.stderr);

    // Said before anything is sent, by the same reader as `cuzk prove`.
    let bad = daemon.path("bad.json");
    fs::write(&bad, "{\"proof_kind\": \"WINNING_POST\"").unwrap();
    let bad = bad.display().to_string();
    let refused = daemon.cuzk(&["submit", &bad, WINDOW, "--json"]).expect(3);
    let lines = refused.json_lines();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0]["error"]["message"].as_str().unwrap().contains("bad.json"), "{lines:?}");
    assert!(lines[1]["job_id"].is_string() && lines[1]["error"].is_null(), "{lines:?}");
    assert!(refused.stderr.contains("1 of 2 jobs failed"), "{}", refused.stderr);
}

#[test]
fn keys_are_loaded_and_evicted_the_configuration_is_read_again_and_the_daemon_drained() {
    let mut daemon = Daemon::start();
    let load = |circuit: &str| daemon.cuzk(&["preload", circuit, "--json"]).expect(0).json();
    let first = load("wpost-2k");
    assert_eq!((&first["circuit"], &first["already_loaded"]), (&"wpost-2k".into(), &false.into()), "{first}");
    assert!(first["host_bytes"].as_u64().unwrap() > 0, "{first}");
    assert_eq!(load("wpost-2k")["already_loaded"], true);
    let status = daemon.cuzk(&["status", "--json"]).expect(0).json();
    assert_eq!(status["circuits"][0]["circuit_id"], "wpost-2k", "{status}");
    let evicted = daemon.cuzk(&["evict", "wpost-2k", "winning-2k", "--json"]).expect(0).json_lines();
    assert_eq!((&evicted[0]["was_loaded"], &evicted[1]["was_loaded"]), (&true.into(), &false.into()));
    assert!(daemon.cuzk(&["evict", "wpost-2k"]).expect(0).stdout.contains("was not loaded"));

    let reloaded = daemon.cuzk(&["reload", "--json"]).expect(0).json();
    assert!(reloaded["applied"].is_array() && reloaded["needs_restart"].is_array(), "{reloaded}");
    assert!(daemon.cuzk(&["reload"]).expect(0).stdout.contains("nothing has changed"));

    daemon.cuzk(&["submit", WINDOW, "--request-id", "last"]).expect(0);
    let drained = daemon.cuzk(&["drain", "--wait", "--json"]).expect(0).json();
    assert_eq!((&drained["jobs"], &drained["gone"]), (&1.into(), &true.into()), "{drained}");
    assert_eq!(daemon.wait().code(), Some(0), "{}", daemon.log());
    daemon.cuzk(&["status"]).expect(1);
}

#[test]
fn who_waits_for_a_job_gets_it_although_the_daemon_is_killed_meanwhile() {
    let mut daemon = Daemon::start();
    daemon.cuzk(&["submit", WINDOW, "--request-id", "kept"]).expect(0);
    let mut waiting = daemon.command(&["await", "kept", "--json"]);
    let mut waiting = waiting.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Its first word says that it has asked.
    let mut said = BufReader::new(waiting.stderr.take().unwrap()).lines();
    assert!(said.next().unwrap().unwrap().starts_with("job kept: wpost-2k"));
    daemon.kill();
    daemon.start_again();
    let ended = Done::of(waiting.wait_with_output().unwrap()).expect(0).json();
    assert_eq!(ended["job_id"], "kept", "{ended}");
}
