//! Standard output that cannot be written, failures that are said once, signals.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::{command, cuzk, params, params_file_name, path, wpost_params_file, Run, WINDOW};

/// A device that is always full.
fn full() -> Stdio {
    File::options().write(true).open("/dev/full").unwrap().into()
}

/// A pipe whose reader went away.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

fn run_to(stdout: Stdio, args: &[&str]) -> Run {
    Run::of(command(args).stdout(stdout).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap())
}

#[test]
fn a_full_disk_is_an_error_and_a_closed_pipe_is_a_quiet_end() {
    let proof = format!("{WINDOW}/proof.bin");
    let commands: [&[&str]; 8] = [
        &["--help"],
        &["--version"],
        &["circuits"],
        &["circuits", "--json"],
        &["check-config"],
        &["params", "list"],
        &["inspect", &proof, &proof],
        &["devices", "--json"],
    ];
    for args in commands {
        let run = run_to(full(), args).expect(1);
        assert!(run.stderr.starts_with("error: standard output: cannot write: "), "{args:?}: {}", run.stderr);
        assert_eq!(run.stderr.lines().count(), 1, "{args:?}: {}", run.stderr);
        assert_eq!(run_to(closed(), args).expect(141).stderr, "", "{args:?}");
    }
    // Wrong use does not print there, and stays what it is.
    run_to(full(), &["prov"]).expect(2);
}

#[test]
fn a_proof_is_written_before_it_is_printed() {
    let manifest = format!("{WINDOW}/manifest.json");
    let recorded = fs::read(format!("{WINDOW}/proof.bin")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let out = path(&dir, "proof.bin");
    let prove = ["prove", &manifest, "--replay", "--params", params()];
    for (stdout, code) in [(full as fn() -> Stdio, 1), (closed, 141)] {
        for more in [&["--out", &out][..], &["--out", &out, "--json"]] {
            run_to(stdout(), &[&prove[..], more].concat()).expect(code);
            assert_eq!(fs::read(&out).unwrap(), recorded);
            fs::remove_file(&out).unwrap();
        }
        run_to(stdout(), &prove).expect(code);
    }
}

#[test]
fn all_requests_reach_the_file_although_nobody_reads_the_lines() {
    let manifest = "tests/data/filecoin/window-2k/two-partitions/manifest.json";
    let dir = tempfile::tempdir().unwrap();
    let out = path(&dir, "proof.bin");
    let args = ["prove", manifest, "--replay", "--json", "--out", &out, "--params", params()];
    run_to(closed(), &args).expect(141);
    let recorded = fs::read("tests/data/filecoin/window-2k/two-partitions/proof.bin").unwrap();
    assert_eq!(fs::read(&out).unwrap(), recorded);
}

#[test]
fn a_failure_is_said_once() {
    let dir = tempfile::tempdir().unwrap();
    let winning = "tests/data/filecoin/winning-2k/sector-1/manifest.json";
    let prove = || cuzk(&["prove", winning, "--params", dir.path().to_str().unwrap()]).expect(3).stderr;
    let count = |stderr: &str, what: &str| stderr.matches(what).count();
    let missing = prove();
    assert_eq!(count(&missing, "not found"), 1, "{missing}");
    fs::copy(wpost_params_file(), dir.path().join(params_file_name("winning-2k"))).unwrap();
    let foreign = prove();
    assert_eq!(count(&foreign, "does not fit"), 1, "{foreign}");

    // Who asks for the log gets all of it.
    let args = ["prove", winning, "--log-level", "info", "--params", dir.path().to_str().unwrap()];
    let logged = cuzk(&args).expect(3).stderr;
    assert_eq!(count(&logged, "does not fit"), 2, "{logged}");
}

#[test]
fn a_signal_does_not_wait_for_a_device_that_hangs() {
    let manifest = format!("{WINDOW}/manifest.json");
    let args = ["prove", &manifest, "--params", params(), "--device", "sim:2;0:hang@1.sum_h;1:hang@1.sum_h"];
    for signal in ["-INT", "-TERM"] {
        let mut child = command(&args).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines();
        // The last stage before the one that never ends.
        assert!(stderr.any(|line| line.unwrap().contains("quotient on sim-")));
        let begun = Instant::now();
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
        let rest: Vec<String> = stderr.map(Result::unwrap).collect();
        let code = child.wait().unwrap().code();
        assert_eq!(code, Some(if signal == "-INT" { 130 } else { 143 }), "{rest:?}");
        // The engine alone would wait ten seconds for its devices.
        assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
    }
}
