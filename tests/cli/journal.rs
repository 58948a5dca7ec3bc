//! `prove --journal`: real WindowPoSt jobs in a process that is killed.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::Value;

use crate::{command, cuzk, params, path, WINDOW};

/// Two jobs under the same circuit.
fn manifests() -> [String; 2] {
    [
        format!("{WINDOW}/manifest.json"),
        "tests/data/filecoin/window-2k/padded-partition/manifest.json".to_owned(),
    ]
}

fn proofs(lines: &[Value]) -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_str().expect("a proof").to_owned();
    lines.iter().map(|line| (text(&line["file"]), text(&line["proof"]))).collect()
}

#[test]
fn b49_a_killed_prove_goes_on_where_it_was_and_proves_nothing_twice() {
    let dir = tempfile::tempdir().unwrap();
    let journal = path(&dir, "journal");
    let manifests = manifests();
    let args = ["prove", "--json", "--device", "cpu", "--params", params(), "--journal", &journal];
    let args = [&args[..], &[manifests[0].as_str(), manifests[1].as_str()]].concat();
    let mut child = command(&args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let stderr = BufReader::new(child.stderr.take().unwrap());
    // Both are acknowledged, so both are in the journal.
    let is_accepted = |line: &String| line.contains("wpost-2k, 1 partition");
    let accepted = stderr.lines().map_while(Result::ok).filter(is_accepted).take(2).count();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(accepted, 2);

    let first = proofs(&cuzk(&args).expect(0).json_lines());
    assert_eq!(first.len(), 2);
    // The proofs have random blinding values: the same bytes are the same proofs.
    let again = cuzk(&args).expect(0);
    assert_eq!(proofs(&again.json_lines()), first);
    assert!(!again.stderr.contains("sum_h"), "nothing was proved: {}", again.stderr);
}

#[test]
fn a_journal_that_cannot_be_used_ends_with_2_and_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let manifest = format!("{WINDOW}/manifest.json");
    let broken = path(&dir, "broken");
    std::fs::write(&broken, "no journal").unwrap();
    let missing = path(&dir, "missing/journal");
    for (journal, hint) in [(&broken, "is damaged"), (&missing, "its folder must exist")] {
        let run = cuzk(&["prove", "--journal", journal, "--params", params(), &manifest]).expect(2);
        assert!(run.stderr.contains(hint) && run.stderr.contains(journal.as_str()), "{}", run.stderr);
    }
    let journal = path(&dir, "journal");
    let run = cuzk(&["prove", "--journal", &journal, "--replay", "--params", params(), &manifest]).expect(2);
    assert!(run.stderr.contains("cannot be used with"), "{}", run.stderr);
}
