//! Standard output that cannot be written, failures that are said once, signals.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::terminal::Terminal;
use crate::{command, copy_of, cuzk, params, params_file_name, path, wpost_params_file, Done, WINDOW};

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

fn run_to(stdout: Stdio, args: &[&str]) -> Done {
    Done::of(command(args).stdout(stdout).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap())
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

/// A script that counts lines is told of every job, however the command ends.
#[test]
fn a_signal_leaves_no_job_without_its_line() {
    let two = "tests/data/filecoin/window-2k/two-partitions/manifest.json";
    let missing = "/nonexistent/manifest.json";
    let args = ["prove", missing, two, "--json", "--params", params(), "--device", "sim:1;0:hang@1.sum_h"];
    let mut child = command(&args).stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(stderr.any(|line| line.unwrap().contains("quotient on sim-")));
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    stderr.for_each(drop);
    let run = Done::of(child.wait_with_output().unwrap()).expect(130);
    let mut said: Vec<_> = run
        .json_lines()
        .iter()
        .map(|line| {
            let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
            (text(&line["file"]), line["request"].as_u64().unwrap(), text(&line["error"]["class"]))
        })
        .collect();
    said.sort();
    let expected = [(missing, 0, "caller"), (two, 0, "cancelled"), (two, 1, "cancelled")];
    assert_eq!(said, expected.map(|(file, request, class)| (file.to_owned(), request, class.to_owned())));
}

#[test]
fn errors_before_logging_is_set_up_are_json_lines_too() {
    let dir = tempfile::tempdir().unwrap();
    let config = path(&dir, "cuzk.toml");
    fs::write(&config, "[loging]\nlevel = \"info\"\n").unwrap();
    let cases: [(&[&str], &str); 5] = [
        (&["prov", "--log-format", "json"], "unrecognized subcommand"),
        (&["prove", "--log-format=json"], "<FILE>"),
        (&["circuits", "--log-format", "json", "--log-level", "verbose"], "does not begin with a level"),
        (&["circuits", "--log-format", "json", "--config", "/nonexistent.toml"], "/nonexistent.toml"),
        (&["circuits", "--log-format", "json", "--config", &config], "did you mean `logging`"),
    ];
    let assert_said = |run: Done, what: &str| {
        let lines: Vec<serde_json::Value> =
            run.stderr.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
        assert_eq!(lines.len(), 1, "{}", run.stderr);
        assert!(lines[0]["message"].as_str().unwrap().contains(what), "{}", run.stderr);
        assert_eq!(lines[0]["level"], "ERROR", "{}", run.stderr);
        assert_eq!(lines[0]["class"], "caller", "{}", run.stderr);
    };
    for (args, what) in cases {
        assert_said(cuzk(args).expect(2), what);
    }
    let by_variable = command(&["prov"]).env("CUZK_LOGGING_FORMAT", "json").output().unwrap();
    assert_said(Done::of(by_variable).expect(2), "unrecognized subcommand");
    // The place for logs is what is wrong: standard error is left.
    let no_file =
        command(&["circuits", "--log-format", "json"]).env("CUZK_LOGGING_FILE", "tests").output().unwrap();
    assert_said(Done::of(no_file).expect(2), "logging.file");
    assert!(cuzk(&["--help", "--log-format", "json"]).expect(0).stdout.contains("Usage"));
}

/// What is redrawn names the stage that runs, of which partition, on which device; nothing of it is left at the end.
#[test]
fn on_a_terminal_prove_shows_stages_and_partitions_and_clears_up_behind_itself() {
    // A short path, so that a line of 80 columns has room for what it is about.
    let copy = copy_of("tests/data/filecoin/window-2k/two-partitions");
    let manifest = path(&copy, "manifest.json");
    let args = ["prove", &manifest, "--params", params(), "--device", "sim:1;stage=300ms"];
    let finished = Terminal::run(&command(&args)).finish();
    assert_eq!(finished.status.code(), Some(0), "{}", finished.screen);
    for stage in ["upload", "quotient", "sum_h", "sum_l", "sum_a", "sum_b_g1", "sum_b_g2", "assemble"] {
        let shown = format!("partition 0: {stage} on sim-0");
        assert!(finished.written.contains(&shown), "{shown:?} was never shown:\n{}", finished.written);
    }
    // On the screen the first job's lines may have been moved out by the second's.
    assert_eq!(finished.written.matches("192 B, verified").count(), 2, "{}", finished.written);
    assert!(!finished.screen.contains("partition 0: "), "{}", finished.screen);
}
