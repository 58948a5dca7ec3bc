//! Completions and manual pages, of every program and command.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::rig::{bench, command, cuzk, Done, BENCH, CUZK};

/// Whether a program is installed on this machine.
fn has(program: &str) -> bool {
    Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

#[test]
fn completions_know_every_command_and_a_shell_takes_them() {
    for (program, word) in [(CUZK, "check-config"), (CUZK, "preload"), (BENCH, "stress"), (CUZK, "--listen")]
    {
        for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
            let script =
                Done::of(command(program, &["completions", shell]).output().unwrap()).expect(0).stdout;
            let word =
                if shell == "fish" || shell == "powershell" { word.trim_start_matches('-') } else { word };
            assert!(script.contains(word), "{program} {shell}: no {word}");
        }
        let script = Done::of(command(program, &["completions", "bash"]).output().unwrap()).expect(0).stdout;
        let mut bash = Command::new("bash").arg("-n").stdin(Stdio::piped()).spawn().unwrap();
        bash.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        assert!(bash.wait().unwrap().success(), "{program}: bash does not parse it");
    }
    cuzk(&["completions", "tcsh"]).expect(2);
}

/// The commands that `--help` lists.
fn commands(program: &str) -> BTreeSet<String> {
    let help = Done::of(command(program, &["--help"]).output().unwrap()).expect(0).stdout;
    let (_, list) = help.split_once("Commands:\n").unwrap();
    let lines = list.lines().take_while(|line| !line.trim().is_empty());
    let names = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names.map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
}

#[test]
fn every_command_has_a_page_that_a_formatter_takes() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().display().to_string();
    for (program, name) in [(CUZK, "cuzk"), (BENCH, "cuzk-bench"), (CUZK, "cuzk-daemon")] {
        let args = ["man", "--out", &out];
        Done::of(command(program, &args).output().unwrap()).expect(0);
        let page = fs::read_to_string(dir.path().join(format!("{name}.1"))).unwrap();
        for part in [".TH", ".SH NAME", ".SH SYNOPSIS", ".SH OPTIONS"] {
            assert!(page.contains(part), "{name}: no {part}");
        }
        if name == "cuzk-daemon" {
            continue;
        }
        for command in commands(program).iter().filter(|command| *command != "help") {
            assert!(dir.path().join(format!("{name}-{command}.1")).is_file(), "{name} {command}");
        }
    }
    for entry in fs::read_dir(dir.path()).unwrap() {
        check_page(&entry.unwrap().path());
    }
    assert!(cuzk(&["man"]).expect(0).stdout.contains("cuzk"));
    assert!(bench(&["man"]).expect(0).stdout.contains("stress"));
}

/// Requests that these pages consist of; a line that begins with another dot would vanish.
const REQUESTS: [&str; 11] = [".TH", ".SH", ".SS", ".TP", ".br", ".RS", ".RE", ".PP", ".ie", ".el", ".IP"];

fn check_page(path: &Path) {
    let page = fs::read_to_string(path).unwrap();
    for line in page.lines().filter(|line| line.starts_with('.')) {
        assert!(REQUESTS.iter().any(|request| line.starts_with(request)), "{}: {line}", path.display());
    }
    // Where the machine has a formatter, it must have nothing to say.
    let formatter: &[&str] = if has("mandoc") {
        &["mandoc", "-Tlint", "-Wwarning"]
    } else if has("groff") {
        &["groff", "-man", "-Tutf8", "-ww", "-z"]
    } else {
        return;
    };
    let output = Command::new(formatter[0]).args(&formatter[1..]).arg(path).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("warning"), "{}: {said}", path.display());
}
